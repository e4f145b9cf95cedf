/* convert.c - dtype and layout conversion on the host: see convert.h. */
#include "convert.h"

#include "../ir/formats.h"

#include <string.h>

static float float_of(uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}
static uint32_t bits_of(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return bits;
}

float bf16_to_f32(uint16_t x) {
  return float_of((uint32_t)x << 16);
}

uint16_t f32_to_bf16(float x) {
  uint32_t b = bits_of(x);
  if ((b & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(b >> 16 | 0x40); /* NaN stays NaN */
  return (uint16_t)((b + 0x7fffu + (b >> 16 & 1)) >> 16);
}

float f16_to_f32(uint16_t x) {
  uint32_t sign = (uint32_t)(x & 0x8000u) << 16, exp = x >> 10 & 31, frac = x & 0x3ffu;
  if (exp == 31) return float_of(sign | 0x7f800000u | frac << 13);
  if (exp) return float_of(sign | (exp + 112) << 23 | frac << 13);
  float f = (float)frac * 0x1p-24f; /* subnormal: exact */
  return sign ? -f : f;
}

uint16_t f32_to_f16(float x) {
  uint32_t b = bits_of(x), mag = b & 0x7fffffffu;
  uint16_t sign = (uint16_t)(b >> 16 & 0x8000u);
  if (mag > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (mag >> 13 & 0x3ffu));
  if (mag >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* rounds past 65504 */
  if (mag < 0x38800000u) {
    /* Subnormal: adding 0.5 makes the float unit round at 2^-24. */
    uint32_t r = bits_of(float_of(mag) + 0.5f) - bits_of(0.5f);
    return (uint16_t)(sign | r);
  }
  uint32_t r = mag - (112u << 23) + 0xfffu + (mag >> 13 & 1);
  return (uint16_t)(sign | r >> 13);
}

bool convert_possible(DType to, DType from) {
  return to == from || (dtype_is_float(to) && dtype_is_float(from));
}

static float load_float(DType t, const void *p, int64_t i) {
  if (t == DT_F32) {
    float f;
    memcpy(&f, (const char *)p + 4 * i, sizeof f);
    return f;
  }
  uint16_t h;
  memcpy(&h, (const char *)p + 2 * i, sizeof h);
  return t == DT_BF16 ? bf16_to_f32(h) : f16_to_f32(h);
}

static void store_float(DType t, void *p, int64_t i, float f) {
  if (t == DT_F32) {
    memcpy((char *)p + 4 * i, &f, sizeof f);
    return;
  }
  uint16_t h = t == DT_BF16 ? f32_to_bf16(f) : f32_to_f16(f);
  memcpy((char *)p + 2 * i, &h, sizeof h);
}

/* Elements that one thread has done before others have started. */
enum { FEW = 1 << 16 };

void convert_elements(DType to, void *dst, DType from, const void *src, int64_t n) {
  if (to == from) {
    memcpy(dst, src, (size_t)n * (size_t)dtype_bytes(to));
    return;
  }
  ensure(convert_possible(to, from), "no conversion from %s to %s", dtype_name(from),
         dtype_name(to));
#pragma omp parallel for schedule(static) if (n > FEW)
  for (int64_t i = 0; i < n; i++) store_float(to, dst, i, load_float(from, src, i));
}

void convert_halves(DType to, void *dst, DType from, const void *src, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    float f = load_float(from, src, i);
    uint16_t half = (uint16_t)(to == DT_U16 ? format_low(f) : format_bits(format_high(f)) >> 16);
    memcpy((char *)dst + 2 * i, &half, sizeof half);
  }
}

void join_halves(float *dst, const uint16_t *high, const uint16_t *low, int64_t n) {
  for (int64_t i = 0; i < n; i++) dst[i] = format_join(bf16_to_f32(high[i]), low[i]);
}

int64_t tensor_count(const Tensor *t) {
  int64_t n = 1;
  for (int i = 0; i < t->rank; i++) n *= t->dim[i];
  return n;
}

int64_t tensor_extent(const Tensor *t) {
  int64_t last = 0;
  for (int i = 0; i < t->rank; i++) {
    if (!t->dim[i]) return 0;
    last += (t->dim[i] - 1) * t->stride[i];
  }
  return last + 1;
}

bool tensor_contiguous(const Tensor *t) {
  int64_t want = 1;
  for (int i = t->rank; i-- > 0;) {
    if (t->dim[i] != 1 && t->stride[i] != want) return false;
    want *= t->dim[i];
  }
  return true;
}

/* Walks the rows (last axis) of a tensor; `pack` tells the direction. */
static void move_rows(const Tensor *t, char *base, char *packed, bool pack) {
  int64_t bytes = dtype_bytes(t->dtype), count = tensor_count(t);
  int64_t cols = t->rank ? t->dim[t->rank - 1] : 1, step = t->rank ? t->stride[t->rank - 1] : 1;
  int64_t at[MAX_RANK] = {0};
  for (int64_t done = 0; done < count; done += cols) {
    int64_t off = 0;
    for (int i = 0; i < t->rank - 1; i++) off += at[i] * t->stride[i];
    for (int64_t c = 0; c < (step == 1 ? 1 : cols); c++) {
      char *a = base + (off + c * step) * bytes, *b = packed + (done + c) * bytes;
      size_t n = (size_t)(step == 1 ? cols * bytes : bytes);
      if (pack)
        memcpy(b, a, n);
      else
        memcpy(a, b, n);
    }
    for (int i = t->rank - 1; i-- > 0;) {
      if (++at[i] < t->dim[i]) break;
      at[i] = 0;
    }
  }
}

void tensor_pack(const Tensor *t, const void *base, void *packed) {
  move_rows(t, (char *)(uintptr_t)base, packed, true);
}
void tensor_unpack(const Tensor *t, void *base, const void *packed) {
  move_rows(t, base, (char *)(uintptr_t)packed, false);
}

/* One tile through a buffer: each line of both sides is touched once, whatever their strides. With
 * `width` a constant of the caller memcpy, which takes any alignment, is one move. */
enum { TILE = 32 };
static inline __attribute__((always_inline)) void transpose_tile(char *dst, const char *src,
                                                                 int64_t rows, int64_t cols,
                                                                 int64_t r0, int64_t c0,
                                                                 int width) {
  char tile[TILE][TILE * 4];
  int nr = rows - r0 < TILE ? (int)(rows - r0) : TILE,
      nc = cols - c0 < TILE ? (int)(cols - c0) : TILE;
  for (int r = 0; r < nr; r++)
    for (int c = 0; c < nc; c++)
      memcpy(tile[c] + r * width, src + ((r0 + r) * cols + c0 + c) * width, (size_t)width);
  for (int c = 0; c < nc; c++)
    memcpy(dst + ((c0 + c) * rows + r0) * width, tile[c], (size_t)(nr * width));
}

void transpose_elements(void *dst, const void *src, int64_t rows, int64_t cols, int bytes) {
  ensure(bytes == 1 || bytes == 2 || bytes == 4, "elements of %d bytes", bytes);
#pragma omp parallel for schedule(static) if (rows * cols > FEW)
  for (int64_t c0 = 0; c0 < cols; c0 += TILE)
    for (int64_t r0 = 0; r0 < rows; r0 += TILE) {
      if (bytes == 1) transpose_tile(dst, src, rows, cols, r0, c0, 1);
      if (bytes == 2) transpose_tile(dst, src, rows, cols, r0, c0, 2);
      if (bytes == 4) transpose_tile(dst, src, rows, cols, r0, c0, 4);
    }
}
