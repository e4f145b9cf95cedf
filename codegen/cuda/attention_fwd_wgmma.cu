// attention_fwd_wgmma.cu - attention forward for sm_90a, after the schedule of FlashAttention-3 (Shah et al. 2024): one
// producer warpgroup, of which one thread drives the tensor copy engine, and NWG consumer warpgroups of 64 query rows.
//
// Macros   D head size on chip (64, 128; smaller heads are padded by the copy engine); CAUSAL; BN keys a step; ST stages of
//          the K and V rings; PERS Q double-buffered, for persistent blocks; LAZY as in attention_fwd_mma.cu (-1: always
//          rescale); SKIP blocks that a warpgroup cannot see are skipped; PP warpgroups take turns at issuing their
//          products; RP, RC registers of producer and consumers.
// S        schedule, int [rounds + 1][gridDim.x], a constant of the plan: entry = (batch * H + head) | query block << 16,
//          -1 ends. Any order gives the same bits (attention_cuda.c makes it: heads in groups whose K and V stay in L2,
//          longest tiles first, each to the least loaded block).
// Block    BM = 64*NWG query rows of one head; key blocks from the diagonal down, so that masks are met first.
// Step i   issue S_i = Q K_i^T; scale O; issue O += P_{i-1} V_{i-1}; the softmax of S_i runs while the second product does.
// Registers o[D/2] output (64 x D a warpgroup), s[BN/2] scores, p[BN/4] packed probabilities of the step before.
#define BM (64 * NWG)
#define QS (1 + PERS)
#define TQ (BM * D * 2)
#define TB (BN * D * 2)
extern "C" __global__ void __launch_bounds__(128 * (NWG + 1), 1)
    attention_fwd(const __grid_constant__ TMap tq, const __grid_constant__ TMap tk,
              const __grid_constant__ TMap tv, const __grid_constant__ TMap to,
              float *__restrict__ L, const int *__restrict__ S, int T, int H, int HK, float sl2) {
  extern __shared__ __align__(1024) char sm[];
  const u32 sq = (smp(sm) + 1023) & ~1023u, sk = sq + QS * TQ, sv = sk + ST * TB,
            bar = sv + ST * TB;
  const u32 qf = bar, qe = qf + 8 * QS, kf = qe + 8 * QS, ke = kf + 8 * ST, vf = ke + 8 * ST,
            ve = vf + 8 * ST;
  const int t = threadIdx.x, wg = t >> 7;
  if (t == 0) {
    for (int i = 0; i < QS; i++) {
      mb_init(qf + 8 * i, 1);
      mb_init(qe + 8 * i, NWG);
    }
    for (int i = 0; i < ST; i++) {
      mb_init(kf + 8 * i, 1);
      mb_init(vf + 8 * i, 1);
      mb_init(ke + 8 * i, NWG);
      mb_init(ve + 8 * i, NWG);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    fence_async();
  }
  __syncthreads();
  const int G = gridDim.x;
  const int *sc = S + blockIdx.x;  // this block's tiles: sc[r*G], r = 0, 1, ...; -1 ends
#if CAUSAL
#define NBLK(q0) (((q0) + BM < T ? (q0) + BM : T) + BN - 1) / BN
#else
#define NBLK(q0) (T + BN - 1) / BN
#endif
  if (wg == 0) {
    REGS_DEC();
    if (t == 0) {
      u32 st = 0, ph = 1;
      int qi = 0;
      for (int x = *sc; x >= 0; x = *sc) {
        sc += G;
        int bh = x & 0xffff, b = bh / H, h = bh % H, hk = h / (H / HK), q0 = (x >> 16) * BM,
            n = NBLK(q0), qs = qi % QS;
        for (int i = 0; i < n; i++) {
          int y = (n - 1 - i) * BN;
          mb_wait(ke + 8 * st, ph);
          mb_expect(kf + 8 * st, TB);
          for (int c = 0; c < D / 64; c++)
            tma_load(sk + st * TB + c * BN * 128, &tk, c * 64, hk, y, b, kf + 8 * st);
          if (i == 0) {
            mb_wait(qe + 8 * qs, ((qi / QS) & 1) ^ 1);
            mb_expect(qf + 8 * qs, TQ);
            for (int c = 0; c < D / 64; c++)
              tma_load(sq + qs * TQ + c * BM * 128, &tq, c * 64, h, q0, b, qf + 8 * qs);
            qi++;
          }
          mb_wait(ve + 8 * st, ph);
          mb_expect(vf + 8 * st, TB);
          for (int c = 0; c < D / 64; c++)
            tma_load(sv + st * TB + c * BN * 128, &tv, c * 64, hk, y, b, vf + 8 * st);
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
    u32 st = 0, ph = 0;
    int qi = 0;  // ring position of the next K block
#if PP
#define TURN_WAIT bar_sync(wg, 256)
#define TURN_PASS bar_arrive(wg == NWG ? 1 : wg + 1, 256)
#else
#define TURN_WAIT
#define TURN_PASS
#endif
#if PP
    if (wg == NWG) bar_arrive(1, 256);  // the first turn is warpgroup 1's
#endif
    for (int x = *sc, y = 0; x >= 0; x = y) {
      sc += G;
      y = *sc;
      const int bh = x & 0xffff, b = bh / H, h = bh % H, q0 = (x >> 16) * BM, n = NBLK(q0),
                qs = qi % QS;
      const int rw = q0 + (wg - 1) * 64, r0 = rw + w * 16 + (l >> 2);
      const u32 qa = sq + qs * TQ + (wg - 1) * 8192;
      float o[D / 2], s[BN / 2];
      u32 p[BN / 4];
      float m0 = -1e20f, m1 = -1e20f, l0 = 0, l1 = 0, f, g;
      bool up;
      auto softmax = [&](int y) {  // y: first key of the block
#if CAUSAL
        if (y + BN - 1 > rw) {
#pragma unroll
          for (int i = 0; i < BN / 8; i++) {
            int c = y + i * 8 + c0;
            if (c > r0) s[4 * i] = -1e30f;
            if (c + 1 > r0) s[4 * i + 1] = -1e30f;
            if (c > r0 + 8) s[4 * i + 2] = -1e30f;
            if (c + 1 > r0 + 8) s[4 * i + 3] = -1e30f;
          }
        }
#else
        if (y + BN > T) {
#pragma unroll
          for (int i = 0; i < BN / 8; i++) {
            int c = y + i * 8 + c0;
            if (c >= T) s[4 * i] = s[4 * i + 2] = -1e30f;
            if (c + 1 >= T) s[4 * i + 1] = s[4 * i + 3] = -1e30f;
          }
        }
#endif
        float a = m0, z = m1;
#pragma unroll
        for (int i = 0; i < BN / 8; i++) {
          a = fmaxf(a, fmaxf(s[4 * i], s[4 * i + 1]));
          z = fmaxf(z, fmaxf(s[4 * i + 2], s[4 * i + 3]));
        }
        a = quad_max(a);
        z = quad_max(z);
#if LAZY >= 0
        up = __any_sync(~0u, (a - m0) * sl2 > LAZY ||
                                 (z - m1) * sl2 >
                                     LAZY);  // a maximum grew by more than a factor 2^LAZY: rescale
#else
        up = true;
#endif
        if (up) {
          f = ex2((m0 - a) * sl2);
          g = ex2((m1 - z) * sl2);
          m0 = a;
          m1 = z;
          l0 *= f;
          l1 *= g;
        }
        a = m0 * sl2;
        z = m1 * sl2;
#pragma unroll
        for (int i = 0; i < BN / 8; i++) {
          s[4 * i] = ex2(s[4 * i] * sl2 - a);
          s[4 * i + 1] = ex2(s[4 * i + 1] * sl2 - a);
          s[4 * i + 2] = ex2(s[4 * i + 2] * sl2 - z);
          s[4 * i + 3] = ex2(s[4 * i + 3] * sl2 - z);
          l0 += s[4 * i] + s[4 * i + 1];
          l1 += s[4 * i + 2] + s[4 * i + 3];
        }
      };
      auto scale = [&]() {
        if (up) {
#pragma unroll
          for (int k = 0; k < D / 8; k++) {
            o[4 * k] *= f;
            o[4 * k + 1] *= f;
            o[4 * k + 2] *= g;
            o[4 * k + 3] *= g;
          }
        }
      };
      mb_wait(qf + 8 * qs, (qi / QS) & 1);
      qi++;
      int i = 0;
#if CAUSAL && SKIP
      for (; (n - 1 - i) * BN > rw + 63; i++) {  // blocks that this warpgroup cannot see
        mb_wait(kf + 8 * st, ph);
        mb_wait(vf + 8 * st, ph);
        if (lead) {
          mb_arrive(ke + 8 * st);
          mb_arrive(ve + 8 * st);
        }
        TURN_WAIT;
        TURN_PASS;
        if (++st == ST) {
          st = 0;
          ph ^= 1;
        }
      }
#endif
      mb_wait(kf + 8 * st, ph);
      wg_fence();
      gemm_ss<BM * 128, BN * 128>(s, qa, sk + st * TB);
      wg_commit();
#pragma unroll
      for (int k = 0; k < D / 2; k++) o[k] = 0;
      wg_wait<0>();
      keep<BN / 2>(s);
      if (lead) mb_arrive(ke + 8 * st);
      softmax((n - 1 - i) * BN);
      pack<BN>(p, s);
      u32 sp = st, pp = ph;
      if (++st == ST) {
        st = 0;
        ph ^= 1;
      }  // sp, pp: ring position of the V block that goes with p
      for (i++; i < n; i++) {
        mb_wait(kf + 8 * st, ph);
        TURN_WAIT;
        wg_fence();
        gemm_ss<BM * 128, BN * 128>(s, qa, sk + st * TB);
        wg_commit();
        scale();
        mb_wait(vf + 8 * sp, pp);
        wg_fence();
        gemm_rs<BN>(o, p, sv + sp * TB, 1);
        wg_commit();
        TURN_PASS;
        wg_wait<1>();
        keep<BN / 2>(s);
        if (lead) mb_arrive(ke + 8 * st);
        softmax((n - 1 - i) * BN);
        wg_wait<0>();
        keep<D / 2>(o);
        if (lead) mb_arrive(ve + 8 * sp);
        pack<BN>(p, s);
        sp = st;
        pp = ph;
        if (++st == ST) {
          st = 0;
          ph ^= 1;
        }
      }
      scale();
      mb_wait(vf + 8 * sp, pp);
      wg_fence();
      gemm_rs<BN>(o, p, sv + sp * TB, 1);
      wg_commit();
      l0 = quad_sum(l0);
      l1 = quad_sum(l1);
      wg_wait<0>();
      keep<D / 2>(o);
      if (lead) mb_arrive(ve + 8 * sp);
      if ((l & 3) == 0) {
        i64 z = (i64)bh * T;
        if (r0 < T) L[z + r0] = (m0 * sl2 + __log2f(l0)) * LN2;
        if (r0 + 8 < T) L[z + r0 + 8] = (m1 * sl2 + __log2f(l1)) * LN2;
      }
      bar_sync(8 + wg, 128);  // Q of this warpgroup is no longer read: stage O there
      stage_out<BM * 128>(qa, o, 1.f / l0, 1.f / l1, w, l);
      fence_async();
      bar_sync(8 + wg, 128);
      if (lead) {
        if (rw < T)
          for (int c = 0; c < D / 64; c++) tma_store(&to, qa + c * BM * 128, c * 64, h, rw, b);
        store_commit_wait_read();
        mb_arrive(qe + 8 * qs);
      }
    }
  }
}
