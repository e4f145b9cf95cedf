// attention_bwd_wgmma.cu - attention backward for sm_90a: attention_bwd_dq, which also makes the work array W of
// attention_bwd_mma.cu, then attention_bwd_dkdv. No atomics: every output element is written once, in a fixed order.
//
// Macros   KERNEL 1 dkdv, 2 dq; D, CAUSAL, NWG, RP, RC, PP and the schedule S as in attention_fwd_wgmma.cu (dkdv: key head |
//          key block << 16); ST ring stages; BQ or BN rows a step; PS buffers of the stationary tiles (2: the next tile's
//          are loaded while this one ends); dkdv: PB dS is made from the packed bf16 P instead of fp32, LEAN dK_i is issued
//          at the end of step i instead of inside step i+1 - both keep fewer registers alive; dq: FD delta is computed here
//          and W written.
// Nothing is in flight at a loop's back edge, else ptxas serializes the products (message C7515).
#if PP
#define TURN_WAIT bar_sync(wg, 256)
#define TURN_PASS bar_arrive(wg == NWG ? 1 : wg + 1, 256)
#else
#define TURN_WAIT
#define TURN_PASS
#endif
struct Yes {
  enum { v = 1 };
};
struct No {
  enum { v = 0 };
};
#if KERNEL == 1
// Block: BK = 64*NWG keys of one key head; steps over (query heads of the group) x (query tiles of
// BQ). Warpgroup g owns keys [64g, +64). S^T = K Q^T and dP^T = V dO^T (64 x BQ); P^T and dS^T stay
// in registers as A operands of dV += P^T dO, dK += dS^T Q. Registers: dk[D/2], dv[D/2], s[BQ/2],
// dp[BQ/2], p[BQ/4] (P^T), e[BQ/4] (dS^T). Step i issues S_i, dK_{i-1}, dP_i; the exponentials of
// S_i run over the last two; then dV_i, over which dS_i is made. Nothing is in flight at a loop's
// back edge (else ptxas serializes the products, message C7515).
#define BK (64 * NWG)
#define TK (BK * D * 2)
#define TB (BQ * D * 2)
extern "C" __global__ void __launch_bounds__(128 * (NWG + 1), 1)
    attention_bwd_dkdv(const __grid_constant__ TMap tq, const __grid_constant__ TMap tk,
             const __grid_constant__ TMap tv, const __grid_constant__ TMap tg,
             const __grid_constant__ TMap tdk, const __grid_constant__ TMap tdv,
             const float *__restrict__ W, const int *__restrict__ S, int T, int TP, int H, int HK,
             float scale, float sl2) {
  extern __shared__ __align__(1024) char sm[];
  const u32 sk0 = (smp(sm) + 1023) & ~1023u, sq = sk0 + 2 * PS * TK, sg = sq + ST * TB,
            sw = sg + ST * TB, bar = sw + ST * BQ * 8, be = bar + 8 * PS, fu = be + 8 * PS,
            em = fu + 8 * ST;
  const int t = threadIdx.x, wg = t >> 7, R = H / HK, G = gridDim.x;
  const int *sc = S + blockIdx.x;  // this block's tiles
  if (t == 0) {
    for (int i = 0; i < PS; i++) {
      mb_init(bar + 8 * i, 1);
      mb_init(be + 8 * i, NWG);
    }
    for (int i = 0; i < ST; i++) {
      mb_init(fu + 8 * i, 1);
      mb_init(em + 8 * i, NWG);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    fence_async();
  }
  __syncthreads();
  const int je = (T + BQ - 1) / BQ;
#define TILE_DK                                                              \
  const int hb = x & 0xffff, b = hb / HK, hk = hb % HK, k0 = (x >> 16) * BK, \
            jb = CAUSAL ? k0 / BQ : 0;                                       \
  const u32 ks = ki % PS, sk = sk0 + ks * 2 * TK, sv = sk + TK
  if (wg == 0) {
    REGS_DEC();
    if (t == 0) {
      u32 st = 0, ph = 1, ki = 0;
      for (int x = *sc; x >= 0; x = *sc) {
        sc += G;
        TILE_DK;
        bool first = true;
        for (int h = hk * R; h < hk * R + R; h++)
          for (int j = jb; j < je; j++) {
            mb_wait(em + 8 * st, ph);
            mb_expect(fu + 8 * st, 2 * TB + BQ * 8);
            for (int c = 0; c < D / 64; c++)
              tma_load(sq + st * TB + c * BQ * 128, &tq, c * 64, h, j * BQ, b, fu + 8 * st);
            if (first) {
              first = false;
              mb_wait(be + 8 * ks, ((ki / PS) & 1) ^ 1);
              mb_expect(bar + 8 * ks, 2 * TK);
              for (int c = 0; c < D / 64; c++)
                tma_load(sk + c * BK * 128, &tk, c * 64, hk, k0, b, bar + 8 * ks);
              for (int c = 0; c < D / 64; c++)
                tma_load(sv + c * BK * 128, &tv, c * 64, hk, k0, b, bar + 8 * ks);
            }
            for (int c = 0; c < D / 64; c++)
              tma_load(sg + st * TB + c * BQ * 128, &tg, c * 64, h, j * BQ, b, fu + 8 * st);
            const float *wl = W + ((i64)b * H + h) * 2 * TP + j * BQ;
            bulk_load(sw + st * BQ * 8, wl, BQ * 4, fu + 8 * st);
            bulk_load(sw + st * BQ * 8 + BQ * 4, wl + TP, BQ * 4, fu + 8 * st);
            if (++st == ST) {
              st = 0;
              ph ^= 1;
            }
          }
        ki++;
      }
    }
  } else {
    REGS_INC();
    const int l = t & 31, w = (t >> 5) & 3, lead = (t & 127) == 0, c0 = (l & 3) * 2;
    u32 st = 0, ph = 0, ki = 0;
    if (PP && wg == NWG) bar_arrive(1, 256);
    for (int x = *sc, y = 0; x >= 0; x = y) {
      sc += G;
      y = *sc;
      TILE_DK;
      const int kw = k0 + (wg - 1) * 64, r0 = kw + w * 16 + (l >> 2);
      const u32 ka = sk + (wg - 1) * 8192, va = sv + (wg - 1) * 8192;
      float dk[D / 2], dv[D / 2], s[BQ / 2], dp[BQ / 2];
      u32 p[BQ / 4], e[BQ / 4];
#pragma unroll
      for (int i = 0; i < D / 2; i++) dk[i] = dv[i] = 0;
      auto next = [&](u32 &a, u32 &q) {
        if (++a == ST) {
          a = 0;
          q ^= 1;
        }
      };
      // this warpgroup's tiles: skip query tiles wholly before its keys at the start of every head
#if CAUSAL
      const int jw = kw / BQ > jb ? kw / BQ : jb;
#else
      const int jw = jb;
#endif
      auto skip = [&](int k) {
        for (; k > 0; k--) {
          mb_wait(fu + 8 * st, ph);
          if (lead) mb_arrive(em + 8 * st);
          TURN_WAIT;
          TURN_PASS;
          next(st, ph);
        }
      };
      u32 prev = 0;                          // stage of the tile whose dS^T is in e
      auto step = [&](auto first, int qg) {  // one query tile, first query qg
        mb_wait(fu + 8 * st, ph);
        const u32 ws = sw + st * BQ * 8 + c0 * 4;
        TURN_WAIT;
        wg_fence();
        gemm_ss<BK * 128, BQ * 128>(s, ka, sq + st * TB);
        wg_commit();
        if (!LEAN && !first.v) {
          gemm_rs<BQ>(dk, e, sq + prev * TB, 1);
          wg_commit();
        }
        gemm_ss<BK * 128, BQ * 128>(dp, va, sg + st * TB);
        wg_commit();
        if (PP == 1) TURN_PASS;
        if (LEAN || first.v)
          wg_wait<1>();
        else
          wg_wait<2>();
        keep<BQ / 2>(s);  // S^T is done
#pragma unroll
        for (int i = 0; i < BQ / 8; i++) {
          float a, z;
          ld8f(a, z, ws + i * 32);
          s[4 * i] = ex2(s[4 * i] * sl2 - a);
          s[4 * i + 1] = ex2(s[4 * i + 1] * sl2 - z);
          s[4 * i + 2] = ex2(s[4 * i + 2] * sl2 - a);
          s[4 * i + 3] = ex2(s[4 * i + 3] * sl2 - z);
        }
#if CAUSAL
        if (qg < kw + 63) {
#pragma unroll
          for (int i = 0; i < BQ / 8; i++) {
            int c = qg + i * 8 + c0;
            if (c < r0) s[4 * i] = 0;
            if (c + 1 < r0) s[4 * i + 1] = 0;
            if (c < r0 + 8) s[4 * i + 2] = 0;
            if (c + 1 < r0 + 8) s[4 * i + 3] = 0;
          }
        }
#endif
        pack<BQ>(p, s);
        wg_fence();
        gemm_rs<BQ>(dv, p, sg + st * TB, 1);
        wg_commit();
        if (PP == 2) TURN_PASS;
        wg_wait<1>();
        keep<BQ / 2>(dp);
        keep<D / 2>(dk);  // dP^T of this step and dK of the step before are done
        if (!LEAN && !first.v && lead) mb_arrive(em + 8 * prev);
#pragma unroll
        for (int i = 0; i < BQ / 8; i++) {
          float a, z;
          ld8f(a, z, ws + BQ * 4 + i * 32);
#if PB
          e[2 * i] = pk(lo(p[2 * i]) * (dp[4 * i] - a), hi(p[2 * i]) * (dp[4 * i + 1] - z));
          e[2 * i + 1] =
              pk(lo(p[2 * i + 1]) * (dp[4 * i + 2] - a), hi(p[2 * i + 1]) * (dp[4 * i + 3] - z));
        }
#else
          e[2 * i] = pk(s[4 * i] * (dp[4 * i] - a), s[4 * i + 1] * (dp[4 * i + 1] - z));
          e[2 * i + 1] = pk(s[4 * i + 2] * (dp[4 * i + 2] - a), s[4 * i + 3] * (dp[4 * i + 3] - z));
        }
#endif
#if LEAN
        wg_fence();
        gemm_rs<BQ>(dk, e, sq + st * TB, 1);
        wg_commit();
        wg_wait<0>();
        keep<D / 2>(dv);
        keep<D / 2>(dk);
        if (lead) mb_arrive(em + 8 * st);
#else
        wg_wait<0>();
        keep<D / 2>(dv);
#endif
        prev = st;
        next(st, ph);
      };
      mb_wait(bar + 8 * ks, (ki / PS) & 1);
      if (jw >= je)
        skip((je - jb) * R);  // keys past T: nothing to do
      else
        for (int h = 0; h < R; h++) {
          skip(jw - jb);
#if LEAN
          for (int j = jw; j < je; j++) step(No(), j * BQ);
        }
#else
          step(Yes(), jw * BQ);
          for (int j = jw + 1; j < je; j++) step(No(), j * BQ);
          wg_fence();
          gemm_rs<BQ>(dk, e, sq + prev * TB, 1);
          wg_commit();
          wg_wait<0>();
          keep<D / 2>(dk);
          if (lead) mb_arrive(em + 8 * prev);
        }
#endif
      {
        const int t = tid(), l = t & 31, w = (t >> 5) & 3, wg = t >> 7, hb = opaque(x) & 0xffff,
                  kw = (opaque(x) >> 16) * BK + (wg - 1) * 64;
        const u32 kz = ki % PS, ka = sk0 + kz * 2 * TK + (wg - 1) * 8192, va = ka + TK;
        bar_sync(8 + wg, 128);
        stage_out<BK * 128>(ka, dk, scale, scale, w, l);
        stage_out<BK * 128>(va, dv, 1.f, 1.f, w, l);
        fence_async();
        bar_sync(8 + wg, 128);
        if ((t & 127) == 0) {
          if (kw < T)
            for (int c = 0; c < D / 64; c++) {
              tma_store(&tdk, ka + c * BK * 128, c * 64, hb % HK, kw, hb / HK);
              tma_store(&tdv, va + c * BK * 128, c * 64, hb % HK, kw, hb / HK);
            }
          store_commit_wait_read();
          mb_arrive(be + 8 * kz);
        }
      }
      ki++;
    }
  }
}
#endif
#if KERNEL == 2
// Block: BM = 64*NWG query rows of one head; steps over key blocks of BN from the diagonal down.
// Registers: dq[D/2], s[BN/2], dp[BN/2], e[BN/4] (dS); log-sum-exp and delta of the lane's two
// rows. FD 1: the tile of O is loaded too, delta is computed here and W is written here for
// bwd_dkdv, which then runs after this kernel (no bwd_prep). Step i issues S_i, dQ_{i-1}, dP_i; the
// exponentials of S_i run over the last two.
#define BM (64 * NWG)
#define TQ (BM * D * 2)
#define NQ (2 + FD)
#define TB (BN * D * 2)
extern "C" __global__ void __launch_bounds__(128 * (NWG + 1), 1)
    attention_bwd_dq(const __grid_constant__ TMap tq, const __grid_constant__ TMap tk,
           const __grid_constant__ TMap tv, const __grid_constant__ TMap tg,
           const __grid_constant__ TMap tdq, const __grid_constant__ TMap to,
           const float *__restrict__ L, float *__restrict__ W, const int *__restrict__ S, int T,
           int TP, int H, int HK, float scale, float sl2) {
  extern __shared__ __align__(1024) char sm[];
  const u32 sq0 = (smp(sm) + 1023) & ~1023u, sk = sq0 + NQ * PS * TQ, sv = sk + ST * TB,
            bar = sv + ST * TB, be = bar + 8 * PS, fu = be + 8 * PS, em = fu + 8 * ST;
  const int t = threadIdx.x, wg = t >> 7, G = gridDim.x;
  const int *sc = S + blockIdx.x;  // this block's tiles
  if (t == 0) {
    for (int i = 0; i < PS; i++) {
      mb_init(bar + 8 * i, 1);
      mb_init(be + 8 * i, NWG);
    }
    for (int i = 0; i < ST; i++) {
      mb_init(fu + 8 * i, 1);
      mb_init(em + 8 * i, NWG);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    fence_async();
  }
  __syncthreads();
#define TILE_DQ                                                                              \
  const int bh = x & 0xffff, b = bh / H, h = bh % H, hk = h / (H / HK), q0 = (x >> 16) * BM, \
            n = ((CAUSAL && q0 + BM < T ? q0 + BM : T) + BN - 1) / BN;                       \
  const u32 ks = ki % PS, sq = sq0 + ks * NQ * TQ, sg = sq + TQ
  if (wg == 0) {
    REGS_DEC();
    if (t == 0) {
      u32 st = 0, ph = 1, ki = 0;
      for (int x = *sc; x >= 0; x = *sc) {
        sc += G;
        TILE_DQ;
        mb_wait(be + 8 * ks, ((ki / PS) & 1) ^ 1);
        mb_expect(bar + 8 * ks, NQ * TQ);
        ki++;
        for (int c = 0; c < D / 64; c++) {
          if (FD) tma_load(sg + TQ + c * BM * 128, &to, c * 64, h, q0, b, bar + 8 * ks);
          tma_load(sq + c * BM * 128, &tq, c * 64, h, q0, b, bar + 8 * ks);
          tma_load(sg + c * BM * 128, &tg, c * 64, h, q0, b, bar + 8 * ks);
        }
        for (int i = 0; i < n; i++) {
          int y = (n - 1 - i) * BN;
          mb_wait(em + 8 * st, ph);
          mb_expect(fu + 8 * st, 2 * TB);
          for (int c = 0; c < D / 64; c++)
            tma_load(sk + st * TB + c * BN * 128, &tk, c * 64, hk, y, b, fu + 8 * st);
          for (int c = 0; c < D / 64; c++)
            tma_load(sv + st * TB + c * BN * 128, &tv, c * 64, hk, y, b, fu + 8 * st);
          if (++st == ST) {
            st = 0;
            ph ^= 1;
          }
        }
      }
    }
  } else {
    REGS_INC();
    const int l = t & 31, w = (t >> 5) & 3, lead = (t & 127) == 0, c0 = (l & 3) * 2;
    u32 st = 0, ph = 0, ki = 0;
    if (PP && wg == NWG) bar_arrive(1, 256);
    for (int x = *sc, nx = 0; x >= 0; x = nx) {
      sc += G;
      nx = *sc;
      TILE_DQ;
      const int rw = q0 + (wg - 1) * 64, r0 = rw + w * 16 + (l >> 2);
      const u32 qa = sq + (wg - 1) * 8192, ga = sg + (wg - 1) * 8192;
      float dq[D / 2], s[BN / 2], dp[BN / 2];
      u32 e[BN / 4];
#pragma unroll
      for (int i = 0; i < D / 2; i++) dq[i] = 0;
      float *wl = W + ((i64)b * H + h) * 2 * TP;
#if FD
      float la, lb, da, db;
      {
        const float *ll = L + ((i64)b * H + h) * T;
        la = r0 < T ? ll[r0] * LOG2E : 1e30f;
        lb = r0 + 8 < T ? ll[r0 + 8] * LOG2E : 1e30f;
        mb_wait(bar + 8 * ks, (ki / PS) & 1);
        // two neighbouring lanes share a row of this warp: lane u takes half u%2 of row 16w + u/2
        // of dO and O
        const int r = w * 16 + (l >> 1), hf = l & 1;
        float d = 0;
#pragma unroll
        for (int k = 0; k < D / 16; k++) {
          const int c = hf * (D / 16) + k;
          const u32 a = ga + (c >> 3) * BM * 128 + r * 128 + (((c & 7) ^ (r & 7)) << 4);
          u32 x[4], z[4];
          ld16(x, a);
          ld16(z, a + TQ);
#pragma unroll
          for (int q = 0; q < 4; q++) d += lo(x[q]) * lo(z[q]) + hi(x[q]) * hi(z[q]);
        }
        d += __shfl_xor_sync(~0u, d, 1);
        da = __shfl_sync(~0u, d, (l >> 2) * 2);
        db = __shfl_sync(~0u, d, (l >> 2) * 2 + 16);
        if ((l & 3) == 0) {
          if (r0 < TP) {
            wl[r0] = la;
            wl[TP + r0] = da;
          }
          if (r0 + 8 < TP) {
            wl[r0 + 8] = lb;
            wl[TP + r0 + 8] = db;
          }
        }
      }
#else
      const int ra = r0 < TP ? r0 : TP - 1, rb = r0 + 8 < TP ? r0 + 8 : TP - 1;
      const float la = wl[ra], lb = wl[rb], da = wl[TP + ra], db = wl[TP + rb];
#endif
      int i = 0;
#if CAUSAL
      for (; (n - 1 - i) * BN > rw + 63; i++) {
        mb_wait(fu + 8 * st, ph);
        if (lead) mb_arrive(em + 8 * st);
        TURN_WAIT;
        TURN_PASS;
        if (++st == ST) {
          st = 0;
          ph ^= 1;
        }
      }
#endif
      mb_wait(bar + 8 * ks, (ki / PS) & 1);
      ki++;
      u32 prev = 0;
      auto step = [&](auto first, int y) {  // one key block, first key y
        mb_wait(fu + 8 * st, ph);
        TURN_WAIT;
        wg_fence();
        gemm_ss<BM * 128, BN * 128>(s, qa, sk + st * TB);
        wg_commit();
        if (!first.v) {
          gemm_rs<BN>(dq, e, sk + prev * TB, 1);
          wg_commit();
        }
        gemm_ss<BM * 128, BN * 128>(dp, ga, sv + st * TB);
        wg_commit();
        TURN_PASS;
        if (first.v)
          wg_wait<1>();
        else
          wg_wait<2>();
        keep<BN / 2>(s);
#pragma unroll
        for (int k = 0; k < BN / 8; k++) {
          s[4 * k] = ex2(s[4 * k] * sl2 - la);
          s[4 * k + 1] = ex2(s[4 * k + 1] * sl2 - la);
          s[4 * k + 2] = ex2(s[4 * k + 2] * sl2 - lb);
          s[4 * k + 3] = ex2(s[4 * k + 3] * sl2 - lb);
        }
#if CAUSAL
        if (y + BN - 1 > rw) {
#pragma unroll
          for (int k = 0; k < BN / 8; k++) {
            int c = y + k * 8 + c0;
            if (c > r0) s[4 * k] = 0;
            if (c + 1 > r0) s[4 * k + 1] = 0;
            if (c > r0 + 8) s[4 * k + 2] = 0;
            if (c + 1 > r0 + 8) s[4 * k + 3] = 0;
          }
        }
#else
        if (y + BN > T) {
#pragma unroll
          for (int k = 0; k < BN / 8; k++) {
            int c = y + k * 8 + c0;
            if (c >= T) s[4 * k] = s[4 * k + 2] = 0;
            if (c + 1 >= T) s[4 * k + 1] = s[4 * k + 3] = 0;
          }
        }
#endif
        wg_wait<0>();
        keep<BN / 2>(dp);
        keep<D / 2>(dq);
        if (!first.v && lead) mb_arrive(em + 8 * prev);
#pragma unroll
        for (int k = 0; k < BN / 8; k++) {
          e[2 * k] = pk(s[4 * k] * (dp[4 * k] - da), s[4 * k + 1] * (dp[4 * k + 1] - da));
          e[2 * k + 1] =
              pk(s[4 * k + 2] * (dp[4 * k + 2] - db), s[4 * k + 3] * (dp[4 * k + 3] - db));
        }
        prev = st;
        if (++st == ST) {
          st = 0;
          ph ^= 1;
        }
      };
      step(Yes(), (n - 1 - i) * BN);
      for (i++; i < n; i++) step(No(), (n - 1 - i) * BN);
      wg_fence();
      gemm_rs<BN>(dq, e, sk + prev * TB, 1);
      wg_commit();
      wg_wait<0>();
      keep<D / 2>(dq);
      if (lead) mb_arrive(em + 8 * prev);
      bar_sync(8 + wg, 128);
      stage_out<BM * 128>(qa, dq, scale, scale, w, l);
      fence_async();
      bar_sync(8 + wg, 128);
      if (lead) {
        if (rw < T)
          for (int c = 0; c < D / 64; c++) tma_store(&tdq, qa + c * BM * 128, c * 64, h, rw, b);
        store_commit_wait_read();
        mb_arrive(be + 8 * ks);
      }
    }
  }
}
#endif
