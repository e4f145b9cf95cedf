/* cuda_gemm.c - GEMM commands through cuBLASLt: our workspace, no hidden memory, algorithms from a
 * table of measurements or by a fixed rule.
 *
 * Matrices of a Gemm are row-major; cuBLASLt's are column-major, where a row-major matrix is its
 * transpose. So C[M,N] = A B is computed as C^T = B^T A^T: B is the first operand, A the second,
 * and the stored bytes stay as they are.
 *
 * A long size that is no multiple of 8 (a vocabulary of 50,257) is cut into the largest multiple
 * and a rest, since kernels that move 16 bytes at a time are several times faster: rows and columns
 * side by side, contracted ones added after.
 *
 * The rule: the first algorithm of cuBLASLt's heuristic that needs no more than the plan's
 * workspace, without partial sums in the output's dtype. The query depends on shapes, dtypes and
 * alignment only, so that a recomputed or repeated product takes the same algorithm. The table
 * (gemm_table.h) is asked first, by a key of just these; it may also say that a product with a long
 * odd size is not cut. */
#include "cuda_parts.h"
#include <string.h>

static bool lt_ok(int status, const Cmd *c, const char *what, Fail *f) {
  if (status == 0) return true;
  return fail_set(f, EXIT_DEVICE, "%s (%s): cuBLASLt cannot %s: status %d", c->name, c->where, what,
                  status);
}

static int lt_type(DType t) {
  return t == DT_BF16 ? LT_R_16BF : t == DT_F16 ? LT_R_16F : LT_R_32F;
}

/* A row-major matrix as stored, `rows` rows of `cols`, as the column-major matrix cols x rows. */
static bool layout(const Cmd *c, const Gemm *m, LtMatrixLayout *l, DType t, int64_t rows,
                   int64_t cols, int64_t ld, int64_t step, Fail *f) {
  int32_t batch = (int32_t)m->batch;
  return lt_ok(lt.cublasLtMatrixLayoutCreate(l, lt_type(t), (uint64_t)cols, (uint64_t)rows, ld), c,
               "describe a matrix", f) &&
         (batch <= 1 ||
          (lt_ok(lt.cublasLtMatrixLayoutSetAttribute(*l, LT_LAYOUT_BATCH, &batch, sizeof batch), c,
                 "describe a batch", f) &&
           lt_ok(lt.cublasLtMatrixLayoutSetAttribute(*l, LT_LAYOUT_STRIDE, &step, sizeof step), c,
                 "describe a batch", f)));
}

/* Bytes from the start of the arena. */
static int64_t place(const Tensor *t, int64_t elements) {
  return t->offset + elements * dtype_bytes(t->dtype);
}

/* Largest power of two, up to 256, that divides the address wherever its buffer is placed. */
static uint32_t alignment(int64_t offset) {
  uint32_t align = 256;
  while (align > 1 && offset % align) align /= 2;
  return align;
}

static void alignments(const Cmd *c, const GemmPart *g, uint32_t align[3]) {
  align[0] = alignment(place(&c->tensors[1], g->offset_b));
  align[1] = alignment(place(&c->tensors[0], g->offset_a));
  align[2] = alignment(place(&c->tensors[2], g->offset_c));
}

uint64_t cuda_gemm_key(const Cmd *c, const GemmPart *g) {
  const Gemm *m = &g->m;
  uint32_t align[3];
  alignments(c, g, align);
  int64_t all[] = {m->batch,
                   m->m,
                   m->n,
                   m->k,
                   m->lda,
                   m->ldb,
                   m->ldc,
                   m->step_a,
                   m->step_b,
                   m->step_c,
                   m->trans_a,
                   m->trans_b,
                   m->accumulate,
                   m->tf32,
                   c->tensors[0].dtype,
                   c->tensors[1].dtype,
                   c->tensors[2].dtype,
                   align[0],
                   align[1],
                   align[2],
                   c->workspace_bytes};
  return hash_bytes(all, sizeof all, 0);
}

const char *cuda_gemm_text(Arena *a, const Cmd *c, const GemmPart *g) {
  const Gemm *m = &g->m;
  return arena_printf(a, "%lldx %lldx%lldx%lld %s%s %s>%s%s%s", (long long)m->batch,
                      (long long)m->m, (long long)m->n, (long long)m->k, m->trans_a ? "T" : "N",
                      m->trans_b ? "T" : "N", dtype_name(c->tensors[0].dtype),
                      dtype_name(c->tensors[2].dtype), m->accumulate ? " +=" : "",
                      m->tf32 ? " tf32" : "");
}

