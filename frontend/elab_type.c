/* elab_type.c - shapes in signatures: unification of arguments, promises of results, shapes of
 * parameters. A dim that is a single name without a meaning is bound to the size it meets; every
 * other dim is evaluated and must agree. `..` stands for any number of leading axes. */
#include <string.h>
#include "elab.h"

/* The number a name stands for, or NULL when it means no number here. */
static const Binding *dim_binding(const Scope *s, const char *name) {
  for (; s; s = s->up) {
    const Binding *b = scope_find_here(s, name);
    if (b && b->val.kind != V_BLOCK && b->val.kind != V_FN && b->val.kind != V_LAYER &&
        b->val.kind != V_LAYERS && b->val.kind != V_TENSOR && b->val.kind != V_VAR)
      return b;
  }
  return NULL;
}

/* Can the dim be evaluated without a message about unknown names? */
static bool dim_known(const Scope *s, const Expr *x) {
  if (!x) return true;
  if (x->kind == EX_NAME) return dim_binding(s, x->text) != NULL;
  return dim_known(s, x->a) && dim_known(s, x->b) && dim_known(s, x->c);
}

static bool dim_value(Elab *e, const Scope *s, const Expr *x, int64_t *dim, const char **name) {
  const Binding *b = x->kind == EX_NAME ? dim_binding(s, x->text) : NULL;
  if (b && b->val.kind == V_INT && b->val.i >= 0) {
    *dim = b->val.i;
    *name = b->val.name;
    return true;
  }
  return eval_dim(e, s, x, dim, name);
}

/* "[.., In=1024]": the type with what is known of it. */
static const char *type_values(Elab *e, const Scope *s, const TypeExpr *t) {
  Str out = {.arena = e->arena};
  if (t->dtype >= 0) str_add(&out, dtype_name((DType)t->dtype));
  if (!t->has_dims) return out.text ? out.text : "";
  for (int i = 0; i < t->dims.n; i++) {
    const Expr *x = t->dims.at[i];
    str_add(&out, i ? ", " : "[");
    const Binding *b = x && x->kind == EX_NAME ? dim_binding(s, x->text) : NULL;
    str_add(&out, x ? say_expr(e, x) : "..");
    if (b && b->val.kind == V_INT) str_addf(&out, "=%lld", (long long)b->val.i);
  }
  str_add(&out, "]");
  return out.text;
}

/* Where a shape and a type part ways. */
typedef struct {
  bool failed; /* a message was given already */
  bool rank;   /* number of axes */
  int axis;    /* of the shape */
  const Expr *dim;
  int64_t want;
} Mismatch;

/* Leading axes that `..` covers, or -1 when the numbers of axes cannot agree. */
static int lead_count(const TypeExpr *t, const Shape *s) {
  bool dots = false;
  for (int i = 0; i < t->dims.n; i++) dots |= !t->dims.at[i];
  if (!dots) return s->rank == t->dims.n ? 0 : -1;
  return s->rank >= t->dims.n - 1 ? s->rank - (t->dims.n - 1) : -1;
}

static bool unify_dims(Elab *e, Frame *f, const TypeExpr *t, ValueId v, Mismatch *m) {
  const Shape s = e->b->g->values.at[v].shape;
  int lead = t->has_dims ? lead_count(t, &s) : s.rank ? -1 : 0;
  if (lead < 0) {
    m->rank = true;
    return false;
  }
  for (int i = 0, axis = 0; t->has_dims && i < t->dims.n; i++, axis++) {
    const Expr *x = t->dims.at[i];
    if (!x) {
      axis += lead - 1;
      continue;
    }
    if (x->kind == EX_NAME && !dim_binding(&f->scope, x->text)) {
      const char *name = s.axis[axis] ? s.axis[axis] : x->text;
      scope_set(elab_arena(e), &f->scope, x->text, val_int(s.dim[axis], name), x->loc);
      e->b->g->values.at[v].shape.axis[axis] = name;
      continue;
    }
    const char *name;
    if (!dim_value(e, &f->scope, x, &m->want, &name)) {
      m->failed = true;
      return false;
    }
    if (m->want != s.dim[axis]) {
      m->axis = axis;
      m->dim = x;
      return false;
    }
    if (!s.axis[axis]) e->b->g->values.at[v].shape.axis[axis] = name;
  }
  return true;
}

static bool dtype_fits(const TypeExpr *t, DType have) {
  if (t->dtype < 0 || (dtype_is_float((DType)t->dtype) && t->dtype != DT_BOOL))
    return dtype_is_float(have);
  return (int)have == t->dtype;
}

