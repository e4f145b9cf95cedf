/* fixed.h - exact integer mathematics for the solvers: fixed-point log2 and 2^-x, and random
 * numbers, the same on every machine and with every libm, so that the same problem gives the same
 * plan everywhere. */
#ifndef MTC_FIXED_H
#define MTC_FIXED_H
#include <stdint.h>

/* log2(x) for x >= 1, with 32 fractional bits. */
int64_t fixed_log2(int64_t x);
/* 2^-(x / 2^32) for x >= 0, with 32 fractional bits. */
int64_t fixed_exp2_neg(int64_t x);

/* xorshift64; the state is never 0. */
static inline uint64_t random_next(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}
/* Uniform in 0..n-1. */
static inline int random_below(uint64_t *state, int n) {
  return (int)((random_next(state) >> 32) * (uint64_t)n >> 32);
}
#endif
