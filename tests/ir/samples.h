/* samples.h - the graphs behind op_samples.def: each builds a Case with inputs, results and
 * expected values, computed here by loops of their own. Included by the tests that go over all ops.
 */
#ifndef MTC_TEST_SAMPLES_H
#define MTC_TEST_SAMPLES_H
#include "case.h"
#include "ir/philox.h"

/* ---- leaves and effects ---- */

static void sample_input(Case *c) {
  ValueId x = case_input(c, DT_F32, SHAPE(2, 3), -1, 1);
  memcpy(case_result(c, x), case_data(c, 0), 6 * sizeof(double));
}

/* y = v; v := v + 1; z = v, which reads the new value. */
static void sample_assign(Case *c) {
  int v = var_add(c->g->vars, (Var){.path = "m.count",
                                    .role = VAR_STATE,
                                    .dtype = DT_F32,
                                    .shape = SHAPE(2),
                                    .of = -1,
                                    .layer = -1,
                                    .loc = {0, 3, 4, 5}});
  static double start[] = {3, 5};
  c->vars[v] = start;
  ValueId old = g_var(c->g, v), y = g_binary(c->g, OP_MUL, old, old);
  g_assign(c->g, v, g_binary(c->g, OP_ADD, old, g_like(c->g, old, 1)));
  double *a = case_result(c, y), *b = case_result(c, g_var(c->g, v));
  a[0] = 9, a[1] = 25, b[0] = 4, b[1] = 6;
}

static void sample_const(Case *c) {
  double *w = case_result(c, g_const(c->g, DT_F32, SHAPE(3), -0.1));
  for (int i = 0; i < 3; i++) w[i] = -0.1;
  case_result(c, g_const(c->g, DT_F32, shape_scalar(), INFINITY))[0] = INFINITY;
  case_result(c, g_const(c->g, DT_I32, shape_scalar(), -7))[0] = -7;
}

static void sample_iota(Case *c) {
  double *w = case_result(c, g_iota(c->g, DT_I32, SHAPE(2, 3, 2), 1));
  for (int i = 0; i < 12; i++) w[i] = i / 2 % 3;
}

/* Per sample along axis 1: element (i, k) of sample j is number i * 3 + k of that sample. */
static void sample_random(Case *c) {
  ValueId seed = case_input(c, DT_U32, SHAPE(2), 0, 4294967296.0);
  ValueId step = case_input(c, DT_I32, shape_scalar(), 0, 1000);
  ValueId sample0 = case_input(c, DT_I32, shape_scalar(), 0, 1000);
  ValueId in[] = {seed, step, sample0};
  int64_t key = 0x123456789abcdef, per_sample[] = {DT_F32, 3, 2, 2, 3, key, 1};
  double *w = case_result(c, graph_add(c->g, OP_RANDOM, 3, in, 7, per_sample, NULL, NULL));
  const double *s = case_data(c, 0);
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 2; j++)
      for (int k = 0; k < 3; k++) {
        int e = i * 3 + k;
        unsigned word[] = {(unsigned)e / 4, 0, (unsigned)(case_data(c, 2)[0] + j),
                           (unsigned)case_data(c, 1)[0]};
        philox4x32_10(word, (unsigned)s[0] ^ 0x89abcdef, (unsigned)s[1] ^ 0x1234567);
        w[(i * 2 + j) * 3 + k] = floor(word[e % 4] / 256.0) / 16777216.0;
      }
  int64_t plain[] = {DT_U32, 1, 5, 7, -1};
  w = case_result(c, graph_add(c->g, OP_RANDOM, 3, in, 5, plain, NULL, NULL));
  for (int e = 0; e < 5; e++)
    w[e] = philox_bits((unsigned)s[0], (unsigned)s[1], 7, (unsigned)case_data(c, 1)[0], 0, e);
  w = case_result(c, g_random(c->g, DT_U32, SHAPE(5), 7, RANDOM_MICRO, in));
  for (int e = 0; e < 5; e++)
    w[e] = philox_bits((unsigned)s[0], (unsigned)s[1], 7, (unsigned)case_data(c, 1)[0],
                       (unsigned)case_data(c, 2)[0], e);
}

/* ---- element-wise ---- */

