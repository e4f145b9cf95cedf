// scatter_add.cu - the transpose of gather: out[V, D] (+)= sum of the rows whose id names the row, in a fixed order of
// additions, so that results are bitwise reproducible. After the text of the loops' prelude.
//
// Macros   N positions; V rows of out; D columns; ROW_STRIDE elements between rows; ROW_T, OUT_T memory types with LOAD_ROW,
//          LOAD_OUT, STORE_OUT; VEC columns of a thread; ACCUMULATE; PASSES of BITS bits.
// Kernels  scatter_count_P, scatter_move_P: pass P of a stable radix sort of the positions by id; a block owns PART consecutive
//          positions. scatter_sum: a block takes the runs of equal ids that start in its 32 places of the sorted order; its
//          thread groups take the rows of a run in turn and are added in order.
// Work     int32: keys[2][N], positions[2][N], counts of digits[PARTS][DIGITS].
enum { THREADS = 256, WARPS = THREADS / 32, PART = 1024, PARTS = (N + PART - 1) / PART, DIGITS = 1 << BITS,
       SUM_THREADS = 512, PLACES = 32, SPAN = (D + VEC - 1) / VEC };

MT_FN int clamp_id(int id) { return id < 0 ? 0 : id >= V ? V - 1 : id; }

// Key and position at place i before pass P.
template <int P> MT_FN int key_at(const int *ids, const int *work, int i) {
  return P == 0 ? clamp_id(ids[i]) : work[(P & 1) * N + i];
}
template <int P> MT_FN int position_at(const int *work, int i) { return P == 0 ? i : work[(2 + (P & 1)) * N + i]; }
template <int P> MT_FN int digit_of(int key) { return key >> (P * BITS) & (DIGITS - 1); }

template <int P> MT_FN void count_digits(const int *ids, int *work) {
  __shared__ int count[DIGITS];
  for (int d = threadIdx.x; d < DIGITS; d += THREADS) count[d] = 0;
  __syncthreads();
  for (int i = blockIdx.x * PART + threadIdx.x; i < N && i < (blockIdx.x + 1) * PART; i += THREADS)
    atomicAdd(&count[digit_of<P>(key_at<P>(ids, work, i))], 1);
  __syncthreads();
  for (int d = threadIdx.x; d < DIGITS; d += THREADS) work[4 * N + blockIdx.x * DIGITS + d] = count[d];
}

// Where this block's elements of each digit go: after all smaller digits and the same digit of earlier parts.
MT_FN void digit_starts(const int *counts, int *start, int *warps) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int before = 0; // elements of the digits of earlier rounds
  for (int first = 0; first < DIGITS; first += THREADS) {
    const int d = first + threadIdx.x;
    int all = 0, mine = 0;
    #pragma unroll 8
    for (int p = 0; p < PARTS && d < DIGITS; p++) {
      if (p == blockIdx.x) mine = all;
      all += counts[p * DIGITS + d];
    }
    int sum = all;
    #pragma unroll
    for (int o = 1; o < 32; o *= 2) {
      const int y = __shfl_up_sync(0xffffffffu, sum, o);
      if (lane >= o) sum += y;
    }
    __syncthreads();
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    int total = 0;
    for (int w = 0; w < WARPS; w++) {
      if (w == warp) sum += total;
      total += warps[w];
    }
    if (d < DIGITS) start[d] = before + sum - all + mine;
    before += total;
  }
  __syncthreads();
}

// A warp owns PART / WARPS consecutive places and walks them in order, 32 at a time.
template <int P> MT_FN void move_digits(const int *ids, int *work) {
  enum { SHARE = PART / WARPS };
  __shared__ int start[DIGITS], next[WARPS][DIGITS], warps[WARPS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.x * PART + warp * SHARE;
  int *keys = work + (~P & 1) * N, *positions = work + (2 + (~P & 1)) * N;
  digit_starts(work + 4 * N, start, warps);
  for (int d = threadIdx.x; d < WARPS * DIGITS; d += THREADS) next[0][d] = 0;
  __syncthreads();
  for (int i = first + lane; i < first + SHARE; i += 32)
    if (i < N) atomicAdd(&next[warp][digit_of<P>(key_at<P>(ids, work, i))], 1);
  __syncthreads();
  for (int d = threadIdx.x; d < DIGITS; d += THREADS) {
    int at = start[d];
    for (int w = 0; w < WARPS; w++) {
      const int n = next[w][d];
      next[w][d] = at;
      at += n;
    }
  }
  __syncthreads();
  for (int i = first + lane; i < first + SHARE; i += 32) {
    const int key = i < N ? key_at<P>(ids, work, i) : -1, digit = i < N ? digit_of<P>(key) : DIGITS;
    const unsigned same = __match_any_sync(0xffffffffu, digit), below = same & ((1u << lane) - 1);
    int at = 0;
    if (i < N) at = next[warp][digit] + __popc(below);
    __syncwarp();
    if (i < N && !below) next[warp][digit] += __popc(same);
    __syncwarp();
    if (i < N) keys[at] = key, positions[at] = position_at<P>(work, i);
  }
}

#define PASS(P)                                                                                         \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                 \
      scatter_count_##P(const int *ids, const ROW_T *rows, OUT_T *out, int *work) {                     \
    count_digits<P>(ids, work);                                                                         \
  }                                                                                                     \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                 \
      scatter_move_##P(const int *ids, const ROW_T *rows, OUT_T *out, int *work) {                      \
    move_digits<P>(ids, work);                                                                          \
  }
