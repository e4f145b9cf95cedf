/* test_compose.c - compositions: values against formulas written out here, gradients against
 * central differences in f64, behaviour at the edges, tags. */
#include "case.h"
#include "ir/philox.h"

static ValueId scalar_input(Case *c, StepScalar s, double value) {
  int v = var_scalar(c->g->vars, s);
  double *x = arena_array(c->a, double, 2);
  x[0] = value;
  x[1] = value + 1;
  c->vars[v] = x;
  return v;
}

/* Values, gradients, soundness, text; and all nodes of the result under one tag id. */
static void all_of(Case *c, const char *tag, int first) {
  int id = c->g->nodes.at[first].tag_id;
  assert_true(id > 0);
  for (int n = first; n < c->g->nodes.n; n++) {
    assert_string_equal(c->g->nodes.at[n].tag, tag);
    assert_int_equal(c->g->nodes.at[n].tag_id, id);
  }
  assert_null(c->g->here.tag);
  assert_int_equal(c->g->here.tag_id, 0);
  case_sound(c, tag);
  case_values(c, tag);
  case_gradients(c, tag);
  case_round_trip(c, tag);
  case_free(c);
}

static void norm(bool rms, bool affine) {
  Case c = case_new();
  ValueId x = case_input(&c, DT_F32, SHAPE(2, 3, 5), -2, 2), w = -1, b = -1;
  if (affine) w = case_input(&c, DT_F32, SHAPE(5), -1, 1);
  if (affine && !rms) b = case_input(&c, DT_F32, SHAPE(5), -1, 1);
  int first = c.g->nodes.n;
  ValueId y = rms ? c_rmsnorm(c.g, x, w, 1e-3) : c_layernorm(c.g, x, w, b, 1e-3);
  double *want = case_result(&c, y);
  for (int r = 0; r < 6; r++) {
    const double *row = case_data(&c, 0) + 5 * r;
    double mean = 0, var = 0;
    for (int k = 0; k < 5; k++) mean += rms ? 0 : row[k] / 5;
    for (int k = 0; k < 5; k++) var += (row[k] - mean) * (row[k] - mean) / 5;
    for (int k = 0; k < 5; k++) {
      double *o = &want[5 * r + k];
      *o = (row[k] - mean) / sqrt(var + 1e-3);
      if (affine) *o *= case_data(&c, 1)[k];
      if (b >= 0) *o += case_data(&c, 2)[k];
    }
  }
  all_of(&c, rms ? "rmsnorm" : "layernorm", first);
}

static void norms(void **state) {
  (void)state;
  for (int i = 0; i < 4; i++) norm(i & 1, i & 2);
}

static void softmax(void **state) {
  (void)state;
  for (int axis = 0; axis < 3; axis++) {
    Case c = case_new();
    ValueId x = case_input(&c, DT_F32, SHAPE(2, 3, 4), -3, 3);
    int first = c.g->nodes.n, inner = axis == 0 ? 12 : axis == 1 ? 4 : 1;
    int size = (int)val(c.g, x)->shape.dim[axis];
    double *want = case_result(&c, c_softmax(c.g, x, axis));
    for (int i = 0; i < 24; i++) {
      int start = i - i / inner % size * inner;
      double sum = 0;
      for (int k = 0; k < size; k++) sum += exp(case_data(&c, 0)[start + k * inner]);
      want[i] = exp(case_data(&c, 0)[i]) / sum;
    }
    all_of(&c, "softmax", first);
  }
}

static double gelu_erf(double x) {
  return x * 0.5 * erfc(-x / sqrt(2));
}
static double gelu_tanh(double x) {
  return x / (1 + exp(-2 * sqrt(2 / M_PI) * (x + 0.044715 * pow(x, 3))));
}
static double sigmoid(double x) {
  return exp(x) / (1 + exp(x));
}
static double silu(double x) {
  return x * sigmoid(x);
}
static double relu(double x) {
  return x > 0 ? x : 0;
}

static ValueId build_gelu_erf(Graph *g, ValueId x) {
  return c_gelu(g, x, false);
}
static ValueId build_gelu_tanh(Graph *g, ValueId x) {
  return c_gelu(g, x, true);
}

static void activations(void **state) {
  (void)state;
  static const struct {
    const char *tag;
    ValueId (*build)(Graph *, ValueId);
    double (*value)(double);
  } rows[] = {{"gelu", build_gelu_erf, gelu_erf},
              {"gelu", build_gelu_tanh, gelu_tanh},
              {"sigmoid", c_sigmoid, sigmoid},
              {"silu", c_silu, silu},
              {"relu", c_relu, relu}};
  for (int i = 0; i < COUNT_OF(rows); i++) {
    Case c = case_new();
    ValueId x = case_input(&c, DT_F32, SHAPE(12), -4, 4);
    int first = c.g->nodes.n;
    double *want = case_result(&c, rows[i].build(c.g, x));
    for (int k = 0; k < 12; k++) want[k] = rows[i].value(case_data(&c, 0)[k]);
    all_of(&c, rows[i].tag, first);
  }
}

