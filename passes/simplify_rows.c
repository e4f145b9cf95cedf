/* simplify_rows.c - one row of a result (see graph_one_row): a row of a row-wise computation is the
 * computation of a row, so that sampling computes the head for one position.
 *
 * Two walks: from the result back, which values are needed in full and which for the row alone;
 * then forward. A value that something needs in full is computed in full, and its row gathered from
 * that. */
#include <string.h>

#include "rewrite.h"
#include "simplify.h"

enum { NOT_ROW = -1 };

typedef struct {
  const Graph *g;
  Rewrite r;
  bool *full;       /* per value: needed as a whole */
  int *axis;        /* per value: axis of which one row is needed, NOT_ROW none */
  ValueId *row;     /* per value: its row in the new graph, without that axis; -1 not yet */
  ValueId position; /* in the new graph */
} Rows;

static int index_of(int n, const int64_t *list, int64_t x) {
  for (int k = 0; k < n; k++)
    if (list[k] == x) return k;
  return NOT_ROW;
}

/* The axis of operand k of which the row is needed for the row of `axis` of n's result. NOT_ROW
 * with *whole false: the operand has no such axis and is needed as it is; with *whole true: no row
 * of n can be computed by itself. */
static int operand_axis(const Graph *g, const Node *n, int k, int axis, bool *whole) {
  const int64_t *list, *other;
  int len;
  *whole = false;
  switch (n->op) {
    case OP_BROADCAST:
      len = node_list(n, "axes", &list);
      return index_of(len, list, axis);
    case OP_SUM:
    case OP_AMAX:
    case OP_ARGMAX:
      len = node_list(n, "axes", &list);
      for (int i = 0; i < len; i++) axis += list[i] <= axis;
      return axis;
    case OP_TRANSPOSE:
      node_list(n, "perm", &list);
      return (int)list[axis];
    case OP_DOT: {
      len = node_list(n, "con_a", &list);
      *whole = node_list(n, "batch_a", &other) != 0 || axis >= val(g, n->in[0])->shape.rank - len;
      if (*whole || k == 1) return NOT_ROW;
      for (int i = 0; i < len; i++) axis += list[i] <= axis;
      return axis;
    }
    default:
      *whole =
          op_kind(n->op) != ELEM || n->op == OP_RANDOM || n->op == OP_GATHER || n->op == OP_IOTA;
      return axis;
  }
}

static void find_needs(Rows *x, ValueId result, int axis) {
  const Graph *g = x->g;
  for (int v = 0; v < g->values.n; v++) x->axis[v] = NOT_ROW;
  x->axis[result] = axis;
  for (NodeId n = g->nodes.n - 1; n >= 0; n--) {
    const Node *d = node_at(g, n);
    bool full = op_kind(d->op) == EFFECT, row = d->nout == 1 && x->axis[d->out] >= 0;
    for (int k = 0; k < d->nout; k++) full |= x->full[d->out + k];
    if (!full && !row) continue;
    int at[3] = {NOT_ROW, NOT_ROW, NOT_ROW};
    bool whole = full || d->nin > 3;
    for (int k = 0; k < d->nin && !whole; k++)
      at[k] = operand_axis(g, d, k, x->axis[d->out], &whole);
    for (int k = 0; k < d->nin && !whole; k++)
      whole = at[k] >= 0 && x->axis[d->in[k]] >= 0 && x->axis[d->in[k]] != at[k];
    if (d->nin == 0 || whole) {
      for (int k = 0; k < d->nout; k++) x->full[d->out + k] |= d->op != OP_CONST || full;
      for (int k = 0; k < d->nin; k++) x->full[d->in[k]] = true;
      continue;
    }
    for (int k = 0; k < d->nin; k++) {
      if (at[k] < 0)
        x->full[d->in[k]] = true;
      else
        x->axis[d->in[k]] = at[k];
    }
  }
}

static Shape without(const Shape *s, int axis) {
  Shape to = {0};
  for (int k = 0; k < s->rank; k++) {
    if (k == axis) continue;
    to.dim[to.rank] = s->dim[k];
    to.axis[to.rank++] = s->axis[k];
  }
  return to;
}

/* The row, taken out of the whole value. */
static ValueId gathered(Rows *x, ValueId v, int axis) {
  Graph *g = x->r.to;
  const Shape *s = &val(x->g, v)->shape;
  ValueId table = x->r.map[v];
  int64_t perm[MAX_RANK] = {axis};
  for (int k = 0, at = 1; k < s->rank; k++)
    if (k != axis) perm[at++] = k;
  int64_t before = 1;
  for (int k = 0; k < axis; k++) before *= s->dim[k];
  if (before == 1) { /* axes of size 1 in front: the same elements in the same order */
    Shape to = {.rank = s->rank - axis, .dim = {0}};
    for (int k = axis; k < s->rank; k++) to.dim[k - axis] = s->dim[k];
    table = g_reshape(g, table, to);
  } else {
    table = g_transpose(g, table, perm);
  }
  ValueId row = g_gather(g, table, x->position);
  return g_reshape(g, row, without(s, axis));
}

