/* check.c - device_check: runs every emitted kernel on the GPU against references in f64, then
 * measures.
 *
 * usage: device_check [check] [small] [attention] [loops] [products] - default: all. `small`: a
 * subset for compute-sanitizer. Exit code 1 when a check failed, or a kernel of `loops` that moves
 * 64 MiB or more or of `attention` is below its bar. */
#include "device_case.h"

#include "ir/philox.h"

/* ---- attention ---- */
typedef struct {
  DType t;
  int64_t batch, tq, tk, heads, kv, head;
  bool causal, mask, sliced, mma;
  double drop;
  DType bias; /* of the additive bias; DT_BOOL = none */
} AttShape;

/* What dropout of the checks draws from. */
enum { SEED0 = 12345, SEED1 = 678, STEP = 7, SAMPLE0 = 3 };
static const uint64_t drop_key = 0x123456789abcdefull;

typedef struct {
  DeviceCase *c;
  int index;
  AttShape s;
  Tensor q, k, v, o, lse, mask, bias, seed, step, sample0, grad, dq, dk, dv, dbias;
} AttCase;

/* Three tensors as slices of one [B, T, 3 * heads * head]. */
static void take_qkv(DeviceCase *c, const AttShape *s, Tensor *q, Tensor *k, Tensor *v) {
  Shape sq = SHAPE(s->batch, s->tq, s->heads, s->head), sk = SHAPE(s->batch, s->tk, s->kv, s->head);
  if (!s->sliced) {
    *q = case_tensor(c, s->t, sq);
    *k = case_tensor(c, s->t, sk);
    *v = case_tensor(c, s->t, sk);
    return;
  }
  int64_t width = (s->heads + 2 * s->kv) * s->head, e = dtype_bytes(s->t);
  int64_t at = case_take(c, s->batch * s->tq * width * e);
  *q = tensor_at(at, s->t, sq);
  *k = tensor_at(at + s->heads * s->head * e, s->t, sk);
  *v = tensor_at(at + (s->heads + s->kv) * s->head * e, s->t, sk);
  Tensor *all[] = {q, k, v};
  for (int i = 0; i < 3; i++) all[i]->stride[1] = width, all[i]->stride[0] = width * s->tq;
}

static AttCase *attention_case(Bench *b, AttShape s) {
  AttCase *x = arena_new_of(b->a, AttCase);
  x->index = b->n;
  x->s = s;
  DeviceCase *c = x->c = case_new(
      b, arena_printf(b->a, "%s %s B%lld T%lld/%lld H%lld/%lld D%lld%s%s%s%s%s", dtype_name(s.t),
                      s.mma ? "mma" : "best", (long long)s.batch, (long long)s.tq, (long long)s.tk,
                      (long long)s.heads, (long long)s.kv, (long long)s.head,
                      s.causal ? " causal" : "", s.mask ? " mask" : "", s.sliced ? " sliced" : "",
                      s.drop > 0 ? " drop" : "",
                      s.bias == DT_BOOL ? "" : arena_printf(b->a, " bias %s", dtype_name(s.bias))));
  take_qkv(c, &s, &x->q, &x->k, &x->v);
  take_qkv(c, &s, &x->dq, &x->dk, &x->dv);
  Shape so = SHAPE(s.batch, s.tq, s.heads, s.head);
  x->o = case_tensor(c, s.t, so);
  x->grad = case_tensor(c, s.t, so);
  x->lse = case_tensor(c, DT_F32, SHAPE(s.batch, s.heads, s.tq));
  if (s.mask) x->mask = case_tensor(c, DT_BOOL, SHAPE(s.batch, s.tk));
  Tensor fwd[10] = {x->q, x->k, x->v}, bwd[16] = {x->q, x->k, x->v, x->o, x->lse, x->grad};
  int nf = 3, nb = 6;
  if (s.mask) fwd[nf++] = bwd[nb++] = x->mask;
  if (s.bias != DT_BOOL) {
    x->bias = fwd[nf++] = bwd[nb++] = case_tensor(c, s.bias, SHAPE(s.heads, s.tq, s.tk));
    x->dbias = case_tensor(c, s.bias, SHAPE(s.heads, s.tq, s.tk));
  }
  if (s.drop > 0) {
    x->seed = fwd[nf++] = bwd[nb++] = case_tensor(c, DT_U32, SHAPE(2));
    x->step = fwd[nf++] = bwd[nb++] = case_tensor(c, DT_I32, SHAPE(1));
    x->sample0 = fwd[nf++] = bwd[nb++] = case_tensor(c, DT_I32, SHAPE(1));
  }
  fwd[nf++] = x->o, fwd[nf++] = x->lse;
  bwd[nb++] = x->dq, bwd[nb++] = x->dk, bwd[nb++] = x->dv;
  if (s.bias != DT_BOOL) bwd[nb++] = x->dbias;
  cuda_build_no_wgmma(b->build, s.mma);
  for (int back = 0; back < 2; back++) {
    Cmd *m =
        case_cmd(b, c, back ? CMD_ATTENTION_BWD : CMD_ATTENTION, back ? nb : nf, back ? bwd : fwd);
    m->attention = (Attention){.causal = s.causal,
                               .has_mask = s.mask,
                               .has_bias = s.bias != DT_BOOL,
                               .has_drop = s.drop > 0,
                               .drop = s.drop,
                               .key = drop_key,
                               .scale = 1 / sqrt((double)s.head)};
    const char *why = NULL;
    cmd_workspace(c, m, cuda_attention_bytes(m));
    if (!cuda_build_attention(b->build, m, &why)) bug("%s: %s", c->name, why);
  }
  return x;
}

