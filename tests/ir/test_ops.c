/* test_ops.c - every op of the table: values against small computations of their own, gradients
 * against central differences, soundness and the text form of each graph. What differences cannot
 * see is tested one by one. */
#include "samples.h"

static void every_op_has_a_sample(void **state) {
  (void)state;
  for (int op = 0; op < OP_COUNT; op++) {
    int found = 0;
    for (int i = 0; i < COUNT_OF(samples); i++) found += samples[i].op == (Op)op;
    if (!found) fail_msg("op `%s` has no row in op_samples.def", op_name((Op)op));
  }
}

static void samples_hold(void **state) {
  (void)state;
  for (int i = 0; i < COUNT_OF(samples); i++) {
    const Sample *s = &samples[i];
    Case c = sample_case(s);
    bool there = false;
    for (int n = 0; n < c.g->nodes.n; n++) there |= c.g->nodes.at[n].op == s->op;
    if (!there) fail_msg("%s: the sample does not use its op", s->text);
    case_sound(&c, s->text);
    if (op_kind(s->op) != NOT_YET) {
      case_values(&c, s->text);
      case_gradients(&c, s->text);
    }
    for (int k = 0; k < c.nout; k++) graph_result(c.g, "y", c.out[k]);
    case_round_trip(&c, s->text);
    case_free(&c);
  }
}

/* One gradient of a function of x at the given points. */
static void slope_at(Case *c, ValueId y, ValueId x, const double *want, int n) {
  ValueId grad;
  graph_gradients(c->g, y, g_like(c->g, y, 1), 1, &x, &grad);
  double **v = case_run(c, true);
  for (int i = 0; i < n; i++)
    if (v[grad][i] != want[i]) fail_msg("gradient %d is %g, not %g", i, v[grad][i], want[i]);
}

static void hold_has_no_slope(void **state) {
  (void)state;
  Case c = case_new();
  ValueId x = case_input(&c, DT_F32, SHAPE(3), -1, 1);
  slope_at(&c, g_binary(c.g, OP_MUL, x, g_unary(c.g, OP_HOLD, x)), x, case_data(&c, 0), 3);
  case_free(&c);
}

static void kinks(void **state) {
  (void)state;
  static const double x0[] = {-1, 0, 2}, abs_[] = {-1, 0, 1}, first[] = {0, 1, 1};
  Case c = case_new();
  ValueId x = case_input(&c, DT_F32, SHAPE(3), -1, 1);
  memcpy(case_data(&c, 0), x0, sizeof x0);
  slope_at(&c, g_unary(c.g, OP_ABS, x), x, abs_, 3);
  slope_at(&c, g_binary(c.g, OP_MAX, x, g_like(c.g, x, 0)), x, first, 3);
  static const double relu[] = {0, 0, 1}, low[] = {1, 1, 0};
  slope_at(&c, c_relu(c.g, x), x, relu, 3);
  slope_at(&c, g_binary(c.g, OP_MIN, x, g_like(c.g, x, 0)), x, low, 3);
  case_free(&c);
}

static void equal_maxima_share(void **state) {
  (void)state;
  static const double x0[] = {1, 3, 3, 0}, want[] = {0, 0.5, 0.5, 0};
  static const int64_t all[] = {0};
  Case c = case_new();
  ValueId x = case_input(&c, DT_F32, SHAPE(4), -1, 1);
  memcpy(case_data(&c, 0), x0, sizeof x0);
  slope_at(&c, g_reduce(c.g, OP_AMAX, x, 1, all), x, want, 4);
  case_free(&c);
}

/* select(x > 0, sqrt(x), 0) at negative x: the NaN of the branch not taken adds nothing to the
 * value, and to the gradient of the branch itself zero. */
static void untaken_branch_is_silent(void **state) {
  (void)state;
  static const double x0[] = {-4, 4}, want[] = {0, 1};
  Case c = case_new();
  ValueId x = case_input(&c, DT_F32, SHAPE(2), -1, 1), zero = g_like(c.g, x, 0);
  memcpy(case_data(&c, 0), x0, sizeof x0);
  ValueId root = g_unary(c.g, OP_SQRT, x);
  ValueId y = g_select(c.g, g_binary(c.g, OP_LT, zero, x), root, zero);
  slope_at(&c, y, root, want, 2);
  case_free(&c);
}

