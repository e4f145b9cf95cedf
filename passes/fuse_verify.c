/* fuse_verify.c - checks clusters against what plan.h says of them, without using what fuse knew
 * when it made them. */
#include <string.h>

#include "fuse.h"
#include "rewrite.h"

typedef struct {
  const Clusters *c;
  const Graph *g;
  Arena *arena;
  int *cluster;   /* per node: position of its cluster, -1 none */
  int *index;     /* per node: its index in the cluster */
  bool *column;   /* per node: column level */
  NodeId *before; /* graph_assign_before */
  const char *why;
} Check;

static bool fail(Check *k, const Cluster *c, NodeId n, const char *what) {
  if (k->why) return false;
  const Node *x = node_at(k->g, n);
  k->why = arena_printf(k->arena, "cluster `%s`: node %d (%s at `%s`): %s", c ? c->name : "-", n,
                        op_name(x->op), x->path, what);
  return false;
}

static bool inside(const Check *k, ValueId v, int cluster) {
  return k->cluster[val(k->g, v)->def] == cluster;
}

static const AxisMap *map_of(const Check *k, const Cluster *c, NodeId n) {
  return &c->node_axes[k->index[n]];
}

/* ---- membership ---- */

static bool check_cover(Check *k) {
  bool *live = graph_live(k->g, k->arena);
  for (int i = 0; i < k->c->n; i++) {
    const Cluster *c = &k->c->at[i];
    if (c->nnodes < 1) return false;
    for (int j = 0; j < c->nnodes; j++) {
      NodeId n = c->nodes[j];
      if (j && c->nodes[j - 1] >= n) return fail(k, c, n, "nodes are not in graph order");
      if (k->cluster[n] >= 0) return fail(k, c, n, "is in two clusters");
      if (!live[n]) return fail(k, c, n, "is dead");
      k->cluster[n] = i;
      k->index[n] = j;
    }
  }
  for (NodeId n = 0; n < k->g->nodes.n; n++) {
    OpKind kind = op_kind(node_at(k->g, n)->op);
    bool may_stay_out = kind == LEAF || kind == JOIN || kind == VIEW;
    bool must_stay_out = kind == LEAF || kind == JOIN;
    if (live[n] && k->cluster[n] < 0 && !may_stay_out) return fail(k, NULL, n, "is in no cluster");
    if (k->cluster[n] >= 0 && must_stay_out)
      return fail(k, &k->c->at[k->cluster[n]], n, "runs nowhere");
  }
  return true;
}

/* ---- inputs and outputs ---- */

static int count_of(const ValueId *list, int n, ValueId v) {
  int count = 0;
  for (int i = 0; i < n; i++) count += list[i] == v;
  return count;
}

static bool check_values(Check *k, const Uses *u, const bool *is_result, int i) {
  const Cluster *c = &k->c->at[i];
  for (int j = 0; j < c->nin; j++) {
    if (inside(k, c->in[j], i) || count_of(c->in, c->nin, c->in[j]) != 1)
      return fail(k, c, val(k->g, c->in[j])->def, "is a wrong input");
  }
  for (int j = 0; j < c->nnodes; j++) {
    const Node *n = node_at(k->g, c->nodes[j]);
    for (int o = 0; o < n->nin; o++)
      if (!inside(k, n->in[o], i) && !count_of(c->in, c->nin, n->in[o]))
        return fail(k, c, c->nodes[j], "reads a value that is no input");
    for (int o = 0; o < n->nout; o++) {
      ValueId v = n->out + o;
      bool needed = is_result[v];
      int var = -1;
      for (int r = u->first[v]; r < u->first[v + 1]; r++) {
        const Node *reader = node_at(k->g, u->user[r]);
        needed |= k->cluster[u->user[r]] != i || reader->op == OP_ASSIGN;
        if (reader->op == OP_ASSIGN) var = (int)reader->ints[0];
      }
      int listed = count_of(c->out, c->nout, v);
      if (needed && listed != 1) return fail(k, c, c->nodes[j], "has a result that is not stored");
      for (int x = 0; x < c->nout; x++)
        if (c->out[x] == v && c->out_var[x] != var)
          return fail(k, c, c->nodes[j], "is stored in a wrong variable");
    }
  }
  for (int j = 0; j < c->nout; j++)
    if (!inside(k, c->out[j], i))
      return fail(k, c, val(k->g, c->out[j])->def, "is stored by another cluster");
  return true;
}

/* ---- loops ---- */

static bool same_axes(const AxisMap *a, const AxisMap *b, int n) {
  return !memcmp(a->axes, b->axes, (size_t)n);
}

static bool check_map(Check *k, const Cluster *c, NodeId n) {
  const Node *x = node_at(k->g, n);
  const AxisMap *m = map_of(k, c, n);
  const Shape *s = x->nout ? &val(k->g, x->out)->shape : &val(k->g, x->in[0])->shape;
  for (int i = 0; i < s->rank; i++) {
    if (m->axes[i] < 0 || m->axes[i] >= c->space.rank || (i && m->axes[i] <= m->axes[i - 1]))
      return fail(k, c, n, "has axes that do not ascend in the space");
    if (c->space.dim[m->axes[i]] != s->dim[i])
      return fail(k, c, n, "has an axis of another size than the space");
  }
  return true;
}

