// attention_simt.cu - attention without matrix instructions: fp32 throughout, any element type in memory. For fp32 and
// TF32 runs, where the products must not be rounded to bf16.
//
// Macros   KERNEL 0 attention_fwd, 1 attention_bwd_prep, 2 attention_bwd_dkdv, 3 attention_bwd_dq; DH head size; CAUSAL; MASK;
//          ELEM memory type with LOAD(x), STORE(x).
// Tiles    32 queries x 32 keys, 128 threads: thread (tx, ty) has 4 rows (4 ty + i) and 2 columns (tx + 16 j) of a score tile, and
//          of an output 4 rows and every 16th column. Rows in shared memory are DH + 4 floats apart.
// W        f32 [B*H][2][TP] as in attention_bwd_mma.cu: [0] log-sum-exp (natural here), [1] delta = rowsum(dO * O).
enum { TILE = 32, PITCH = DH + 4, COLS = (DH + 15) / 16 };

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
                  int H, int HK, int ldq, int ldk, int ldv, int ldo, float sl2) {
  extern __shared__ float shared[];
  float *sq = shared, *sk = sq + TILE * PITCH, *sv = sk + TILE * PITCH, *sp = sv + TILE * PITCH;
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
    __syncthreads();
    float s[4][2];
    product(s, sq, sk, tx, ty);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      bool see[2];
#pragma unroll
      for (int j = 0; j < 2; j++) {
        see[j] = visible(q0 + 4 * ty + i, k0 + tx + 16 * j, TK, M + (long long)b * TK);
        s[i][j] = see[j] ? s[i][j] * scale : -1e30f;
      }
      const float top = fmaxf(m[i], row_max(fmaxf(s[i][0], s[i][1]))), f = expf(m[i] - top);
      float sum = 0;
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const float e = see[j] ? expf(s[i][j] - top) : 0.0f;
        sp[(4 * ty + i) * (TILE + 1) + tx + 16 * j] = e;
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
                       int lddk, int lddv, float scale, float sl2) {
  extern __shared__ float shared[];
  float *sk = shared, *sv = sk + TILE * PITCH, *sq = sv + TILE * PITCH, *sg = sq + TILE * PITCH, *sp = sg + TILE * PITCH;
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
          const bool see = q < TQ && visible(q, k0 + 4 * ty + i, TK, M + (long long)b * TK);
          s[i][j] = see ? expf(s[i][j] * scale - lse) : 0.0f;
          d[i][j] = s[i][j] * (d[i][j] - delta);
          sp[(4 * ty + i) * (TILE + 1) + tx + 16 * j] = s[i][j];
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

#if KERNEL == 3
extern "C" __global__ void __launch_bounds__(128, 2)
    attention_bwd_dq(const ELEM *Q, const ELEM *K, const ELEM *V, const ELEM *dO, const float *W, ELEM *dQ,
                     const unsigned char *M, int TQ, int TK, int TP, int H, int HK, int ldq, int ldk, int ldv, int lddo,
                     int lddq, float scale, float sl2) {
  extern __shared__ float shared[];
  float *sk = shared, *sv = sk + TILE * PITCH, *sq = sv + TILE * PITCH, *sg = sq + TILE * PITCH, *sp = sg + TILE * PITCH;
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
    __syncthreads();
    float s[4][2], d[4][2];
    product(s, sq, sk, tx, ty);
    product(d, sg, sv, tx, ty);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int q = q0 + 4 * ty + i;
      const float lse = w[q], delta = w[TP + q];
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const bool see = visible(q, k0 + tx + 16 * j, TK, M + (long long)b * TK);
        const float p = see ? expf(s[i][j] * scale - lse) : 0.0f;
        sp[(4 * ty + i) * (TILE + 1) + tx + 16 * j] = p * (d[i][j] - delta);
      }
    }
    __syncthreads();
    accumulate(dq, sp, sk, tx, ty);
  }
  store_rows(dQ + (long long)b * TQ * lddq + h * DH, dq, q0, TQ, lddq, scale, tx, ty);
}
#endif
