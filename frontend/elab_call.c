/* elab_call.c - calls of layers and functions, and the statements of their bodies. */
#include <string.h>
#include "elab.h"

/* ---- which argument goes where ---- */

static void say_signature(Elab *e, Diag *d, const Callee *c) {
  if (c->signature) diag_note(e->d, d, "%s", c->signature);
}

static bool unknown_argument(Elab *e, const Arg *a, const Callee *c) {
  Diag *d = elab_error(
      e, c->unknown, a->name_loc,
      c->unknown == E_UNKNOWN_SETTING ? "unknown setting `%s` in `%s`" : "no argument `%s` in %s",
      a->name, c->what);
  say_nearest(e, d, a->name, c->names, c->n);
  say_signature(e, d, c);
  return false;
}

static bool twice(Elab *e, const Arg *a, const Callee *c, int k) {
  Diag *d = elab_error(e, E_ARGUMENT, a->name ? a->name_loc : a->loc,
                       "argument `%s` of %s is given twice", c->names[k], c->what);
  say_signature(e, d, c);
  return false;
}

bool match_args(Elab *e, const Expr *call, const Callee *c, int *slot) {
  int place = 0;
  for (int k = 0; k < c->n; k++) slot[k] = -1;
  for (int i = 0; i < call->args.n; i++) {
    const Arg *a = &call->args.at[i];
    int k = place;
    if (a->name) {
      for (k = 0; k < c->n && c->names[k] != a->name; k++) continue;
      if (k == c->n) return unknown_argument(e, a, c);
    } else if (place++ >= c->n) {
      Diag *d = elab_error(e, E_ARGUMENT, a->loc, "%s takes %d argument%s, not %d", c->what, c->n,
                           c->n == 1 ? "" : "s", call->args.n);
      say_signature(e, d, c);
      return false;
    }
    if (slot[k] >= 0) return twice(e, a, c, k);
    slot[k] = i;
  }
  for (int k = 0; k < c->n; k++) {
    if (!c->required[k] || slot[k] >= 0) continue;
    Diag *d = elab_error(e, E_ARGUMENT, caret(call), "argument `%s` of %s is missing", c->names[k],
                         c->what);
    say_signature(e, d, c);
    if (loc_ok(c->decl)) diag_label(e->d, d, c->decl, "declared here");
    return false;
  }
  return true;
}

/* ---- functions ---- */

static const char *fn_signature(Elab *e, const Fn *fn) {
  Str s = {.arena = e->arena};
  str_addf(&s, "%s(", fn->name.text);
  for (int i = 0; i < fn->args.n; i++) {
    const FnArg *a = &fn->args.at[i];
    str_addf(&s, "%s%s", i ? ", " : "", a->name.text);
    if (a->type) str_addf(&s, " %s", say_type(e, a->type));
    if (a->value) str_addf(&s, " = %s", say_expr(e, a->value));
  }
  str_add(&s, ")");
  return s.text;
}

/* Evaluates the arguments of a call of fn, in the order of its formals. */
static bool call_args(Elab *e, const Scope *s, const Expr *x, const char *what, const Fn *fn,
                      const Scope *home, Val *args, const Expr **exprs) {
  int n = fn->args.n;
  const char **names = arena_array(elab_arena(e), const char *, n);
  bool *required = arena_array(elab_arena(e), bool, n);
  int *slot = arena_array(elab_arena(e), int, n);
  for (int i = 0; i < n; i++) {
    names[i] = fn->args.at[i].name.text;
    required[i] = !fn->args.at[i].value;
  }
  Callee c = {.what = what,
              .decl = fn->name.loc,
              .n = n,
              .names = names,
              .required = required,
              .unknown = E_ARGUMENT};
  bool fits = x->args.n <= n;
  for (int i = 0; fits && i < n; i++) fits = i < x->args.n ? !x->args.at[i].name : !required[i];
  if (!fits) c.signature = fn_signature(e, fn); /* only calls that may be wrong need the words */
  if (!match_args(e, x, &c, slot)) return false;
  bool ok = true;
  for (int i = 0; i < n; i++) {
    exprs[i] = slot[i] >= 0 ? x->args.at[slot[i]].value : NULL;
    args[i] = exprs[i] ? eval(e, s, exprs[i]) : eval(e, home, fn->args.at[i].value);
    ok &= args[i].kind != V_ERR;
  }
  return ok;
}

