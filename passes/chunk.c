/* chunk.c - the loss head in chunks of tokens (see chunk.h).
 *
 * Input: a forward graph whose first result is the loss. The region is what depends on the last
 * contraction; each of its values has the tokens as its leading axes. It ends where tokens are
 * summed over. Output: the region once per chunk on a single axis of rows, the sums added. */
#include "chunk.h"

#include "chunk_rows.h"

enum { MAX_CHUNKS = 512 };

/* ---- finding the region ---- */

static bool sums_tokens(const Node *n, int lead) {
  const int64_t *axes;
  if (n->op != OP_SUM) return false;
  int len = node_list(n, "axes", &axes);
  for (int k = 0; k < lead; k++)
    if (k >= len || axes[k] != k) return false;
  return true;
}

/* Follows what depends on the contraction `head`; false when something cannot be cut along tokens. */
static bool follow(Region *r, NodeId head) {
  const Graph *g = r->g;
  bool any = false;
  for (NodeId n = head + 1; n < g->nodes.n; n++) {
    const Node *x = node_at(g, n);
    int lead = region_lead(r, x);
    if (lead < 0) return false;
    if (!lead) continue;
    if (sums_tokens(x, lead)) {
      any = r->exit[n] = true;
      continue;
    }
    if (x->nout != 1) return false;
    r->lead[x->out] = region_lead_after(r, x, lead);
    if (!r->lead[x->out]) return false;
  }
  for (int i = 0; i < g->results.n; i++)
    if (r->lead[g->results.at[i]]) return false;
  return any;
}

/* False when there is none. */
static bool find_head(const Graph *g, Arena *a, Region *r, NodeId *head) {
  if (!g->results.n) return false;
  bool *live = graph_live(g, a);
  NodeId n = g->nodes.n - 1;
  while (n >= 0 && !(live[n] && op_kind(node_at(g, n)->op) == CALL)) n--;
  if (n < 0 || node_at(g, n)->op != OP_DOT || !region_may_open(g, node_at(g, n))) return false;
  *r = region_new(g, a);
  *head = n;
  region_open(r, n);
  return follow(r, n);
}

int chunk_limit(const Graph *g) {
  Arena *a = arena_new();
  Region r;
  NodeId head;
  int64_t rows = find_head(g, a, &r, &head) ? r.rows : 1;
  arena_free(a);
  return rows < MAX_CHUNKS ? (int)rows : MAX_CHUNKS;
}

/* ---- building chunks ---- */

/* The sums that leave the region, each as the sum of its chunks. The last chunk comes first:
 * backward, and with it the accumulation of weight gradients, then goes from the first chunk to the
 * last, in the order of execution. */
static void build_chunks(Chunker *c, NodeId head) {
  const Graph *g = c->r.from;
  for (int chunk = c->chunks; chunk >= 1; chunk--) {
    chunk_begin(c, chunk);
    for (NodeId e = head + 1; e < g->nodes.n; e++) {
      if (!c->region.exit[e]) continue;
      const Node *n = node_at(g, e);
      const int64_t *axes;
      int len = node_list(n, "axes", &axes), lead = c->region.lead[n->in[0]], count = 1;
      ValueId x = chunk_of(c, n->in[0], lead);
      int64_t list[MAX_RANK] = {0};
      for (int k = lead; k < len; k++) list[count++] = axes[k] - lead + 1;
      chunk_work_at(c, n, chunk);
      ValueId part = g_reduce(c->r.to, OP_SUM, x, count, list);
      chunk_work_at(c, n, 0);
      ValueId *sum = &c->r.map[n->out];
      *sum = *sum < 0 ? part : g_binary(c->r.to, OP_ADD, *sum, part);
    }
  }
}

Graph *graph_chunk(Graph *g, Arena *a, int chunks) {
  if (chunks <= 1) return g;
  Region region;
  NodeId head;
  if (!find_head(g, a, &region, &head)) return g;
  Chunker c = chunker_new(region, g, a);
  c.chunks = chunks < region.rows ? chunks : (int)region.rows;
  /* First all that the region does not reach, then the chunks, then what their sums lead to. */
  bool *late = arena_array(a, bool, g->nodes.n + 1);
  for (NodeId n = 0; n < g->nodes.n; n++) {
    const Node *x = node_at(g, n);
    bool inside = c.region.opens[n] || (x->nout && c.region.lead[x->out]);
    late[n] = c.region.exit[n];
    for (int k = 0; k < x->nin; k++) late[n] |= late[val(g, x->in[k])->def];
    if (!inside && !late[n]) rewrite_node(&c.r, n);
  }
  build_chunks(&c, head);
  for (NodeId n = 0; n < g->nodes.n; n++)
    if (late[n] && !c.region.exit[n]) rewrite_node(&c.r, n);
  return graph_drop_dead(rewrite_end(&c.r), a);
}
