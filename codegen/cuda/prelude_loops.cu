// prelude_loops.cu - what the emitted loop nests call, after the text of prelude_c.h: functions that the GPU has better
// instructions for, vectors of 16 bytes a transaction, folds of a row over its threads, sums of partials.
//
// Elementary functions take the GPU's own approximations where they are good to about 1e-6 relative.
#define MT_FN static __device__ __forceinline__
// The packing conversion rounds at full rate, and its upper half is the rounded number as it is.
MT_FN float mt_round_bf16(float x) {
  uint32_t w;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(x), "f"(0.0f));
  return mt_float(w);
}
MT_FN uint16_t mt_to_bf16(float x) { return (uint16_t)(mt_bits(mt_round_bf16(x)) >> 16); }
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
// a / b, to 2 units in the last place; what depends on b alone is made once for many a.
MT_FN float mt_quotient(float a, float b) {
  const float size = fabsf(b), scale = size > 0x1p126f ? 0.25f : size < 0x1p-126f ? 0x1p24f : 1.0f;
  return a * scale * mt_reciprocal(b * scale);
}
MT_FN float mt_exp(float x) { return mt_exp2(x * 1.44269504f); }
MT_FN float mt_log(float x) { return logf(x); }
MT_FN float mt_erf(float x) { return erff(x); }
// tanh to an absolute error of 2e-7: small ones that are added to 1 need no more.
MT_FN float mt_tanh_far(float x) { return fmaf(-2.0f, mt_reciprocal(mt_exp2(x * 2.88539008f) + 1.0f), 1.0f); }
MT_FN float mt_tanh(float x) {
  const float z = x * x;
  float p = fmaf(-5.70498872745e-3f, z, 2.06390887954e-2f);
  p = fmaf(p, z, -5.37397155531e-2f);
  p = fmaf(p, z, 1.33314422036e-1f);
  p = fmaf(p, z, -3.33332819422e-1f);
  const float small = fmaf(p * z, x, x), large = copysignf(mt_tanh_far(fabsf(x)), x);
  return fabsf(x) < 0.625f ? small : large;
}

// The index of an element, never negative: said so, four neighbours share a block of random bits.
MT_FN int64_t mt_index(int x) { return (int64_t)(uint32_t)x; }
MT_FN int64_t mt_index(int64_t x) { return x; }