static void sample_cast(Case *c) {
  ValueId x = case_input(c, DT_F32, SHAPE(4), -3, 3);
  double *w = case_result(c, g_cast(c->g, x, DT_I32));
  for (int i = 0; i < 4; i++) w[i] = (int)case_data(c, 0)[i];
  memcpy(case_result(c, g_cast(c->g, x, DT_BF16)), case_data(c, 0), 4 * sizeof(double));
  ValueId n = case_input(c, DT_I32, SHAPE(3), -300, 300);
  w = case_result(c, g_cast(c->g, n, DT_I8));
  for (int i = 0; i < 3; i++) w[i] = (int8_t)(int)case_data(c, 1)[i];
  w = case_result(c, g_cast(c->g, g_cast(c->g, n, DT_BOOL), DT_F32));
  for (int i = 0; i < 3; i++) w[i] = case_data(c, 1)[i] != 0;
}

/* x * hold(x): its slope is x, which central differences cannot tell; test_ops.c looks at it. */
static void sample_hold(Case *c) {
  ValueId x = case_input(c, DT_I32, SHAPE(3), -9, 9);
  memcpy(case_result(c, g_unary(c->g, OP_HOLD, x)), case_data(c, 0), 3 * sizeof(double));
}

/* ---- formats of optimizer state ---- */

/* A float result that no gradient goes through: equal to the n numbers that are returned. */
static double *sample_equal(Case *c, ValueId v, int n) {
  ValueId want = case_input(c, val(c->g, v)->dtype, SHAPE(n), 0, 1);
  double *same = case_result(c, g_binary(c->g, OP_EQ, v, want));
  for (int i = 0; i < n; i++) same[i] = 1;
  return case_data(c, c->nin - 1);
}

static void sample_halves(Case *c) {
  enum { N = 9 };
  static const double some[N] = {1.00390625, -1.00390625, 1.01171875, /* ties between two bf16 */
                                 1, 0, 0x1.fffffep0, 0x1p-149, -0x1.234568p1, 0x1.abcdeep-9};
  ValueId x = case_input(c, DT_F32, SHAPE(N), -3, 3);
  memcpy(case_data(c, 0), some, sizeof some);
  ValueId half[] = {g_unary(c->g, OP_HIGH, x), g_unary(c->g, OP_LOW, x)};
  double *high = sample_equal(c, half[0], N), *low = case_result(c, half[1]);
  ValueId whole = graph_add(c->g, OP_JOIN, 2, half, 0, NULL, NULL, NULL);
  memcpy(sample_equal(c, whole, N), some, sizeof some);
  for (int i = 0; i < N; i++) {
    int e;
    frexp(some[i], &e);
    double unit = ldexp(1, e - 8), ulp = ldexp(1, e - 24);
    if (fabs(some[i]) < 0x1p-126) unit = 0x1p-133, ulp = 0x1p-149;
    high[i] = round(some[i] / unit) * unit;
    low[i] = fmod(fabs(some[i]) / ulp, 65536);
  }
}

static void sample_stochastic(Case *c) {
  enum { N = 16 };
  ValueId x = case_input(c, DT_F32, SHAPE(N), 1, 1.0078125);
  ValueId bits = case_input(c, DT_U32, SHAPE(N), 0, 4294967296.0), in[] = {x, bits};
  double *at = case_data(c, 0),
         *w = sample_equal(c, graph_add(c->g, OP_STOCHASTIC, 2, in, 0, NULL, NULL, NULL), N);
  for (int i = 0; i < N; i++) {
    at[i] = 1 + floor((at[i] - 1) * 0x1p23) * 0x1p-23;
    double above = (at[i] - 1) * 0x1p23, r = fmod(case_data(c, 1)[i], 65536);
    w[i] = above + r >= 65536 ? 1.0078125 : 1;
  }
}

