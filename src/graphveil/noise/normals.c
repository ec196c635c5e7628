/* The arithmetic of normals.py in one pass over memory: values plus normal noise, rounded to a lattice.
 *
 * Plain C that calls no library and knows nothing of Python; ctypes loads it. Logarithm, sine and cosine are their power
 * series, long enough for double precision and free of branches and tables, so that a compiler makes vector code of
 * the loops. Contraction to fused multiply-add is welcome: a result whose rounding could depend on the last bits of a
 * normal is not decided here. What -ffast-math allows is not: rounding to the lattice must happen as written.
 */

#include <float.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__FAST_MATH__) || FLT_EVAL_METHOD != 0
#error "needs IEEE double arithmetic as written; where this file is not built, torch does the same"
#endif

#define INLINE static inline __attribute__((always_inline))

/* A loop is compiled three times, for every processor of the family, for those with AVX2 and FMA and for those with
 * AVX-512, and the processor is asked at each call. -DWIDEST=1 leaves out the last, 0 the last two. normals.py finds the
 * loop by its name: whoever changes its parameters must change its name. */
#ifndef WIDEST
#define WIDEST 2
#endif
#ifdef __x86_64__
#define WIDE __attribute__((target("avx2,fma")))
#define WIDER __attribute__((target("avx512f,avx512dq,fma")))
#define HAS(FEATURE) __builtin_cpu_supports(FEATURE)
#else
#define WIDE
#define WIDER
#define HAS(FEATURE) 0
#endif
#define COMPILED_FOR_EACH(NAME, PARAMETERS, ARGUMENTS, BODY)               \
    WIDER static ptrdiff_t NAME##_wider PARAMETERS {                       \
        enum { wide = 1 };                                                 \
        BODY                                                               \
    }                                                                      \
    WIDE static ptrdiff_t NAME##_wide PARAMETERS {                         \
        enum { wide = 1 };                                                 \
        BODY                                                               \
    }                                                                      \
    static ptrdiff_t NAME##_everywhere PARAMETERS {                        \
        enum { wide = 0 };                                                 \
        BODY                                                               \
    }                                                                      \
    ptrdiff_t NAME PARAMETERS {                                            \
        if (WIDEST > 1 && HAS("avx512f") && HAS("avx512dq") && HAS("fma")) \
            return NAME##_wider ARGUMENTS;                                 \
        if (WIDEST > 0 && HAS("avx2") && HAS("fma"))                       \
            return NAME##_wide ARGUMENTS;                                  \
        return NAME##_everywhere ARGUMENTS;                                \
    }

static const uint64_t MANTISSA = UINT64_C(0x000FFFFFFFFFFFFF); /* 52 bits */
static const uint64_t ONE = UINT64_C(0x3FF0000000000000);      /* the exponent of [1, 2) */
static const uint64_t EDGE = UINT64_C(1) << 32;                /* 2^-20 of the mantissa's range */
static const uint64_t SIGN = UINT64_C(0x8000000000000000);