// ---- vectors: 16 bytes a transaction ----
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) MtVector { T x[N]; };
// Short elements stay in the words that they are moved in: each is one instruction away.
template <int N> struct alignas(2 * N < 16 ? 2 * N : 16) MtVector<uint16_t, N> { uint32_t w[N / 2]; };
template <> struct MtVector<uint16_t, 1> { uint16_t x[1]; };
template <> struct alignas(4) MtVector<uint8_t, 4> { uint32_t w[1]; };
template <> struct alignas(8) MtVector<uint8_t, 8> { uint32_t w[2]; };
template <class T, int N> MT_FN MtVector<T, N> mt_vector(const T *p) {
  return *(const MtVector<T, N> *)p;
}
template <class T, int N> MT_FN void mt_put(T *p, const MtVector<T, N> &v) {
  *(MtVector<T, N> *)p = v;
}
template <int N> MT_FN float mt_bf16_at(const MtVector<uint16_t, N> &v, int j) {
  return mt_float(j % 2 ? v.w[j / 2] & 0xffff0000u : v.w[j / 2] << 16);
}
template <int N> MT_FN float mt_f16_at(const MtVector<uint16_t, N> &v, int j) {
  return mt_from_f16((uint16_t)(j % 2 ? v.w[j / 2] >> 16 : v.w[j / 2]));
}
template <int N> MT_FN uint32_t mt_u16_at(const MtVector<uint16_t, N> &v, int j) {
  return j % 2 ? v.w[j / 2] >> 16 : v.w[j / 2] & 0xffffu;
}
template <int N> MT_FN uint32_t mt_u8_at(const MtVector<uint8_t, N> &v, int j) {
  if constexpr (N < 4) return v.x[j];
  else return v.w[j / 4] >> 8 * (j % 4) & 0xffu;
}
template <int N> MT_FN int32_t mt_bool_at(const MtVector<uint8_t, N> &v, int j) { return mt_u8_at(v, j) != 0; }
MT_FN float mt_bf16_at(const MtVector<uint16_t, 1> &v, int) { return mt_from_bf16(v.x[0]); }
MT_FN float mt_f16_at(const MtVector<uint16_t, 1> &v, int) { return mt_from_f16(v.x[0]); }
// Floats to memory as 16-bit ones: rounded, or, `top`, those that are bf16 numbers already.
template <int N> MT_FN void mt_put_bf16(uint16_t *p, const MtVector<float, N> &v) {
  if constexpr (N == 1) {
    *p = mt_to_bf16(v.x[0]);
  } else {
    MtVector<uint16_t, N> h;
    #pragma unroll
    for (int i = 0; i < N / 2; i++)
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(h.w[i]) : "f"(v.x[2 * i + 1]), "f"(v.x[2 * i]));
    mt_put(p, h);
  }
}
template <int N> MT_FN void mt_put_bf16_top(uint16_t *p, const MtVector<float, N> &v) {
  MtVector<uint16_t, N> h;
  #pragma unroll
  for (int i = 0; i < N / 2; i++) h.w[i] = __byte_perm(mt_bits(v.x[2 * i]), mt_bits(v.x[2 * i + 1]), 0x7632);
  mt_put(p, h);
}
template <int N> MT_FN void mt_put_f16(uint16_t *p, const MtVector<float, N> &v) {
  if constexpr (N == 1) {
    *p = mt_to_f16(v.x[0]);
  } else {
    MtVector<uint16_t, N> h;
    #pragma unroll
    for (int i = 0; i < N / 2; i++)
      asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(h.w[i]) : "f"(v.x[2 * i + 1]), "f"(v.x[2 * i]));
    mt_put(p, h);
  }
}
template <int N> MT_FN void mt_put_u16(uint16_t *p, const MtVector<uint32_t, N> &v) {
  MtVector<uint16_t, N> h;
  #pragma unroll
  for (int i = 0; i < N / 2; i++) h.w[i] = __byte_perm(v.x[2 * i], v.x[2 * i + 1], 0x5410);
  mt_put(p, h);
}
// Numbers below 256.
template <class T, int N> MT_FN void mt_put_u8(uint8_t *p, const MtVector<T, N> &v) {
  MtVector<uint8_t, N> h;
  if constexpr (N < 4) {
    #pragma unroll
    for (int i = 0; i < N; i++) h.x[i] = (uint8_t)v.x[i];
  } else {
    #pragma unroll
    for (int i = 0; i < N / 4; i++)
      h.w[i] = __byte_perm(__byte_perm(v.x[4 * i], v.x[4 * i + 1], 0x0040), __byte_perm(v.x[4 * i + 2], v.x[4 * i + 3], 0x0040), 0x5410);
  }
  mt_put(p, h);
}
// Granules of 4-byte elements are two transactions. Two neighbours first exchange halves, so that a transaction of the warp has
// whole sectors of 32 bytes. whole: the same for all threads of the warp, which are here with granules beside each other.
template <class T> MT_FN void mt_put_pair(T *p, const MtVector<T, 8> &v, bool whole) {
  if (!whole) {
    mt_put(p, v);
    return;
  }
  const int odd = threadIdx.x % 2;
  MtVector<T, 4> first, second;
  #pragma unroll
  for (int i = 0; i < 4; i++) {
    const T mine = odd ? v.x[4 + i] : v.x[i], theirs = __shfl_xor_sync(0xffffffffu, odd ? v.x[i] : v.x[4 + i], 1);
    first.x[i] = odd ? theirs : mine;
    second.x[i] = odd ? mine : theirs;
  }
  mt_put(p - 4 * odd, first);
  mt_put(p - 4 * odd + 8, second);
}
// Keeps a vector as it is in memory: what is made of its elements is made again where it is needed, not held in registers.
template <class T, int N> MT_FN void mt_keep(MtVector<T, N> &v) {
  uint32_t *w = (uint32_t *)&v;
  #pragma unroll
  for (int i = 0; i < (int)sizeof v / 4; i++) asm volatile("" : "+r"(w[i]));
}