typedef struct {
  double *q, *k, *v, *g, *o, *lse, *dq, *dk, *dv, *mask, *bias, *dbias;
} AttValues;

static bool sees(const AttShape *s, const AttValues *x, int64_t b, int64_t i, int64_t j) {
  return (!s->causal || j <= i) && (!s->mask || x->mask[b * s->tk + j] != 0);
}

/* What dropout multiplies a probability with. */
static double draw_of(const AttShape *s, int64_t b, int64_t element) {
  if (s->drop <= 0) return 1;
  float keep = (float)(1 - s->drop);
  unsigned bits =
      philox_bits(SEED0, SEED1, drop_key, STEP, (unsigned)(SAMPLE0 + b), (uint64_t)element);
  return philox_uniform(bits) < keep ? 1 / keep : 0;
}

/* One query: its row of the results, its part of the sums. p, dp: a row of keys each. */
static void reference_query(const AttShape *s, AttValues *x, int64_t b, int64_t h, int64_t i,
                            double *p, double *dp) {
  int64_t d = s->head, kv = h / (s->heads / s->kv), qi = ((b * s->tq + i) * s->heads + h) * d;
  int64_t row = (h * s->tq + i) * s->tk;
  double scale = 1 / sqrt((double)d), top = -INFINITY, sum = 0, delta = 0;
  for (int64_t j = 0; j < s->tk; j++) {
    if (!sees(s, x, b, i, j)) continue;
    int64_t kj = ((b * s->tk + j) * s->kv + kv) * d;
    double dot = 0, grad = 0;
    for (int64_t e = 0; e < d; e++)
      dot += x->q[qi + e] * x->k[kj + e], grad += x->g[qi + e] * x->v[kj + e];
    p[j] = dot * scale + (x->bias ? x->bias[row + j] : 0), dp[j] = grad;
    top = fmax(top, p[j]);
  }
  for (int64_t j = 0; j < s->tk; j++)
    if (sees(s, x, b, i, j)) sum += p[j] = exp(p[j] - top);
  x->lse[(b * s->heads + h) * s->tq + i] = sum > 0 ? top + log(sum) : 0;
  for (int64_t j = 0; j < s->tk; j++) {
    if (!sees(s, x, b, i, j)) continue;
    int64_t kj = ((b * s->tk + j) * s->kv + kv) * d;
    double drawn = draw_of(s, b, row + j);
    p[j] /= sum, dp[j] *= drawn;
    delta += p[j] * dp[j];
    for (int64_t e = 0; e < d; e++)
      x->o[qi + e] += p[j] * drawn * x->v[kj + e], x->dv[kj + e] += p[j] * drawn * x->g[qi + e];
  }
  for (int64_t j = 0; j < s->tk; j++) {
    if (!sees(s, x, b, i, j)) continue;
    int64_t kj = ((b * s->tk + j) * s->kv + kv) * d;
    double ds = p[j] * (dp[j] - delta);
    if (x->bias) x->dbias[row + j] += ds;
    for (int64_t e = 0; e < d; e++)
      x->dq[qi + e] += ds * scale * x->k[kj + e], x->dk[kj + e] += ds * scale * x->q[qi + e];
  }
}

static AttValues attention_reference(Arena *a, const AttShape *s) {
  int64_t nq = s->batch * s->tq * s->heads * s->head, nk = s->batch * s->tk * s->kv * s->head;
  AttValues x = {.q = draw_values(a, s->t, nq, -3, 3),
                 .k = draw_values(a, s->t, nk, -3, 3),
                 .v = draw_values(a, s->t, nk, -1, 1),
                 .g = draw_values(a, s->t, nq, -1, 1)};
  x.o = arena_array(a, double, nq), x.dq = arena_array(a, double, nq);
  x.dk = arena_array(a, double, nk), x.dv = arena_array(a, double, nk);
  x.lse = arena_array(a, double, s->batch * s->heads * s->tq);
  x.mask = draw_values(a, DT_BOOL, s->batch * s->tk, 0, 2);
  for (int64_t j = 0; s->batch > 1 && j < s->tk; j++)
    x.mask[s->tk + j] = 0; /* no key is open to sample 1 */
  if (s->bias != DT_BOOL) {
    x.bias = draw_values(a, s->bias, s->heads * s->tq * s->tk, -2, 2);
    x.dbias = arena_array(a, double, s->heads * s->tq * s->tk);
  }
  double *rows = arena_array(a, double, s->kv * 2 * s->tk);
  int64_t rep = s->heads / s->kv;
#pragma omp parallel for
  for (int64_t kv = 0; kv < s->kv; kv++) /* what a key head sums is summed by one thread */
    for (int64_t b = 0; b < s->batch; b++)
      for (int64_t i = 0; i < rep * s->tq; i++)
        reference_query(s, &x, b, kv * rep + i / s->tq, i % s->tq, rows + kv * 2 * s->tk,
                        rows + (kv * 2 + 1) * s->tk);
  return x;
}

