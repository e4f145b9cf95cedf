// emulated_cuda.h - what emitted CUDA C++ takes from its compiler, for a C++ compiler of the host:
// it stands before the text of every program that emulate.h compiles. Included by no C file.
//
// A statement asm("NAME operands" : outputs : inputs) has become a call ptx_NAME(outputs, inputs),
// dots as underscores. The functions emulated_* are emulate.h's. Static variables stand for shared
// memory: one block runs at a time.
extern "C" {
void *memcpy(void *, const void *, unsigned long);
float logf(float), erff(float), exp2f(float);
struct EmulatedIndex {
  unsigned x, y, z;
};
extern EmulatedIndex threadIdx, blockIdx, gridDim, blockDim;
extern char mt_shared[];
void emulated_barrier(int id, int threads);
void emulated_block_barrier();
// Puts `bytes` of each lane of the warp into all[lane]; every lane calls.
enum { LANE_BYTES = 8, LANES = 32 };
void emulated_exchange(const void *mine, int bytes, char all[LANES][LANE_BYTES]);
void emulated_copy(unsigned to, const void *from, int bytes);
void emulated_copy_commit();
void emulated_copy_wait(int groups);
unsigned short emulated_to_bf16(float), emulated_to_f16(float);
float emulated_from_f16(unsigned short);
}

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)

static inline float fmaf(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
static inline float fabsf(float a) {
  return __builtin_fabsf(a);
}
static inline float sqrtf(float a) {
  return __builtin_sqrtf(a);
}
static inline float floorf(float a) {
  return __builtin_floorf(a);
}
static inline float copysignf(float a, float b) {
  return __builtin_copysignf(a, b);
}
static inline float __fmul_rn(float a, float b) {
  return a * b;
}
static inline float __fadd_rn(float a, float b) {
  return a + b;
}
// Towards zero, of what is not negative and below 2^24.
static inline float __fadd_rz(float a, float b) {
  return (float)__builtin_floor((double)a + (double)b);
}
static inline float fminf(float a, float b) {
  return a < b || b != b ? a : b;
}
static inline int __popc(unsigned x) {
  return __builtin_popcount(x);
}
static inline int __ffs(unsigned x) {
  return __builtin_ffs((int)x);
}
static inline int min(int a, int b) {
  return a < b ? a : b;
}
static inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selectors) {
  const unsigned long long bytes = (unsigned long long)high << 32 | low;
  unsigned r = 0;
  for (int i = 0; i < 4; i++) r |= (unsigned)(bytes >> 8 * (selectors >> 4 * i & 7) & 255) << 8 * i;
  return r;
}
static inline unsigned long __cvta_generic_to_shared(const void *p) {
  return (unsigned long)((const char *)p - mt_shared);
}
// Threads take turns only at barriers and exchanges.
static inline int atomicAdd(int *p, int v) {
  const int was = *p;
  *p += v;
  return was;
}

// ---- barriers and warps ----
static inline void __syncthreads() {
  emulated_block_barrier();
}
static inline void __syncwarp() {
  char all[LANES][LANE_BYTES];
  emulated_exchange("", 1, all);
}
template <class T>
static inline T emulated_lane(T x, int lane) {
  char all[LANES][LANE_BYTES];
  emulated_exchange(&x, sizeof x, all);
  memcpy(&x, all[lane % LANES], sizeof x);
  return x;
}
template <class T>
static inline T __shfl_sync(unsigned, T x, int lane) {
  return emulated_lane(x, lane);
}
template <class T>
static inline T __shfl_xor_sync(unsigned, T x, int mask) {
  return emulated_lane(x, (int)threadIdx.x % LANES ^ mask);
}
template <class T>
static inline T __shfl_up_sync(unsigned, T x, int by) {
  const int lane = threadIdx.x % LANES;
  return emulated_lane(x, lane >= by ? lane - by : lane);
}
static inline unsigned __match_any_sync(unsigned, int x) {
  char all[LANES][LANE_BYTES];
  emulated_exchange(&x, sizeof x, all);
  unsigned same = 0;
  for (int i = 0; i < LANES; i++) {
    int y;
    memcpy(&y, all[i], sizeof y);
    same |= (unsigned)(x == y) << i;
  }
  return same;
}
static inline unsigned __ballot_sync(unsigned, bool x) {
  const unsigned same = __match_any_sync(~0u, x);
  return x ? same : ~same;
}

// ---- PTX ----
static inline void ptx_cvt_rn_f16_f32(unsigned short &to, float x) {
  to = emulated_to_f16(x);
}
static inline void ptx_cvt_f32_f16(float &to, unsigned short x) {
  to = emulated_from_f16(x);
}
static inline void ptx_cvt_rn_bf16x2_f32(unsigned &to, float high, float low) {
  to = (unsigned)emulated_to_bf16(high) << 16 | emulated_to_bf16(low);
}
static inline void ptx_cvt_rn_f16x2_f32(unsigned &to, float high, float low) {
  to = (unsigned)emulated_to_f16(high) << 16 | emulated_to_f16(low);
}
static inline void ptx_max_NaN_f32(float &to, float a, float b) {
  to = a != a || b != b ? __builtin_nanf("") : a > b ? a : b;
}
static inline void ptx_min_NaN_f32(float &to, float a, float b) {
  to = a != a || b != b ? __builtin_nanf("") : a < b ? a : b;
}
static inline void ptx_ex2_approx_ftz_f32(float &to, float x) {
  to = exp2f(x);
}
static inline void ptx_rcp_approx_ftz_f32(float &to, float x) {
  to = 1.0f / x;
}
static inline void ptx_(unsigned &) {}  // an empty template hides a value from the optimizer
static inline void ptx_bar_sync(int id, int threads) {
  emulated_barrier(id, threads);
}
static inline void ptx_cp_async_cg_shared_global(unsigned to, const void *from) {
  emulated_copy(to, from, 16);
}
static inline void ptx_cp_async_ca_shared_global(unsigned to, const void *from, int bytes) {
  emulated_copy(to, from, bytes);
}
static inline void ptx_cp_async_commit_group() {
  emulated_copy_commit();
}
static inline void ptx_cp_async_wait_group(int groups) {
  emulated_copy_wait(groups);
}
static inline void ptx_ld_shared_v4_b32(unsigned &a, unsigned &b, unsigned &c, unsigned &d,
                                        unsigned at) {
  unsigned *const w[] = {&a, &b, &c, &d};
  for (int i = 0; i < 4; i++) memcpy(w[i], mt_shared + at + 4 * i, 4);
}
static inline void ptx_ld_volatile_shared_v4_b32(unsigned &a, unsigned &b, unsigned &c, unsigned &d,
                                                 unsigned at) {
  ptx_ld_shared_v4_b32(a, b, c, d, at);
}
static inline void ptx_ld_volatile_shared_v2_b32(unsigned &a, unsigned &b, unsigned at) {
  memcpy(&a, mt_shared + at, 4), memcpy(&b, mt_shared + at + 4, 4);
}
