/* random_graph.h - random small graphs over most operations, with variables that are read and
 * assigned. */
#ifndef TEST_RANDOM_GRAPH_H
#define TEST_RANDOM_GRAPH_H
#include "train_case.h"

typedef struct {
  Arena *a;
  Graph *g;
  uint64_t seed, draws;
  VEC(ValueId) floats; /* f32 values so far */
  int vars[3];
} Random;

static inline int draw(Random *r, int n) {
  uint64_t both[] = {r->seed, r->draws++};
  return (int)(hash_bytes(both, sizeof both, 3) % (uint64_t)n);
}
static inline Shape draw_shape(Random *r, int max_rank) {
  static const int64_t dims[] = {1, 2, 3, 4};
  Shape s = {.rank = draw(r, max_rank + 1)};
  for (int k = 0; k < s.rank; k++) s.dim[k] = dims[draw(r, 4)];
  return s;
}
static inline ValueId draw_value(Random *r) {
  int n = r->floats.n, near = n > 6 && draw(r, 3) ? 6 : n; /* mostly late ones */
  return r->floats.at[n - 1 - draw(r, near)];
}

/* A value of the shape of v, made of another one where that is possible. */
static inline ValueId draw_like(Random *r, ValueId v) {
  Graph *g = r->g;
  const Shape s = val(g, v)->shape;
  for (int tries = 0; tries < 6; tries++) {
    ValueId o = draw_value(r);
    const Shape os = val(g, o)->shape;
    if (shape_equal(&os, &s)) return o;
    if (shape_count(&os) == shape_count(&s)) return g_reshape(g, o, s);
    int64_t axes[MAX_RANK];
    int n = 0;
    for (int k = 0; k < s.rank && n < os.rank; k++)
      if (os.dim[n] == s.dim[k]) axes[n++] = k;
    if (n == os.rank) return g_broadcast(g, o, s, axes);
  }
  return draw(r, 2) ? g_like(g, v, 0.5) : v;
}

static inline ValueId random_view(Random *r, ValueId v) {
  Graph *g = r->g;
  const Shape s = val(g, v)->shape;
  int axis = s.rank ? draw(r, s.rank) : 0;
  switch (draw(r, 6)) {
    case 0: {
      int64_t perm[MAX_RANK];
      for (int k = 0; k < s.rank; k++) perm[k] = k;
      for (int k = s.rank - 1; k > 0; k--) {
        int j = draw(r, k + 1);
        int64_t t = perm[k];
        perm[k] = perm[j];
        perm[j] = t;
      }
      return g_transpose(g, v, perm);
    }
    case 1:
      return s.rank ? g_slice(g, v, axis, draw(r, (int)s.dim[axis]), s.dim[axis]) : v;
    case 2: {
      int64_t before[MAX_RANK] = {0}, after[MAX_RANK] = {0};
      if (!s.rank || s.dim[axis] > 4) return v;
      before[axis] = draw(r, 2);
      after[axis] = draw(r, 2);
      return g_pad(g, v, before, after);
    }
    case 3: {
      ValueId in[] = {v, draw_like(r, v)};
      return s.rank && s.dim[axis] < 8 ? g_concat(g, 2, in, axis) : v;
    }
    case 4: {
      Shape to = {.rank = s.rank + 1, .dim = {draw(r, 3) + 1}};
      int64_t axes[MAX_RANK];
      if (s.rank > 3) return v;
      for (int k = 0; k < s.rank; k++) {
        to.dim[k + 1] = s.dim[k];
        axes[k] = k + 1;
      }
      return g_broadcast(g, v, to, axes);
    }
    default:
      return g_reshape(g, v, shape_of(1, (int64_t[]){shape_count(&s)}));
  }
}

static inline ValueId random_reduce(Random *r, ValueId v) {
  Graph *g = r->g;
  const Shape s = val(g, v)->shape;
  int64_t axes[MAX_RANK];
  int n = 0;
  for (int k = 0; k < s.rank; k++)
    if (draw(r, 2)) axes[n++] = k;
  return n ? g_reduce(g, draw(r, 3) ? OP_SUM : OP_AMAX, v, n, axes) : v;
}

static inline ValueId random_call(Random *r, ValueId v) {
  Graph *g = r->g;
  const Shape s = val(g, v)->shape;
  if (!s.rank) return v;
  if (draw(r, 3)) { /* v with itself or its like over one axis */
    int64_t axis[] = {draw(r, s.rank)};
    if (s.rank > 2) return v;
    return g_dot(g, v, draw_like(r, v), 0, axis, axis, 1, axis, axis, DT_F32);
  }
  ValueId ids = g_iota(g, DT_I32, SHAPE(s.dim[0]), 0);
  if (draw(r, 2)) return g_scatter_add(g, ids, v, s.dim[0] + 1, DT_F32);
  return g_gather(g, v, g_binary(g, OP_MOD, ids, g_like(g, ids, 2)));
}

