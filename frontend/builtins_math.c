/* builtins_math.c - element-wise operations, reductions and initial values. */
#include <math.h>
#include <string.h>
#include "builtins.h"

/* ---- one operand ---- */

static double rsqrt(double x) {
  return 1 / sqrt(x);
}

static const struct {
  const char *name;
  Op op;
  double (*number)(double);
} unary[] = {
    {"tanh", OP_TANH, tanh},    {"exp", OP_EXP, exp},       {"log", OP_LOG, log},
    {"sqrt", OP_SQRT, sqrt},    {"rsqrt", OP_RSQRT, rsqrt}, {"abs", OP_ABS, fabs},
    {"sin", OP_SIN, sin},       {"cos", OP_COS, cos},       {"erf", OP_ERF, erf},
    {"floor", OP_FLOOR, floor},
};

static Val tensor_unary(Elab *e, const BuiltinCall *c, Op op) {
  const Val *x = &c->arg[0];
  DType t = tval(e, x)->dtype;
  if (!dtype_is_float(t) && !(op == OP_ABS && t == DT_I32)) {
    Diag *d = builtin_error(e, c, E_TYPE, "`%s` takes a float tensor, not %s", c->op->name,
                            dtype_name(t));
    diag_help(e->d, d, "`x as f32` converts");
    return VAL_ERR;
  }
  ValueId v = g_unary(e->b->g, op, x->v);
  if (v >= 0) axes_named_like(e->b->g, v, x->v);
  return val_tensor(v);
}

Val bi_unary(Elab *e, const BuiltinCall *c) {
  const Val *x = &c->arg[0];
  for (int i = 0; i < COUNT_OF(unary); i++) {
    if (strcmp(unary[i].name, c->op->name)) continue;
    if (x->kind == V_TENSOR) return tensor_unary(e, c, unary[i].op);
    if (x->kind == V_INT && (unary[i].op == OP_ABS || unary[i].op == OP_FLOOR))
      return val_int(x->i < 0 && unary[i].op == OP_ABS ? -x->i : x->i, NULL);
    double r = unary[i].number(x->f);
    if (!isfinite(r)) {
      elab_error(e, E_VALUE, caret(c->x), "`%s` is not a number for %g", c->op->name, x->f);
      return VAL_ERR;
    }
    if (unary[i].op == OP_FLOOR && fabs(r) < 1e15) return val_int((int64_t)r, NULL);
    return val_num(r);
  }
  bug("no operation behind `%s`", c->op->name);
}

/* ---- two and three operands ---- */

/* Both as tensors of one dtype and broadcastable shapes, or false after a message. */
static bool agree(Elab *e, const BuiltinCall *c, Val *a, Val *b) {
  if (a->kind != V_TENSOR) *a = tensor_of(e, *a, b->kind == V_TENSOR ? tval(e, b)->dtype : DT_F32);
  if (b->kind != V_TENSOR) *b = tensor_of(e, *b, tval(e, a)->dtype);
  if (a->kind != V_TENSOR || b->kind != V_TENSOR) return false;
  DType p = tval(e, a)->dtype, q = tval(e, b)->dtype;
  if (p != q) {
    builtin_error(e, c, E_TYPE, "operands of `%s` have different types: %s and %s", c->op->name,
                  dtype_name(p), dtype_name(q));
    return false;
  }
  int axis;
  const Shape s = tshape(e, a), t = tshape(e, b);
  if (shapes_broadcast(&s, &t, &axis)) return true;
  builtin_error(e, c, E_BROADCAST, "shapes of `%s` differ: %s and %s", c->op->name, say_shape(e, a),
                say_shape(e, b));
  return false;
}

/* The common shape of two that broadcast. */
static Shape join(const Shape *a, const Shape *b) {
  Shape s = a->rank >= b->rank ? *a : *b, o = a->rank >= b->rank ? *b : *a;
  for (int i = 1; i <= o.rank; i++) {
    int k = s.rank - i, m = o.rank - i;
    if (s.dim[k] == 1) s.dim[k] = o.dim[m], s.axis[k] = NULL;
    if (!s.axis[k]) s.axis[k] = o.axis[m];
  }
  return s;
}

Val bi_where(Elab *e, const BuiltinCall *c) {
  Val cond = c->arg[0], a = c->arg[1], b = c->arg[2];
  if (tval(e, &cond)->dtype != DT_BOOL) {
    builtin_error(e, c, E_TYPE, "the condition of `where` is bool, not %s",
                  dtype_name(tval(e, &cond)->dtype));
    return VAL_ERR;
  }
  if (!agree(e, c, &a, &b)) return VAL_ERR;
  Shape ab = join(&tval(e, &a)->shape, &tval(e, &b)->shape);
  int axis;
  if (!shapes_broadcast(&ab, &tval(e, &cond)->shape, &axis)) {
    builtin_error(e, c, E_BROADCAST, "shapes of `where` differ: %s and %s", say_shape(e, &cond),
                  shape_text(e->arena, &ab));
    return VAL_ERR;
  }
  Shape all = join(&ab, &tval(e, &cond)->shape);
  Graph *g = e->b->g;
  ValueId v = g_select(g, g_broadcast_to(g, cond.v, all), g_broadcast_to(g, a.v, all),
                       g_broadcast_to(g, b.v, all));
  for (int k = 0; v >= 0 && k < all.rank; k++) g->values.at[v].shape.axis[k] = all.axis[k];
  return val_tensor(v);
}

