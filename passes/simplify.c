/* simplify.c - driver of simplify: walks the old graph, sends each live node through the rules and
 * a table of nodes by content. Input: a verified graph. Output: a new one; nodes keep the place of
 * the first node of equal content. */
#include "simplify.h"

#include <string.h>

#include "simplify_rules.h"

static uint64_t hash_proto(const Proto *p) {
  uint64_t h = hash_bytes(p->in, sizeof *p->in * (size_t)p->nin, (uint64_t)p->op + 1);
  h = hash_bytes(p->ints, sizeof *p->ints * (size_t)p->nints, h);
  h = hash_bytes(p->num, sizeof p->num, h);
  return p->sym ? hash_bytes(p->sym, strlen(p->sym), h) : h;
}

static bool same_proto(const Node *n, const Proto *p) {
  return n->op == p->op && n->nin == p->nin && n->nints == p->nints && n->sym == p->sym &&
         !memcmp(n->num, p->num, sizeof p->num) &&
         (!p->nin || !memcmp(n->in, p->in, sizeof *p->in * (size_t)p->nin)) &&
         (!p->nints || !memcmp(n->ints, p->ints, sizeof *p->ints * (size_t)p->nints));
}

static void grow_table(Simplify *s) {
  int n = s->nslots * 2;
  NodeId *slot = arena_array(s->arena, NodeId, n);
  for (int i = 0; i < s->nslots; i++) {
    if (!s->slot[i]) continue;
    const Node *x = node_at(s->g, s->slot[i] - 1);
    Proto p = proto_of(x, x->in);
    uint64_t at = hash_proto(&p) & (uint64_t)(n - 1);
    while (slot[at]) at = (at + 1) & (uint64_t)(n - 1);
    slot[at] = s->slot[i];
  }
  s->slot = slot;
  s->nslots = n;
}

/* An existing node of the same content, or a new one. */
static ValueId unique(Simplify *s, const Proto *p) {
  if (s->g->nodes.n * 2 >= s->nslots) grow_table(s);
  uint64_t mask = (uint64_t)(s->nslots - 1), at = hash_proto(p) & mask;
  for (; s->slot[at]; at = (at + 1) & mask) {
    const Node *n = node_at(s->g, s->slot[at] - 1);
    if (same_proto(n, p)) return n->out;
  }
  ValueId v = graph_add_proto(s->g, p);
  ensure(v >= 0, "simplify: `%s` cannot be built", op_name(p->op));
  s->slot[at] = s->g->nodes.n;
  return v;
}

static bool is_assigned(const Simplify *s, const Node *n) {
  return n->op == OP_VAR && s->assigned[n->ints[0]];
}

/* An operand is a variable that the graph assigns, or made of one: a rule might leave somebody who
 * reads the variable after that. */
static bool looks_at_assigned(const Simplify *s, const Proto *p) {
  for (int k = 0; k < p->nin; k++) {
    const Node *d = node_of(s->g, p->in[k]);
    if (is_assigned(s, d)) return true;
    for (int i = 0; i < d->nin; i++)
      if (is_assigned(s, node_of(s->g, d->in[i]))) return true;
  }
  return false;
}

ValueId simplified(Simplify *s, const Proto *p) {
  ValueId v = -1;
  if (looks_at_assigned(s, p)) return unique(s, p);
  switch (op_kind(p->op)) {
    case LEAF:
      break;
    case VIEW:
    case JOIN:
      v = simplify_view(s, p);
      break;
    default:
      v = simplify_elem(s, p);
  }
  return v >= 0 ? v : unique(s, p);
}

/* ---- builders ---- */

ValueId sm_cast(Simplify *s, ValueId v, DType t) {
  if (val(s->g, v)->dtype == t) return v;
  int64_t ints[] = {t};
  return simplified(s, &(Proto){.op = OP_CAST, .nin = 1, .in = &v, .nints = 1, .ints = ints});
}

static int put_list(int64_t *ints, int at, int n, const int64_t *items) {
  ints[at++] = n;
  for (int k = 0; k < n; k++) ints[at++] = items[k];
  return at;
}

static ValueId with_lists(Simplify *s, Op op, ValueId v, int n, const int64_t *one, int m,
                          const int64_t *two) {
  int64_t ints[2 * (MAX_RANK + 1)];
  int at = put_list(ints, 0, n, one);
  if (two) at = put_list(ints, at, m, two);
  return simplified(s, &(Proto){.op = op, .nin = 1, .in = &v, .nints = at, .ints = ints});
}