PASS(0)
#if PASSES > 1
PASS(1)
#endif
#if PASSES > 2
PASS(2)
#endif
#if PASSES > 3
PASS(3)
#endif

// First place in keys[from..N) whose key is not below k.
MT_FN int lower_bound(const int *keys, int from, int k) {
  int lo = from, hi = N;
  while (lo < hi) {
    const int mid = (lo + hi) / 2;
    if (keys[mid] < k) lo = mid + 1;
    else hi = mid;
  }
  return lo;
}

MT_FN void store_columns(OUT_T *o, float (&sum)[VEC], bool add) {
  MtVector<OUT_T, VEC> x;
  if (add) x = mt_vector<OUT_T, VEC>(o);
  #pragma unroll
  for (int j = 0; j < VEC; j++) {
    if (add) sum[j] += LOAD_OUT(x.x[j]);
    x.x[j] = STORE_OUT(sum[j]);
  }
  mt_put(o, x);
}

// out row `key` (+)= rows positions[from..to), all threads of the block.
MT_FN void sum_run(const ROW_T *rows, OUT_T *out, const int *positions, int key, int from, int to) {
  enum { TILE = SPAN < SUM_THREADS ? SPAN : SUM_THREADS, GROUPS = SUM_THREADS / TILE };
  __shared__ float part[GROUPS][TILE * VEC];
  const int group = threadIdx.x / TILE, at = threadIdx.x % TILE;
  for (int tile = 0; tile < SPAN; tile += TILE) {
    const int c = (tile + at) * VEC;
    float sum[VEC] = {};
    if (group < GROUPS && c < D) {
      #pragma unroll 4
      for (int i = from + group; i < to; i += GROUPS) {
        const MtVector<ROW_T, VEC> r = mt_vector<ROW_T, VEC>(rows + (int64_t)positions[i] * ROW_STRIDE + c);
        #pragma unroll
        for (int j = 0; j < VEC; j++) sum[j] += LOAD_ROW(r.x[j]);
      }
      if (group)
        #pragma unroll
        for (int j = 0; j < VEC; j++) part[group][at * VEC + j] = sum[j];
    }
    __syncthreads();
    if (group == 0 && c < D) {
      for (int g = 1; g < GROUPS && g < to - from; g++)
        #pragma unroll
        for (int j = 0; j < VEC; j++) sum[j] += part[g][at * VEC + j];
      store_columns(out + (int64_t)key * D + c, sum, ACCUMULATE);
    }
    __syncthreads();
  }
}

extern "C" __global__ void __launch_bounds__(SUM_THREADS)
    scatter_sum(const int *ids, const ROW_T *rows, OUT_T *out, const int *work) {
  const int *keys = work + (PASSES & 1) * N, *positions = work + (2 + (PASSES & 1)) * N;
  const int first = blockIdx.x * PLACES;
#if !ACCUMULATE
  if (first >= N) { // a row of out: zeros when no id names it
    const int row = blockIdx.x - (N + PLACES - 1) / PLACES, at = lower_bound(keys, 0, row);
    if (at < N && keys[at] == row) return;
    for (int c = threadIdx.x; c < D; c += SUM_THREADS) out[(int64_t)row * D + c] = STORE_OUT(0.0f);
    return;
  }
#endif
  for (int i = first; i < first + PLACES && i < N;) {
    const int key = keys[i], to = lower_bound(keys, i + 1, key + 1);
    if (i == 0 || keys[i - 1] != key) sum_run(rows, out, positions, key, i, to);
    i = to;
  }
}