int cuda_gemm_candidates(Device *d, const Cmd *c, const GemmPart *g, int most, LtHeuristic *to,
                         Fail *f) {
  LtPreference pref = NULL;
  uint64_t workspace = (uint64_t)c->workspace_bytes;
  uint32_t reduction = LT_REDUCTION_NOT_OUTPUT_TYPE, align[3];
  alignments(c, g, align);
  int found = 0;
  bool ok = lt_ok(lt.cublasLtMatmulPreferenceCreate(&pref), c, "make a preference", f) &&
            lt_ok(lt.cublasLtMatmulPreferenceSetAttribute(pref, LT_PREF_WORKSPACE, &workspace, 8),
                  c, "bound its workspace", f) &&
            lt_ok(lt.cublasLtMatmulPreferenceSetAttribute(pref, LT_PREF_REDUCTION, &reduction, 4),
                  c, "bound its reductions", f);
  static const int attributes[] = {LT_PREF_ALIGN_A, LT_PREF_ALIGN_B, LT_PREF_ALIGN_C,
                                   LT_PREF_ALIGN_D};
  for (int i = 0; ok && i < COUNT_OF(attributes); i++)
    ok = lt_ok(
        lt.cublasLtMatmulPreferenceSetAttribute(pref, attributes[i], &align[i < 2 ? i : 2], 4), c,
        "take an alignment", f);
  ok = ok && lt_ok(lt.cublasLtMatmulAlgoGetHeuristic(d->lt, g->desc, g->a, g->b, g->c, g->c, pref,
                                                     most, to, &found),
                   c, "choose an algorithm", f);
  int good = 0;
  for (int i = 0; ok && i < found; i++)
    if (!to[i].state) to[good++] = to[i];
  if (ok && !good)
    fail_set(f, EXIT_DEVICE, "%s (%s): cuBLASLt has no algorithm for this product", c->name,
             c->where);
  if (pref) lt.cublasLtMatmulPreferenceDestroy(pref);
  return good;
}

/* Takes the table's algorithm, when the library still knows it and it fits. */
static bool take_recorded(Device *d, const Cmd *c, GemmPart *g) {
  const GemmChoice *choice = gemm_table_find(&d->gemms, cuda_gemm_key(c, g));
  if (!choice) return false;
  LtAlgo algo;
  LtHeuristic r = {0};
  memcpy(&algo, choice->algo, sizeof algo);
  if (lt.cublasLtMatmulAlgoCheck(d->lt, g->desc, g->a, g->b, g->c, g->c, &algo, &r) != 0 ||
      r.state || r.workspace > (size_t)c->workspace_bytes)
    return false;
  g->algo = algo;
  g->workspace = r.workspace;
  return true;
}

static bool choose(Device *d, const Cmd *c, GemmPart *g, Fail *f) {
  if (take_recorded(d, c, g)) return true;
  LtHeuristic best = {0};
  if (!cuda_gemm_candidates(d, c, g, 1, &best, f)) return false;
  g->algo = best.algo;
  g->workspace = best.workspace;
  return true;
}

bool cuda_gemm_part(Device *d, const Cmd *c, GemmPart *g, Fail *f) {
  const Gemm *m = &g->m;
  const Tensor *t = c->tensors;
  int32_t op_b = m->trans_b, op_a = m->trans_a;
  g->beta = m->accumulate ? 1 : 0;
  return lt_ok(lt.cublasLtMatmulDescCreate(&g->desc, m->tf32 ? LT_COMPUTE_TF32 : LT_COMPUTE_F32,
                                           LT_R_32F),
               c, "describe a product", f) &&
         lt_ok(lt.cublasLtMatmulDescSetAttribute(g->desc, LT_DESC_TRANSA, &op_b, 4), c, "transpose",
               f) &&
         lt_ok(lt.cublasLtMatmulDescSetAttribute(g->desc, LT_DESC_TRANSB, &op_a, 4), c, "transpose",
               f) &&
         layout(c, m, &g->a, t[1].dtype, m->trans_b ? m->n : m->k, m->trans_b ? m->k : m->n, m->ldb,
                m->step_b, f) &&
         layout(c, m, &g->b, t[0].dtype, m->trans_a ? m->k : m->m, m->trans_a ? m->m : m->k, m->lda,
                m->step_a, f) &&
         layout(c, m, &g->c, t[2].dtype, m->m, m->n, m->ldc, m->step_c, f) && choose(d, c, g, f);
}

/* ---- cutting ---- */
enum { VECTOR = 8, LONG = 512 };
static bool awkward(int64_t n) {
  return n > LONG && n % VECTOR;
}

