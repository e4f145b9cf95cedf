// prelude.cu - types and inline-PTX wrappers shared by the attention kernels; includes no header. Tensors of 16-bit floats
// are u16*, bf16 or with HALF f16; "u32 shared address" is an address in the shared window.
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;
typedef long long i64;
#define LOG2E 1.4426950408889634f
#define LN2 0.6931471805599453f
#define DI __device__ __forceinline__
DI u32 smp(const void *p) { return (u32)__cvta_generic_to_shared(p); }
// two floats -> one register of two 16-bit floats, a in the low half (lower column); lo and hi back
#if HALF
#define MMA_IN "f16.f16"
DI u32 pk(float a, float b) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0,%1,%2;" : "=r"(r) : "f"(b), "f"(a));
  return r;
}
DI float lo(u32 x) {
  float y;
  asm("{\n.reg .b16 a,b;\nmov.b32 {a,b},%1;\ncvt.f32.f16 %0,a;\n}" : "=f"(y) : "r"(x));
  return y;
}
DI float hi(u32 x) {
  float y;
  asm("{\n.reg .b16 a,b;\nmov.b32 {a,b},%1;\ncvt.f32.f16 %0,b;\n}" : "=f"(y) : "r"(x));
  return y;
}
#else
#define MMA_IN "bf16.bf16"
DI u32 pk(float a, float b) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0,%1,%2;" : "=r"(r) : "f"(b), "f"(a));
  return r;
}
DI float lo(u32 x) { return __uint_as_float(x << 16); }
DI float hi(u32 x) { return __uint_as_float(x & 0xffff0000u); }
#endif
DI float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x));
  return y;
}
DI float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
DI float quad_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}
// hides a value from loop-invariant hoisting: what is computed from it is recomputed, not kept in
// registers
template <class X>
DI X opaque(X x) {
  asm volatile("" : "+r"(x));
  return x;
}
// thread number read again, so that nothing derived from it need stay in a register across a main
// loop
DI int tid() {
  int x;
  asm volatile("mov.u32 %0,%%tid.x;" : "=r"(x));
  return x;
}
// 16-byte shared/global moves
DI void st4(u32 a, u32 x) { asm volatile("st.shared.b32 [%0],%1;" ::"r"(a), "r"(x) : "memory"); }
DI void ld16(u32 *r, u32 a) {
  asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3},[%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(a));
}
DI void stg16(void *p, const u32 *r) {
  asm volatile("st.global.v4.b32 [%0],{%1,%2,%3,%4};" ::"l"(p), "r"(r[0]), "r"(r[1]), "r"(r[2]),
               "r"(r[3])
               : "memory");
}
DI void ldg16(u32 *r, const void *p) {
  asm volatile("ld.global.nc.v4.b32 {%0,%1,%2,%3},[%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "l"(p));
}
DI void ld8f(float &x, float &y, u32 a) {
  asm volatile("ld.shared.v2.f32 {%0,%1},[%2];" : "=f"(x), "=f"(y) : "r"(a));
}
// ---- sm_80: cp.async, ldmatrix, mma.sync ----
// copy 16 bytes global -> shared; ok=false writes zeros instead (rows past T)
DI void cpa(u32 d, const void *s, bool ok) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0],[%1],16,%2;" ::"r"(d), "l"(s),
               "r"(ok ? 16 : 0)
               : "memory");
}
DI void cp_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
DI void cp_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
DI void ldm4(u32 *r, u32 a) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(a)
               : "memory");
}
DI void ldm4t(u32 *r, u32 a) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(a)
               : "memory");
}
// c[16x8] += a[16x16] b[16x8].  Lane l holds of c: row l/4 cols 2(l%4),+1 in c[0],c[1]; row l/4+8
// in c[2],c[3].
DI void mma(float *c, const u32 *a, const u32 *b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32." MMA_IN ".f32 "
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// Shared tile [rows][PITCH] of 16-bit floats with 16-byte chunks xor-swizzled by row%8 (conflict-free ldmatrix, D =
// 64 or 128). Tiles start at a multiple of 1024 bytes, so chunk c+2i of a row is at (offset of
// chunk c) ^ (i<<5).
DI u32 off(int row, int ch) { return row * (PITCH * 2) + ((ch ^ (row & 7)) << 4); }
