/* elab_eval.c - expressions: one walk over the tree that gives static values and, while a graph is
 * built, tensors. */
#include <string.h>
#include "builtins.h"
#include "elab.h"

Val eval_read(Elab *e, const Val *v, Loc at) {
  const Var *var = &e->job->vars->all.at[v->i];
  if (!e->b) {
    Diag *g = elab_error(e, E_STATIC, at, "`%s` is a %s: its value is not known at compile time",
                         var->path, var->role == VAR_PARAM ? "parameter" : "state");
    diag_label(e->d, g, var->loc, "declared here");
    return VAL_ERR;
  }
  e->b->g->here.loc = at;
  return val_tensor(g_var(e->b->g, (int)v->i));
}

static Val unknown_name(Elab *e, const Scope *s, const Expr *x) {
  if (builtin_find(x->text)) {
    elab_error(e, E_UNKNOWN_NAME, x->loc, "`%s` is an operation: it has to be called", x->text);
    return VAL_ERR;
  }
  Diag *g = elab_error(e, E_UNKNOWN_NAME, x->loc, "nothing is called `%s` here", x->text);
  say_nearest_in_scope(e, g, x->text, s, false);
  return VAL_ERR;
}

static Val eval_name(Elab *e, const Scope *s, const Expr *x) {
  const Binding *b = scope_find(s, x->text);
  if (b) return b->val.kind == V_VAR && e->b ? eval_read(e, &b->val, x->loc) : b->val;
  if (e->b && !strcmp(x->text, "training")) {
    e->asked_training = true;
    return val_bool(e->b->training);
  }
  const Builtin *op = builtin_find(x->text);
  if (op && op->is_init) return builtin_call(e, s, x, op);
  return unknown_name(e, s, x);
}

static Val eval_tuple(Elab *e, const Scope *s, const Expr *x) {
  Val *items = arena_array(elab_arena(e), Val, x->items.n);
  for (int i = 0; i < x->items.n; i++) {
    items[i] = eval(e, s, x->items.at[i]);
    if (items[i].kind == V_ERR) return VAL_ERR;
  }
  return (Val){.kind = V_TUPLE, .items = items, .n = x->items.n};
}

static Val eval_unary(Elab *e, const Scope *s, const Expr *x) {
  Val a = eval(e, s, x->a);
  if (a.kind == V_ERR) return a;
  if (x->op == OPR_NOT && a.kind == V_BOOL) return val_bool(!a.i);
  if (x->op == '-' && a.kind == V_INT) return val_int(-a.i, NULL);
  if (x->op == '-' && a.kind == V_NUM) return val_num(-a.f);
  if (a.kind == V_TENSOR) {
    bool is_bool = tval(e, &a)->dtype == DT_BOOL;
    if (is_bool == (x->op == OPR_NOT)) {
      e->b->g->here.loc = caret(x);
      Val r = val_tensor(g_unary(e->b->g, x->op == OPR_NOT ? OP_NOT : OP_NEG, a.v));
      if (r.kind == V_TENSOR) axes_named_like(e->b->g, r.v, a.v);
      return r;
    }
  }
  elab_error(e, E_TYPE, caret(x), "`%s` takes %s, not %s", x->op == OPR_NOT ? "not" : "-",
             x->op == OPR_NOT ? "true, false or a bool tensor" : "a number or a tensor",
             say_val(e, &a));
  return VAL_ERR;
}

bool eval_cond(Elab *e, const Scope *s, const Expr *x, bool *yes) {
  Val c = eval(e, s, x);
  if (c.kind == V_BOOL) {
    *yes = c.i != 0;
    return true;
  }
  if (c.kind == V_TENSOR) {
    Diag *g = elab_error(e, E_STATIC, x->loc, "a condition must be known at compile time");
    diag_primary_label(e->d, g, "%s", say_val(e, &c));
    diag_help(e->d, g, "`where(c, a, b)` chooses element by element");
  } else if (c.kind != V_ERR) {
    elab_error(e, E_TYPE, x->loc, "a condition must be true or false, not %s", say_val(e, &c));
  }
  return false;
}