static bool vectors(const Cmd *c) {
  const Gemm *m = &c->gemm;
  bool ok = m->lda % VECTOR == 0 && m->ldb % VECTOR == 0 && m->ldc % VECTOR == 0 &&
            c->tensors[0].dtype != DT_F32;
  for (int i = 0; i < 3; i++) ok = ok && c->tensors[i].offset % 16 == 0;
  return ok;
}

static void cut(const Cmd *c, CudaGemm *g) {
  const Gemm *m = &c->gemm;
  GemmPart *main = &g->part[0], *rest = &g->part[1];
  main->m = rest->m = *m;
  g->nparts = 1;
  /* Only along rows as they lie in memory does it matter. */
  bool in_n = awkward(m->n), in_m = m->trans_a && awkward(m->m),
       in_k = (!m->trans_a || m->trans_b) && awkward(m->k);
  if (!vectors(c) || !(in_n || in_m || in_k)) return;
  g->nparts = 2;
  if (in_n) {
    int64_t n = main->m.n = m->n / VECTOR * VECTOR;
    rest->m.n = m->n - n;
    rest->offset_b = m->trans_b ? n * m->ldb : n;
    rest->offset_c = n;
  } else if (in_m) {
    int64_t rows = main->m.m = m->m / VECTOR * VECTOR;
    rest->m.m = m->m - rows;
    rest->offset_a = m->trans_a ? rows : rows * m->lda;
    rest->offset_c = rows * m->ldc;
  } else {
    int64_t k = main->m.k = m->k / VECTOR * VECTOR;
    rest->m.k = m->k - k;
    rest->m.accumulate = true;
    rest->offset_a = m->trans_a ? k * m->lda : k;
    rest->offset_b = m->trans_b ? k : k * m->ldb;
  }
}

GemmPart cuda_gemm_whole(const Cmd *c) {
  return (GemmPart){.m = c->gemm};
}

bool cuda_gemm_ready(Device *d, const Cmd *c, CudaGemm *g, Fail *f) {
  cut(c, g);
  GemmPart whole = cuda_gemm_whole(c);
  if (g->nparts > 1 && gemm_table_find(&d->gemms, cuda_gemm_key(c, &whole))) {
    g->part[0] = whole;
    g->nparts = 1;
  }
  bool ok = true;
  for (int i = 0; ok && i < g->nparts; i++) ok = cuda_gemm_part(d, c, &g->part[i], f);
  return ok;
}

bool cuda_gemm_open(Device *d, Fail *f) {
  char name[256] = "";
  if (!cublaslt_load(f)) return false;
  if (lt.cublasLtCreate(&d->lt) != 0) return fail_set(f, EXIT_DEVICE, "cuBLASLt cannot be started");
  cu.cuDeviceGetName(name, sizeof name, d->ordinal);
  d->gemms = gemm_table_new(
      d->memory, arena_printf(d->memory, "%s, cuBLASLt %zu", name, lt.cublasLtGetVersion()));
  const char *recorded = d->options.algorithms;
  if (!recorded || !gemm_table_read(&d->gemms, recorded))
    gemm_table_read(&d->gemms, gemm_table_path(d->memory, d->gemms.machine));
  return true;
}

int cuda_gemm_multiply(Device *d, const Cmd *c, const GemmPart *g, const LtAlgo *algo,
                       size_t workspace) {
  static const float alpha = 1;
  const Tensor *t = c->tensors;
  CUdeviceptr a = device_at(d, place(&t[0], g->offset_a)),
              b = device_at(d, place(&t[1], g->offset_b)),
              out = device_at(d, place(&t[2], g->offset_c));
  return lt.cublasLtMatmul(d->lt, g->desc, &alpha, b, g->a, a, g->b, &g->beta, out, g->c, out, g->c,
                           algo, device_at(d, c->workspace_offset), workspace, d->stream);
}

bool cuda_gemm_run(Device *d, const Cmd *c, const CudaGemm *g, Fail *f) {
  for (int i = 0; i < g->nparts; i++) {
    const GemmPart *p = &g->part[i];
    if (!lt_ok(cuda_gemm_multiply(d, c, p, &p->algo, p->workspace), c, "multiply", f)) return false;
  }
  return true;
}

void cuda_gemm_drop_part(GemmPart *p) {
  if (p->desc) lt.cublasLtMatmulDescDestroy(p->desc);
  if (p->a) lt.cublasLtMatrixLayoutDestroy(p->a);
  if (p->b) lt.cublasLtMatrixLayoutDestroy(p->b);
  if (p->c) lt.cublasLtMatrixLayoutDestroy(p->c);
}

void cuda_gemm_drop(CudaGemm *g) {
  for (int i = 0; i < g->nparts; i++) cuda_gemm_drop_part(&g->part[i]);
}