static void check_attention(Bench *b, AttCase *x) {
  Arena *a = arena_new();
  const AttShape *s = &x->s;
  AttValues want = attention_reference(a, s);
  struct {
    const char *name;
    const Tensor *t;
    const double *want;
  } out[] = {{"o", &x->o, want.o},    {"lse", &x->lse, want.lse}, {"dq", &x->dq, want.dq},
             {"dk", &x->dk, want.dk}, {"dv", &x->dv, want.dv},    {"dbias", &x->dbias, want.dbias}};
  int nout = COUNT_OF(out) - !want.dbias;
  double *first[COUNT_OF(out)], error[COUNT_OF(out)] = {0};
  for (int run = 0; run < 2; run++) {
    poison(b, x->c);
    put_tensor(b, &x->q, want.q);
    put_tensor(b, &x->k, want.k);
    put_tensor(b, &x->v, want.v);
    put_tensor(b, &x->grad, want.g);
    if (s->mask) put_tensor(b, &x->mask, want.mask);
    if (want.bias) put_tensor(b, &x->bias, want.bias);
    if (s->drop > 0) {
      put_tensor(b, &x->seed, (double[]){SEED0, SEED1});
      put_tensor(b, &x->step, (double[]){STEP});
      put_tensor(b, &x->sample0, (double[]){SAMPLE0});
    }
    run_case(b, x->index);
    for (int i = 0; i < nout; i++) {
      double *got = get_tensor(b, a, out[i].t);
      int64_t n = tensor_count(out[i].t);
      if (!run) {
        first[i] = got;
        double limit = s->t == DT_F32 || i == 1 ? 1e-5 : i == 0 ? 4e-3 : 1e-2;
        judge(b, x->c->name, out[i].name, error[i] = distance(n, got, out[i].want), limit);
      } else if (memcmp(got, first[i], sizeof *got * (size_t)n)) {
        judge(b, x->c->name, arena_printf(a, "%s of a second run", out[i].name),
              distance(n, got, first[i]), -1);
      }
    }
  }
  printf("attention  %-46s o %.1e lse %.1e dq %.1e dk %.1e dv %.1e dbias %.1e\n", x->c->name,
         error[0], error[1], error[2], error[3], error[4], error[5]);
  arena_free(a);
}

/* ---- products ---- */
typedef struct {
  DeviceCase *c;
  int index;
  Gemm m;
  Tensor a, b, out;
} GemmCase;

/* Long rows are padded, as the planner does it. */
static int64_t line(int64_t n) {
  return n > 512 ? round_up(n, 64) : n;
}

static Tensor matrix(DeviceCase *c, DType t, int64_t batch, int64_t rows, int64_t cols,
                     int64_t ld) {
  Tensor x = case_tensor(c, t, SHAPE(batch, rows, ld));
  x.dim[2] = cols;
  return x;
}

static GemmCase *gemm_case(Bench *b, Gemm m, DType in, DType out) {
  GemmCase *x = arena_new_of(b->a, GemmCase);
  x->index = b->n;
  m.lda = line(m.trans_a ? m.m : m.k);
  m.ldb = line(m.trans_b ? m.k : m.n);
  m.ldc = line(m.n);
  m.step_a = (m.trans_a ? m.k : m.m) * m.lda, m.step_b = (m.trans_b ? m.n : m.k) * m.ldb,
  m.step_c = m.m * m.ldc;
  x->m = m;
  x->c =
      case_new(b, arena_printf(b->a, "%lldx %lldx%lldx%lld %s%s %s>%s%s%s", (long long)m.batch,
                               (long long)m.m, (long long)m.n, (long long)m.k,
                               m.trans_a ? "T" : "N", m.trans_b ? "T" : "N", dtype_name(in),
                               dtype_name(out), m.accumulate ? " +=" : "", m.tf32 ? " tf32" : ""));
  x->a = matrix(x->c, in, m.batch, m.trans_a ? m.k : m.m, m.trans_a ? m.m : m.k, m.lda);
  x->b = matrix(x->c, in, m.batch, m.trans_b ? m.n : m.k, m.trans_b ? m.k : m.n, m.ldb);
  x->out = matrix(x->c, out, m.batch, m.m, m.n, m.ldc);
  Cmd *cmd = case_cmd(b, x->c, CMD_GEMM, 3, (Tensor[]){x->a, x->b, x->out});
  cmd->gemm = m;
  cmd_workspace(x->c, cmd, b->target->workspace_bytes);
  return x;
}

