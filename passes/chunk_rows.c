/* chunk_rows.c - what can be cut along tokens, and the rows of one chunk (see chunk_rows.h). Input: a
 * forward graph and a region of it, whose values have the tokens as their leading axes. Output:
 * values on a single axis of rows. */
#include "chunk_rows.h"

/* ---- regions ---- */

Region region_new(const Graph *g, Arena *a) {
  return (Region){.g = g,
                  .lead = arena_array(a, int, g->values.n + 1),
                  .opens = arena_array(a, bool, g->nodes.n + 1),
                  .exit = arena_array(a, bool, g->nodes.n + 1)};
}

int64_t region_rows(const Shape *s, int n) {
  int64_t p = 1;
  for (int k = 0; k < n; k++) p *= s->dim[k];
  return p;
}

bool region_may_open(const Graph *g, const Node *n) {
  const int64_t *con;
  int ncon = node_list(n, "con_a", &con), rank = val(g, n->in[0])->shape.rank;
  if (node_list(n, "batch_a", &con) != 0) return false;
  node_list(n, "con_a", &con);
  if (ncon < 1 || rank - ncon < 1) return false;
  for (int k = 0; k < ncon; k++)
    if (con[k] < rank - ncon) return false;
  return shape_count(&val(g, n->out)->shape) > shape_count(&val(g, n->in[0])->shape);
}

void region_open(Region *r, NodeId id) {
  const Node *n = node_at(r->g, id);
  const int64_t *con;
  const Shape *from = &val(r->g, n->in[0])->shape;
  int lead = from->rank - node_list(n, "con_a", &con);
  r->rows = region_rows(from, lead);
  r->lead[n->out] = lead;
  r->opens[id] = true;
}

int region_lead(const Region *r, const Node *n) {
  int lead = 0;
  for (int k = 0; k < n->nin; k++) {
    int have = r->lead[n->in[k]];
    if (have && lead && have != lead) return -1;
    if (have) lead = have;
  }
  return lead;
}

int region_lead_after(const Region *r, const Node *n, int lead) {
  const Graph *g = r->g;
  const Shape *from = &val(g, n->in[0])->shape, *to = &val(g, n->out)->shape;
  const int64_t *list, *more;
  int len;
  switch (n->op) {
    case OP_BROADCAST:
      node_list(n, "axes", &list);
      for (int k = 0; k < lead; k++)
        if (list[k] != k) return 0;
      return lead;
    case OP_RESHAPE:
      for (int k = 1; k <= to->rank; k++)
        if (region_rows(to, k) == r->rows) return k;
      return 0;
    case OP_TRANSPOSE:
      node_list(n, "perm", &list);
      for (int k = 0; k < lead; k++)
        if (list[k] != k) return 0;
      return lead;
    case OP_SLICE:
      node_list(n, "start", &list);
      node_list(n, "stop", &more);
      for (int k = 0; k < lead; k++)
        if (list[k] != 0 || more[k] != from->dim[k]) return 0;
      return lead;
    case OP_PAD:
      node_list(n, "before", &list);
      node_list(n, "after", &more);
      for (int k = 0; k < lead; k++)
        if (list[k] || more[k]) return 0;
      return lead;
    case OP_CONCAT:
      return n->ints[0] >= lead ? lead : 0;
    case OP_SUM:
    case OP_AMAX:
    case OP_ARGMAX:
      len = node_list(n, "axes", &list);
      for (int k = 0; k < len; k++)
        if (list[k] < lead) return 0;
      return lead;
    case OP_GATHER:
    case OP_RANDOM:
      return 0;
    default:
      return op_kind(n->op) == ELEM ? lead : 0;
  }
}

/* How many of the token axes a broadcast's operand holds: all of them in place, none, or -1 for
 * some. */
static int mapped_tokens(const Node *n, int lead) {
  const int64_t *axes;
  int len = node_list(n, "axes", &axes), count = 0;
  for (int k = 0; k < len; k++) count += axes[k] < lead;
  return count == 0 || count == lead ? count : -1;
}