Val bi_stop_gradient(Elab *e, const BuiltinCall *c) {
  return val_tensor(g_unary(e->b->g, OP_HOLD, c->arg[0].v));
}

/* Reduction over the axes of argument i. */
static ValueId reduce(Elab *e, const BuiltinCall *c, int i, Op op, ValueId x) {
  int64_t axes[MAX_RANK];
  int rank = val(e->b->g, x)->shape.rank;
  if (!rank) return x;
  int n = builtin_axes(e, c, i, rank, axes);
  return n < 0 ? -1 : n == 0 ? x : g_reduce(e->b->g, op, x, n, axes);
}

static Val extreme(Elab *e, const BuiltinCall *c, bool largest) {
  Val a = c->arg[0], b = c->arg[1];
  if (a.kind != V_TENSOR && val_is_number(&b)) return (a.f > b.f) == largest ? a : b;
  if (a.kind != V_TENSOR && b.kind == V_NONE) return a;
  Graph *g = e->b->g;
  if (b.kind == V_NONE) {
    if (largest) return val_tensor(reduce(e, c, 2, OP_AMAX, a.v));
    return val_tensor(g_unary(g, OP_NEG, reduce(e, c, 2, OP_AMAX, g_unary(g, OP_NEG, a.v))));
  }
  if (!agree(e, c, &a, &b)) return VAL_ERR;
  ValueId v = g_bin(g, largest ? OP_MAX : OP_MIN, a.v, b.v);
  if (v >= 0) axes_named_like(g, v, a.v);
  return val_tensor(v);
}

Val bi_max(Elab *e, const BuiltinCall *c) {
  return extreme(e, c, true);
}
Val bi_min(Elab *e, const BuiltinCall *c) {
  return extreme(e, c, false);
}

/* Counting what is true: bool as f32. */
static ValueId countable(Elab *e, const Val *x) {
  DType t = tval(e, x)->dtype;
  return t == DT_BOOL ? g_cast(e->b->g, x->v, DT_F32) : x->v;
}

Val bi_sum(Elab *e, const BuiltinCall *c) {
  return val_tensor(reduce(e, c, 1, OP_SUM, countable(e, &c->arg[0])));
}

Val bi_mean(Elab *e, const BuiltinCall *c) {
  int64_t axes[MAX_RANK];
  ValueId x = countable(e, &c->arg[0]);
  if (!dtype_is_float(val(e->b->g, x)->dtype)) x = g_cast(e->b->g, x, DT_F32);
  int rank = val(e->b->g, x)->shape.rank, n = rank ? builtin_axes(e, c, 1, rank, axes) : 0;
  return n < 0 ? VAL_ERR : val_tensor(c_mean(e->b->g, x, n, axes));
}

Val bi_argmax(Elab *e, const BuiltinCall *c) {
  int64_t axis;
  if (!builtin_axis(e, c, c->arg[1].i, tval(e, &c->arg[0])->shape.rank, &axis)) return VAL_ERR;
  return val_tensor(g_reduce(e->b->g, OP_ARGMAX, c->arg[0].v, 1, &axis));
}

/* ---- initial values ---- */

static Val init_of(InitKind kind, double a, double b) {
  return (Val){.kind = V_INIT, .init = {.kind = kind, .a = a, .b = b}};
}

Val bi_init_zeros(Elab *e, const BuiltinCall *c) {
  (void)e, (void)c;
  return init_of(INIT_ZEROS, 0, 0);
}

Val bi_init_ones(Elab *e, const BuiltinCall *c) {
  (void)e, (void)c;
  return init_of(INIT_ONES, 0, 0);
}

Val bi_init_constant(Elab *e, const BuiltinCall *c) {
  (void)e;
  return init_of(INIT_CONST, c->arg[0].f, 0);
}

Val bi_init_normal(Elab *e, const BuiltinCall *c) {
  if (!builtin_range(e, c, 0, 0, 1e6)) return VAL_ERR;
  return init_of(INIT_NORMAL, c->arg[1].f, c->arg[0].f);
}

Val bi_init_uniform(Elab *e, const BuiltinCall *c) {
  if (!builtin_range(e, c, 1, c->arg[0].f, 1e6)) return VAL_ERR;
  return init_of(INIT_UNIFORM, c->arg[0].f, c->arg[1].f);
}

Val bi_init_kaiming(Elab *e, const BuiltinCall *c) {
  if (!builtin_range(e, c, 0, 0, 1e6)) return VAL_ERR;
  Val v = init_of(INIT_NORMAL, 0, sqrt(c->arg[0].f));
  v.init_by_fan = true;
  return v;
}
