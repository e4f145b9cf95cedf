/* storage.c - units and places of all stored values of a program (see storage.h).
 *
 * Input: clusters of a graph. Output: StorageMap. Two walks: from the last node to the first,
 * concats and views hand the place that their users want to the values that they are made of; from
 * the first to the last, views take what their operand got. A value that two users want at two
 * places is a broken promise of the fuse pass: bug(). */
#include "storage.h"

#include <string.h>

typedef struct {
  const Clusters *c;
  const Graph *g;
  Arena *arena;
  StorageMap *m;
  VEC(Unit) units;
  bool *made;    /* per value: some cluster computes and stores it */
  bool *needed;  /* per value: read from storage */
  int *var_unit; /* per variable */
} Build;

static int new_unit(Build *b, Unit u) {
  vec_push(b->arena, &b->units, u);
  return b->units.n - 1;
}

int64_t storage_strides(const Graph *g, ValueId v, int64_t *stride) {
  enum { LONG_ROW = 512, VECTOR_BYTES = 16, LINE_BYTES = 128 };
  const Value *x = val(g, v);
  const Shape *s = &x->shape;
  int last = s->rank - 1, size = dtype_bytes(x->dtype);
  shape_strides(s, stride);
  if (s->rank < 2 || s->dim[last] < LONG_ROW || s->dim[last] * size % VECTOR_BYTES == 0 ||
      op_kind(node_of(g, v)->op) == LEAF)
    return shape_count(s);
  int64_t step = round_up(s->dim[last] * size, LINE_BYTES) / size;
  for (int k = last - 1; k >= 0; k--) {
    stride[k] = step;
    step = mul64(step, s->dim[k]);
  }
  return step;
}

static ValuePlace row_major(int unit, const Shape *s) {
  ValuePlace p = {.unit = unit};
  shape_strides(s, p.stride);
  return p;
}

static ValuePlace var_place(Build *b, int var) {
  const Var *v = &b->g->vars->all.at[var];
  if (b->var_unit[var] < 0)
    b->var_unit[var] = new_unit(b, (Unit){.bytes = shape_bytes(&v->shape, v->dtype),
                                          .var = var,
                                          .input = -1,
                                          .value = -1,
                                          .maker = -1,
                                          .last = -1});
  return row_major(b->var_unit[var], &v->shape);
}

static ValuePlace own_unit(Build *b, ValueId v) {
  ValuePlace at = {0};
  int64_t elements = storage_strides(b->g, v, at.stride);
  at.unit = new_unit(b, (Unit){.bytes = mul64(elements, dtype_bytes(val(b->g, v)->dtype)),
                             .var = -1,
                             .input = -1,
                             .value = v,
                             .maker = -1,
                             .last = -1});
  return at;
}

/* Strides of the same elements under another shape; false when they are not evenly spaced. */
static bool reshape_strides(const Shape *from, const int64_t *have, const Shape *to,
                            int64_t *want) {
  int i = 0;
  int j = 0;
  for (int k = 0; k < to->rank; k++) want[k] = 0;
  if (shape_count(from) == 0) return true;
  while (i < from->rank || j < to->rank) {
    int64_t a = 1, b = 1;
    int i0 = i, j0 = j;
    if (i < from->rank) a = from->dim[i++];
    if (j < to->rank) b = to->dim[j++];
    while (a != b) {
      if (a < b) {
        a *= from->dim[i++];
      } else {
        b *= to->dim[j++];
      }
    }
    /* The axes i0..i-1 must step as one. */
    int64_t step = 0, run = 0;
    for (int k = i - 1; k >= i0; k--) {
      if (from->dim[k] == 1) continue;
      if (run == 0) {
        step = have[k];
        run = from->dim[k];
      } else if (have[k] == step * run) {
        run *= from->dim[k];
      } else {
        return false;
      }
    }
    for (int k = j - 1; k >= j0; k--) {
      want[k] = step;
      step *= to->dim[k];
    }
  }
  return true;
}