ValueId sm_reshape(Simplify *s, ValueId v, const Shape *to) {
  return with_lists(s, OP_RESHAPE, v, to->rank, to->dim, 0, NULL);
}

ValueId sm_slice(Simplify *s, ValueId v, const int64_t *start, const int64_t *stop) {
  int rank = val(s->g, v)->shape.rank;
  return with_lists(s, OP_SLICE, v, rank, start, rank, stop);
}

ValueId sm_transpose(Simplify *s, ValueId v, const int64_t *perm) {
  return with_lists(s, OP_TRANSPOSE, v, val(s->g, v)->shape.rank, perm, 0, NULL);
}

ValueId sm_broadcast(Simplify *s, ValueId v, const Shape *to, const int64_t *axes) {
  return with_lists(s, OP_BROADCAST, v, to->rank, to->dim, val(s->g, v)->shape.rank, axes);
}

ValueId sm_pad(Simplify *s, ValueId v, const int64_t *before, const int64_t *after) {
  int rank = val(s->g, v)->shape.rank;
  return with_lists(s, OP_PAD, v, rank, before, rank, after);
}

ValueId sm_concat(Simplify *s, int n, const ValueId *in, int axis) {
  int64_t ints[] = {axis};
  return simplified(s, &(Proto){.op = OP_CONCAT, .nin = n, .in = in, .nints = 1, .ints = ints});
}

ValueId sm_const(Simplify *s, DType t, const Shape *shape, double value) {
  int64_t ints[MAX_RANK + 2] = {t};
  int n = put_list(ints, 1, shape->rank, shape->dim);
  return unique(s, &(Proto){.op = OP_CONST, .nints = n, .ints = ints, .num = {value, 0}});
}

/* ---- driver ---- */

static void walk_var(Simplify *s, Rewrite *r, NodeId n) {
  const Node *x = node_at(r->from, n);
  int var = (int)x->ints[0];
  if (x->op == OP_ASSIGN) {
    ValueId v = r->map[x->in[0]];
    graph_add(s->g, OP_ASSIGN, 1, &v, 1, x->ints, NULL, NULL);
    s->var_value[var] = -1;
    return;
  }
  if (s->var_value[var] < 0)
    s->var_value[var] = graph_add(s->g, OP_VAR, 0, NULL, 1, x->ints, NULL, NULL);
  r->map[x->out] = s->var_value[var];
}

static void walk_node(Simplify *s, Rewrite *r, NodeId n, const Uses *uses) {
  const Node *x = node_at(r->from, n);
  graph_at(s->g, x);
  if (x->op == OP_VAR || x->op == OP_ASSIGN) {
    walk_var(s, r, n);
    return;
  }
  ValueId few[8];
  ValueId *in = x->nin <= COUNT_OF(few) ? few : arena_array(s->arena, ValueId, x->nin);
  for (int k = 0; k < x->nin; k++) in[k] = r->map[x->in[k]];
  s->single = x->nin == 1 && uses->first[x->in[0] + 1] - uses->first[x->in[0]] == 1;
  Proto p = proto_of(x, in);
  int before = s->g->values.n;
  ValueId out = simplified(s, &p);
  for (int k = 0; k < x->nout; k++) {
    r->map[x->out + k] = out + k;
    if (out + k < before) continue; /* new: axis names of the old one */
    Shape *to = &s->g->values.at[out + k].shape;
    const Shape *from = &val(r->from, x->out + k)->shape;
    for (int i = 0; i < to->rank && to->rank == from->rank; i++) to->axis[i] = from->axis[i];
  }
}

Graph *graph_simplify(const Graph *g, Arena *a, bool with_holds) {
  Rewrite r = rewrite_begin(g, a);
  Simplify s = {.g = r.to, .arena = a, .with_holds = with_holds, .nslots = 1024};
  while (s.nslots < g->nodes.n * 4) s.nslots *= 2;
  s.slot = arena_array(a, NodeId, s.nslots);
  s.var_value = arena_array(a, ValueId, g->vars->all.n + 1);
  s.assigned = arena_array(a, bool, g->vars->all.n + 1);
  for (int i = 0; i < g->vars->all.n; i++) s.var_value[i] = -1;
  for (NodeId n = 0; n < g->nodes.n; n++)
    if (node_at(g, n)->op == OP_ASSIGN) s.assigned[node_at(g, n)->ints[0]] = true;
  bool *live = graph_live(g, a);
  Uses uses = graph_uses(g, a);
  for (NodeId n = 0; n < g->nodes.n; n++)
    if (live[n]) walk_node(&s, &r, n, &uses);
  return graph_drop_dead(rewrite_end(&r), a);
}
