// attention_bwd_mma.cu - attention backward for sm_80 and later: two or three kernels and a preparation, no atomics; every output
// element is written once, in a fixed order of additions, so that results are bitwise reproducible.
//
// Macros   KERNEL 0 attention_bwd_prep, 1 attention_bwd_dkdv, 2 attention_bwd_dq, 3 attention_bwd_dbias; DH, D, PITCH,
//          CAUSAL, MASK, BIAS, DROP, MINB, RT as in attention_fwd_mma.cu. dkdv: MI, NW (BK = 16*MI*NW keys a block), BQ
//          queries a loaded tile, SQ queries a register step (divides BQ), KREG K's and V's fragments stay in registers.
//          dq: MI, NW (BM rows a block), BN keys a step, QREG. dbias: MI, NW, BN keys a block.
// W        work array made by prep, f32 [B*H][2][TP], TP = TQ rounded up to 128, plus 128, so that any query tile lies
//          inside: [0] log-sum-exp in base 2 (1e30 past TQ, where P is then exactly 0), [1] delta = rowsum(dO * O).
#define NT (32 * NW)
#if KERNEL == 0
// Grid (TP/64, H, B), 256 threads: 64 rows of one head. D/8 lanes share a row, 16 bytes each.
extern "C" __global__ void __launch_bounds__(256)
    attention_bwd_prep(const u16 *__restrict__ O, const u16 *__restrict__ dO, const float *__restrict__ L,
             float *__restrict__ W, int TQ, int TP, int H, int ldo, int lddo) {
  const int t = threadIdx.x, h = blockIdx.y, b = blockIdx.z, tr = t / (PITCH / 8), tc = t % (PITCH / 8);
  float *w = W + ((i64)b * H + h) * 2 * TP;
  const float *lse = L + ((i64)b * H + h) * TQ;
  const u16 *o = O + (i64)b * TQ * ldo + h * DH + tc * 8;
  const u16 *g = dO + (i64)b * TQ * lddo + h * DH + tc * 8;
  u32 x[PITCH / 32][4], y[PITCH / 32][4];
#pragma unroll
  for (int i = 0; i < PITCH / 32; i++) {
    int r = blockIdx.x * 64 + tr + i * (2048 / PITCH);
    if (r < TQ && tc * 8 < DH) {
      ldg16(x[i], o + (i64)r * ldo);
      ldg16(y[i], g + (i64)r * lddo);
    } else
      x[i][0] = x[i][1] = x[i][2] = x[i][3] = y[i][0] = y[i][1] = y[i][2] = y[i][3] = 0;
  }
#pragma unroll
  for (int i = 0; i < PITCH / 32; i++) {
    int r = blockIdx.x * 64 + tr + i * (2048 / PITCH);
    float s = 0;
#pragma unroll
    for (int c = 0; c < 4; c++) s += lo(x[i][c]) * lo(y[i][c]) + hi(x[i][c]) * hi(y[i][c]);
#pragma unroll
    for (int c = PITCH / 16; c; c >>= 1) s += __shfl_xor_sync(~0u, s, c);
    if (tc == 0) {
      w[r] = r < TQ ? lse[r] * LOG2E : 1e30f;
      w[TP + r] = s;
    }
  }
}
#endif
#if KERNEL == 1
// Block: BK keys of one key head; loops over the query heads of the group and over query tiles of
// BQ (double-buffered Q, dO, W). Warp w owns keys [16*MI*w, +16*MI) and keeps dK,dV of them;
// everything is transposed: S^T = K Q^T, so P^T and dS^T are already A fragments of dV += P^T dO
// and dK += dS^T Q. Registers: dk,dv [MI][D/8][4]; s, dp [MI][SQ/8][4]; packed P^T and dS^T.
#define BK (16 * MI * NW)
#define TB (BQ * PITCH * 2)
#define STG (2 * TB + BQ * 8)
extern "C" __global__ void __launch_bounds__(NT, MINB)
    attention_bwd_dkdv(const u16 *__restrict__ Q, const u16 *__restrict__ K, const u16 *__restrict__ V,
             const u16 *__restrict__ dO, const float *__restrict__ W, u16 *__restrict__ dK,
             u16 *__restrict__ dV, const unsigned char *__restrict__ M, int TQ, int TK, int TP, int H, int HK, int ldq,
             int ldk, int ldv, int lddo, int lddk, int lddv, float scale, float sl2 BIAS_ARGS DROP_ARGS,
             int order) {
  extern __shared__ __align__(1024) char sm[];
  const u32 sk = smp(sm), sv = sk + BK * PITCH * 2, sq = sv + BK * PITCH * 2, sg = sq + 2 * TB,
            sw = sg + 2 * TB;  // sw: 2 stages x {lse[BQ], delta[BQ]}
  const Place at = place_of(order);
  const int t = threadIdx.x, w = t >> 5, l = t & 31, k0 = at.tile * BK, hk = at.head, b = at.sample, G = H / HK;
  const int tr = t / (PITCH / 8), tc = t % (PITCH / 8);
  const u16 *k = K + (i64)b * TK * ldk + hk * DH;
  const u16 *v = V + (i64)b * TK * ldv + hk * DH;
#pragma unroll
  for (int i = 0; i < BK * (PITCH / 8) / NT; i++) {
    int r = tr + i * (NT / (PITCH / 8)), g = k0 + r;
    bool ok = g < TK && tc * 8 < DH;
    u32 d = off(r, tc);
    cpa(sk + d, k + (i64)g * ldk + tc * 8, ok);
    cpa(sv + d, v + (i64)g * ldv + tc * 8, ok);
  }
#if CAUSAL
  const int jb = k0 / BQ;
#else
  const int jb = 0;
#endif
  const int nq = (TQ + BQ - 1) / BQ - jb, n = nq * G;  // step x = (head x/nq, query tile jb + x%nq)
  int lh = hk * G, lj = jb;                           // next (head, tile) to load
  auto load = [&](int st) {
#if RT
    const int t = tid(), tr_ = t / (PITCH / 8), tc = t % (PITCH / 8);
#else
    const int tr_ = opaque(tr);
#endif
    const u16 *q = Q + (i64)b * TQ * ldq + lh * DH;
    const u16 *g = dO + (i64)b * TQ * lddo + lh * DH;
#pragma unroll
    for (int i = 0; i < BQ * (PITCH / 8) / NT; i++) {
      int r = tr_ + i * (NT / (PITCH / 8)), x = lj * BQ + r;
      bool ok = x < TQ && tc * 8 < DH;
      u32 d = st * TB + off(r, tc);
      cpa(sq + d, q + (i64)x * ldq + tc * 8, ok);
      cpa(sg + d, g + (i64)x * lddo + tc * 8, ok);
    }
    if (t < BQ / 2)
      cpa(sw + st * BQ * 8 + t * 16,
          W + (((i64)b * H + lh) * 2 + t / (BQ / 4)) * TP + lj * BQ + (t % (BQ / 4)) * 4, true);
    cp_commit();
    if (++lj == jb + nq) {
      lj = jb;
      lh++;
    }
  };
  load(0);
  float dk[MI][D / 8][4], dv[MI][D / 8][4];
#pragma unroll
  for (int a = 0; a < MI; a++)
#pragma unroll
    for (int i = 0; i < D / 8; i++)
      dk[a][i][0] = dk[a][i][1] = dk[a][i][2] = dk[a][i][3] = dv[a][i][0] = dv[a][i][1] =
          dv[a][i][2] = dv[a][i][3] = 0;
  const int kw = k0 + w * 16 * MI, r0 = kw + (l >> 2),
            c0 = (l & 3) * 2;  // warp's first key; this lane's key and query column
  const u32 fa = w * 16 * MI * PITCH * 2 + off(l & 15, l >> 4),
            fb = off((l & 7) + ((l >> 4) << 3), (l >> 3) & 1), ft = off(l & 15, l >> 4);
#if KREG
  u32 kf[MI][D / 16][4], vf[MI][D / 16][4];
#endif
  int j = jb;
  DRAWS(b);
#if BIAS || DROP
  int bh = hk * G;  // query head of this step
#endif
  for (int x = 0; x < n; x++) {
    const int st = x & 1;
    cp_wait<0>();
    __syncthreads();
    if (x + 1 < n) load(st ^ 1);
#if KREG
    if (x == 0) {
#pragma unroll
      for (int a = 0; a < MI; a++)
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
          ldm4(kf[a][i], ((sk + fa) ^ (i << 5)) + a * 16 * PITCH * 2);
          ldm4(vf[a][i], ((sv + fa) ^ (i << 5)) + a * 16 * PITCH * 2);
        }
    }
#endif
#pragma unroll 1
    for (int y = 0; y < BQ; y += SQ) {
      const int qg = j * BQ + y;
      const u32 fo = opaque(fa);
#if CAUSAL
      if (qg + SQ - 1 < kw) continue;  // all queries before this warp's keys
#endif
      const u32 qs = sq + st * TB + y * PITCH * 2, gs = sg + st * TB + y * PITCH * 2,
                ws = sw + st * BQ * 8 + (y + c0) * 4;
      float s[MI][SQ / 8][4], dp[MI][SQ / 8][4];
#pragma unroll
      for (int a = 0; a < MI; a++)
#pragma unroll
        for (int i = 0; i < SQ / 8; i++)
          s[a][i][0] = s[a][i][1] = s[a][i][2] = s[a][i][3] = dp[a][i][0] = dp[a][i][1] =
              dp[a][i][2] = dp[a][i][3] = 0;
#if KREG
#define AF(f, base, a, i) f[a][i]
#define AL(f, base, i)
#else
#define AF(f, base, a, i) f[a]
#define AL(f, base, i)                           \
  u32 f[MI][4];                                  \
  _Pragma("unroll") for (int a = 0; a < MI; a++) \
      ldm4(f[a], (((base) + fo) ^ ((i) << 5)) + a * 16 * PITCH * 2);
#endif
#pragma unroll
      for (int i = 0; i < D / 16; i++) {
        AL(kf, sk, i)  // S^T = K Q^T
#pragma unroll
        for (int c = 0; c < SQ / 16; c++) {
          u32 z[4];
          ldm4(z, ((qs + fb) ^ (i << 5)) + c * 16 * PITCH * 2);
#pragma unroll
          for (int a = 0; a < MI; a++) {
            mma(s[a][2 * c], AF(kf, sk, a, i), z);
            mma(s[a][2 * c + 1], AF(kf, sk, a, i), z + 2);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < D / 16; i++) {
        AL(vf, sv, i)  // dP^T = V dO^T
#pragma unroll
        for (int c = 0; c < SQ / 16; c++) {
          u32 z[4];
          ldm4(z, ((gs + fb) ^ (i << 5)) + c * 16 * PITCH * 2);
#pragma unroll
          for (int a = 0; a < MI; a++) {
            mma(dp[a][2 * c], AF(vf, sv, a, i), z);
            mma(dp[a][2 * c + 1], AF(vf, sv, a, i), z + 2);
          }
        }
      }
#if BIAS
#pragma unroll
      for (int a = 0; a < MI; a++)
#pragma unroll
        for (int i = 0; i < SQ / 8; i++)
          add_bias<true>(s[a][i], Bi, ldb, bh, r0 + a * 16, qg + i * 8 + c0, TQ, TK, LOG2E / sl2);
#endif
#if DROP
      u32 bits = 0;
#pragma unroll 1
      for (int f = 0; f < MI * (SQ / 8); f++)
        bits |= draw_columns(draws, bh, qg + f % (SQ / 8) * 8 + c0, r0 + f / (SQ / 8) * 16, l, TQ, TK) << (4 * f);
#endif
      u32 p[MI][SQ / 16][4];
#pragma unroll
      for (int i = 0; i < SQ / 8; i++) {
        float l0, l1;
        ld8f(l0, l1, ws + i * 32);
#pragma unroll
        for (int a = 0; a < MI; a++) {
          float *e = s[a][i];
          e[0] = ex2(e[0] * sl2 - l0);
          e[1] = ex2(e[1] * sl2 - l1);
          e[2] = ex2(e[2] * sl2 - l0);
          e[3] = ex2(e[3] * sl2 - l1);
        }
      }
#if CAUSAL
      if (qg < kw + 16 * MI - 1) {
#pragma unroll
        for (int a = 0; a < MI; a++)
#pragma unroll
          for (int i = 0; i < SQ / 8; i++) {
            int c = qg + i * 8 + c0 - a * 16;
            float *e = s[a][i];
            if (c < r0) e[0] = 0;
            if (c + 1 < r0) e[1] = 0;
            if (c < r0 + 8) e[2] = 0;
            if (c + 1 < r0 + 8) e[3] = 0;
          }
      }
#endif
#if MASK
#pragma unroll
      for (int a = 0; a < MI; a++) {
        const int c = r0 + a * 16;
        const bool x = c >= TK || !M[(i64)b * TK + c], y = c + 8 >= TK || !M[(i64)b * TK + c + 8];
#pragma unroll
        for (int i = 0; i < SQ / 8; i++) {
          if (x) s[a][i][0] = s[a][i][1] = 0;
          if (y) s[a][i][2] = s[a][i][3] = 0;
        }
      }
#endif
#pragma unroll
      for (int a = 0; a < MI; a++)
#pragma unroll
        for (int i = 0; i < SQ / 8; i++) {
          const int f = a * (SQ / 8) + i;
          p[a][i >> 1][(i & 1) * 2] = pk(DROPPED(s[a][i][0], f, 0), DROPPED(s[a][i][1], f, 1));
          p[a][i >> 1][(i & 1) * 2 + 1] = pk(DROPPED(s[a][i][2], f, 2), DROPPED(s[a][i][3], f, 3));
        }
#pragma unroll
      for (int c = 0; c < SQ / 16; c++)  // dV += P^T dO
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
          u32 z[4];
          ldm4t(z, ((gs + ft) ^ (i << 5)) + c * 16 * PITCH * 2);
#pragma unroll
          for (int a = 0; a < MI; a++) {
            mma(dv[a][2 * i], p[a][c], z);
            mma(dv[a][2 * i + 1], p[a][c], z + 2);
          }
        }
#pragma unroll
      for (int i = 0; i < SQ / 8; i++) {
        float d0, d1;
        ld8f(d0, d1, ws + BQ * 4 + i * 32);
#pragma unroll
        for (int a = 0; a < MI; a++) {
          float *e = s[a][i];
          float *f = dp[a][i];
          const int n = a * (SQ / 8) + i;
          p[a][i >> 1][(i & 1) * 2] = pk(e[0] * (DROPPED(f[0], n, 0) - d0), e[1] * (DROPPED(f[1], n, 1) - d1));
          p[a][i >> 1][(i & 1) * 2 + 1] = pk(e[2] * (DROPPED(f[2], n, 2) - d0), e[3] * (DROPPED(f[3], n, 3) - d1));
        }
      }
#pragma unroll
      for (int c = 0; c < SQ / 16; c++)  // dK += dS^T Q
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
          u32 z[4];
          ldm4t(z, ((qs + ft) ^ (i << 5)) + c * 16 * PITCH * 2);
#pragma unroll
          for (int a = 0; a < MI; a++) {
            mma(dk[a][2 * i], p[a][c], z);
            mma(dk[a][2 * i + 1], p[a][c], z + 2);
          }
        }
    }
    if (++j == jb + nq) {
      j = jb;
#if BIAS || DROP
      bh++;
#endif
    }
  }
  cp_wait<0>();
  __syncthreads();