static void check_gemm(Bench *b, GemmCase *x) {
  Arena *a = arena_new();
  const Gemm *m = &x->m;
  double *va = draw_values(a, x->a.dtype, m->batch * m->m * m->k, -1, 1),
         *vb = draw_values(a, x->b.dtype, m->batch * m->k * m->n, -1, 1);
  double *want = draw_values(a, x->out.dtype, m->batch * m->m * m->n, -1, 1);
  poison(b, x->c);
  put_tensor(b, &x->a, va);
  put_tensor(b, &x->b, vb);
  if (m->accumulate) put_tensor(b, &x->out, want);
#pragma omp parallel for
  for (int64_t i = 0; i < m->batch * m->m; i++)
    for (int64_t j = 0; j < m->n; j++) {
      int64_t n = i / m->m, r = i % m->m;
      const double *pa = va + n * m->m * m->k, *pb = vb + n * m->k * m->n;
      double sum = m->accumulate ? want[i * m->n + j] : 0;
      for (int64_t k = 0; k < m->k; k++)
        sum += pa[m->trans_a ? k * m->m + r : r * m->k + k] *
               pb[m->trans_b ? j * m->k + k : k * m->n + j];
      want[i * m->n + j] = sum;
    }
  run_case(b, x->index);
  double error = distance(m->batch * m->m * m->n, get_tensor(b, a, &x->out), want);
  double limit = x->out.dtype != DT_F32 ? 1e-2 : m->tf32 ? 2e-3 : 1e-5;
  judge(b, x->c->name, "the product", error, limit);
  printf("gemm       %-46s %.1e\n", x->c->name, error);
  arena_free(a);
}

/* ---- the checks ---- */
static const AttShape att_shapes[] = {
    {DT_BF16, 1, 5, 5, 1, 1, 64, true, false, false, false, 0, DT_BOOL},
    {DT_BF16, 2, 77, 77, 4, 4, 64, true, false, true, false, 0, DT_BOOL},
    {DT_BF16, 1, 1000, 1000, 4, 2, 128, true, false, false, false, 0, DT_BOOL},
    {DT_BF16, 2, 384, 384, 2, 1, 96, false, false, false, false, 0, DT_BOOL},
    {DT_BF16, 2, 129, 129, 4, 4, 80, true, false, false, false, 0, DT_BOOL},
    {DT_BF16, 1, 1000, 1000, 2, 2, 64, false, false, true, false, 0, DT_BOOL},
    {DT_BF16, 1, 1100, 1100, 2, 2, 64, true, false, true, false, 0, DT_BOOL},
    {DT_BF16, 1, 1000, 1000, 4, 2, 128, true, false, false, true, 0, DT_BOOL},
    {DT_BF16, 2, 384, 384, 2, 1, 96, false, false, false, true, 0, DT_BOOL},
    {DT_BF16, 2, 129, 129, 4, 4, 80, true, false, false, true, 0, DT_BOOL},
    {DT_BF16, 1, 1000, 1000, 2, 2, 64, false, false, true, true, 0, DT_BOOL},
    {DT_BF16, 2, 777, 777, 2, 2, 64, true, false, true, true, 0, DT_BOOL},
    {DT_BF16, 2, 200, 200, 2, 2, 16, true, false, false, false, 0, DT_BOOL},
    {DT_BF16, 2, 200, 200, 2, 2, 32, false, false, false, false, 0, DT_BOOL},
    {DT_BF16, 2, 300, 300, 4, 2, 64, false, true, false, false, 0, DT_BOOL},
    {DT_BF16, 2, 300, 300, 2, 2, 128, true, true, false, false, 0, DT_BOOL},
    {DT_BF16, 2, 100, 300, 2, 2, 64, false, false, false, false, 0, DT_BOOL},
    {DT_F32, 2, 77, 77, 4, 2, 64, true, false, true, false, 0, DT_BOOL},
    {DT_F32, 2, 200, 200, 2, 2, 80, false, true, false, false, 0, DT_BOOL},
    {DT_F32, 1, 300, 300, 2, 2, 128, true, false, false, false, 0, DT_BOOL},
    {DT_F32, 1, 100, 130, 2, 1, 20, false, false, false, false, 0, DT_BOOL},
    {DT_F16, 2, 777, 777, 4, 2, 64, true, false, true, false, 0, DT_BOOL},
    {DT_F16, 1, 1000, 1000, 2, 2, 128, true, false, false, false, 0, DT_BOOL},
    {DT_F16, 1, 500, 500, 2, 2, 64, false, false, false, false, 0, DT_BOOL},
    {DT_F16, 2, 384, 384, 2, 1, 96, false, false, false, true, 0, DT_BOOL},
    {DT_F16, 2, 300, 300, 2, 2, 64, true, true, true, true, 0, DT_BOOL},
    {DT_F32, 2, 77, 77, 4, 2, 64, true, false, true, false, 0.1, DT_BOOL},
    {DT_F32, 2, 70, 99, 4, 2, 32, false, true, false, false, 0.25, DT_F32},
    {DT_F32, 3, 130, 130, 2, 2, 64, true, false, false, false, 0, DT_F32},
    {DT_BF16, 2, 300, 300, 4, 4, 64, true, false, true, false, 0.1, DT_BOOL},
    {DT_BF16, 3, 100, 132, 4, 4, 64, false, true, false, false, 0.1, DT_BF16},
    {DT_BF16, 2, 200, 200, 2, 2, 128, true, false, false, false, 0, DT_F32},
    {DT_F16, 2, 201, 201, 2, 2, 64, false, false, false, false, 0.2, DT_F16},
    {DT_BF16, 2, 300, 300, 4, 2, 64, true, false, true, false, 0, DT_BF16},
    {DT_BF16, 3, 201, 130, 2, 2, 128, false, false, false, false, 0, DT_BF16},
    {DT_BF16, 2, 90, 90, 2, 2, 20, true, false, false, false, 0, DT_BOOL},
};

