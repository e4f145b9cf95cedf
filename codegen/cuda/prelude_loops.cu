// prelude_loops.cu - what the emitted loop nests call, after the text of prelude_c.h: functions that the GPU has better
// instructions for, vectors of 16 bytes a transaction, folds of a row over its threads, sums of partials.
//
// Elementary functions take the GPU's own approximations where they are good to about 1e-6 relative.
#define MT_FN static __device__ __forceinline__
MT_FN uint16_t mt_to_bf16(float x) {
  uint16_t h;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}
MT_FN float mt_round_bf16(float x) { return mt_float((uint32_t)mt_to_bf16(x) << 16); }
MT_FN uint16_t mt_to_f16(float x) {
  uint16_t h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}
MT_FN float mt_from_f16(uint16_t x) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(x));
  return f;
}
MT_FN float mt_round_f16(float x) { return mt_from_f16(mt_to_f16(x)); }
MT_FN float mt_max(float a, float b) {
  float m;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(m) : "f"(a), "f"(b));
  return m;
}
MT_FN float mt_min(float a, float b) {
  float m;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(m) : "f"(a), "f"(b));
  return m;
}
MT_FN float mt_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
MT_FN float mt_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
MT_FN float mt_exp(float x) { return mt_exp2(x * 1.44269504f); }
MT_FN float mt_log(float x) { return logf(x); }
MT_FN float mt_erf(float x) { return erff(x); }
MT_FN float mt_tanh(float x) {
  const float a = fabsf(x), z = x * x;
  float p = fmaf(-5.70498872745e-3f, z, 2.06390887954e-2f);
  p = fmaf(p, z, -5.37397155531e-2f);
  p = fmaf(p, z, 1.33314422036e-1f);
  p = fmaf(p, z, -3.33332819422e-1f);
  const float small = fmaf(p * z, x, x), large = fmaf(-2.0f, mt_reciprocal(mt_exp2(a * 2.88539008f) + 1.0f), 1.0f);
  return a < 0.625f ? small : copysignf(large, x);
}

// ---- vectors: 16 bytes a transaction ----
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) MtVector { T x[N]; };
template <class T, int N> MT_FN MtVector<T, N> mt_vector(const T *p) {
  return *(const MtVector<T, N> *)p;
}
template <class T, int N> MT_FN void mt_put(T *p, const MtVector<T, N> &v) {
  *(MtVector<T, N> *)p = v;
}
// Keeps a vector as it is in memory: what is made of its elements is made again where it is needed, not held in registers.
template <class T, int N> MT_FN void mt_keep(MtVector<T, N> &v) {
  uint32_t *w = (uint32_t *)&v;
  #pragma unroll
  for (int i = 0; i < (int)sizeof v / 4; i++) asm volatile("" : "+r"(w[i]));
}

// ---- folds of a row over its N threads: a butterfly of each warp, then the warps in order. A block of G rows folds all at
// once ----
template <class T> struct MtSum { MT_FN T f(T a, T b) { return a + b; } };
template <class T> struct MtMax;
template <> struct MtMax<float> { MT_FN float f(float a, float b) { return mt_max(a, b); } };
template <> struct MtMax<int32_t> { MT_FN int32_t f(int32_t a, int32_t b) { return a > b ? a : b; } };
template <> struct MtMax<uint32_t> { MT_FN uint32_t f(uint32_t a, uint32_t b) { return a > b ? a : b; } };
template <class F, int N, int G, class T> MT_FN T mt_fold(T x) {
  #pragma unroll
  for (int o = 16; o; o /= 2) x = F::f(x, __shfl_xor_sync(0xffffffffu, x, o));
  if (N == 32) return x;
  __shared__ T warps[N * G / 32];
  __syncthreads();
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
  __syncthreads();
  const T *w = warps + threadIdx.x / N * (N / 32);
  T y = w[0];
  #pragma unroll
  for (int i = 1; i < N / 32; i++) y = F::f(y, w[i]);
  return y;
}
template <int N, int G, class T> MT_FN T mt_row_sum(T x) { return mt_fold<MtSum<T>, N, G>(x); }
template <int N, int G, class T> MT_FN T mt_row_max(T x) { return mt_fold<MtMax<T>, N, G>(x); }

// First maximum: NaN counts as the largest.
template <class T> MT_FN void mt_argmax(T &best, int32_t &at, T x, int32_t i) {
  const bool over = x > best || (x != x && best == best);
  const bool same = x == best || (x != x && best != best);
  if (over || (same && i < at)) best = x, at = i;
}
template <int N, int G, class T> MT_FN int32_t mt_row_argmax(T x, int32_t at) {
  #pragma unroll
  for (int o = 16; o; o /= 2) {
    const T y = __shfl_xor_sync(0xffffffffu, x, o);
    mt_argmax(x, at, y, __shfl_xor_sync(0xffffffffu, at, o));
  }
  if (N == 32) return at;
  __shared__ T warps[N * G / 32];
  __shared__ int32_t where[N * G / 32];
  __syncthreads();
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x, where[threadIdx.x / 32] = at;
  __syncthreads();
  const int first = threadIdx.x / N * (N / 32);
  for (int i = 0; i < N / 32; i++) mt_argmax(x, at, warps[first + i], where[first + i]);
  return at;
}

// Partial sums [blocks, columns] of column c: range `group` of `groups` consecutive ranges of blocks, in order.
template <class T> MT_FN T mt_fold_range(const T *at, int64_t c, int blocks, int64_t columns, int group, int groups) {
  const int size = (blocks + groups - 1) / groups, to = (group + 1) * size < blocks ? (group + 1) * size : blocks;
  T sum = 0;
  #pragma unroll 8
  for (int b = group * size; b < to; b++) sum += at[b * columns + c];
  return sum;
}
// The sum that a thread's element needs, under any column.
template <class T> struct MtFolded {
  T sum;
  __device__ __forceinline__ T operator[](int64_t) const { return sum; }
};