/* In f32, far out: no infinity meets a zero, in values or gradients. */
static void activations_saturate(void **state) {
  (void)state;
  ValueId (*const build[])(Graph *, ValueId) = {c_sigmoid, c_silu, build_gelu_erf, build_gelu_tanh};
  static const double far[] = {-1e4, -200, -89, 89, 200, 1e4};
  for (int i = 0; i < COUNT_OF(build); i++) {
    Case c = case_new();
    ValueId x = case_input(&c, DT_F32, SHAPE(6), -1, 1), grad;
    memcpy(case_data(&c, 0), far, sizeof far);
    ValueId y = build[i](c.g, x);
    graph_gradients(c.g, y, g_like(c.g, y, 1), 1, &x, &grad);
    double **v = case_run(&c, false);
    for (int k = 0; k < 6; k++) {
      double one = far[k] > 0, up = i ? fmax(far[k], 0) : one, slope = i ? one : 0;
      assert_true(fabs(v[y][k] - up) < 1e-6 * fmax(1, up));
      assert_true(fabs(v[grad][k] - slope) < 1e-6);
    }
    case_free(&c);
  }
}

/* Half-split: (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin). */
static void rope(void **state) {
  (void)state;
  Case c = case_new();
  ValueId x = case_input(&c, DT_F32, SHAPE(2, 3, 2, 6), -1, 1);
  int first = c.g->nodes.n;
  double *want = case_result(&c, c_rope(c.g, x, 100, NULL));
  for (int row = 0; row < 12; row++)
    for (int i = 0; i < 3; i++) {
      const double *in = case_data(&c, 0) + row * 6;
      double t = row / 2 % 3 * pow(100, -2.0 * i / 6);
      want[row * 6 + i] = in[i] * cos(t) - in[3 + i] * sin(t);
      want[row * 6 + 3 + i] = in[3 + i] * cos(t) + in[i] * sin(t);
    }
  all_of(&c, "rope", first);
}

/* Llama 3.1's scaling, written as Hugging Face has it: three cases by the length of a wave. */
static void rope_scaled(void **state) {
  (void)state;
  enum { HALF = 16, POSITIONS = 5 };
  const RopeScaling k = {8, 1, 4, 64};
  Case c = case_new();
  ValueId x = case_input(&c, DT_F32, SHAPE(1, POSITIONS, 1, 2 * HALF), -1, 1);
  int first = c.g->nodes.n, cases[3] = {0};
  double *want = case_result(&c, c_rope(c.g, x, 10000, &k));
  for (int row = 0; row < POSITIONS; row++)
    for (int i = 0; i < HALF; i++) {
      const double *in = case_data(&c, 0) + row * 2 * HALF;
      double freq = pow(10000, -(double)i / HALF), wave = 2 * M_PI / freq;
      double smooth = (k.context / wave - k.low_freq) / (k.high_freq - k.low_freq);
      int slow = wave > k.context / k.low_freq, fast = wave < k.context / k.high_freq;
      if (slow) freq /= k.factor;
      if (!slow && !fast) freq = (1 - smooth) * freq / k.factor + smooth * freq;
      cases[slow ? 0 : fast ? 2 : 1]++;
      double t = row * freq;
      want[row * 2 * HALF + i] = in[i] * cos(t) - in[HALF + i] * sin(t);
      want[row * 2 * HALF + HALF + i] = in[HALF + i] * cos(t) + in[i] * sin(t);
    }
  assert_true(cases[0] && cases[1] && cases[2]);
  all_of(&c, "rope", first);
}

static void dropout(void **state) {
  (void)state;
  Case c = case_new();
  scalar_input(&c, SC_SEED, 77);
  scalar_input(&c, SC_STEP, 5);
  scalar_input(&c, SC_SAMPLE0, 3);
  c.g->here.path = "h.0";
  ValueId x = case_input(&c, DT_F32, SHAPE(3, 8), -1, 1);
  assert_int_equal(c_dropout(c.g, x, 0.25, false), x);
  assert_int_equal(c_dropout(c.g, x, 0, true), x);
  int64_t key = c_random_key(c.g);
  int first = c.g->nodes.n, kept = 0;
  double *want = case_result(&c, c_dropout(c.g, x, 0.25, true));
  for (int i = 0; i < 24; i++) {
    unsigned bits = philox_bits(77, 78, (unsigned long long)key, 5, 3 + i / 8, i % 8);
    bool keep = (bits >> 8) * 0x1p-24 < 0.75;
    want[i] = keep ? case_data(&c, 0)[i] / 0.75 : 0;
    kept += keep;
  }
  assert_in_range(kept, 10, 23);
  assert_int_not_equal(c_random_key(c.g), key); /* a second draw at this path is another */
  all_of(&c, "dropout", first);
}