static int put(int64_t *ints, int at, int n, const int64_t *items) {
  ints[at++] = n;
  for (int k = 0; k < n; k++) ints[at++] = items[k];
  return at;
}

/* List `items` of axes after axis `gone` vanished: the axis itself is dropped, later ones move up.
 */
static int put_axes(int64_t *ints, int at, int n, const int64_t *items, int64_t gone) {
  int start = at++;
  for (int k = 0; k < n; k++)
    if (items[k] != gone) ints[at++] = items[k] - (items[k] > gone);
  ints[start] = at - start - 1;
  return at;
}

static ValueId row_node(Rows *x, NodeId id) {
  const Graph *g = x->g;
  const Node *n = node_at(g, id);
  int axis = x->axis[n->out], at = 0;
  const int64_t *list;
  int64_t ints[4 * (MAX_RANK + 1) + 2];
  ValueId in[3];
  bool whole;
  int inner = NOT_ROW; /* axis that vanishes from operand 0 */
  for (int k = 0; k < n->nin; k++) {
    int a = operand_axis(g, n, k, axis, &whole);
    in[k] = a < 0 ? x->r.map[n->in[k]] : x->row[n->in[k]];
    if (k == 0) inner = a;
  }
  Shape out = without(&val(g, n->out)->shape, axis);
  switch (n->op) {
    case OP_BROADCAST: {
      int len = node_list(n, "axes", &list);
      at = put(ints, at, out.rank, out.dim);
      at = put_axes(ints, at, len, list, axis);
      break;
    }
    case OP_SUM:
    case OP_AMAX:
    case OP_ARGMAX: {
      int len = node_list(n, "axes", &list);
      at = put_axes(ints, at, len, list, inner);
      break;
    }
    case OP_TRANSPOSE: {
      int len = node_list(n, "perm", &list);
      at = put_axes(ints, at, len, list, inner);
      break;
    }
    case OP_DOT: {
      int len = node_list(n, "con_a", &list);
      at = put(ints, at, 0, NULL);
      at = put(ints, at, 0, NULL);
      at = put_axes(ints, at, len, list, inner);
      len = node_list(n, "con_b", &list);
      at = put(ints, at, len, list);
      ints[at++] = n->ints[n->nints - 1];
      break;
    }
    case OP_CONST:
      ints[at++] = n->ints[0];
      at = put(ints, at, out.rank, out.dim);
      break;
    default:
      for (; at < n->nints; at++) ints[at] = n->ints[at];
  }
  Proto p = proto_of(n, in);
  p.ints = ints;
  p.nints = at;
  graph_at(x->r.to, n);
  return graph_add_proto(x->r.to, &p);
}

Graph *graph_one_row(const Graph *g, Arena *a, const char *name, int axis, ValueId position) {
  Rows x = {.g = g, .r = rewrite_begin(g, a)};
  x.full = arena_array(a, bool, g->values.n + 1);
  x.axis = arena_array(a, int, g->values.n + 1);
  x.row = arena_array(a, ValueId, g->values.n + 1);
  ValueId result = -1;
  for (int i = 0; i < g->results.n; i++) {
    if (!strcmp(g->result_names.at[i], name))
      result = g->results.at[i];
    else
      x.full[g->results.at[i]] = true;
  }
  ensure(result >= 0, "graph `%s` has no result `%s`", g->name, name);
  x.full[position] = true;
  find_needs(&x, result, axis);
  rewrite_node(&x.r, val(g, position)->def);
  x.position = x.r.map[position];
  for (NodeId n = 0; n < g->nodes.n; n++) {
    const Node *d = node_at(g, n);
    bool full = op_kind(d->op) == EFFECT;
    for (int k = 0; k < d->nout; k++) full |= x.full[d->out + k];
    if (full && d->out != position) rewrite_node(&x.r, n);
    if (d->nout != 1 || x.axis[d->out] < 0) continue;
    graph_at(x.r.to, d);
    bool whole = x.full[d->out] && d->op != OP_CONST;
    x.row[d->out] = whole ? gathered(&x, d->out, x.axis[d->out]) : row_node(&x, n);
  }
  for (int i = 0; i < g->results.n; i++) {
    ValueId v = g->results.at[i];
    graph_result(x.r.to, g->result_names.at[i], v == result ? x.row[v] : x.r.map[v]);
  }
  return graph_drop_dead(x.r.to, a);
}
