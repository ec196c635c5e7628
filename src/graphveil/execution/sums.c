/* What exact sums need: rows on their lattices, and sums of table rows and of outer products in double precision.
 *
 * Plain C that calls no library; ctypes loads it. Sums of lattice points do not round, so fused multiply-add and any order
 * of additions give the same bits. What -ffast-math allows is not welcome: rounding must happen as written.
 * sums.py finds the functions by their names: whoever changes their parameters must change their names. */

#include <float.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__FAST_MATH__) || FLT_EVAL_METHOD != 0
#error "needs IEEE arithmetic as written; where this file is not built, torch does the same"
#endif

#define INLINE static inline __attribute__((always_inline))

#ifdef __x86_64__
#define FOR_EACH_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif

/* out[r] = sum of the squares of row r, in double. Sixteen sums side by side, then one of the rest. */
FOR_EACH_PROCESSOR void graphveil_row_squares(const float *rows, size_t width, size_t first, size_t last, double *out) {
    for (size_t row = first; row < last; row++) {
        const float *entry = rows + row * width;
        double sums[16] = {0}, total = 0;
        size_t k = 0;
        for (; k + 16 <= width; k += 16)
            for (size_t j = 0; j < 16; j++)
                sums[j] += (double)entry[k + j] * (double)entry[k + j];
        for (; k < width; k++)
            total += (double)entry[k] * (double)entry[k];
        for (size_t j = 0; j < 16; j++)
            total += sums[j];
        out[row] = total;
    }
}

/* Rows of floats, and how they are rounded to their lattice; _CFactor in sums.py. */
typedef struct {
    const float *rows;
    size_t width;
    const float *factors, *steps; /* by row, or NULL */
    const double *shifts;         /* by column, or NULL */
} factor;

/* By row: truncate(entry * factor) * step, towards zero; every step is a power of two. A factor of zero makes the row zero,
 * whatever is in it. */
INLINE float by_row(float entry, float factor, float step) { return __builtin_truncf(entry * factor) * step; }

/* By column: the nearest multiple of a step, for which a shift of 1.5 * 2^52 steps leaves no smaller digits. */
INLINE double by_column(float entry, double shift) { return ((double)entry + shift) - shift; }

/* out = the rounded rows; it may be the rows' own memory, and ivdep says that this does no harm. */
FOR_EACH_PROCESSOR void graphveil_round(const factor *of, size_t first, size_t last, float *out) {
    const size_t width = of->width;
    for (size_t row = first; row < last; row++) {
        const float *from = of->rows + row * width;
        float *to = out + row * width;
        if (of->shifts) {
#pragma GCC ivdep
            for (size_t k = 0; k < width; k++)
                to[k] = (float)by_column(from[k], of->shifts[k]);
        } else if (of->factors[row] == 0)
            memset(to, 0, width * sizeof *to);
        else {
            const float each = of->factors[row], step = of->steps[row];
#pragma GCC ivdep
            for (size_t k = 0; k < width; k++)
                to[k] = by_row(from[k], each, step);
        }
    }
}

/* out[k] = the largest size in column k, at least what it was. Sizes of floats are ordered like their bits. */
FOR_EACH_PROCESSOR void graphveil_column_largest(const uint32_t *rows, size_t width, size_t first, size_t last,
                                                 uint32_t *out) {
    for (size_t row = first; row < last; row++)
        for (size_t k = 0; k < width; k++) {
            const uint32_t size = rows[row * width + k] & UINT32_C(0x7fffffff);
            out[k] = size > out[k] ? size : out[k];
        }
}

/* Adds all rows to out. */
FOR_EACH_PROCESSOR void graphveil_column_sums(const float *rows, size_t width, size_t first, size_t last, double *out) {
    for (size_t row = first; row < last; row++)
        for (size_t k = 0; k < width; k++)
            out[k] += (double)rows[row * width + k];
}

/* out[r] = sum over the entries e of row r of values[e] * table[columns[e]]. Table and values are floats, so a product
 * of two is exact in double. How many entries ahead a row of the table is asked for. */
#define AHEAD 8

