/* elab_inst.c - layers: blocks are instantiated with their formals, each with its path, variables
 * and children.
 *
 * A wrapper (`wrap "h[*].attn.q" with Lora(..)`) stands in the place of the layer that it wraps and
 * has its path, so that checkpoint names of the base stay what they were: h.0.attn.q.w beside
 * h.0.attn.q.a. When a name of the wrapper is taken by the wrapped layer, the wrapper's variables
 * move below its block's name: h.0.c_attn.lora.b. */
#include <ctype.h>
#include <math.h>
#include <string.h>
#include "builtins.h"
#include "elab.h"

enum { MOST_LAYERS = 10000, MOST_IN_ALL = 50000 };

const Binding *inst_find(const Inst *in, const char *name) {
  for (; in; in = in->wraps) {
    const Binding *b = scope_find_here(&in->scope, name);
    if (b) return b;
  }
  return NULL;
}

const Fn *inst_fn(const Inst *in, const char *name, const Inst **owner) {
  const Binding *b = inst_find(in, intern(name));
  if (!b || b->val.kind != V_FN) return NULL;
  *owner = b->val.inst;
  return b->val.fn;
}

static bool declares(const MemberList *list, const char *name) {
  for (int i = 0; i < list->n; i++) {
    const Member *m = list->at[i];
    if (m->name.text == name && m->kind != ME_PRESET) return true;
    if (m->kind == ME_IF && (declares(&m->body, name) || declares(&m->other, name))) return true;
  }
  return false;
}

bool inst_declares(const Inst *in, const char *name) {
  return declares(&in->item->members, name) || (in->wraps && inst_declares(in->wraps, name));
}

const char *inst_text(Elab *e, const Inst *in) {
  Str s = {.arena = e->arena};
  str_addf(&s, "%s(", in->item->name.text);
  for (int i = 0, said = 0; i < in->item->formals.n; i++) {
    const Formal *f = &in->item->formals.at[i];
    const Binding *b = scope_find_here(&in->scope, f->name.text);
    if (f->value || !b || b->val.kind != V_INT) continue;
    str_addf(&s, "%s%s=%lld", said++ ? ", " : "", f->name.text, (long long)b->val.i);
  }
  str_add(&s, ")");
  return s.text;
}

static const char *below(const char *path, const char *name) {
  return *path ? intern_printf("%s.%s", path, name) : intern(name);
}

/* Adds a name to the layer; E0104 when it is there already. */
static void define(Elab *e, Inst *in, const Name *name, Val v, Loc loc, bool is_let) {
  Binding *old = scope_find_here(&in->scope, name->text);
  if (old) {
    Diag *d = diag_error(e->d, E_REDEFINED, name->loc, "`%s` is defined twice in `%s`", name->text,
                         in->item->name.text);
    diag_label(e->d, d, old->loc, "first here");
    return;
  }
  vec_push(e->arena, &in->scope.all,
           ((Binding){.name = name->text, .val = v, .loc = loc, .is_let = is_let}));
}

/* ---- parameters and states ---- */

/* Inputs of one output: the first axis of a matrix [In, Out], all but the first of a filter [Out,
 * In, K, K]. */
static double fan_in(const Shape *s) {
  if (s->rank <= 2) return s->rank ? (double)s->dim[0] : 1;
  double n = 1;
  for (int k = 1; k < s->rank; k++) n *= (double)s->dim[k];
  return n;
}

static bool member_init(Elab *e, Inst *in, const Member *m, const Shape *shape, Init *out) {
  if (!m->value) {
    bool matrix = m->kind == ME_PARAM && shape->rank >= 2;
    *out = matrix ? (Init){.kind = INIT_NORMAL, .b = 0.02} : (Init){.kind = INIT_ZEROS};
    return true;
  }
  Val v = eval_static(e, &in->scope, m->value, "an initial value");
  if (val_is_number(&v)) {
    *out = (Init){.kind = INIT_CONST, .a = v.f};
    return true;
  }
  if (v.kind != V_INIT) {
    if (v.kind != V_ERR)
      elab_error(e, E_TYPE, m->value->loc,
                 "an initial value is a number, `zeros`, `ones`, `normal(..)`, .. - not %s",
                 say_val(e, &v));
    return false;
  }
  *out = v.init;
  if (v.init_by_fan) out->b = v.init.b / sqrt(fan_in(shape));
  if (v.init_by_fan && out->kind == INIT_UNIFORM) out->a = -out->b;
  return true;
}