// ---- rows on their way: a ring of rows in shared memory, filled by asynchronous copies ----
// A granule has a slot of its thread's. One of 4-byte elements is two transactions: a warp moves its 1024 bytes in the order
// of memory, so that each transaction is whole, and a thread finds its own halves free of bank conflicts.
template <int BYTES> MT_FN void mt_copy_async(uint32_t to, const void *from) {
  if (BYTES == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(BYTES) : "memory");
}
MT_FN void mt_copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> MT_FN void mt_copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
// Again: from memory each time, also where an earlier pass had the same, whose numbers would take registers.
template <bool AGAIN, int N> MT_FN void mt_shared_load(uint32_t (&w)[N], uint32_t at) {
  if constexpr (N == 4 && AGAIN)
    asm volatile("ld.volatile.shared.v4.b32 {%0,%1,%2,%3}, [%4];" : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "r"(at));
  else if constexpr (N == 4)
    asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];" : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "r"(at));
  else
    asm volatile("ld.volatile.shared.v2.b32 {%0,%1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : "r"(at));
}
// The slot of this thread's granule; base: that of the first thread of its warp when granules are 32 bytes.
template <class T> MT_FN uint32_t mt_ring(const char *shared, int thread) {
  const int at = sizeof(T) == 4 ? thread / 32 * 1024 : thread * 8 * (int)sizeof(T);
  return (uint32_t)__cvta_generic_to_shared(shared + at);
}
// from: this thread's granule; left: elements from there to the end of the row, none when <= 0. All threads of a warp call.
template <class T> MT_FN void mt_ring_fill(uint32_t slot, const T *from, int left) {
  if constexpr (sizeof(T) == 4) {
    const int l = threadIdx.x % 32, at = (l ^ (l >> 3 & 1)) * 16;
    if (left + 4 * l > 0) mt_copy_async<16>(slot + at, from - 4 * l);
    if (left + 4 * l > 128) mt_copy_async<16>(slot + at + 512, from - 4 * l + 128);
  } else {
    if (left > 0) mt_copy_async<8 * sizeof(T)>(slot, from);
  }
}
template <class T, bool AGAIN> MT_FN MtVector<T, 8> mt_ring_read(uint32_t slot) {
  MtVector<T, 8> v;
  uint32_t *w = (uint32_t *)&v;
  if constexpr (sizeof(T) == 4) {
    const int l = threadIdx.x % 32, odd = l >> 2 & 1;
    uint32_t a[4], b[4];
    mt_shared_load<AGAIN>(a, slot + ((2 * l) ^ odd) * 16);
    mt_shared_load<AGAIN>(b, slot + ((2 * l + 1) ^ odd) * 16);
    #pragma unroll
    for (int i = 0; i < 4; i++) w[i] = a[i], w[4 + i] = b[i];
  } else {
    uint32_t a[2 * sizeof(T)];
    mt_shared_load<AGAIN>(a, slot);
    #pragma unroll
    for (int i = 0; i < 2 * (int)sizeof(T); i++) w[i] = a[i];
  }
  return v;
}

