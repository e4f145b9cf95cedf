/* elements.h - one element of a tensor in memory, in any dtype, as a double. */
#ifndef TEST_ELEMENTS_H
#define TEST_ELEMENTS_H
#include <math.h>
#include <string.h>
#include "runtime/convert.h"

/* Stores x as element of dtype t. */
static inline void element_put(DType t, char *at, double x) {
  float f = (float)x;
  switch (t) {
    case DT_F32:
      memcpy(at, &f, 4);
      break;
    case DT_BF16:
      memcpy(at, &(uint16_t){f32_to_bf16(f)}, 2);
      break;
    case DT_F16:
      memcpy(at, &(uint16_t){f32_to_f16(f)}, 2);
      break;
    case DT_I32:
      memcpy(at, &(int32_t){(int32_t)x}, 4);
      break;
    case DT_U32:
      memcpy(at, &(uint32_t){(uint32_t)x}, 4);
      break;
    case DT_I8:
      *(int8_t *)at = (int8_t)x;
      break;
    case DT_U16:
      memcpy(at, &(uint16_t){(uint16_t)x}, 2);
      break;
    case DT_U8:
      *(uint8_t *)at = (uint8_t)x;
      break;
    default:
      *(uint8_t *)at = x != 0;
  }
}

static inline double element_get(DType t, const char *at) {
  uint16_t h;
  float f;
  int32_t i;
  switch (t) {
    case DT_F32:
      return memcpy(&f, at, 4), f;
    case DT_BF16:
      return memcpy(&h, at, 2), bf16_to_f32(h);
    case DT_F16:
      return memcpy(&h, at, 2), f16_to_f32(h);
    case DT_I32:
      return memcpy(&i, at, 4), i;
    case DT_U32:
      return memcpy(&i, at, 4), (uint32_t)i;
    case DT_I8:
      return *(const int8_t *)at;
    case DT_U16:
      return memcpy(&h, at, 2), h;
    default:
      return *(const uint8_t *)at;
  }
}

/* The nearest value that dtype t holds; of integers the one below. */
static inline double element_round(DType t, double x) {
  switch (t) {
    case DT_F32:
      return (float)x;
    case DT_BF16:
      return bf16_to_f32(f32_to_bf16((float)x));
    case DT_F16:
      return f16_to_f32(f32_to_f16((float)x));
    default:
      return floor(x);
  }
}

#endif