static const char *callee_text(Elab *e, const Frame *f, const Expr *call) {
  return call ? say_expr(e, call->a) : f->fn->name.text;
}

static bool wrong_kind(Elab *e, const Frame *f, const FnArg *arg, const Val *v, const Expr *x,
                       const Expr *call) {
  Diag *d =
      elab_error(e, E_TYPE, x ? x->loc : arg->loc, "argument `%s` of `%s` takes %s, not %s",
                 arg->name.text, callee_text(e, f, call), say_type(e, arg->type), say_val(e, v));
  diag_label(e->d, d, arg->type->loc, "declared here");
  if (v->kind == V_TENSOR && dtype_fits(arg->type, DT_F32))
    diag_help(e->d, d, "`x as f32` converts");
  return false;
}

static bool wrong_shape(Elab *e, const Frame *f, const FnArg *arg, const Val *v, const Expr *x,
                        const Expr *call, const Mismatch *m) {
  Diag *d =
      elab_error(e, E_ARG_SHAPE, x ? x->loc : arg->loc, "argument `%s` of `%s` must be %s, not %s",
                 arg->name.text, callee_text(e, f, call), type_values(e, &f->scope, arg->type),
                 say_shape(e, v));
  if (m->rank)
    diag_label(e->d, d, arg->type->loc, "declared here, with another number of axes");
  else
    diag_label(e->d, d, arg->type->loc, "%s=%lld on axis %d", say_expr(e, m->dim),
               (long long)m->want, m->axis);
  if (f->inst && *f->inst->path)
    diag_note(e->d, d, "`%s` is %s, declared at %d:%d", f->inst->path, inst_text(e, f->inst),
              f->inst->decl.line, f->inst->decl.col);
  return false;
}

bool unify_arg(Elab *e, Frame *f, const FnArg *arg, Val *v, const Expr *x, const Expr *call) {
  const TypeExpr *t = arg->type;
  if (!t) return true;
  if (e->b && !t->has_dims && (val_is_number(v) || v->kind == V_BOOL))
    *v = tensor_of(e, *v, t->dtype >= 0 ? (DType)t->dtype : DT_F32);
  if (v->kind != V_TENSOR || !dtype_fits(t, tval(e, v)->dtype))
    return wrong_kind(e, f, arg, v, x, call);
  Mismatch m = {0};
  if (!unify_dims(e, f, t, v->v, &m))
    return m.failed ? false : wrong_shape(e, f, arg, v, x, call, &m);
  int lead = t->has_dims ? lead_count(t, &tval(e, v)->shape) : 0;
  if (f->lead < 0 && t->has_dims && t->dims.n && !t->dims.at[0]) {
    f->lead = v->v;
    f->lead_axes = lead;
  }
  return true;
}

/* "block `Attention`", "`GPT2.forward`", "function `f`" */
static const char *promiser(Elab *e, const Frame *f) {
  if (!f->inst) return arena_printf(e->arena, "function `%s`", f->fn->name.text);
  if (!*f->inst->path)
    return arena_printf(e->arena, "`%s.%s`", e->named_item->name.text, f->fn->name.text);
  if (!strcmp(f->fn->name.text, "forward"))
    return arena_printf(e->arena, "block `%s`", f->inst->item->name.text);
  return arena_printf(e->arena, "`%s.%s`", f->inst->item->name.text, f->fn->name.text);
}

/* What the returned expression calls: "Linear(In=4096, Out=8192), declared at 13:3". */
static void say_returned(Elab *e, Diag *d, const Frame *f, const Expr *x) {
  if (x->kind != EX_CALL || x->a->kind != EX_NAME) return;
  const Binding *b = scope_find(&f->scope, x->a->text);
  if (!b || b->val.kind != V_LAYER) return;
  const Inst *in = b->val.inst;
  diag_primary_label(e->d, d, "%s, declared at %d:%d", inst_text(e, in), in->decl.line,
                     in->decl.col);
}

/* Leading axes of a result's `..` must be those of the argument's. */
static bool lead_agrees(Elab *e, const Frame *f, const TypeExpr *t, ValueId v, Mismatch *m) {
  if (!t->has_dims || !t->dims.n || t->dims.at[0] || f->lead < 0) return true;
  const Shape s = e->b->g->values.at[v].shape, p = e->b->g->values.at[f->lead].shape;
  int lead = lead_count(t, &s);
  if (lead != f->lead_axes) {
    m->rank = true;
    return false;
  }
  for (int k = 0; k < lead; k++) {
    if (s.dim[k] == p.dim[k]) continue;
    m->axis = k;
    m->want = p.dim[k];
    return false;
  }
  return true;
}

