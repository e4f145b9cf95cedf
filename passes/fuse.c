/* fuse.c - from a graph to clusters: legal graph, groups, equal nodes of a group made once, inputs
 * and outputs, names, order. Input: a verified graph, which is replaced by the legal one. Output:
 * what plan.h says of Clusters. */
#include "fuse.h"

#include <string.h>

#include "order.h"
#include "pass_table.h"
#include "rewrite.h"

/* ---- equal nodes of one group ---- */

static uint64_t hash_node(const Node *n, const ValueId *in, int group) {
  uint64_t h =
      hash_bytes(in, sizeof *in * (size_t)n->nin, (uint64_t)group * OP_COUNT + (uint64_t)n->op);
  h = hash_bytes(n->ints, sizeof *n->ints * (size_t)n->nints, h);
  return hash_bytes(n->num, sizeof n->num, h);
}

static bool same_node(const Node *a, const Node *b, const ValueId *in) {
  return a->op == b->op && a->nin == b->nin && a->nints == b->nints && a->nout == b->nout &&
         a->sym == b->sym && !memcmp(a->num, b->num, sizeof a->num) &&
         (!a->nin || !memcmp(a->in, in, sizeof *in * (size_t)a->nin)) &&
         (!a->nints || !memcmp(a->ints, b->ints, sizeof *a->ints * (size_t)a->nints));
}

/* Clones for readers of one group are one node again. Groups follow to the new graph. */
static Graph *once_per_group(const Graph *g, Groups *q, Arena *a) {
  Rewrite r = rewrite_begin(g, a);
  uint64_t mask = 1023;
  while (mask < (uint64_t)g->nodes.n * 2) mask = mask * 2 + 1;
  NodeId *slot = arena_array(a, NodeId, (int64_t)mask + 1);
  Groups to = *q;
  to.of = arena_array(a, int, g->nodes.n + 1);
  to.axes = arena_array(a, AxisMap, g->nodes.n + 1);
  for (NodeId n = 0; n < g->nodes.n; n++) {
    const Node *x = node_at(g, n);
    bool pure =
        q->of[n] >= 0 && op_kind(x->op) != EFFECT && op_kind(x->op) != CALL && x->op != OP_HOLD;
    uint64_t at = 0;
    if (pure) {
      ValueId in[4];
      for (int k = 0; k < x->nin; k++) in[k] = r.map[x->in[k]];
      at = hash_node(x, in, q->of[n]) & mask;
      for (; slot[at]; at = (at + 1) & mask)
        if (to.of[slot[at] - 1] == q->of[n] && same_node(node_at(r.to, slot[at] - 1), x, in) &&
            !memcmp(&to.axes[slot[at] - 1], &q->axes[n], sizeof *to.axes))
          break;
      if (slot[at]) {
        r.map[x->out] = node_at(r.to, slot[at] - 1)->out;
        continue;
      }
    }
    NodeId now = r.to->nodes.n;
    rewrite_node(&r, n);
    to.of[now] = q->of[n];
    to.axes[now] = q->axes[n];
    if (pure) slot[at] = now + 1;
  }
  *q = to;
  return rewrite_end(&r);
}

/* ---- inputs and outputs ---- */

typedef struct {
  const Graph *g;
  const Groups *q;
  Arena *arena;
  Uses uses;
  bool *is_result; /* per value */
  int *seen;       /* per value: last cluster that listed it as an input, + 1 */
} Emit;

static bool read_outside(const Emit *e, ValueId v, int cluster) {
  if (e->is_result[v]) return true;
  for (int i = e->uses.first[v]; i < e->uses.first[v + 1]; i++)
    if (e->q->of[e->uses.user[i]] != cluster) return true;
  return false;
}

/* The variable that a reader of v inside the cluster assigns, or -1. */
static int assigned(const Emit *e, ValueId v) {
  for (int i = e->uses.first[v]; i < e->uses.first[v + 1]; i++) {
    const Node *n = node_at(e->g, e->uses.user[i]);
    if (n->op == OP_ASSIGN) return (int)n->ints[0];
  }
  return -1;
}

static void list_values(Emit *e, Cluster *c, int id) {
  VEC(ValueId) in = {0}, out = {0};
  VEC(int) var = {0};
  for (int i = 0; i < c->nnodes; i++) {
    const Node *n = node_at(e->g, c->nodes[i]);
    for (int k = 0; k < n->nin; k++) {
      if (e->q->of[val(e->g, n->in[k])->def] == id || e->seen[n->in[k]] == id + 1) continue;
      e->seen[n->in[k]] = id + 1;
      vec_push(e->arena, &in, n->in[k]);
    }
    for (int k = 0; k < n->nout; k++) {
      ValueId v = n->out + k;
      int to = assigned(e, v);
      bool whole_call = op_kind(n->op) == CALL && !c->accumulate;
      if (to < 0 && !whole_call && !read_outside(e, v, id)) continue;
      vec_push(e->arena, &out, v);
      vec_push(e->arena, &var, to);
    }
  }
  c->in = in.at;
  c->nin = in.n;
  c->out = out.at;
  c->out_var = var.at;
  c->nout = out.n;
}

/* ---- names ---- */

static bool says_little(const Node *n) {
  switch (n->op) {
    case OP_CONST:
    case OP_IOTA:
    case OP_BROADCAST:
    case OP_CAST:
    case OP_HOLD:
    case OP_ASSIGN:
      return true;
    default:
      return op_kind(n->op) == VIEW;
  }
}

/* The composition instance with most nodes speaks for a loop; without one, its last operation does.
 */