static void make_var(Elab *e, Inst *in, const Member *m) {
  Var v = {.role = m->kind == ME_PARAM ? VAR_PARAM : VAR_STATE,
           .of = -1,
           .layer = -1,
           .loc = m->name.loc,
           .trainable = m->kind == ME_PARAM};
  v.path = below(in->prefix, m->name.text);
  v.dtype = m->type->dtype >= 0 ? (DType)m->type->dtype : DT_F32;
  Val val = VAL_ERR;
  if (!dtype_is_float(v.dtype)) {
    elab_error(e, E_TYPE, m->type->loc, "parameters and states are floating-point, not %s",
               dtype_name(v.dtype));
  } else if (type_shape(e, &in->scope, m->type, &v.shape) &&
             member_init(e, in, m, &v.shape, &v.init)) {
    if (scope_find_here(&in->scope, m->name.text)) {
      define(e, in, &m->name, VAL_ERR, m->name.loc, false);
      return;
    }
    val = (Val){.kind = V_VAR, .i = e->job->vars->all.n};
    /* paths are unique by construction: names are unique in a layer, and paths of layers in a model
     */
    vec_push(e->job->vars->arena, &e->job->vars->all, v);
  }
  define(e, in, &m->name, val, m->name.loc, false);
}

/* ---- children ---- */

static Inst *inst_make(Elab *e, const Val *block, const char *path, const char *prefix, Loc decl,
                       const Val *args, const bool *given);

static const char *block_signature(Elab *e, const Item *it) {
  Str s = {.arena = e->arena};
  str_addf(&s, "%s(", it->name.text);
  for (int i = 0; i < it->formals.n; i++) {
    const Formal *f = &it->formals.at[i];
    str_addf(&s, "%s%s", i ? ", " : "", f->name.text);
    if (f->is_layer) str_add(&s, " : layer");
    if (f->value) str_addf(&s, " = %s", say_expr(e, f->value));
  }
  str_add(&s, ")");
  return s.text;
}

/* Values of the formals that the call gives; `wrapped` fills the layer formal without being
 * written. */
static bool block_args(Elab *e, const Scope *s, const Expr *call, const Val *block,
                       const Inst *wrapped, Val *args, bool *given) {
  const Item *it = block->item;
  int n = it->formals.n, m = 0;
  const char **names = arena_array(e->arena, const char *, n);
  bool *required = arena_array(e->arena, bool, n);
  int *slot = arena_array(e->arena, int, n), *at = arena_array(e->arena, int, n);
  bool placed = !wrapped;
  for (int i = 0; i < n; i++) {
    const Formal *f = &it->formals.at[i];
    if (f->is_layer && !placed) {
      placed = given[i] = true;
      args[i] = (Val){.kind = V_LAYER, .inst = wrapped};
      continue;
    }
    at[m] = i;
    required[m] = !f->value;
    names[m++] = f->name.text;
  }
  if (!placed) {
    Diag *d = elab_error(e, E_TYPE, caret(call), "block `%s` cannot wrap: it has no layer formal",
                         it->name.text);
    diag_help(e->d, d, "declare one: `block %s(base : layer, ..)`", it->name.text);
    return false;
  }
  Callee c = {.what = arena_printf(e->arena, "block `%s`", it->name.text),
              .decl = it->name.loc,
              .signature = block_signature(e, it),
              .n = m,
              .names = names,
              .required = required,
              .unknown = E_ARGUMENT};
  if (!match_args(e, call, &c, slot)) return false;
  bool ok = true;
  for (int k = 0; k < m; k++) {
    if (slot[k] < 0) continue;
    const Expr *x = call->args.at[slot[k]].value;
    args[at[k]] = eval_static(e, s, x, "an argument of a block");
    given[at[k]] = true;
    ok &= args[at[k]].kind != V_ERR;
    bool want_layer = it->formals.at[at[k]].is_layer;
    if (args[at[k]].kind != V_ERR && want_layer && args[at[k]].kind != V_LAYER) {
      elab_error(e, E_TYPE, x->loc, "formal `%s` of block `%s` takes a layer, not %s", names[k],
                 it->name.text, say_val(e, &args[at[k]]));
      ok = false;
    }
  }
  return ok;
}

