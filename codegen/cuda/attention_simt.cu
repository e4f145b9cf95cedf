// attention_simt.cu - attention without matrix instructions: fp32 throughout, any element type in memory. For fp32 and
// TF32 runs, where the products must not be rounded to 16 bits, and for heads that the other families cannot copy.
//
// Macros   KERNEL 0 attention_fwd, 1 attention_bwd_prep, 2 attention_bwd_dkdv, 3 attention_bwd_dq, 4 attention_bwd_dbias; DH
//          head size; CAUSAL; MASK; ELEM memory type with LOAD(x), STORE(x); BIAS and DROP of attention_extra.cu.
// Tiles    32 queries x 32 keys, 128 threads: thread (tx, ty) has 4 rows (4 ty + i) and 2 columns (tx + 16 j) of a score tile, and
//          of an output 4 rows and every 16th column. Rows in shared memory are DH + 4 floats apart.
// W        f32 [B*H][2][TP] as in attention_bwd_mma.cu: [0] log-sum-exp (natural here), [1] delta = rowsum(dO * O).
enum { TILE = 32, PITCH = DH + 4, COLS = (DH + 15) / 16 };
#if BIAS
#define BIASED(s, h, q, k) ((s) + BLOAD(Bi[((long long)(h)*TQ + (q)) * ldb + (k)]))
#else
#define BIASED(s, h, q, k) (s)
#endif
#if DROP
#define DRAW(h, q0, k0, b) \
  draw_tile(sd, ((unsigned long long)(h)*TQ + (q0)) * TK + (k0), TK, seed, *step, *sample0 + (b), key, keep)
#define DROPPED(x, q, k) ((x) * sd[(q) * (TILE + 1) + (k)])

// What dropout multiplies 32 x 32 probabilities with, into d[query][key]; element: number of the first, rows TK apart.
__device__ __forceinline__ void draw_tile(float *d, unsigned long long element, int TK, const unsigned *seed, unsigned step,
                                          unsigned sample, unsigned long long key, float keep) {
  enum { BLOCKS = TILE / 4 + 1 }; // a row need not start at a multiple of 4
  const float kept = 1.0f / keep;
  for (int i = threadIdx.x; i < TILE * BLOCKS; i += 128) {
    const int r = i / BLOCKS;
    const unsigned long long first = element + (unsigned long long)r * TK, block = first / 4 + i % BLOCKS;
    unsigned word[4];
    philox_block(seed[0], seed[1], key, step, sample, block, word);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const int c = (int)(block * 4 + j - first);
      if (c >= 0 && c < TILE) d[r * (TILE + 1) + c] = philox_uniform(word[j]) < keep ? kept : 0.0f;
    }
  }
}
#else
#define DRAW(h, q0, k0, b)
#define DROPPED(x, q, k) (x)
#endif

// Rows first .. first+31 of one head into a tile of shared memory; zeros past `rows`.
__device__ __forceinline__ void load_tile(float *to, const ELEM *from, int first, int rows, int stride) {
  for (int i = threadIdx.x; i < TILE * DH; i += 128) {
    const int r = i / DH, c = i % DH;
    to[r * PITCH + c] = first + r < rows ? LOAD(from[(long long)(first + r) * stride + c]) : 0.0f;
  }
}

// s[i][j] = a row (4 ty + i) . b row (tx + 16 j)
__device__ __forceinline__ void product(float s[4][2], const float *a, const float *b, int tx, int ty) {
#pragma unroll
  for (int i = 0; i < 4; i++) s[i][0] = s[i][1] = 0;
  for (int c = 0; c < DH; c++) {
    const float b0 = b[tx * PITCH + c], b1 = b[(tx + 16) * PITCH + c];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float x = a[(4 * ty + i) * PITCH + c];
      s[i][0] = fmaf(x, b0, s[i][0]);
      s[i][1] = fmaf(x, b1, s[i][1]);
    }
  }
}

// o[i][c] += sum over the tile's 32 columns k of p[4 ty + i][k] * b row k, column tx + 16 c
__device__ __forceinline__ void accumulate(float o[4][COLS], const float *p, const float *b, int tx, int ty) {
  for (int k = 0; k < TILE; k++)
#pragma unroll
    for (int c = 0; c < COLS; c++) {
      const float x = tx + 16 * c < DH ? b[k * PITCH + tx + 16 * c] : 0.0f;
#pragma unroll
      for (int i = 0; i < 4; i++) o[i][c] = fmaf(p[(4 * ty + i) * (TILE + 1) + k], x, o[i][c]);
    }
}