INLINE double as_double(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

INLINE uint64_t as_bits(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

INLINE double one_to_two(uint64_t word) { return as_double((word & MANTISSA) | ONE); }

/* The nearest integer of |x| <= 2^52, and an integer within a few units of a larger x. With AVX2 that is one instruction;
 * everywhere: from 2^52 on doubles are integers, so adding it rounds. */
INLINE double nearest(double x, int wide) {
    if (wide)
        return __builtin_nearbyint(x);
    const uint64_t sign = as_bits(x) & SIGN;
    const double size = as_double(as_bits(x) ^ sign);
    return as_double(as_bits((size + 0x1p52) - 0x1p52) | sign);
}

/* ln x for normal x > 0. With x = 2^k m, m in [sqrt(1/2), sqrt(2)), and s = (m - 1) / (m + 1), |s| < 0.172,
 *     ln x = k ln 2 + 2 (s + s^3 / 3 + s^5 / 5 + ...)      (Abramowitz and Stegun, 4.1.27);
 * what follows s^21 / 21 is below 2^-60 s. */
INLINE double natural_log(double x) {
    const uint64_t root = UINT64_C(0x3FE6A09E667F3BCD); /* sqrt(1/2) */
    const uint64_t above = as_bits(x) - root;           /* k in the exponent's place, the distance of m from the root */
    const double k = as_double(((above + ONE) >> 52) | as_bits(0x1p52)) - (0x1p52 + 1023);
    const double m = as_double((above & MANTISSA) + root);
    const double s = (m - 1) / (m + 1), z = s * s;
    double p = 1.0 / 21;
    p = p * z + 1.0 / 19;
    p = p * z + 1.0 / 17;
    p = p * z + 1.0 / 15;
    p = p * z + 1.0 / 13;
    p = p * z + 1.0 / 11;
    p = p * z + 1.0 / 9;
    p = p * z + 1.0 / 7;
    p = p * z + 1.0 / 5;
    p = p * z + 1.0 / 3;
    /* ln 2 in two parts; the first has 33 bits, so k times it is exact. */
    const double high = 0x1.62e42feep-1, low = 0x1.a39ef35793c76p-33;
    return k * high + (2 * s + (2 * s * z * p + k * low));
}

/* cos and sin of 2 pi t for t in [1, 2). Whole quarter turns are taken off exactly; the series of the rest x,
 * |x| <= pi / 4, end with x^16 / 16! and x^17 / 17! (Abramowitz and Stegun, 4.3.65 and 4.3.66), good to 2^-58. */
INLINE void cos_sin(double t, double *cosine, double *sine) {
    const double shifted = 4 * t + 0x1p52; /* the nearest number of quarters is in the last bits */
    const double x = (4 * t - (shifted - 0x1p52)) * 0x1.921fb54442d18p0 /* pi / 2 */, z = x * x;
    double s = 1.0 / 355687428096000, c = 1.0 / 20922789888000; /* 17! and 16! */
    s = s * z - 1.0 / 1307674368000, c = c * z - 1.0 / 87178291200;
    s = s * z + 1.0 / 6227020800, c = c * z + 1.0 / 479001600;
    s = s * z - 1.0 / 39916800, c = c * z - 1.0 / 3628800;
    s = s * z + 1.0 / 362880, c = c * z + 1.0 / 40320;
    s = s * z - 1.0 / 5040, c = c * z - 1.0 / 720;
    s = s * z + 1.0 / 120, c = c * z + 1.0 / 24;
    s = s * z - 1.0 / 6, c = c * z - 1.0 / 2;
    s = s * z * x + x, c = c * z + 1;
    /* After q quarters more: (c, s), (-s, c), (-c, -s), (s, -c). */
    const uint64_t q = as_bits(shifted), odd = -(q & 1), either = (as_bits(s) ^ as_bits(c)) & odd;
    *cosine = as_double(as_bits(c) ^ either ^ (((q + 1) & 2) << 62));
    *sine = as_double(as_bits(s) ^ either ^ ((q & 2) << 62));
}

/* A pair of entries that is left as it was: where in the run it is, and the two words that belong to it. */
typedef struct {
    uint64_t chunk, pair, radius, angle;
} open_pair;

/* Values become round(value / step + normal * per_step) * step, the normals by Box and Muller 1958: sqrt(-2 ln u) times
 * cosine and sine of a uniform angle are two independent standard normals. For `count` values there are
 * (count + 1) / 2 words of radii and then as many of angles; an odd count leaves one normal unused.
 *
 * value / step is split into an integer and a rest, both exact, so only the rest meets the normal, and the two integers
 * are added at the end. Then 0 is added, which makes one zero of both: the sign of a zero would tell that of the value.
 * A pair is left open, for exact arithmetic elsewhere, if one of its two sums is further than `clear` from the nearest
 * integer, so that the last bits of the normal could decide, or if u < 2^-20 or u >= 1 - 2^-20, where neighbouring u
 * give normals that are far apart. Returns how many pairs are open, or -1 if there is no room for them.
 *
 * Some pairs at a time, in the nearest cache: two short loops keep more of their rounds under way than one long loop, in
 * which a round waits for its own division, series and root. The sign bit of `doubtful` collects what must be looked
 * at: positive doubles compare like integers. */
#define AT_ONCE 256
#define ADD_TO_VALUES                                                                                    \
    {                                                                                                    \
        const size_t half = (count + 1) / 2, rest = count - half;                                        \
        const double inverse = 1 / step;                                                                 \
        double radius[AT_ONCE], x[AT_ONCE], y[AT_ONCE], away[AT_ONCE], cosine, sine;                     \
        size_t open = 0;                                                                                 \
        for (size_t start = 0; start < half; start += AT_ONCE) {                                         \
            const size_t here = half - start < AT_ONCE ? half - start : AT_ONCE;                         \
            const size_t pairs = rest - start < here ? rest - start : here;                              \
            const uint64_t *u = words + start, *turn = words + half + start;                             \
            uint64_t doubtful = 0;                                                                       \
            memcpy(x, values + start, here * sizeof *x);                                                 \
            memset(y, 0, sizeof y);                                                                      \
            memcpy(y, values + half + start, pairs * sizeof *y);                                         \
            for (size_t i = 0; i < here; i++) {                                                          \
                doubtful |= ((u[i] + EDGE) & MANTISSA) - 2 * EDGE;                                       \
                radius[i] = per_step * __builtin_sqrt(-2 * natural_log(2 - one_to_two(u[i])));           \
            }                                                                                            \
            for (size_t i = 0; i < here; i++) {                                                          \
                cos_sin(one_to_two(turn[i]), &cosine, &sine);                                            \
                const double steps_x = nearest(x[i] * inverse, wide), steps_y = nearest(y[i] * inverse, wide); \
                const double sum_x = radius[i] * cosine + (x[i] * inverse - steps_x);                    \
                const double sum_y = radius[i] * sine + (y[i] * inverse - steps_y);                      \
                const double near_x = nearest(sum_x, wide), near_y = nearest(sum_y, wide);               \
                const double off_x = sum_x - near_x, off_y = sum_y - near_y;                             \
                const double squares = off_x * off_x > off_y * off_y ? off_x * off_x : off_y * off_y;    \
                away[i] = squares;                                                                       \
                doubtful |= as_bits(clear) - as_bits(squares);                                           \
                x[i] = (steps_x + near_x) * step + 0.0;                                                  \
                y[i] = (steps_y + near_y) * step + 0.0;                                                  \
            }                                                                                            \
            for (size_t i = 0; (doubtful & SIGN) && i < here; i++) {                                     \
                if (away[i] <= clear && ((u[i] + EDGE) & MANTISSA) >= 2 * EDGE)                          \
                    continue;                                                                            \
                if (open == room)                                                                        \
                    return -1;                                                                           \
                found[open++] = (open_pair){chunk, start + i, u[i], turn[i]};                            \
                x[i] = values[start + i];                                                                \
                if (i < pairs)                                                                           \
                    y[i] = values[half + start + i];                                                     \
            }                                                                                            \
            memcpy(values + start, x, here * sizeof *x);                                                 \
            memcpy(values + half + start, y, pairs * sizeof *y);                                         \
        }                                                                                                \
        return (ptrdiff_t)open;                                                                          \
    }

/* `clear` is the square of the distance. */
COMPILED_FOR_EACH(graphveil_add_noise,
                  (const uint64_t *words, double *restrict values, size_t count, double per_step, double step,
                   double clear, open_pair *found, size_t room, uint64_t chunk),
                  (words, values, count, per_step, step, clear, found, room, chunk), ADD_TO_VALUES)

/* EVP_EncryptUpdate of OpenSSL, or what else encrypts `size` bytes and says how many it has `written`. */
typedef int (*cipher)(void *state, unsigned char *out, int *written, const unsigned char *in, int size);

/* The same for several chunks in one call: for each, encrypted `zeros` become its words, and those its noise. Returns
 * how many pairs are open in all, -1 if there is no room for them, -2 if the cipher fails. */
ptrdiff_t graphveil_add_noise_to_run(cipher encrypt, void *state, const unsigned char *zeros, uint64_t *words,
                                     double *const *values, const size_t *counts, size_t chunks, double per_step,
                                     double step, double clear, open_pair *found, size_t room) {
    size_t open = 0;
    for (size_t chunk = 0; chunk < chunks; chunk++) {
        const size_t half = (counts[chunk] + 1) / 2;
        const int size = (int)(2 * half * sizeof *words);
        int written = 0;
        if (encrypt(state, (unsigned char *)words, &written, zeros, size) != 1 || written != size)
            return -2;
        const ptrdiff_t more = graphveil_add_noise(words, values[chunk], counts[chunk], per_step, step, clear,
                                                   found + open, room - open, chunk);
        if (more < 0)
            return -1;
        open += (size_t)more;
    }
    return (ptrdiff_t)open;
}
