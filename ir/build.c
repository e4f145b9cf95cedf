/* build.c - typed builders: thin wrappers of graph_add that lay out attributes, add axis names,
 * broadcast, and report mistakes of two operands in the user's words. Operands of -1 pass through:
 * one mistake gives one message. */
#include <string.h>
#include "graph.h"
#include "infer.h"

/* Axis names of a result whose attributes hold sizes only. */
static ValueId name_axes(Graph *g, ValueId v, const Shape *names) {
  if (v < 0) return v;
  Shape *s = &g->values.at[v].shape;
  for (int k = 0; k < s->rank && k < names->rank; k++)
    if (names->axis[k] && names->dim[k] == s->dim[k]) s->axis[k] = names->axis[k];
  return v;
}

/* Attribute words under construction; lists are at most MAX_RANK long, or the rule refuses them. */
typedef struct {
  int64_t at[8 + 4 * (MAX_RANK + 1)];
  int n;
} Words;

static void put(Words *w, int64_t x) {
  w->at[w->n++] = x;
}

static void put_list(Words *w, int n, const int64_t *items) {
  ensure(n <= MAX_RANK, "a list of %d axes (limit is %d)", n, MAX_RANK);
  put(w, n);
  for (int i = 0; i < n; i++) put(w, items[i]);
}

static ValueId add1(Graph *g, Op op, ValueId a, const Words *w) {
  return graph_add(g, op, 1, &a, w ? w->n : 0, w ? w->at : NULL, NULL, NULL);
}

/* ---- leaves ---- */

ValueId g_input(Graph *g, const char *name, DType t, Shape s) {
  Words w = {0};
  put(&w, t);
  put_list(&w, s.rank, s.dim);
  return name_axes(g, graph_add(g, OP_INPUT, 0, NULL, w.n, w.at, NULL, name), &s);
}

ValueId g_var(Graph *g, int var) {
  int64_t ints[] = {var};
  return graph_add(g, OP_VAR, 0, NULL, 1, ints, NULL, NULL);
}

void g_assign(Graph *g, int var, ValueId v) {
  int64_t ints[] = {var};
  graph_add(g, OP_ASSIGN, 1, &v, 1, ints, NULL, NULL);
}

ValueId g_const(Graph *g, DType t, Shape s, double value) {
  Words w = {0};
  double num[2] = {value, 0};
  put(&w, t);
  put_list(&w, s.rank, s.dim);
  return name_axes(g, graph_add(g, OP_CONST, 0, NULL, w.n, w.at, num, NULL), &s);
}

ValueId g_like(Graph *g, ValueId v, double value) {
  return v < 0 ? v : g_const(g, val(g, v)->dtype, val(g, v)->shape, value);
}

ValueId g_iota(Graph *g, DType t, Shape s, int axis) {
  Words w = {0};
  put(&w, t);
  put_list(&w, s.rank, s.dim);
  put(&w, axis);
  return name_axes(g, graph_add(g, OP_IOTA, 0, NULL, w.n, w.at, NULL, NULL), &s);
}

/* ---- element-wise ---- */

ValueId g_unary(Graph *g, Op op, ValueId a) {
  return add1(g, op, a, NULL);
}

ValueId g_binary(Graph *g, Op op, ValueId a, ValueId b) {
  ValueId in[] = {a, b};
  return graph_add(g, op, 2, in, 0, NULL, NULL, NULL);
}

ValueId g_random(Graph *g, DType t, Shape s, int64_t key, int batch, const ValueId in[3]) {
  int64_t ints[MAX_RANK + 4] = {t, s.rank};
  for (int k = 0; k < s.rank; k++) ints[2 + k] = s.dim[k];
  ints[2 + s.rank] = key;
  ints[3 + s.rank] = batch;
  return graph_add(g, OP_RANDOM, 3, in, s.rank + 4, ints, NULL, NULL);
}