/* COLUMNS columns of the sum, which stay in registers while all entries of a row are added. */
#define ADD_ENTRIES(COLUMNS)                                                                    \
    {                                                                                           \
        double sum[COLUMNS] = {0};                                                              \
        for (size_t entry = begin; entry < end; entry++) {                                      \
            const float *added = table + (size_t)columns[entry] * width + at;                   \
            if (entry + AHEAD < end)                                                            \
                for (size_t k = 0; k < COLUMNS; k += 16)                                        \
                    __builtin_prefetch(table + (size_t)columns[entry + AHEAD] * width + at + k); \
            if (values)                                                                         \
                for (size_t k = 0; k < COLUMNS; k++)                                            \
                    sum[k] += (double)values[entry] * (double)added[k];                         \
            else                                                                                \
                for (size_t k = 0; k < COLUMNS; k++)                                            \
                    sum[k] += (double)added[k];                                                 \
        }                                                                                       \
        memcpy(out + (row - first) * width + at, sum, sizeof sum);                              \
        at += COLUMNS;                                                                          \
    }

/* Fewer than 8 columns: all of them at once, so that the entries of a row are passed once. */
#define FEW_SUMS(NAME, INDEX)                                                                                  \
    FOR_EACH_PROCESSOR void NAME(const INDEX *starts, const INDEX *columns, const float *values,               \
                                 const float *table, size_t width, size_t first, size_t last, double *out) {   \
        for (size_t row = first; row < last; row++) {                                                          \
            const size_t begin = (size_t)starts[row], end = (size_t)starts[row + 1];                           \
            size_t at = 0;                                                                                     \
            switch (width) {                                                                                   \
                case 1: ADD_ENTRIES(1) break;                                                                  \
                case 2: ADD_ENTRIES(2) break;                                                                  \
                case 3: ADD_ENTRIES(3) break;                                                                  \
                case 4: ADD_ENTRIES(4) break;                                                                  \
                case 5: ADD_ENTRIES(5) break;                                                                  \
                case 6: ADD_ENTRIES(6) break;                                                                  \
                case 7: ADD_ENTRIES(7) break;                                                                  \
            }                                                                                                  \
        }                                                                                                      \
    }

FEW_SUMS(graphveil_few_sums_32, int32_t)
FEW_SUMS(graphveil_few_sums_64, int64_t)

#define ROW_SUMS(NAME, INDEX)                                                                                  \
    FOR_EACH_PROCESSOR void NAME(const INDEX *starts, const INDEX *columns, const float *values,               \
                                 const float *table, size_t width, size_t first, size_t last, double *out) {   \
        for (size_t row = first; row < last; row++) {                                                          \
            const size_t begin = (size_t)starts[row], end = (size_t)starts[row + 1];                           \
            size_t at = 0;                                                                                     \
            while (at + 64 <= width)                                                                           \
                ADD_ENTRIES(64)                                                                                \
            while (at + 16 <= width)                                                                           \
                ADD_ENTRIES(16)                                                                                \
            while (at + 4 <= width)                                                                            \
                ADD_ENTRIES(4)                                                                                 \
            while (at < width)                                                                                 \
                ADD_ENTRIES(1)                                                                                 \
        }                                                                                                      \
    }

ROW_SUMS(graphveil_row_sums_32, int32_t)
ROW_SUMS(graphveil_row_sums_64, int64_t)

/* How many rows are multiplied at a time. */
#define BLOCK 64

/* Rounds `there` columns of `count` rows into memory without gaps, `tall` columns wide; those that are missing become zero.
 * The same columns of the next block are asked for early: a processor does not foresee steps of a whole row in memory. The
 * address may lie beyond the rows, where asking does nothing. */
INLINE void pack_columns(const factor *of, size_t first, size_t count, size_t at, size_t there, size_t tall, double *out) {
    for (size_t row = first; row < first + count; row++, out += tall) {
        const float *from = of->rows + row * of->width + at;
        __builtin_prefetch((const void *)((uintptr_t)from + BLOCK * of->width * sizeof *from));
        const float each = of->factors ? of->factors[row] : 0, step = of->factors ? of->steps[row] : 0;
        if (of->shifts)
            for (size_t k = 0; k < there; k++)
                out[k] = by_column(from[k], of->shifts[at + k]);
        else if (!of->factors)
            for (size_t k = 0; k < there; k++)
                out[k] = from[k];
        else if (each == 0)
            for (size_t k = 0; k < there; k++)
                out[k] = 0;
        else
            for (size_t k = 0; k < there; k++)
                out[k] = by_row(from[k], each, step);
        for (size_t k = there; k < tall; k++)
            out[k] = 0;
    }
}

/* `tall` columns, of which some may be missing; where none are, a compiler knows the number of columns. */
INLINE void pack(const factor *of, size_t first, size_t count, size_t at, size_t tall, double *out) {
    if (of->width - at < tall)
        pack_columns(of, first, count, at, of->width - at, tall, out);
    else
        pack_columns(of, first, count, at, tall, tall, out);
}

