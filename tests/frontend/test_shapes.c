/* What expressions of functions mean: shape, axis names and values of each operator and operation,
 * by the interpreter of the graph; static arithmetic by sizes that follow from it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "frontend/job.h"

typedef struct {
  Arena *a;
  char *shape;
  DType dtype;
  int64_t n;
  const double *at;
} Result;

static Job *load(Arena *a, const char *text) {
  char path[] = "/tmp/mtc-test-XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, text, strlen(text)), strlen(text));
  close(fd);
  Diags *d = diags_new(a);
  JobArgs args = {.path = path};
  Job *j = elaborate(a, d, &args);
  unlink(path);
  if (!j) {
    diag_render(d, stderr, false);
    fail_msg("in\n%s", text);
  }
  return j;
}

/* The value of a body with x [B=2, T=3, D=4] = 0, 1, .. 23, y [D=4] = 10, 20, 30, 40 and ids i32[B,
 * T] = 0 .. 5. */
static Result body(const char *statements) {
  Result r = {.a = arena_new()};
  Job *j = load(
      r.a, arena_printf(r.a,
                        "mt 1\nlet D = 4\nlet two = 2\n"
                        "model M() { fn forward(x [2, 3, D], y [D], ids i32[2, 3]) {\n%s\n} }\n",
                        statements));
  Graph *g = job_graph(j, r.a, FN_FORWARD, 0, 1);
  assert_non_null(g);
  assert_null(graph_verify(g, r.a));
  double x[24], y[4], ids[6];
  for (int i = 0; i < 24; i++) x[i] = i;
  for (int i = 0; i < 4; i++) y[i] = 10 * (i + 1);
  for (int i = 0; i < 6; i++) ids[i] = i;
  InterpInput inputs[] = {{"x", x}, {"y", y}, {"ids", ids}};
  double **vars = arena_array(r.a, double *, j->vars->all.n + 8);
  Interp in = {r.a, true, inputs, 3, vars};
  ValueId v = g->results.at[0];
  r.at = graph_interp(g, &in)[v];
  r.shape = shape_text(r.a, &val(g, v)->shape);
  r.dtype = val(g, v)->dtype;
  r.n = shape_count(&val(g, v)->shape);
  return r;
}

static Result expr(const char *e) {
  Arena *a = arena_new();
  Result r = body(arena_printf(a, "return %s", e));
  arena_free(a);
  return r;
}

static void gives(Result r, const char *what, const char *shape, int n, const double *want) {
  if (strcmp(r.shape, shape)) fail_msg("%s is %s, not %s", what, r.shape, shape);
  for (int i = 0; i < n; i++)
    if (!(fabs(r.at[i] - want[i]) <= 1e-6 * (1 + fabs(want[i]))))
      fail_msg("%s: element %d is %.9g, not %.9g", what, i, r.at[i], want[i]);
  arena_free(r.a);
}

#define GIVES(e, shape, ...) \
  gives(expr(e), e, shape, COUNT_OF(((double[]){__VA_ARGS__})), (double[]){__VA_ARGS__})

static void arithmetic(void **state) {
  (void)state;
  GIVES("x + 1", "[2, 3, D=4]", 1, 2, 3, 4);
  GIVES("2 * x - y", "[2, 3, D=4]", -10, -18, -26, -34, -2);
  GIVES("y + x", "[2, 3, D=4]", 10, 21);
  GIVES("-y / 4", "[D=4]", -2.5, -5);
  GIVES("y ** 2", "[D=4]", 100, 400);
  GIVES("y ** 0.5 * y ** -0.5", "[D=4]", 1, 1, 1, 1);
  GIVES("y ** 1.5", "[D=4]", pow(10, 1.5));
  GIVES("ids % 4 + ids / 4", "[2, 3]", 0, 1, 2, 3, 1, 2);
  GIVES("x @ x[0].T", "[2, 3, 3]", 14, 38, 62);
  GIVES("x @ (x as [2, 4, 3])", "[2, 3, 3]", 0 * 0 + 1 * 3 + 2 * 6 + 3 * 9);
}