/* The block that a layer expression calls, or NULL after a message. */
static const Binding *called_block(Elab *e, const Scope *s, const Expr *x) {
  const Expr *name = x->kind == EX_CALL ? x->a : x;
  if (x->kind == EX_CALL && name->kind == EX_NAME) {
    const Binding *b = scope_find(s, name->text);
    if (b && b->val.kind == V_BLOCK && b->val.item->kind != IT_DERIVE) return b;
    if (b && b->val.kind == V_ERR) return NULL;
    Diag *d = elab_error(e, b ? E_TYPE : E_UNKNOWN_NAME, name->loc,
                         b ? "%s is not a block" : "no block is called `%s`",
                         b ? say_val(e, &b->val) : name->text);
    if (!b) say_nearest_in_scope(e, d, name->text, s, false);
    return NULL;
  }
  elab_error(e, E_TYPE, x->loc, "a layer is made from a block: `layer name = Block(..)`");
  return NULL;
}

static bool recursive_block(Elab *e, const Val *block, const Expr *x) {
  for (int i = 0; i < e->making.n; i++) {
    if (e->making.at[i]->item != block->item) continue;
    Diag *d =
        elab_error(e, E_RECURSION, caret(x), "block `%s` contains itself", block->item->name.text);
    diag_label(e->d, d, block->item->name.loc, "declared here");
    return true;
  }
  return false;
}

static Inst *call_block(Elab *e, const Scope *s, const Expr *x, const char *path,
                        const char *prefix, Loc decl, const Inst *wrapped) {
  const Binding *b = called_block(e, s, x);
  if (!b || recursive_block(e, &b->val, x)) return NULL;
  int n = b->val.item->formals.n;
  Val *args = arena_array(e->arena, Val, n);
  bool *given = arena_array(e->arena, bool, n);
  if (!block_args(e, s, x, &b->val, wrapped, args, given)) return NULL;
  return inst_make(e, &b->val, path, prefix, decl, args, given);
}

/* Does a name that the wrapper declares exist in the wrapped layer? */
static bool names_clash(const MemberList *list, const Inst *child) {
  for (int i = 0; i < list->n; i++) {
    const Member *m = list->at[i];
    bool owns = m->kind == ME_PARAM || m->kind == ME_STATE || m->kind == ME_LAYER;
    const Binding *b = owns ? inst_find(child, m->name.text) : NULL;
    if (b && (b->val.kind == V_VAR || b->val.kind == V_LAYER || b->val.kind == V_LAYERS))
      return true;
    if (m->kind == ME_IF && (names_clash(&m->body, child) || names_clash(&m->other, child)))
      return true;
  }
  return false;
}

static const char *wrapper_prefix(Elab *e, const Scope *s, const Expr *with, const Inst *child) {
  const Binding *b =
      with->kind == EX_CALL && with->a->kind == EX_NAME ? scope_find(s, with->a->text) : NULL;
  if (!b || b->val.kind != V_BLOCK || !names_clash(&b->val.item->members, child))
    return child->path;
  char *name = arena_printf(e->arena, "%s", b->val.item->name.text);
  for (char *c = name; *c; c++) *c = (char)tolower((unsigned char)*c);
  return below(child->path, name);
}

static Inst *wrapped(Elab *e, Inst *child) {
  for (int w = 0; w < e->wraps.n && child; w++) {
    const WrapUse *use = &e->wraps.at[w];
    bool hit = false;
    for (int p = 0; p < use->wrap->patterns.n; p++) {
      if (!selector_match(use->wrap->patterns.at[p].text, child->path, NULL)) continue;
      use->matched[p] = hit = true;
    }
    if (!hit) continue;
    const Scope *s = &use->unit->scope;
    child = call_block(e, s, use->wrap->with, child->path,
                       wrapper_prefix(e, s, use->wrap->with, child), use->wrap->loc, child);
  }
  return child;
}

/* The value of `layer name = ..`: a new layer, or an existing one under another name. */
static Val make_layer(Elab *e, const Scope *s, const Expr *x, const char *path, Loc decl,
                      bool element) {
  if (x->kind == EX_COND) {
    bool yes;
    if (!eval_cond(e, s, x->a, &yes)) return VAL_ERR;
    return make_layer(e, s, yes ? x->b : x->c, path, decl, element);
  }
  if (x->kind != EX_CALL) {
    Val v = eval(e, s, x);
    if (v.kind == V_LAYER || v.kind == V_ERR) return v;
    elab_error(e, E_TYPE, x->loc, "a layer is made from a block, not from %s", say_val(e, &v));
    return VAL_ERR;
  }
  vec_push(e->arena, &e->layers, path);
  Inst *child = call_block(e, s, x, path, path, decl, NULL);
  if (child) child->element = element;
  if (child) child = wrapped(e, child);
  if (!child) return VAL_ERR;
  child->element = element;
  return (Val){.kind = V_LAYER, .inst = child};
}

