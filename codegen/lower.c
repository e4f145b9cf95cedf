/* lower.c - instructions of a LOOP cluster: one for each node that computes, in graph order. See
 * lower.h. */
#include "lower.h"

#include <string.h>

#include "target.h"

KReg lower_fail(Lower *l, const char *fmt, ...) {
  if (l->why) return -1;
  va_list ap;
  va_start(ap, fmt);
  const char *what = arena_vprintf(l->arena, fmt, ap);
  va_end(ap);
  l->why = arena_printf(l->arena, "kernel `%s`: %s", l->c->name ? l->c->name : "", what);
  return -1;
}

static bool same_index(const KIndex *a, const KIndex *b) {
  return !a->nsubs && !b->nsubs && a->constant == b->constant &&
         !memcmp(a->coef, b->coef, sizeof a->coef);
}

/* Instructions that compute the same value; folds are left alone. */
static bool same_value(const KInstr *a, const KInstr *b) {
  return a->kind == b->kind && a->kind != KI_REDUCE && a->kind != KI_SUM && a->op == b->op &&
         a->dtype == b->dtype && a->nin == b->nin &&
         !memcmp(a->in, b->in, sizeof a->in[0] * (size_t)a->nin) &&
         !memcmp(&a->value, &b->value, sizeof a->value) && a->param == b->param &&
         same_index(&a->at, &b->at) && !a->nguards && !b->nguards && a->gather == b->gather &&
         a->gather_rows == b->gather_rows && a->key == b->key &&
         same_index(&a->element, &b->element) && a->near_one == b->near_one;
}

KReg lower_add(Lower *l, KInstr i) {
  for (int k = 0; k < i.nin; k++) {
    if (i.in[k] < 0) return -1;
    const KInstr *in = &l->instrs.at[i.in[k]];
    i.mask |= in->mask;
    if (in->stage > i.stage) i.stage = in->stage;
    i.late |= in->late;
  }
  for (int r = 0; r < l->instrs.n; r++)
    if (same_value(&l->instrs.at[r], &i)) return r;
  vec_push(l->arena, &l->instrs, i);
  return l->instrs.n - 1;
}

int lower_inside(const Lower *l, ValueId v) {
  NodeId def = val(l->g, v)->def;
  for (int i = 0; i < l->c->nnodes; i++)
    if (l->c->nodes[i] == def) return i;
  return -1;
}

KReg lower_value(Lower *l, ValueId v, const AxisMap *map) {
  int at = lower_inside(l, v);
  if (at >= 0) {
    if (l->reg[at] < 0) return lower_fail(l, "value %d is used before it is computed", (int)v);
    return l->reg[at];
  }
  KIndex index[MAX_RANK];
  for (int k = 0; k < val(l->g, v)->shape.rank; k++)
    index[k] = kindex_axis(l->axis[map->axes[k]], 1);
  return lower_load(l, v, index, 0, NULL);
}

/* ---- constants, as the target's floats round them ---- */

static double round_half(double x, int mantissa, int min_exp) {
  float f = (float)x;
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  if ((bits & 0x7f800000u) == 0x7f800000u || f == 0) return f;
  int exp = (int)(bits >> 23 & 255) - 127;
  if (exp < min_exp) exp = min_exp;
  double unit = 1;
  for (int e = exp - mantissa; e > 0; e--) unit *= 2;
  for (int e = exp - mantissa; e < 0; e++) unit /= 2;
  double q = f / unit, whole = (double)(int64_t)q, rest = q - whole;
  if (rest < 0) {
    whole -= 1;
    rest += 1;
  }
  if (rest > 0.5 || (rest == 0.5 && ((int64_t)whole & 1))) whole += 1;
  return whole * unit;
}

static double round_const(DType t, double x) {
  if (t == DT_BF16) return (float)round_half(x, 7, -126);
  if (t == DT_F16) {
    double r = round_half(x, 10, -14);
    return r > 65504 ? __builtin_inf() : r < -65504 ? -__builtin_inf() : r;
  }
  return t == DT_F32 ? (float)x : x;
}

/* ---- nodes ---- */

static bool is_half(DType t) {
  return t == DT_BF16 || t == DT_F16;
}