static void comparison(void **state) {
  (void)state;
  Result r = expr("x >= 2.0 and not (x == 3.0)");
  assert_int_equal(r.dtype, DT_BOOL);
  gives(r, "logic", "[2, 3, D=4]", 5, (double[]){0, 0, 1, 0, 1});
  GIVES("ids != 1 or ids < 0", "[2, 3]", 1, 0, 1);
  GIVES("where(ids > 2, ids, -1)", "[2, 3]", -1, -1, -1, 3, 4, 5);
  GIVES("where(y > 15.0, x, 0.5)", "[2, 3, D=4]", 0.5, 1, 2, 3, 0.5, 5);
  GIVES("max(x, 2.0)", "[2, 3, D=4]", 2, 2, 2, 3);
  GIVES("min(ids, 1)", "[2, 3]", 0, 1, 1);
}

static void indexing(void **state) {
  (void)state;
  GIVES("x[:, 0]", "[2, D=4]", 0, 1, 2, 3, 12);
  GIVES("x[1]", "[3, D=4]", 12, 13);
  GIVES("x[.., 1:3]", "[2, 3, 2]", 1, 2, 5, 6);
  GIVES("x[:, -1, 2]", "[2]", 10, 22);
  GIVES("x[0, 0:1]", "[1, D=4]", 0, 1);
  GIVES("x.T", "[2, D=4, 3]", 0, 4, 8, 1);
  GIVES("transpose(x, (2, 0, 1))", "[D=4, 2, 3]", 0, 4, 8, 12);
}

static void reshaping(void **state) {
  (void)state;
  GIVES("x as [6, D]", "[6, D=4]", 0, 1);
  GIVES("x as [.., two, D / two]", "[2, 3, two=2, 2]", 0, 1, 2);
  GIVES("x as [auto, 8]", "[3, 8]", 0, 1);
  GIVES("x as [.., 12]", "[2, 12]", 0, 1);
  GIVES("ids as f32 + 0.5", "[2, 3]", 0.5, 1.5);
  GIVES("(x > 1.0) as i32[4, 6]", "[4, 6]", 0, 0, 1, 1);
}

static void parts(void **state) {
  (void)state;
  gives(body("a, b = split(x, 2)\nreturn b"), "second half", "[2, 3, 2]", 4,
        (double[]){2, 3, 6, 7});
  gives(body("a, b = split(x, (1, 2), axis = 1)\nreturn b"), "two of three", "[2, 2, D=4]", 2,
        (double[]){4, 5});
  GIVES("concat((x, x), axis = 1)", "[2, 6, D=4]", 0, 1);
  GIVES("concat((y, y[0:1]))", "[5]", 10, 20, 30, 40, 10);
  GIVES("gather(x as [6, D], ids)", "[2, 3, D=4]", 0, 1, 2, 3, 4);
  GIVES("gather(y, ids[0])", "[3]", 10, 20, 30);
  GIVES("arange(D)", "[D=4]", 0, 1, 2, 3);
}

static void reductions(void **state) {
  (void)state;
  GIVES("sum(x)", "scalar", 276);
  GIVES("sum(x, axis = -1)", "[2, 3]", 6, 22);
  GIVES("mean(x, axis = (0, 1))", "[D=4]", 10, 11, 12, 13);
  GIVES("mean(ids == 3)", "scalar", 1.0 / 6);
  GIVES("max(x, axis = (1, 2))", "[2]", 11, 23);
  GIVES("min(x, axis = 0)", "[3, D=4]", 0, 1);
  GIVES("argmax(-x, axis = 1)", "[2, D=4]", 0, 0);
  GIVES("softmax(y)", "[D=4]", 0, 2.06106005e-9);
}

static void elementwise(void **state) {
  (void)state;
  GIVES("exp(y / 10)", "[D=4]", exp(1), exp(2));
  GIVES("log(y) + sqrt(y) * rsqrt(y)", "[D=4]", log(10) + 1);
  GIVES("tanh(y / 20) + abs(-y) + sin(y) + cos(y)", "[D=4]", tanh(0.5) + 10 + sin(10) + cos(10));
  GIVES("floor(y / 15)", "[D=4]", 0, 1, 2, 2);
  GIVES("gelu(y / 10)", "[D=4]", 0.841344746, 1.954499736);
  GIVES("gelu(y / 10, approx = \"tanh\")", "[D=4]", 0.841191991, 1.954597694);
  GIVES("silu(y / 10)", "[D=4]", 0.731058579);
  GIVES("sigmoid(y / 10) + relu(-y)", "[D=4]", 0.731058579);
  GIVES("dropout(y, 0.5)", "[D=4]", 10, 20);
  GIVES("stop_gradient(y)", "[D=4]", 10);
}

