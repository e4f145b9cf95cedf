/* group.c - the members of a group, layer by layer (see group.h).
 *
 * Input: a graph of one micro-batch, forward or forward and backward. It is cut before the first
 * node of each layer, in both directions, but not where forward turns into backward; and never
 * between two accesses of a variable that it assigns. Output: each piece once per member, one piece after another. */
#include "group.h"

#include "rewrite.h"

/* ---- where layers begin ---- */

/* The layer that forward ends with: backward begins with it, in the same piece. */
static int last_layer(const Graph *g) {
  int last = -1;
  for (NodeId n = 0; n < g->nodes.n; n++)
    if (node_at(g, n)->phase == PH_FORWARD && node_at(g, n)->layer >= 0)
      last = node_at(g, n)->layer;
  return last;
}

/* All accesses of an assigned variable lie in one piece: the next member reads what this one left. */
static void join_assigned(const Graph *g, Arena *a, bool *cut) {
  int nvars = g->vars->all.n;
  NodeId *first = arena_array(a, NodeId, nvars + 1);
  bool *assigned = arena_array(a, bool, nvars + 1);
  for (int v = 0; v < nvars; v++) first[v] = -1;
  for (NodeId n = 0; n < g->nodes.n; n++)
    if (node_at(g, n)->op == OP_ASSIGN) assigned[node_int(node_at(g, n), "var")] = true;
  for (NodeId n = 0; n < g->nodes.n; n++) {
    const Node *x = node_at(g, n);
    int var = x->op == OP_VAR || x->op == OP_ASSIGN ? (int)node_int(x, "var") : -1;
    if (var < 0 || !assigned[var]) continue;
    NodeId *from = &first[var];
    if (*from < 0) *from = n;
    for (NodeId k = *from + 1; k <= n; k++) cut[k] = false;
  }
}

/* Per node: a piece begins with it. */
static bool *find_cuts(const Graph *g, Arena *a) {
  bool *cut = arena_array(a, bool, g->nodes.n + 1);
  int layers = 0;
  for (NodeId n = 0; n < g->nodes.n; n++)
    if (node_at(g, n)->layer >= layers) layers = node_at(g, n)->layer + 1;
  bool *seen = arena_array(a, bool, 2 * layers + 1);
  int turn = last_layer(g);
  if (turn >= 0) seen[2 * turn + 1] = true;
  for (NodeId n = 0; n < g->nodes.n; n++) {
    const Node *x = node_at(g, n);
    int at = 2 * x->layer + (x->phase != PH_FORWARD);
    if (x->layer < 0 || seen[at]) continue;
    seen[at] = cut[n] = true;
  }
  join_assigned(g, a, cut);
  return cut;
}

/* ---- members ---- */

typedef struct {
  const Graph *from;
  Graph *to;
  Arena *arena;
  int members;
  int64_t samples;    /* of one member */
  int sample0, share; /* variables whose values are a member's own; -1: not there */
  ValueId **map;      /* per member and old value */
} Group;

ValueId group_sample0(Graph *g, int member, int64_t samples) {
  ValueId first = g_var(g, var_scalar(g->vars, SC_SAMPLE0));
  if (member <= 1) return first;
  return g_binary(g, OP_ADD, first, g_like(g, first, (double)mul64(member - 1, samples)));
}

/* Inputs of the group, and what each member sees of them. */
static void add_input(Group *x, NodeId id) {
  const Node *n = node_at(x->from, id);
  Shape s = val(x->from, n->out)->shape;
  int64_t rows = s.dim[0];
  s.dim[0] = mul64(rows, x->members);
  graph_at(x->to, n);
  ValueId all = g_input(x->to, n->sym, val(x->from, n->out)->dtype, s);
  for (int m = 0; m < x->members; m++) {
    x->to->here.member = m + 1;
    x->map[m][n->out] = g_slice(x->to, all, 0, m * rows, (m + 1) * rows);
  }
}

/* A scalar of the step, as member m has it; -1 when all members have the same. */
static ValueId own_scalar(Group *x, const Node *n, int m) {
  Graph *to = x->to;
  int var = n->op == OP_VAR ? (int)node_int(n, "var") : -1;
  if (var < 0) return -1;
  if (var == x->sample0) return group_sample0(to, m + 1, x->samples);
  if (var != x->share) return -1;
  ValueId all = g_var(to, var);
  return g_binary(to, OP_MUL, all, g_like(to, all, 1.0 / x->members));
}

static void add_node(Group *x, NodeId id, int m) {
  const Node *n = node_at(x->from, id);
  if (n->op == OP_INPUT) return;
  graph_at(x->to, n);
  x->to->here.member = m + 1;
  ValueId out = own_scalar(x, n, m);
  if (out < 0) {
    ValueId few[8], *in = n->nin <= COUNT_OF(few) ? few : arena_array(x->arena, ValueId, n->nin);
    for (int k = 0; k < n->nin; k++) in[k] = x->map[m][n->in[k]];
    out = graph_clone_node(x->to, x->from, id, in);
    Node *made = node_at(x->to, x->to->nodes.n - 1);
    made->member = m + 1;
    if (made->tag_id) made->tag_id += m * x->from->last_tag_id; /* an instance of its own */
  }
  for (int k = 0; k < n->nout; k++) x->map[m][n->out + k] = out + k;
}

static void give_parts(const Group *x, Grads *parts) {
  GradPart *all = arena_array(x->to->arena, GradPart, parts->n * x->members + 1);
  for (int m = 0; m < x->members; m++)
    for (int i = 0; i < parts->n; i++)
      all[m * parts->n + i] = (GradPart){parts->at[i].var, x->map[m][parts->at[i].grad]};
  *parts = (Grads){all, parts->n * x->members};
}

Graph *graph_group(const Graph *g, Arena *a, int members, int64_t samples, Grads *parts) {
  if (members <= 1) return (Graph *)g;
  Group x = {.from = g,
             .arena = a,
             .members = members,
             .samples = samples,
             .sample0 = var_scalar_known(g->vars, SC_SAMPLE0),
             .share = var_scalar_known(g->vars, SC_INV_ACCUM)};
  x.to = graph_new(a, g->name, g->vars);
  x.to->diags = g->diags;
  x.map = arena_array(a, ValueId *, members);
  for (int m = 0; m < members; m++) x.map[m] = arena_array(a, ValueId, g->values.n + 1);
  for (NodeId n = 0; n < g->nodes.n; n++)
    if (node_at(g, n)->op == OP_INPUT) add_input(&x, n);
  const bool *cut = find_cuts(g, a);
  for (NodeId from = 0, to; from < g->nodes.n; from = to) {
    for (to = from + 1; to < g->nodes.n && !cut[to];) to++;
    for (int m = 0; m < members; m++)
      for (NodeId n = from; n < to; n++) add_node(&x, n, m);
  }
  x.to->last_tag_id = g->last_tag_id * members;
  for (int m = 0; m < members; m++)
    for (int i = 0; i < g->results.n; i++)
      graph_result(x.to, g->result_names.at[i], x.map[m][g->results.at[i]]);
  if (parts) give_parts(&x, parts);
  return x.to;
}
