/* The arithmetic of normals.py in one pass over memory: standard normals from random words, and values plus such noise
 * on a lattice.
 *
 * Plain C that calls no library and knows nothing of Python; ctypes loads it. Logarithm, sine and cosine are their power
 * series, long enough for double precision and free of branches and tables, so that a compiler makes vector code of
 * the loops. Contraction to fused multiply-add is welcome: it can only change the last bits of a normal. What
 * -ffast-math allows is not: rounding to the lattice must happen, and as written.
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
#define EXPORTED(NAME, PARAMETERS, ARGUMENTS, BODY)                        \
    WIDER static void NAME##_wider PARAMETERS {                            \
        enum { wide = 1 };                                                 \
        BODY                                                               \
    }                                                                      \
    WIDE static void NAME##_wide PARAMETERS {                              \
        enum { wide = 1 };                                                 \
        BODY                                                               \
    }                                                                      \
    static void NAME##_everywhere PARAMETERS {                             \
        enum { wide = 0 };                                                 \
        BODY                                                               \
    }                                                                      \
    void NAME PARAMETERS {                                                 \
        if (WIDEST > 1 && HAS("avx512f") && HAS("avx512dq") && HAS("fma")) \
            NAME##_wider ARGUMENTS;                                        \
        else if (WIDEST > 0 && HAS("avx2") && HAS("fma"))                  \
            NAME##_wide ARGUMENTS;                                         \
        else                                                               \
            NAME##_everywhere ARGUMENTS;                                   \
    }

static const uint64_t MANTISSA = UINT64_C(0x000FFFFFFFFFFFFF); /* 52 bits */
static const uint64_t ONE = UINT64_C(0x3FF0000000000000);      /* the exponent of [1, 2) */
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

/* The nearest integer, ties to even, of |x| <= 2^52. With AVX2 that is one instruction; everywhere: from 2^52 on doubles
 * are integers, so adding it rounds. */
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

/* Words become u = 2 - (number in [1, 2)), a multiple of 2^-52 in (0, 1]. Returns whether some u < 2^-20: then
 * 2^52 (1 - u) + 2^32 - 1 reaches the bit 2^52. */
int graphveil_radii(uint64_t *words, size_t count) {
    uint64_t reached = 0;
    for (size_t i = 0; i < count; i++) {
        reached |= (words[i] & MANTISSA) + UINT64_C(0xFFFFFFFF);
        words[i] = as_bits(2 - one_to_two(words[i]));
    }
    return (int)(reached >> 52);
}

/* Box and Muller 1958: sqrt(-2 ln u) times cos and sin of a uniform angle are two independent standard normals. For
 * `count` values there are (count + 1) / 2 radii and then as many angles; an odd count leaves one normal unused.
 *
 * Some radii at a time, in the nearest cache: two short loops keep more of their rounds under way than one long loop,
 * in which a round waits for its own division, series and root. */
#define AT_ONCE 256
#define FOR_EACH_NORMAL(CHANGE)                                                                      \
    {                                                                                                \
        const size_t half = (count + 1) / 2, rest = count - half;                                    \
        double radius[AT_ONCE], cosine, sine;                                                        \
        for (size_t start = 0; start < half; start += AT_ONCE) {                                     \
            const size_t here = half - start < AT_ONCE ? half - start : AT_ONCE;                     \
            const size_t pairs = rest - start < here ? rest - start : here;                          \
            for (size_t i = 0; i < here; i++)                                                        \
                radius[i] = __builtin_sqrt(-2 * natural_log(as_double(radii[start + i])));                     \
            for (size_t i = 0; i < pairs; i++) {                                                     \
                cos_sin(one_to_two(angles[start + i]), &cosine, &sine);                              \
                values[start + i] = CHANGE(values[start + i], radius[i] * cosine);                   \
                values[half + start + i] = CHANGE(values[half + start + i], radius[i] * sine);       \
            }                                                                                        \
            if (pairs < here) {                                                                      \
                cos_sin(one_to_two(angles[start + pairs]), &cosine, &sine);                          \
                values[start + pairs] = CHANGE(values[start + pairs], radius[pairs] * cosine);       \
            }                                                                                        \
        }                                                                                            \
    }

#define SET(value, normal) (normal)
/* Both are rounded to integers and the sum is exact; so is a power of two as factor. */
#define ADD(value, normal) ((nearest((value) * (1 / step), wide) + nearest((normal) * (std / step), wide)) * step)

EXPORTED(graphveil_normals,
         (const uint64_t *radii, const uint64_t *angles, double *restrict values, size_t count),
         (radii, angles, values, count), FOR_EACH_NORMAL(SET))

EXPORTED(graphveil_add_to_double,
         (const uint64_t *radii, const uint64_t *angles, double *restrict values, size_t count, double std, double step),
         (radii, angles, values, count, std, step), FOR_EACH_NORMAL(ADD))

EXPORTED(graphveil_add_to_float,
         (const uint64_t *radii, const uint64_t *angles, float *restrict values, size_t count, double std, double step),
         (radii, angles, values, count, std, step), FOR_EACH_NORMAL(ADD))

/* EVP_EncryptUpdate of OpenSSL, or what else encrypts `size` bytes and says how many it has `written`. */
typedef int (*cipher)(void *state, unsigned char *out, int *written, const unsigned char *in, int size);

/* Values of several chunks plus noise, without a return between them: for each, encrypted `zeros` become its words, and
 * those its noise. Returns how many chunks are done: all, or those before the first that has a radius below 2^-20, to
 * which nothing is added. Returns -1 if the cipher fails. */
#define RUN_OF_CHUNKS(NAME, ADD_TO_ONE, TYPE)                                                                     \
    ptrdiff_t NAME(cipher encrypt, void *state, const unsigned char *zeros, uint64_t *words, TYPE *const *values, \
                   const size_t *counts, size_t chunks, double std, double step) {                                \
        for (size_t done = 0; done < chunks; done++) {                                                            \
            const size_t half = (counts[done] + 1) / 2;                                                           \
            const int size = (int)(2 * half * sizeof *words);                                                     \
            int written = 0;                                                                                      \
            if (encrypt(state, (unsigned char *)words, &written, zeros, size) != 1 || written != size)            \
                return -1;                                                                                        \
            if (graphveil_radii(words, half))                                                                     \
                return (ptrdiff_t)done;                                                                           \
            ADD_TO_ONE(words, words + half, values[done], counts[done], std, step);                               \
        }                                                                                                         \
        return (ptrdiff_t)chunks;                                                                                 \
    }

RUN_OF_CHUNKS(graphveil_add_run_to_double, graphveil_add_to_double, double)
RUN_OF_CHUNKS(graphveil_add_run_to_float, graphveil_add_to_float, float)