/* The maps as they are published: cells of [0.1, 1] in seven decades. Entry `code`; NaN: none. */
static double sample_entry(int code, bool is_signed) {
  if (code == 0 || code == (is_signed ? 128 : 255)) return code != 0;
  int n = is_signed ? code & 127 : code + 1, cells = 1;
  while (cells * 2 <= n) cells *= 2;
  double decade = pow(10, log2(cells) - !is_signed - 6);
  double size = decade * (0.1 + 0.9 * (n - cells + 0.5) / cells);
  return is_signed && code >= 128 ? -size : size;
}
static void sample_quant(Case *c) {
  enum { N = 40 };
  for (int is_signed = 0; is_signed < 2; is_signed++) {
    ValueId x = case_input(c, DT_F32, SHAPE(N), is_signed ? -1 : 0, 1);
    ValueId entry = case_input(c, DT_F32, SHAPE(N), 0, 1);
    double *at = case_data(c, 2 * is_signed), *nearest = case_data(c, 2 * is_signed + 1);
    for (int i = 0; i < N; i++) at[i] = (float)(at[i] * pow(10, -(i % 9)));
    at[0] = 1, at[1] = 0, at[2] = is_signed ? -1 : 0.999;
    ValueId q = g_unary(c->g, is_signed ? OP_QUANT8 : OP_QUANT8U, x);
    double *code = case_result(c, q);
    for (int i = 0; i < N; i++) {
      for (int k = 1; k < 256; k++)
        if (fabs(sample_entry(k, is_signed) - at[i]) <
            fabs(sample_entry((int)code[i], is_signed) - at[i]))
          code[i] = k;
      nearest[i] = sample_entry((int)code[i], is_signed);
    }
    ValueId y = g_unary(c->g, is_signed ? OP_DEQUANT8 : OP_DEQUANT8U, q);
    ValueId off = g_unary(c->g, OP_ABS, g_binary(c->g, OP_SUB, y, entry));
    ValueId limit = g_binary(c->g, OP_MUL, g_unary(c->g, OP_ABS, entry), g_like(c->g, y, 1e-6));
    double *same = case_result(c, g_binary(c->g, OP_LE, off, limit));
    for (int i = 0; i < N; i++) same[i] = 1;
  }
}

static void sample_select(Case *c) {
  ValueId p = case_input(c, DT_BOOL, SHAPE(8), 0, 2);
  ValueId a = case_input(c, DT_F32, SHAPE(8), -1, 1), b = case_input(c, DT_F32, SHAPE(8), -1, 1);
  double *w = case_result(c, g_select(c->g, p, a, b));
  for (int i = 0; i < 8; i++) w[i] = case_data(c, case_data(c, 0)[i] ? 1 : 2)[i];
}

/* ---- index maps ---- */

static void sample_broadcast(Case *c) {
  ValueId x = case_input(c, DT_F32, SHAPE(2, 3), -1, 1);
  static const int64_t axes[] = {0, 2};
  double *w = case_result(c, g_broadcast(c->g, x, SHAPE(2, 4, 3, 2), axes));
  for (int i = 0; i < 48; i++) w[i] = case_data(c, 0)[i / 24 * 3 + i / 2 % 3];
  w = case_result(c, g_broadcast_to(c->g, g_slice(c->g, x, 0, 1, 2), SHAPE(2, 3)));
  for (int i = 0; i < 6; i++) w[i] = case_data(c, 0)[3 + i % 3];
}

static void sample_reshape(Case *c) {
  ValueId x = case_input(c, DT_F32, SHAPE(2, 6), -1, 1);
  memcpy(case_result(c, g_reshape(c->g, x, SHAPE(3, 2, 2))), case_data(c, 0), 12 * sizeof(double));
}

static void sample_transpose(Case *c) {
  ValueId x = case_input(c, DT_F32, SHAPE(2, 3, 4), -1, 1);
  static const int64_t perm[] = {2, 0, 1};
  double *w = case_result(c, g_transpose(c->g, x, perm));
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 3; j++)
      for (int k = 0; k < 4; k++) w[k * 6 + i * 3 + j] = case_data(c, 0)[i * 12 + j * 4 + k];
}

static void sample_slice(Case *c) {
  ValueId x = case_input(c, DT_F32, SHAPE(3, 5), -1, 1);
  int64_t ints[] = {2, 1, 2, 2, 3, 4}; /* start [1, 2], stop [3, 4] */
  double *w = case_result(c, graph_add(c->g, OP_SLICE, 1, &x, 6, ints, NULL, NULL));
  for (int i = 0; i < 4; i++) w[i] = case_data(c, 0)[(1 + i / 2) * 5 + 2 + i % 2];
}