/* `and` and `or` of static values, the right side only when it matters. */
static Val eval_logic(Elab *e, const Scope *s, const Expr *x) {
  Val a = eval(e, s, x->a);
  if (a.kind == V_ERR) return a;
  if (a.kind == V_BOOL && (a.i != 0) == (x->op == OPR_OR)) return a;
  Val b = eval(e, s, x->b);
  if (b.kind == V_ERR) return b;
  if (a.kind == V_BOOL && b.kind == V_BOOL) return b;
  if (a.kind == V_TENSOR || b.kind == V_TENSOR) return tensor_binary(e, x, a, b);
  const Val *odd = a.kind == V_BOOL ? &b : &a;
  elab_error(e, E_TYPE, caret(x), "`%s` takes true, false or bool tensors, not %s",
             x->op == OPR_OR ? "or" : "and", say_val(e, odd));
  return VAL_ERR;
}

static Val eval_binary(Elab *e, const Scope *s, const Expr *x) {
  if (x->op == OPR_AND || x->op == OPR_OR) return eval_logic(e, s, x);
  Val a = eval(e, s, x->a), b = eval(e, s, x->b);
  if (a.kind == V_ERR || b.kind == V_ERR) return VAL_ERR;
  if (a.kind == V_TENSOR || b.kind == V_TENSOR) return tensor_binary(e, x, a, b);
  return static_binary(e, x, &a, &b);
}

static Val layer_field(Elab *e, const Expr *x, const Inst *in) {
  const Binding *b = inst_find(in, x->text);
  if (b) return b->val.kind == V_VAR && e->b ? eval_read(e, &b->val, x->loc) : b->val;
  Diag *g = elab_error(e, E_UNKNOWN_NAME, x->op_loc, "%s `%s` has nothing called `%s`",
                       *in->path ? "layer" : "model", *in->path ? in->path : in->item->name.text,
                       x->text);
  say_nearest_in_scope(e, g, x->text, &in->scope, false);
  return VAL_ERR;
}

static Val eval_field(Elab *e, const Scope *s, const Expr *x) {
  Val a = eval(e, s, x->a);
  if (a.kind == V_ERR) return a;
  if (a.kind == V_LAYER) return layer_field(e, x, a.inst);
  if (a.kind == V_TENSOR && !strcmp(x->text, "T")) return tensor_transposed(e, x, a);
  Diag *g = elab_error(e, E_UNKNOWN_NAME, x->op_loc, "%s has nothing called `%s`", say_val(e, &a),
                       x->text);
  if (a.kind == V_TENSOR)
    diag_help(e->d, g, "tensors have `.T`, the transpose of the last two axes");
  if (a.kind == V_LAYERS) diag_help(e->d, g, "`[i]` picks one of the layers");
  return VAL_ERR;
}

static Val eval_index(Elab *e, const Scope *s, const Expr *x) {
  Val a = eval(e, s, x->a);
  if (a.kind == V_ERR) return a;
  if (a.kind == V_TENSOR) return tensor_index(e, s, x, a);
  if ((a.kind != V_LAYERS && a.kind != V_TUPLE) || x->index.n != 1 ||
      x->index.at[0].kind != IX_EXPR) {
    elab_error(e, E_TYPE, x->op_loc, "%s cannot be indexed like this", say_val(e, &a));
    return VAL_ERR;
  }
  Val i = eval_static(e, s, x->index.at[0].a, "an index");
  if (i.kind == V_ERR) return i;
  int64_t k = i.kind == V_INT && i.i < 0 ? i.i + a.n : i.i;
  if (i.kind == V_INT && k >= 0 && k < a.n) return a.items[k];
  elab_error(e, E_AXIS, x->index.at[0].loc, "index %s is not in 0..%d",
             i.kind == V_INT ? arena_printf(e->arena, "%lld", (long long)i.i) : say_val(e, &i),
             a.n);
  return VAL_ERR;
}