static const Node *speaker(const Graph *g, const Cluster *c) {
  const Node *best = NULL;
  int most = 0;
  for (int i = 0; i < c->nnodes; i++) {
    const Node *n = node_at(g, c->nodes[i]);
    if (!n->tag || says_little(n)) continue;
    int count = 0;
    for (int k = 0; k < c->nnodes; k++) {
      const Node *m = node_at(g, c->nodes[k]);
      count += m->tag == n->tag && m->path == n->path;
    }
    if (count > most) best = n, most = count;
  }
  for (int i = c->nnodes - 1; i >= 0 && !best; i--)
    if (!says_little(node_at(g, c->nodes[i]))) best = node_at(g, c->nodes[i]);
  return best ? best : node_at(g, c->nodes[c->nnodes - 1]);
}

static const char *name_of(const Emit *e, const Cluster *c) {
  const Node *n = c->kind == CL_LOOP ? speaker(e->g, c) : node_at(e->g, c->nodes[0]);
  const char *what = n->tag ? n->tag : op_name(n->op), *side = "";
  if (c->kind == CL_GEMM) what = c->phase != PH_BACKWARD ? "" : c->accumulate ? "dw" : "dx";
  if (c->kind == CL_SCATTER) what = "dw";
  if (c->kind == CL_ATTENTION || c->kind == CL_ATTENTION_BWD) what = "attention";
  if (c->phase == PH_BACKWARD && c->kind != CL_GEMM && c->kind != CL_SCATTER) side = ".bwd";
  if (!*n->path && !*what) what = op_name(n->op);
  const char *dot = *n->path && *what ? "." : "";
  int part = c->chunk ? c->chunk : c->tile;
  if (part) return intern_printf("%s%s%s%s#%d", n->path, dot, what, side, part);
  return intern_printf("%s%s%s%s", n->path, dot, what, side);
}

const char *cluster_whole_name(const Cluster *c) {
  if (!c->name) return "";
  const char *end = c->tile ? strrchr(c->name, '#') : NULL;
  return end ? intern_n(c->name, (size_t)(end - c->name)) : c->name;
}

/* ---- clusters ---- */

static Phase phase_of(const Graph *g, const Cluster *c) {
  Phase p = PH_FORWARD;
  for (int i = 0; i < c->nnodes; i++)
    if (node_at(g, c->nodes[i])->phase > p) p = node_at(g, c->nodes[i])->phase;
  return p;
}

static Clusters list_clusters(Graph *g, const Groups *q, Arena *a, Arena *scratch) {
  Clusters c = {.g = g, .n = q->ngroups, .at = arena_array(a, Cluster, q->ngroups + 1)};
  Emit e = {.g = g, .q = q, .arena = a, .uses = graph_uses(g, scratch)};
  e.is_result = arena_array(scratch, bool, g->values.n + 1);
  e.seen = arena_array(scratch, int, g->values.n + 1);
  for (int i = 0; i < g->results.n; i++) e.is_result[g->results.at[i]] = true;
  for (NodeId n = 0; n < g->nodes.n; n++)
    if (q->of[n] >= 0) c.at[q->of[n]].nnodes++;
  for (int i = 0; i < c.n; i++) {
    c.at[i].nodes = arena_array(a, NodeId, c.at[i].nnodes);
    c.at[i].node_axes = arena_array(a, AxisMap, c.at[i].nnodes);
    c.at[i].nnodes = 0;
  }
  for (NodeId n = 0; n < g->nodes.n; n++) {
    if (q->of[n] < 0) continue;
    Cluster *x = &c.at[q->of[n]];
    x->nodes[x->nnodes] = n;
    x->node_axes[x->nnodes++] = q->axes[n];
  }
  for (int i = 0; i < c.n; i++) {
    Cluster *x = &c.at[i];
    const Node *first = node_at(g, x->nodes[0]);
    x->kind = q->group[i].kind;
    x->space = q->group[i].space;
    x->outer = q->group[i].outer;
    x->accumulate = x->kind != CL_LOOP && node_at(g, x->nodes[x->nnodes - 1])->op == OP_ASSIGN;
    x->layer = first->layer;
    x->chunk = first->chunk;
    x->member = first->member;
    x->tile = first->tile;
    x->phase = phase_of(g, x);
    list_values(&e, x, i);
    x->name = name_of(&e, x);
  }
  return c;
}

static Clusters fuse(Graph *g, Arena *a, bool apart) {
  Arena *scratch = arena_new();
  pass_begin();
  Graph *legal = pass_done(PASS_LEGAL, fuse_legal(g, scratch), scratch);
  Layout l = graph_layout(legal, scratch);
  Groups q = fuse_groups(legal, &l, scratch, apart);
  *g = *graph_moved(once_per_group(legal, &q, scratch), a);
  l = graph_layout(g, scratch);
  fuse_var_order(g, &l, scratch, &q.after, &q.nafter);
  Clusters c = list_clusters(g, &q, a, scratch);
  pass_done(PASS_FUSE, g, scratch);
  order_clusters(&c, &q, scratch);
  const char *why = pass_verifies() ? fuse_verify(&c, scratch) : NULL;
  if (why) bug("fuse: %s", why);
  pass_done(PASS_ORDER, g, scratch);
  arena_free(scratch);
  return c;
}

Clusters fuse_graph(Graph *g, Arena *a) {
  return fuse(g, a, false);
}
Clusters fuse_graph_apart(Graph *g, Arena *a) {
  return fuse(g, a, true);
}
