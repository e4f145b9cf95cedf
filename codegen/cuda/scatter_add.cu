// scatter_add.cu - the transpose of gather: out[V, D] (+)= sum of the rows whose id names the row, in order of position, so
// that results are bitwise reproducible.
//
// Macros   N positions; V rows of out; D columns; ROW_STRIDE elements between rows; ROW_T, OUT_T memory types
//          with LOAD_ROW, LOAD_OUT, STORE_OUT; ACCUMULATE; PASSES of 4 bits, even.
// Kernels  scatter_sort, one block: a stable radix sort of the positions by id, then the starts of the runs of equal ids.
//          scatter_sum, one block a run (and, without ACCUMULATE, one a row for the zeros): columns over threads.
// Work     int32: keys[2][N], positions[2][N], starts[N + 1], the number of runs.
enum { THREADS = 512, DIGITS = 16, SHARE = (N + THREADS - 1) / THREADS };

__device__ __forceinline__ int clamp_id(int id) { return id < 0 ? 0 : id >= V ? V - 1 : id; }

// Exclusive scan of one value a thread over the block; returns the sum of all through total.
__device__ __forceinline__ int block_scan(int x, int *warps, int *total) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int sum = x;
#pragma unroll
  for (int o = 1; o < 32; o *= 2) {
    const int y = __shfl_up_sync(0xffffffffu, sum, o);
    if (lane >= o) sum += y;
  }
  __syncthreads();
  if (lane == 31) warps[warp] = sum;
  __syncthreads();
  int before = 0, all = 0;
#pragma unroll
  for (int w = 0; w < THREADS / 32; w++) {
    if (w < warp) before += warps[w];
    all += warps[w];
  }
  *total = all;
  return before + sum - x;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    scatter_sort(const int *ids, const ROW_T *rows, OUT_T *out, int *work) {
  __shared__ int count[DIGITS][THREADS]; // of this thread's positions; then where its next one goes
  __shared__ int warps[THREADS / 32];
  const int t = threadIdx.x, from = t * SHARE, to = from + SHARE < N ? from + SHARE : N;
  int *keys = work, *at = work + 2 * N, *starts = work + 4 * N; // first buffers
  for (int i = from; i < to; i++) keys[i] = clamp_id(ids[i]), at[i] = i;
  for (int pass = 0; pass < PASSES; pass++) {
    const int *k = keys + (pass & 1) * N, *p = at + (pass & 1) * N;
    int *k2 = keys + (~pass & 1) * N, *p2 = at + (~pass & 1) * N;
    const int shift = 4 * pass;
#pragma unroll
    for (int d = 0; d < DIGITS; d++) count[d][t] = 0;
    for (int i = from; i < to; i++) count[k[i] >> shift & 15][t]++;
    int base = 0;
    for (int d = 0; d < DIGITS; d++) { // digit by digit, threads in order: stable
      int total;
      count[d][t] = base + block_scan(count[d][t], warps, &total);
      base += total;
    }
    for (int i = from; i < to; i++) {
      const int next = count[k[i] >> shift & 15][t]++;
      k2[next] = k[i], p2[next] = p[i];
    }
    __syncthreads();
  }
  int runs = 0, total;
  for (int i = from; i < to; i++) runs += i == 0 || keys[i] != keys[i - 1];
  int next = block_scan(runs, warps, &total);
  for (int i = from; i < to; i++)
    if (i == 0 || keys[i] != keys[i - 1]) starts[next++] = i;
  if (t == 0) starts[total] = N, starts[N + 1] = total;
}

extern "C" __global__ void __launch_bounds__(256)
    scatter_sum(const int *ids, const ROW_T *rows, OUT_T *out, const int *work) {
  const int *keys = work, *at = work + 2 * N, *starts = work + 4 * N;
  const int runs = starts[N + 1], run = blockIdx.x;
#if !ACCUMULATE
  if (run >= N) { // a row of out: zeros when no id names it
    const int row = run - N;
    int lo = 0, hi = runs; // first run whose id is not below row
    while (lo < hi) {
      const int mid = (lo + hi) / 2;
      if (keys[starts[mid]] < row) lo = mid + 1;
      else hi = mid;
    }
    if (lo < runs && keys[starts[lo]] == row) return;
    for (int c = threadIdx.x; c < D; c += 256) out[(long long)row * D + c] = STORE_OUT(0.0f);
    return;
  }
#endif
  if (run >= runs) return;
  const int from = starts[run], to = starts[run + 1];
  OUT_T *o = out + (long long)keys[from] * D;
  for (int c = threadIdx.x; c < D; c += 256) {
    float sum = 0;
#pragma unroll 4
    for (int i = from; i < to; i++) sum += LOAD_ROW(rows[(long long)at[i] * ROW_STRIDE + c]);
#if ACCUMULATE
    sum += LOAD_OUT(o[c]);
#endif
    o[c] = STORE_OUT(sum);
  }
}
