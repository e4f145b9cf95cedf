/* rng.c - Philox4x32-10 (Salmon et al. 2011) and the two distributions that initial weights need.
 *
 * Number k of a stream comes from block k/2 of the counter, so that any range of it can be made on
 * its own. */
#include "rng.h"

#include <math.h>

void rng_philox(uint64_t key, uint64_t counter_lo, uint64_t counter_hi, uint32_t out[4]) {
  uint32_t c[4] = {(uint32_t)counter_lo, (uint32_t)(counter_lo >> 32), (uint32_t)counter_hi,
                   (uint32_t)(counter_hi >> 32)};
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  for (int round = 0; round < 10; round++) {
    uint64_t p0 = (uint64_t)0xD2511F53u * c[0], p1 = (uint64_t)0xCD9E8D57u * c[2];
    uint32_t n0 = (uint32_t)(p1 >> 32) ^ c[1] ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
    c[1] = (uint32_t)p1, c[3] = (uint32_t)p0, c[0] = n0, c[2] = n2;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  for (int i = 0; i < 4; i++) out[i] = c[i];
}

uint64_t rng_stream(const char *path) {
  return hash_text(path);
}

/* Two uniforms of 53 bits from one block. */
static void uniform_pair(uint64_t seed, uint64_t stream, uint64_t block, double u[2]) {
  uint32_t w[4];
  rng_philox(seed, block, stream, w);
  for (int i = 0; i < 2; i++) {
    uint64_t bits = (uint64_t)w[2 * i] << 32 | w[2 * i + 1];
    u[i] = (double)(bits >> 11) * 0x1p-53;
  }
}

double rng_uniform(uint64_t seed, uint64_t stream, uint64_t index) {
  double u[2];
  uniform_pair(seed, stream, index / 2, u);
  return u[index % 2];
}

/* u in [0,1) becomes 1-u in (0,1], whose logarithm is finite. */
static void normal_pair(const double u[2], double z[2]) {
  double r = sqrt(-2 * log(1 - u[0])), angle = 2 * M_PI * u[1];
  z[0] = r * cos(angle), z[1] = r * sin(angle);
}

void rng_normals(uint64_t seed, uint64_t stream, uint64_t first, int64_t n, double mean, double dev,
                 float *out) {
  for (int64_t i = 0; i < n;) {
    uint64_t k = first + (uint64_t)i;
    double u[2], z[2];
    uniform_pair(seed, stream, k / 2, u);
    normal_pair(u, z);
    for (int part = (int)(k % 2); part < 2 && i < n; part++, i++)
      out[i] = (float)(mean + dev * z[part]);
  }
}

void rng_uniforms(uint64_t seed, uint64_t stream, uint64_t first, int64_t n, double lo, double hi,
                  float *out) {
  for (int64_t i = 0; i < n; i++)
    out[i] = (float)(lo + (hi - lo) * rng_uniform(seed, stream, first + (uint64_t)i));
}
