// attention_extra.cu - additive biases and dropout, for the kernels of attention_simt.cu and attention_*_mma.cu.
//
// BIAS     scores get Bi[head][query][key], rows ldb apart, of type BELEM with BLOAD(x) and BSTORE(x). PAIRS rows start at
//          a multiple of two elements.
// DROP     probabilities are multiplied with 0 or 1/keep, by the draws of philox.h, whose text comes first: element
//          (head * TQ + query) * TK + key of sample *sample0 + batch.
__device__ __forceinline__ float from_bf16(unsigned short x) { return __uint_as_float((unsigned)x << 16); }
__device__ __forceinline__ unsigned short to_bf16(float x) {
  unsigned short h;
  asm("cvt.rn.bf16.f32 %0,%1;" : "=h"(h) : "f"(x));
  return h;
}
__device__ __forceinline__ float from_f16(unsigned short x) {
  float f;
  asm("cvt.f32.f16 %0,%1;" : "=f"(f) : "h"(x));
  return f;
}
__device__ __forceinline__ unsigned short to_f16(float x) {
  unsigned short h;
  asm("cvt.rn.f16.f32 %0,%1;" : "=h"(h) : "f"(x));
  return h;
}
#if BIAS
#define BIAS_ARGS , const BELEM *__restrict__ Bi, int ldb
#else
#define BIAS_ARGS
#endif
#if DROP
#define DROP_ARGS , const unsigned *__restrict__ seed, const unsigned *__restrict__ step, const unsigned *__restrict__ sample0, \
    unsigned long long key, float keep
#else
#define DROP_ARGS
#endif

#if FRAGMENTS  // accumulators of m16n8: lane l has rows l/4 and l/4+8, columns 2(l%4) and the next; numbers 0..3 of a fragment
#if BIAS
// Adds the biases of one fragment, over the scale, to raw products: first row and column of the lane, at query q and key k.
template <bool KEYS_ARE_ROWS>
DI void add_bias(float *s, const BELEM *Bi, int ldb, int h, int row, int col, int TQ, int TK, float over) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int r = row + (i >> 1) * 8, c = col + (i & 1), q = KEYS_ARE_ROWS ? c : r, k = KEYS_ARE_ROWS ? r : c;
    if (q < TQ && k < TK) s[i] += BLOAD(Bi[((i64)h * TQ + q) * ldb + k]) * over;
  }
}
// The same for N fragments beside each other, whose rows are queries. With PAIRS two keys are one load; queries and keys past
// the end then get the last one's: the caller masks those keys and drops those queries.
template <int N>
DI void add_biases(float (*s)[4], const BELEM *Bi, int ldb, int h, int row, int col, int TQ, int TK, float over) {
#if PAIRS
  struct alignas(2 * sizeof(BELEM)) Pair { BELEM x[2]; };
  const BELEM *rows[2];
#pragma unroll
  for (int i = 0; i < 2; i++) rows[i] = Bi + ((i64)h * TQ + min(row + i * 8, TQ - 1)) * ldb;
  const bool inside = col - col % 8 + N * 8 <= TK;  // the same for the whole warp
  auto add = [&](int i, int k) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const Pair b = *(const Pair *)(rows[r] + k);
      s[i][2 * r] += BLOAD(b.x[0]) * over;
      s[i][2 * r + 1] += BLOAD(b.x[1]) * over;
    }
  };
  if (inside) {
    rows[0] += col, rows[1] += col;
#pragma unroll
    for (int i = 0; i < N; i++) add(i, i * 8);
  } else {
#pragma unroll
    for (int i = 0; i < N; i++) add(i, min(col + i * 8, (TK - 1) & ~1));
  }
#else
#pragma unroll
  for (int i = 0; i < N; i++) add_bias<false>(s[i], Bi, ldb, h, row, col + i * 8, TQ, TK, over);
#endif
}
#endif
#if DROP
struct Draws {
  unsigned seed0, seed1, step, sample;
  u64 key;
  float keep;
  DI bool kept(u64 element) const { return (nibble(element >> 2) >> (element & 3)) & 1; }
  // bit i: element 4 * block + i is kept
  DI u32 nibble(u64 block) const {
    u32 word[4], x = 0;
    philox_block(seed0, seed1, key, step, sample, block, word);
#pragma unroll
    for (int i = 0; i < 4; i++) x |= (philox_uniform(word[i]) < keep ? 1u : 0u) << i;
    return x;
  }
};
// Bit i: number i of this lane's fragment is kept; queries are rows. The lane's first query and key; all lanes of the warp
// call it. Lanes whose keys share a block of draws share the work.
DI u32 draw_rows(const Draws &d, int h, int q, int k, int l, int TQ, int TK) {
  const u64 at = ((u64)h * TQ + q) * TK + k, below = 8ull * TK;
  if (TK & 3)
    return (d.kept(at) ? 1 : 0) | (d.kept(at + 1) ? 2 : 0) | (d.kept(at + below) ? 4 : 0) | (d.kept(at + below + 1) ? 8 : 0);
  const int odd = l & 1, pair = odd * 2;
  u32 x = d.nibble((odd ? at + below : at) >> 2) << (4 * odd);
  x |= __shfl_xor_sync(~0u, x, 1);
  return ((x >> pair) & 3) | ((x >> (4 + pair)) & 3) << 2;
}
// The same where keys are rows.
DI u32 draw_columns(const Draws &d, int h, int q, int k, int l, int TQ, int TK) {
  const u64 at = ((u64)h * TQ + q) * TK + k;
  if (TK & 3)
    return (d.kept(at) ? 1 : 0) | (d.kept(at + TK) ? 2 : 0) | (d.kept(at + 8) ? 4 : 0) | (d.kept(at + TK + 8) ? 8 : 0);
  const int mine = (l >> 2) & 3;  // of the four lanes whose keys lie in one block: number `mine` of the fragment
  u32 x = d.nibble((at + (mine & 1) * (u64)TK + (mine >> 1) * 8) >> 2) << (4 * mine);
  x |= __shfl_xor_sync(~0u, x, 4);
  x |= __shfl_xor_sync(~0u, x, 8);
  return ((x >> mine) & 1) | ((x >> (4 + mine)) & 1) << 1 | ((x >> (8 + mine)) & 1) << 2 | ((x >> (12 + mine)) & 1) << 3;
}
#define DRAWS(b) \
  const Draws draws = {seed[0], seed[1], *step, *sample0 + (b), key, keep}; \
  const float gain = 1.f / keep
// Number i of fragment f of the tile whose bits are in `bits`, times what dropout multiplies it with.
#define DROPPED(x, f, i) ((bits >> (4 * (f) + (i))) & 1 ? (x) * gain : 0.f)
#else
#define DRAWS(b)
#define DROPPED(x, f, i) (x)
#endif
#endif