__device__ __forceinline__ void store_rows(ELEM *to, const float o[4][COLS], int first, int rows, int stride, float f, int tx,
                                           int ty) {
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int c = 0; c < COLS; c++)
      if (first + 4 * ty + i < rows && tx + 16 * c < DH)
        to[(long long)(first + 4 * ty + i) * stride + tx + 16 * c] = STORE(o[i][c] * f);
}

__device__ __forceinline__ bool visible(int query, int key, int TK, const unsigned char *m) {
  return key < TK && (!CAUSAL || key <= query) && (!MASK || m[key]);
}

// Over the 16 threads of a row.
__device__ __forceinline__ float row_max(float x) {
#pragma unroll
  for (int o = 8; o; o /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, o));
  return x;
}
__device__ __forceinline__ float row_sum(float x) {
#pragma unroll
  for (int o = 8; o; o /= 2) x += __shfl_xor_sync(0xffffffffu, x, o);
  return x;
}

#if KERNEL == 0
extern "C" __global__ void __launch_bounds__(128, 2)
    attention_fwd(const ELEM *Q, const ELEM *K, const ELEM *V, ELEM *O, float *L, const unsigned char *M, int TQ, int TK,
                  int H, int HK, int ldq, int ldk, int ldv, int ldo, float sl2 BIAS_ARGS DROP_ARGS) {
  extern __shared__ float shared[];
  float *sq = shared, *sk = sq + TILE * PITCH, *sv = sk + TILE * PITCH, *sp = sv + TILE * PITCH;
  float *sd = sp + TILE * (TILE + 1);  // DROP: the draws of a tile
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16, q0 = (gridDim.x - 1 - blockIdx.x) * TILE, h = blockIdx.y,
            b = blockIdx.z, hk = h / (H / HK);
  const float scale = sl2 * 0.6931471805599453f;
  float o[4][COLS] = {}, m[4], l[4] = {};
#pragma unroll
  for (int i = 0; i < 4; i++) m[i] = -1e30f;
  load_tile(sq, Q + (long long)b * TQ * ldq + h * DH, q0, TQ, ldq);
  const int end = CAUSAL && q0 + TILE < TK ? q0 + TILE : TK;
  for (int k0 = 0; k0 < end; k0 += TILE) {
    __syncthreads();
    load_tile(sk, K + (long long)b * TK * ldk + hk * DH, k0, TK, ldk);
    load_tile(sv, V + (long long)b * TK * ldv + hk * DH, k0, TK, ldv);
    DRAW(h, q0, k0, b);
    __syncthreads();
    float s[4][2];
    product(s, sq, sk, tx, ty);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      bool see[2];
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const int q = q0 + 4 * ty + i, k = k0 + tx + 16 * j;
        see[j] = q < TQ && visible(q, k, TK, M + (long long)b * TK);
        s[i][j] = see[j] ? BIASED(s[i][j] * scale, h, q, k) : -1e30f;
      }
      const float top = fmaxf(m[i], row_max(fmaxf(s[i][0], s[i][1]))), f = expf(m[i] - top);
      float sum = 0;
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const float e = see[j] ? expf(s[i][j] - top) : 0.0f;
        sp[(4 * ty + i) * (TILE + 1) + tx + 16 * j] = DROPPED(e, 4 * ty + i, tx + 16 * j);
        sum += e;
      }
      l[i] = l[i] * f + row_sum(sum);
      m[i] = top;
#pragma unroll
      for (int c = 0; c < COLS; c++) o[i][c] *= f;
    }
    __syncthreads();
    accumulate(o, sp, sv, tx, ty);
  }
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float f = l[i] > 0 ? 1.0f / l[i] : 0.0f;
#pragma unroll
    for (int c = 0; c < COLS; c++) o[i][c] *= f;
    if (tx == 0 && q0 + 4 * ty + i < TQ) L[((long long)b * H + h) * TQ + q0 + 4 * ty + i] = l[i] > 0 ? m[i] + logf(l[i]) : 0.0f;
  }
  store_rows(O + (long long)b * TQ * ldo + h * DH, o, q0, TQ, ldo, 1.0f, tx, ty);
}
#endif

#if KERNEL == 1
// Grid (TP / 8, H, B): a row for each 16 threads.
extern "C" __global__ void __launch_bounds__(128, 2)
    attention_bwd_prep(const ELEM *O, const ELEM *dO, const float *L, float *W, int TQ, int TP, int H, int ldo, int lddo) {
  const int tx = threadIdx.x % 16, r = blockIdx.x * 8 + threadIdx.x / 16, h = blockIdx.y, b = blockIdx.z;
  float *w = W + ((long long)b * H + h) * 2 * TP, d = 0;
  for (int c = tx; r < TQ && c < DH; c += 16)
    d = fmaf(LOAD(O[((long long)b * TQ + r) * ldo + h * DH + c]), LOAD(dO[((long long)b * TQ + r) * lddo + h * DH + c]), d);
  d = row_sum(d);
  if (tx == 0) w[r] = r < TQ ? L[((long long)b * H + h) * TQ + r] : 0.0f, w[TP + r] = d;
}
#endif