#pragma unroll
  for (int a = 0; a < MI; a++) {
    int lr = w * 16 * MI + a * 16 + (l >> 2);  // stage through this warp's rows of K and V
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
      u32 d = off(lr, i) + (l & 3) * 4;
      st4(sk + d, pk(dk[a][i][0] * scale, dk[a][i][1] * scale));
      st4(sk + d + 8 * PITCH * 2, pk(dk[a][i][2] * scale, dk[a][i][3] * scale));
      st4(sv + d, pk(dv[a][i][0], dv[a][i][1]));
      st4(sv + d + 8 * PITCH * 2, pk(dv[a][i][2], dv[a][i][3]));
    }
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 16 * MI * (D / 8) / 32; i++) {
    int c = l + i * 32, r = w * 16 * MI + c / (D / 8), x = c % (D / 8);
    u32 y[4], z[4];
    ld16(y, sk + off(r, x));
    ld16(z, sv + off(r, x));
    if (k0 + r < TK && x * 8 < DH) {
      stg16(dK + ((i64)b * TK + k0 + r) * lddk + hk * DH + x * 8, y);
      stg16(dV + ((i64)b * TK + k0 + r) * lddv + hk * DH + x * 8, z);
    }
  }
}
#endif
#if KERNEL == 2
// Block: BM = 16*MI*NW query rows of one head; loops over key blocks of BN (K, V double-buffered).
// Registers: dq [MI][D/8][4]; s, dp [MI][BN/8][4]; lse and delta of the lane's rows. Q and dO
// fragments are re-read from shared memory (QREG 0) or held.
#define BM (16 * MI * NW)
#define TB (BN * PITCH * 2)
extern "C" __global__ void __launch_bounds__(NT, MINB)
    attention_bwd_dq(const u16 *__restrict__ Q, const u16 *__restrict__ K, const u16 *__restrict__ V,
           const u16 *__restrict__ dO, const float *__restrict__ W, u16 *__restrict__ dQ, const unsigned char *__restrict__ M,
           int TQ, int TK, int TP, int H, int HK, int ldq, int ldk, int ldv, int lddo, int lddq, float scale,
           float sl2 BIAS_ARGS DROP_ARGS, int order) {
  extern __shared__ __align__(1024) char sm[];
  const u32 sq = smp(sm), sg = sq + BM * PITCH * 2, sk = sg + BM * PITCH * 2, sv = sk + 2 * TB;
  const Place at = place_of(order);
  const int t = threadIdx.x, w = t >> 5, l = t & 31, q0 = (at.tiles - 1 - at.tile) * BM, h = at.head, b = at.sample,
            hk = h / (H / HK);
  const int tr = t / (PITCH / 8), tc = t % (PITCH / 8);
  const u16 *q = Q + (i64)b * TQ * ldq + h * DH;
  const u16 *g = dO + (i64)b * TQ * lddo + h * DH;
  const u16 *k = K + (i64)b * TK * ldk + hk * DH;
  const u16 *v = V + (i64)b * TK * ldv + hk * DH;
#if CAUSAL
  const int n = ((q0 + BM < TK ? q0 + BM : TK) + BN - 1) / BN;
#else
  const int n = (TK + BN - 1) / BN;
#endif
#pragma unroll
  for (int i = 0; i < BM * (PITCH / 8) / NT; i++) {
    int r = tr + i * (NT / (PITCH / 8)), x = q0 + r;
    bool ok = x < TQ && tc * 8 < DH;
    u32 d = off(r, tc);
    cpa(sq + d, q + (i64)x * ldq + tc * 8, ok);
    cpa(sg + d, g + (i64)x * lddo + tc * 8, ok);
  }
  auto load = [&](int j) {
#if RT
    const int t = tid(), tr_ = t / (PITCH / 8), tc = t % (PITCH / 8);
#else
    const int tr_ = opaque(tr);
#endif
#pragma unroll
    for (int i = 0; i < BN * (PITCH / 8) / NT; i++) {
      int r = tr_ + i * (NT / (PITCH / 8)), x = j * BN + r;
      u32 d = (j & 1) * TB + off(r, tc);
      bool ok = x < TK && tc * 8 < DH;
      cpa(sk + d, k + (i64)x * ldk + tc * 8, ok);
      cpa(sv + d, v + (i64)x * ldv + tc * 8, ok);
    }
    cp_commit();
  };
  load(0);
  const int rw = q0 + w * 16 * MI, r0 = rw + (l >> 2), c0 = (l & 3) * 2;
  float dq[MI][D / 8][4], ls[MI][2], dl[MI][2];
  const float *wl = W + ((i64)b * H + h) * 2 * TP;
#pragma unroll
  for (int a = 0; a < MI; a++) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      int r = r0 + a * 16 + i * 8;
      r = r < TP ? r : TP - 1;
      ls[a][i] = wl[r];
      dl[a][i] = wl[TP + r];
    }
