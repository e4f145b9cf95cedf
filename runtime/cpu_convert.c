/* cpu_convert.c - rows of 16-bit floats to f32 and back, without branches, so that compilers make
 * vector code of it. */
#include <string.h>

#include "cpu_parts.h"

static inline float float_of(uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}
static inline uint32_t bits_of(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return bits;
}

static inline uint32_t bf16_bits(float x) { /* rounded to nearest even, in the upper half */
  uint32_t b = bits_of(x), even = (b + 0x7fffu + (b >> 16 & 1)) & 0xffff0000u;
  return (b & 0x7fffffffu) > 0x7f800000u ? (b & 0xffff0000u) | 0x400000u : even;
}
static inline float from_f16(uint16_t x) {
  float f = float_of((uint32_t)(x & 0x7fffu) << 13) * 0x1p112f;
  uint32_t special = f >= 65536.0f ? 0x7f800000u : 0;
  return float_of(bits_of(f) | special | (uint32_t)(x & 0x8000u) << 16);
}
static inline uint16_t to_f16(float x) {
  uint32_t b = bits_of(x), sign = b >> 16 & 0x8000u, m = b & 0x7fffffffu;
  uint32_t tiny = bits_of(float_of(m) + 0.5f) - 0x3f000000u;
  uint32_t normal = (m - 0x38000000u + 0xfffu + (m >> 13 & 1)) >> 13;
  uint32_t special = m > 0x7f800000u ? 0x7e00u : 0x7c00u;
  return (uint16_t)(sign | (m >= 0x477ff000u ? special : m < 0x38800000u ? tiny : normal));
}

void cpu_load(DType t, const void *p, int64_t n, float *to) {
  if (t == DT_F32) {
    memcpy(to, p, sizeof(float) * (size_t)n);
  } else if (t == DT_BF16) {
    const uint16_t *h = p;
    for (int64_t i = 0; i < n; i++) to[i] = float_of((uint32_t)h[i] << 16);
  } else {
    const uint16_t *h = p;
    for (int64_t i = 0; i < n; i++) to[i] = from_f16(h[i]);
  }
}

void cpu_store(DType t, void *p, int64_t n, const float *from) {
  if (t == DT_F32) {
    memcpy(p, from, sizeof(float) * (size_t)n);
  } else if (t == DT_BF16) {
    uint16_t *h = p;
    for (int64_t i = 0; i < n; i++) h[i] = (uint16_t)(bf16_bits(from[i]) >> 16);
  } else {
    uint16_t *h = p;
    for (int64_t i = 0; i < n; i++) h[i] = to_f16(from[i]);
  }
}

void cpu_round(DType t, float *x, int64_t n) {
  if (t == DT_BF16)
    for (int64_t i = 0; i < n; i++) x[i] = float_of(bf16_bits(x[i]));
  if (t == DT_F16)
    for (int64_t i = 0; i < n; i++) x[i] = from_f16(to_f16(x[i]));
}