bool region_made_again(const Node *n, int lead) {
  if (n->op == OP_CONST) return true;
  if (n->op == OP_IOTA) return n->ints[n->nints - 1] >= lead;
  if (n->op == OP_BROADCAST) return mapped_tokens(n, lead) >= 0;
  return op_kind(n->op) == ELEM && n->op != OP_RANDOM && n->op != OP_GATHER;
}

/* ---- the rows of one chunk ---- */

/* Shape s with its first `lead` axes as one of `rows`. */
static Shape with_rows(const Shape *s, int lead, int64_t rows) {
  Shape to = {.rank = s->rank - lead + 1, .dim = {rows}};
  for (int k = 1; k < to.rank; k++) {
    to.dim[k] = s->dim[k + lead - 1];
    to.axis[k] = s->axis[k + lead - 1];
  }
  return to;
}

void chunk_work_at(Chunker *c, const Node *n, int chunk) {
  graph_at(c->r.to, n);
  *(c->tiles ? &c->r.to->here.tile : &c->r.to->here.chunk) = chunk;
}

/* The chunk's rows of a value from outside of the region. */
static ValueId sliced(Chunker *c, ValueId v, int lead) {
  Graph *to = c->r.to;
  const Shape *s = &val(c->r.from, v)->shape;
  if (c->flat[v] < 0) {
    chunk_work_at(c, node_of(c->r.from, v), 0);
    c->flat[v] =
        lead == 1 ? c->r.map[v] : g_reshape(to, c->r.map[v], with_rows(s, lead, c->region.rows));
  }
  chunk_work_at(c, node_of(c->r.from, v), c->chunk);
  return g_slice(to, c->flat[v], 0, c->start, c->stop);
}

/* Clones n with operands of the chunk and changed attributes. */
static ValueId rebuilt(Chunker *c, const Node *n, int nin, const ValueId *in, int nints,
                       const int64_t *ints) {
  chunk_work_at(c, n, c->chunk);
  Proto p = proto_of(n, in);
  p.nin = nin;
  p.ints = ints;
  p.nints = nints;
  return graph_add_proto(c->r.to, &p);
}

static int put(int64_t *ints, int at, int n, const int64_t *items, int64_t shift) {
  ints[at++] = n;
  for (int k = 0; k < n; k++) ints[at++] = items[k] + shift;
  return at;
}

/* A list of one entry per axis, for the rows axis and the axes after the tokens. */
static int put_axes(int64_t *ints, int at, const int64_t *list, int rank, int lead, int64_t rows) {
  int64_t items[MAX_RANK] = {rows};
  for (int k = lead; k < rank; k++) items[k - lead + 1] = list[k];
  return put(ints, at, rank - lead + 1, items, 0);
}

/* Axes of a broadcast whose operand holds the tokens (they map to the rows axis) or none of them.
 */
static ValueId chunk_broadcast(Chunker *c, const Node *n, int lead, int nmapped) {
  const int64_t *axes;
  int len = node_list(n, "axes", &axes), at = 0;
  int64_t ints[2 * (MAX_RANK + 1)], items[MAX_RANK];
  Shape to = with_rows(&val(c->r.from, n->out)->shape, lead, c->stop - c->start);
  ValueId x = nmapped ? chunk_of(c, n->in[0], lead) : c->r.map[n->in[0]];
  int count = 0;
  if (nmapped) items[count++] = 0;
  for (int k = nmapped; k < len; k++) items[count++] = axes[k] - lead + 1;
  at = put(ints, at, to.rank, to.dim, 0);
  at = put(ints, at, count, items, 0);
  return rebuilt(c, n, 1, &x, at, ints);
}

