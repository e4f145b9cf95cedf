/* first.c - see first.h. Input: the clusters of a micro program. Output: those of the first micro-batch of a step.
 *
 * Nodes keep their numbers: reading an accumulator becomes a constant in its place, and so do views of it. The addition
 * of a product to such a constant is in no cluster any more. */
#include "first.h"

#include <string.h>

/* ---- the graph ---- */

/* Node n becomes the constant 0 of its result's type and shape. */
static void become_zero(Graph *g, NodeId n) {
  Node *x = node_at(g, n);
  const Value *v = val(g, x->out);
  int64_t *ints = arena_array(g->arena, int64_t, v->shape.rank + 2);
  ints[0] = v->dtype;
  ints[1] = v->shape.rank;
  for (int k = 0; k < v->shape.rank; k++) ints[k + 2] = v->shape.dim[k];
  x->op = OP_CONST;
  x->nin = 0;
  x->in = NULL;
  x->ints = ints;
  x->nints = v->shape.rank + 2;
  x->num[0] = x->num[1] = 0;
}

/* A copy of the graph in which unassigned accumulators are zero; zero: per value. */
static Graph *zeroed_graph(const Graph *from, bool *zero, Arena *a) {
  Graph *g = arena_copy(a, from, sizeof *from);
  g->arena = a;
  g->nodes.at = arena_copy(a, from->nodes.at, sizeof *from->nodes.at * (size_t)from->nodes.n);
  bool *assigned = arena_array(a, bool, g->vars->all.n + 1);
  for (NodeId n = 0; n < g->nodes.n; n++) {
    const Node *x = node_at(g, n);
    if (x->op == OP_ASSIGN) assigned[node_int(x, "var")] = true;
    bool fresh = x->op == OP_VAR && !assigned[node_int(x, "var")] &&
                 g->vars->all.at[node_int(x, "var")].role == VAR_ACCUM;
    if (!fresh && !(op_kind(x->op) == VIEW && zero[x->in[0]])) continue;
    zero[x->out] = true;
    become_zero(g, n);
  }
  return g;
}

/* ---- clusters ---- */

static int reads_zero(const Cluster *c, const bool *zero) {
  int n = 0;
  for (int k = 0; k < c->nin; k++) n += zero[c->in[k]];
  return n;
}

static void drop_inputs(Cluster *c, const bool *zero, Arena *a) {
  ValueId *in = arena_array(a, ValueId, c->nin + 1);
  int n = 0;
  for (int k = 0; k < c->nin; k++)
    if (!zero[c->in[k]]) in[n++] = c->in[k];
  c->in = in;
  c->nin = n;
}

/* var = 0 + product becomes var = product. */
static void store_product(Graph *g, Cluster *c, Arena *a) {
  ensure(c->accumulate && c->nnodes == 3, "first: `%s` is no accumulation", c->name);
  NodeId product = c->nodes[0], assign = c->nodes[2];
  c->accumulate = false;
  c->nnodes = 2;
  c->nodes = arena_copy(a, ((NodeId[]){product, assign}), 2 * sizeof *c->nodes);
  c->node_axes =
      arena_copy(a, ((AxisMap[]){c->node_axes[0], c->node_axes[2]}), 2 * sizeof *c->node_axes);
  c->out = arena_copy(a, &node_at(g, product)->out, sizeof *c->out);
  node_at(g, assign)->in = c->out;
}

static bool has_node(const Cluster *c, NodeId n) {
  for (int i = 0; i < c->nnodes; i++)
    if (c->nodes[i] == n) return true;
  return false;
}

/* Puts node n into the loop, in graph order, on the axes of its reader. */
static void add_node(Cluster *c, NodeId n, AxisMap axes) {
  int at = c->nnodes++;
  for (; at > 0 && c->nodes[at - 1] > n; at--) {
    c->nodes[at] = c->nodes[at - 1];
    c->node_axes[at] = c->node_axes[at - 1];
  }
  c->nodes[at] = n;
  c->node_axes[at] = axes;
}

/* The loop makes its zeros itself. */
static void make_zeros(const Graph *g, Cluster *c, int most, const bool *zero, Arena *a) {
  NodeId *nodes = arena_array(a, NodeId, c->nnodes + most);
  AxisMap *axes = arena_array(a, AxisMap, c->nnodes + most);
  c->nodes = memcpy(nodes, c->nodes, sizeof *nodes * (size_t)c->nnodes);
  c->node_axes = memcpy(axes, c->node_axes, sizeof *axes * (size_t)c->nnodes);
  for (int i = 0; i < c->nnodes; i++) {
    const Node *x = node_at(g, c->nodes[i]);
    for (int k = 0; k < x->nin; k++) {
      NodeId def = val(g, x->in[k])->def;
      if (!zero[x->in[k]] || has_node(c, def)) continue;
      ensure(op_kind(x->op) == ELEM, "first: `%s` reads an accumulator in another order", c->name);
      add_node(c, def, c->node_axes[i]);
      i++;
    }
  }
}

Clusters first_clusters(const Clusters *micro, Arena *a) {
  bool *zero = arena_array(a, bool, micro->g->values.n + 1);
  Clusters c = {.g = zeroed_graph(micro->g, zero, a), .n = micro->n};
  c.at = arena_copy(a, micro->at, sizeof *c.at * (size_t)c.n);
  for (int i = 0; i < c.n; i++) {
    Cluster *x = &c.at[i];
    int dropped = reads_zero(x, zero);
    if (!dropped) continue;
    drop_inputs(x, zero, a);
    if (x->kind == CL_LOOP)
      make_zeros(c.g, x, dropped, zero, a);
    else
      store_product(c.g, x, a);
  }
  return c;
}