/* Slices that follow one another, overlap, repeat, and leave gaps: their gradients are joined. */
static void sample_slices(Case *c) {
  ValueId x = case_input(c, DT_F32, SHAPE(2, 6), -1, 1);
  static const int64_t range[][3] = {{1, 0, 2}, {1, 2, 5}, {1, 1, 3}, {1, 0, 2}, {0, 1, 2}};
  for (int i = 0; i < COUNT_OF(range); i++) {
    ValueId s = g_slice(c->g, x, (int)range[i][0], range[i][1], range[i][2]);
    case_result(c, g_binary(c->g, OP_MUL, s, s));
    c->want[c->nout - 1] = NULL;
  }
}

static void sample_pad(Case *c) {
  ValueId x = case_input(c, DT_F32, SHAPE(2, 2), -1, 1);
  static const int64_t before[] = {1, 0}, after[] = {0, 2};
  double *w = case_result(c, g_pad(c->g, x, before, after));
  for (int i = 0; i < 4; i++) w[(1 + i / 2) * 4 + i % 2] = case_data(c, 0)[i];
}

static void sample_concat(Case *c) {
  ValueId a = case_input(c, DT_F32, SHAPE(2, 1, 2), -1, 1);
  ValueId b = case_input(c, DT_F32, SHAPE(2, 2, 2), -1, 1), in[] = {a, b, a};
  double *w = case_result(c, g_concat(c->g, 3, in, 1));
  for (int i = 0; i < 2; i++)
    for (int k = 0; k < 8; k++)
      w[i * 8 + k] = k < 2   ? case_data(c, 0)[i * 2 + k]
                     : k < 6 ? case_data(c, 1)[i * 4 + k - 2]
                             : case_data(c, 0)[i * 2 + k - 6];
}

/* ---- reductions ---- */

static void sample_sum(Case *c) {
  ValueId x = case_input(c, DT_F32, SHAPE(2, 3, 2), -1, 1);
  static const int64_t outer[] = {0, 2}, middle[] = {1};
  double *w = case_result(c, g_reduce(c->g, OP_SUM, x, 2, outer));
  for (int i = 0; i < 12; i++) w[i / 2 % 3] += case_data(c, 0)[i];
  w = case_result(c, g_reduce(c->g, OP_SUM, x, 1, middle));
  for (int i = 0; i < 12; i++) w[i / 6 * 2 + i % 2] += case_data(c, 0)[i];
}

static void sample_sum_all(Case *c) {
  ValueId x = case_input(c, DT_I32, SHAPE(2, 3), -9, 9);
  static const int64_t all[] = {0, 1};
  double *w = case_result(c, g_reduce(c->g, OP_SUM, x, 2, all));
  for (int i = 0; i < 6; i++) w[0] += case_data(c, 0)[i];
}

static void sample_amax(Case *c) {
  ValueId x = case_input(c, DT_F32, SHAPE(3, 4), -1, 1);
  static const int64_t rows[] = {1}, columns[] = {0};
  double *w = case_result(c, g_reduce(c->g, OP_AMAX, x, 1, rows));
  double *u = case_result(c, g_reduce(c->g, OP_AMAX, x, 1, columns));
  for (int i = 0; i < 3; i++) w[i] = -9;
  for (int i = 0; i < 4; i++) u[i] = -9;
  for (int i = 0; i < 12; i++) {
    w[i / 4] = fmax(w[i / 4], case_data(c, 0)[i]);
    u[i % 4] = fmax(u[i % 4], case_data(c, 0)[i]);
  }
}

/* The first of equal maxima. */
static void sample_argmax(Case *c) {
  ValueId x = case_input(c, DT_I32, SHAPE(2, 5), 0, 3);
  static const double data[] = {0, 2, 1, 2, 0, 1, 1, 0, 1, 0};
  memcpy(case_data(c, 0), data, sizeof data);
  static const int64_t last[] = {1};
  double *w = case_result(c, g_reduce(c->g, OP_ARGMAX, x, 1, last));
  w[0] = 1, w[1] = 0;
}

/* ---- rows by index ---- */

static void sample_gather(Case *c) {
  ValueId table = case_input(c, DT_F32, SHAPE(5, 3), -1, 1);
  ValueId ids = case_input(c, DT_I32, SHAPE(2, 4), 0, 5);
  double *w = case_result(c, g_gather(c->g, table, ids));
  for (int i = 0; i < 24; i++) w[i] = case_data(c, 0)[(int)case_data(c, 1)[i / 3] * 3 + i % 3];
}