static ValueId chunk_node(Chunker *c, const Node *n, int lead) {
  const Graph *g = c->r.from;
  const Shape *out = &val(g, n->out)->shape;
  const int64_t *list, *more;
  int64_t ints[4 * (MAX_RANK + 1) + 2], rows = c->stop - c->start;
  int at = 0, inner = lead; /* token axes of the operands */
  if (n->op == OP_BROADCAST) return chunk_broadcast(c, n, lead, lead);
  if (n->nin && c->region.lead[n->in[0]]) inner = c->region.lead[n->in[0]];
  ValueId *in = arena_array(c->r.arena, ValueId, n->nin + 1);
  for (int k = 0; k < n->nin; k++) in[k] = chunk_of(c, n->in[k], inner);
  int rank = n->nin ? val(g, n->in[0])->shape.rank : out->rank, len;
  switch (n->op) {
    case OP_RESHAPE: {
      Shape to = with_rows(out, lead, rows);
      at = put(ints, at, to.rank, to.dim, 0);
      break;
    }
    case OP_TRANSPOSE:
      node_list(n, "perm", &list);
      at = put_axes(ints, at, list, rank, lead, 0);
      for (int k = 2; k < at; k++) ints[k] -= lead - 1;
      break;
    case OP_SLICE:
    case OP_PAD:
      node_list(n, n->op == OP_SLICE ? "start" : "before", &list);
      node_list(n, n->op == OP_SLICE ? "stop" : "after", &more);
      at = put_axes(ints, at, list, rank, lead, 0);
      at = put_axes(ints, at, more, rank, lead, n->op == OP_SLICE ? rows : 0);
      break;
    case OP_CONCAT:
      ints[at++] = n->ints[0] - lead + 1;
      break;
    case OP_SUM:
    case OP_AMAX:
    case OP_ARGMAX:
      len = node_list(n, "axes", &list);
      at = put(ints, at, len, list, 1 - lead);
      break;
    case OP_CONST:
    case OP_IOTA: {
      Shape to = with_rows(out, lead, rows);
      ints[at++] = n->ints[0];
      at = put(ints, at, to.rank, to.dim, 0);
      if (n->op == OP_IOTA) ints[at++] = n->ints[n->nints - 1] - lead + 1;
      break;
    }
    default:
      for (; at < n->nints; at++) ints[at] = n->ints[at];
  }
  return rebuilt(c, n, n->nin, in, at, ints);
}

ValueId chunk_contraction(Chunker *c, const Node *n, int lead) {
  const int64_t *con_a, *con_b;
  int ncon = node_list(n, "con_a", &con_a);
  node_list(n, "con_b", &con_b);
  ValueId *made = &c->made[n->in[0]];
  if (*made < 0)
    *made = c->region.lead[n->in[0]] ? chunk_of(c, n->in[0], lead) : sliced(c, n->in[0], lead);
  chunk_work_at(c, n, c->chunk);
  int64_t con[MAX_RANK];
  for (int k = 0; k < ncon; k++) con[k] = con_a[k] - lead + 1;
  DType t = val(c->r.from, n->out)->dtype;
  return g_dot(c->r.to, *made, c->r.map[n->in[1]], 0, con, con, ncon, con, con_b, t);
}

ValueId chunk_of(Chunker *c, ValueId v, int lead) {
  if (c->made[v] >= 0) return c->made[v];
  const Node *n = node_of(c->r.from, v);
  ValueId now;
  if (c->region.opens[val(c->r.from, v)->def])
    now = chunk_contraction(c, n, lead);
  else if (c->region.lead[v])
    now = chunk_node(c, n, lead);
  else if (!region_made_again(n, lead))
    now = sliced(c, v, lead);
  else if (n->op == OP_BROADCAST)
    now = chunk_broadcast(c, n, lead, mapped_tokens(n, lead));
  else
    now = chunk_node(c, n, lead);
  return c->made[v] = now;
}

Chunker chunker_new(Region region, const Graph *g, Arena *a) {
  Chunker c = {.region = region, .r = rewrite_begin(g, a)};
  c.made = arena_array(a, ValueId, g->values.n + 1);
  c.flat = arena_array(a, ValueId, g->values.n + 1);
  for (int v = 0; v < g->values.n; v++) c.flat[v] = -1;
  return c;
}

void chunk_begin(Chunker *c, int chunk) {
  c->chunk = chunk;
  c->start = c->region.rows * (chunk - 1) / c->chunks;
  c->stop = c->region.rows * chunk / c->chunks;
  for (int v = 0; v < c->r.from->values.n; v++) c->made[v] = -1;
}