/* total += the sum over rows of outputs[r] inputs[r]^T; bias += the sum of outputs[r], if there is one.
 *
 * BLOCK rows at a time are rounded, and multiplied in tiles of TALL outputs and 2 LANES inputs whose sums stay in registers.
 * `packed` is memory for BLOCK rows of outputs that are up to 8 columns wider than they are. The loop is compiled for every
 * processor, for those with AVX2 and FMA and for those with AVX-512, and the processor is asked at each call. -DWIDEST=1
 * leaves out the last, 0 the last two. */
#ifndef WIDEST
#define WIDEST 2
#endif

#define ADD_OUTER(NAME, TARGET, LANES, TALL)                                                                          \
    TARGET static void NAME(const factor *outputs, const factor *inputs, size_t first, size_t last, double *packed,   \
                            double *total, double *bias) {                                                            \
        typedef double vector __attribute__((vector_size(8 * LANES), aligned(8)));                                    \
        enum { tall = TALL, wide = 2 * LANES };                                                                       \
        double some[BLOCK * wide] __attribute__((aligned(64)));                                                       \
        const size_t width = inputs->width;                                                                           \
        for (; first < last; first += BLOCK) {                                                                        \
            const size_t count = last - first < BLOCK ? last - first : BLOCK;                                         \
            for (size_t high = 0; high < outputs->width; high += tall) {                                              \
                double *to = packed + BLOCK * high, sums[tall] = {0};                                                 \
                pack(outputs, first, count, high, tall, to);                                                          \
                for (size_t row = 0; row < count; row++)                                                              \
                    for (size_t k = 0; k < tall; k++)                                                                 \
                        sums[k] += to[row * tall + k];                                                                \
                for (size_t k = 0; bias && k < tall && high + k < outputs->width; k++)                                \
                    bias[high + k] += sums[k];                                                                        \
            }                                                                                                         \
            for (size_t at = 0; at < width; at += wide) {                                                             \
                pack(inputs, first, count, at, wide, some);                                                           \
                for (size_t high = 0; high < outputs->width; high += tall) {                                          \
                    const double *from = packed + BLOCK * high;                                                       \
                    vector sum[tall][2] = {0};                                                                        \
                    for (size_t row = 0; row < count; row++) {                                                        \
                        const vector *input = (const vector *)(some + row * wide);                                    \
                        _Pragma("GCC unroll 8") for (size_t k = 0; k < tall; k++) {                                   \
                            sum[k][0] += from[row * tall + k] * input[0];                                             \
                            sum[k][1] += from[row * tall + k] * input[1];                                             \
                        }                                                                                             \
                    }                                                                                                 \
                    _Pragma("GCC unroll 8") for (size_t k = 0; k < tall; k++) {                                       \
                        if (high + k >= outputs->width)                                                               \
                            break;                                                                                    \
                        double *to = total + (high + k) * width + at;                                                 \
                        if (at + wide <= width) {                                                                     \
                            ((vector *)to)[0] += sum[k][0];                                                           \
                            ((vector *)to)[1] += sum[k][1];                                                           \
                        } else                                                                                        \
                            for (size_t j = 0; at + j < width; j++)                                                   \
                                to[j] += sum[k][j / LANES][j % LANES];                                                \
                    }                                                                                                 \
                }                                                                                                     \
            }                                                                                                         \
        }                                                                                                             \
    }

ADD_OUTER(add_outer_everywhere, , 2, 4)
#ifdef __x86_64__
#define HAS(FEATURE) __builtin_cpu_supports(FEATURE)
ADD_OUTER(add_outer_wide, __attribute__((target("avx2,fma"))), 4, 6)
ADD_OUTER(add_outer_wider, __attribute__((target("avx512f,avx512dq,avx512vl,fma"))), 8, 8)
#endif

void graphveil_add_outer(const factor *outputs, const factor *inputs, size_t first, size_t last, double *packed,
                         double *total, double *bias) {
#ifdef __x86_64__
    if (WIDEST > 1 && HAS("avx512f") && HAS("avx512dq") && HAS("avx512vl")) {
        add_outer_wider(outputs, inputs, first, last, packed, total, bias);
        return;
    }
    if (WIDEST > 0 && HAS("avx2") && HAS("fma")) {
        add_outer_wide(outputs, inputs, first, last, packed, total, bias);
        return;
    }
#endif
    add_outer_everywhere(outputs, inputs, first, last, packed, total, bias);
}