static void norms(void **state) {
  (void)state;
  GIVES("layernorm(x, y, y, eps = 0.0)", "[2, 3, D=4]", 10 - 10 * 1.341640786,
        20 - 20 * 0.447213595);
  GIVES("rmsnorm(y, y, eps = 0.0)", "[D=4]", 10 * 10 / sqrt(750));
  GIVES("affine(x, y[0:3], y[1:4], axis = 1)", "[2, 3, D=4]", 20, 30, 40, 50, 4 * 20 + 30);
  gives(body("n, m, v = batchnorm(x as [2, 3, 2, 2], y[0:3], y[0:3], eps = 0.0)\nreturn m"),
        "means", "[3]", 3, (double[]){7.5, 11.5, 15.5});
  gives(body("n, m, v = batchnorm(x as [2, 3, 2, 2], y[0:3], y[0:3], eps = 0.0)\nreturn v"),
        "unbiased variances", "[3]", 1, (double[]){298.0 / 7});
  gives(body("n, m, v = batchnorm(x as [2, 3, 2, 2], y[0:3], y[0:3], eps = 0.0)\nreturn n"),
        "batchnorm", "[2, 3, 2, 2]", 1, (double[]){10 - 10 * 7.5 / sqrt(298.0 / 8)});
}

/* T5's bucket of one distance, as its authors write it. */
static int bucket(int distance, bool both, int buckets, int most) {
  int base = 0;
  if (both) {
    buckets /= 2;
    base = distance > 0 ? buckets : 0;
    distance = abs(distance);
  } else {
    distance = distance > 0 ? 0 : -distance;
  }
  int exact = buckets / 2;
  if (distance < exact) return base + distance;
  int far =
      exact + (int)(log((double)distance / exact) / log((double)most / exact) * (buckets - exact));
  return base + (far < buckets - 1 ? far : buckets - 1);
}

static void buckets_of_t5(void **state) {
  (void)state;
  for (int both = 0; both < 2; both++) {
    Result r = expr(both ? "relative_bucket(40, 50, 32, max_distance = 30)"
                         : "relative_bucket(40, 50, 32, bidirectional = false, max_distance = 30)");
    assert_string_equal(r.shape, "[40, 50]");
    for (int q = 0; q < 40; q++)
      for (int k = 0; k < 50; k++) assert_int_equal(r.at[q * 50 + k], bucket(k - q, both, 32, 30));
    arena_free(r.a);
  }
}

static void attention_shapes(void **state) {
  (void)state;
  GIVES(
      "attention(x as [2, 3, 2, 2], x[:, :, 0:2] as [2, 3, 1, 2], x[:, :, 2:4] as [2, 3, 1, 2], "
      "causal = true)",
      "[2, 3, 2, 2]", 2, 3, 2, 3);
  GIVES("rope(x as [2, 3, 2, 2])", "[2, 3, 2, 2]", 0, 1, 2, 3, 4 * cos(1) - 5 * sin(1));
  /* One turn takes 2 pi positions: below low_freq turns in 8 positions the angle is divided by the factor; far above
   * high_freq it stays; between it is a mixture. */
  GIVES("rope(x as [2, 3, 2, 2], factor = 4.0, low_freq = 2.0, context = 8)", "[2, 3, 2, 2]", 0, 1, 2, 3,
        4 * cos(0.25) - 5 * sin(0.25));
  GIVES("rope(x as [2, 3, 2, 2], factor = 4.0, context = 64)", "[2, 3, 2, 2]", 0, 1, 2, 3, 4 * cos(1) - 5 * sin(1));
  double kept = (8 / (2 * M_PI) - 1) / 3, angle = kept + (1 - kept) / 4;
  GIVES("rope(x as [2, 3, 2, 2], factor = 4.0, context = 8)", "[2, 3, 2, 2]", 0, 1, 2, 3,
        4 * cos(angle) - 5 * sin(angle));
  GIVES(
      "attention(x as [2, 3, 2, 2], x as [2, 3, 2, 2], x as [2, 3, 2, 2], mask = ids > 0, "
      "bias = x[0:1, :, 0:3] as [1, 3, 3] + (x[:, :, 0:3] as [2, 3, 3]))[0, 0, 0]",
      "[2]", 4 + 4 / (1 + exp(-4 / sqrt(2) - 2)));
}

