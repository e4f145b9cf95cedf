/* chunk.c - the loss head in chunks of tokens (see chunk.h).
 *
 * Input: a forward graph whose first result is the loss. The region is what depends on the last
 * contraction; each of its values has the tokens as its leading axes. It ends where tokens are
 * summed over. Output: the region once per chunk on a single axis of rows, the sums added. */
#include "chunk.h"

#include <string.h>

#include "rewrite.h"

enum { MAX_CHUNKS = 512 };

typedef struct {
  const Graph *g;
  NodeId head;  /* the contraction; -1 none */
  int64_t rows; /* tokens */
  int *lead;    /* per value of the region: how many leading axes are tokens; 0 = not in it */
  bool *exit;   /* per node: sums a value of the region over all tokens */
} Region;

/* ---- finding the region ---- */

static int64_t product(const Shape *s, int n) {
  int64_t p = 1;
  for (int k = 0; k < n; k++) p *= s->dim[k];
  return p;
}

/* x[tokens.., inner..] with w, tokens leading, more numbers out than in: else chunks gain nothing.
 */
static bool is_head(const Graph *g, const Node *n) {
  const int64_t *con;
  int ncon = node_list(n, "con_a", &con), rank = val(g, n->in[0])->shape.rank;
  if (node_list(n, "batch_a", &con) != 0) return false;
  node_list(n, "con_a", &con);
  if (ncon < 1 || rank - ncon < 1) return false;
  for (int k = 0; k < ncon; k++)
    if (con[k] < rank - ncon) return false;
  return shape_count(&val(g, n->out)->shape) > shape_count(&val(g, n->in[0])->shape);
}

/* Leading token axes of the result of n, given that of its operands in the region. 0: n cannot be
 * cut. */
