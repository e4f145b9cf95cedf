/* elab_static.c - values that are known at compile time: constructors, scopes, arithmetic,
 * comparison. Whole numbers stay whole: `/` gives a whole number when it divides evenly and a
 * fraction when not. */
#include <math.h>
#include <string.h>
#include "elab.h"

Val val_int(int64_t i, const char *name) {
  return (Val){.kind = V_INT, .i = i, .f = (double)i, .name = name};
}
Val val_num(double f) {
  return (Val){.kind = V_NUM, .f = f};
}
Val val_bool(bool b) {
  return (Val){.kind = V_BOOL, .i = b};
}
Val val_str(const char *s) {
  return (Val){.kind = V_STR, .s = s};
}
Val val_tensor(ValueId v) {
  return v < 0 ? VAL_ERR : (Val){.kind = V_TENSOR, .v = v};
}

Binding *scope_find_here(const Scope *s, const char *name) {
  for (int i = 0; i < s->all.n; i++)
    if (s->all.at[i].name == name) return &s->all.at[i];
  return NULL;
}

const Binding *scope_find(const Scope *s, const char *name) {
  for (; s; s = s->up) {
    const Binding *b = scope_find_here(s, name);
    if (b) return b;
  }
  return NULL;
}

void scope_set(Arena *a, Scope *s, const char *name, Val v, Loc loc) {
  Binding *b = scope_find_here(s, name);
  if (b) {
    b->val = v;
    b->loc = loc;
  } else {
    vec_push(a, &s->all, ((Binding){.name = name, .val = v, .loc = loc}));
  }
}

bool val_equal(const Val *a, const Val *b) {
  if (val_is_number(a) && val_is_number(b))
    return a->kind == V_INT && b->kind == V_INT ? a->i == b->i : a->f == b->f;
  if (a->kind != b->kind) return false;
  switch (a->kind) {
    case V_BOOL:
    case V_DTYPE:
      return a->i == b->i;
    case V_STR:
      return !strcmp(a->s, b->s);
    case V_LAYER:
      return a->inst == b->inst;
    default:
      return a->kind == V_NONE || a->kind == V_AUTO;
  }
}

static Val too_large(Elab *e, const Expr *x) {
  elab_error(e, E_VALUE, caret(x), "`%s` is too large", say_expr(e, x));
  return VAL_ERR;
}

static Val power(Elab *e, const Expr *x, const Val *a, const Val *b) {
  if (a->kind != V_INT || b->kind != V_INT || b->i < 0) return val_num(pow(a->f, b->f));
  int64_t r = 1;
  if (b->i > 63 && (a->i > 1 || a->i < -1)) return too_large(e, x);
  int64_t times = a->i >= -1 && a->i <= 1 ? (b->i > 1 ? 2 - b->i % 2 : b->i) : b->i;
  for (int64_t k = 0; k < times; k++)
    if (__builtin_mul_overflow(r, a->i, &r)) return too_large(e, x);
  return val_int(r, NULL);
}

static Val divide(Elab *e, const Expr *x, const Val *a, const Val *b) {
  if (b->f == 0) {
    elab_error(e, E_VALUE, caret(x), "`%s` divides by 0", say_expr(e, x));
    return VAL_ERR;
  }
  bool whole = a->kind == V_INT && b->kind == V_INT;
  if (x->op == '%') {
    if (!whole) return val_num(fmod(a->f, b->f));
    return val_int(b->i == -1 ? 0 : a->i % b->i, NULL);
  }
  if (whole && b->i == -1) return a->i == INT64_MIN ? too_large(e, x) : val_int(-a->i, NULL);
  if (whole && a->i % b->i == 0) return val_int(a->i / b->i, NULL);
  return val_num(a->f / b->f);
}

static Val arithmetic(Elab *e, const Expr *x, const Val *a, const Val *b) {
  int64_t r = 0;
  bool whole = a->kind == V_INT && b->kind == V_INT, over = false;
  switch (x->op) {
    case '+':
      if (!whole) return val_num(a->f + b->f);
      over = __builtin_add_overflow(a->i, b->i, &r);
      break;
    case '-':
      if (!whole) return val_num(a->f - b->f);
      over = __builtin_sub_overflow(a->i, b->i, &r);
      break;
    case '*':
      if (!whole) return val_num(a->f * b->f);
      over = __builtin_mul_overflow(a->i, b->i, &r);
      break;
    case OPR_POW:
      return power(e, x, a, b);
    case '<':
      return val_bool(whole ? a->i < b->i : a->f < b->f);
    case '>':
      return val_bool(whole ? a->i > b->i : a->f > b->f);
    case OPR_LE:
      return val_bool(whole ? a->i <= b->i : a->f <= b->f);
    case OPR_GE:
      return val_bool(whole ? a->i >= b->i : a->f >= b->f);
    default:
      return divide(e, x, a, b);
  }
  return over ? too_large(e, x) : val_int(r, NULL);
}

Val static_binary(Elab *e, const Expr *x, const Val *a, const Val *b) {
  if (a->kind == V_ERR || b->kind == V_ERR) return VAL_ERR;
  if (x->op == OPR_EQ) return val_bool(val_equal(a, b));
  if (x->op == OPR_NE) return val_bool(!val_equal(a, b));
  if (x->op != '@' && val_is_number(a) && val_is_number(b)) return arithmetic(e, x, a, b);
  if (x->op == '@' && val_is_number(a) && val_is_number(b)) {
    elab_error(e, E_TYPE, caret(x), "`@` multiplies matrices, not numbers");
    return VAL_ERR;
  }
  const Val *odd = val_is_number(a) ? b : a;
  const Expr *side = val_is_number(a) ? x->b : x->a;
  Diag *g = elab_error(e, E_TYPE, caret(x), "`%s` takes numbers and tensors, not %s",
                       say_loc(e, x->op_loc), say_val(e, odd));
  diag_label(e->d, g, side->loc, "%s", say_val(e, odd));
  return VAL_ERR;
}