/* Rows are integers, so that no gradient is asked of it: it is the gradient of gather. */
static void sample_scatter(Case *c) {
  ValueId ids = case_input(c, DT_I32, SHAPE(2, 3), 0, 4);
  ValueId rows = g_cast(c->g, case_input(c, DT_I32, SHAPE(2, 3, 2), -9, 9), DT_F32);
  double *w = case_result(c, g_scatter_add(c->g, ids, rows, 4, DT_F32));
  for (int i = 0; i < 12; i++) w[(int)case_data(c, 0)[i / 2] * 2 + i % 2] += case_data(c, 1)[i];
}

/* ---- contraction ---- */

static void sample_dot(Case *c) {
  ValueId x = case_input(c, DT_F32, SHAPE(2, 2, 3), -1, 1);
  ValueId w = case_input(c, DT_F32, SHAPE(3, 4), -1, 1);
  double *y = case_result(c, g_matmul(c->g, x, w));
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++)
      for (int k = 0; k < 3; k++)
        y[i * 4 + j] += case_data(c, 0)[i * 3 + k] * case_data(c, 1)[k * 4 + j];
}

static void sample_dot_batch(Case *c) {
  ValueId a = case_input(c, DT_F32, SHAPE(2, 3, 4), -1, 1);
  ValueId b = case_input(c, DT_F32, SHAPE(2, 4, 2), -1, 1);
  double *y = case_result(c, g_matmul(c->g, a, b));
  for (int n = 0; n < 2; n++)
    for (int i = 0; i < 3; i++)
      for (int j = 0; j < 2; j++)
        for (int k = 0; k < 4; k++)
          y[n * 6 + i * 2 + j] +=
              case_data(c, 0)[n * 12 + i * 4 + k] * case_data(c, 1)[n * 8 + k * 2 + j];
}

/* Batch, free and two contracted axes in unusual places: y[n, i, p, j] = sum_kl a[k, i, n, l, p]
 * b[j, l, k, n]. */
static void sample_dot_odd(Case *c) {
  ValueId a = case_input(c, DT_F32, SHAPE(3, 2, 2, 2, 2), -1, 1);
  ValueId b = case_input(c, DT_F32, SHAPE(4, 2, 3, 2), -1, 1);
  static const int64_t batch_a[] = {2}, batch_b[] = {3}, con_a[] = {0, 3}, con_b[] = {2, 1};
  double *y = case_result(c, g_dot(c->g, a, b, 1, batch_a, batch_b, 2, con_a, con_b, DT_F32));
  for (int n = 0; n < 2; n++)
    for (int i = 0; i < 2; i++)
      for (int p = 0; p < 2; p++)
        for (int j = 0; j < 4; j++)
          for (int k = 0; k < 3; k++)
            for (int l = 0; l < 2; l++)
              y[((n * 2 + i) * 2 + p) * 4 + j] +=
                  case_data(c, 0)[(((k * 2 + i) * 2 + n) * 2 + l) * 2 + p] *
                  case_data(c, 1)[((j * 2 + l) * 3 + k) * 2 + n];
}

/* ---- attention: expected values by softmax over a row of scores ---- */

typedef struct {
  int B, Tq, Tk, H, KV, D;
  bool causal;
  const double *mask, *bias;
  const double *seed; /* NULL = no dropout */
  double step, sample0, keep;
  int64_t key;
} Heads;

static void attention_row(const Case *c, const Heads *s, int b, int i, int h, double *o,
                          double *lse) {
  const double *q = case_data(c, 0), *k = case_data(c, 1), *v = case_data(c, 2);
  double p[16], sum = 0;
  for (int j = 0; j < s->Tk; j++) {
    int kv = h * s->KV / s->H;
    p[j] = 0;
    for (int d = 0; d < s->D; d++)
      p[j] += 0.7 * q[((b * s->Tq + i) * s->H + h) * s->D + d] *
              k[((b * s->Tk + j) * s->KV + kv) * s->D + d];
    if (s->bias) p[j] += s->bias[(h * s->Tq + i) * s->Tk + j];
    bool shut = (s->causal && j > i) || (s->mask && !s->mask[b * s->Tk + j]);
    p[j] = shut ? 0 : exp(p[j]);
    sum += p[j];
  }
  *lse = log(sum);
  for (int j = 0; j < s->Tk; j++) {
    double w = p[j] / sum;
    if (s->seed) {
      unsigned e = (unsigned)((h * s->Tq + i) * s->Tk + j);
      unsigned bits =
          philox_bits((unsigned)s->seed[0], (unsigned)s->seed[1], (unsigned long long)s->key,
                      (unsigned)s->step, (unsigned)s->sample0 + (unsigned)b, e);
      w = (bits >> 8) * 0x1p-24 < s->keep ? w / s->keep : 0;
    }
    for (int d = 0; d < s->D; d++)
      o[d] += w * v[((b * s->Tk + j) * s->KV + h * s->KV / s->H) * s->D + d];
  }
}

