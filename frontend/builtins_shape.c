/* builtins_shape.c - operations that move elements: gather, split, concat, transpose, arange. */
#include "builtins.h"

Val bi_gather(Elab *e, const BuiltinCall *c) {
  const Val *table = &c->arg[0], *ids = &c->arg[1];
  const Shape s = tshape(e, table), t = tshape(e, ids);
  if (s.rank < 1 || s.rank - 1 + t.rank > MAX_RANK) {
    builtin_error(e, c, E_RANK, "`gather` takes a table of at least one axis");
    return VAL_ERR;
  }
  const Node *n = node_of(e->b->g, ids->v);
  int64_t axis = n->op == OP_IOTA ? node_int(n, "axis") : -1;
  if (axis >= 0 && t.dim[axis] > s.dim[0]) {
    Diag *d = builtin_error(e, c, E_AXIS, "%s%s%lld positions are looked up in a table of %s%s%lld",
                            t.axis[axis] ? t.axis[axis] : "", t.axis[axis] ? " = " : "",
                            (long long)t.dim[axis], s.axis[0] ? s.axis[0] : "",
                            s.axis[0] ? " = " : "", (long long)s.dim[0]);
    if (t.axis[axis] && s.axis[0])
      diag_help(e->d, d, "%s may be at most %s", t.axis[axis], s.axis[0]);
    return VAL_ERR;
  }
  ValueId v = g_gather(e->b->g, table->v, ids->v);
  if (v < 0) return VAL_ERR;
  Shape *out = &e->b->g->values.at[v].shape;
  for (int k = 0; k < t.rank; k++) out->axis[k] = t.axis[k];
  for (int k = 1; k < s.rank; k++) out->axis[t.rank + k - 1] = s.axis[k];
  return val_tensor(v);
}

static bool is_tuple_of_ints(const Val *v) {
  for (int i = 0; i < v->n; i++)
    if (v->items[i].kind != V_INT) return false;
  return true;
}

/* Sizes of the parts: equal ones, or those of a tuple. -1 after a message. */
static int part_sizes(Elab *e, const BuiltinCall *c, int64_t whole, int64_t **sizes) {
  const Val *p = &c->arg[1];
  int64_t sum = 0;
  if (p->kind == V_INT && p->i > 0 && p->i <= whole && whole % p->i == 0) {
    *sizes = arena_array(elab_arena(e), int64_t, p->i);
    for (int64_t i = 0; i < p->i; i++) (*sizes)[i] = whole / p->i;
    return (int)p->i;
  }
  if (p->kind == V_INT) {
    Diag *d = builtin_error(e, c, E_SHAPE, "`split` of %lld into %lld equal parts",
                            (long long)whole, (long long)p->i);
    diag_help(e->d, d, "a tuple gives the sizes: `split(x, (a, b))`");
    return -1;
  }
  if (p->kind != V_TUPLE || !is_tuple_of_ints(p)) {
    builtin_error(e, c, E_TYPE, "`split` takes a number of parts or a tuple of sizes, not %s",
                  say_val(e, p));
    return -1;
  }
  *sizes = arena_array(elab_arena(e), int64_t, p->n);
  for (int i = 0; i < p->n; i++) {
    (*sizes)[i] = p->items[i].i;
    if (p->items[i].i < 1 || p->items[i].i > whole - sum) sum = whole; /* reported below */
    sum += p->items[i].i;
  }
  if (sum == whole) return p->n;
  builtin_error(e, c, E_SHAPE, "the sizes of `split` must add up to %lld", (long long)whole);
  return -1;
}