/* Ops whose result is a value of the dtype whenever the operands are. */
static bool exact_op(Op op) {
  switch (op) {
    case OP_NEG:
    case OP_ABS:
    case OP_FLOOR:
    case OP_HOLD:
    case OP_MAX:
    case OP_MIN:
    case OP_SELECT:
    case OP_HIGH:
    case OP_STOCHASTIC:
      return true;
    default:
      return false;
  }
}

static KReg lower_elem(Lower *l, const Node *n, const AxisMap *map) {
  DType t = val(l->g, n->out)->dtype;
  KInstr i = {.kind = KI_OP, .op = n->op, .dtype = t, .nin = n->nin};
  for (int k = 0; k < n->nin; k++) i.in[k] = lower_value(l, n->in[k], map);
  i.rounds = is_half(t) && !exact_op(n->op);
  i.near_one = n->op == OP_TANH && n->tag && !strcmp(n->tag, "gelu");
  return lower_add(l, i);
}

static KReg lower_const(Lower *l, const Node *n) {
  DType t = val(l->g, n->out)->dtype;
  return lower_add(
      l, (KInstr){.kind = KI_CONST, .dtype = t, .value = round_const(t, node_num(n, "value"))});
}

static KReg lower_iota(Lower *l, const Node *n, const AxisMap *map) {
  DType t = val(l->g, n->out)->dtype;
  KInstr i = {.kind = KI_IOTA, .dtype = t, .rounds = is_half(t)};
  i.at = kindex_axis(l->axis[map->axes[node_int(n, "axis")]], 1);
  i.mask = kindex_mask(&i.at);
  return lower_add(l, i);
}

static KReg lower_random(Lower *l, const Node *n, const AxisMap *map) {
  const Value *v = val(l->g, n->out);
  int batch = (int)node_int(n, "batch");
  /* The sample is 0 where it does not matter. */
  KInstr i = {.kind = KI_RANDOM,
              .dtype = v->dtype,
              .nin = batch == RANDOM_STEP ? 3 : 4,
              .key = (uint64_t)node_int(n, "key")};
  while (i.key_slot < l->k->nkeys && l->k->keys[i.key_slot] != i.key) i.key_slot++;
  if (i.key_slot == l->k->nkeys) l->k->keys[l->k->nkeys++] = i.key;
  for (int w = 0; w < 2; w++) {
    KIndex word = kindex_zero();
    word.constant = w;
    i.in[w] = lower_load(l, n->in[0], &word, 0, NULL);
  }
  for (int k = 2; k < i.nin; k++) i.in[k] = lower_value(l, n->in[k - 1], map);
  int64_t stride = 1;
  for (int k = v->shape.rank - 1; k >= 0; k--) {
    KIndex axis = kindex_axis(l->axis[map->axes[k]], 1);
    if (k == batch)
      i.at = axis;
    else {
      kindex_add(l->arena, &i.element, &axis, stride);
      stride *= v->shape.dim[k];
    }
  }
  i.mask = kindex_mask(&i.at) | kindex_mask(&i.element);
  return lower_add(l, i);
}

/* Where the axes of a reduction's operand lie in the space: kept ones as the result's, reduced ones
 * are all columns (row reduction) or all rows (sum over rows). */
static bool reduce_map(const Lower *l, const Node *n, const AxisMap *map, bool rows, AxisMap *out) {
  const int64_t *axes;
  const Shape *from = &val(l->g, n->in[0])->shape, *space = &l->c->space;
  int naxes = node_list(n, "axes", &axes), next = rows ? 0 : l->c->outer, kept = 0, cut = 0;
  if (naxes != (rows ? l->c->outer : space->rank - l->c->outer)) return false;
  for (int k = 0; k < from->rank; k++) {
    bool reduced = cut < naxes && axes[cut] == k;
    if (reduced) cut++;
    out->axes[k] = (int8_t)(reduced ? next++ : map->axes[kept++]);
    int x = out->axes[k];
    if (x >= space->rank || space->dim[x] != from->dim[k]) return false;
    if (!reduced && rows != (x >= l->c->outer)) return false;
  }
  return true;
}

