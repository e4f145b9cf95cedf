/* fixed.c - fixed-point log2 and 2^-x by integer arithmetic alone. In and out: 32 fractional bits;
 * errors below 2^-30. */
#include "fixed.h"

int64_t fixed_log2(int64_t x) {
  int whole = 63 - __builtin_clzll((uint64_t)x);
  uint64_t m = (uint64_t)x << (63 - whole); /* mantissa in [1, 2) with 63 fractional bits */
  int64_t r = (int64_t)whole << 32;
  for (int64_t bit = (int64_t)1 << 31; bit; bit >>= 1) {
    unsigned __int128 sq = (unsigned __int128)m * m; /* in [1, 4) with 126 fractional bits */
    if (sq >> 127) {
      r |= bit;
      m = (uint64_t)(sq >> 64);
    } else {
      m = (uint64_t)(sq >> 63);
    }
  }
  return r;
}

int64_t fixed_exp2_neg(int64_t x) {
  /* 2^-(2^-k) for k = 1..32, with 63 fractional bits: each the square root of the one before. */
  static uint64_t root[33];
  if (!root[1]) {
    unsigned __int128 v = (unsigned __int128)1 << 125; /* 1/2 with 126 fractional bits */
    for (int k = 1; k <= 32; k++) {
      uint64_t s = 0;
      for (int b = 62; b >= 0; b--) {
        uint64_t t = s | (uint64_t)1 << b;
        if ((unsigned __int128)t * t <= v) s = t;
      }
      root[k] = s;
      v = (unsigned __int128)s << 63;
    }
  }
  int64_t whole = x >> 32;
  if (whole > 62) return 0;
  uint64_t m = (uint64_t)1 << 63;
  for (int k = 1; k <= 32; k++)
    if (x >> (32 - k) & 1) m = (uint64_t)(((unsigned __int128)m * root[k]) >> 63);
  return (int64_t)(m >> 31 >> whole);
}
