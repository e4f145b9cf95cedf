// attention_fwd_mma.cu - attention forward for sm_80 and later (cp.async, ldmatrix, mma.sync).
//
// Follows FlashAttention-2 (Dao 2023): online softmax over key blocks, nothing of size T x T in memory.
// Macros   DH head size (a multiple of 8); D what it is padded to on chip (32, 64, 96, 128); PITCH elements of a
//          row in shared memory (64, 128); CAUSAL; MASK keys with M[b][key] = 0 are not seen; BIAS and DROP
//          of attention_extra.cu; MI groups of 16 rows a
//          warp; NW warps; BN keys a step; QREG Q's fragments stay in registers; MINB blocks an SM; RT the thread
//          number is read again for every tile copy, a way out of small spills; LAZY below.
// Block    BM = 16*MI*NW query rows of one head; warp w owns rows [16*MI*w, +16*MI). Key blocks of BN, K and V
//          double-buffered. Grid of attention_order.cu, long rows first.
// Numbers  masked scores are -1e30 and the running maximum starts at -1e20, so that a block with no visible key gives
//          exact zeros. The reference maximum m follows the true one only when that is over 2^LAZY times larger: O and
//          the row sum are seldom rescaled. L is the natural log-sum-exp, exact in either case.
// Shared   Q [BM][PITCH], K 2x[BN][PITCH], V 2x[BN][PITCH]; O is staged through the warp's own rows of Q.
#define BM (16 * MI * NW)
#define NT (32 * NW)
#define TB (BN * PITCH * 2)
extern "C" __global__ void __launch_bounds__(NT, MINB)
    attention_fwd(const u16 *__restrict__ Q, const u16 *__restrict__ K, const u16 *__restrict__ V,
            u16 *__restrict__ O, float *__restrict__ L, const unsigned char *__restrict__ M, int TQ, int TK, int H, int HK,
            int ldq, int ldk, int ldv, int ldo, float sl2 BIAS_ARGS DROP_ARGS, int order) {
  extern __shared__ __align__(1024) char sm[];
  const u32 sq = smp(sm), sk = sq + BM * PITCH * 2, sv = sk + 2 * TB;
  const int t = threadIdx.x, w = t >> 5, l = t & 31;
  const Place at = place_of(order);
  const int q0 = (at.tiles - 1 - at.tile) * BM, h = at.head, b = at.sample, hk = h / (H / HK);
  const u16 *q = Q + (i64)b * TQ * ldq + h * DH;
  const u16 *k = K + (i64)b * TK * ldk + hk * DH;
  const u16 *v = V + (i64)b * TK * ldv + hk * DH;
#if CAUSAL
  const int n = ((q0 + BM < TK ? q0 + BM : TK) + BN - 1) / BN;
#else
  const int n = (TK + BN - 1) / BN;
#endif
  const int tr = t / (PITCH / 8), tc = t % (PITCH / 8);  // this thread's row and chunk in a tile copy
#pragma unroll
  for (int i = 0; i < BM * (PITCH / 8) / NT; i++) {
    int r = tr + i * (NT / (PITCH / 8));
    cpa(sq + off(r, tc), q + (i64)(q0 + r) * ldq + tc * 8, q0 + r < TQ && tc * 8 < DH);
  }
  auto load = [&](int j) {  // K and V block j -> stage j&1
#if RT
    const int t = tid(), tr_ = t / (PITCH / 8), tc = t % (PITCH / 8);
#else
    const int tr_ = opaque(tr);
#endif
#pragma unroll
    for (int i = 0; i < BN * (PITCH / 8) / NT; i++) {
      int r = tr_ + i * (NT / (PITCH / 8)), g = j * BN + r;
      u32 d = (j & 1) * TB + off(r, tc);
      bool ok = g < TK && tc * 8 < DH;
      cpa(sk + d, k + (i64)g * ldk + tc * 8, ok);
      cpa(sv + d, v + (i64)g * ldv + tc * 8, ok);
    }
    cp_commit();
  };
  load(0);
  float o[MI][D / 8][4], m[MI][2], ls[MI][2];
#pragma unroll
  for (int a = 0; a < MI; a++) {
    m[a][0] = m[a][1] = -1e20f;
    ls[a][0] = ls[a][1] = 0;
#pragma unroll
    for (int i = 0; i < D / 8; i++) o[a][i][0] = o[a][i][1] = o[a][i][2] = o[a][i][3] = 0;
  }
  const int rw = q0 + w * 16 * MI, r0 = rw + (l >> 2),
            c0 = (l & 3) * 2;  // warp's first row; this lane's row and column
  const u32 qa = sq + w * 16 * MI * PITCH * 2 + off(l & 15, l >> 4);  // A fragment of Q
  const u32 kb = sk + off((l & 7) + ((l >> 4) << 3),
                          (l >> 3) & 1);    // B fragments (2 n-tiles x 16 k) of K, rows = keys
  const u32 vb = sv + off(l & 15, l >> 4);  // B fragments of V, transposed load, rows = keys
#if QREG
  u32 qf[MI][D / 16][4];
#endif
  DRAWS(b);
  for (int j = 0; j < n; j++) {
    cp_wait<0>();
    __syncthreads();  // block j is here, everyone is done with block j-1
    if (j + 1 < n) load(j + 1);
#if QREG
    if (j == 0) {
#pragma unroll
      for (int a = 0; a < MI; a++)
#pragma unroll
        for (int i = 0; i < D / 16; i++) ldm4(qf[a][i], (qa ^ (i << 5)) + a * 16 * PITCH * 2);
    }
#endif
#if CAUSAL
    if (j * BN > rw + 16 * MI - 1) continue;  // nothing visible to this warp
#endif
    const u32 ks = kb + (j & 1) * TB, vs = vb + (j & 1) * TB;
#if !QREG
    const u32 qo = opaque(qa);
#endif
    float s[MI][BN / 8][4];
#pragma unroll
    for (int a = 0; a < MI; a++)
#pragma unroll
      for (int i = 0; i < BN / 8; i++) s[a][i][0] = s[a][i][1] = s[a][i][2] = s[a][i][3] = 0;
#pragma unroll
    for (int i = 0; i < D / 16; i++) {  // S = Q K^T
#if QREG
      u32(*qx)[D / 16][4] = qf;
#define QF(a) qx[a][i]
#else
      u32 qx[MI][4];
#pragma unroll
      for (int a = 0; a < MI; a++) ldm4(qx[a], (qo ^ (i << 5)) + a * 16 * PITCH * 2);
#define QF(a) qx[a]
#endif
#pragma unroll
      for (int c = 0; c < BN / 16; c++) {
        u32 x[4];
        ldm4(x, (ks ^ (i << 5)) + c * 16 * PITCH * 2);
#pragma unroll
        for (int a = 0; a < MI; a++) {
          mma(s[a][2 * c], QF(a), x);
          mma(s[a][2 * c + 1], QF(a), x + 2);
        }
      }
    }
#if BIAS
#pragma unroll
    for (int a = 0; a < MI; a++) add_biases<BN / 8>(s[a], Bi, ldb, h, r0 + a * 16, j * BN + c0, TQ, TK, LOG2E / sl2);
#endif
#if CAUSAL
    if ((j + 1) * BN - 1 > rw) {
#pragma unroll
      for (int a = 0; a < MI; a++)
#pragma unroll
        for (int i = 0; i < BN / 8; i++) {
          int c = j * BN + i * 8 + c0 - a * 16;
          if (c > r0) s[a][i][0] = -1e30f;
          if (c + 1 > r0) s[a][i][1] = -1e30f;
          if (c > r0 + 8) s[a][i][2] = -1e30f;
          if (c + 1 > r0 + 8) s[a][i][3] = -1e30f;
        }
    }
#else
    if ((j + 1) * BN > TK) {
#pragma unroll
      for (int a = 0; a < MI; a++)
#pragma unroll
        for (int i = 0; i < BN / 8; i++) {
          int c = j * BN + i * 8 + c0;
          if (c >= TK) s[a][i][0] = s[a][i][2] = -1e30f;
          if (c + 1 >= TK) s[a][i][1] = s[a][i][3] = -1e30f;
        }
    }
#endif
#if MASK
#pragma unroll
    for (int i = 0; i < BN / 8; i++) {
      const int c = j * BN + i * 8 + c0;
      const bool x = c >= TK || !M[(i64)b * TK + c], y = c + 1 >= TK || !M[(i64)b * TK + c + 1];
#pragma unroll
      for (int a = 0; a < MI; a++) {
        if (x) s[a][i][0] = s[a][i][2] = -1e30f;
        if (y) s[a][i][1] = s[a][i][3] = -1e30f;
      }
    }
#endif
    u32 p[MI][BN / 16][4];
    float mx[MI][2];
    bool up = false;  // online softmax of this warp's rows
#pragma unroll
    for (int a = 0; a < MI; a++) {
      float x = m[a][0], y = m[a][1];
#pragma unroll
      for (int i = 0; i < BN / 8; i++) {
        x = fmaxf(x, fmaxf(s[a][i][0], s[a][i][1]));
        y = fmaxf(y, fmaxf(s[a][i][2], s[a][i][3]));
      }
      mx[a][0] = x = quad_max(x);
      mx[a][1] = y = quad_max(y);
      up |= (x - m[a][0]) * sl2 > LAZY || (y - m[a][1]) * sl2 > LAZY;
    }
    if (__any_sync(~0u, up)) {  // some maximum grew by more than a factor 2^LAZY: rescale
#pragma unroll
      for (int a = 0; a < MI; a++) {
        float f = ex2((m[a][0] - mx[a][0]) * sl2), g = ex2((m[a][1] - mx[a][1]) * sl2);
        m[a][0] = mx[a][0];
        m[a][1] = mx[a][1];
        ls[a][0] *= f;
        ls[a][1] *= g;
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
          o[a][i][0] *= f;
          o[a][i][1] *= f;
          o[a][i][2] *= g;
          o[a][i][3] *= g;
        }
      }
    }
#if DROP
    u64 bits = 0;
#pragma unroll 1
    for (int f = 0; f < MI * (BN / 8); f++)
      bits |= (u64)draw_rows(draws, h, r0 + f / (BN / 8) * 16, j * BN + f % (BN / 8) * 8 + c0, l, TQ, TK) << (4 * f);
#endif
#pragma unroll
    for (int a = 0; a < MI; a++) {
      float x = m[a][0] * sl2, y = m[a][1] * sl2, u = ls[a][0], z = ls[a][1];
#pragma unroll
      for (int i = 0; i < BN / 8; i++) {
        float e0 = ex2(s[a][i][0] * sl2 - x), e1 = ex2(s[a][i][1] * sl2 - x),
              e2 = ex2(s[a][i][2] * sl2 - y), e3 = ex2(s[a][i][3] * sl2 - y);
        u += e0 + e1;
        z += e2 + e3;
        const int f = a * (BN / 8) + i;
        p[a][i >> 1][(i & 1) * 2] = pk(DROPPED(e0, f, 0), DROPPED(e1, f, 1));
        p[a][i >> 1][(i & 1) * 2 + 1] = pk(DROPPED(e2, f, 2), DROPPED(e3, f, 3));
      }
      ls[a][0] = u;
      ls[a][1] = z;
    }
#pragma unroll
    for (int c = 0; c < BN / 16; c++)  // O += P V
#pragma unroll
      for (int i = 0; i < D / 16; i++) {
        u32 x[4];
        ldm4t(x, (vs ^ (i << 5)) + c * 16 * PITCH * 2);
#pragma unroll
        for (int a = 0; a < MI; a++) {
          mma(o[a][2 * i], p[a][c], x);
          mma(o[a][2 * i + 1], p[a][c], x + 2);
        }
      }
  }
  cp_wait<0>();
  __syncthreads();
