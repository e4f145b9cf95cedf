/* rng.c - Philox4x32-10 (Salmon et al. 2011) and the two distributions that initial weights need.
 *
 * Number k of a stream comes from block k/2 of the counter, so that any range of it can be made on
 * its own. */
#include "rng.h"

#include <math.h>
#include <string.h>

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

/* ---- normals: the functions of Box-Muller without branches, so that compilers make vector code of
 * them. Errors are below 1e-15, and the same operations in the same order everywhere make the same
 * bits. ---- */

/* No fused multiply-add, which would round differently. */
#define WIDE __attribute__((target_clones("default", "avx2")))
enum { PAIRS = 64 };

static inline uint64_t bits_of(double x) {
  uint64_t b;
  memcpy(&b, &x, sizeof b);
  return b;
}
static inline double double_of(uint64_t b) {
  double x;
  memcpy(&x, &b, sizeof x);
  return x;
}

/* Natural logarithm of a normal number, after fdlibm: 2^k m with m around 1, and a polynomial of
 * (m-1)/(m+1). */
static inline double log_of(double x) {
  const uint64_t root_half = 0x3fe6a09e667f3bcdu;
  uint64_t b = bits_of(x) + (0x3ff0000000000000u - root_half);
  double k = double_of(b >> 52 | 0x4330000000000000u) - (0x1p52 + 1023); /* exact */
  double f = double_of((b & 0x000fffffffffffffu) + root_half) - 1, s = f / (2 + f), z = s * s,
         w = z * z;
  double even = w * (3.999999999940941908e-01 +
                     w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
  double odd = z * (6.666666666666735130e-01 +
                    w * (2.857142874366239149e-01 +
                         w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
  double half = 0.5 * f * f;
  return k * 6.93147180369123816490e-01 -
         ((half - (s * (half + even + odd) + k * 1.90821492927058770002e-10)) - f);
}

/* cos and sin of 2 pi u, u in [0, 1), after fdlibm: an eighth of the circle around each quarter. */
static inline void circle(double u, double *c, double *s) {
  double shifted = 4 * u + 0x1.8p52; /* its low bits are the nearest quarter */
  uint64_t quarter = bits_of(shifted), odd = -(quarter & 1), sign = (uint64_t)1 << 63;
  double x = (u - 0.25 * (shifted - 0x1.8p52)) * 6.28318530717958647693, z = x * x;
  double sx =
      x + x * z *
              (-1.66666666666666324348e-01 +
               z * (8.33333333332248946124e-03 +
                    z * (-1.98412698298579493134e-04 +
                         z * (2.75573137070700676789e-06 + z * (-2.50507602534068634195e-08 +
                                                                z * 1.58969099521155010221e-10)))));
  double cx =
      1 -
      (0.5 * z -
       z * z *
           (4.16666666666666019037e-02 +
            z * (-1.38888888888741095749e-03 +
                 z * (2.48015872894767294178e-05 +
                      z * (-2.75573143513906633035e-07 +
                           z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11))))));
  uint64_t bs = bits_of(sx), bc = bits_of(cx), both = (bs ^ bc) & odd;
  *c = double_of(bc ^ both ^ ((quarter + 1) << 62 & sign));
  *s = double_of(bs ^ both ^ (quarter << 62 & sign));
}

/* u in [0,1) becomes 1-u in (0,1], whose logarithm is finite. */
WIDE static void normal_pairs(const double *u, const double *v, double mean, double dev,
                              float *first, float *second) {
#pragma omp simd
  for (int i = 0; i < PAIRS; i++) {
    double r = sqrt(-2 * log_of(1 - u[i])), c, s;
    circle(v[i], &c, &s);
    first[i] = (float)(mean + dev * (r * c));
    second[i] = (float)(mean + dev * (r * s));
  }
}

void rng_normals(uint64_t seed, uint64_t stream, uint64_t first, int64_t n, double mean, double dev,
                 float *out) {
  double u[PAIRS], v[PAIRS], pair[2];
  float even[PAIRS], odd[PAIRS];
  /* out[at] is the first of a pair */
  for (int64_t at = -(int64_t)(first % 2); at < n; at += 2 * PAIRS) {
    uint64_t block = (first + (uint64_t)at) / 2;
    for (int i = 0; i < PAIRS; i++) {
      uniform_pair(seed, stream, block + (uint64_t)i, pair);
      u[i] = pair[0], v[i] = pair[1];
    }
    normal_pairs(u, v, mean, dev, even, odd);
    for (int i = 0; i < 2 * PAIRS; i++)
      if (at + i >= 0 && at + i < n) out[at + i] = i % 2 ? odd[i / 2] : even[i / 2];
  }
}

void rng_uniforms(uint64_t seed, uint64_t stream, uint64_t first, int64_t n, double lo, double hi,
                  float *out) {
  for (int64_t i = 0; i < n;) {
    uint64_t k = first + (uint64_t)i;
    double u[2];
    uniform_pair(seed, stream, k / 2, u);
    for (int part = (int)(k % 2); part < 2 && i < n; part++, i++)
      out[i] = (float)(lo + (hi - lo) * u[part]);
  }
}