ValueId g_cast(Graph *g, ValueId a, DType t) {
  if (a < 0 || val(g, a)->dtype == t) return a;
  Words w = {0};
  put(&w, t);
  return add1(g, OP_CAST, a, &w);
}

/* A number that was written without a type: a rank-0 constant. */
static bool is_number(const Graph *g, ValueId v) {
  return g->nodes.at[val(g, v)->def].op == OP_CONST && !val(g, v)->shape.rank;
}

/* Whether constant `v` has the same value in dtype t: whole numbers only become integers. */
static bool number_fits(const Graph *g, ValueId v, DType t) {
  double x = g->nodes.at[val(g, v)->def].num[0];
  if (t == DT_BOOL) return false;
  return dtype_is_float(t) || (x >= -2147483648.0 && x <= 4294967295.0 && x == (double)(int64_t)x);
}

/* The numpy rule over n shapes; false with the first axis (counted from the right) that does not
 * fit. */
static bool broadcast_shapes(int n, const Shape *in, Shape *out, int *bad) {
  *out = (Shape){0};
  for (int i = 0; i < n; i++)
    if (in[i].rank > out->rank) out->rank = in[i].rank;
  for (int r = 1; r <= out->rank; r++) {
    int64_t *dim = &out->dim[out->rank - r];
    const char **axis = &out->axis[out->rank - r];
    *dim = 1;
    for (int i = 0; i < n; i++) {
      if (in[i].rank < r) continue;
      int64_t d = in[i].dim[in[i].rank - r];
      const char *name = in[i].axis[in[i].rank - r];
      if (*dim != 1 && d != 1 && d != *dim) {
        *bad = r;
        return false;
      }
      if (*dim == 1 && d != 1) *axis = name, *dim = d;
      if (!*axis && d == *dim) *axis = name;
    }
  }
  return true;
}

static const char *axis_text(Graph *g, const Shape *s, int from_right) {
  Shape one = {.rank = 1, .dim = {s->dim[s->rank - from_right]}};
  one.axis[0] = s->axis[s->rank - from_right];
  char *t = shape_text(g->arena, &one);
  t[strlen(t) - 1] = 0;
  return t + 1;
}

static void report_broadcast(Graph *g, Op op, int n, const Shape *in, int bad) {
  const Shape *a = NULL, *b = NULL; /* the two that disagree on that axis */
  for (int i = 0; i < n; i++) {
    if (in[i].rank < bad || in[i].dim[in[i].rank - bad] == 1) continue;
    if (!a)
      a = &in[i];
    else if (!b && in[i].dim[in[i].rank - bad] != a->dim[a->rank - bad])
      b = &in[i];
  }
  const char *ta = shape_text(g->arena, a), *tb = shape_text(g->arena, b);
  if (!g->diags) bug("`%s` of %s and %s (in `%s`)", op_symbol(op), ta, tb, g->here.path);
  Diag *d = diag_error(g->diags, E_BROADCAST, g->here.loc,
                       "shapes do not broadcast: %s and %s have %s and %s %s from the right", ta,
                       tb, axis_text(g, a, bad), axis_text(g, b, bad),
                       bad == 1 ? "as first axis" : arena_printf(g->arena, "as axis %d", bad));
  diag_note(g->diags, d, "`%s` of %s and %s", op_symbol(op), ta, tb);
  diag_note(g->diags, d, "axes align from the right; each pair must be equal, or one of them 1");
}

/* Brings operands in[from..n-1] to one dtype (numbers follow the others) and in[0..n-1] to one
 * shape. */