// ---- folds of a row over its N threads: a butterfly of each warp, then the warps in order. Each of a block's G rows folds
// by itself. ID tells the folds of a function apart, odd one row from the next: what a fold wrote is read before it is
// written again ----
template <class T> struct MtSum { MT_FN T f(T a, T b) { return a + b; } };
template <class T> struct MtMax;
template <> struct MtMax<float> { MT_FN float f(float a, float b) { return mt_max(a, b); } };
template <> struct MtMax<int32_t> { MT_FN int32_t f(int32_t a, int32_t b) { return a > b ? a : b; } };
template <> struct MtMax<uint32_t> { MT_FN uint32_t f(uint32_t a, uint32_t b) { return a > b ? a : b; } };
template <int N, int G> MT_FN void mt_row_barrier() {
  if (G == 1) __syncthreads();
  else asm volatile("bar.sync %0, %1;" ::"r"(1 + (int)threadIdx.x / N), "n"(N) : "memory");
}
template <class F, int N, int G, int ID, class T> MT_FN T mt_fold(T x, int odd) {
  #pragma unroll
  for (int o = 16; o; o /= 2) x = F::f(x, __shfl_xor_sync(0xffffffffu, x, o));
  if (N == 32) return x;
  __shared__ T warps[2][N * G / 32];
  if (threadIdx.x % 32 == 0) warps[odd][threadIdx.x / 32] = x;
  mt_row_barrier<N, G>();
  const T *w = warps[odd] + threadIdx.x / N * (N / 32);
  T y = w[0];
  #pragma unroll
  for (int i = 1; i < N / 32; i++) y = F::f(y, w[i]);
  return y;
}
template <int N, int G, int ID, class T> MT_FN T mt_row_sum(T x, int odd) { return mt_fold<MtSum<T>, N, G, ID>(x, odd); }
template <int N, int G, int ID, class T> MT_FN T mt_row_max(T x, int odd) { return mt_fold<MtMax<T>, N, G, ID>(x, odd); }

// First maximum: NaN counts as the largest.
template <class T> MT_FN void mt_argmax(T &best, int32_t &at, T x, int32_t i) {
  const bool over = x > best || (x != x && best == best);
  const bool same = x == best || (x != x && best != best);
  if (over || (same && i < at)) best = x, at = i;
}
// The same where i is larger than all before.
template <class T> MT_FN void mt_argmax_next(T &best, int32_t &at, T x, int32_t i) {
  if (!(x <= best) && best == best) best = x, at = i;
}
template <int N, int G, int ID, class T> MT_FN int32_t mt_row_argmax(T x, int odd, int32_t at) {
  #pragma unroll
  for (int o = 16; o; o /= 2) {
    const T y = __shfl_xor_sync(0xffffffffu, x, o);
    mt_argmax(x, at, y, __shfl_xor_sync(0xffffffffu, at, o));
  }
  if (N == 32) return at;
  __shared__ T warps[2][N * G / 32];
  __shared__ int32_t where[2][N * G / 32];
  if (threadIdx.x % 32 == 0) warps[odd][threadIdx.x / 32] = x, where[odd][threadIdx.x / 32] = at;
  mt_row_barrier<N, G>();
  const int first = threadIdx.x / N * (N / 32);
  for (int i = 0; i < N / 32; i++) mt_argmax(x, at, warps[odd][first + i], where[odd][first + i]);
  return at;
}

// Partial sums [blocks, columns] of column c: range `group` of `groups` consecutive ranges of blocks, in order.
template <class T> MT_FN T mt_fold_range(const T *at, int64_t c, int blocks, int64_t columns, int group, int groups) {
  const int size = (blocks + groups - 1) / groups, to = (group + 1) * size < blocks ? (group + 1) * size : blocks;
  T sum = 0;
  #pragma unroll 16
  for (int b = group * size; b < to; b++) sum += at[b * columns + c];
  return sum;
}
// The sum that a thread's element needs, under any column.
template <class T> struct MtFolded {
  T sum;
  __device__ __forceinline__ T operator[](int64_t) const { return sum; }
};