static Val eval_call(Elab *e, const Scope *s, const Expr *x) {
  if (x->a->kind == EX_NAME) {
    const Builtin *op = builtin_find(x->a->text);
    if (op) return builtin_call(e, s, x, op);
    if (!scope_find(s, x->a->text)) {
      Diag *g = elab_error(e, E_UNKNOWN_NAME, x->a->loc,
                           "no operation, layer or function is called `%s`", x->a->text);
      say_nearest_in_scope(e, g, x->a->text, s, true);
      return VAL_ERR;
    }
  }
  Val callee = eval(e, s, x->a);
  return callee.kind == V_ERR ? callee : call_value(e, s, x, &callee);
}

/* Counts take no suffix: 4K could be 4,000 or 4,096. */
static Val size_in_bytes(Elab *e, const Expr *x) {
  Diag *d = elab_error(e, E_TYPE, x->loc, "`%s` is a size in bytes, not a count", say_expr(e, x));
  diag_help(e->d, d, "write %.0f, or what you mean, in full", x->num);
  return VAL_ERR;
}

Val eval(Elab *e, const Scope *s, const Expr *x) {
  switch (x->kind) {
    case EX_NAME:
      return eval_name(e, s, x);
    case EX_NUM:
      return x->is_int ? val_int((int64_t)x->num, NULL) : val_num(x->num);
    case EX_SIZE:
      return size_in_bytes(e, x);
    case EX_STRING:
      return val_str(x->text);
    case EX_BOOL:
      return val_bool(x->num != 0);
    case EX_NONE:
      return VAL_NONE;
    case EX_AUTO:
      return (Val){.kind = V_AUTO};
    case EX_DTYPE:
      return (Val){.kind = V_DTYPE, .i = x->dtype, .s = x->text};
    case EX_TUPLE:
    case EX_LIST:
      return eval_tuple(e, s, x);
    case EX_UNARY:
      return eval_unary(e, s, x);
    case EX_BINARY:
      return eval_binary(e, s, x);
    case EX_AS: {
      Val a = eval(e, s, x->a);
      return a.kind == V_ERR ? a : tensor_as(e, s, x, a);
    }
    case EX_COND: {
      bool yes;
      if (!eval_cond(e, s, x->a, &yes)) return VAL_ERR;
      return eval(e, s, yes ? x->b : x->c);
    }
    case EX_CALL:
      return eval_call(e, s, x);
    case EX_INDEX:
      return eval_index(e, s, x);
    case EX_FIELD:
      return eval_field(e, s, x);
  }
  bug("expression of kind %d", x->kind);
}

Val eval_static(Elab *e, const Scope *s, const Expr *x, const char *what) {
  Val v = eval(e, s, x);
  if (v.kind != V_TENSOR) return v;
  Diag *g = elab_error(e, E_STATIC, x->loc, "%s must be known at compile time", what);
  diag_primary_label(e->d, g, "%s", say_val(e, &v));
  return VAL_ERR;
}

bool eval_dim(Elab *e, const Scope *s, const Expr *x, int64_t *dim, const char **name) {
  Val v = eval_static(e, s, x, "a dimension");
  *name = v.kind == V_INT && x->kind == EX_NAME ? v.name : NULL;
  *dim = v.i;
  if (v.kind == V_INT && v.i >= 0) return true;
  if (v.kind == V_NUM) {
    elab_error(e, E_VALUE, x->loc, "a dimension must be a whole number: `%s` is %g", say_expr(e, x),
               v.f);
  } else if (v.kind == V_INT) {
    elab_error(e, E_VALUE, x->loc, "a dimension cannot be negative: `%s` is %lld", say_expr(e, x),
               (long long)v.i);
  } else if (v.kind != V_ERR) {
    elab_error(e, E_TYPE, x->loc, "a dimension must be a number, not %s", say_val(e, &v));
  }
  return false;
}
