/* test_kernels.c - emitted loop nests against the interpreter: every element-wise op, index map and
 * reduction, in all layouts, dtypes and odd sizes. */
#include "kernel_case.h"

enum { MAX_CASES = 160 };
typedef struct {
  Arena *a;
  Case *at[MAX_CASES];
  int n;
} Cases;

static Case *add(Cases *s, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  Case *c = case_new(s->a, arena_vprintf(s->a, fmt, ap));
  va_end(ap);
  assert_true(s->n < MAX_CASES);
  return s->at[s->n++] = c;
}

static void check(Cases *s) {
  cases_check(s->a, s->n, s->at);
  arena_free(s->a);
}

/* ---- element-wise ---- */

static const struct {
  Op op;
  int nin;
  double lo, hi;
} float_ops[] = {
    {OP_NEG, 1, -3, 3},   {OP_ABS, 1, -3, 3},   {OP_EXP, 1, -20, 20}, {OP_LOG, 1, 1e-3, 50},
    {OP_SQRT, 1, 0, 50},  {OP_RSQRT, 1, .1, 9}, {OP_TANH, 1, -4, 4},  {OP_ERF, 1, -4, 4},
    {OP_SIN, 1, -99, 99}, {OP_COS, 1, -99, 99}, {OP_FLOOR, 1, -9, 9}, {OP_FINITE, 1, -9, 9},
    {OP_HOLD, 1, -9, 9},  {OP_ADD, 2, -9, 9},   {OP_SUB, 2, -9, 9},   {OP_MUL, 2, -9, 9},
    {OP_DIV, 2, .5, 9},   {OP_POW, 2, .1, 3},   {OP_MAX, 2, -9, 9},   {OP_MIN, 2, -9, 9},
    {OP_LT, 2, -2, 2},    {OP_LE, 2, -2, 2},    {OP_EQ, 2, -2, 2},
};

static void float_ops_in_all_dtypes(void **state) {
  (void)state;
  Cases s = {.a = arena_new()};
  for (int t = DT_F32; t <= DT_F16; t++)
    for (int i = 0; i < COUNT_OF(float_ops); i++) {
      Case *c = add(&s, "%s of %s", op_name(float_ops[i].op), dtype_name((DType)t));
      double lo = float_ops[i].lo, hi = float_ops[i].hi;
      if (float_ops[i].op == OP_EXP && t == DT_F16) hi = 10;
      ValueId a = case_input(c, (DType)t, SHAPE(7, 33), lo, hi, PLAIN);
      ValueId b = case_input(c, (DType)t, SHAPE(7, 33), lo, hi, PADDED);
      case_out(c, float_ops[i].nin == 1 ? g_unary(c->g, float_ops[i].op, a)
                                        : g_binary(c->g, float_ops[i].op, a, b));
      case_cluster(c, SHAPE(7, 33), 1);
      if (float_ops[i].op == OP_EXP) c->tolerance = 1e-6;
    }
  check(&s);
}

static const Op int_ops[] = {OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_MOD,
                             OP_MAX, OP_MIN, OP_LT,  OP_LE,  OP_EQ};

/* Every format of optimizer state has the interpreter's bits. */
static void formats(void **state) {
  (void)state;
  Cases s = {.a = arena_new()};
  static const double most[] = {4, 1, 1e-5, 1e-40};
  for (int i = 0; i < COUNT_OF(most); i++) {
    Case *c = add(&s, "formats of numbers up to %g", most[i]);
    ValueId x = case_input(c, DT_F32, SHAPE(1031), -most[i], most[i], PLAIN);
    ValueId bits = case_input(c, DT_U32, SHAPE(1031), 0, 4294967296.0, PLAIN);
    ValueId code = case_input(c, DT_U8, SHAPE(1031), 0, 256, PLAIN);
    ValueId both[] = {x, bits}, half[] = {g_unary(c->g, OP_HIGH, x), g_unary(c->g, OP_LOW, x)};
    case_out(c, half[0]);
    case_out(c, half[1]);
    case_out(c, graph_add(c->g, OP_JOIN, 2, half, 0, NULL, NULL, NULL));
    case_out(c, graph_add(c->g, OP_STOCHASTIC, 2, both, 0, NULL, NULL, NULL));
    case_out(c, g_unary(c->g, OP_QUANT8, x));
    case_out(c, g_unary(c->g, OP_QUANT8U, x));
    case_out(c, g_unary(c->g, OP_DEQUANT8, code));
    case_out(c, g_unary(c->g, OP_DEQUANT8U, code));
    case_cluster(c, SHAPE(1031), 1);
  }
  check(&s);
}