static void statements(void **state) {
  (void)state;
  gives(body("for i in 0..3 { x = x + i }\nreturn x"), "for", "[2, 3, D=4]", 2, (double[]){3, 4});
  gives(body("for i, k in (5, 7) { x = x + i * k }\nreturn x"), "for two", "[2, 3, D=4]", 1,
        (double[]){7});
  gives(body("if D > 3 and not training { return y } else { return x }"), "if", "[D=4]", 1,
        (double[]){10});
  gives(body("if D > 9 { return x } else if D == 4 { z = y * 2 } else { z = y }\nreturn z"),
        "else if", "[D=4]", 1, (double[]){20});
  gives(body("return D % 3 == 1 ? y : x"), "?:", "[D=4]", 1, (double[]){10});
}

/* Numbers at compile time: a tensor of that many elements tells. */
static void static_numbers(void **state) {
  (void)state;
  GIVES("arange(2 ** 3 - D / 2)", "[6]", 0);
  GIVES("arange(max(D, 7) + min(D, 7))", "[11]", 0);
  GIVES("arange(floor(sqrt(17)) * abs(-2))", "[8]", 0);
  GIVES("arange(D)[0:2] + 7 % 4", "[2]", 3, 4);
  GIVES("arange((1, 2, 3)[1])", "[2]", 0);
  GIVES("y * (D / 8) + 1e1", "[D=4]", 15);
  GIVES("arange(D > 3 or none == none ? 1 : 2)", "[1]", 0);
}

/* ---- signatures ---- */

static int64_t last_dim(const char *model, int axis) {
  Arena *a = arena_new();
  Job *j = load(a, model);
  Graph *g = job_graph(j, a, FN_FORWARD, 0, 1);
  const Shape *s = &val(g, g->results.at[0])->shape;
  int64_t n = s->dim[axis];
  arena_free(a);
  return n;
}

static void dims_unify_across_arguments(void **state) {
  (void)state;
  assert_int_equal(
      last_dim(
          "mt 1\n"
          "block Pair(D) { fn forward(a [.., D], b [N, Tq], c [N, Tq, K]) -> [.., D + Tq * K] {\n"
          "  return concat((a, (c as [N, Tq * K])[0] as [1, Tq * K]), axis = 1) } }\n"
          "model M() { layer p = Pair(4)\n"
          "  fn forward(a [1, 4], b [5, 6], c [5, 6, 7]) { return p(a, b, c) } }\n",
          1),
      46);
}

static void files_functions_and_layers_call_each_other(void **state) {
  (void)state;
  assert_int_equal(
      last_dim("mt 1\n"
               "use \"std/nn.mt\" (Linear)\n"
               "fn half(n) { return n / 2 }\n"
               "fn twice(x [.., K]) -> [.., 2 * K] { return concat((x, x)) }\n"
               "block Two(D) {\n"
               "  layer l[i in 1..3] = Linear(i == 1 ? D : half(D), half(D))\n"
               "  fn both(x [.., D]) -> [.., D] { return twice(l[1](l[0](x))) }\n"
               "  fn forward(x [.., D]) -> [.., D] { return both(x) }\n"
               "}\n"
               "model M(D = 8) { layer a = Two(D)  layer b = a\n"
               "  fn forward(x [3, D]) -> [3, D] { return a(x) + b.both(x) + a.l[0].b[0] } }\n",
               1),
      8);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(arithmetic),
      cmocka_unit_test(comparison),
      cmocka_unit_test(indexing),
      cmocka_unit_test(reshaping),
      cmocka_unit_test(parts),
      cmocka_unit_test(reductions),
      cmocka_unit_test(elementwise),
      cmocka_unit_test(norms),
      cmocka_unit_test(buckets_of_t5),
      cmocka_unit_test(attention_shapes),
      cmocka_unit_test(statements),
      cmocka_unit_test(static_numbers),
      cmocka_unit_test(dims_unify_across_arguments),
      cmocka_unit_test(files_functions_and_layers_call_each_other),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