Val call_value(Elab *e, const Scope *s, const Expr *x, const Val *callee) {
  const Inst *inst = callee->inst;
  const Unit *unit = callee->unit;
  const Fn *fn = callee->fn;
  if (callee->kind == V_LAYER) {
    fn = inst_fn(inst, "forward", &inst);
    if (!fn) {
      Diag *d = elab_error(e, E_UNKNOWN_NAME, caret(x), "block `%s` has no function `forward`",
                           callee->inst->item->name.text);
      diag_label(e->d, d, callee->inst->item->name.loc, "declared here");
      return VAL_ERR;
    }
    unit = inst->unit;
  } else if (callee->kind == V_BLOCK) {
    Diag *d =
        elab_error(e, E_TYPE, caret(x), "%s cannot be called in an expression", say_val(e, callee));
    diag_help(e->d, d, "declare it: `layer name = %s`", say_expr(e, x));
    return VAL_ERR;
  } else if (callee->kind != V_FN) {
    elab_error(e, E_TYPE, caret(x), "%s cannot be called", say_val(e, callee));
    return VAL_ERR;
  }
  if (!e->b && callee->kind == V_LAYER) {
    elab_error(e, E_STATIC, caret(x), "the result of layer `%s` is not known at compile time",
               inst->path);
    return VAL_ERR;
  }
  const char *what = arena_printf(elab_arena(e), "`%s`", fn->name.text);
  if (callee->kind == V_LAYER) what = arena_printf(elab_arena(e), "layer `%s`", callee->inst->path);
  Val *args = arena_array(elab_arena(e), Val, fn->args.n);
  const Expr **exprs = arena_array(elab_arena(e), const Expr *, fn->args.n);
  if (!call_args(e, s, x, what, fn, inst ? &inst->scope : &unit->scope, args, exprs))
    return VAL_ERR;
  return call_fn(e, inst, unit, fn, x, args, exprs);
}

/* ---- statements ---- */

static void exec_list(Elab *e, Frame *f, const StmtList *list);

/* The frame ends with a mistake: nothing after it can be judged. */
static void give_up(Frame *f) {
  f->returned = true;
  f->result = VAL_ERR;
}

static void exec_set(Elab *e, Frame *f, const Stmt *st) {
  Val v = eval(e, &f->scope, st->value);
  Arena *a = elab_arena(e);
  int n = st->targets.n;
  if (n == 1) {
    scope_set(a, &f->scope, st->targets.at[0].text, v, st->targets.at[0].loc);
    return;
  }
  bool fits = v.kind == V_TUPLE && v.n == n;
  if (!fits && v.kind != V_ERR)
    elab_error(e, E_TYPE, caret(st->value), "%d names on the left, %s on the right", n,
               v.kind == V_TUPLE ? arena_printf(e->arena, "%d values", v.n) : say_val(e, &v));
  for (int i = 0; i < n; i++)
    scope_set(a, &f->scope, st->targets.at[i].text, fits ? v.items[i] : VAL_ERR,
              st->targets.at[i].loc);
}

static void exec_update(Elab *e, Frame *f, const Stmt *st) {
  const Name *name = &st->targets.at[0];
  const Binding *b = scope_find(&f->scope, name->text);
  const Var *var = b && b->val.kind == V_VAR ? &e->job->vars->all.at[b->val.i] : NULL;
  if (!var || var->role != VAR_STATE) {
    Diag *d = elab_error(e, b ? E_TYPE : E_UNKNOWN_NAME, name->loc,
                         "`:=` updates a state; `%s` is %s", name->text,
                         var ? "a parameter"
                         : b ? say_val(e, &b->val)
                             : "unknown");
    if (!b) say_nearest_in_scope(e, d, name->text, &f->scope, false);
    return;
  }
  if (!e->b->training) {
    Diag *d =
        elab_error(e, E_STATIC, name->loc, "state `%s` is updated outside of training", name->text);
    diag_help(e->d, d, "put it under `if training { .. }`");
    return;
  }
  Val v = eval(e, &f->scope, st->value);
  if (v.kind == V_ERR) return;
  e->b->g->here.loc = name->loc;
  v = tensor_of(e, v, var->dtype);
  if (v.kind != V_TENSOR || !shape_equal(&tval(e, &v)->shape, &var->shape) ||
      tval(e, &v)->dtype != var->dtype) {
    Diag *d = elab_error(e, E_SHAPE, name->loc, "state `%s` is %s %s, its new value %s", name->text,
                         dtype_name(var->dtype), shape_text(e->arena, &var->shape), say_val(e, &v));
    diag_label(e->d, d, var->loc, "declared here");
    return;
  }
  g_assign(e->b->g, (int)b->val.i, v.v);
}

