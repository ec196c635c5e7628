/* What exact sums need: rows on their lattices, and sums of table rows in double precision.
 *
 * Plain C that calls no library; ctypes loads it.
 * sums.py finds the functions by their names: whoever changes their parameters must change their names. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

/* out[r] = truncate(rows[r] * factors[r]) * steps[r], towards zero; every step is a power of two. From 2^23 on floats are
 * integers, which a conversion to integers and back would not keep. */
FOR_EACH_PROCESSOR void graphveil_round_rows(const float *rows, const float *factors, const float *steps, size_t width,
                                             size_t first, size_t last, float *out) {
    for (size_t row = first; row < last; row++) {
        const float factor = factors[row], step = steps[row];
        for (size_t k = 0; k < width; k++)
            out[row * width + k] = __builtin_truncf(rows[row * width + k] * factor) * step;
    }
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
