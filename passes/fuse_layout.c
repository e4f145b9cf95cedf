/* fuse_layout.c - where values would lie if all were stored: strides of views, parts of concats,
 * and the operands that have to be copied because a contraction or a concat cannot take them where
 * they lie.
 *
 * Follows the rules of storage.c: a computed value is row-major in a buffer of its own unless a
 * concat takes it into its buffer; views take their operand's place. */
#include <string.h>

#include "fuse.h"

static ValuePlace row_major(const Graph *g, ValueId v) {
  ValuePlace p = {.unit = v};
  storage_strides(g, v, p.stride);
  return p;
}

/* ---- matrices ---- */

DotSide dot_side(const Graph *g, const Node *n, int which) {
  DotSide d = {0};
  const int64_t *batch, *con;
  d.nbatch = node_list(n, which ? "batch_b" : "batch_a", &batch);
  d.ncon = node_list(n, which ? "con_b" : "con_a", &con);
  int rank = val(g, n->in[which])->shape.rank, at = 0;
  bool bound[MAX_RANK] = {false};
  for (int k = 0; k < d.nbatch; k++) bound[d.axis[at++] = batch[k]] = true;
  for (int k = 0; k < d.ncon; k++) bound[con[k]] = true;
  for (int k = 0; k < rank; k++)
    if (!bound[k]) d.axis[at++] = k;
  d.nfree = at - d.nbatch;
  for (int k = 0; k < d.ncon; k++) d.axis[at++] = con[k];
  return d;
}

/* The one stride of axes that step together; 0 in *count of 1. False when they do not. */
static bool collapse(const Shape *s, const int64_t *stride, const int64_t *axis, int n,
                     int64_t *step, int64_t *count) {
  *step = 0;
  *count = 1;
  for (int k = n - 1; k >= 0; k--) {
    int64_t dim = s->dim[axis[k]], have = stride[axis[k]];
    if (dim == 1) continue;
    if (*count == 1)
      *step = have;
    else if (have != *step * *count)
      return false;
    *count *= dim;
  }
  return true;
}

/* Batch, rows and columns with one stride each, one of the matrix's two being 1. */
static bool is_matrix(const Shape *s, const int64_t *stride, const int64_t *axis, int nbatch,
                      int nrow, int ncol) {
  int64_t sb, sr, sc, nb, nr, nc;
  if (!collapse(s, stride, axis, nbatch, &sb, &nb) ||
      !collapse(s, stride, axis + nbatch, nrow, &sr, &nr) ||
      !collapse(s, stride, axis + nbatch + nrow, ncol, &sc, &nc))
    return false;
  bool by_row = (sc == 1 || nc == 1) && (nr == 1 || sr >= nc);
  bool by_col = (sr == 1 || nr == 1) && (nc == 1 || sc >= nr);
  return by_row || by_col;
}

static bool dot_takes(const Graph *g, const Node *n, int which, const ValuePlace *p) {
  DotSide d = dot_side(g, n, which);
  return is_matrix(&val(g, n->in[which])->shape, p->stride, d.axis, d.nbatch, d.nfree, d.ncon);
}

static bool last_is_unit(const Shape *s, const ValuePlace *p) {
  return !s->rank || s->dim[s->rank - 1] == 1 || p->stride[s->rank - 1] == 1;
}

static bool is_dense(const Shape *s, const ValuePlace *p) {
  int64_t want[MAX_RANK];
  shape_strides(s, want);
  for (int k = 0; k < s->rank; k++)
    if (s->dim[k] != 1 && p->stride[k] != want[k]) return false;
  return true;
}

/* [B, T, heads, head] token by token: heads next to each other, samples T tokens apart, all of it
 * in steps of 16 bytes. What attention kernels take. */
static bool token_by_token(const Shape *s, DType t, const ValuePlace *p) {
  enum { VECTOR_BYTES = 16 };
  int64_t size = dtype_bytes(t);
  if (!last_is_unit(s, p) || (s->dim[2] != 1 && p->stride[2] != s->dim[3])) return false;
  if (s->dim[0] != 1 && p->stride[0] != s->dim[1] * p->stride[1]) return false;
  if (t == DT_F32 || s->dim[2] * s->dim[3] * size % VECTOR_BYTES)
    return true; /* a copy would not help */
  return p->stride[1] * size % VECTOR_BYTES == 0 && p->offset % VECTOR_BYTES == 0;
}

/* The kernel of n can read operand k where it lies. */
static bool call_takes(const Graph *g, const Node *n, int k, const ValuePlace *p) {
  const Shape *s = &val(g, n->in[k])->shape;
  switch (n->op) {
    case OP_DOT:
      return dot_takes(g, n, k, p);
    case OP_SCATTER_ADD:
      return k == 0 ? is_dense(s, p) : last_is_unit(s, p);
    case OP_ATTENTION:
    case OP_ATTENTION_BWD:
      return s->rank == 4 ? token_by_token(s, val(g, n->in[k])->dtype, p) : is_dense(s, p);
    default:
      return true;
  }
}