static int lead_after(const Region *r, const Node *n, int lead) {
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
        if (product(to, k) == r->rows) return k;
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

static bool sums_tokens(const Node *n, int lead) {
  const int64_t *axes;
  if (n->op != OP_SUM) return false;
  int len = node_list(n, "axes", &axes);
  for (int k = 0; k < lead; k++)
    if (k >= len || axes[k] != k) return false;
  return true;
}

/* Follows what depends on the head; false when something cannot be cut along tokens. */
static bool follow(Region *r) {
  const Graph *g = r->g;
  bool any = false;
  for (NodeId n = r->head + 1; n < g->nodes.n; n++) {
    const Node *x = node_at(g, n);
    int lead = 0;
    for (int k = 0; k < x->nin; k++) {
      int have = r->lead[x->in[k]];
      if (have && lead && have != lead) return false;
      if (have) lead = have;
    }
    if (!lead) continue;
    if (sums_tokens(x, lead)) {
      any = r->exit[n] = true;
      continue;
    }
    if (x->nout != 1) return false;
    int after = lead_after(r, x, lead);
    if (!after) return false;
    r->lead[x->out] = after;
  }
  for (int i = 0; i < g->results.n; i++)
    if (r->lead[g->results.at[i]]) return false;
  return any;
}

static Region find_region(const Graph *g, Arena *a) {
  Region r = {.g = g, .head = -1};
  if (!g->results.n) return r;
  bool *live = graph_live(g, a);
  NodeId head = g->nodes.n - 1;
  while (head >= 0 && !(live[head] && op_kind(node_at(g, head)->op) == CALL)) head--;
  if (head < 0 || node_at(g, head)->op != OP_DOT || !is_head(g, node_at(g, head))) return r;
  const Node *n = node_at(g, head);
  const int64_t *con;
  int lead = val(g, n->in[0])->shape.rank - node_list(n, "con_a", &con);
  r.rows = product(&val(g, n->in[0])->shape, lead);
  r.lead = arena_array(a, int, g->values.n + 1);
  r.exit = arena_array(a, bool, g->nodes.n + 1);
  r.lead[n->out] = lead;
  r.head = head;
  if (!follow(&r)) r.head = -1;
  return r;
}

int chunk_limit(const Graph *g) {
  Arena *a = arena_new();
  Region r = find_region(g, a);
  arena_free(a);
  if (r.head < 0) return 1;
  return r.rows < MAX_CHUNKS ? (int)r.rows : MAX_CHUNKS;
}

/* ---- building chunks ---- */

typedef struct {
  Region region;
  Rewrite r;
  int chunk, chunks;   /* at work: 1..chunks */
  int64_t start, stop; /* its rows */
  ValueId *made;       /* per old value: its rows of the chunk at work; -1 not yet */
  ValueId *flat;       /* per old value: with its token axes as one */
} Chunker;

/* Shape s with its first `lead` axes as one of `rows`. */
static Shape with_rows(const Shape *s, int lead, int64_t rows) {
  Shape to = {.rank = s->rank - lead + 1, .dim = {rows}};
  for (int k = 1; k < to.rank; k++) {
    to.dim[k] = s->dim[k + lead - 1];
    to.axis[k] = s->axis[k + lead - 1];
  }
  return to;
}

static void work_at(Chunker *c, const Node *n, int chunk) {
  graph_at(c->r.to, n);
  c->r.to->here.chunk = chunk;
}

/* The chunk's rows of a value from outside of the region. */
static ValueId sliced(Chunker *c, ValueId v, int lead) {
  Graph *to = c->r.to;
  const Shape *s = &val(c->r.from, v)->shape;
  if (c->flat[v] < 0) {
    work_at(c, node_of(c->r.from, v), 0);
    c->flat[v] =
        lead == 1 ? c->r.map[v] : g_reshape(to, c->r.map[v], with_rows(s, lead, c->region.rows));
  }
  work_at(c, node_of(c->r.from, v), c->chunk);
  return g_slice(to, c->flat[v], 0, c->start, c->stop);
}

static ValueId chunk_of(Chunker *c, ValueId v, int lead);

/* Clones n with operands of the chunk and changed attributes. */
static ValueId rebuilt(Chunker *c, const Node *n, int nin, const ValueId *in, int nints,
                       const int64_t *ints) {
  work_at(c, n, c->chunk);
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

/* How many of the token axes a broadcast's operand holds: all of them in place, none, or -1 for
 * some. */
static int mapped_tokens(const Node *n, int lead) {
  const int64_t *axes;
  int len = node_list(n, "axes", &axes), count = 0;
  for (int k = 0; k < len; k++) count += axes[k] < lead;
  return count == 0 || count == lead ? count : -1;
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

static ValueId chunk_head(Chunker *c, const Node *n, int lead) {
  const int64_t *con_a, *con_b;
  int ncon = node_list(n, "con_a", &con_a);
  node_list(n, "con_b", &con_b);
  ValueId rows = sliced(c, n->in[0], lead);
  work_at(c, n, c->chunk);
  int64_t con[MAX_RANK];
  for (int k = 0; k < ncon; k++) con[k] = con_a[k] - lead + 1;
  DType t = val(c->r.from, n->out)->dtype;
  return g_dot(c->r.to, rows, c->r.map[n->in[1]], 0, con, con, ncon, con, con_b, t);
}

/* Outside of the region, but cheaper to make for the chunk than to cut out of the whole. */
static bool made_again(const Node *n, int lead) {
  if (n->op == OP_CONST) return true;
  if (n->op == OP_IOTA) return n->ints[n->nints - 1] >= lead;
  if (n->op == OP_BROADCAST) return mapped_tokens(n, lead) >= 0;
  return op_kind(n->op) == ELEM && n->op != OP_RANDOM && n->op != OP_GATHER;
}

/* Old value v, whose first `lead` axes are the tokens, for the rows of the chunk at work. */
static ValueId chunk_of(Chunker *c, ValueId v, int lead) {
  if (c->made[v] >= 0) return c->made[v];
  const Node *n = node_of(c->r.from, v);
  ValueId now;
  if (val(c->r.from, v)->def == c->region.head)
    now = chunk_head(c, n, lead);
  else if (c->region.lead[v])
    now = chunk_node(c, n, lead);
  else if (!made_again(n, lead))
    now = sliced(c, v, lead);
  else if (n->op == OP_BROADCAST)
    now = chunk_broadcast(c, n, lead, mapped_tokens(n, lead));
  else
    now = chunk_node(c, n, lead);
  return c->made[v] = now;
}

static void begin_chunk(Chunker *c, int chunk) {
  c->chunk = chunk;
  c->start = c->region.rows * (chunk - 1) / c->chunks;
  c->stop = c->region.rows * chunk / c->chunks;
  for (int v = 0; v < c->r.from->values.n; v++) c->made[v] = -1;
}

/* The sums that leave the region, each as the sum of its chunks. The last chunk comes first:
 * backward, and with it the accumulation of weight gradients, then goes from the first chunk to the
 * last, in the order of execution. */
static void build_chunks(Chunker *c) {
  const Graph *g = c->r.from;
  for (int chunk = c->chunks; chunk >= 1; chunk--) {
    begin_chunk(c, chunk);
    for (NodeId e = c->region.head + 1; e < g->nodes.n; e++) {
      if (!c->region.exit[e]) continue;
      const Node *n = node_at(g, e);
      const int64_t *axes;
      int len = node_list(n, "axes", &axes), lead = c->region.lead[n->in[0]], count = 1;
      ValueId x = chunk_of(c, n->in[0], lead);
      int64_t list[MAX_RANK] = {0};
      for (int k = lead; k < len; k++) list[count++] = axes[k] - lead + 1;
      work_at(c, n, chunk);
      ValueId part = g_reduce(c->r.to, OP_SUM, x, count, list);
      work_at(c, n, 0);
      ValueId *sum = &c->r.map[n->out];
      *sum = *sum < 0 ? part : g_binary(c->r.to, OP_ADD, *sum, part);
    }
  }
}

Graph *graph_chunk(Graph *g, Arena *a, int chunks) {
  if (chunks <= 1) return g;
  Chunker c = {.region = find_region(g, a), .r = rewrite_begin(g, a)};
  if (c.region.head < 0) return g;
  c.chunks = chunks < c.region.rows ? chunks : (int)c.region.rows;
  c.made = arena_array(a, ValueId, g->values.n + 1);
  c.flat = arena_array(a, ValueId, g->values.n + 1);
  for (int v = 0; v < g->values.n; v++) c.flat[v] = -1;
  /* First all that the region does not reach, then the chunks, then what their sums lead to. */
  bool *late = arena_array(a, bool, g->nodes.n + 1);
  for (NodeId n = 0; n < g->nodes.n; n++) {
    const Node *x = node_at(g, n);
    bool inside = n == c.region.head || (x->nout && c.region.lead[x->out]);
    late[n] = c.region.exit[n];
    for (int k = 0; k < x->nin; k++) late[n] |= late[val(g, x->in[k])->def];
    if (!inside && !late[n]) rewrite_node(&c.r, n);
  }
  build_chunks(&c);
  for (NodeId n = 0; n < g->nodes.n; n++)
    if (late[n] && !c.region.exit[n]) rewrite_node(&c.r, n);
  return graph_drop_dead(rewrite_end(&c.r), a);
}
