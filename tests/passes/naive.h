/* naive.h - clusters without fusion, for tests: each computing node of a graph is a cluster of its
 * own, in graph order. An ASSIGN joins the cluster that makes its operand. */
#ifndef TEST_NAIVE_H
#define TEST_NAIVE_H
#include <string.h>
#include "passes/plan.h"

static inline void naive_loop(Cluster *c, const Graph *g, const Node *n, Arena *a) {
  bool reduce = op_kind(n->op) == REDUCE;
  c->kind = CL_LOOP;
  c->space = val(g, reduce ? n->in[0] : n->out)->shape;
  c->outer = c->space.rank;
  const Shape *own = &val(g, n->out)->shape;
  AxisMap map = {{0}};
  for (int k = 0; k < own->rank; k++) map.axes[k] = (int8_t)k;
  if (reduce) {
    const int64_t *axes;
    int len = node_list(n, "axes", &axes);
    bool rows = len > 0 && axes[0] == 0; /* over the leading axes: a column result */
    c->outer = rows ? len : own->rank;
    if (rows)
      for (int k = 0; k < own->rank; k++) map.axes[k] = (int8_t)(k + len);
  }
  c->node_axes = arena_array(a, AxisMap, 2);
  c->node_axes[0] = map;
}

static inline ClusterKind naive_kind(Op op) {
  switch (op) {
    case OP_DOT:
      return CL_GEMM;
    case OP_ATTENTION:
      return CL_ATTENTION;
    case OP_ATTENTION_BWD:
      return CL_ATTENTION_BWD;
    case OP_SCATTER_ADD:
      return CL_SCATTER;
    default:
      return CL_LOOP;
  }
}

static inline Clusters naive_clusters(Graph *g, Arena *a) {
  Clusters out = {.g = g, .at = arena_array(a, Cluster, g->nodes.n + 1)};
  int *made_by = arena_array(a, int, g->values.n + 1);
  for (int i = 0; i < g->values.n; i++) made_by[i] = -1;
  for (NodeId i = 0; i < g->nodes.n; i++) {
    const Node *n = node_at(g, i);
    OpKind kind = op_kind(n->op);
    if (kind == EFFECT) {
      Cluster *c = &out.at[made_by[n->in[0]]];
      c->nodes[c->nnodes] = i;
      c->node_axes[c->nnodes++] = c->node_axes[0];
      c->out_var[0] = (int)node_int(n, "var");
      continue;
    }
    if (kind == LEAF || kind == VIEW || kind == JOIN) continue;
    Cluster *c = &out.at[out.n];
    *c = (Cluster){
        .kind = naive_kind(n->op), .phase = n->phase, .layer = n->layer, .chunk = n->chunk};
    c->name = arena_printf(a, "%s%s%s.%d", n->path ? n->path : "", n->path && *n->path ? "." : "",
                           op_name(n->op), i);
    c->nodes = arena_array(a, NodeId, 2);
    c->nodes[c->nnodes++] = i;
    c->node_axes = arena_array(a, AxisMap, 2);
    if (c->kind == CL_LOOP) naive_loop(c, g, n, a);
    c->in = arena_array(a, ValueId, n->nin + 1);
    for (int k = 0; k < n->nin; k++) {
      bool known = false;
      for (int j = 0; j < c->nin; j++) known |= c->in[j] == n->in[k];
      if (!known) c->in[c->nin++] = n->in[k];
    }
    c->nout = n->nout;
    c->out = arena_array(a, ValueId, n->nout + 1);
    c->out_var = arena_array(a, int, n->nout + 1);
    for (int k = 0; k < n->nout; k++) {
      c->out[k] = n->out + k;
      c->out_var[k] = -1;
      made_by[n->out + k] = out.n;
    }
    out.n++;
  }
  return out;
}

static inline int naive_cluster_of(const Clusters *c, ValueId v) {
  for (int i = 0; i < c->n; i++)
    for (int k = 0; k < c->at[i].nout; k++)
      if (c->at[i].out[k] == v) return i;
  return -1;
}

#endif
