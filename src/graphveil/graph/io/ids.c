/* A table of hashes of words: which node a word names.
 *
 * Plain C that calls no library; ctypes loads it. Where it is not built, ids.py does the same, more slowly.
 * A slot has `parts` numbers of eight letters each, with zeros after the end of the word, and then the node plus 1; 0 says
 * that the slot is free. A word whose slot is taken is in the next free one. ids.py finds the functions by their names:
 * whoever changes their parameters must change their names. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "needs the first letter of eight in the lowest byte"
#endif

#define MOST_PARTS 5
/* Slots of as many words are asked for before the first one is looked at. */
#define TOGETHER 16

typedef struct {
    uint64_t *slots;
    size_t parts;
    uint64_t mix;
    unsigned shift, bits; /* of a hash, the highest `bits` are the slot */
    size_t most_steps;
} table;

typedef struct {
    const int64_t *starts;
    const uint8_t *letters, *end;
} texts;

/* Puts the letters of a word into `key`; 0 if they are too many. */
static int packed(const texts *of, size_t word, size_t parts, uint64_t *key) {
    const size_t length = (size_t)(of->starts[word + 1] - of->starts[word]);
    const uint8_t *at = of->letters + of->starts[word];
    if (length > 8 * parts)
        return 0;
    for (size_t part = 0; part < parts; part++, at += 8) {
        const size_t left = length > 8 * part ? length - 8 * part : 0;
        key[part] = 0;
        if (left >= 8)
            memcpy(key + part, at, 8);
        else if (left && of->end - at >= 8) {
            memcpy(key + part, at, 8);
            key[part] &= (UINT64_C(1) << 8 * left) - 1;
        } else
            for (size_t letter = 0; letter < left; letter++)
                key[part] |= (uint64_t)at[letter] << 8 * letter;
    }
    return 1;
}

static size_t slot_of(const table *in, const uint64_t *key) {
    uint64_t mixed = key[0] * in->mix;
    for (size_t part = 1; part < in->parts; part++)
        mixed = (mixed ^ mixed >> 32 ^ key[part]) * in->mix;
    return (size_t)((mixed ^ mixed >> 32) * in->mix >> in->shift);
}

/* The place of a word, or of the free slot where it would be; NULL after too many steps. */
static uint64_t *place_of(const table *in, const uint64_t *key, size_t slot) {
    const size_t width = in->parts + 1, last = ((size_t)1 << in->bits) - 1;
    for (size_t step = 0; step < in->most_steps; step++, slot = (slot + 1) & last) {
        uint64_t *at = in->slots + slot * width;
        if (!at[in->parts] || !memcmp(at, key, 8 * in->parts))
            return at;
    }
    return NULL;
}

/* Adds words, which are the nodes from `first` on. 0: all are new; 1: some were there; 2: too many have the same hash. */
int graphveil_add_words(const table *to, const texts *of, size_t count, uint64_t first) {
    int outcome = 0;
    for (size_t word = 0; word < count; word++) {
        uint64_t key[MOST_PARTS];
        if (!packed(of, word, to->parts, key))
            return 2;
        uint64_t *at = place_of(to, key, slot_of(to, key));
        if (!at)
            return 2;
        if (at[to->parts])
            outcome = 1;
        else {
            memcpy(at, key, 8 * to->parts);
            at[to->parts] = first + word + 1;
        }
    }
    return outcome;
}

/* found[w] = the node of word w, -1 where there is none. */
void graphveil_find_words(const table *in, const texts *of, size_t count, int32_t *found) {
    for (size_t first = 0; first < count; first += TOGETHER) {
        const size_t some = count - first < TOGETHER ? count - first : TOGETHER;
        uint64_t keys[TOGETHER][MOST_PARTS];
        size_t slots[TOGETHER];
        int fits[TOGETHER];
        for (size_t word = 0; word < some; word++) {
            fits[word] = packed(of, first + word, in->parts, keys[word]);
            slots[word] = fits[word] ? slot_of(in, keys[word]) : 0;
            __builtin_prefetch(in->slots + slots[word] * (in->parts + 1));
        }
        for (size_t word = 0; word < some; word++) {
            const uint64_t *at = fits[word] ? place_of(in, keys[word], slots[word]) : NULL;
            found[first + word] = at && at[in->parts] ? (int32_t)(at[in->parts] - 1) : -1;
        }
    }
}
