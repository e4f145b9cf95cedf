/* weights.c - the `weights` map: checkpoint keys to variables, `{i}` over layer arrays filled in.
 */
#include <string.h>
#include "elab.h"

typedef struct {
  const char *name; /* i of {i}, interned */
  int64_t value;    /* -1: not chosen yet */
} Place;

typedef struct {
  Elab *e;
  const Entry *entry;
  const char *key;
  Place place[MAX_RANK];
  int n;
} Mapping;

/* What a path leads to, so far. */
typedef enum { AT_ERROR, AT_ABSENT, AT_OPEN, AT_LAYER, AT_ARRAY, AT_VAR } At;
typedef struct {
  At at;
  Val val;
  bool transposed;
  Place *open; /* OPEN: an index that runs over .. */
  int count;   /* .. so many layers */
} Target;

static Target wrong(Mapping *m, const Expr *x, const char *what) {
  Diag *d = diag_error(m->e->d, E_NO_MATCH, x->loc, "%s", what);
  diag_note(m->e->d, d, "for the key \"%s\"", m->key);
  return (Target){.at = AT_ERROR};
}

static Place *find_place(Mapping *m, const char *name) {
  for (int i = 0; i < m->n; i++)
    if (m->place[i].name == name) return &m->place[i];
  return NULL;
}

static Target member(Mapping *m, const Inst *in, const char *name, const Expr *x, Loc at) {
  const Binding *b = inst_find(in, name);
  if (!b && inst_declares(in, name)) return (Target){.at = AT_ABSENT};
  if (b && b->val.kind == V_LAYER) return (Target){.at = AT_LAYER, .val = b->val};
  if (b && b->val.kind == V_LAYERS) return (Target){.at = AT_ARRAY, .val = b->val};
  if (b && b->val.kind == V_VAR) return (Target){.at = AT_VAR, .val = b->val};
  if (b && b->val.kind == V_ERR) return (Target){.at = AT_ERROR};
  Diag *d =
      diag_error(m->e->d, E_NO_MATCH, at, "%s has no parameter or layer `%s`",
                 *in->path ? arena_printf(m->e->arena, "layer `%s`", in->path) : "the model", name);
  say_nearest_in_scope(m->e, d, name, &(Scope){.all = in->scope.all}, false);
  diag_note(m->e->d, d, "in `%s`, for the key \"%s\"", say_expr(m->e, x), m->key);
  return (Target){.at = AT_ERROR};
}

static Target element(Mapping *m, const Target *t, const Expr *x) {
  if (t->at != AT_ARRAY || x->index.n != 1 || x->index.at[0].kind != IX_EXPR)
    return wrong(m, x, "an index `[i]` picks one layer of an array");
  const Expr *ix = x->index.at[0].a;
  Place *p = ix->kind == EX_NAME ? find_place(m, ix->text) : NULL;
  if (p && p->value < 0) return (Target){.at = AT_OPEN, .open = p, .count = t->val.n};
  int64_t i = p ? p->value : -1;
  if (!p) {
    Val v = eval_static(m->e, &m->e->root->scope, ix, "an index");
    if (v.kind != V_INT)
      return wrong(m, ix, "an index is a number, or the name in `{..}` of the key");
    i = v.i;
  }
  if (i < 0 || i >= t->val.n)
    return wrong(m, x,
                 arena_printf(m->e->arena, "layer %lld of %d is indexed", (long long)i, t->val.n));
  return (Target){.at = AT_LAYER, .val = t->val.items[i]};
}

static Target follow(Mapping *m, const Expr *x) {
  if (x->kind == EX_NAME) return member(m, m->e->root, x->text, x, x->loc);
  if (x->kind == EX_INDEX) {
    Target t = follow(m, x->a);
    return t.at == AT_LAYER || t.at == AT_VAR || t.at == AT_ARRAY ? element(m, &t, x) : t;
  }
  if (x->kind != EX_FIELD)
    return wrong(m, x, "a key is mapped to a parameter, such as `h[i].attn.q.w`");
  Target t = follow(m, x->a);
  if (t.at == AT_LAYER) return member(m, t.val.inst, x->text, x, x->op_loc);
  if (t.at == AT_VAR && !strcmp(x->text, "T")) {
    if (m->e->job->vars->all.at[t.val.i].shape.rank != 2)
      return wrong(m, x, "`.T` needs a parameter with 2 axes");
    t.transposed = !t.transposed;
    return t;
  }
  if (t.at == AT_ARRAY) return wrong(m, x->a, "an index `[i]` is missing");
  if (t.at == AT_VAR)
    return wrong(m, x, arena_printf(m->e->arena, "a parameter has no `%s`", x->text));
  return t;
}