/* The same sample draws the same, whatever stands before it in the micro-batch. */
static void dropout_follows_the_sample(void **state) {
  (void)state;
  double *all = NULL;
  Arena *a = arena_new();
  for (int split = 0; split < 3; split++) { /* samples 0..3; then 0..1; then 2..3 */
    Case c = case_new();
    int rows = split ? 2 : 4;
    scalar_input(&c, SC_SEED, 1);
    scalar_input(&c, SC_STEP, 9);
    scalar_input(&c, SC_SAMPLE0, split == 2 ? 2 : 0);
    ValueId y = c_dropout(c.g, g_const(c.g, DT_F32, SHAPE(rows, 40), 1), 0.5, true);
    double **v = case_run(&c, true);
    if (!split) all = arena_copy(a, v[y], 160 * sizeof(double));
    const double *part = all + (split == 2 ? 80 : 0);
    for (int i = 0; i < rows * 40; i++) assert_true(v[y][i] == part[i]);
    case_free(&c);
  }
  arena_free(a);
}

static void cross_entropy(double smooth) {
  Case c = case_new();
  ValueId x = case_input(&c, DT_F32, SHAPE(2, 3, 5), -3, 3);
  ValueId t = case_input(&c, DT_I32, SHAPE(2, 3), 0, 5);
  case_data(&c, 1)[2] = -100;
  case_data(&c, 1)[5] = -100;
  scalar_input(&c, SC_INV_COUNT, 0.25);
  int first = c.g->nodes.n;
  double *want = case_result(&c, c_cross_entropy(c.g, x, t, -100, smooth));
  for (int r = 0; r < 6; r++) {
    const double *row = case_data(&c, 0) + 5 * r;
    int target = (int)case_data(&c, 1)[r];
    double sum = 0;
    for (int k = 0; k < 5; k++) sum += exp(row[k]);
    for (int k = 0; k < 5 && target >= 0; k++) {
      double share = (k == target ? 1 - smooth : 0) + smooth / 5;
      want[0] -= 0.25 * share * (row[k] - log(sum));
    }
  }
  all_of(&c, "cross_entropy", first);
}

static void cross_entropies(void **state) {
  (void)state;
  cross_entropy(0);
  cross_entropy(0.1);
}

/* Logits far apart overflow nothing, and ignored rows add nothing though they are NaN. */
static void cross_entropy_edges(void **state) {
  (void)state;
  Case c = case_new();
  ValueId x = case_input(&c, DT_F32, SHAPE(3, 2), -1, 1),
          t = case_input(&c, DT_I32, SHAPE(3), 0, 2);
  static const double logits[] = {1e4, -1e4, -1e4, 1e4, NAN, NAN}, targets[] = {0, 0, -100};
  memcpy(case_data(&c, 0), logits, sizeof logits);
  memcpy(case_data(&c, 1), targets, sizeof targets);
  scalar_input(&c, SC_INV_COUNT, 0.5);
  ValueId loss = c_cross_entropy(c.g, x, t, -100, 0), grad;
  graph_gradients(c.g, loss, -1, 1, &x, &grad);
  double **v = case_run(&c, false);
  assert_true(v[loss][0] == 1e4);
  static const double want[] = {0, 0, -0.5, 0.5};
  for (int i = 0; i < 4; i++) assert_true(v[grad][i] == want[i]);
  case_free(&c);
}

static void mean(void **state) {
  (void)state;
  Case c = case_new();
  ValueId x = case_input(&c, DT_F32, SHAPE(2, 3, 2), -1, 1);
  static const int64_t axes[] = {0, 2};
  int first = c.g->nodes.n;
  double *want = case_result(&c, c_mean(c.g, x, 2, axes));
  for (int i = 0; i < 12; i++) want[i / 2 % 3] += case_data(&c, 0)[i] / 4;
  all_of(&c, "mean", first);
}

/* One mistake is one message: what was refused passes through everything after it. */
static void mistakes_pass_through(void **state) {
  (void)state;
  Case c = case_new();
  c.g->diags = diags_new(c.a);
  c.g->here.loc = (Loc){0, 3, 4, 1};
  ValueId x = case_input(&c, DT_F32, SHAPE(2, 3, 2, 5), -1, 1);
  ValueId y = c_rope(c.g, x, 1e4, NULL); /* odd width */
  assert_int_equal(y, -1);
  y = c_layernorm(c.g, c_gelu(c.g, y, true), -1, -1, 1e-5);
  y = c_softmax(c.g, c_dropout(c.g, c_silu(c.g, g_matmul(c.g, y, x)), 0.1, true), 1);
  assert_int_equal(c_cross_entropy(c.g, y, x, 0, 0), -1);
  assert_int_equal(c.g->diags->errors, 1);
  assert_int_equal(c.g->here.tag_id, 0);
  case_free(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(norms),
      cmocka_unit_test(softmax),
      cmocka_unit_test(activations),
      cmocka_unit_test(activations_saturate),
      cmocka_unit_test(rope),
      cmocka_unit_test(rope_scaled),
      cmocka_unit_test(dropout),
      cmocka_unit_test(dropout_follows_the_sample),
      cmocka_unit_test(cross_entropies),
      cmocka_unit_test(cross_entropy_edges),
      cmocka_unit_test(mean),
      cmocka_unit_test(mistakes_pass_through),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