static bool unify(Graph *g, Op op, int n, int from, ValueId *in) {
  Shape shapes[3], out;
  DType t = DT_COUNT;
  for (int i = 0; i < n; i++) {
    if (in[i] < 0) return false;
    if (i >= from && t == DT_COUNT && !is_number(g, in[i])) t = val(g, in[i])->dtype;
  }
  for (int i = from; i < n && t == DT_COUNT; i++) /* only numbers: floats win */
    if (dtype_is_float(val(g, in[i])->dtype)) t = val(g, in[i])->dtype;
  for (int i = 0; i < n; i++) shapes[i] = val(g, in[i])->shape;
  int bad;
  if (!broadcast_shapes(n, shapes, &out, &bad)) {
    report_broadcast(g, op, n, shapes, bad);
    return false;
  }
  for (int i = 0; i < n; i++) {
    bool number = i >= from && is_number(g, in[i]) && t != DT_COUNT;
    if (number && number_fits(g, in[i], t))
      in[i] = g_const(g, t, out, node_of(g, in[i])->num[0]);
    else
      in[i] = g_broadcast_to(g, in[i], out);
    if (in[i] < 0) return false;
  }
  return true;
}

ValueId g_bin(Graph *g, Op op, ValueId a, ValueId b) {
  ValueId in[] = {a, b};
  return unify(g, op, 2, 0, in) ? g_binary(g, op, in[0], in[1]) : -1;
}

ValueId g_select(Graph *g, ValueId c, ValueId a, ValueId b) {
  ValueId in[] = {c, a, b};
  if (!unify(g, OP_SELECT, 3, 1, in)) return -1;
  return graph_add(g, OP_SELECT, 3, in, 0, NULL, NULL, NULL);
}

/* ---- index maps ---- */

ValueId g_broadcast(Graph *g, ValueId a, Shape to, const int64_t *axes) {
  if (a < 0) return a;
  Words w = {0};
  put_list(&w, to.rank, to.dim);
  put_list(&w, val(g, a)->shape.rank, axes);
  return name_axes(g, add1(g, OP_BROADCAST, a, &w), &to);
}

ValueId g_broadcast_to(Graph *g, ValueId a, Shape to) {
  if (a < 0) return a;
  const Shape from = val(g, a)->shape;
  if (shape_equal(&from, &to)) return a;
  Shape in[] = {from, to}, out, squeezed = {0};
  int bad;
  if (!broadcast_shapes(2, in, &out, &bad) || !shape_equal(&out, &to)) {
    const char *tf = shape_text(g->arena, &from), *tt = shape_text(g->arena, &to);
    if (!g->diags) bug("%s does not broadcast to %s (in `%s`)", tf, tt, g->here.path);
    diag_error(g->diags, E_BROADCAST, g->here.loc, "%s does not broadcast to %s", tf, tt);
    return -1;
  }
  if (node_of(g, a)->op == OP_CONST) return g_const(g, val(g, a)->dtype, to, node_of(g, a)->num[0]);
  int64_t axes[MAX_RANK]; /* of the axes that are kept: those that do not repeat */
  for (int k = 0; k < from.rank; k++) {
    int at = k + to.rank - from.rank;
    if (from.dim[k] != to.dim[at]) continue;
    squeezed.dim[squeezed.rank] = from.dim[k];
    squeezed.axis[squeezed.rank] = from.axis[k];
    axes[squeezed.rank++] = at;
  }
  if (squeezed.rank != from.rank) a = g_reshape(g, a, squeezed);
  return g_broadcast(g, a, to, axes);
}

ValueId g_reshape(Graph *g, ValueId a, Shape to) {
  Words w = {0};
  put_list(&w, to.rank, to.dim);
  return name_axes(g, add1(g, OP_RESHAPE, a, &w), &to);
}

ValueId g_transpose(Graph *g, ValueId a, const int64_t *perm) {
  if (a < 0) return a;
  Words w = {0};
  put_list(&w, val(g, a)->shape.rank, perm);
  return add1(g, OP_TRANSPOSE, a, &w);
}

