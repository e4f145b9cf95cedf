/* elab_load.c - files: parsing, `use`, the scope of each file, checks of declarations, --set laid
 * over the tree. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "builtins.h"
#include "elab.h"

/* ---- names that may not be declared ---- */

static void no_op_name(Elab *e, const Name *name, const char *what) {
  if (!name->text || !builtin_find(name->text)) return;
  Diag *d = diag_error(e->d, E_SHADOWS_OP, name->loc, "%s `%s` has the name of an operation", what,
                       name->text);
  diag_help(e->d, d, "choose another name; see `mtc help op %s`", name->text);
}

static void check_statements(Elab *e, const StmtList *list) {
  for (int i = 0; i < list->n; i++) {
    const Stmt *st = list->at[i];
    for (int k = 0; k < st->targets.n && st->kind != ST_UPDATE; k++)
      no_op_name(e, &st->targets.at[k], "value");
    check_statements(e, &st->body);
    check_statements(e, &st->other);
  }
}

static void check_fn(Elab *e, const Fn *fn) {
  no_op_name(e, &fn->name, "function");
  for (int i = 0; i < fn->args.n; i++) {
    const Name *name = &fn->args.at[i].name;
    no_op_name(e, name, "argument");
    for (int k = 0; k < i; k++)
      if (fn->args.at[k].name.text == name->text)
        diag_error(e->d, E_REDEFINED, name->loc, "argument `%s` is declared twice", name->text);
  }
  check_statements(e, &fn->body);
}

typedef struct {
  VEC(Name) all;
} Declared;

static void declare(Elab *e, Declared *d, const Name *name, const char *where) {
  if (!name->text) return;
  for (int i = 0; i < d->all.n; i++) {
    if (d->all.at[i].text != name->text) continue;
    Diag *g = diag_error(e->d, E_REDEFINED, name->loc, "`%s` is defined twice in `%s`", name->text,
                         where);
    diag_label(e->d, g, d->all.at[i].loc, "first here");
    return;
  }
  vec_push(e->arena, &d->all, *name);
}

static void check_preset(Elab *e, const Item *it, const Member *m) {
  for (int i = 0; i < m->entries.n; i++) {
    const Entry *en = m->entries.at[i];
    bool known = false;
    VEC(const char *) names = {0};
    for (int k = 0; k < it->formals.n; k++) {
      known |= it->formals.at[k].name.text == en->key.text;
      vec_push(e->arena, &names, it->formals.at[k].name.text);
    }
    if (known && en->kind == EN_SET) continue;
    Diag *d = diag_error(e->d, E_UNKNOWN_SETTING, en->loc,
                         "preset `%s` sets `%s`, which is no formal of `%s`", m->name.text,
                         en->key.text ? en->key.text : "a pattern", it->name.text);
    if (en->key.text) say_nearest(e, d, en->key.text, names.at, names.n);
  }
}

/* Branches of `if` are scopes of their own here: which is taken is known only to each layer. */
static void check_members(Elab *e, const Item *it, const MemberList *list, Declared names) {
  for (int i = 0; i < list->n; i++) {
    const Member *m = list->at[i];
    if (m->kind != ME_PARAM && m->kind != ME_STATE && m->kind != ME_FN && m->kind != ME_PRESET)
      no_op_name(e, &m->name, m->kind == ME_LAYER ? "layer" : "value");
    if (m->kind == ME_FN) check_fn(e, m->fn);
    if (m->kind == ME_PRESET) check_preset(e, it, m);
    if (m->kind != ME_PRESET && m->kind != ME_IF) declare(e, &names, &m->name, it->name.text);
    Declared inner = {0};
    for (int k = 0; m->kind == ME_IF && k < names.all.n; k++)
      vec_push(e->arena, &inner.all, names.all.at[k]);
    if (m->kind == ME_IF) {
      Declared other = {0};
      for (int k = 0; k < names.all.n; k++) vec_push(e->arena, &other.all, names.all.at[k]);
      check_members(e, it, &m->body, inner);
      check_members(e, it, &m->other, other);
    }
  }
}