static void int_ops_and_casts(void **state) {
  (void)state;
  Cases s = {.a = arena_new()};
  for (int t = DT_I32; t <= DT_I8; t++)
    for (int i = 0; i < COUNT_OF(int_ops); i++) {
      Case *c = add(&s, "%s of %s", op_name(int_ops[i]), dtype_name((DType)t));
      ValueId a = case_input(c, (DType)t, SHAPE(131), t == DT_U32 ? 0 : -9, 9, PLAIN);
      ValueId b = case_input(c, (DType)t, SHAPE(131), t == DT_U32 ? 0 : -9, 9, EVERY_OTHER);
      case_out(c, g_binary(c->g, int_ops[i], a, b));
      case_cluster(c, SHAPE(131), 1);
    }
  for (int from = 0; from < DT_COUNT; from++)
    for (int to = 0; to < DT_COUNT; to++) {
      if (from == to) continue;
      Case *c = add(&s, "cast %s to %s", dtype_name((DType)from), dtype_name((DType)to));
      bool positive = from == DT_U32 || from == DT_U16 || from == DT_U8 || from == DT_BOOL;
      double lo = positive ? 0 : -300, hi = from == DT_BOOL ? 2 : 300;
      if (from == DT_I8) lo = -128, hi = 127;
      if (from == DT_U8) hi = 255;
      ValueId a = case_input(c, (DType)from, SHAPE(5, 21), lo, hi, TRANSPOSED);
      case_out(c, g_cast(c->g, a, (DType)to));
      case_cluster(c, SHAPE(5, 21), 2);
    }
  Case *c = add(&s, "logic");
  ValueId a = case_input(c, DT_BOOL, SHAPE(77), 0, 2, PLAIN),
          b = case_input(c, DT_BOOL, SHAPE(77), 0, 2, PLAIN);
  ValueId x = case_input(c, DT_F32, SHAPE(77), -1, 1, PLAIN),
          y = case_input(c, DT_F32, SHAPE(77), -1, 1, PLAIN);
  ValueId both = g_binary(c->g, OP_AND, a, b),
          either = g_binary(c->g, OP_OR, both, g_unary(c->g, OP_NOT, a));
  case_out(c, either);
  case_out(c, g_select(c->g, either, x, y));
  case_cluster(c, SHAPE(77), 1);
  check(&s);
}

/* ---- leaves and index maps ---- */

