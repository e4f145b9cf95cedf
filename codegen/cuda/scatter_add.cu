// scatter_add.cu - the transpose of gather: out[V, D] (+)= sum of the rows whose id names the row, in a fixed order of
// additions, so that results are bitwise reproducible. After the text of the loops' prelude.
//
// Macros   N positions; V rows of out; D columns; ROW_STRIDE elements between rows; ROW_T, OUT_T memory types with
//          LOAD_ROW(v, j), LOAD_OUT(v, j): element j of a vector, PUT_OUT(p, v): floats to memory; VEC columns of a thread;
//          ACCUMULATE; PASSES of BITS bits.
// Kernels  scatter_count_P, scatter_move_P: pass P of a stable radix sort of the positions by id; a block owns PART consecutive
//          positions. scatter_sum: a block takes a slice of the columns of the runs of equal ids that start in its 32 places of
//          the sorted order: a warp each, row by row; of runs of more than 32 rows each warp takes every 8th row, and the
//          warps are added in order. Without ACCUMULATE further blocks clear the rows that no id names.
// Work     int32: keys[2][N], positions[2][N], counts of digits[PARTS][DIGITS].
enum { THREADS = 256, WARPS = THREADS / 32, PART = 1024, PARTS = (N + PART - 1) / PART, DIGITS = 1 << BITS,
       SUM_THREADS = 256, SUM_WARPS = SUM_THREADS / 32, PLACES = 32, SLICE = 32 * VEC, SLICES = (D + SLICE - 1) / SLICE };

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
    #pragma unroll 16
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
  for (int d = threadIdx.x; d < WARPS * DIGITS; d += THREADS) next[d / DIGITS][d % DIGITS] = 0;
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

// First place in keys[from..N) whose key is above k, where keys[from - 1] is k: a warp probes 32 places at a time.
MT_FN int run_end(const int *keys, int from, int k) {
  const int lane = threadIdx.x % 32;
  for (int64_t step = 1;;) {
    const int64_t at = from + (lane + 1) * step - 1;
    const unsigned above = __ballot_sync(0xffffffffu, at >= N || keys[at] > k);
    if (!above) {
      from += 32 * step;
      step *= 32;
      continue;
    }
    from += (__ffs(above) - 1) * step;
    if (step == 1) return from;
    step /= 32;
  }
}

MT_FN void add_row(MtVector<float, VEC> &sum, const MtVector<ROW_T, VEC> &r) {
  #pragma unroll
  for (int j = 0; j < VEC; j++) sum.x[j] += LOAD_ROW(r, j);
}

// was: what the row of out holds.
MT_FN void store_row(OUT_T *o, MtVector<float, VEC> sum, const MtVector<OUT_T, VEC> &was) {
#if ACCUMULATE
  #pragma unroll
  for (int j = 0; j < VEC; j++) sum.x[j] += LOAD_OUT(was, j);
#endif
  PUT_OUT(o, sum);
}
MT_FN MtVector<OUT_T, VEC> load_row(const OUT_T *o, bool inside) {
  MtVector<OUT_T, VEC> was = {};
  if (ACCUMULATE && inside) was = mt_vector<OUT_T, VEC>(o);
  return was;
}

// A long run, all warps of the block. rows and out: at this thread's columns.
MT_FN void sum_long(const ROW_T *rows, OUT_T *out, bool inside, const int *positions, int from, int to) {
  __shared__ float part[SUM_WARPS][VEC][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  MtVector<float, VEC> sum = {};
  if (inside)
    #pragma unroll 8
    for (int i = from + warp; i < to; i += SUM_WARPS)
      add_row(sum, mt_vector<ROW_T, VEC>(rows + (int64_t)positions[i] * ROW_STRIDE));
  #pragma unroll
  for (int j = 0; j < VEC; j++) part[warp][j][lane] = sum.x[j];
  __syncthreads();
  if (warp == 0 && inside) {
    for (int w = 1; w < SUM_WARPS; w++)
      #pragma unroll
      for (int j = 0; j < VEC; j++) sum.x[j] += part[w][j][lane];
    store_row(out, sum, load_row(out, true));
  }
  __syncthreads();
}

#if !ACCUMULATE
// Rows that no id names become zero: a warp each.
MT_FN void clear_row(const int *keys, OUT_T *out, int row, bool inside) {
  int lo = 0, hi = N;
  while (lo < hi) {
    const int mid = (lo + hi) / 2;
    if (keys[mid] < row) lo = mid + 1;
    else hi = mid;
  }
  const MtVector<float, VEC> zero = {};
  if (inside && row < V && !(lo < N && keys[lo] == row)) PUT_OUT(out + (int64_t)row * D, zero);
}
#endif

extern "C" __global__ void __launch_bounds__(SUM_THREADS, 4)
    scatter_sum(const int *ids, const ROW_T *rows, OUT_T *out, const int *work) {
  const int *keys = work + (PASSES & 1) * N, *positions = work + (2 + (PASSES & 1)) * N;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int first = blockIdx.x / SLICES * PLACES, column = blockIdx.x % SLICES * SLICE + lane * VEC;
  const bool inside = column < D;
  rows += inside ? column : 0, out += inside ? column : 0;
#if !ACCUMULATE
  if (first >= N) {
    clear_row(keys, out, (first - (N + PLACES - 1) / PLACES * PLACES) / PLACES * SUM_WARPS + warp, inside);
    return;
  }
#endif
  const int i = first + lane, key = i < N ? keys[i] : -1;
  const int position = i < N ? positions[i] : 0, further = i + PLACES < N ? positions[i + PLACES] : 0;
  const int key_further = i + PLACES < N ? keys[i + PLACES] : -1;
  const int before = i > 0 && i < N ? keys[i - 1] : -1;
  const unsigned starts = __ballot_sync(0xffffffffu, i < N && key != before);
  const int last = __shfl_sync(0xffffffffu, key, min(PLACES, N - first) - 1);
  const unsigned others = __ballot_sync(0xffffffffu, key_further != last);
  int end = min(first + PLACES, N); // of the last run that starts here
  if (starts && end < N) end = others ? end + __ffs(others) - 1 : run_end(keys, end + PLACES, last);
  unsigned left = starts;
  for (int run = 0; left; run++) {
    const int start = __ffs(left) - 1;
    left &= left - 1;
    const int from = first + start, to = left ? first + __ffs(left) - 1 : end, id = __shfl_sync(0xffffffffu, key, start);
    OUT_T *o = out + (int64_t)id * D;
    if (to - from > PLACES) {
      sum_long(rows, o, inside, positions, from, to);
      continue;
    }
    if (run % SUM_WARPS != warp) continue;
    const MtVector<OUT_T, VEC> was = load_row(o, inside);
    MtVector<float, VEC> sum = {};
    #pragma unroll 4
    for (int k = start; k < start + to - from; k++) {
      const int p = __shfl_sync(0xffffffffu, k < PLACES ? position : further, k % PLACES);
      if (inside) add_row(sum, mt_vector<ROW_T, VEC>(rows + (int64_t)p * ROW_STRIDE));
    }
    if (inside) store_row(o, sum, was);
  }
}