typedef struct {
  VEC(AttCase *) att;
  VEC(LoopCase *) loop;
  VEC(GemmCase *) gemm;
  VEC(ScatterCase *) scatter;
} Checks;

static void add_gemm(Bench *b, Checks *k, Gemm m, DType in, DType out) {
  vec_push(b->a, &k->gemm, gemm_case(b, m, in, out));
}
static void add_scatter(Bench *b, Checks *k, int64_t n, int64_t rows, int64_t cols, DType in,
                        DType out, bool add) {
  vec_push(b->a, &k->scatter, scatter_case(b, n, rows, cols, in, out, add));
}

static void add_checks(Bench *b, Checks *k, bool small) {
  for (int i = 0; i < COUNT_OF(att_shapes); i++)
    if (!small || i % 3 == 1) vec_push(b->a, &k->att, attention_case(b, att_shapes[i]));
  static const struct {
    int64_t rows, cols;
    DType t;
  } sizes[] = {{77, 768, DT_BF16},  {40, 1000, DT_F32}, {33, 64, DT_F32},
               {24, 5056, DT_BF16}, {700, 320, DT_F32}, {77, 768, DT_F16}};
  for (int r = 0; r < COUNT_OF(kernel_graph_rows); r++)
    for (int i = 0; i < (small ? 2 : COUNT_OF(sizes)); i++)
      vec_push(b->a, &k->loop, loop_case(b, r, sizes[i].rows, sizes[i].cols, sizes[i].t));
  for (int i = 0; i < (small ? 0 : 32); i++) {
    Gemm m = {.batch = i & 4 ? 3 : 1,
              .m = 72,
              .n = 56,
              .k = 40,
              .trans_a = i & 1,
              .trans_b = i & 2,
              .accumulate = i & 8};
    DType in = i & 16 ? DT_F32 : DT_BF16, out = i & 16 || i & 8 ? DT_F32 : DT_BF16;
    add_gemm(b, k, m, in, out);
  }
  if (!small) {
    add_gemm(b, k, (Gemm){.batch = 1, .m = 33, .n = 57, .k = 45}, DT_BF16, DT_BF16);
    for (int i = 0; i < 4; i++) { /* a vocabulary */
      add_gemm(
          b, k,
          (Gemm){.batch = 1, .m = 100, .n = 1001, .k = 520, .trans_b = i & 1, .trans_a = i & 2},
          DT_BF16, DT_BF16);
      add_gemm(
          b, k,
          (Gemm){.batch = 1, .m = 104, .n = 520, .k = 1001, .trans_b = i & 1, .trans_a = i & 2},
          DT_BF16, DT_BF16);
    }
    add_gemm(b, k, (Gemm){.batch = 1, .m = 256, .n = 384, .k = 512, .tf32 = true}, DT_F32, DT_F32);
    for (int i = 0; i < 4; i++)
      add_gemm(b, k,
               (Gemm){.batch = 1,
                      .m = 104,
                      .n = 1001,
                      .k = 520,
                      .trans_b = i & 1,
                      .trans_a = i & 2,
                      .accumulate = i > 1},
               DT_F16, i > 1 ? DT_F32 : DT_F16);
    add_gemm(b, k, (Gemm){.batch = 1, .m = 256, .n = 384, .k = 2048, .trans_a = true}, DT_BF16,
             DT_F32);
  }
  add_scatter(b, k, 1000, 97, 768, DT_BF16, DT_F32, true);
  add_scatter(b, k, 513, 50257, 64, DT_F32, DT_F32, false);
  if (!small) add_scatter(b, k, 20000, 50257, 768, DT_BF16, DT_F32, true);
  if (!small) add_scatter(b, k, 5000, 30, 33, DT_BF16, DT_F32, true);
  if (!small) add_scatter(b, k, 700, 50, 4104, DT_BF16, DT_BF16, true);
  if (!small) add_scatter(b, k, 3000, 300000, 24, DT_BF16, DT_BF16, true);
  if (!small) add_scatter(b, k, 3000, 300, 200, DT_BF16, DT_BF16, false);
  if (!small) add_scatter(b, k, 300, 5, 33, DT_BF16, DT_BF16, true);
}

static void run_checks(Bench *b, Checks *k) {
  for (int i = 0; i < k->att.n; i++) check_attention(b, k->att.at[i]);
  for (int i = 0; i < k->gemm.n; i++) check_gemm(b, k->gemm.at[i]);
  for (int i = 0; i < k->scatter.n; i++) check_scatter(b, k->scatter.at[i]);
  for (int i = 0; i < k->loop.n; i++) check_loop(b, k->loop.at[i]);
}

/* ---- measurements ---- */
typedef CUresult CopyCall(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s);