#pragma unroll
  for (int a = 0; a < MI; a++) {
    float x = quad_sum(ls[a][0]), y = quad_sum(ls[a][1]);
    float f = x > 0 ? 1.f / x : 0, g = y > 0 ? 1.f / y : 0;  // no visible key: zeros
    int lr = w * 16 * MI + a * 16 + (l >> 2);
    if ((l & 3) == 0) {
      i64 z = ((i64)b * H + h) * TQ;
      int r = r0 + a * 16;
      if (r < TQ) L[z + r] = x > 0 ? (m[a][0] * sl2 + __log2f(x)) * LN2 : 0;
      if (r + 8 < TQ) L[z + r + 8] = y > 0 ? (m[a][1] * sl2 + __log2f(y)) * LN2 : 0;
    }
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
      u32 d = sq + off(lr, i) + (l & 3) * 4;
      st4(d, pk(o[a][i][0] * f, o[a][i][1] * f));
      st4(d + 8 * PITCH * 2, pk(o[a][i][2] * g, o[a][i][3] * g));
    }
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 16 * MI * (D / 8) / 32; i++) {
    int c = l + i * 32, r = w * 16 * MI + c / (D / 8), x = c % (D / 8);
    u32 v4[4];
    ld16(v4, sq + off(r, x));
    if (q0 + r < TQ && x * 8 < DH) stg16(O + (i64)b * TQ * ldo + (i64)(q0 + r) * ldo + h * DH + x * 8, v4);
  }
}