/* The maker of value v can write it at p. */
static bool maker_writes(const Graph *g, ValueId v, const ValuePlace *p) {
  const Node *n = node_of(g, v);
  const Shape *s = &val(g, v)->shape;
  if (n->op == OP_DOT) {
    DotSide a = dot_side(g, n, 0);
    int64_t axis[MAX_RANK];
    for (int k = 0; k < s->rank; k++) axis[k] = k;
    int ncol = s->rank - a.nbatch - a.nfree;
    int64_t step, count;
    return is_matrix(s, p->stride, axis, a.nbatch, a.nfree, ncol) &&
           collapse(s, p->stride, axis + a.nbatch + a.nfree, ncol, &step, &count) &&
           (count == 1 || step == 1);
  }
  if (n->op == OP_SCATTER_ADD) return is_dense(s, p);
  if (op_kind(n->op) == CALL)
    return s->rank == 4 ? token_by_token(s, val(g, v)->dtype, p) : is_dense(s, p);
  return true;
}

/* ---- concats ---- */

typedef struct {
  const Graph *g;
  Layout l;
  bool *fixed;  /* per value: nothing may move it */
  bool *placed; /* per value: a concat has placed it */
} Walk;

/* The place of the operand when the result of view n must lie at `want`. */
static bool before_view(const Graph *g, const Node *n, const ValuePlace *want,
                        ValuePlace *operand) {
  *operand = (ValuePlace){.unit = want->unit, .offset = want->offset};
  if (n->op == OP_TRANSPOSE) {
    const int64_t *perm;
    int rank = node_list(n, "perm", &perm);
    for (int k = 0; k < rank; k++) operand->stride[perm[k]] = want->stride[k];
    return true;
  }
  ValueId y = n->out;
  Node back = {.op = OP_RESHAPE, .nin = 1, .nout = 1, .in = &y, .out = n->in[0]};
  return n->op == OP_RESHAPE && view_place(g, &back, want, operand);
}

/* Puts v, through the views that it is, at `want`. False when it has to be copied there. */
static bool take(Walk *w, ValueId v, ValuePlace want) {
  ValueId chain[64];
  ValuePlace place[64];
  int n = 0;
  for (;; n++) {
    const Node *d = node_of(w->g, v);
    if (n == COUNT_OF(chain) || w->fixed[v] || w->placed[v] || op_kind(d->op) == LEAF) return false;
    chain[n] = v;
    place[n] = want;
    if (d->op != OP_RESHAPE && d->op != OP_TRANSPOSE) break;
    if (!before_view(w->g, d, &place[n], &want)) return false;
    v = d->in[0];
  }
  const Node *d = node_of(w->g, v);
  if (d->op == OP_SLICE || !maker_writes(w->g, v, &want)) return false;
  for (int i = 0; i <= n; i++) {
    w->l.place[chain[i]] = place[i];
    w->placed[chain[i]] = true;
  }
  return true;
}

static void place_concat(Walk *w, NodeId id) {
  const Graph *g = w->g;
  const Node *n = node_at(g, id);
  if (!w->placed[n->out]) w->l.place[n->out] = row_major(g, n->out);
  w->placed[n->out] = true;
  ValuePlace part = w->l.place[n->out];
  int axis = (int)n->ints[0];
  for (int k = 0; k < n->nin; k++) {
    const Value *x = val(g, n->in[k]);
    w->l.copy[w->l.first[id] + k] = !take(w, n->in[k], part);
    part.offset += x->shape.dim[axis] * part.stride[axis] * dtype_bytes(x->dtype);
  }
}

/* ---- the walk ---- */

static void place_node(Walk *w, NodeId id) {
  const Graph *g = w->g;
  const Node *n = node_at(g, id);
  Layout *l = &w->l;
  bool view = op_kind(n->op) == VIEW;
  for (int k = 0; k < n->nout; k++) {
    ValueId v = n->out + k;
    ValuePlace at = {0};
    l->mapped[v] = n->op == OP_BROADCAST || (view && !view_place(g, n, &l->place[n->in[0]], &at));
    if (w->placed[v]) continue;
    l->place[v] = view && !l->mapped[v] ? at : row_major(g, v);
  }
  if (op_kind(n->op) != CALL) return;
  for (int k = 0; k < n->nin; k++)
    l->copy[l->first[id] + k] = !call_takes(g, n, k, &l->place[n->in[k]]);
}

Layout graph_layout(const Graph *g, Arena *a) {
  Walk w = {.g = g};
  w.l.place = arena_array(a, ValuePlace, g->values.n + 1);
  w.l.mapped = arena_array(a, bool, g->values.n + 1);
  w.l.first = arena_array(a, int, g->nodes.n + 1);
  w.fixed = arena_array(a, bool, g->values.n + 1);
  w.placed = arena_array(a, bool, g->values.n + 1);
  int operands = 0;
  for (NodeId n = 0; n < g->nodes.n; n++) {
    w.l.first[n] = operands;
    operands += node_at(g, n)->nin;
    if (node_at(g, n)->op == OP_ASSIGN) w.fixed[node_at(g, n)->in[0]] = true;
  }
  w.l.copy = arena_array(a, bool, operands + 1);
  for (int i = 0; i < g->results.n; i++) w.fixed[g->results.at[i]] = true;
  for (NodeId n = g->nodes.n - 1; n >= 0; n--)
    if (node_at(g, n)->op == OP_CONCAT) place_concat(&w, n);
  for (NodeId n = 0; n < g->nodes.n; n++) place_node(&w, n);
  return w.l;
}
