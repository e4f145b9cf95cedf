/* fuse_legal.c - the graph as kernels can run it (see fuse.h).
 *
 * Input: a verified graph. Output: a graph of the same results and effects, in which every operand
 * that must come from storage can be stored where its reader expects it. Cheap values are cloned
 * for each reader, so that nobody has to store them; what is read from storage is made once. */
#include <string.h>

#include "fuse.h"
#include "rewrite.h"

bool fuse_cheap(const Graph *g, const Layout *l, const Node *n) {
  switch (n->op) {
    case OP_CONST:
    case OP_IOTA:
    case OP_BROADCAST:
      return true;
    case OP_CAST:
      return dtype_bytes(val(g, n->in[0])->dtype) < dtype_bytes(val(g, n->out)->dtype);
    default:
      return op_kind(n->op) == VIEW && l->mapped[n->out];
  }
}

bool fuse_needs_storage(const Graph *g, const Layout *l, const Node *n, int k) {
  (void)g;
  switch (op_kind(n->op)) {
    case VIEW:
      return n->op != OP_BROADCAST;
    case JOIN:
    case CALL:
      return true;
    case EFFECT:
      return false;
    default:
      return (n->op == OP_GATHER && k == 0) || n->op == OP_RANDOM;
  }
  (void)l;
}

NodeId fuse_accumulates(const Graph *g, const Uses *u, const NodeId *assign_before, NodeId assign) {
  const Node *n = node_at(g, assign);
  ValueId sum = n->in[0];
  const Node *add = node_of(g, sum);
  if (n->op != OP_ASSIGN || add->op != OP_ADD || u->first[sum + 1] - u->first[sum] != 1) return -1;
  for (int k = 0; k < 2; k++) {
    const Node *var = node_of(g, add->in[k]), *product = node_of(g, add->in[!k]);
    ValueId p = add->in[!k];
    if (var->op != OP_VAR || var->ints[0] != n->ints[0]) continue;
    if (assign_before[val(g, add->in[k])->def] != assign_before[assign]) continue;
    if (u->first[add->in[k] + 1] - u->first[add->in[k]] != 1) continue;
    if (product->op != OP_DOT && product->op != OP_SCATTER_ADD) continue;
    if (u->first[p + 1] - u->first[p] == 1) return val(g, p)->def;
  }
  return -1;
}

typedef struct {
  Rewrite r;
  const Layout *l;
  Uses uses;
  NodeId *before; /* per node: graph_assign_before */
  NodeId
      *last_read; /* per value: last node that reads it, through views and cheap values as well */
  NodeId *next_assign; /* per VAR node: the assign that ends its value, or the number of nodes */
  ValueId *stored;     /* per old value: cheap value that was made for readers from storage */
  ValueId *copied;     /* per old value: its copy for attention and scatter kernels */
  const Node *reader;  /* new nodes that were cloned for it get its phase, chunk, member and tile */
} Legal;

/* ---- cheap values ---- */

static ValueId fetch(Legal *x, ValueId v, bool from_storage);

static ValueId hold(Graph *g, ValueId v) {
  return g_unary(g, OP_HOLD, v);
}

/* A clone of the cheap node that makes old value v. */
static ValueId clone_cheap(Legal *x, ValueId v) {
  const Graph *from = x->r.from;
  const Node *n = node_of(from, v);
  ValueId in[1];
  for (int k = 0; k < n->nin; k++) in[k] = fetch(x, n->in[k], fuse_needs_storage(from, x->l, n, k));
  Graph *to = x->r.to;
  graph_at(to, n);
  to->here.phase = x->reader->phase;
  to->here.chunk = x->reader->chunk;
  to->here.member = x->reader->member;
  to->here.tile = x->reader->tile;
  Proto p = proto_of(n, in);
  ValueId out = graph_add_proto(to, &p);
  to->values.at[out].shape = val(from, v)->shape;
  return out;
}

static ValueId fetch(Legal *x, ValueId v, bool from_storage) {
  if (!fuse_cheap(x->r.from, x->l, node_of(x->r.from, v))) return x->r.map[v];
  if (!from_storage) return clone_cheap(x, v);
  if (x->stored[v] < 0) x->stored[v] = clone_cheap(x, v);
  return x->stored[v];
}

/* ---- copies ---- */

/* Operand `which` of dot n, copied into the order batch, free, contracted; ints: the dot's
 * attributes, changed to it. */
static ValueId dot_copy(Legal *x, const Node *n, int which, ValueId v, int64_t *ints) {
  Graph *g = x->r.to;
  DotSide d = dot_side(x->r.from, n, which);
  int rank = d.nbatch + d.nfree + d.ncon;
  bool same = true;
  for (int k = 0; k < rank; k++) same &= d.axis[k] == k;
  if (!same) v = g_transpose(g, v, d.axis);
  int64_t *batch = ints + 1 + which * (d.nbatch + 1),
          *con = ints + 2 * (d.nbatch + 1) + 1 + which * (d.ncon + 1);
  for (int k = 0; k < d.nbatch; k++) batch[k] = k;
  for (int k = 0; k < d.ncon; k++) con[k] = rank - d.ncon + k;
  return hold(g, v);
}

/* A copy of old value v, which is `now`: of its own for a concat, shared by kernels. */
static ValueId copy_of(Legal *x, const Node *reader, ValueId v, ValueId now) {
  if (op_kind(reader->op) == JOIN) return hold(x->r.to, now);
  if (x->copied[v] < 0) x->copied[v] = hold(x->r.to, now);
  return x->copied[v];
}

/* ---- reductions ---- */

/* A reduction over axes that are neither the last ones nor (for sums) the first: of the transposed
 * operand. */