static void make_layers(Elab *e, Inst *in, const Member *m) {
  Loc decl = m->loc;
  if (!m->to) {
    Val v = make_layer(e, &in->scope, m->value, below(in->path, m->name.text), decl, false);
    define(e, in, &m->name, v, m->name.loc, false);
    return;
  }
  int64_t from = 0, to = 0;
  const char *name;
  bool ok = (!m->from || eval_dim(e, &in->scope, m->from, &from, &name)) &&
            eval_dim(e, &in->scope, m->to, &to, &name);
  int64_t n = ok && to > from ? to - from : 0;
  if (n > MOST_LAYERS || e->layers.n > MOST_IN_ALL || e->job->vars->all.n > MOST_IN_ALL) {
    if (n > MOST_LAYERS)
      elab_error(e, E_VALUE, m->to->loc, "an array has at most %d layers, not %lld", MOST_LAYERS,
                 (long long)n);
    else
      elab_error(e, E_VALUE, m->to->loc, "the model has more than %d layers or parameters",
                 MOST_IN_ALL);
    ok = false;
  }
  Val v = {.kind = ok ? V_LAYERS : V_ERR, .n = ok ? (int)n : 0};
  Val *items = arena_array(e->arena, Val, v.n);
  for (int i = 0; i < v.n; i++) {
    Scope s = {.up = &in->scope};
    if (m->index.text)
      scope_set(e->arena, &s, m->index.text, val_int(from + i, NULL), m->index.loc);
    const char *path = intern_printf("%s.%d", below(in->path, m->name.text), i);
    items[i] = make_layer(e, &s, m->value, path, decl, true);
    if (items[i].kind != V_ERR) continue;
    v.kind = V_ERR; /* one mistake, one message: the others would make the same */
    break;
  }
  v.items = items;
  define(e, in, &m->name, v, m->name.loc, false);
}

/* ---- members ---- */

/* "D = 768, H = 7" for the names in an expression. */
static void name_values(Elab *e, const Scope *s, const Expr *x, Str *out) {
  if (!x) return;
  const Binding *b = x->kind == EX_NAME ? scope_find(s, x->text) : NULL;
  const char *text =
      b && b->val.kind == V_INT ? arena_printf(e->arena, "%s = %lld", x->text, (long long)b->val.i)
      : b && b->val.kind == V_NUM ? arena_printf(e->arena, "%s = %g", x->text, b->val.f)
                                  : NULL;
  if (text && !(out->text && strstr(out->text, text)))
    str_addf(out, "%s%s", out->text ? ", " : "", text);
  name_values(e, s, x->a, out);
  name_values(e, s, x->b, out);
  name_values(e, s, x->c, out);
}

static void check_require(Elab *e, Inst *in, const Member *m) {
  bool yes;
  if (!eval_cond(e, &in->scope, m->value, &yes) || yes) return;
  const char *what = say_expr(e, m->value);
  Diag *d = m->message ? elab_error(e, E_REQUIRE, m->value->loc, "%s", m->message)
                       : elab_error(e, E_REQUIRE, m->value->loc, "`%s` requires `%s`",
                                    in->item->name.text, what);
  Str s = {.arena = e->arena};
  name_values(e, &in->scope, m->value, &s);
  if (s.text) diag_primary_label(e->d, d, "%s", s.text);
}

static void make_members(Elab *e, Inst *in, const MemberList *list);

static void make_member(Elab *e, Inst *in, const Member *m) {
  switch (m->kind) {
    case ME_PARAM:
    case ME_STATE:
      make_var(e, in, m);
      return;
    case ME_LAYER:
      make_layers(e, in, m);
      return;
    case ME_LET: {
      Val v = eval_static(e, &in->scope, m->value, "a `let`");
      if (v.kind == V_INT && (!v.name || m->value->kind != EX_NAME)) v.name = m->name.text;
      define(e, in, &m->name, v, m->value->loc, true);
      return;
    }
    case ME_REQUIRE:
      check_require(e, in, m);
      return;
    case ME_FN:
      define(e, in, &m->name, (Val){.kind = V_FN, .fn = m->fn, .inst = in, .unit = in->unit},
             m->name.loc, false);
      return;
    case ME_IF: {
      bool yes;
      if (eval_cond(e, &in->scope, m->value, &yes)) make_members(e, in, yes ? &m->body : &m->other);
      return;
    }
    case ME_PRESET:
      return;
  }
}