#pragma unroll
    for (int i = 0; i < D / 8; i++) dq[a][i][0] = dq[a][i][1] = dq[a][i][2] = dq[a][i][3] = 0;
  }
  const u32 fa = w * 16 * MI * PITCH * 2 + off(l & 15, l >> 4),
            fb = off((l & 7) + ((l >> 4) << 3), (l >> 3) & 1), ft = off(l & 15, l >> 4);
#if QREG
  u32 qf[MI][D / 16][4], gf[MI][D / 16][4];
#define AF(f, a, i) f[a][i]
#define AL(f, base, i)
#else
#define AF(f, a, i) f[a]
#define AL(f, base, i)                           \
  u32 f[MI][4];                                  \
  _Pragma("unroll") for (int a = 0; a < MI; a++) \
      ldm4(f[a], (((base) + fo) ^ ((i) << 5)) + a * 16 * PITCH * 2);
#endif
  DRAWS(b);
  for (int j = 0; j < n; j++) {
    cp_wait<0>();
    __syncthreads();
    if (j + 1 < n) load(j + 1);
#if QREG
    if (j == 0) {
#pragma unroll
      for (int a = 0; a < MI; a++)
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
          ldm4(qf[a][i], ((sq + fa) ^ (i << 5)) + a * 16 * PITCH * 2);
          ldm4(gf[a][i], ((sg + fa) ^ (i << 5)) + a * 16 * PITCH * 2);
        }
    }
