/* convert.h - element conversion between f32 and the 16-bit floats, to nearest even, on the host:
 * weights files, checkpoints and initial values. */
#ifndef MTC_CONVERT_H
#define MTC_CONVERT_H
#include "../ir/types.h"
#include "program.h"

float bf16_to_f32(uint16_t x);
uint16_t f32_to_bf16(float x);
float f16_to_f32(uint16_t x);
uint16_t f32_to_f16(float x);

/* n elements of float dtype `from` at src become dtype `to` at dst (no overlap). Equal dtypes copy
 * bits, whatever they are; other pairs must be floats. */
void convert_elements(DType to, void *dst, DType from, const void *src, int64_t n);
bool convert_possible(DType to, DType from);
/* The same for a weight and what completes it (ir/formats.h): bf16 is rounded to nearest, ties away
 * from zero; u16 gets the low 16 bits of the f32. */
void convert_halves(DType to, void *dst, DType from, const void *src, int64_t n);
/* The f32 numbers that n such pairs are. */
void join_halves(float *dst, const uint16_t *high, const uint16_t *low, int64_t n);

/* Elements of a tensor, and of one past its last element from its first (its extent, with stride
 * padding). */
int64_t tensor_count(const Tensor *t);
int64_t tensor_extent(const Tensor *t);
bool tensor_contiguous(const Tensor *t);
/* Between the logical row-major order and the tensor's own strides; `base` is where element 0 lies.
 */
void tensor_pack(const Tensor *t, const void *base, void *packed);
void tensor_unpack(const Tensor *t, void *base, const void *packed);
/* dst[c, r] = src[r, c] of elements of `bytes` bytes. */
void transpose_elements(void *dst, const void *src, int64_t rows, int64_t cols, int bytes);

#endif