static void make_members(Elab *e, Inst *in, const MemberList *list) {
  for (int i = 0; i < list->n && !diag_full(e->d); i++) make_member(e, in, list->at[i]);
}

/* A new layer of a block; NULL when its formals or members are wrong. */
static Inst *inst_make(Elab *e, const Val *block, const char *path, const char *prefix, Loc decl,
                       const Val *args, const bool *given) {
  const Item *it = block->item;
  Inst *in = arena_new_of(e->arena, Inst);
  *in = (Inst){.unit = block->unit, .item = it, .path = path, .prefix = prefix, .decl = decl};
  in->scope.up = &block->unit->scope;
  int before = e->d->errors;
  vec_push(e->arena, &e->making, in);
  for (int i = 0; i < it->formals.n; i++) {
    const Formal *f = &it->formals.at[i];
    Val v = given[i] ? args[i] : eval_static(e, &in->scope, f->value, "the default of a formal");
    if (v.kind == V_INT && (!given[i] || !*path)) v.name = f->name.text;
    if (f->is_layer && v.kind == V_LAYER) in->wraps = v.inst;
    define(e, in, &f->name, v, f->name.loc, false);
  }
  make_members(e, in, &it->members);
  e->making.n--;
  return e->d->errors > before ? NULL : in;
}

/* ---- the model ---- */

typedef struct {
  const Expr *call; /* of a derivation, outermost first */
  const Unit *unit;
} Derivation;
typedef VEC(Derivation) Derivations;

/* Follows `model A = B(..) { wrap .. }` to a model with members. */
static bool strip_derivations(Elab *e, Derivations *chain, const Unit **unit, const Item **item) {
  while ((*item)->kind == IT_DERIVE) {
    const Item *it = *item;
    const Expr *callee = it->value->kind == EX_CALL ? it->value->a : it->value;
    const Binding *b = callee->kind == EX_NAME ? scope_find(&(*unit)->scope, callee->text) : NULL;
    if (!b || b->val.kind != V_BLOCK || b->val.item->kind == IT_BLOCK) {
      if (b && b->val.kind == V_ERR) return false;
      Diag *d = elab_error(e, b ? E_TYPE : E_UNKNOWN_NAME, callee->loc, "no model is called `%s`",
                           say_expr(e, callee));
      if (!b && callee->text) say_nearest_in_scope(e, d, callee->text, &(*unit)->scope, false);
      return false;
    }
    for (int i = 0; i < chain->n; i++)
      if (chain->at[i].call == it->value) {
        elab_error(e, E_RECURSION, callee->loc, "model `%s` is derived from itself", it->name.text);
        return false;
      }
    vec_push(e->arena, chain, ((Derivation){it->value, *unit}));
    for (int w = 0; w < it->wraps.n; w++)
      vec_push(e->arena, &e->wraps,
               ((WrapUse){&it->wraps.at[w], *unit,
                          arena_array(e->arena, bool, it->wraps.at[w].patterns.n)}));
    *unit = b->val.unit;
    *item = b->val.item;
  }
  return true;
}

static const Member *find_preset(Elab *e, const Item *model, const char *name) {
  VEC(const char *) names = {0};
  for (int i = 0; i < model->members.n; i++) {
    const Member *m = model->members.at[i];
    if (m->kind != ME_PRESET) continue;
    if (!strcmp(m->name.text, name)) return m;
    vec_push(e->arena, &names, m->name.text);
  }
  Diag *d = diag_error(e->d, E_UNKNOWN_NAME, model->name.loc, "model `%s` has no preset `%s`",
                       model->name.text, name);
  const char *near = nearest_word(name, names.at, names.n);
  if (near) diag_help(e->d, d, "did you mean `%s`?", near);
  Str s = {.arena = e->arena};
  for (int i = 0; i < names.n; i++) str_addf(&s, "%s%s", i ? ", " : "", names.at[i]);
  diag_note(e->d, d, names.n ? "presets: %s" : "it has no presets%s", s.text ? s.text : "");
  return NULL;
}

static const Expr *preset_value(const Member *preset, const char *name) {
  for (int i = 0; preset && i < preset->entries.n; i++)
    if (preset->entries.at[i]->kind == EN_SET && preset->entries.at[i]->key.text == name)
      return preset->entries.at[i]->value;
  return NULL;
}