bool view_place(const Graph *g, const Node *n, const ValuePlace *from, ValuePlace *to) {
  const Value *x = val(g, n->in[0]), *y = val(g, n->out);
  const int64_t *list;
  *to = (ValuePlace){.unit = from->unit, .offset = from->offset};
  switch (n->op) {
    case OP_BROADCAST: {
      int len = node_list(n, "axes", &list);
      for (int k = 0; k < len; k++)
        if (x->shape.dim[k] == y->shape.dim[list[k]]) to->stride[list[k]] = from->stride[k];
      return true;
    }
    case OP_TRANSPOSE: {
      int len = node_list(n, "perm", &list);
      for (int k = 0; k < len; k++) to->stride[k] = from->stride[list[k]];
      return true;
    }
    case OP_SLICE: {
      int len = node_list(n, "start", &list);
      for (int k = 0; k < len; k++) {
        to->offset += list[k] * from->stride[k] * dtype_bytes(x->dtype);
        to->stride[k] = from->stride[k];
      }
      return true;
    }
    case OP_RESHAPE:
      return reshape_strides(&x->shape, from->stride, &y->shape, to->stride);
    default:
      return false;
  }
}

/* The place of the operand when the result of the view must lie at `want`. */
static bool place_before_view(const Graph *g, const Node *n, const ValuePlace *want,
                              ValuePlace *operand) {
  const Value *x = val(g, n->in[0]), *y = val(g, n->out);
  const int64_t *perm;
  *operand = (ValuePlace){.unit = want->unit, .offset = want->offset};
  if (n->op == OP_TRANSPOSE) {
    int len = node_list(n, "perm", &perm);
    for (int k = 0; k < len; k++) operand->stride[perm[k]] = want->stride[k];
    return true;
  }
  return n->op == OP_RESHAPE &&
         reshape_strides(&y->shape, want->stride, &x->shape, operand->stride);
}

static bool is_view(const Build *b, NodeId n) {
  return op_kind(node_at(b->g, n)->op) == VIEW && !b->made[node_at(b->g, n)->out];
}
static bool is_join(const Build *b, NodeId n) {
  return op_kind(node_at(b->g, n)->op) == JOIN && !b->made[node_at(b->g, n)->out];
}

/* Position of the node that makes v in the cluster, -1 when the cluster does not compute it. */
static int position_in(const Cluster *c, NodeId def) {
  for (int k = c->nnodes - 1; k >= 0; k--)
    if (c->nodes[k] == def) return k;
  return -1;
}

static void mark_made(Build *b) {
  for (int i = 0; i < b->c->n; i++) {
    const Cluster *c = &b->c->at[i];
    for (int k = 0; k < c->nout; k++)
      if (position_in(c, val(b->g, c->out[k])->def) >= 0) b->made[c->out[k]] = true;
  }
}

static void mark_needed(Build *b) {
  const Graph *g = b->g;
  for (int i = 0; i < b->c->n; i++)
    for (int k = 0; k < b->c->at[i].nin; k++) b->needed[b->c->at[i].in[k]] = true;
  for (int i = 0; i < g->results.n; i++) b->needed[g->results.at[i]] = true;
  for (NodeId n = g->nodes.n - 1; n >= 0; n--) {
    const Node *x = node_at(g, n);
    if (x->nout == 0 || !(is_view(b, n) || is_join(b, n)) || !b->needed[x->out]) continue;
    for (int k = 0; k < x->nin; k++) b->needed[x->in[k]] = true;
  }
}

/* Outputs that are computed into a variable lie there, whoever else reads them. */
static void place_assigned(Build *b) {
  for (int i = 0; i < b->c->n; i++) {
    const Cluster *c = &b->c->at[i];
    for (int k = 0; k < c->nout; k++) {
      if (c->out_var[k] < 0) continue;
      ValuePlace at =
          row_major(var_place(b, c->out_var[k]).unit, &val(b->g, c->out[k])->shape);
      b->m->overwritten[c->out_var[k]] = true;
      b->m->out[i][k] = at;
      if (position_in(c, val(b->g, c->out[k])->def) >= 0 && b->m->place[c->out[k]].unit < 0)
        b->m->place[c->out[k]] = at;
    }
  }
}

static void demand(Build *b, ValueId v, ValuePlace want, NodeId by) {
  ValuePlace *p = &b->m->place[v];
  const Node *n = node_of(b->g, v);
  ensure(p->unit < 0 && n->op != OP_VAR && n->op != OP_INPUT,
         "storage: node %d (%s at %s) wants value %d inside its buffer, which lies elsewhere", by,
         op_name(node_at(b->g, by)->op), node_at(b->g, by)->path, v);
  *p = want;
}