static void leaves_and_views(void **state) {
  (void)state;
  Cases s = {.a = arena_new()};
  Case *c = add(&s, "iota and const");
  ValueId i = g_iota(c->g, DT_I32, SHAPE(4, 6, 19), 1),
          f = g_iota(c->g, DT_F32, SHAPE(4, 6, 19), 2);
  case_out(c, g_binary(c->g, OP_ADD, g_cast(c->g, i, DT_F32),
                       g_binary(c->g, OP_MUL, f, g_like(c->g, f, 0.1))));
  case_cluster(c, SHAPE(4, 6, 19), 3);

  c = add(&s, "broadcasts");
  ValueId x = case_input(c, DT_F32, SHAPE(3, 5, 18), -1, 1, TRANSPOSED);
  ValueId row = case_input(c, DT_F32, SHAPE(3, 5), -1, 1, PLAIN),
          col = case_input(c, DT_F32, SHAPE(18), -1, 1, PLAIN);
  ValueId one = case_input(c, DT_F32, shape_scalar(), -1, 1, PLAIN);
  ValueId y = g_binary(c->g, OP_ADD, x, g_broadcast(c->g, row, SHAPE(3, 5, 18), (int64_t[]){0, 1}));
  y = g_binary(c->g, OP_MUL, y, g_broadcast(c->g, col, SHAPE(3, 5, 18), (int64_t[]){2}));
  y = g_binary(c->g, OP_ADD, y,
               g_broadcast(c->g, g_unary(c->g, OP_EXP, one), SHAPE(3, 5, 18), NULL));
  case_out(c, y);
  case_cluster(c, SHAPE(3, 5, 18), 2);

  c = add(&s, "transpose");
  x = case_input(c, DT_F32, SHAPE(3, 5, 18), -1, 1, PLAIN);
  case_out(c, g_unary(c->g, OP_NEG, g_transpose(c->g, x, (int64_t[]){2, 0, 1})));
  case_cluster(c, SHAPE(18, 3, 5), 3);

  c = add(&s, "reshape of a transposed operand");
  x = case_input(c, DT_F32, SHAPE(4, 6, 10), -1, 1, TRANSPOSED);
  case_out(c, g_unary(c->g, OP_NEG, g_reshape(c->g, x, SHAPE(4, 5, 12))));
  case_cluster(c, SHAPE(4, 5, 12), 2);

  c = add(&s, "reshape that merges axes of a padded operand");
  x = case_input(c, DT_BF16, SHAPE(4, 6, 10), -1, 1, PADDED);
  case_out(c, g_unary(c->g, OP_NEG, g_reshape(c->g, x, SHAPE(24, 10))));
  case_cluster(c, SHAPE(24, 10), 1);

  c = add(&s, "slice and pad");
  x = case_input(c, DT_F32, SHAPE(6, 40), -1, 1, PLAIN);
  y = case_input(c, DT_F32, SHAPE(4, 9), -1, 1, PLAIN);
  ValueId cut = g_slice(c->g, g_slice(c->g, x, 1, 3, 20), 0, 1, 6);
  ValueId grown = g_pad(c->g, y, (int64_t[]){1, 5}, (int64_t[]){0, 3});
  case_map(c, node_of(c->g, cut)->in[0], 2, (int[]){0, 1});
  case_out(c, g_binary(c->g, OP_ADD, cut, grown));
  /* The inner slice has rows that the space lacks; it is only walked through. */
  c->c.space = SHAPE(5, 17);
  case_cluster(c, SHAPE(5, 17), 2);

  c = add(&s, "gather");
  ValueId table = case_input(c, DT_F32, SHAPE(11, 37), -1, 1, PADDED);
  ValueId ids = case_input(c, DT_I32, SHAPE(2, 9), 0, 11, PLAIN);
  ValueId rows = g_gather(c->g, table, ids);
  case_out(c, g_binary(c->g, OP_ADD, rows, rows));
  case_cluster(c, SHAPE(2, 9, 37), 2);

  c = add(&s, "random");
  ValueId seed = case_input(c, DT_U32, SHAPE(2), 0, 4e9, PLAIN);
  ValueId step = case_input(c, DT_I32, shape_scalar(), 0, 1000, PLAIN);
  ValueId sample = case_input(c, DT_I32, shape_scalar(), 0, 1000, PLAIN);
  int64_t ints[] = {DT_F32, 3, 5, 3, 23, 123456789, 0}, whole[] = {DT_U32, 3, 5, 3, 23, -77, -1};
  ValueId drawn =
      graph_add(c->g, OP_RANDOM, 3, (ValueId[]){seed, step, sample}, 7, ints, NULL, NULL);
  ValueId bits =
      graph_add(c->g, OP_RANDOM, 3, (ValueId[]){seed, step, sample}, 7, whole, NULL, NULL);
  case_out(c, drawn);
  case_out(c, bits);
  case_cluster(c, SHAPE(5, 3, 23), 2);
  check(&s);
}

/* ---- reductions ---- */