static double copy_rate(Bench *b) {
  void *lib = dlopen("libcuda.so.1", RTLD_NOW);
  CopyCall *copy;
  *(void **)&copy = dlsym(lib, "cuMemcpyDtoDAsync_v2");
  Device *d = b->device;
  CUevent from, to;
  cu.cuEventCreate(&from, 0), cu.cuEventCreate(&to, 0);
  float ms = 0;
  size_t bytes = 1ull << 30;
  for (int round = 0; round < 2; round++) {
    cu.cuEventRecord(from, d->stream);
    for (int i = 0; i < 20; i++)
      copy(device_at(d, (int64_t)bytes), device_at(d, 0), bytes, d->stream);
    cu.cuEventRecord(to, d->stream);
    need(b, device_cuda.wait(d, &b->fail));
    cu.cuEventElapsedTime(&ms, from, to);
  }
  return 2.0 * (double)bytes * 20 / ms * 1e-6;
}

/* What attention is measured against: TFLOP/s forward and backward of the worked kernels that ours follow, on an H200 in one
 * run, 16,384 tokens of 2,048 elements. Ours is to be within ATTENTION_SHARE percent of them. */
typedef struct {
  int64_t head, length, per_kv;
  bool causal;
  double mma[2], wgmma[2];
} AttRates;
static const AttRates att_rates[] = {
    {64, 1024, 1, true, {252, 198}, {317, 278}},   {64, 2048, 1, true, {286, 227}, {383, 332}},
    {64, 4096, 1, true, {307, 244}, {434, 359}},   {64, 16384, 1, true, {316, 262}, {492, 385}},
    {64, 2048, 1, false, {323, 263}, {445, 364}},  {128, 1024, 1, true, {274, 198}, {396, 316}},
    {128, 2048, 1, true, {309, 220}, {491, 368}},  {128, 4096, 1, true, {329, 229}, {539, 400}},
    {128, 16384, 1, true, {356, 247}, {614, 452}}, {128, 2048, 1, false, {343, 237}, {558, 409}},
    {128, 2048, 4, true, {303, 206}, {528, 353}},  {128, 8192, 4, true, {346, 224}, {615, 408}},
};
enum { ATTENTION_SHARE = 95 };

static double attention_work(const AttShape *s) {
  return 4e-9 * (double)(s->batch * s->heads * s->tq * s->tq * s->head) / (s->causal ? 2 : 1);
}

/* Shares of `rates`, NULL without any; returns how many are below the bar. */
static int print_attention(Bench *b, const AttCase *x, const double *rates) {
  double work = attention_work(&x->s), ms[2], rate[2];
  int below = 0;
  for (int back = 0; back < 2; back++) {
    ms[back] = time_cmd(b, x->index, back, 40);
    rate[back] = (back ? 2.5 : 1) * work / ms[back];
  }
  printf("  %-44s fwd %7.1f  bwd %7.1f   (%.3f, %.3f ms)", x->c->name, rate[0], rate[1], ms[0],
         ms[1]);
  for (int back = 0; back < 2 && rates; back++) {
    double share = 100 * rate[back] / rates[back];
    bool bad = share < ATTENTION_SHARE;
    printf("  %5.1f %%%s", share, bad ? " BAD" : "");
    below += bad;
  }
  printf("\n");
  return below;
}

/* How many rates are below their bar. */
static int time_attention(void) {
  enum { TOKENS = 16384, WIDTH = 2048, EXTRA = 3 };
  Bench b = bench_new("h200");
  AttCase *x[2 * COUNT_OF(att_rates) + EXTRA];
  int n = 0, below = 0;
  for (int mma = 1; mma >= 0; mma--)
    for (int i = 0; i < COUNT_OF(att_rates); i++) {
      const AttRates *r = &att_rates[i];
      int64_t heads = WIDTH / r->head;
      x[n++] = attention_case(
          &b, (AttShape){DT_BF16, TOKENS / r->length, r->length, r->length, heads,
                         heads / r->per_kv, r->head, r->causal, false, false, mma, 0, DT_BOOL});
    }
  for (int i = 0; i < EXTRA; i++)
    x[n++] = attention_case(&b, (AttShape){DT_BF16, 16, 1024, 1024, 32, 32, 64, i != 1, false,
                                           false, true, i == 1 ? 0 : 0.1, i ? DT_BF16 : DT_BOOL});
  bench_open(&b);
  fill_random(&b, b.program.arena_bytes);
  printf("attention, B*T = 16384, H*D = 2048: TFLOP/s, and shares of the rates to reach\n");
  for (int i = 0; i < n; i++) {
    int at = i % COUNT_OF(att_rates);
    const double *rates = i < COUNT_OF(att_rates)       ? att_rates[at].mma
                          : i < 2 * COUNT_OF(att_rates) ? att_rates[at].wgmma
                                                        : NULL;
    below += print_attention(&b, x[i], rates);
  }
  printf("%d of %d rates are below %d %% of what they are measured against\n", below,
         4 * COUNT_OF(att_rates), ATTENTION_SHARE);
  device_cuda.close(b.device);
  arena_free(b.a);
  return below;
}

/* ---- bars ---- */
/* Percent of the copy rate that kernels reach which move BAR_MIB or more: all that are bound by
 * memory, and the updates of optimizers. */
enum { BAR = 80, BAR_UPDATE = 85, BAR_MIB = 64, MOST_BELOW = 64 };
static const char *const updates[] = {"adamw", "lion", "sgd", "adafactor"};

