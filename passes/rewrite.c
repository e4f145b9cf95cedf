/* rewrite.c - building a graph from another one (see rewrite.h). */
#include "rewrite.h"

#include <string.h>

Rewrite rewrite_begin(const Graph *from, Arena *a) {
  Rewrite r = {.from = from, .to = graph_new(a, from->name, from->vars), .arena = a};
  r.to->last_tag_id = from->last_tag_id;
  r.to->diags = from->diags;
  r.map = arena_array(a, ValueId, from->values.n + 1);
  vec_reserve(r.to->arena, &r.to->nodes, from->nodes.n);
  vec_reserve(r.to->arena, &r.to->values, from->values.n);
  for (int i = 0; i < from->values.n; i++) r.map[i] = -1;
  return r;
}

void rewrite_node(Rewrite *r, NodeId n) {
  const Node *x = node_at(r->from, n);
  ValueId few[8];
  ValueId *in = x->nin <= COUNT_OF(few) ? few : arena_array(r->arena, ValueId, x->nin);
  for (int k = 0; k < x->nin; k++) in[k] = r->map[x->in[k]];
  ValueId out = graph_clone_node(r->to, r->from, n, in);
  for (int k = 0; k < x->nout; k++) r->map[x->out + k] = out + k;
}

Graph *rewrite_end(Rewrite *r) {
  for (int i = 0; i < r->from->results.n; i++)
    graph_result(r->to, r->from->result_names.at[i], r->map[r->from->results.at[i]]);
  return r->to;
}

void graph_at(Graph *g, const Node *n) {
  g->here.loc = n->loc;
  g->here.path = n->path;
  g->here.tag = n->tag;
  g->here.tag_id = n->tag_id;
  g->here.layer = n->layer;
  g->here.chunk = n->chunk;
  g->here.member = n->member;
  g->here.tile = n->tile;
  g->here.phase = n->phase;
}

Proto proto_of(const Node *n, const ValueId *in) {
  return (Proto){.op = n->op,
                 .nin = n->nin,
                 .nints = n->nints,
                 .in = in,
                 .ints = n->ints,
                 .num = {n->num[0], n->num[1]},
                 .sym = n->sym};
}

ValueId graph_add_proto(Graph *g, const Proto *p) {
  return graph_add(g, p->op, p->nin, p->in, p->nints, p->ints, p->num, p->sym);
}

static void *moved(Arena *a, const void *from, int n, size_t item) {
  return n ? arena_copy(a, from, (size_t)n * item) : NULL;
}

Graph *graph_moved(const Graph *g, Arena *a) {
  Graph *to = arena_copy(a, g, sizeof *g);
  to->arena = a;
  to->nodes.at = moved(a, g->nodes.at, g->nodes.n, sizeof *g->nodes.at);
  to->values.at = moved(a, g->values.at, g->values.n, sizeof *g->values.at);
  to->results.at = moved(a, g->results.at, g->results.n, sizeof *g->results.at);
  to->result_names.at = moved(a, g->result_names.at, g->results.n, sizeof *g->result_names.at);
  to->nodes.cap = g->nodes.n;
  to->values.cap = g->values.n;
  to->results.cap = to->result_names.cap = g->results.n;
  for (NodeId n = 0; n < to->nodes.n; n++) {
    Node *x = node_at(to, n);
    x->in = moved(a, x->in, x->nin, sizeof *x->in);
    x->ints = moved(a, x->ints, x->nints, sizeof *x->ints);
  }
  return to;
}

bool *graph_live(const Graph *g, Arena *a) {
  bool *live = arena_array(a, bool, g->nodes.n + 1);
  for (int i = 0; i < g->results.n; i++) live[val(g, g->results.at[i])->def] = true;
  for (NodeId n = g->nodes.n - 1; n >= 0; n--) {
    const Node *x = node_at(g, n);
    if (op_kind(x->op) == EFFECT) live[n] = true;
    if (!live[n]) continue;
    for (int k = 0; k < x->nin; k++) live[val(g, x->in[k])->def] = true;
  }
  return live;
}

Graph *graph_drop_dead(Graph *g, Arena *a) {
  bool *live = graph_live(g, a);
  bool all = true;
  for (NodeId n = 0; n < g->nodes.n; n++) all &= live[n];
  if (all) return g;
  Rewrite r = rewrite_begin(g, a);
  for (NodeId n = 0; n < g->nodes.n; n++)
    if (live[n]) rewrite_node(&r, n);
  return rewrite_end(&r);
}

NodeId *graph_assign_before(const Graph *g, Arena *a) {
  NodeId *before = arena_array(a, NodeId, g->nodes.n + 1);
  NodeId *last = arena_array(a, NodeId, g->vars->all.n + 1);
  for (int i = 0; i < g->vars->all.n; i++) last[i] = -1;
  for (NodeId n = 0; n < g->nodes.n; n++) {
    const Node *x = node_at(g, n);
    before[n] = -1;
    if (x->op != OP_VAR && x->op != OP_ASSIGN) continue;
    before[n] = last[x->ints[0]];
    if (x->op == OP_ASSIGN) last[x->ints[0]] = n;
  }
  return before;
}

void graph_must_verify(const Graph *g, Arena *a, const char *pass) {
  const char *why = graph_verify(g, a);
  if (why) bug("pass `%s` broke graph `%s`: %s", pass, g->name, why);
}
