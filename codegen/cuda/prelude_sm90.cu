// prelude_sm90.cu - sm_90a: mbarriers, the tensor copy engine (TMA), warpgroup matrix instructions (wgmma).
// Tiles in shared memory: [rows][64] of 16-bit floats = 128-byte rows in the 128-byte
// swizzle (16-byte chunk c of row r at chunk c^(r%8)), start a multiple of 1024; a head of 128 is
// two such subtiles, rows*128 bytes apart. The swizzle is what TMA writes and wgmma reads.
struct __align__(64) TMap {
  u64 o[16];
};
DI void mb_init(u32 b, u32 n) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0],%1;" ::"r"(b), "r"(n) : "memory");
}
DI void mb_expect(u32 b, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _,[%0],%1;" ::"r"(b), "r"(bytes)
               : "memory");
}
DI void mb_arrive(u32 b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _,[%0];" ::"r"(b) : "memory");
}
DI void mb_wait(u32 b, u32 parity) {
  asm volatile(
      "{\n.reg .pred p;\nWAIT%=:\nmbarrier.try_wait.parity.shared::cta.b64 p,[%0],%1;\n@p bra.uni "
      "DONE%=;\nbra.uni WAIT%=;\nDONE%=:\n}" ::"r"(b),
      "r"(parity)
      : "memory");
}
// tensor map dimensions, fastest first: (head size, head, token, batch); box (64, 1, rows, 1)
DI void tma_load(u32 s, const TMap *m, int x, int y, int z, int w, u32 bar) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0],[%1,{%2,%3,%4,%5}],[%6];" ::"r"(s),
      "l"(m), "r"(x), "r"(y), "r"(z), "r"(w), "r"(bar)
      : "memory");
}
DI void tma_store(const TMap *m, u32 s, int x, int y, int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0,{%2,%3,%4,%5}],[%1];" ::"l"(
          m),
      "r"(s), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}
DI void bulk_load(u32 s, const void *g, u32 bytes, u32 bar) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1],%2,[%3];" ::"r"(
          s),
      "l"(g), "r"(bytes), "r"(bar)
      : "memory");
}
DI void store_commit_wait_read() {
  asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" ::: "memory");
}
DI void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
DI void bar_sync(int id, int n) { asm volatile("bar.sync %0,%1;" ::"r"(id), "r"(n) : "memory"); }
DI void bar_arrive(int id, int n) {
  asm volatile("bar.arrive %0,%1;" ::"r"(id), "r"(n) : "memory");
}
// Operand descriptors, 128-byte swizzle. K-major: contraction runs along the 128-byte row; 16 of it
// = +32 bytes; 8-row groups 1024 apart.
DI u64 desc_k(u32 a) {
  return (u64)((a & 0x3FFFF) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62);
}
// MN-major (transposed B): contraction runs down the rows, 8-row groups 1024 apart, 64-column
// subtiles `sub` bytes apart; 16 of it = +2048 bytes.
DI u64 desc_mn(u32 a, u32 sub) {
  return (u64)((a & 0x3FFFF) >> 4) | ((u64)(sub >> 4) << 16) | (64ull << 32) | (1ull << 62);
}
DI void wg_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DI void wg_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
DI void wg_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
// values of d are written by an instruction still in flight: forbids moving their uses above the
// wait before this call
template <int N>
DI void keep(float *d) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}
template <int N>
DI void keepu(u32 *d) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+r"(d[i])::"memory");
}
// s[64 x N] = A[64 x D] B[N x D]^T, both K-major; subtiles da, db bytes apart
template <int DA, int DB>
DI void gemm_ss(float *s, u32 a, u32 b) {
#pragma unroll
  for (int i = 0; i < D / 16; i++)
    wgS(s, desc_k(a + (i >> 2) * DA + (i & 3) * 32), desc_k(b + (i >> 2) * DB + (i & 3) * 32), i);
}
// o[64 x D] (+)= P[64 x N] B[N x D], P packed in registers, B rows = contraction
template <int N>
DI void gemm_rs(float *o, const u32 *p, u32 b, int acc) {
#pragma unroll
  for (int i = 0; i < N / 16; i++) wgO(o, p + 4 * i, desc_mn(b + i * 2048, N * 128), i ? 1 : acc);
}
// accumulators of a 64 x N product -> A fragments of the next: value pair of 8-column group i
template <int N>
DI void pack(u32 *p, const float *s) {
#pragma unroll
  for (int i = 0; i < N / 8; i++) {
    p[2 * i] = pk(s[4 * i], s[4 * i + 1]);
    p[2 * i + 1] = pk(s[4 * i + 2], s[4 * i + 3]);
  }
}
// this warpgroup's 64 x D result times f (rows l/4) and g (rows l/4+8) -> 16-bit floats in shared memory in
// the swizzled layout, subtiles DS apart
template <int DS>
DI void stage_out(u32 a, const float *o, float f, float g, int w, int l) {
  int r = w * 16 + (l >> 2);
#pragma unroll
  for (int k = 0; k < D / 8; k++) {
    u32 d = a + (k >> 3) * DS + r * 128 + (((k & 7) ^ (r & 7)) << 4) + (l & 3) * 4;
    st4(d, pk(o[4 * k] * f, o[4 * k + 1] * f));
    st4(d + 1024, pk(o[4 * k + 2] * g, o[4 * k + 3] * g));
  }
}
#define STR1(x) #x
#define STR(x) STR1(x)
#define REGS_DEC() asm volatile("setmaxnreg.dec.sync.aligned.u32 " STR(RP) ";")
#define REGS_INC() asm volatile("setmaxnreg.inc.sync.aligned.u32 " STR(RC) ";")