typedef struct {
  double copy; /* GB/s of a device copy */
  int judged, n;
  char at[MOST_BELOW][96];
} Below;

static int bar_of(const char *name) {
  for (int i = 0; i < COUNT_OF(updates); i++)
    if (str_starts(name, updates[i])) return BAR_UPDATE;
  return BAR;
}

/* "ok", "BAD", or "" for a kernel that is too small. */
static const char *judge_rate(Below *x, const char *name, int kernel, double bytes, double share) {
  if (bytes < BAR_MIB * 1048576.0) return "";
  int bar = bar_of(name);
  x->judged++;
  if (share >= bar) return "ok";
  if (x->n < MOST_BELOW)
    snprintf(x->at[x->n], sizeof x->at[0], "%-40s kernel %d  %5.1f %% of %d %%", name, kernel,
             share, bar);
  x->n++;
  return "BAD";
}

static void print_below(const Below *x) {
  printf(
      "%d of %d kernels that move %d MiB or more reach their bars, %d %% of a copy and %d %% in "
      "updates%s\n",
      x->judged - x->n, x->judged, BAR_MIB, BAR, BAR_UPDATE, x->n ? "; below:" : "");
  for (int i = 0; i < x->n && i < MOST_BELOW; i++) printf("  BAD %s\n", x->at[i]);
}

/* Bytes that command c reads and writes, each once: what it reads under two names is there once. */
static double moved_bytes(const LoopCase *l, int c) {
  const Cmd *cmd = &l->c->cmds[c];
  int nin = l->clusters.at[c].nin;
  double bytes = 0;
  for (int t = 0; t < cmd->ntensors; t++) {
    bool again = false;
    for (int i = 0; i < t && t < nin; i++)
      again |= cmd->tensors[i].offset == cmd->tensors[t].offset;
    if (!again) bytes += tensor_size(&cmd->tensors[t]);
  }
  return bytes;
}

static void time_loops(Below *below) {
  Bench b = bench_new("h200");
  static const struct {
    const char *row;
    int64_t rows, cols;
    DType t;
  } runs[] = {
      {"copy", 65536, 2048, DT_BF16},
      {"copy", 65536, 2048, DT_F32},
      {"gelu_tanh", 65536, 3072, DT_BF16},
      {"gelu_erf", 65536, 3072, DT_BF16},
      {"swiglu", 32768, 5632, DT_BF16},
      {"layernorm", 131072, 768, DT_BF16},
      {"layernorm", 65536, 1600, DT_BF16},
      {"layernorm", 65536, 768, DT_F32},
      {"rmsnorm", 65536, 2048, DT_BF16},
      {"rmsnorm", 32768, 4096, DT_BF16},
      {"residual_norm", 65536, 768, DT_BF16},
      {"softmax", 65536, 1024, DT_BF16},
      {"cross_entropy", 8192, 50257, DT_BF16},
      {"cross_entropy", 8192, 50304, DT_BF16},
      {"cross_entropy", 8192, 32000, DT_F32},
      {"adamw", 16384, 2048, DT_BF16},
      {"adamw_split", 16384, 2048, DT_BF16},
      {"adamw_blocks", 16384, 2048, DT_BF16},
      {"adamw_split_blocks", 16384, 2048, DT_BF16},
      {"adamw_random", 16384, 2048, DT_BF16},
      {"lion_blocks", 16384, 2048, DT_BF16},
      {"sgd", 16384, 2048, DT_BF16},
      {"adafactor", 16384, 2048, DT_BF16},
      {"column_sum", 65536, 3072, DT_BF16},
      {"column_sum", 65536, 768, DT_F32},
      {"norm", 65536, 2048, DT_F32},
      {"embedding", 131072, 768, DT_BF16},
      {"dropout", 131072, 768, DT_BF16},
      {"rope", 65536, 2048, DT_BF16},
      {"layernorm", 32768, 4096, DT_BF16},
      {"column_sum", 65536, 2304, DT_BF16},
      {"extremes", 65536, 2048, DT_BF16},
      {"gelu_tanh", 65536, 3072, DT_F32},
      {"copies", 32768, 2048, DT_BF16},
  };
  LoopCase *x[COUNT_OF(runs)];
  for (int i = 0; i < COUNT_OF(runs); i++)
    for (int r = 0; r < COUNT_OF(kernel_graph_rows); r++)
      if (!strcmp(kernel_graph_rows[r].name, runs[i].row))
        x[i] = loop_case(&b, r, runs[i].rows, runs[i].cols, runs[i].t);
  bench_open(&b);
  fill_random(&b, b.program.arena_bytes);
  double copy = below->copy = copy_rate(&b);
  printf("loop nests; a device copy moves %.0f GB/s\n", copy);
  for (int i = 0; i < COUNT_OF(runs); i++)
    for (int c = 0; c < x[i]->c->ncmds; c++) {
      double bytes = moved_bytes(x[i], c), ms = time_cmd(&b, x[i]->index, c, 4);
      double rate = bytes / ms * 1e-6, share = 100 * rate / copy;
      printf("  %-34s kernel %d  %7.1f MiB %8.3f ms %6.0f GB/s %5.1f %% %s\n", x[i]->c->name, c,
             bytes / 1048576, ms, rate, share, judge_rate(below, x[i]->c->name, c, bytes, share));
    }
  device_cuda.close(b.device);
  arena_free(b.a);
}