#endif
#if CAUSAL
    if (j * BN > rw + 16 * MI - 1) continue;
#endif
    const u32 ks = sk + (j & 1) * TB, vs = sv + (j & 1) * TB, fo = opaque(fa);
    float s[MI][BN / 8][4], dp[MI][BN / 8][4];
#pragma unroll
    for (int a = 0; a < MI; a++)
#pragma unroll
      for (int i = 0; i < BN / 8; i++)
        s[a][i][0] = s[a][i][1] = s[a][i][2] = s[a][i][3] = dp[a][i][0] = dp[a][i][1] =
            dp[a][i][2] = dp[a][i][3] = 0;
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
      AL(qf, sq, i)  // S = Q K^T
#pragma unroll
      for (int c = 0; c < BN / 16; c++) {
        u32 z[4];
        ldm4(z, ((ks + fb) ^ (i << 5)) + c * 16 * PITCH * 2);
#pragma unroll
        for (int a = 0; a < MI; a++) {
          mma(s[a][2 * c], AF(qf, a, i), z);
          mma(s[a][2 * c + 1], AF(qf, a, i), z + 2);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
      AL(gf, sg, i)  // dP = dO V^T
#pragma unroll
      for (int c = 0; c < BN / 16; c++) {
        u32 z[4];
        ldm4(z, ((vs + fb) ^ (i << 5)) + c * 16 * PITCH * 2);
#pragma unroll
        for (int a = 0; a < MI; a++) {
          mma(dp[a][2 * c], AF(gf, a, i), z);
          mma(dp[a][2 * c + 1], AF(gf, a, i), z + 2);
        }
      }
    }
#if BIAS
#pragma unroll
    for (int a = 0; a < MI; a++) add_biases<BN / 8>(s[a], Bi, ldb, h, r0 + a * 16, j * BN + c0, TQ, TK, LOG2E / sl2);
#endif
#if DROP
    u32 bits = 0;
#pragma unroll 1
    for (int f = 0; f < MI * (BN / 8); f++)
      bits |= draw_rows(draws, h, r0 + f / (BN / 8) * 16, j * BN + f % (BN / 8) * 8 + c0, l, TQ, TK) << (4 * f);
#endif
#pragma unroll
    for (int a = 0; a < MI; a++)
#pragma unroll
      for (int i = 0; i < BN / 8; i++) {
        float *e = s[a][i];
        e[0] = ex2(e[0] * sl2 - ls[a][0]);
        e[1] = ex2(e[1] * sl2 - ls[a][0]);
        e[2] = ex2(e[2] * sl2 - ls[a][1]);
        e[3] = ex2(e[3] * sl2 - ls[a][1]);
      }
#if CAUSAL
    if ((j + 1) * BN - 1 > rw) {
#pragma unroll
      for (int a = 0; a < MI; a++)
#pragma unroll
        for (int i = 0; i < BN / 8; i++) {
          int c = j * BN + i * 8 + c0 - a * 16;
          float *e = s[a][i];
          if (c > r0) e[0] = 0;
          if (c + 1 > r0) e[1] = 0;
          if (c > r0 + 8) e[2] = 0;
          if (c + 1 > r0 + 8) e[3] = 0;
        }
    }
#else
    if ((j + 1) * BN > TK) {
#pragma unroll
      for (int a = 0; a < MI; a++)
#pragma unroll
        for (int i = 0; i < BN / 8; i++) {
          int c = j * BN + i * 8 + c0;
          float *e = s[a][i];
          if (c >= TK) e[0] = e[2] = 0;
          if (c + 1 >= TK) e[1] = e[3] = 0;
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
        if (x) s[a][i][0] = s[a][i][2] = 0;
        if (y) s[a][i][1] = s[a][i][3] = 0;
      }
    }
#endif
    u32 p[MI][BN / 16][4];
#pragma unroll
    for (int a = 0; a < MI; a++)
#pragma unroll
      for (int i = 0; i < BN / 8; i++) {
        float *e = s[a][i];
        float *f = dp[a][i];
        const int z = a * (BN / 8) + i;
        p[a][i >> 1][(i & 1) * 2] = pk(e[0] * (DROPPED(f[0], z, 0) - dl[a][0]), e[1] * (DROPPED(f[1], z, 1) - dl[a][0]));
        p[a][i >> 1][(i & 1) * 2 + 1] = pk(e[2] * (DROPPED(f[2], z, 2) - dl[a][1]), e[3] * (DROPPED(f[3], z, 3) - dl[a][1]));
      }
#pragma unroll
    for (int c = 0; c < BN / 16; c++)  // dQ += dS K
#pragma unroll
      for (int i = 0; i < D / 16; i++) {
        u32 z[4];
        ldm4t(z, ((ks + ft) ^ (i << 5)) + c * 16 * PITCH * 2);
#pragma unroll
        for (int a = 0; a < MI; a++) {
          mma(dq[a][2 * i], p[a][c], z);
          mma(dq[a][2 * i + 1], p[a][c], z + 2);
        }
      }
  }
  cp_wait<0>();
  __syncthreads();