ValueId g_slice(Graph *g, ValueId a, int axis, int64_t start, int64_t stop) {
  if (a < 0) return a;
  const Shape s = val(g, a)->shape;
  int64_t starts[MAX_RANK] = {0}, stops[MAX_RANK];
  memcpy(stops, s.dim, sizeof stops);
  if (axis < 0 || axis >= s.rank) {
    const char *text = shape_text(g->arena, &s);
    if (!g->diags) bug("slice of axis %d of %s (in `%s`)", axis, text, g->here.path);
    diag_error(g->diags, E_AXIS, g->here.loc, "%s has no axis %d to slice", text, axis);
    return -1;
  }
  starts[axis] = start;
  stops[axis] = stop;
  Words w = {0};
  put_list(&w, s.rank, starts);
  put_list(&w, s.rank, stops);
  return add1(g, OP_SLICE, a, &w);
}

ValueId g_pad(Graph *g, ValueId a, const int64_t *before, const int64_t *after) {
  if (a < 0) return a;
  Words w = {0};
  put_list(&w, val(g, a)->shape.rank, before);
  put_list(&w, val(g, a)->shape.rank, after);
  return add1(g, OP_PAD, a, &w);
}

ValueId g_concat(Graph *g, int n, const ValueId *in, int axis) {
  int64_t ints[] = {axis};
  return graph_add(g, OP_CONCAT, n, in, 1, ints, NULL, NULL);
}

/* ---- reductions and rows ---- */

ValueId g_reduce(Graph *g, Op op, ValueId a, int naxes, const int64_t *axes) {
  Words w = {0};
  put_list(&w, naxes, axes);
  return add1(g, op, a, &w);
}

ValueId g_gather(Graph *g, ValueId table, ValueId ids) {
  return g_binary(g, OP_GATHER, table, ids);
}

ValueId g_scatter_add(Graph *g, ValueId ids, ValueId rows, int64_t nrows, DType t) {
  ValueId in[] = {ids, rows};
  int64_t ints[] = {nrows, t};
  return graph_add(g, OP_SCATTER_ADD, 2, in, 2, ints, NULL, NULL);
}

/* ---- contraction ---- */

/* Looks through a transpose in front of a dot: the source with its axes in the lists, when the free
 * axes keep their order in the result. So `x @ w.T` never moves w. */
static ValueId through_transpose(const Graph *g, ValueId v, int nbatch, int64_t *batch, int ncon,
                                 int64_t *con) {
  const Node *n = &g->nodes.at[val(g, v)->def];
  if (n->op != OP_TRANSPOSE) return v;
  const int64_t *perm = n->ints + 1;
  int rank = val(g, v)->shape.rank;
  unsigned bound = 0;
  for (int i = 0; i < nbatch; i++)
    if (batch[i] >= 0 && batch[i] < rank) bound |= 1u << batch[i];
  for (int i = 0; i < ncon; i++)
    if (con[i] >= 0 && con[i] < rank) bound |= 1u << con[i];
  int64_t last = -1;
  for (int k = 0; k < rank; k++) {
    if (bound >> k & 1) continue;
    if (perm[k] < last) return v;
    last = perm[k];
  }
  for (int i = 0; i < nbatch; i++)
    if (batch[i] < 0 || batch[i] >= rank) return v;
  for (int i = 0; i < ncon; i++)
    if (con[i] < 0 || con[i] >= rank) return v;
  for (int i = 0; i < nbatch; i++) batch[i] = perm[batch[i]];
  for (int i = 0; i < ncon; i++) con[i] = perm[con[i]];
  return n->in[0];
}

ValueId g_dot(Graph *g, ValueId a, ValueId b, int nbatch, const int64_t *batch_a,
              const int64_t *batch_b, int ncon, const int64_t *con_a, const int64_t *con_b,
              DType out) {
  if (a < 0 || b < 0) return -1;
  const int64_t *from[] = {batch_a, batch_b, con_a, con_b};
  int64_t lists[4][MAX_RANK];
  for (int i = 0; i < 4; i++)
    for (int k = 0; k < (i < 2 ? nbatch : ncon); k++) lists[i][k] = from[i][k];
  ValueId in[] = {through_transpose(g, a, nbatch, lists[0], ncon, lists[2]),
                  through_transpose(g, b, nbatch, lists[1], ncon, lists[3])};
  Words w = {0};
  for (int i = 0; i < 4; i++) put_list(&w, i < 2 ? nbatch : ncon, lists[i]);
  put(&w, out);
  return graph_add(g, OP_DOT, 2, in, w.n, w.at, NULL, NULL);
}