Val bi_split(Elab *e, const BuiltinCall *c) {
  const Val *x = &c->arg[0];
  int64_t axis, *sizes = NULL, at = 0;
  if (!builtin_axis(e, c, c->arg[2].i, tval(e, x)->shape.rank, &axis)) return VAL_ERR;
  int n = part_sizes(e, c, tval(e, x)->shape.dim[axis], &sizes);
  if (n < 0) return VAL_ERR;
  Val *items = arena_array(elab_arena(e), Val, n);
  for (int i = 0; i < n; at += sizes[i++]) {
    items[i] = val_tensor(g_slice(e->b->g, x->v, (int)axis, at, at + sizes[i]));
    if (items[i].kind == V_ERR) return VAL_ERR;
    if (c->arg[1].kind == V_INT) items[i].origin = c->expr[0], items[i].part_of = n;
  }
  return (Val){.kind = V_TUPLE, .items = items, .n = n};
}

Val bi_concat(Elab *e, const BuiltinCall *c) {
  const Val *p = &c->arg[0];
  if (p->kind != V_TUPLE) {
    builtin_error(e, c, E_TYPE, "`concat` takes a tuple of tensors, not %s", say_val(e, p));
    return VAL_ERR;
  }
  ValueId *in = arena_array(elab_arena(e), ValueId, p->n);
  for (int i = 0; i < p->n; i++) {
    in[i] = p->items[i].v;
    if (p->items[i].kind == V_TENSOR) continue;
    builtin_error(e, c, E_TYPE, "`concat` takes a tuple of tensors; part %d is %s", i,
                  say_val(e, &p->items[i]));
    return VAL_ERR;
  }
  int64_t axis;
  const Shape first = tval(e, &p->items[0])->shape;
  if (!builtin_axis(e, c, c->arg[1].i, first.rank, &axis)) return VAL_ERR;
  for (int i = 1; i < p->n; i++) {
    const Value *v = tval(e, &p->items[i]);
    Shape s = v->shape;
    if (s.rank == first.rank) s.dim[axis] = first.dim[axis];
    if (shape_equal(&s, &first) && v->dtype == tval(e, &p->items[0])->dtype) continue;
    builtin_error(e, c, E_SHAPE, "`concat` along axis %lld: %s %s and %s %s", (long long)axis,
                  dtype_name(tval(e, &p->items[0])->dtype), say_shape(e, &p->items[0]),
                  dtype_name(v->dtype), say_shape(e, &p->items[i]));
    return VAL_ERR;
  }
  return val_tensor(g_concat(e->b->g, p->n, in, (int)axis));
}

Val bi_transpose(Elab *e, const BuiltinCall *c) {
  const Val *x = &c->arg[0], *axes = &c->arg[1];
  Shape s = tshape(e, x), out = s;
  int64_t perm[MAX_RANK] = {0};
  bool used[MAX_RANK] = {0};
  if (axes->kind != V_TUPLE || axes->n != s.rank) {
    builtin_error(e, c, E_RANK, "`transpose` of %s takes a tuple of its %d axes", say_shape(e, x),
                  s.rank);
    return VAL_ERR;
  }
  for (int k = 0; k < s.rank; k++) {
    if (!builtin_axis(e, c, axes->items[k].i, s.rank, &perm[k])) return VAL_ERR;
    if (used[perm[k]]) {
      builtin_error(e, c, E_AXIS, "`transpose` names axis %lld twice", (long long)perm[k]);
      return VAL_ERR;
    }
    used[perm[k]] = true;
    out.axis[k] = s.axis[perm[k]];
  }
  ValueId v = g_transpose(e->b->g, x->v, perm);
  for (int k = 0; v >= 0 && k < s.rank; k++) e->b->g->values.at[v].shape.axis[k] = out.axis[k];
  return val_tensor(v);
}

Val bi_arange(Elab *e, const BuiltinCall *c) {
  if (!builtin_range(e, c, 0, 1, 2147483647)) return VAL_ERR;
  Shape s = SHAPE(c->arg[0].i);
  s.axis[0] = c->arg[0].name;
  ValueId v = g_iota(e->b->g, DT_I32, s, 0);
  if (v >= 0) e->b->g->values.at[v].shape.axis[0] = s.axis[0];
  return val_tensor(v);
}