/* Ids uniform below `below`: out rows that none names are not moved, and do not count. */
static void time_scatter(Below *below) {
  Bench b = bench_new("h200");
  static const struct {
    int64_t n, rows, cols, below;
  } runs[] = {{65536, 50257, 768, 50257}, {65536, 50257, 768, 65}, {32768, 32000, 2048, 32000}};
  ScatterCase *x[COUNT_OF(runs)];
  for (int i = 0; i < COUNT_OF(runs); i++)
    x[i] = scatter_case(&b, runs[i].n, runs[i].rows, runs[i].cols, DT_BF16, DT_F32, true);
  bench_open(&b);
  fill_random(&b, b.program.arena_bytes);
  for (int i = 0; i < COUNT_OF(runs); i++) {
    double *ids = draw_values(b.a, DT_I32, runs[i].n, 0, (double)runs[i].below);
    char *named = arena_array(b.a, char, runs[i].rows);
    int64_t touched = 0;
    for (int64_t k = 0; k < runs[i].n; k++)
      if (!named[(int64_t)ids[k]]) named[(int64_t)ids[k]] = 1, touched++;
    put_tensor(&b, &x[i]->ids, ids);
    double ms = time_cmd(&b, x[i]->index, 0, 4);
    double bytes = (double)(runs[i].n * (runs[i].cols * 2 + 4) + touched * runs[i].cols * 8);
    double rate = bytes / ms * 1e-6, share = 100 * rate / below->copy;
    printf("  scatter %-40s %3d %% of rows %8.3f ms %6.0f GB/s %5.1f %% %s\n", x[i]->c->name,
           (int)(100 * touched / runs[i].rows), ms, rate, share,
           judge_rate(below, x[i]->c->name, 0, bytes, share));
  }
  device_cuda.close(b.device);
  arena_free(b.a);
}

static void time_products(void) {
  Bench b = bench_new("h200");
  static const struct {
    Gemm m;
    DType out;
  } runs[] = {
      {{.batch = 1, .m = 16384, .n = 2304, .k = 768}, DT_BF16},
      {{.batch = 1, .m = 16384, .n = 3072, .k = 768}, DT_BF16},
      {{.batch = 1, .m = 16384, .n = 768, .k = 3072}, DT_BF16},
      {{.batch = 1, .m = 16384, .n = 768, .k = 3072, .trans_b = true}, DT_BF16},
      {{.batch = 1, .m = 768, .n = 3072, .k = 16384, .trans_a = true, .accumulate = true}, DT_F32},
      {{.batch = 1, .m = 8192, .n = 50257, .k = 768, .trans_b = true}, DT_BF16},
      {{.batch = 1, .m = 8192, .n = 50304, .k = 768, .trans_b = true}, DT_BF16},
      {{.batch = 1, .m = 50257, .n = 768, .k = 8192, .trans_a = true, .accumulate = true}, DT_F32},
      {{.batch = 1, .m = 50256, .n = 768, .k = 8192, .trans_a = true, .accumulate = true}, DT_F32},
      {{.batch = 1, .m = 1, .n = 768, .k = 8192, .trans_a = true, .accumulate = true}, DT_F32},
  };
  GemmCase *x[COUNT_OF(runs)];
  for (int i = 0; i < COUNT_OF(runs); i++) x[i] = gemm_case(&b, runs[i].m, DT_BF16, runs[i].out);
  bench_open(&b);
  fill_random(&b, b.program.arena_bytes);
  for (int i = 0; i < COUNT_OF(runs); i++) {
    double ms = time_cmd(&b, x[i]->index, 0, 10);
    printf("  %-44s %8.3f ms %6.0f TFLOP/s\n", x[i]->c->name, ms,
           2e-9 * (double)(x[i]->m.m * x[i]->m.n * x[i]->m.k) / ms);
  }
  device_cuda.close(b.device);
  arena_free(b.a);
}

int main(int argc, char **argv) {
  bool all = argc < 2, check = all, small = false, attention = all, loops = all, products = all;
  for (int i = 1; i < argc; i++) {
    check |= !strcmp(argv[i], "check");
    small |= !strcmp(argv[i], "small");
    attention |= !strcmp(argv[i], "attention");
    loops |= !strcmp(argv[i], "loops");
    products |= !strcmp(argv[i], "products");
  }
  setvbuf(stdout, NULL, _IOLBF, 0);
  int bad = 0;
  if (check || small) {
    Bench b = bench_new("h200");
    Checks *k = arena_new_of(b.a, Checks);
    add_checks(&b, k, small);
    bench_open(&b);
    run_checks(&b, k);
    bad = b.bad;
    device_cuda.close(b.device);
    arena_free(b.a);
    printf("%s\n", bad ? "CHECKS FAILED" : "all checks passed");
  }
  Below below = {0};
  if (loops) {
    time_loops(&below), time_scatter(&below);
    print_below(&below);
  }
  if (products) time_products();
  if (attention) bad += time_attention();
  return bad || below.n;
}