/* Names the operand with its shape at the place where it was made, unless that is the place of the
 * error. */
static void label_operand(Graph *g, Diag *d, ValueId v) {
  Loc at = node_of(g, v)->loc, here = g->here.loc;
  if (!loc_ok(at) || (at.file == here.file && at.line == here.line && at.col == here.col)) return;
  diag_label(g->diags, d, at, "%s", shape_text(g->arena, &val(g, v)->shape));
}

static ValueId report_matmul(Graph *g, ValueId a, ValueId b, int ka, int kb) {
  const Shape *sa = &val(g, a)->shape, *sb = &val(g, b)->shape;
  const char *ta = shape_text(g->arena, sa), *tb = shape_text(g->arena, sb);
  if (!g->diags) bug("%s @ %s (in `%s`)", ta, tb, g->here.path);
  Diag *d;
  if (ka < 0 || kb < 0 || sa->rank < sb->rank - 1) {
    d = diag_error(g->diags, E_RANK, g->here.loc, "`@` of %s and %s: too few axes", ta, tb);
  } else {
    d = diag_error(g->diags, E_MATMUL, g->here.loc, "inner dimensions of `@` differ: %lld and %lld",
                   (long long)sa->dim[ka], (long long)sb->dim[kb]);
    if (sb->rank == 2 && sb->dim[1] == sa->dim[ka]) {
      Shape t = {.rank = 2, .dim = {sb->dim[1], sb->dim[0]}};
      t.axis[0] = sb->axis[1];
      t.axis[1] = sb->axis[0];
      diag_help(g->diags, d, "the right side transposed, `.T`, is %s", shape_text(g->arena, &t));
    }
  }
  label_operand(g, d, a);
  label_operand(g, d, b);
  diag_note(g->diags, d, "%s @ %s", ta, tb);
  return -1;
}

ValueId g_matmul(Graph *g, ValueId a, ValueId b) {
  if (a < 0 || b < 0) return -1;
  const Shape *sa = &val(g, a)->shape, *sb = &val(g, b)->shape;
  int nbatch = sb->rank > 2 ? sb->rank - 2 : 0;
  int64_t ka = sa->rank - 1, kb = sb->rank > 1 ? sb->rank - 2 : sb->rank - 1;
  if (ka < 0 || kb < 0 || sa->rank < nbatch + 1 || sa->dim[ka] != sb->dim[kb])
    return report_matmul(g, a, b, (int)ka, (int)kb);
  int64_t batch[MAX_RANK];
  for (int i = 0; i < nbatch; i++) batch[i] = i;
  return g_dot(g, a, b, nbatch, batch, batch, 1, &ka, &kb, val(g, a)->dtype);
}

/* ---- attention ---- */

ValueId g_attention(Graph *g, const AttentionArgs *a) {
  ValueId in[8] = {a->q, a->k, a->v};
  int n = 3;
  int64_t flags = (a->mask >= 0 ? 1 : 0) | (a->bias >= 0 ? 2 : 0) | (a->drop > 0 ? 4 : 0);
  if (flags & 1) in[n++] = a->mask;
  if (flags & 2) in[n++] = a->bias;
  if (flags & 4) {
    in[n++] = a->seed;
    in[n++] = a->step;
    in[n++] = a->sample0;
  }
  int64_t ints[] = {a->causal, flags, a->key};
  double num[2] = {a->scale, a->drop};
  return graph_add(g, OP_ATTENTION, n, in, 3, ints, num, NULL);
}
