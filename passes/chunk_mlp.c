/* chunk_mlp.c - MLPs in chunks of tokens (see chunk.h).
 *
 * Input: a forward graph. A region is what lies between contractions of one value to more numbers a
 * token, and the only contraction that reads what row-wise nodes make of them. Output: each such
 * region once per chunk, the rows of its last contraction concatenated. */
#include "chunk.h"

#include "chunk_rows.h"

typedef struct {
  Region region; /* of all MLPs that were found */
  const bool *live;
  VEC(NodeId) inside; /* of the MLP at work */
} Find;

static bool opens_with(const Find *f, const Node *first, NodeId n) {
  const Node *x = node_at(f->region.g, n);
  return f->live[n] && x->op == OP_DOT && x->phase == PH_FORWARD && !f->region.opens[n] &&
         (!first || x->in[0] == first->in[0]) && region_may_open(f->region.g, x);
}

/* A value of `count` numbers at most, or what makes its rows from such values and from whole ones. */
static bool cheap_outside(const Graph *g, ValueId v, int lead, int64_t count) {
  const Node *n = node_of(g, v);
  if (shape_count(&val(g, v)->shape) <= count) return true;
  if (!region_made_again(n, lead)) return false;
  for (int k = 0; k < n->nin && n->op != OP_BROADCAST; k++)
    if (!cheap_outside(g, n->in[k], lead, count)) return false;
  return true;
}

/* n contracts numbers of each token with a weight, to fewer. */
static bool closes(const Region *r, const Node *n, int lead) {
  const int64_t *con, *batch;
  const Shape *from = &val(r->g, n->in[0])->shape;
  if (n->op != OP_DOT || r->lead[n->in[0]] != lead || r->lead[n->in[1]]) return false;
  if (node_list(n, "batch_a", &batch) != 0) return false;
  int ncon = node_list(n, "con_a", &con);
  for (int k = 0; k < ncon; k++)
    if (con[k] != from->rank - ncon + k) return false;
  return from->rank - ncon == lead && shape_count(&val(r->g, n->out)->shape) < shape_count(from);
}

/* Follows what depends on the contractions of `first`'s operand; false when it is no MLP. */
static bool follow(Find *f, Arena *a, NodeId first) {
  Region *r = &f->region;
  const Graph *g = r->g;
  const Node *begin = node_at(g, first);
  int exits = 0;
  int64_t count = shape_count(&val(g, begin->in[0])->shape);
  for (NodeId n = first; n < g->nodes.n; n++) {
    const Node *x = node_at(g, n);
    bool opens = opens_with(f, begin, n);
    int lead = opens ? 0 : region_lead(r, x);
    if (lead < 0) return false;
    if (!opens && !lead) continue;
    vec_push(a, &f->inside, n);
    if (opens) {
      region_open(r, n);
    } else if (closes(r, x, lead)) {
      r->exit[n] = true;
      exits++;
    } else {
      if (x->nout != 1 || x->op == OP_DOT) return false;
      for (int k = 0; k < x->nin; k++)
        if (!r->lead[x->in[k]] && !cheap_outside(g, x->in[k], lead, count)) return false;
      r->lead[x->out] = region_lead_after(r, x, lead);
      if (!r->lead[x->out]) return false;
    }
  }
  return exits == 1;
}

static void forget(Find *f) {
  for (int i = 0; i < f->inside.n; i++) {
    NodeId n = f->inside.at[i];
    const Node *x = node_at(f->region.g, n);
    f->region.opens[n] = f->region.exit[n] = false;
    for (int k = 0; k < x->nout; k++) f->region.lead[x->out + k] = 0;
  }
}

static bool has_result(const Region *r) {
  for (int i = 0; i < r->g->results.n; i++)
    if (r->lead[r->g->results.at[i]]) return true;
  return false;
}

/* How many there are. */
static int find_mlps(Find *f, Arena *a) {
  int found = 0;
  for (NodeId n = 0; n < f->region.g->nodes.n; n++) {
    if (!opens_with(f, NULL, n)) continue;
    f->inside.n = 0;
    if (follow(f, a, n) && !has_result(&f->region))
      found++;
    else
      forget(f);
  }
  return found;
}

/* The last contraction of an MLP, chunk by chunk. */
static void build_mlp(Chunker *c, const Node *n, int chunks) {
  Graph *to = c->r.to;
  const Shape *from = &val(c->r.from, n->in[0])->shape, *out = &val(c->r.from, n->out)->shape;
  int lead = c->region.lead[n->in[0]];
  c->region.rows = region_rows(from, lead);
  c->chunks = chunks < c->region.rows ? chunks : (int)c->region.rows;
  ValueId *part = arena_array(c->r.arena, ValueId, c->chunks);
  for (int i = 0; i < c->chunks; i++) {
    chunk_begin(c, i + 1);
    part[i] = chunk_contraction(c, n, lead);
  }
  chunk_work_at(c, n, 0);
  ValueId all = g_concat(to, c->chunks, part, 0);
  c->r.map[n->out] = lead == 1 ? all : g_reshape(to, all, *out);
}

Graph *graph_chunk_mlps(Graph *g, Arena *a, int chunks) {
  if (chunks <= 1) return g;
  Find f = {.region = region_new(g, a), .live = graph_live(g, a)};
  if (find_mlps(&f, a) == 0) return g;
  Chunker c = chunker_new(f.region, g, a);
  c.tiles = true;
  for (NodeId n = 0; n < g->nodes.n; n++) {
    const Node *x = node_at(g, n);
    if (c.region.exit[n])
      build_mlp(&c, x, chunks);
    else if (!c.region.opens[n] && !(x->nout && c.region.lead[x->out]))
      rewrite_node(&c.r, n);
  }
  return graph_drop_dead(rewrite_end(&c.r), a);
}

/* ---- after the other passes ---- */

/* Joins the chunks of an MLP that is not in backward. */
static bool joins_tiles(const Graph *g, const Node *n) {
  return n->op == OP_CONCAT && n->phase == PH_FORWARD && node_of(g, n->in[0])->tile > 0;
}

/* Each operand with zeros where the others are, all added. */
static ValueId sum_of_parts(Rewrite *r, const Node *n) {
  Graph *to = r->to;
  int axis = (int)n->ints[0];
  int64_t before[MAX_RANK] = {0}, after[MAX_RANK] = {0};
  ValueId sum = -1;
  after[axis] = val(r->from, n->out)->shape.dim[axis];
  for (int k = 0; k < n->nin; k++) {
    int64_t rows = val(r->from, n->in[k])->shape.dim[axis];
    after[axis] -= rows;
    ValueId part = g_pad(to, r->map[n->in[k]], before, after);
    sum = k == 0 ? part : g_binary(to, OP_ADD, sum, part);
    before[axis] += rows;
  }
  return sum;
}

Graph *graph_part_tiles(Graph *g, Arena *a) {
  bool any = false;
  for (NodeId n = 0; n < g->nodes.n; n++) any |= joins_tiles(g, node_at(g, n));
  if (!any) return g;
  Rewrite r = rewrite_begin(g, a);
  for (NodeId n = 0; n < g->nodes.n; n++) {
    const Node *x = node_at(g, n);
    if (!joins_tiles(g, x)) {
      rewrite_node(&r, n);
      continue;
    }
    graph_at(r.to, x);
    r.map[x->out] = sum_of_parts(&r, x);
  }
  return rewrite_end(&r);
}