bool check_result(Elab *e, Frame *f, int i, Val *v, const Expr *x) {
  const TypeExpr *t = f->fn->returns.at[i];
  if (!e->b || v->kind == V_ERR) return v->kind != V_ERR;
  if (!t->has_dims && (val_is_number(v) || v->kind == V_BOOL))
    *v = tensor_of(e, *v, t->dtype >= 0 ? (DType)t->dtype : DT_F32);
  if (v->kind != V_TENSOR || !dtype_fits(t, tval(e, v)->dtype)) {
    Diag *d = elab_error(e, E_PROMISE, caret(x), "%s promises %s but returns %s", promiser(e, f),
                         say_type(e, t), say_val(e, v));
    diag_label(e->d, d, t->loc, "promised");
    return false;
  }
  Mismatch m = {0};
  if (unify_dims(e, f, t, v->v, &m) && lead_agrees(e, f, t, v->v, &m)) return true;
  if (m.failed) return false;
  Diag *d = elab_error(e, E_PROMISE, caret(x), "%s promises %s but returns %s", promiser(e, f),
                       say_type(e, t), say_shape(e, v));
  if (m.rank)
    diag_label(e->d, d, t->loc, "promised: another number of axes");
  else
    diag_label(e->d, d, t->loc, "promised: %s=%lld on axis %d", m.dim ? say_expr(e, m.dim) : "..",
               (long long)m.want, m.axis);
  say_returned(e, d, f, x);
  return false;
}

bool type_shape(Elab *e, const Scope *s, const TypeExpr *t, Shape *out) {
  *out = (Shape){0};
  for (int i = 0; t->has_dims && i < t->dims.n; i++) {
    const Expr *x = t->dims.at[i];
    if (!x || out->rank >= MAX_RANK) {
      elab_error(e, E_RANK, t->loc, x ? "a shape has at most %d axes" : "`..` has no size here",
                 MAX_RANK);
      return false;
    }
    int k = out->rank++;
    if (!dim_value(e, s, x, &out->dim[k], &out->axis[k])) return false;
    if (out->dim[k] < 1) {
      elab_error(e, E_VALUE, x->loc, "a dimension must be at least 1: `%s` is %lld", say_expr(e, x),
                 (long long)out->dim[k]);
      return false;
    }
  }
  int64_t count = 1;
  for (int k = 0; k < out->rank; k++)
    if (__builtin_mul_overflow(count, out->dim[k], &count) || count > (INT64_C(1) << 48)) {
      elab_error(e, E_VALUE, t->loc, "%s has too many elements", shape_text(e->arena, out));
      return false;
    }
  return true;
}

static Val promised_one(Elab *e, Frame *f, const TypeExpr *t) {
  Shape s = {0};
  for (int i = 0; t->has_dims && i < t->dims.n; i++) {
    const Expr *x = t->dims.at[i];
    if (!x && (i || f->lead < 0)) return VAL_ERR;
    if (!x) {
      s = e->b->g->values.at[f->lead].shape;
      s.rank = f->lead_axes;
      continue;
    }
    if (s.rank >= MAX_RANK || !dim_known(&f->scope, x)) return VAL_ERR;
    int k = s.rank++;
    if (!dim_value(e, &f->scope, x, &s.dim[k], &s.axis[k]) || s.dim[k] < 1) return VAL_ERR;
  }
  Graph *g = e->b->g;
  ValueId v = g_const(g, t->dtype >= 0 ? (DType)t->dtype : DT_F32, s, 0);
  for (int k = 0; v >= 0 && k < s.rank; k++) g->values.at[v].shape.axis[k] = s.axis[k];
  return val_tensor(v);
}

Val promised_value(Elab *e, Frame *f) {
  int n = f->fn->returns.n;
  if (!n || !e->b) return VAL_ERR;
  if (n == 1) return promised_one(e, f, f->fn->returns.at[0]);
  Val *items = arena_array(elab_arena(e), Val, n);
  for (int i = 0; i < n; i++) {
    items[i] = promised_one(e, f, f->fn->returns.at[i]);
    if (items[i].kind == V_ERR) return VAL_ERR;
  }
  return (Val){.kind = V_TUPLE, .items = items, .n = n};
}