static const Expr *dim_override(Elab *e, const char *name) {
  const JobArgs *args = e->args;
  const char *text = NULL;
  for (int i = 0; i < args->dims.n; i++)
    if (!strcmp(args->dims.at[i].name, name)) text = args->dims.at[i].value;
  return text ? elab_parse_value(e, arena_printf(e->arena, "-D %s", name), text) : NULL;
}

/* The argument that a chain of derivations gives to formal k: the outermost wins. */
static bool derived_args(Elab *e, const Derivations *chain, const Val *block, Val *args,
                         bool *given) {
  int n = block->item->formals.n;
  for (int c = 0; c < chain->n; c++) {
    const Expr *call = chain->at[c].call;
    if (call->kind != EX_CALL) continue;
    const char **names = arena_array(e->arena, const char *, n);
    bool *required = arena_array(e->arena, bool, n);
    int *slot = arena_array(e->arena, int, n);
    for (int i = 0; i < n; i++) names[i] = block->item->formals.at[i].name.text;
    Callee callee = {.what = arena_printf(e->arena, "model `%s`", block->item->name.text),
                     .signature = block_signature(e, block->item),
                     .decl = NO_LOC,
                     .n = n,
                     .names = names,
                     .required = required,
                     .unknown = E_ARGUMENT};
    if (!match_args(e, call, &callee, slot)) return false;
    for (int i = 0; i < n; i++) {
      if (slot[i] < 0 || given[i]) continue;
      args[i] = eval_static(e, &chain->at[c].unit->scope, call->args.at[slot[i]].value,
                            "an argument of a model");
      given[i] = true;
      if (args[i].kind == V_ERR) return false;
    }
  }
  return true;
}

/* Formals of the model: -D, else the preset, else a derivation's argument, else the default. */
static bool model_args(Elab *e, const Derivations *chain, const Val *block, Val *args,
                       bool *given) {
  const Item *it = block->item;
  const Member *preset = NULL;
  if (e->args->preset && !(preset = find_preset(e, it, e->args->preset))) return false;
  if (!derived_args(e, chain, block, args, given)) return false;
  for (int i = 0; i < it->formals.n; i++) {
    const Formal *f = &it->formals.at[i];
    const Expr *x = dim_override(e, f->name.text);
    if (!x) x = preset_value(preset, f->name.text);
    if (x) {
      args[i] = eval_static(e, &block->unit->scope, x, "a size of the model");
      if (args[i].kind == V_ERR) return false;
      given[i] = true;
    }
    if (given[i] || f->value) continue;
    Diag *d = diag_error(e->d, E_ARGUMENT, f->name.loc, "`%s` of model `%s` has no value",
                         f->name.text, it->name.text);
    diag_help(e->d, d, "give it a default, choose a preset, or pass -D %s=..", f->name.text);
    return false;
  }
  return true;
}

static const Item *last_model(const File *f) {
  for (int i = f->items.n - 1; i >= 0; i--)
    if (f->items.at[i]->kind == IT_MODEL || f->items.at[i]->kind == IT_DERIVE)
      return f->items.at[i];
  return NULL;
}

const Inst *elab_model(Elab *e) {
  Derivations chain = {0};
  e->named_item = last_model(e->main->file);
  if (!e->named_item) {
    diag_error(e->d, E_UNKNOWN_NAME, (Loc){e->main->file->source, 1, 1, 1},
               "this file declares no model");
    return NULL;
  }
  e->model_unit = e->main;
  e->model_item = e->named_item;
  if (!strip_derivations(e, &chain, &e->model_unit, &e->model_item)) return NULL;
  Val block = {.kind = V_BLOCK, .unit = e->model_unit, .item = e->model_item};
  Val *args = arena_array(e->arena, Val, e->model_item->formals.n);
  bool *given = arena_array(e->arena, bool, e->model_item->formals.n);
  if (!model_args(e, &chain, &block, args, given)) return NULL;
  e->root = inst_make(e, &block, "", "", e->named_item->name.loc, args, given);
  if (!e->root) return NULL;
  for (int w = 0; w < e->wraps.n; w++)
    for (int p = 0; p < e->wraps.at[w].wrap->patterns.n; p++) {
      const Name *pattern = &e->wraps.at[w].wrap->patterns.at[p];
      if (!e->wraps.at[w].matched[p]) select_check(e, pattern->text, pattern->loc, true);
    }
  return e->root;
}