static void attention_want(Case *c, const Heads *s, ValueId o) {
  double *out = case_result(c, o);
  double *lse = arena_array(c->a, double, s->B * s->H * s->Tq);
  for (int b = 0; b < s->B; b++)
    for (int i = 0; i < s->Tq; i++)
      for (int h = 0; h < s->H; h++)
        attention_row(c, s, b, i, h, out + ((b * s->Tq + i) * s->H + h) * s->D,
                      &lse[(b * s->H + h) * s->Tq + i]);
  case_values(c, "attention");
  double **v = case_run(c, true);
  for (int i = 0; i < s->B * s->H * s->Tq; i++) assert_true(case_near(v[o + 1][i], lse[i], 1e-12));
}

static AttentionArgs attention_args(Case *c, const Heads *s) {
  return (AttentionArgs){.q = case_input(c, DT_F32, SHAPE(s->B, s->Tq, s->H, s->D), -1, 1),
                         .k = case_input(c, DT_F32, SHAPE(s->B, s->Tk, s->KV, s->D), -1, 1),
                         .v = case_input(c, DT_F32, SHAPE(s->B, s->Tk, s->KV, s->D), -1, 1),
                         .mask = -1,
                         .bias = -1,
                         .causal = s->causal,
                         .scale = 0.7};
}

static void sample_attention(Case *c) {
  Heads s = {.B = 2, .Tq = 3, .Tk = 4, .H = 2, .KV = 2, .D = 2};
  AttentionArgs a = attention_args(c, &s);
  attention_want(c, &s, g_attention(c->g, &a));
}

/* Grouped heads. */
static void sample_attention_causal(Case *c) {
  Heads s = {.B = 1, .Tq = 4, .Tk = 4, .H = 4, .KV = 2, .D = 3, .causal = true};
  AttentionArgs a = attention_args(c, &s);
  attention_want(c, &s, g_attention(c->g, &a));
}

/* Mask, bias and dropout together. */
static void sample_attention_all(Case *c) {
  Heads s = {.B = 2, .Tq = 3, .Tk = 5, .H = 2, .KV = 1, .D = 2, .keep = 0.75, .key = 99};
  AttentionArgs a = attention_args(c, &s);
  a.mask = case_input(c, DT_BOOL, SHAPE(2, 5), 0, 2);
  static const double mask[] = {1, 0, 1, 1, 0, 1, 1, 0, 1, 1};
  memcpy(case_data(c, 3), mask, sizeof mask);
  a.bias = case_input(c, DT_F32, SHAPE(2, 3, 5), -1, 1);
  a.drop = 0.25;
  a.key = 99;
  a.seed = case_input(c, DT_U32, SHAPE(2), 0, 4294967296.0);
  a.step = case_input(c, DT_I32, shape_scalar(), 0, 1000);
  a.sample0 = case_input(c, DT_I32, shape_scalar(), 0, 1000);
  s.mask = mask;
  s.bias = case_data(c, 4);
  s.seed = case_data(c, 5);
  s.step = case_data(c, 6)[0];
  s.sample0 = case_data(c, 7)[0];
  attention_want(c, &s, g_attention(c->g, &a));
}

/* Its values are what makes the gradients of attention right; here its results only stand in a
 * graph. */
