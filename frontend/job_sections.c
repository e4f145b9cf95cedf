/* job_sections.c - data, precision and memory, and what is no section at all. */
#include <math.h>
#include <string.h>
#include "settings.h"

const Scope *job_scope(Elab *e) {
  if (e->settings) return e->settings;
  e->settings = arena_new_of(e->arena, Scope);
  e->settings->up = &e->main->scope;
  for (int i = 0; e->root && i < e->root->item->formals.n; i++) {
    const Binding *b = scope_find_here(&e->root->scope, e->root->item->formals.at[i].name.text);
    if (b) scope_set(e->arena, e->settings, b->name, b->val, b->loc);
  }
  return e->settings;
}

void job_say_not_yet(Elab *e, Loc at, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  const char *what = arena_vprintf(e->arena, fmt, ap);
  va_end(ap);
  for (int i = 0; i < e->not_yet.n; i++)
    if (!strcmp(e->not_yet.at[i], what)) return;
  if (!e->not_yet.n) e->not_yet_loc = at;
  vec_push(e->arena, &e->not_yet, what);
}

/* ---- data ---- */

DataRef job_data_ref(Elab *e, const Expr *x) {
  DataRef none = {-1, false};
  const Expr *name = x->kind == EX_FIELD ? x->a : x;
  Job *j = e->job;
  int found = -1;
  for (int i = 0; name->kind == EX_NAME && i < j->data.n; i++)
    if (!strcmp(j->data.at[i].name, name->text)) found = i;
  if (found < 0) {
    Diag *d =
        diag_error(e->d, E_UNKNOWN_NAME, name->loc, "no data is called `%s`", say_expr(e, name));
    VEC(const char *) names = {0};
    for (int i = 0; i < j->data.n; i++) vec_push(e->arena, &names, j->data.at[i].name);
    if (name->kind == EX_NAME) say_nearest(e, d, name->text, names.at, names.n);
    diag_help(e->d, d, "declare it: `data NAME = tokens(train = \"..\", val = \"..\")`");
    return none;
  }
  bool train = x->kind == EX_FIELD && !strcmp(x->text, "train");
  bool val = x->kind == EX_FIELD && !strcmp(x->text, "val");
  if (!train && !val) {
    Diag *d = diag_error(e->d, E_UNKNOWN_NAME, x->kind == EX_FIELD ? x->op_loc : x->loc,
                         "data `%s` has two parts, `train` and `val`", name->text);
    diag_help(e->d, d, "write `%s.train`", name->text);
    return none;
  }
  const Data *data = &j->data.at[found];
  if (val && !data->val && data->holdout <= 0) {
    Diag *d = diag_error(e->d, E_UNKNOWN_NAME, x->op_loc, "data `%s` has no `val`", name->text);
    diag_label(e->d, d, data->loc, "declared here without `val`%s",
               data->kind == DATA_TSV || data->kind == DATA_IMAGES ? "" : " or `holdout`");
    return none;
  }
  return (DataRef){found, val};
}

static const SetValue *maybe(const Settings *s, const char *key) {
  for (int i = 0; i < s->n; i++)
    if (!strcmp(s->at[i].row->key, key)) return &s->at[i];
  return NULL;
}

static void read_data(Elab *e, const Item *it) {
  Job *j = e->job;
  for (int i = 0; i < j->data.n; i++) {
    if (strcmp(j->data.at[i].name, it->name.text)) continue;
    Diag *d =
        diag_error(e->d, E_REDEFINED, it->name.loc, "data `%s` is defined twice", it->name.text);
    diag_label(e->d, d, j->data.at[i].loc, "first here");
    return;
  }
  Settings s;
  int kind = 0;
  bool ok = settings_call(e, "data", it->value, &s, &kind);
  Data data = {.name = it->name.text,
               .kind = (DataKind)kind,
               .loc = it->name.loc,
               .shuffle = true,
               .holdout = ok ? 0 : 1e-9};
  if (ok) {
    const SetValue *v;
    data.train = settings_get(&s, "train")->text;
    data.val = settings_get(&s, "val")->text;
    data.shuffle = settings_get(&s, "shuffle")->num != 0;
    if ((v = maybe(&s, "dtype"))) data.dtype = v->text;
    if ((v = maybe(&s, "holdout"))) data.holdout = v->num;
    if ((v = maybe(&s, "tokenizer"))) data.tokenizer = v->text;
    if ((v = maybe(&s, "prompt_loss"))) data.prompt_loss = v->num != 0;
    if ((v = maybe(&s, "too_long"))) data.too_long = (TooLong)v->choice;
  }
  vec_push(e->arena, &j->data, data); /* with a mistake as well: its name is known */
}

/* ---- precision, memory ---- */

static int tied_dtype(const Settings *s, const char *key, int auto_is) {
  int t = settings_get(s, key)->dtype;
  return t == PREC_AUTO ? auto_is : t;
}