/* From the last node to the first: concats hand places to their operands, views to theirs. */
static void place_joins(Build *b) {
  const Graph *g = b->g;
  for (NodeId n = g->nodes.n - 1; n >= 0; n--) {
    const Node *x = node_at(g, n);
    if (x->nout == 0 || !b->needed[x->out]) continue;
    ValuePlace *p = &b->m->place[x->out];
    if (is_join(b, n)) {
      if (p->unit < 0) *p = own_unit(b, x->out);
      int axis = (int)node_int(x, "axis");
      ValuePlace part = *p;
      for (int k = 0; k < x->nin; k++) {
        demand(b, x->in[k], part, n);
        part.offset += val(g, x->in[k])->shape.dim[axis] * part.stride[axis] *
                       dtype_bytes(val(g, x->in[k])->dtype);
      }
    } else if (is_view(b, n) && p->unit >= 0) {
      ValuePlace operand;
      ensure(place_before_view(g, x, p, &operand), "storage: a concat takes a %s of value %d",
             op_name(x->op), x->in[0]);
      demand(b, x->in[0], operand, n);
    }
  }
}

/* From the first node to the last: leaves, made values without a wish, views. */
static void place_rest(Build *b) {
  const Graph *g = b->g;
  for (NodeId n = 0; n < g->nodes.n; n++) {
    const Node *x = node_at(g, n);
    if (x->nout == 0) continue;
    ValuePlace *p = &b->m->place[x->out];
    if (x->op == OP_VAR && b->needed[x->out]) {
      *p = var_place(b, (int)node_int(x, "var"));
    } else if (x->op == OP_INPUT && b->needed[x->out]) {
      *p = own_unit(b, x->out);
      b->units.at[p->unit].input = x->out;
    } else if (is_view(b, n) && b->needed[x->out] && p->unit < 0) {
      const ValuePlace *from = &b->m->place[x->in[0]];
      ensure(from->unit >= 0 && view_place(g, x, from, p),
             "storage: no strides express the %s of value %d (node %d at %s)", op_name(x->op),
             x->in[0], n, x->path);
    }
  }
}

static void place_outputs(Build *b) {
  StorageMap *m = b->m;
  for (int i = 0; i < b->c->n; i++) {
    const Cluster *c = &b->c->at[i];
    for (int k = 0; k < c->nout; k++) {
      if (c->out_var[k] >= 0) continue;
      ValuePlace *p = &m->place[c->out[k]];
      if (p->unit < 0) *p = own_unit(b, c->out[k]);
      m->out[i][k] = *p;
    }
  }
}

static void find_makers_and_readers(Build *b) {
  StorageMap *m = b->m;
  for (int i = 0; i < b->c->n; i++) {
    const Cluster *c = &b->c->at[i];
    for (int k = 0; k < c->nout; k++) {
      Unit *u = &b->units.at[m->out[i][k].unit];
      bool again = false;
      for (int j = 0; j < k; j++) again |= m->out[i][j].unit == m->out[i][k].unit;
      if (u->var < 0 && !again) u->nmakers++;
      if (u->var < 0 && u->maker < 0) u->maker = i;
      u->last = i;
    }
    for (int k = 0; k < c->nin; k++) {
      ensure(m->place[c->in[k]].unit >= 0,
             "storage: cluster %s reads value %d, which nothing stores", c->name, c->in[k]);
      b->units.at[m->place[c->in[k]].unit].last = i;
    }
  }
  for (int i = 0; i < b->g->results.n; i++) {
    int u = m->place[b->g->results.at[i]].unit;
    ensure(u >= 0, "storage: result %s is never stored", b->g->result_names.at[i]);
    b->units.at[u].result = true;
  }
}

/* ---- in place ---- */

static bool whole_space(const Cluster *c, int node, const Shape *s) {
  if (s->rank != c->space.rank) return false;
  for (int k = 0; k < s->rank; k++)
    if (c->node_axes[node].axes[k] != k) return false;
  return true;
}

/* A kernel stores elements when no later pass over the row loads that element's inputs. So
 * an output may lie over an input when both run over the whole space in the same way: each read of
 * input v is by an element-wise node of the full space, or by a reduction of it, which is done by
 * then. */