static void sample_attention_bwd(Case *c) {
  Heads s = {.B = 1, .Tq = 2, .Tk = 2, .H = 1, .KV = 1, .D = 2};
  AttentionArgs a = attention_args(c, &s);
  ValueId o = g_attention(c->g, &a), grad[1];
  ValueId wrt[] = {a.q};
  graph_gradients(c->g, o, o, 1, wrt, grad);
  /* with two keys: ds = p0 p1 (do . (v0 - v1)), dq = scale ds (k0 - k1) */
  double **x = case_run(c, true);
  const double *k = case_data(c, 1), *v = case_data(c, 2);
  for (int i = 0; i < 2; i++) {
    const double *q = case_data(c, 0) + 2 * i;
    double gap = 0.7 * (q[0] * (k[0] - k[2]) + q[1] * (k[1] - k[3])), p = 1 / (1 + exp(-gap));
    double *d_o = &x[o][2 * i];
    double ds = p * (1 - p) * (d_o[0] * (v[0] - v[2]) + d_o[1] * (v[1] - v[3]));
    for (int d = 0; d < 2; d++)
      assert_true(case_near(x[grad[0]][2 * i + d], 0.7 * ds * (k[d] - k[2 + d]), 1e-9));
  }
}

/* ---- shapes only, so far ---- */

static void sample_conv2d(Case *c) {
  ValueId in[] = {case_input(c, DT_F32, SHAPE(2, 4, 9, 9), -1, 1),
                  case_input(c, DT_F32, SHAPE(6, 2, 3, 3), -1, 1)};
  int64_t ints[] = {2, 1, 2};
  ValueId y = graph_add(c->g, OP_CONV2D, 2, in, 3, ints, NULL, NULL);
  Shape want = SHAPE(2, 6, 5, 5);
  assert_true(shape_equal(&val(c->g, y)->shape, &want));
}

static void sample_pool(Case *c) {
  ValueId x = case_input(c, DT_F32, SHAPE(2, 4, 8, 8), -1, 1);
  int64_t ints[] = {3, 2, 1};
  ValueId y = graph_add(c->g, OP_MAX_POOL, 1, &x, 3, ints, NULL, NULL);
  Shape want = SHAPE(2, 4, 4, 4);
  assert_true(shape_equal(&val(c->g, y)->shape, &want));
}

/* ---- the table ---- */

typedef struct {
  Op op;
  void (*build)(Case *c);
  DType dtype; /* of element-wise rows */
  int nin;
  double lo[2], hi[2];
  double (*value)(double, double);
  const char *text;
} Sample;

#define NAME2(op, line) value_##op##_##line
#define NAME(op, line)  NAME2(op, line)
#define ELEM1(op, dtype, lo, hi, value)                  \
  static double NAME(op, __LINE__)(double x, double b) { \
    (void)b, (void)x;                                    \
    return value;                                        \
  }
#define ELEM2(op, dtype, lo, hi, lo2, hi2, value)        \
  static double NAME(op, __LINE__)(double a, double b) { \
    return value;                                        \
  }
#define OTHER(op, build)
#include "op_samples.def"
#undef ELEM1
#undef ELEM2
#undef OTHER

static const Sample samples[] = {
#define ELEM1(op, dtype, lo, hi, value) \
  {op, NULL, dtype, 1, {lo, 0}, {hi, 0}, NAME(op, __LINE__), #op},
#define ELEM2(op, dtype, lo, hi, lo2, hi2, value) \
  {op, NULL, dtype, 2, {lo, lo2}, {hi, hi2}, NAME(op, __LINE__), #op},
#define OTHER(op, build) {op, build, DT_F32, 0, {0, 0}, {0, 0}, NULL, #op " " #build},
#include "op_samples.def"
#undef ELEM1
#undef ELEM2
#undef OTHER
};

static Case sample_case(const Sample *s) {
  Case c = case_new();
  if (s->build) {
    s->build(&c);
    return c;
  }
  ValueId in[2];
  for (int i = 0; i < s->nin; i++)
    in[i] = case_input(&c, s->dtype, SHAPE(3, 4), s->lo[i], s->hi[i]);
  ValueId y = s->nin == 1 ? g_unary(c.g, s->op, in[0]) : g_binary(c.g, s->op, in[0], in[1]);
  double *want = case_result(&c, y);
  for (int i = 0; i < 12; i++)
    want[i] = s->value(case_data(&c, 0)[i], s->nin == 2 ? case_data(&c, 1)[i] : 0);
  return c;
}

#endif