static void read_rule(Elab *e, const Entry *en) {
  const Expr *x = en->value;
  bool is_auto = x->kind == EX_AUTO;
  bool tf32 = x->kind == EX_DTYPE && !strcmp(x->text, "tf32");
  int dtype = tf32 ? DT_F32 : x->kind == EX_DTYPE ? x->dtype : -1;
  if (!is_auto && (dtype < 0 || !dtype_is_float((DType)dtype))) {
    diag_error(e->d, E_TYPE, x->loc,
               "a selector is given a number format, such as f32 or bf16, or auto");
    return;
  }
  for (int i = 0; i < en->patterns.n; i++) {
    const Name *p = &en->patterns.at[i];
    if (!select_check(e, p->text, p->loc, false)) continue;
    vec_push(e->arena, &e->job->precision.rules,
             ((PrecRule){p->text, is_auto ? PREC_AUTO : dtype, en->loc, tf32}));
  }
}

static bool has_f16(const Precision *p) {
  for (int i = 0; i < p->rules.n; i++)
    if (p->rules.at[i].dtype == DT_F16) return true;
  return p->compute == DT_F16;
}

static void read_loss_scale(Elab *e, const SetValue *v, Precision *p) {
  enum { DYNAMIC, FIXED };
  Settings s = settings_new(e, "loss_scale.dynamic", v->loc);
  int which = DYNAMIC;
  p->scale.on = v->given || has_f16(p);
  if (v->given && !settings_call(e, "loss_scale", v->x, &s, &which)) return;
  p->scale.dynamic = which == DYNAMIC;
  double given = settings_get(&s, which == DYNAMIC ? "init" : "scale")->num;
  p->scale.init = given >= 1 ? exp2(floor(log2(given))) : 1;
  if (which == DYNAMIC) p->scale.interval = (int64_t)settings_get(&s, "interval")->num;
}

static void read_precision(Elab *e, const Item *it) {
  Settings s = settings_new(e, "precision", it ? it->loc : NO_LOC);
  for (int i = 0; it && i < it->entries.n; i++) {
    const Entry *en = it->entries.at[i];
    if (settings_entry(e, &s, en, false) && en->kind == EN_SET_PATTERN) read_rule(e, en);
  }
  Precision *p = &e->job->precision;
  const SetValue *compute = settings_get(&s, "compute");
  p->compute = compute->dtype;
  p->tf32 = compute->text && !strcmp(compute->text, "tf32");
  p->master = tied_dtype(&s, "master", PREC_AUTO);
  p->moments = tied_dtype(&s, "moments", PREC_AUTO);
  p->accum = tied_dtype(&s, "accum", PREC_AUTO);
  p->frozen = tied_dtype(&s, "frozen", p->compute);
  static const char *const may_be_auto[FMT_COUNT] = {"compute", "master", "moments", "accum"};
  for (int i = 0; i < FMT_COUNT; i++)
    p->choice[i].open = settings_get(&s, may_be_auto[i])->dtype == PREC_AUTO;
  read_loss_scale(e, settings_get(&s, "loss_scale"), p);
}

static void read_memory(Elab *e, const Item *it) {
  static const RecomputeMode modes[] = {RC_AUTO, RC_NONE, RC_FULL};
  static const int places[] = {-1, 0, 1};
  Settings s = settings_new(e, "memory", it ? it->loc : NO_LOC);
  for (int i = 0; it && i < it->entries.n; i++) settings_entry(e, &s, it->entries.at[i], false);
  const SetValue *optimizer = settings_get(&s, "optimizer");
  e->job->memory.recompute = modes[settings_get(&s, "recompute")->choice];
  e->job->memory.optimizer = places[optimizer->choice];
}

/* ---- which sections there are ---- */

static const char *const known[] = {"train", "precision", "memory", "weights", "data"};

static bool known_section(Elab *e, const Item *it) {
  bool bind = it->kind == IT_BIND;
  for (int i = 0; i < COUNT_OF(known); i++)
    if (!strcmp(known[i], it->key.text) && (i == 4) == bind) return true;
  Diag *d = diag_error(e->d, E_UNKNOWN_SETTING, it->key.loc,
                       bind ? "`%s NAME = ..` is not a declaration" : "there is no section `%s`",
                       it->key.text);
  say_nearest(e, d, it->key.text, bind ? known + 4 : known, bind ? 1 : 4);
  return false;
}

void job_sections(Elab *e) {
  const Item *first[COUNT_OF(known)] = {0};
  const File *f = e->main->file;
  for (int i = 0; i < f->items.n; i++) {
    const Item *it = f->items.at[i];
    if (it->kind != IT_SECTION && it->kind != IT_BIND) continue;
    if (!known_section(e, it)) continue;
    if (it->kind == IT_BIND) {
      read_data(e, it);
      continue;
    }
    for (int k = 0; k < COUNT_OF(known); k++) {
      if (strcmp(known[k], it->key.text)) continue;
      if (first[k] && k != 3) {
        Diag *d =
            diag_error(e->d, E_REDEFINED, it->key.loc, "section `%s` is given twice", it->key.text);
        diag_label(e->d, d, first[k]->key.loc, "first here");
      }
      if (!first[k]) first[k] = it;
    }
  }
  read_precision(e, first[1]);
  read_memory(e, first[2]);
}