static bool check_reduce(Check *k, const Cluster *c, NodeId n) {
  const Node *x = node_at(k->g, n);
  const AxisMap *m = map_of(k, c, n);
  const int64_t *axes;
  int naxes = node_list(x, "axes", &axes), rank = val(k->g, x->in[0])->shape.rank,
      kept = rank - naxes;
  bool rows = x->op == OP_SUM && naxes == c->outer && naxes > 0,
       columns = naxes == c->space.rank - c->outer;
  if (rank != c->space.rank) return fail(k, c, n, "reduces less than the whole space");
  for (int i = 0; i < naxes; i++) {
    rows &= axes[i] == i;
    columns &= axes[i] == c->outer + i;
  }
  for (int i = 0; i < kept; i++) {
    rows &= m->axes[i] == c->outer + i;
    columns &= m->axes[i] == i;
  }
  if (!rows && !columns) return fail(k, c, n, "reduces neither all columns nor (a sum) all rows");
  if (!inside(k, x->in[0], k->cluster[n])) return true;
  AxisMap whole;
  for (int i = 0; i < MAX_RANK; i++) whole.axes[i] = (int8_t)i;
  if (!same_axes(map_of(k, c, val(k->g, x->in[0])->def), &whole, rank))
    return fail(k, c, n, "reduces a value that lies otherwise in the space");
  return true;
}

static bool sums_rows(const Check *k, const Cluster *c, NodeId n) {
  const Node *x = node_at(k->g, n);
  const int64_t *axes;
  return x->op == OP_SUM && node_list(x, "axes", &axes) == c->outer && c->outer > 0 && axes[0] == 0;
}

/* Column level: a sum over all rows, or what is made of one in the second stage: element-wise, over
 * columns alone. */
static bool check_level(Check *k, const Cluster *c, NodeId n) {
  const Node *x = node_at(k->g, n);
  k->column[n] = sums_rows(k, c, n);
  bool second = false;
  for (int o = 0; o < x->nin; o++)
    second |= inside(k, x->in[o], k->cluster[n]) && k->column[val(k->g, x->in[o])->def];
  if (!second) return true;
  k->column[n] = true;
  if (op_kind(x->op) != ELEM && x->op != OP_ASSIGN)
    return fail(k, c, n, "reads a sum over all rows");
  const AxisMap *m = map_of(k, c, n);
  for (int i = 0; x->nout && i < val(k->g, x->out)->shape.rank; i++)
    if (m->axes[i] < c->outer) return fail(k, c, n, "takes rows and sums over all rows");
  return true;
}

/* Operand o of node n, computed inside, lies in the space as the node reads it. */
static bool check_operand(Check *k, const Cluster *c, NodeId n, int o) {
  const Node *x = node_at(k->g, n);
  NodeId d = val(k->g, x->in[o])->def;
  const AxisMap *m = map_of(k, c, n), *md = map_of(k, c, d);
  const int64_t *axes;
  int rank = val(k->g, x->in[o])->shape.rank;
  if (x->op == OP_GATHER && o == 0) return fail(k, c, n, "has its table computed inside");
  if (x->op == OP_RANDOM) return fail(k, c, n, "has an operand computed inside");
  if (op_kind(x->op) == REDUCE) return true;
  if (x->op == OP_BROADCAST) {
    node_list(x, "axes", &axes);
    for (int i = 0; i < rank; i++)
      if (md->axes[i] != m->axes[axes[i]])
        return fail(k, c, n, "broadcasts along other axes than the space");
    return true;
  }
  if (op_kind(x->op) == VIEW) return fail(k, c, n, "maps the index of a value computed inside");
  return same_axes(m, md, rank)
             ? true
             : fail(k, c, n, "reads an operand that lies otherwise in the space");
}

/* Reads of the variable that ASSIGN n stores, inside: the same element only. */
static bool check_assign(Check *k, const Cluster *c, NodeId n) {
  const Node *x = node_at(k->g, n);
  if (!inside(k, x->in[0], k->cluster[n])) return fail(k, c, n, "stores a value from outside");
  const AxisMap *m = map_of(k, c, val(k->g, x->in[0])->def);
  for (int j = 0; j < c->nnodes; j++) {
    const Node *r = node_at(k->g, c->nodes[j]);
    for (int o = 0; o < r->nin; o++) {
      const Node *d = node_of(k->g, r->in[o]);
      bool same_order = true;
      while (op_kind(d->op) == VIEW && k->cluster[val(k->g, d->out)->def] < 0) {
        same_order &= d->op == OP_RESHAPE;
        d = node_of(k->g, d->in[0]);
      }
      if (d->op != OP_VAR || d->ints[0] != x->ints[0]) continue;
      bool step = op_kind(r->op) == ELEM && same_order &&
                  shape_equal(&val(k->g, r->in[o])->shape, &val(k->g, x->in[0])->shape) &&
                  same_axes(map_of(k, c, c->nodes[j]), m, val(k->g, r->out)->shape.rank);
      if (!step || (r->op == OP_GATHER && o == 0))
        return fail(k, c, c->nodes[j], "reads a variable out of step");
    }
  }
  return true;
}