static inline void random_var(Random *r) {
  Graph *g = r->g;
  int var = r->vars[draw(r, 3)];
  ValueId old = g_var(g, var), x = g_like(g, old, 0.25);
  if (draw(r, 3)) x = g_binary(g, OP_ADD, draw(r, 2) ? old : x, draw_like(r, old));
  vec_push(r->a, &r->floats, draw(r, 2) ? old : x);
  if (draw(r, 2)) return;
  g_assign(g, var, x);
  int kept = 0; /* nobody may read the old value from here on */
  for (int i = 0; i < r->floats.n; i++) {
    const Node *d = node_of(g, r->floats.at[i]);
    if (d->op != OP_VAR || d->ints[0] != var) r->floats.at[kept++] = r->floats.at[i];
  }
  r->floats.n = kept;
}

static inline ValueId random_node(Random *r) {
  Graph *g = r->g;
  ValueId v = draw_value(r);
  static const Op one[] = {OP_TANH, OP_NEG, OP_SIN, OP_ABS},
                  two[] = {OP_ADD, OP_SUB, OP_MUL, OP_MAX};
  switch (draw(r, 10)) {
    case 0:
    case 1:
      return g_unary(g, one[draw(r, 4)], v);
    case 2:
    case 3:
    case 4:
      return g_binary(g, two[draw(r, 4)], v, draw_like(r, v));
    case 5:
      return random_view(r, v);
    case 6:
      return random_reduce(r, v);
    case 7:
      return random_call(r, v);
    case 8:
      return g_cast(g, g_cast(g, v, DT_BF16), DT_F32);
    default:
      random_var(r);
      return -1;
  }
}

/* A graph of about n nodes. Values stay below 512 elements and four axes. */
static inline Graph *random_graph(Arena *a, uint64_t seed, int n) {
  Random r = {.a = a, .g = graph_new(a, "random", vars_new(a)), .seed = seed};
  Graph *g = r.g;
  static const char *const names[] = {"v0", "v1", "v2"};
  for (int i = 0; i < 3; i++)
    r.vars[i] = var_add(
        g->vars, (Var){.path = names[i], .role = VAR_STATE, .shape = draw_shape(&r, 2), .of = -1});
  vec_push(a, &r.floats, g_input(g, "x", DT_F32, SHAPE(3, 4)));
  vec_push(a, &r.floats, g_input(g, "y", DT_F32, SHAPE(2, 3, 4)));
  while (g->nodes.n < n) {
    if (g->nodes.n > n / 2) g->here.phase = PH_BACKWARD;
    ValueId v = random_node(&r);
    bool small = v >= 0 && val(g, v)->shape.rank <= 4 && shape_count(&val(g, v)->shape) <= 512;
    if (small) vec_push(a, &r.floats, v);
  }
  for (int i = 0; i < 3; i++) graph_result(g, names[i], g_unary(g, OP_NEG, draw_value(&r)));
  return g;
}

/* The fixed inputs x[12] and y[24], and the variables before a run. */
static inline void random_start(Arena *a, const Graph *g, double **vars, double *x, double *y) {
  for (int i = 0; i < 24; i++) y[i] = (float)tiny_random(5, (uint64_t)i);
  for (int i = 0; i < 12; i++) x[i] = (float)tiny_random(6, (uint64_t)i);
  for (int v = 0; v < g->vars->all.n; v++) {
    int64_t n = shape_count(&g->vars->all.at[v].shape);
    vars[v] = arena_array(a, double, n);
    for (int64_t k = 0; k < n; k++) vars[v][k] = (float)tiny_random((uint64_t)v + 9, (uint64_t)k);
  }
}

/* Runs it from there; vars: the variables afterwards. */
static inline double **random_run(Arena *a, const Graph *g, double **vars) {
  double *x = arena_array(a, double, 12), *y = arena_array(a, double, 24);
  random_start(a, g, vars, x, y);
  InterpInput in[] = {{"x", x}, {"y", y}};
  return graph_interp(g, &(Interp){.arena = a, .inputs = in, .ninputs = 2, .vars = vars});
}

/* Equal bits of all results and variables; NaN equals NaN. */
static inline void assert_same_run(Arena *a, const Graph *g, const Graph *h) {
  double *vg[3], *vh[3], **rg = random_run(a, g, vg), **rh = random_run(a, h, vh);
  for (int i = 0; i < g->results.n; i++) {
    int64_t n = shape_count(&val(g, g->results.at[i])->shape);
    for (int64_t k = 0; k < n; k++) {
      double p = rg[g->results.at[i]][k], q = rh[h->results.at[i]][k];
      if (!(p == q || (isnan(p) && isnan(q))))
        fail_msg("result %d, element %d: %g and %g", i, (int)k, p, q);
    }
  }
  for (int v = 0; v < 3; v++)
    for (int64_t k = 0; k < shape_count(&g->vars->all.at[v].shape); k++)
      if (!(vg[v][k] == vh[v][k] || (isnan(vg[v][k]) && isnan(vh[v][k]))))
        fail_msg("variable %d", v);
}

#endif