// ---- codes of 8 bits: the functions of formats.h by tables in shared memory, which give the same codes and entries ----
// Encoding takes three steps. The upper byte of a float, its sign and two binades, holds at most one edge between decades:
// `step` tells the cell run below the edge, the next one is above it. Within a run cells are equally wide; the addition
// cuts off the place within the cell. A run is a decade of one sign, zero or 1; the last two of a sign are those of the
// upper byte that NaN has.
struct MtStep { float edge; int run; };                   // run: in bytes of MtRun
struct alignas(8) MtRun { float scale, cells; };          // 10^(6 - d), cells of the decade / 0.9
template <bool UNSIGNED> struct MtCodes {
  enum { PLUS = 11, RUNS = PLUS + 10 };
  float entry[256];
  MtStep step[256];
  MtRun run[RUNS];
  struct alignas(8) { float code; } first[RUNS];          // of the run, + 2^23
};
template <bool UNSIGNED> MT_FN void mt_codes_fill(MtCodes<UNSIGNED> &m) {
  const float edges[2][8] = {FORMAT_EDGES8, FORMAT_EDGES8U};
  for (int i = threadIdx.x; i < 256; i += blockDim.x) {
    m.entry[i] = UNSIGNED ? format_dequant8u(i) : format_dequant8(i);
    const bool minus = i >= 128, last = i % 128 == 127, zero = minus && UNSIGNED;
    const int most = minus ? 7 : 8;
    const float low = mt_float((uint32_t)i % 128 << 24), *edge = edges[UNSIGNED];
    int run = 0;
    float next = last ? low : edge[0];
    #pragma unroll
    for (int e = 0; e < 8; e++)
      if (!last && e < most && low >= edge[e]) run = e + 1, next = e + 1 < most ? edge[(e + 1) % 8] : mt_float(0x7f800000u);
    if (last) run = most + 1;
    m.step[i].edge = zero ? mt_float(0x7f800000u) : next;
    m.step[i].run = zero ? 0 : (int)sizeof(MtRun) * (run + (minus ? MtCodes<UNSIGNED>::PLUS : 0));
  }
  for (int i = threadIdx.x; i < MtCodes<UNSIGNED>::RUNS; i += blockDim.x) {
    const bool minus = i >= MtCodes<UNSIGNED>::PLUS;
    const int most = minus ? 7 : 8, at = minus ? i - MtCodes<UNSIGNED>::PLUS : i;
    const int run = at <= most ? at : at == most + 1 ? 0 : most, d = run - 1;
    const bool decade = run > 0 && run < 8;
    const float cells = (float)(1 << (d + UNSIGNED & 15));
    m.run[i].scale = decade ? format_scale(d) : 0.0f;
    m.run[i].cells = decade ? cells * 1.1111111f : 0.0f;
    m.first[i].code = 8388608.0f + (decade ? cells + (minus ? 128.0f : 0.0f) - UNSIGNED : run ? 128.0f + 127.0f * UNSIGNED : 0.0f);
  }
}
template <bool UNSIGNED> MT_FN float mt_entry(const MtCodes<UNSIGNED> &m, uint32_t code) { return m.entry[code]; }
template <bool UNSIGNED> MT_FN uint32_t mt_code(const MtCodes<UNSIGNED> &m, float x) {
  const MtStep s = m.step[mt_bits(x) >> 24];
  const float a = UNSIGNED ? x : fabsf(x);
  const int run = s.run + (a >= s.edge ? (int)sizeof(MtRun) : 0);
  const MtRun r = *(const MtRun *)((const char *)m.run + run);
  const float first = *(const float *)((const char *)m.first + run);
  // Above 0.99 lies the last cell of every decade.
  const float place = __fmul_rn(__fadd_rn(fminf(__fmul_rn(a, r.scale), 0.999f), -0.1f), r.cells);
  return mt_bits(__fadd_rz(place, first)) & 255u;
}