static KReg lower_sum_over_rows(Lower *l, const Node *n, const AxisMap *map, const AxisMap *from) {
  DType t = val(l->g, n->out)->dtype;
  if (n->op != OP_SUM) return lower_fail(l, "only sums reduce over rows, not `%s`", op_name(n->op));
  KInstr i = {.kind = KI_SUM, .op = OP_SUM, .dtype = t, .rounds = is_half(t)};
  KReg in = lower_value(l, n->in[0], from);
  if (in < 0) return -1;
  if (l->instrs.at[in].late) return lower_fail(l, "a sum over rows of a sum over rows");
  const Shape *s = &val(l->g, n->out)->shape;
  i.columns = shape_count(s);
  i.full = i.columns == 1;
  int64_t stride = 1;
  for (int k = s->rank - 1; k >= 0; k--) {
    KIndex axis = kindex_axis(l->axis[map->axes[k]], 1);
    kindex_add(l->arena, &i.column, &axis, stride);
    stride *= s->dim[k];
  }
  if (!i.full && i.columns != l->k->cols)
    return lower_fail(l, "a sum over rows that lacks columns");
  i.nin = 1;
  i.in[0] = in;
  KReg r = lower_add(l, i);
  KInstr *sum = &l->instrs.at[r];
  sum->mask = kindex_mask(&sum->column);
  sum->late = true;
  sum->stage = 0;
  l->k->has_workspace = true;
  return r;
}

static KReg lower_reduce(Lower *l, const Node *n, const AxisMap *map) {
  AxisMap from = {{0}};
  bool all_rows = l->c->outer == l->c->space.rank; /* everything is summed: see lower_cluster */
  bool over_rows = reduce_map(l, n, map, true, &from);
  if (over_rows && !all_rows && val(l->g, n->out)->shape.rank == 0) {
    /* A vector could be rows or columns: the operand's own place decides. */
    int at = lower_inside(l, n->in[0]);
    over_rows =
        at < 0 || val(l->g, n->in[0])->shape.rank == 0 || l->c->node_axes[at].axes[0] < l->c->outer;
  }
  if (over_rows) return lower_sum_over_rows(l, n, map, &from);
  if (!reduce_map(l, n, map, false, &from))
    return lower_fail(l, "`%s` over axes that are neither all rows nor all columns",
                      op_name(n->op));
  DType t = val(l->g, n->out)->dtype;
  KInstr i = {.kind = KI_REDUCE,
              .op = n->op,
              .dtype = t,
              .nin = 1,
              .rounds = is_half(t) && n->op == OP_SUM};
  i.in[0] = lower_value(l, n->in[0], &from);
  i.full = shape_count(&val(l->g, n->out)->shape) == 1;
  KReg r = lower_add(l, i);
  if (r < 0) return r;
  KInstr *reduce = &l->instrs.at[r];
  reduce->stage++;
  reduce->mask &= (1u << l->k->outer) - 1;
  if (reduce->late) return lower_fail(l, "a row reduction of a sum over rows");
  return r;
}

static KReg lower_node(Lower *l, int at) {
  const Node *n = node_at(l->g, l->c->nodes[at]);
  const AxisMap *map = &l->c->node_axes[at];
  switch (n->op) {
    case OP_CONST:
      return lower_const(l, n);
    case OP_IOTA:
      return lower_iota(l, n, map);
    case OP_RANDOM:
      return lower_random(l, n, map);
    case OP_GATHER:
      return lower_gather(l, n, map);
    default:
      break;
  }
  switch (op_kind(n->op)) {
    case ELEM:
      return lower_elem(l, n, map);
    case VIEW:
      return lower_view(l, n, map);
    case REDUCE:
      return lower_reduce(l, n, map);
    default:
      return lower_fail(l, "`%s` is no part of a loop nest", op_name(n->op));
  }
}

/* ---- outputs ---- */

/* Axes of an output that no node of the cluster computes: a copy, which iterates over the value
 * itself. */
static AxisMap identity_map(void) {
  AxisMap map;
  for (int k = 0; k < MAX_RANK; k++) map.axes[k] = (int8_t)k;
  return map;
}