static void row_reductions(void **state) {
  (void)state;
  Cases s = {.a = arena_new()};
  const int64_t sizes[] = {1, 3, 16, 50, 128, 4096, 5000, 9001};
  for (int i = 0; i < COUNT_OF(sizes); i++)
    for (int op = OP_SUM; op <= OP_ARGMAX; op++) {
      int64_t n = sizes[i];
      Case *c = add(&s, "%s over %lld", op_name((Op)op), (long long)n);
      ValueId x = case_input(c, DT_F32, SHAPE(3, n), -2, 2, PLAIN);
      case_out(c, g_reduce(c->g, (Op)op, x, 1, (int64_t[]){1}));
      case_cluster(c, SHAPE(3, n), 1);
    }
  Case *c = add(&s, "sum over two axes that lie apart");
  ValueId x = case_input(c, DT_F32, SHAPE(3, 7, 19), -2, 2, TRANSPOSED);
  case_out(c, g_reduce(c->g, OP_SUM, g_unary(c->g, OP_EXP, x), 2, (int64_t[]){1, 2}));
  case_cluster(c, SHAPE(3, 7, 19), 1);

  c = add(&s, "softmax");
  x = case_input(c, DT_F32, SHAPE(6, 45), -5, 5, PLAIN);
  case_out(c, c_softmax(c->g, x, 1));
  case_cluster(c, SHAPE(6, 45), 1);

  c = add(&s, "softmax of many columns");
  x = case_input(c, DT_F32, SHAPE(2, 20011), -5, 5, PLAIN);
  case_out(c, c_softmax(c->g, x, 1));
  case_cluster(c, SHAPE(2, 20011), 1);

  c = add(&s, "softmax of one row");
  x = case_input(c, DT_F32, SHAPE(333), -5, 5, PLAIN);
  case_out(c, c_softmax(c->g, x, 0));
  case_cluster(c, SHAPE(333), 0);

  c = add(&s, "layernorm with its statistics");
  x = case_input(c, DT_F32, SHAPE(2, 6, 72), -5, 5, PLAIN);
  ValueId w = case_input(c, DT_F32, SHAPE(72), -1, 1, PLAIN),
          b = case_input(c, DT_F32, SHAPE(72), -1, 1, PLAIN);
  case_out(c, c_layernorm(c->g, x, w, b, 1e-5));
  for (int i = 0; i < c->g->nodes.n; i++) /* row values as outputs, too */
    if (node_at(c->g, i)->op == OP_RSQRT) case_out(c, node_at(c->g, i)->out);
  case_cluster(c, SHAPE(2, 6, 72), 2);

  c = add(&s, "row values that vary along some of the rows' axes");
  x = case_input(c, DT_F32, SHAPE(3, 2, 4, 5), -5, 5, PLAIN);
  ValueId rows = case_input(c, DT_F32, SHAPE(3, 2), -5, 5, PLAIN);
  ValueId total = g_reduce(c->g, OP_SUM, x, 1, (int64_t[]){3});
  case_out(
      c, g_binary(c->g, OP_SUB, total, g_broadcast(c->g, rows, SHAPE(3, 2, 4), (int64_t[]){0, 1})));
  case_map(c, rows, 2, (int[]){0, 1});
  case_cluster(c, SHAPE(3, 2, 4, 5), 3);

  c = add(&s, "integers");
  x = case_input(c, DT_I32, SHAPE(5, 60), -90, 90, PLAIN);
  case_out(c, g_reduce(c->g, OP_SUM, x, 1, (int64_t[]){1}));
  case_out(c, g_reduce(c->g, OP_AMAX, x, 1, (int64_t[]){1}));
  case_cluster(c, SHAPE(5, 60), 1);

  c = add(&s, "bf16 sums round once");
  x = case_input(c, DT_BF16, SHAPE(5, 260), -2, 2, PLAIN);
  case_out(c, g_reduce(c->g, OP_SUM, x, 1, (int64_t[]){1}));
  case_cluster(c, SHAPE(5, 260), 1);
  check(&s);
}