#if KERNEL == 2
// Block: 32 keys of one key head; loops over the query heads of its group and their query tiles. Scores are transposed: rows
// are keys, columns are queries.
extern "C" __global__ void __launch_bounds__(128, 2)
    attention_bwd_dkdv(const ELEM *Q, const ELEM *K, const ELEM *V, const ELEM *dO, const float *W, ELEM *dK, ELEM *dV,
                       const unsigned char *M, int TQ, int TK, int TP, int H, int HK, int ldq, int ldk, int ldv, int lddo,
                       int lddk, int lddv, float scale, float sl2 BIAS_ARGS DROP_ARGS) {
  extern __shared__ float shared[];
  float *sk = shared, *sv = sk + TILE * PITCH, *sq = sv + TILE * PITCH, *sg = sq + TILE * PITCH, *sp = sg + TILE * PITCH;
  float *sd = sp + TILE * (TILE + 1);  // DROP: the draws of a tile
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16, k0 = blockIdx.x * TILE, hk = blockIdx.y, b = blockIdx.z, G = H / HK;
  float dk[4][COLS] = {}, dv[4][COLS] = {};
  load_tile(sk, K + (long long)b * TK * ldk + hk * DH, k0, TK, ldk);
  load_tile(sv, V + (long long)b * TK * ldv + hk * DH, k0, TK, ldv);
  for (int h = hk * G; h < hk * G + G; h++) {
    const float *w = W + ((long long)b * H + h) * 2 * TP;
    for (int q0 = CAUSAL ? k0 : 0; q0 < TQ; q0 += TILE) {
      __syncthreads();
      load_tile(sq, Q + (long long)b * TQ * ldq + h * DH, q0, TQ, ldq);
      load_tile(sg, dO + (long long)b * TQ * lddo + h * DH, q0, TQ, lddo);
      DRAW(h, q0, k0, b);
      __syncthreads();
      float s[4][2], d[4][2];
      product(s, sk, sq, tx, ty);
      product(d, sv, sg, tx, ty);
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const int q = q0 + tx + 16 * j;
        const float lse = w[q], delta = w[TP + q];
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const int r = 4 * ty + i, k = k0 + r;
          const bool see = q < TQ && visible(q, k, TK, M + (long long)b * TK);
          s[i][j] = see ? expf(BIASED(s[i][j] * scale, h, q, k) - lse) : 0.0f;
          d[i][j] = s[i][j] * (DROPPED(d[i][j], tx + 16 * j, r) - delta);
          sp[r * (TILE + 1) + tx + 16 * j] = DROPPED(s[i][j], tx + 16 * j, r);
        }
      }
      __syncthreads();
      accumulate(dv, sp, sg, tx, ty);
      __syncthreads();
#pragma unroll
      for (int j = 0; j < 2; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) sp[(4 * ty + i) * (TILE + 1) + tx + 16 * j] = d[i][j];
      __syncthreads();
      accumulate(dk, sp, sq, tx, ty);
    }
  }
  store_rows(dK + (long long)b * TK * lddk + hk * DH, dk, k0, TK, lddk, scale, tx, ty);
  store_rows(dV + (long long)b * TK * lddv + hk * DH, dv, k0, TK, lddv, 1.0f, tx, ty);
}
#endif

#if KERNEL == 3 || KERNEL == 4
// s[i][j] = dScore of query q0 + 4 ty + i and key k0 + tx + 16 j, 0 where the query does not see the key; the tiles of Q, dO, K
// and V are in shared memory.
__device__ __forceinline__ void score_gradients(float s[4][2], const float *sq, const float *sg, const float *sk, const float *sv,
                                                const float *sd, const float *w, const unsigned char *m, int q0, int k0, int h,
                                                int TQ, int TK, int TP, float scale, int tx, int ty BIAS_ARGS) {
  float d[4][2];
  product(s, sq, sk, tx, ty);
  product(d, sg, sv, tx, ty);
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int r = 4 * ty + i, q = q0 + r;
    const float lse = w[q], delta = w[TP + q];
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const int c = tx + 16 * j, k = k0 + c;
      const bool see = q < TQ && visible(q, k, TK, m);
      const float p = see ? expf(BIASED(s[i][j] * scale, h, q, k) - lse) : 0.0f;
      s[i][j] = p * (DROPPED(d[i][j], r, c) - delta);
    }
  }
}
#if BIAS
#define BIAS_PASSED , Bi, ldb
#else
#define BIAS_PASSED
#endif
#endif