void elab_declarations(Elab *e, const Unit *u) {
  static const char *const kinds[] = {[IT_LET] = "value",
                                      [IT_FN] = "function",
                                      [IT_BLOCK] = "block",
                                      [IT_MODEL] = "model",
                                      [IT_DERIVE] = "model"};
  for (int i = 0; i < u->file->items.n; i++) {
    const Item *it = u->file->items.at[i];
    if (it->kind == IT_FN) check_fn(e, it->fn);
    if (it->kind == IT_LET || it->kind == IT_BLOCK || it->kind == IT_MODEL || it->kind == IT_DERIVE)
      no_op_name(e, &it->name, kinds[it->kind]);
    Declared names = {0};
    for (int k = 0; k < it->formals.n; k++) {
      no_op_name(e, &it->formals.at[k].name, "formal");
      declare(e, &names, &it->formals.at[k].name, it->name.text);
    }
    check_members(e, it, &it->members, names);
  }
}

/* ---- `use` ---- */

static const char *find_used(Elab *e, const Unit *u, const char *name, Str *tried) {
  const char *at[3] = {path_beside(e->arena, u->path, name), NULL, NULL};
  const char *env = getenv("MTC_MODELS");
  if (env && *env) at[1] = arena_printf(e->arena, "%s/%s", env, name);
#ifdef MTC_MODELS_DIR
  at[2] = arena_printf(e->arena, "%s/%s", MTC_MODELS_DIR, name);
#endif
  for (int i = 0; i < COUNT_OF(at); i++) {
    if (!at[i]) continue;
    if (path_exists(at[i])) return at[i];
    str_addf(tried, "%s%s", tried->text ? ", " : "", at[i]);
  }
  return NULL;
}

static void unit_define(Elab *e, Unit *u, const Name *name, Val v) {
  const Binding *old = scope_find_here(&u->scope, name->text);
  if (old) {
    Diag *d =
        diag_error(e->d, E_REDEFINED, name->loc, "`%s` is defined twice in this file", name->text);
    diag_label(e->d, d, old->loc, "first here");
    return;
  }
  scope_set(e->arena, &u->scope, name->text, v, name->loc);
}

/* Does the file itself declare this name? Imports are not passed on. */
static bool own_name(const Unit *u, const char *name) {
  for (int i = 0; i < u->file->items.n; i++) {
    const Item *it = u->file->items.at[i];
    if (it->name.text == name && it->kind != IT_USE && it->kind != IT_SECTION &&
        it->kind != IT_BIND)
      return true;
  }
  return false;
}

static void import(Elab *e, Unit *u, const Item *use, const Unit *from) {
  for (int i = 0; i < use->names.n; i++) {
    const Name *name = &use->names.at[i];
    const Binding *b =
        own_name(from, name->text) ? scope_find_here(&from->scope, name->text) : NULL;
    if (b) {
      unit_define(e, u, name, b->val);
      continue;
    }
    unit_define(e, u, name, VAL_ERR);
    Diag *d = diag_error(e->d, E_UNKNOWN_NAME, name->loc, "\"%s\" declares no `%s`", use->key.text,
                         name->text);
    VEC(const char *) names = {0};
    for (int k = 0; k < from->scope.all.n; k++)
      if (own_name(from, from->scope.all.at[k].name))
        vec_push(e->arena, &names, from->scope.all.at[k].name);
    say_nearest(e, d, name->text, names.at, names.n);
  }
  for (int k = 0; !use->names.n && k < from->scope.all.n; k++) {
    const Binding *b = &from->scope.all.at[k];
    if (own_name(from, b->name)) unit_define(e, u, &(Name){b->name, use->key.loc}, b->val);
  }
}