/* The key with the chosen indices in the place of `{i}`. */
static const char *filled(const Mapping *m) {
  Str s = {.arena = m->e->arena};
  for (const char *p = m->key; *p;) {
    const char *end = *p == '{' ? strchr(p, '}') : NULL;
    const Place *place = NULL;
    for (int i = 0; end && i < m->n; i++)
      if (strlen(m->place[i].name) == (size_t)(end - p - 1) &&
          !strncmp(m->place[i].name, p + 1, (size_t)(end - p - 1)))
        place = &m->place[i];
    if (place) {
      str_addf(&s, "%lld", (long long)place->value);
      p = end + 1;
    } else {
      str_add_n(&s, p++, 1);
    }
  }
  return intern(s.text ? s.text : "");
}

static bool add_key(Mapping *m, const Target *t) {
  Job *j = m->e->job;
  for (int i = 0; i < m->n; i++)
    if (m->place[i].value < 0) {
      wrong(m, m->entry->value,
            arena_printf(m->e->arena, "the parameter does not depend on `{%s}`", m->place[i].name));
      return false;
    }
  const char *key = filled(m);
  for (int i = 0; i < j->weights.n; i++)
    if (j->weights.at[i].key == key) {
      Diag *d = diag_error(m->e->d, E_REDEFINED, m->entry->loc, "key \"%s\" is mapped twice", key);
      diag_label(m->e->d, d, j->weights.at[i].loc, "first here");
      return false;
    }
  vec_push(m->e->arena, &j->weights,
           ((WeightMap){key, (int)t->val.i, t->transposed, m->entry->loc}));
  return true;
}

/* Expands one index after the other; false stops after the first mistake. */
static bool expand(Mapping *m) {
  Target t = follow(m, m->entry->value);
  switch (t.at) {
    case AT_ERROR:
      return false;
    case AT_ABSENT:
      return true; /* of a branch of `if` that this model does not take */
    case AT_VAR:
      return add_key(m, &t);
    case AT_OPEN:
      for (int i = 0; i < t.count; i++) {
        t.open->value = i;
        if (!expand(m)) return false;
      }
      t.open->value = -1;
      return true;
    default:
      wrong(m, m->entry->value, "a key is mapped to a parameter, not to a layer");
      return false;
  }
}

/* Collects the names in `{..}` of the key. */
static bool places(Mapping *m) {
  for (const char *p = strchr(m->key, '{'); p; p = strchr(p + 1, '{')) {
    const char *end = strchr(p, '}');
    if (!end || m->n == MAX_RANK) return false;
    const char *name = intern_n(p + 1, (size_t)(end - p - 1));
    if (!find_place(m, name)) m->place[m->n++] = (Place){name, -1};
  }
  return true;
}

static void map_entry(Elab *e, const Entry *en) {
  if (en->kind != EN_SET_PATTERN) {
    Diag *d =
        diag_error(e->d, E_TYPE, en->loc, "`weights` holds lines like `\"key\" = h[i].attn.q.w`");
    if (en->key.text) diag_help(e->d, d, "put the key in quotes");
    return;
  }
  for (int i = 0; i < en->patterns.n; i++) {
    Mapping m = {.e = e, .entry = en, .key = en->patterns.at[i].text};
    if (places(&m))
      expand(&m);
    else
      diag_error(e->d, E_NO_MATCH, en->patterns.at[i].loc, "`{` is not closed in this key");
  }
}

/* Of one file: the section that is named like `init`, else the first. */
static const Item *choose(const Elab *e, const File *f) {
  const Item *first = NULL;
  for (int i = 0; i < f->items.n; i++) {
    const Item *it = f->items.at[i];
    if (it->kind != IT_SECTION || strcmp(it->key.text, "weights")) continue;
    if (!first) first = it;
    if (e->job->init && it->name.text && !strcmp(it->name.text, e->job->init)) return it;
  }
  return first;
}

void job_weights(Elab *e) {
  const Item *it = choose(e, e->main->file);
  if (!it && e->model_unit && e->model_unit != e->main) it = choose(e, e->model_unit->file);
  if (!it) return;
  e->job->weights_name = it->name.text;
  for (int i = 0; i < it->entries.n && !diag_full(e->d); i++) map_entry(e, it->entries.at[i]);
}