/* Everything is unrolled: a bound on that, so that no model keeps the compiler busy for hours. */
static bool too_much(Elab *e, Loc at) {
  enum { MOST = 1000000 };
  if (++e->work <= MOST) return false;
  if (e->work == MOST + 1)
    elab_error(e, E_VALUE, at, "the model unrolls into more than %d calls and rounds of loops",
               MOST);
  return true;
}

/* What `for` walks over: a range, a tuple, an array of layers. */
static bool loop_items(Elab *e, Frame *f, const Stmt *st, Val *out) {
  if (!st->to) {
    *out = eval(e, &f->scope, st->value);
    if (out->kind == V_LAYERS || out->kind == V_TUPLE) return true;
    if (out->kind != V_ERR)
      elab_error(e, E_TYPE, st->value->loc, "`for` walks over layers, tuples and ranges, not %s",
                 say_val(e, out));
    return false;
  }
  enum { MOST = 100000 };
  int64_t from, to;
  const char *name;
  if (!eval_dim(e, &f->scope, st->value, &from, &name) ||
      !eval_dim(e, &f->scope, st->to, &to, &name))
    return false;
  int64_t n = to > from ? to - from : 0;
  if (n > MOST) {
    elab_error(e, E_VALUE, st->to->loc, "a loop of %lld rounds is too long", (long long)n);
    return false;
  }
  Val *items = arena_array(elab_arena(e), Val, n);
  for (int64_t i = 0; i < n; i++) items[i] = val_int(from + i, NULL);
  *out = (Val){.kind = V_TUPLE, .items = items, .n = (int)n};
  return true;
}

/* One target takes the item; two take its index and the item. */
static void exec_for(Elab *e, Frame *f, const Stmt *st) {
  Val list;
  if (!loop_items(e, f, st, &list)) {
    give_up(f);
    return;
  }
  int n = st->targets.n;
  if (n > 2) {
    elab_error(e, E_ARGUMENT, st->targets.at[2].loc, "`for` has one name, or two: index and item");
    return;
  }
  for (int i = 0; i < list.n && !f->returned && !diag_full(e->d); i++) {
    Arena *a = elab_arena(e);
    if (too_much(e, st->loc)) give_up(f);
    if (n == 2) scope_set(a, &f->scope, st->targets.at[0].text, val_int(i, NULL), st->loc);
    scope_set(a, &f->scope, st->targets.at[n - 1].text, list.items[i], st->loc);
    exec_list(e, f, &st->body);
  }
}

static void exec_return(Elab *e, Frame *f, const Stmt *st) {
  f->returned = true;
  f->result = VAL_ERR;
  int n = st->results.n, promised = f->fn->returns.n;
  Val *items = arena_array(elab_arena(e), Val, n);
  bool ok = true;
  for (int i = 0; i < n; i++) {
    items[i] = eval(e, &f->scope, st->results.at[i]);
    ok &= items[i].kind != V_ERR;
  }
  if (!ok) return;
  const Val *all = items;
  if (promised > 1 && n == 1 && items[0].kind == V_TUPLE) { /* return f(x), with f's tuple */
    all = items[0].items;
    n = items[0].n;
  }
  if (promised && promised != n) {
    Diag *d =
        elab_error(e, E_PROMISE, st->results.at[0]->loc, "`%s` promises %d value%s, returns %d",
                   f->fn->name.text, promised, promised == 1 ? "" : "s", n);
    diag_label(e->d, d, f->fn->returns.at[0]->loc, "promised");
    return;
  }
  Val *out = arena_copy(elab_arena(e), all, sizeof *all * (size_t)n);
  for (int i = 0; i < promised && ok; i++)
    ok = check_result(e, f, i, &out[i], st->results.at[i < st->results.n ? i : 0]);
  if (!ok) return;
  f->result = n == 1 ? out[0] : (Val){.kind = V_TUPLE, .items = out, .n = n};
}