static void lower_outputs(Lower *l) {
  l->in_place = arena_array(l->arena, bool, l->c->nout + 1);
  for (int o = 0; o < l->c->nout && !l->why; o++) {
    ValueId v = l->c->out[o];
    int at = lower_inside(l, v);
    AxisMap map = at >= 0 ? l->c->node_axes[at] : identity_map();
    KStore store = {.value = lower_value(l, v, &map), .param = l->c->nin + o};
    const Shape *s = &val(l->g, v)->shape;
    for (int k = 0; k < s->rank; k++) {
      KIndex axis = kindex_axis(l->axis[map.axes[k]], l->out_at[o].stride[k]);
      kindex_add(l->arena, &store.at, &axis, 1);
      if (l->axis[map.axes[k]] >= 0) store.mask |= 1u << l->axis[map.axes[k]];
    }
    for (int i = 0; i < l->c->nin; i++) l->in_place[o] |= l->in_at[i].buf == l->out_at[o].buf;
    vec_push(l->arena, &l->stores, store);
  }
}

static void lower_params(Lower *l) {
  Kernel *k = l->k;
  k->nparams = l->c->nin + l->c->nout;
  k->params = arena_array(l->arena, KParam, k->nparams + 1);
  for (int i = 0; i < k->nparams; i++) {
    bool out = i >= l->c->nin;
    const Value *v = val(l->g, out ? l->c->out[i - l->c->nin] : l->c->in[i]);
    int64_t offset = (out ? &l->out_at[i - l->c->nin] : &l->in_at[i])->offset;
    int align = 16;
    while (offset % align) align /= 2;
    k->params[i] = (KParam){v->dtype, v->shape, out, align};
  }
}

/* Axes of one element are no loops. When every axis is a row, all sums are over everything: then
 * all axes become columns of a single row, and a sum over rows runs over them. */
static void lower_axes(Lower *l) {
  Kernel *k = l->k;
  const Shape *s = &l->c->space;
  int outer = l->c->outer == s->rank ? 0 : l->c->outer;
  k->rows = k->cols = 1;
  for (int x = 0; x < s->rank; x++) {
    l->axis[x] = -1;
    *(x < outer ? &k->rows : &k->cols) *= s->dim[x];
    if (s->dim[x] == 1) continue;
    l->axis[x] = k->naxes;
    k->dim[k->naxes++] = s->dim[x];
    if (x < outer) k->outer++;
  }
}

/* Partials of each sum over rows follow one another in the workspace. */
static void lower_workspace(Lower *l) {
  Kernel *k = l->k;
  bool flat = k->outer == 0 && k->rows == 1 && l->c->outer == l->c->space.rank;
  int64_t summed = flat ? k->cols : k->rows, words = 0;
  for (int i = 0; i < l->instrs.n; i++) {
    if (l->instrs.at[i].kind != KI_SUM) continue;
    l->instrs.at[i].slot = words;
    k->blocks = column_blocks(summed);
    words += k->blocks * l->instrs.at[i].columns;
  }
  k->flat_sums = flat;
  k->workspace_bytes = words * 4;
}

Kernel *lower_cluster(const Graph *g, const Cluster *c, const Storage *in, const Storage *out,
                      Arena *a, const char **why) {
  Kernel *k = arena_new_of(a, Kernel);
  k->arena = a;
  Lower l = {.g = g, .c = c, .in_at = in, .out_at = out, .arena = a, .k = k};
  lower_axes(&l);
  lower_params(&l);
  k->keys = arena_array(a, uint64_t, c->nnodes + 1);
  l.reg = arena_array(a, KReg, c->nnodes + 1);
  for (int i = 0; i < c->nnodes; i++) l.reg[i] = -1;
  for (int i = 0; i < c->nnodes && !l.why; i++)
    if (node_at(g, c->nodes[i])->op != OP_ASSIGN) l.reg[i] = lower_node(&l, i);
  lower_outputs(&l);
  if (!l.why) {
    k->ninstrs = l.instrs.n;
    k->instrs = l.instrs.at;
    lower_workspace(&l);
    lower_nests(&l);
  }
  if (l.why) {
    *why = l.why;
    return NULL;
  }
  return k;
}