static bool reduce_moves(const Graph *g, const Node *n, int64_t *perm, int64_t *axes) {
  const int64_t *list;
  int rank = val(g, n->in[0])->shape.rank, naxes = node_list(n, "axes", &list);
  bool last = true, first = n->op == OP_SUM, in[MAX_RANK] = {false};
  for (int k = 0; k < naxes; k++) {
    last &= list[k] == rank - naxes + k;
    first &= list[k] == k;
    in[list[k]] = true;
  }
  if (last || first) return false;
  int at = 0;
  for (int k = 0; k < rank; k++)
    if (!in[k]) perm[at++] = k;
  for (int k = 0; k < naxes; k++) {
    axes[k] = at;
    perm[at++] = list[k];
  }
  return true;
}

static ValueId legal_reduce(Legal *x, const Node *n, ValueId v) {
  Graph *g = x->r.to;
  int64_t perm[MAX_RANK], axes[MAX_RANK];
  const int64_t *list;
  int naxes = node_list(n, "axes", &list);
  if (!reduce_moves(x->r.from, n, perm, axes)) return g_reduce(g, n->op, v, naxes, list);
  return g_reduce(g, n->op, g_transpose(g, v, perm), naxes, axes);
}

/* ---- nodes ---- */

static bool reduces_through_storage(Legal *x, const Node *n) {
  int64_t perm[MAX_RANK], axes[MAX_RANK];
  return op_kind(n->op) == REDUCE && reduce_moves(x->r.from, n, perm, axes);
}

static void legal_assign(Legal *x, NodeId id) {
  const Node *n = node_at(x->r.from, id);
  ValueId v = fetch(x, n->in[0], false);
  graph_at(x->r.to, n);
  if (fuse_accumulates(x->r.from, &x->uses, x->before, id) < 0) v = hold(x->r.to, v);
  graph_add(x->r.to, OP_ASSIGN, 1, &v, 1, n->ints, NULL, NULL);
}

static void legal_node(Legal *x, NodeId id) {
  const Graph *from = x->r.from;
  const Node *n = node_at(from, id);
  x->reader = n;
  if (n->op == OP_ASSIGN) {
    legal_assign(x, id);
    return;
  }
  ValueId *in = arena_array(x->r.arena, ValueId, n->nin + 1);
  int64_t *ints = arena_array(x->r.arena, int64_t, n->nints + 1);
  for (int k = 0; k < n->nints; k++) ints[k] = n->ints[k];
  bool stored = reduces_through_storage(x, n);
  for (int k = 0; k < n->nin; k++) {
    in[k] = fetch(x, n->in[k], stored || fuse_needs_storage(from, x->l, n, k));
    graph_at(x->r.to, n);
    if (!x->l->copy[x->l->first[id] + k]) continue;
    in[k] = n->op == OP_DOT ? dot_copy(x, n, k, in[k], ints) : copy_of(x, n, n->in[k], in[k]);
  }
  Proto p = proto_of(n, in);
  p.ints = ints;
  ValueId out = op_kind(n->op) == REDUCE ? legal_reduce(x, n, in[0]) : graph_add_proto(x->r.to, &p);
  if (n->op == OP_VAR && x->last_read[n->out] > x->next_assign[id]) out = hold(x->r.to, out);
  for (int k = 0; k < n->nout; k++) {
    x->r.map[n->out + k] = out + k;
    x->r.to->values.at[out + k].shape = val(from, n->out + k)->shape;
  }
}

/* ---- the pass ---- */

static void find_last_reads(Legal *x) {
  const Graph *g = x->r.from;
  for (int v = 0; v < g->values.n; v++) x->last_read[v] = -1;
  NodeId *next = arena_array(x->r.arena, NodeId, g->vars->all.n + 1);
  for (int i = 0; i < g->vars->all.n; i++) next[i] = g->nodes.n;
  for (NodeId n = g->nodes.n - 1; n >= 0; n--) {
    const Node *d = node_at(g, n);
    if (d->op == OP_ASSIGN) next[d->ints[0]] = n;
    if (d->op == OP_VAR) x->next_assign[n] = next[d->ints[0]];
    bool through = op_kind(d->op) == VIEW || op_kind(d->op) == JOIN || fuse_cheap(g, x->l, d);
    NodeId at = n;
    if (through && x->last_read[d->out] > at) at = x->last_read[d->out];
    for (int k = 0; k < d->nin; k++)
      if (x->last_read[d->in[k]] < at) x->last_read[d->in[k]] = at;
  }
}

Graph *fuse_legal(const Graph *g, Arena *a) {
  Layout l = graph_layout(g, a);
  Legal x = {.r = rewrite_begin(g, a),
             .l = &l,
             .uses = graph_uses(g, a),
             .before = graph_assign_before(g, a)};
  bool *live = graph_live(g, a);
  x.last_read = arena_array(a, NodeId, g->values.n + 1);
  x.next_assign = arena_array(a, NodeId, g->nodes.n + 1);
  x.stored = arena_array(a, ValueId, g->values.n + 1);
  x.copied = arena_array(a, ValueId, g->values.n + 1);
  for (int v = 0; v < g->values.n; v++) x.stored[v] = x.copied[v] = -1;
  find_last_reads(&x);
  for (NodeId n = 0; n < g->nodes.n; n++)
    if (live[n] && !fuse_cheap(g, &l, node_at(g, n))) legal_node(&x, n);
  for (int i = 0; i < g->results.n; i++) {
    ValueId v = g->results.at[i];
    const Node *d = node_of(g, v);
    x.reader = d;
    ValueId now = fetch(&x, v, true);
    graph_at(x.r.to, d);
    if (op_kind(d->op) == LEAF) now = hold(x.r.to, now);
    graph_result(x.r.to, g->result_names.at[i], now);
  }
  return x.r.to;
}