static bool read_in_step(const Graph *g, const Cluster *c, ValueId v) {
  for (int i = 0; i < c->nnodes; i++) {
    const Node *n = node_at(g, c->nodes[i]);
    for (int k = 0; k < n->nin; k++) {
      if (n->in[k] != v) continue;
      bool element = op_kind(n->op) == ELEM && !(n->op == OP_GATHER && k == 0);
      bool reduction = op_kind(n->op) == REDUCE && val(g, v)->shape.rank == c->space.rank;
      if (!reduction && !(element && whole_space(c, i, &val(g, n->out)->shape))) return false;
    }
  }
  return true;
}

static bool same_place(const ValuePlace *a, const ValuePlace *b, int rank) {
  return a->offset == b->offset && !memcmp(a->stride, b->stride, sizeof(int64_t) * (size_t)rank);
}

static bool may_overlay(const Build *b, int cluster, int out, int in) {
  const Cluster *c = &b->c->at[cluster];
  const StorageMap *m = b->m;
  const ValuePlace *po = &m->out[cluster][out], *pi = &m->place[c->in[in]];
  const Unit *uo = &b->units.at[po->unit], *ui = &b->units.at[pi->unit];
  const Value *vo = val(b->g, c->out[out]), *vi = val(b->g, c->in[in]);
  if (uo->var >= 0 || uo->nmakers != 1 || uo->value != c->out[out]) return false;
  if (ui->var >= 0 || ui->input >= 0 || ui->result || ui->bytes != uo->bytes) return false;
  if (dtype_bytes(vo->dtype) != dtype_bytes(vi->dtype) || !shape_equal(&vo->shape, &vi->shape))
    return false;
  if (!same_place(po, pi, vo->shape.rank)) return false;
  for (int k = 0; k < c->nin; k++)
    if (k != in && m->place[c->in[k]].unit == pi->unit) return false;
  int def = position_in(c, vo->def);
  return def >= 0 && whole_space(c, def, &vo->shape) && read_in_step(b->g, c, c->in[in]);
}

static void propose_overlays(Build *b) {
  for (int i = 0; i < b->c->n; i++) {
    const Cluster *c = &b->c->at[i];
    b->m->over[i] = arena_array(b->arena, int, c->nout + 1);
    for (int k = 0; k < c->nout; k++) {
      b->m->over[i][k] = -1;
      if (c->kind != CL_LOOP) continue;
      /* The input whose unit dies here in the base order is the best; else the first that fits. */
      for (int j = 0; j < c->nin; j++) {
        bool taken = false;
        for (int l = 0; l < k; l++) taken |= b->m->over[i][l] == j;
        if (taken || !may_overlay(b, i, k, j)) continue;
        bool dies = b->units.at[b->m->place[c->in[j]].unit].last == i;
        if (b->m->over[i][k] < 0 || dies) b->m->over[i][k] = j;
        if (dies) break;
      }
    }
  }
}

StorageMap storage_map(const Clusters *c, Arena *a) {
  const Graph *g = c->g;
  StorageMap m = {.clusters = c};
  m.place = arena_array(a, ValuePlace, g->values.n + 1);
  m.out = arena_array(a, ValuePlace *, c->n + 1);
  m.over = arena_array(a, int *, c->n + 1);
  m.overwritten = arena_array(a, bool, g->vars->all.n + 1);
  Build b = {.c = c, .g = g, .arena = a, .m = &m};
  b.made = arena_array(a, bool, g->values.n + 1);
  b.needed = arena_array(a, bool, g->values.n + 1);
  b.var_unit = arena_array(a, int, g->vars->all.n + 1);
  for (int i = 0; i < g->values.n; i++) m.place[i].unit = -1;
  for (int i = 0; i < g->vars->all.n; i++) b.var_unit[i] = -1;
  for (int i = 0; i < c->n; i++) m.out[i] = arena_array(a, ValuePlace, c->at[i].nout + 1);
  mark_made(&b);
  mark_needed(&b);
  place_assigned(&b);
  place_joins(&b);
  place_outputs(&b);
  place_rest(&b);
  find_makers_and_readers(&b);
  m.unit = b.units.at;
  m.nunits = b.units.n;
  propose_overlays(&b);
  return m;
}