static void nan_wins(void **state) {
  (void)state;
  static const int64_t all[] = {0};
  Case c = case_new();
  ValueId a = case_input(&c, DT_F32, SHAPE(2), -1, 1), b = case_input(&c, DT_F32, SHAPE(2), -1, 1);
  case_data(&c, 0)[0] = NAN;
  case_data(&c, 1)[1] = NAN;
  ValueId v[] = {g_binary(c.g, OP_MAX, a, b), g_binary(c.g, OP_MIN, a, b)};
  ValueId top = g_reduce(c.g, OP_AMAX, a, 1, all), fin = g_unary(c.g, OP_FINITE, a);
  double **x = case_run(&c, true);
  for (int i = 0; i < 2; i++) assert_true(isnan(x[v[i]][0]) && isnan(x[v[i]][1]));
  assert_true(isnan(x[top][0]));
  assert_true(x[fin][0] == 0 && x[fin][1] == 1);
  case_free(&c);
}

/* A query to which every key is shut: zeros, and no gradient to anything. */
static void shut_rows(void **state) {
  (void)state;
  Case c = case_new();
  Heads s = {.B = 2, .Tq = 2, .Tk = 2, .H = 1, .KV = 1, .D = 2};
  AttentionArgs a = attention_args(&c, &s);
  a.mask = case_input(&c, DT_BOOL, SHAPE(2, 2), 0, 2);
  static const double mask[] = {0, 0, 1, 1};
  memcpy(case_data(&c, 3), mask, sizeof mask);
  ValueId o = g_attention(c.g, &a), wrt[] = {a.q, a.k, a.v}, grad[3];
  graph_gradients(c.g, o, g_like(c.g, o, 1), 3, wrt, grad);
  double **v = case_run(&c, true);
  for (int i = 0; i < 4; i++) {
    assert_true(v[o][i] == 0 && v[o][4 + i] != 0);
    for (int k = 0; k < 3; k++) assert_true(v[grad[k]][i] == 0);
  }
  assert_true(v[o + 1][0] == 0 && v[o + 1][1] == 0);
  case_free(&c);
}

/* Values are rounded to nearest even in their dtype after each node. */
static void rounding(void **state) {
  (void)state;
  static const struct {
    DType t;
    double x, want;
  } rows[] = {
      {DT_F32, 1 + 0x1p-24, 1},
      {DT_F32, 1 + 0x3p-24, 1 + 0x1p-22},
      {DT_BF16, 1 + 0x1p-8, 1},
      {DT_BF16, 1 + 0x3p-8, 1 + 0x1p-6},
      {DT_BF16, 0x1.ffp127, INFINITY},
      {DT_BF16, 3e38, 0x1.c4p127},
      {DT_F16, 1 + 0x1p-11, 1},
      {DT_F16, 1 + 0x3p-11, 1 + 0x1p-9},
      {DT_F16, 65519, 65504},
      {DT_F16, 65520, INFINITY},
      {DT_F16, 0x1p-25, 0},
      {DT_F16, 0x3p-25, 0x1p-23},
      {DT_BF16, -0x1p-134, 0},
      {DT_BF16, -0x1.8p-133, -0x1p-132},
  };
  for (int i = 0; i < COUNT_OF(rows); i++) {
    Case c = case_new();
    ValueId x = g_const(c.g, rows[i].t, shape_scalar(), rows[i].x);
    assert_true(case_run(&c, true)[x][0] == rows[i].x);
    double got = case_run(&c, false)[x][0];
    if (got != rows[i].want) fail_msg("row %d: %a, not %a", i, got, rows[i].want);
    case_free(&c);
  }
}

static void integers_wrap(void **state) {
  (void)state;
  Case c = case_new();
  ValueId big = g_const(c.g, DT_I32, shape_scalar(), 2147483647);
  ValueId u = g_const(c.g, DT_U32, shape_scalar(), 4294967295.0);
  ValueId s = g_binary(c.g, OP_ADD, big, big), p = g_binary(c.g, OP_MUL, u, u);
  ValueId n = g_unary(c.g, OP_NEG, g_const(c.g, DT_I32, shape_scalar(), -2147483648.0));
  double **v = case_run(&c, true);
  assert_true(v[s][0] == -2);
  assert_true(v[p][0] == 1);
  assert_true(v[n][0] == -2147483648.0);
  case_free(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_op_has_a_sample),
      cmocka_unit_test(samples_hold),
      cmocka_unit_test(hold_has_no_slope),
      cmocka_unit_test(kinks),
      cmocka_unit_test(equal_maxima_share),
      cmocka_unit_test(untaken_branch_is_silent),
      cmocka_unit_test(nan_wins),
      cmocka_unit_test(shut_rows),
      cmocka_unit_test(rounding),
      cmocka_unit_test(integers_wrap),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