static void load_use(Elab *e, Unit *u, const Item *use) {
  Str tried = {.arena = e->arena};
  const char *path = find_used(e, u, use->key.text, &tried);
  const Unit *from = NULL;
  if (path) {
    from = elab_load(e, path, use->key.loc);
  } else {
    Diag *d = diag_error(e->d, E_FILE, use->key.loc, "there is no file \"%s\"", use->key.text);
    diag_note(e->d, d, "looked for %s", tried.text);
  }
  if (from) {
    import(e, u, use, from);
  } else { /* names that a missing file would bring are no further mistakes */
    for (int i = 0; i < use->names.n; i++) unit_define(e, u, &use->names.at[i], VAL_ERR);
  }
}

static void fill_scope(Elab *e, Unit *u) {
  for (int i = 0; i < u->file->items.n; i++) {
    const Item *it = u->file->items.at[i];
    if (it->kind == IT_USE) load_use(e, u, it);
  }
  for (int i = 0; i < u->file->items.n; i++) {
    const Item *it = u->file->items.at[i];
    if (it->kind == IT_BLOCK || it->kind == IT_MODEL || it->kind == IT_DERIVE)
      unit_define(e, u, &it->name, (Val){.kind = V_BLOCK, .item = it, .unit = u});
    else if (it->kind == IT_FN)
      unit_define(e, u, &it->name, (Val){.kind = V_FN, .fn = it->fn, .unit = u});
  }
  for (int i = 0; i < u->file->items.n; i++) {
    const Item *it = u->file->items.at[i];
    if (it->kind != IT_LET) continue;
    Val v = eval_static(e, &u->scope, it->value, "a `let`");
    if (v.kind == V_INT && (!v.name || it->value->kind != EX_NAME)) v.name = it->name.text;
    unit_define(e, u, &it->name, v);
  }
}

Unit *elab_load(Elab *e, const char *path, Loc at) {
  char real[PATH_MAX];
  const char *key = realpath(path, real) ? intern(real) : intern(path);
  for (int i = 0; i < e->units.n; i++) {
    Unit *u = e->units.at[i];
    const char *other = realpath(u->path, real) ? intern(real) : intern(u->path);
    if (other != key) continue;
    if (!u->loading) return u;
    diag_error(e->d, E_RECURSION, at, "\"%s\" uses itself", path);
    return NULL;
  }
  int before = e->d->errors;
  File *f = mt_parse_file(e->arena, e->d, path);
  if (!f || e->d->errors > before) return NULL; /* what is half read would only look wrong */
  Unit *u = arena_new_of(e->arena, Unit);
  u->path = path;
  u->file = f;
  u->loading = true;
  vec_push(e->arena, &e->units, u);
  fill_scope(e, u);
  elab_declarations(e, u);
  u->loading = false;
  return u;
}

/* ---- values from the command line ---- */

Expr *elab_parse_value(Elab *e, const char *what, const char *text) {
  const char *source = arena_printf(e->arena, "let value =\n%s", text);
  int before = e->d->errors;
  File *f = mt_parse_text(e->arena, e->d, what, source, strlen(source));
  if (e->d->errors > before) return NULL;
  if (f && f->items.n == 1 && f->items.at[0]->kind == IT_LET) return f->items.at[0]->value;
  diag_error(e->d, E_SYNTAX, NO_LOC, "%s: `%s` is not one value", what, text);
  return NULL;
}

static Entry *find_entry(const EntryList *list, const char *key) {
  for (int i = list->n - 1; i >= 0; i--)
    if (list->at[i]->key.text && !strcmp(list->at[i]->key.text, key)) return list->at[i];
  return NULL;
}

static Entry *add_entry(Elab *e, EntryList *list, EntryKind kind, const char *key, Loc loc) {
  Entry *en = arena_new_of(e->arena, Entry);
  *en = (Entry){.kind = kind, .key = {intern(key), loc}, .loc = loc, .name = {NULL, loc}};
  vec_push(e->arena, list, en);
  return en;
}

/* `steps` and `epochs` exclude each other: setting one takes the place of the other. */
static void drop_rival(EntryList *list, const char *key) {
  const char *rival = !strcmp(key, "steps") ? "epochs" : !strcmp(key, "epochs") ? "steps" : NULL;
  for (int i = 0; rival && i < list->n; i++)
    if (list->at[i]->key.text && !strcmp(list->at[i]->key.text, rival))
      list->at[i]->key.text = intern(key);
}

