/* rng.h - random numbers of the runtime: initial weights and sampling. Counter-based
 * (Philox4x32-10), so that a number depends on (seed, stream, index) alone and never on the order
 * in which numbers are asked for. */
#ifndef MTC_RNG_H
#define MTC_RNG_H
#include "../ir/base.h"

/* Four 32-bit words from a 64-bit key and a 128-bit counter. */
void rng_philox(uint64_t key, uint64_t counter_lo, uint64_t counter_hi, uint32_t out[4]);

/* A stream of its own for each name: the 64-bit hash of a variable's path. */
uint64_t rng_stream(const char *path);

/* Uniform in [0, 1) with 53 bits. */
double rng_uniform(uint64_t seed, uint64_t stream, uint64_t index);

/* out[i] = number `first + i` of the stream. Normal by Box-Muller in f64, two numbers a block. */
void rng_normals(uint64_t seed, uint64_t stream, uint64_t first, int64_t n, double mean, double dev,
                 float *out);
void rng_uniforms(uint64_t seed, uint64_t stream, uint64_t first, int64_t n, double lo, double hi,
                  float *out);

#endif
