/* case.h - one small graph with its input data: what the tests of ir/ build, run, and
 * differentiate.
 *
 * Inputs are declared with case_input, which fills them with reproducible numbers; the graph is
 * then built on the values it returns. case_gradients compares autodiff with central differences in
 * f64. */
#ifndef MTC_TEST_CASE_H
#define MTC_TEST_CASE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>
#include "ir/graph.h"

enum { CASE_MAX = 12 };

typedef struct {
  Arena *a;
  Graph *g;
  uint64_t state; /* of the numbers */
  int nin;
  ValueId in[CASE_MAX];
  InterpInput data[CASE_MAX];
  int nout;
  ValueId out[CASE_MAX];
  const double *want[CASE_MAX]; /* NULL = only the gradient is checked */
  double *vars[64];
} Case;

static inline Case case_new(void) {
  Case c = {.a = arena_new(), .state = 1};
  c.g = graph_new(c.a, "case", vars_new(c.a));
  return c;
}

static inline void case_free(Case *c) {
  arena_free(c->a);
}

static inline double case_random(Case *c, double lo, double hi) {
  c->state = c->state * 6364136223846793005u + 1442695040888963407u;
  return lo + (hi - lo) * (double)(c->state >> 11) * 0x1p-53;
}

/* An input with numbers in [lo, hi): whole ones unless t is a float. */
static inline ValueId case_input(Case *c, DType t, Shape s, double lo, double hi) {
  int64_t n = shape_count(&s);
  double *x = arena_array(c->a, double, n);
  for (int64_t i = 0; i < n; i++) {
    x[i] = case_random(c, lo, hi);
    if (!dtype_is_float(t)) x[i] = floor(x[i]);
  }
  const char *name = intern_printf("in%d", c->nin);
  c->data[c->nin] = (InterpInput){name, x};
  return c->in[c->nin++] = g_input(c->g, name, t, s);
}

/* The numbers of input i, to read or to replace. */
static inline double *case_data(const Case *c, int i) {
  return (double *)c->data[i].data;
}

/* Adds a result; returns the array for its expected values. */
static inline double *case_result(Case *c, ValueId v) {
  assert_true(v >= 0);
  double *want = arena_array(c->a, double, shape_count(&val(c->g, v)->shape));
  c->want[c->nout] = want;
  c->out[c->nout++] = v;
  return want;
}

static inline double **case_run(const Case *c, bool exact) {
  double *vars[64];
  memcpy(vars, c->vars, sizeof vars);
  Interp run = {.arena = c->a, .exact = exact, .inputs = c->data, .ninputs = c->nin, .vars = vars};
  return graph_interp(c->g, &run);
}

static inline int64_t case_count(const Case *c, ValueId v) {
  return shape_count(&val(c->g, v)->shape);
}

static inline bool case_near(double a, double b, double rel) {
  if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
  return a == b || fabs(a - b) <= rel * (fabs(a) + fabs(b)) + 1e-9;
}

/* Every result has its expected values. */
static inline void case_values(const Case *c, const char *what) {
  double **v = case_run(c, true);
  for (int k = 0; k < c->nout; k++)
    for (int64_t i = 0; c->want[k] && i < case_count(c, c->out[k]); i++)
      if (!case_near(v[c->out[k]][i], c->want[k][i], 1e-12))
        fail_msg("%s: result %d, element %lld is %.17g, not %.17g", what, k, (long long)i,
                 v[c->out[k]][i], c->want[k][i]);
}

static inline void case_sound(const Case *c, const char *what) {
  const char *why = graph_verify(c->g, c->a);
  if (why) fail_msg("%s: %s", what, why);
}

/* Sum of all float results, each weighted with numbers of its own; -1 when there is none. */
static inline ValueId case_loss(Case *c) {
  Graph *g = c->g;
  ValueId loss = -1;
  for (int k = 0; k < c->nout; k++) {
    const Value v = *val(g, c->out[k]);
    if (!dtype_is_float(v.dtype)) continue;
    ValueId x = g_binary(g, OP_MUL, c->out[k], case_input(c, v.dtype, v.shape, -1, 1));
    int64_t axes[MAX_RANK];
    for (int i = 0; i < v.shape.rank; i++) axes[i] = i;
    if (v.shape.rank) x = g_reduce(g, OP_SUM, x, v.shape.rank, axes);
    x = g_cast(g, x, DT_F32);
    loss = loss < 0 ? x : g_binary(g, OP_ADD, loss, x);
  }
  return loss;
}

/* Gradients of the weighted sum of all results with respect to every float input, against central
 * differences. */
static inline void case_gradients(Case *c, const char *what) {
  Graph *g = c->g;
  ValueId wrt[CASE_MAX], grad[CASE_MAX];
  int from[CASE_MAX], n = 0;
  for (int i = 0; i < c->nin; i++)
    if (dtype_is_float(val(g, c->in[i])->dtype)) {
      from[n] = i;
      wrt[n++] = c->in[i];
    }
  ValueId loss = case_loss(c);
  if (loss < 0 || !n) return;
  graph_gradients(g, loss, -1, n, wrt, grad);
  case_sound(c, what);
  double **v = case_run(c, true);
  for (int k = 0; k < n; k++)
    for (int64_t i = 0; i < case_count(c, wrt[k]); i++) {
      double *x = &case_data(c, from[k])[i], at = *x, h = 1e-5 * fmax(1, fabs(at));
      *x = at + h;
      double up = case_run(c, true)[loss][0];
      *x = at - h;
      double down = case_run(c, true)[loss][0];
      *x = at;
      double slope = (up - down) / (2 * h), got = v[grad[k]][i];
      if (!(fabs(slope - got) <= 1e-6 * (fabs(slope) + fabs(got)) + 1e-8))
        fail_msg("%s: gradient of input %d, element %lld is %.12g, differences give %.12g", what,
                 from[k], (long long)i, got, slope);
    }
}

/* print(read(print(g))) == print(g) */
static inline void case_round_trip(const Case *c, const char *what) {
  Str once = {.arena = c->a}, twice = {.arena = c->a};
  const char *why;
  graph_print(c->g, &once);
  Graph *read = graph_read(c->a, once.text, once.len, &why);
  if (!read) fail_msg("%s: %s\n%s", what, why, once.text);
  graph_print(read, &twice);
  assert_string_equal(once.text, twice.text);
}

#endif