static void set_argument(Elab *e, Expr *call, const char *name, Expr *value) {
  for (int i = 0; i < call->args.n; i++) {
    if (!call->args.at[i].name || strcmp(call->args.at[i].name, name)) continue;
    call->args.at[i].value = value;
    return;
  }
  vec_push(
      e->arena, &call->args,
      ((Arg){.name = intern(name), .name_loc = value->loc, .loc = value->loc, .value = value}));
}

/* Follows "dims.T" or "optimizer.lr" below a list of entries and sets the value there. */
static void set_entry(Elab *e, EntryList *list, char *path, Expr *value) {
  char *dot = strchr(path, '.');
  if (!dot) {
    drop_rival(list, path);
    Entry *en = find_entry(list, path);
    if (!en || en->kind != EN_SET) en = add_entry(e, list, EN_SET, path, value->loc);
    en->value = value;
    return;
  }
  *dot = 0;
  Entry *en = find_entry(list, path);
  if (en && en->kind == EN_SET && en->value->kind == EX_CALL) {
    set_argument(e, en->value, dot + 1, value);
    return;
  }
  if (!strcmp(path, "phase")) { /* phase.NAME.key */
    char *name = dot + 1, *rest = strchr(name, '.');
    if (rest) *rest = 0;
    en = NULL;
    for (int i = 0; i < list->n; i++)
      if (list->at[i]->key.text && !strcmp(list->at[i]->key.text, "phase") &&
          list->at[i]->name.text && !strcmp(list->at[i]->name.text, name))
        en = list->at[i];
    if (!en || !rest) {
      diag_error(e->d, E_UNKNOWN_NAME, value->loc, "`train` has no phase `%s`", name);
      return;
    }
    dot = rest;
  }
  if (!en || en->kind != EN_SECTION) en = add_entry(e, list, EN_SECTION, path, value->loc);
  set_entry(e, &en->body, dot + 1, value);
}

static Item *find_item(const File *f, ItemKind kind, const char *key, const char *name) {
  for (int i = 0; i < f->items.n; i++) {
    Item *it = f->items.at[i];
    if (it->kind == kind && it->key.text && !strcmp(it->key.text, key) &&
        (!name || (it->name.text && !strcmp(it->name.text, name))))
      return it;
  }
  return NULL;
}

static void override_data(Elab *e, char *path, Expr *value) {
  char *dot = strchr(path, '.');
  if (dot) *dot = 0;
  Item *it = find_item(e->main->file, IT_BIND, "data", path);
  if (!it || !dot || it->value->kind != EX_CALL) {
    Diag *d = diag_error(e->d, E_UNKNOWN_NAME, value->loc, "the file has no data `%s`", path);
    diag_help(e->d, d, "write --set data.NAME.train=..");
    return;
  }
  set_argument(e, it->value, dot + 1, value);
}

void elab_overrides(Elab *e) {
  for (int i = 0; i < e->args->settings.n; i++) {
    const Override *o = &e->args->settings.at[i];
    const char *what = arena_printf(e->arena, "--set %s", o->name);
    Expr *value = elab_parse_value(e, what, o->value);
    if (!value) continue;
    char *path = arena_printf(e->arena, "%s", o->name), *dot = strchr(path, '.');
    if (!dot || !dot[1]) {
      diag_error(e->d, E_UNKNOWN_SETTING, value->loc, "`%s` names no setting", o->name);
      continue;
    }
    *dot = 0;
    if (!strcmp(path, "data")) {
      override_data(e, dot + 1, value);
      continue;
    }
    Item *it = find_item(e->main->file, IT_SECTION, path, NULL);
    if (!it) {
      it = arena_new_of(e->arena, Item);
      *it = (Item){.kind = IT_SECTION, .loc = value->loc, .key = {intern(path), value->loc}};
      vec_push(e->arena, &e->main->file->items, it);
    }
    set_entry(e, &it->entries, dot + 1, value);
  }
}