static void exec(Elab *e, Frame *f, const Stmt *st) {
  switch (st->kind) {
    case ST_SET:
      exec_set(e, f, st);
      return;
    case ST_UPDATE:
      if (e->b)
        exec_update(e, f, st);
      else
        elab_error(e, E_STATIC, st->loc, "`:=` has no place in a compile-time function");
      return;
    case ST_FOR:
      exec_for(e, f, st);
      return;
    case ST_RETURN:
      exec_return(e, f, st);
      return;
    case ST_IF: {
      bool yes;
      if (eval_cond(e, &f->scope, st->value, &yes))
        exec_list(e, f, yes ? &st->body : &st->other);
      else
        give_up(f);
      return;
    }
  }
}

static void exec_list(Elab *e, Frame *f, const StmtList *list) {
  for (int i = 0; i < list->n && !f->returned && !diag_full(e->d); i++) exec(e, f, list->at[i]);
}

/* ---- one call ---- */

static bool recursive(Elab *e, const Inst *inst, const Fn *fn, const Expr *call) {
  for (const Frame *f = e->frame; f; f = f->up) {
    if (f->fn != fn || f->inst != inst) continue;
    Diag *d = elab_error(e, E_RECURSION, call ? caret(call) : fn->name.loc,
                         "function `%s` calls itself", fn->name.text);
    diag_label(e->d, d, fn->name.loc, "declared here");
    diag_help(e->d, d, "`for` repeats; everything is unrolled at compile time");
    return true;
  }
  return false;
}

/* Elements of layer arrays number the graph: what precedes the first is layer 0, each element is
 * the next, what follows the last is the last. Nested arrays belong to the outer element. */
static void enter_element(Build *b) {
  if (b->g->nodes.n > b->mark) b->g->here.layer++;
  b->in_element = true;
}

static void leave_element(Build *b) {
  b->g->here.layer++;
  b->mark = b->g->nodes.n;
  b->in_element = false;
}

static void note_called(Elab *e, const Fn *fn) {
  for (int i = 0; i < e->called.n; i++)
    if (e->called.at[i] == fn) return;
  vec_push(e->arena, &e->called, fn);
}

/* Runs the body with here.path of the layer. */
static void run_body(Elab *e, Frame *f) {
  Build *b = e->b;
  if (b && f->inst == e->root) note_called(e, f->fn);
  const char *path = b ? b->g->here.path : NULL;
  Loc loc = b ? b->g->here.loc : NO_LOC;
  bool element = b && f->inst && f->inst->element && !b->in_element;
  if (element) enter_element(b);
  if (b && f->inst) b->g->here.path = f->inst->path;
  f->up = e->frame;
  e->frame = f;
  exec_list(e, f, &f->fn->body);
  if (!f->returned && f->fn->returns.n && !diag_full(e->d)) {
    Diag *d = elab_error(e, E_PROMISE, f->fn->name.loc, "`%s` promises %s but returns nothing",
                         f->fn->name.text, say_type(e, f->fn->returns.at[0]));
    diag_label(e->d, d, f->fn->returns.at[0]->loc, "promised");
    f->result = VAL_ERR;
  }
  e->frame = f->up;
  if (b) b->g->here.path = path;
  if (b) b->g->here.loc = loc;
  if (element) leave_element(b);
}

Val call_fn(Elab *e, const Inst *inst, const Unit *unit, const Fn *fn, const Expr *call,
            const Val *args, const Expr *const *exprs) {
  if (recursive(e, inst, fn, call) || too_much(e, call ? caret(call) : fn->name.loc))
    return VAL_ERR;
  Frame f = {
      .inst = inst, .fn = fn, .call = call ? caret(call) : NO_LOC, .result = VAL_NONE, .lead = -1};
  f.scope.up = inst ? &inst->scope : &unit->scope;
  bool ok = true;
  for (int i = 0; i < fn->args.n; i++) {
    Val v = args[i];
    if (e->b && !unify_arg(e, &f, &fn->args.at[i], &v, exprs ? exprs[i] : NULL, call)) ok = false;
    scope_set(elab_arena(e), &f.scope, fn->args.at[i].name.text, v, fn->args.at[i].name.loc);
  }
  if (ok) run_body(e, &f);
  if (!ok || f.result.kind == V_ERR) return promised_value(e, &f);
  return f.result;
}