#pragma unroll
  for (int a = 0; a < MI; a++) {
    int lr = w * 16 * MI + a * 16 + (l >> 2);
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
      u32 d = sq + off(lr, i) + (l & 3) * 4;
      st4(d, pk(dq[a][i][0] * scale, dq[a][i][1] * scale));
      st4(d + 8 * PITCH * 2, pk(dq[a][i][2] * scale, dq[a][i][3] * scale));
    }
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 16 * MI * (D / 8) / 32; i++) {
    int c = l + i * 32, r = w * 16 * MI + c / (D / 8), x = c % (D / 8);
    u32 y[4];
    ld16(y, sq + off(r, x));
    if (q0 + r < TQ && x * 8 < DH) stg16(dQ + ((i64)b * TQ + q0 + r) * lddq + h * DH + x * 8, y);
  }
}
#endif
#if KERNEL == 3
// Grid (key tiles, query tiles, H): BM x BN of one head's bias gradient, summed over the batch in order; Q, dO, K and V of
// each sample pass once through shared memory.
#define BM (16 * MI * NW)
extern "C" __global__ void __launch_bounds__(NT, MINB)
    attention_bwd_dbias(const u16 *__restrict__ Q, const u16 *__restrict__ K, const u16 *__restrict__ V,
           const u16 *__restrict__ dO, const float *__restrict__ W, BELEM *__restrict__ dB, const unsigned char *__restrict__ M,
           int TQ, int TK, int TP, int H, int HK, int ldq, int ldk, int ldv, int lddo, int lddb, float scale, float sl2, int B
           BIAS_ARGS DROP_ARGS) {
  extern __shared__ __align__(1024) char sm[];
  const u32 sq = smp(sm), sg = sq + BM * PITCH * 2, sk = sg + BM * PITCH * 2, sv = sk + BN * PITCH * 2;
  const int t = threadIdx.x, w = t >> 5, l = t & 31, k0 = blockIdx.x * BN, q0 = blockIdx.y * BM, h = blockIdx.z,
            hk = h / (H / HK), tr = t / (PITCH / 8), tc = t % (PITCH / 8);
  const int rw = q0 + w * 16 * MI, r0 = rw + (l >> 2), c0 = k0 + (l & 3) * 2;
  const u32 fa = w * 16 * MI * PITCH * 2 + off(l & 15, l >> 4), fb = off((l & 7) + ((l >> 4) << 3), (l >> 3) & 1);
  float sum[MI][BN / 8][4] = {};
  for (int b = 0; b < B && !(CAUSAL && k0 > q0 + BM - 1); b++) {
    __syncthreads();
    auto load = [&](u32 to, const u16 *x, int first, int rows, int most, int ld, int head) {
#pragma unroll 4
      for (int r = tr; r < rows; r += NT / (PITCH / 8))
        cpa(to + off(r, tc), x + ((i64)b * most + first + r) * ld + head * DH + tc * 8, first + r < most && tc * 8 < DH);
    };
    load(sq, Q, q0, BM, TQ, ldq, h);
    load(sg, dO, q0, BM, TQ, lddo, h);
    load(sk, K, k0, BN, TK, ldk, hk);
    load(sv, V, k0, BN, TK, ldv, hk);
    cp_commit();
    cp_wait<0>();
    __syncthreads();
    float s[MI][BN / 8][4] = {}, dp[MI][BN / 8][4] = {};
    auto product = [&](float (*to)[BN / 8][4], u32 rows, u32 columns) {
#pragma unroll
      for (int i = 0; i < D / 16; i++) {
        u32 f[MI][4];
#pragma unroll
        for (int a = 0; a < MI; a++) ldm4(f[a], ((rows + fa) ^ (i << 5)) + a * 16 * PITCH * 2);
#pragma unroll
        for (int c = 0; c < BN / 16; c++) {
          u32 z[4];
          ldm4(z, ((columns + fb) ^ (i << 5)) + c * 16 * PITCH * 2);
#pragma unroll
          for (int a = 0; a < MI; a++) {
            mma(to[a][2 * c], f[a], z);
            mma(to[a][2 * c + 1], f[a], z + 2);
          }
        }
      }
    };
    product(s, sq, sk);
    product(dp, sg, sv);
#if DROP
    DRAWS(b);
    u32 bits = 0;
#pragma unroll 1
    for (int f = 0; f < MI * (BN / 8); f++)
      bits |= draw_rows(draws, h, r0 + f / (BN / 8) * 16, c0 + f % (BN / 8) * 8, l, TQ, TK) << (4 * f);
#endif
    const float *wl = W + ((i64)b * H + h) * 2 * TP;
#pragma unroll
    for (int a = 0; a < MI; a++) add_biases<BN / 8>(s[a], Bi, ldb, h, r0 + a * 16, c0, TQ, TK, LOG2E / sl2);
#pragma unroll
    for (int a = 0; a < MI; a++)
#pragma unroll
      for (int x = 0; x < 2; x++) {
        const int q = r0 + a * 16 + x * 8;
        const float ls = q < TQ ? wl[q] : 0, dl = q < TQ ? wl[TP + q] : 0;
#pragma unroll
        for (int i = 0; i < BN / 8; i++) {
#pragma unroll
          for (int y = 0; y < 2; y++) {
            const int k = c0 + i * 8 + y, e = 2 * x + y;
            const bool see = q < TQ && k < TK && (!CAUSAL || k <= q) && (!MASK || M[(i64)b * TK + k]);
            if (see) sum[a][i][e] += ex2(s[a][i][e] * sl2 - ls) * (DROPPED(dp[a][i][e], a * (BN / 8) + i, e) - dl);
          }
        }
      }
  }
#pragma unroll
  for (int a = 0; a < MI; a++)
#pragma unroll
    for (int i = 0; i < BN / 8; i++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int q = r0 + a * 16 + (e >> 1) * 8, k = c0 + i * 8 + (e & 1);
        if (q < TQ && k < TK) dB[((i64)h * TQ + q) * lddb + k] = BSTORE(sum[a][i][e]);
      }
}
#endif