static bool check_loop(Check *k, int i) {
  const Cluster *c = &k->c->at[i];
  if (c->outer < 0 || c->outer > c->space.rank)
    return fail(k, c, c->nodes[0], "rows outside of the space");
  for (int j = 0; j < c->nnodes; j++) {
    NodeId n = c->nodes[j];
    const Node *x = node_at(k->g, n);
    if (!check_level(k, c, n)) return false;
    if (x->op == OP_ASSIGN) {
      if (!check_assign(k, c, n)) return false;
      continue;
    }
    if (op_kind(x->op) != ELEM && op_kind(x->op) != REDUCE && op_kind(x->op) != VIEW)
      return fail(k, c, n, "does not belong into a loop");
    if (!check_map(k, c, n)) return false;
    if (op_kind(x->op) == REDUCE && !check_reduce(k, c, n)) return false;
    for (int o = 0; o < x->nin; o++)
      if (inside(k, x->in[o], i) && !check_operand(k, c, n, o)) return false;
  }
  return true;
}

static bool check_call(Check *k, int i) {
  const Cluster *c = &k->c->at[i];
  static const Op head[] = {[CL_GEMM] = OP_DOT,
                            [CL_ATTENTION] = OP_ATTENTION,
                            [CL_ATTENTION_BWD] = OP_ATTENTION_BWD,
                            [CL_SCATTER] = OP_SCATTER_ADD};
  if (node_at(k->g, c->nodes[0])->op != head[c->kind])
    return fail(k, c, c->nodes[0], "is no kernel of this kind");
  if (c->accumulate != (c->nnodes == 3))
    return fail(k, c, c->nodes[0], "accumulates without an add and an assign");
  if (!c->accumulate)
    return c->nnodes == 1 ? true : fail(k, c, c->nodes[1], "does not belong to the kernel");
  const Node *add = node_at(k->g, c->nodes[1]), *assign = node_at(k->g, c->nodes[2]);
  if (add->op != OP_ADD || assign->op != OP_ASSIGN || assign->in[0] != add->out)
    return fail(k, c, c->nodes[1], "is no accumulation");
  return true;
}

/* ---- order ---- */

/* Value v can be read when clusters 0..at-1 have run and each variable holds what now[var]
 * assigned. */
static bool readable(Check *k, const Cluster *c, ValueId v, int at, const NodeId *now) {
  NodeId d = val(k->g, v)->def;
  const Node *x = node_at(k->g, d);
  if (k->cluster[d] >= 0)
    return k->cluster[d] < at ? true : fail(k, c, d, "is read before it is computed");
  if (x->op == OP_VAR)
    return now[x->ints[0]] == k->before[d] ? true : fail(k, c, d, "is read at another time");
  for (int i = 0; i < x->nin; i++)
    if (!readable(k, c, x->in[i], at, now)) return false;
  return true;
}

static bool check_order(Check *k) {
  NodeId *now = arena_array(k->arena, NodeId, k->g->vars->all.n + 1);
  for (int i = 0; i < k->g->vars->all.n; i++) now[i] = -1;
  for (int i = 0; i < k->c->n; i++) {
    const Cluster *c = &k->c->at[i];
    for (int j = 0; j < c->nin; j++)
      if (!readable(k, c, c->in[j], i, now)) return false;
    for (int j = 0; j < c->nnodes; j++) {
      const Node *n = node_at(k->g, c->nodes[j]);
      if (n->op != OP_ASSIGN) continue;
      if (now[n->ints[0]] != k->before[c->nodes[j]])
        return fail(k, c, c->nodes[j], "is stored out of order");
      now[n->ints[0]] = c->nodes[j];
    }
  }
  return true;
}

const char *fuse_verify(const Clusters *c, Arena *a) {
  Check k = {.c = c, .g = c->g, .arena = a, .before = graph_assign_before(c->g, a)};
  const Graph *g = c->g;
  k.cluster = arena_array(a, int, g->nodes.n + 1);
  k.index = arena_array(a, int, g->nodes.n + 1);
  k.column = arena_array(a, bool, g->nodes.n + 1);
  for (NodeId n = 0; n < g->nodes.n; n++) k.cluster[n] = -1;
  bool *is_result = arena_array(a, bool, g->values.n + 1);
  for (int i = 0; i < g->results.n; i++) is_result[g->results.at[i]] = true;
  Uses u = graph_uses(g, a);
  bool ok = check_cover(&k);
  for (int i = 0; i < c->n && ok; i++)
    ok = check_values(&k, &u, is_result, i) &&
         (c->at[i].kind == CL_LOOP ? check_loop(&k, i) : check_call(&k, i));
  if (ok) ok = check_order(&k);
  if (ok) return NULL;
  return k.why ? k.why : "a cluster without nodes";
}