#if KERNEL == 3
extern "C" __global__ void __launch_bounds__(128, 2)
    attention_bwd_dq(const ELEM *Q, const ELEM *K, const ELEM *V, const ELEM *dO, const float *W, ELEM *dQ,
                     const unsigned char *M, int TQ, int TK, int TP, int H, int HK, int ldq, int ldk, int ldv, int lddo,
                     int lddq, float scale, float sl2 BIAS_ARGS DROP_ARGS) {
  extern __shared__ float shared[];
  float *sk = shared, *sv = sk + TILE * PITCH, *sq = sv + TILE * PITCH, *sg = sq + TILE * PITCH, *sp = sg + TILE * PITCH;
  float *sd = sp + TILE * (TILE + 1);  // DROP: the draws of a tile
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16, q0 = (gridDim.x - 1 - blockIdx.x) * TILE, h = blockIdx.y,
            b = blockIdx.z, hk = h / (H / HK);
  const float *w = W + ((long long)b * H + h) * 2 * TP;
  float dq[4][COLS] = {};
  load_tile(sq, Q + (long long)b * TQ * ldq + h * DH, q0, TQ, ldq);
  load_tile(sg, dO + (long long)b * TQ * lddo + h * DH, q0, TQ, lddo);
  const int end = CAUSAL && q0 + TILE < TK ? q0 + TILE : TK;
  for (int k0 = 0; k0 < end; k0 += TILE) {
    __syncthreads();
    load_tile(sk, K + (long long)b * TK * ldk + hk * DH, k0, TK, ldk);
    load_tile(sv, V + (long long)b * TK * ldv + hk * DH, k0, TK, ldv);
    DRAW(h, q0, k0, b);
    __syncthreads();
    float s[4][2];
    score_gradients(s, sq, sg, sk, sv, sd, w, M + (long long)b * TK, q0, k0, h, TQ, TK, TP, scale, tx, ty BIAS_PASSED);
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int j = 0; j < 2; j++) sp[(4 * ty + i) * (TILE + 1) + tx + 16 * j] = s[i][j];
    __syncthreads();
    accumulate(dq, sp, sk, tx, ty);
  }
  store_rows(dQ + (long long)b * TQ * lddq + h * DH, dq, q0, TQ, lddq, scale, tx, ty);
}
#endif

#if KERNEL == 4
// Grid (key tiles, query tiles, H): a tile of one head's bias gradient, summed over the batch in order.
extern "C" __global__ void __launch_bounds__(128, 2)
    attention_bwd_dbias(const ELEM *Q, const ELEM *K, const ELEM *V, const ELEM *dO, const float *W, BELEM *dB,
                        const unsigned char *M, int TQ, int TK, int TP, int H, int HK, int ldq, int ldk, int ldv, int lddo,
                        int lddb, float scale, float sl2, int B BIAS_ARGS DROP_ARGS) {
  extern __shared__ float shared[];
  float *sk = shared, *sv = sk + TILE * PITCH, *sq = sv + TILE * PITCH, *sg = sq + TILE * PITCH, *sp = sg + TILE * PITCH;
  float *sd = sp + TILE * (TILE + 1);  // DROP: the draws of a tile
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16, k0 = blockIdx.x * TILE, q0 = blockIdx.y * TILE, h = blockIdx.z,
            hk = h / (H / HK);
  float sum[4][2] = {};
  for (int b = 0; b < B && !(CAUSAL && k0 > q0 + TILE - 1); b++) {
    __syncthreads();
    load_tile(sq, Q + (long long)b * TQ * ldq + h * DH, q0, TQ, ldq);
    load_tile(sg, dO + (long long)b * TQ * lddo + h * DH, q0, TQ, lddo);
    load_tile(sk, K + (long long)b * TK * ldk + hk * DH, k0, TK, ldk);
    load_tile(sv, V + (long long)b * TK * ldv + hk * DH, k0, TK, ldv);
    DRAW(h, q0, k0, b);
    __syncthreads();
    float s[4][2];
    score_gradients(s, sq, sg, sk, sv, sd, W + ((long long)b * H + h) * 2 * TP, M + (long long)b * TK, q0, k0, h, TQ, TK, TP,
                    scale, tx, ty BIAS_PASSED);
#pragma unroll
    for (int i = 0; i < 4; i++) sum[i][0] += s[i][0], sum[i][1] += s[i][1];
  }
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 2; j++)
      if (q0 + 4 * ty + i < TQ && k0 + tx + 16 * j < TK)
        dB[((long long)h * TQ + q0 + 4 * ty + i) * lddb + k0 + tx + 16 * j] = BSTORE(sum[i][j]);
}
#endif