static void sums_over_rows(void **state) {
  (void)state;
  Cases s = {.a = arena_new()};
  const int64_t rows[] = {1, 5, 16, 100, 1000, 3001};
  for (int i = 0; i < COUNT_OF(rows); i++) {
    int64_t n = rows[i];
    Case *c = add(&s, "sum over %lld rows", (long long)n);
    ValueId x = case_input(c, DT_F32, SHAPE(n, 37), -2, 2, PLAIN);
    case_out(c, g_reduce(c->g, OP_SUM, x, 1, (int64_t[]){0}));
    case_out(c, g_unary(c->g, OP_NEG, x));
    case_cluster(c, SHAPE(n, 37), 1);
    case_map(c, c->outs.at[0], 1, (int[]){1});
    c->tolerance = 2e-5;
    c = add(&s, "sum over all of %lld x 37", (long long)n);
    x = case_input(c, DT_F32, SHAPE(n, 37), -2, 2, i & 1 ? PADDED : PLAIN);
    case_out(c, g_reduce(c->g, OP_SUM, g_binary(c->g, OP_MUL, x, x), 2, (int64_t[]){0, 1}));
    case_cluster(c, SHAPE(n, 37), 2);
    c->tolerance = 1e-6;
  }
  Case *c = add(&s, "layernorm backward: dx, dgamma, dbeta");
  ValueId x = case_input(c, DT_F32, SHAPE(4, 30, 72), -2, 2, PLAIN),
          dy = case_input(c, DT_F32, SHAPE(4, 30, 72), -2, 2, PLAIN);
  ValueId w = case_input(c, DT_F32, SHAPE(72), -1, 1, PLAIN);
  ValueId wide = g_binary(c->g, OP_MUL, dy, g_broadcast(c->g, w, SHAPE(4, 30, 72), (int64_t[]){2}));
  ValueId m = g_reduce(c->g, OP_SUM, g_binary(c->g, OP_MUL, wide, x), 1, (int64_t[]){2});
  ValueId dx = g_binary(
      c->g, OP_SUB, wide,
      g_binary(c->g, OP_MUL, x, g_broadcast(c->g, m, SHAPE(4, 30, 72), (int64_t[]){0, 1})));
  case_out(c, dx);
  case_out(c, g_reduce(c->g, OP_SUM, g_binary(c->g, OP_MUL, dy, x), 2, (int64_t[]){0, 1}));
  case_out(c, g_reduce(c->g, OP_SUM, dy, 2, (int64_t[]){0, 1}));
  case_map(c, c->outs.at[1], 1, (int[]){2});
  case_map(c, c->outs.at[2], 1, (int[]){2});
  case_cluster(c, SHAPE(4, 30, 72), 2);
  c->tolerance = 2e-5;

  c = add(&s, "a sum of row values with what follows");
  x = case_input(c, DT_F32, SHAPE(60, 40), -2, 2, PLAIN);
  ValueId old = case_input(c, DT_F32, shape_scalar(), -2, 2, PLAIN);
  ValueId top = g_reduce(c->g, OP_AMAX, x, 1, (int64_t[]){1});
  ValueId all = g_reduce(c->g, OP_SUM, top, 1, (int64_t[]){0});
  case_out(c, g_binary(c->g, OP_ADD, old, all));
  case_cluster(c, SHAPE(60, 40), 1);

  c = add(&s, "several column axes");
  x = case_input(c, DT_F32, SHAPE(50, 3, 8), -2, 2, TRANSPOSED);
  ValueId sum = g_reduce(c->g, OP_SUM, x, 1, (int64_t[]){0});
  case_out(c, g_unary(c->g, OP_ABS, sum));
  case_map(c, sum, 2, (int[]){1, 2});
  case_map(c, c->outs.at[0], 2, (int[]){1, 2});
  case_cluster(c, SHAPE(50, 3, 8), 1);
  check(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(float_ops_in_all_dtypes), cmocka_unit_test(int_ops_and_casts),
      cmocka_unit_test(leaves_and_views),        cmocka_unit_test(row_reductions),
      cmocka_unit_test(sums_over_rows),          cmocka_unit_test(formats),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
