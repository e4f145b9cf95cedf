/* job_train.c - `train`: settings, phases laid over them, groups, what is frozen, evaluation,
 * checkpoints. */
#include <math.h>
#include <string.h>
#include "settings.h"

typedef struct {
  Name pattern;
  bool frozen;
} Freeze;

/* `train` or one phase while it is read. */
typedef struct {
  Settings s;
  VEC(DimSetting) dims;
  VEC(Group) groups;
  VEC(Freeze) freezes;
} Stage;

static void set_dim(Elab *e, Stage *t, const Name *name, int64_t value) {
  for (int i = 0; i < t->dims.n; i++)
    if (t->dims.at[i].name.text == name->text) {
      t->dims.at[i] = (DimSetting){*name, value};
      return;
    }
  vec_push(e->arena, &t->dims, ((DimSetting){*name, value}));
}

/* The name of an input's dimension, or false after E0102. */
static bool known_dim(Elab *e, const Name *key) {
  NameList names = {0};
  if (!e->root) return true;
  job_dim_names(e, &names);
  VEC(const char *) words = {0};
  for (int i = 0; i < names.n; i++) {
    if (names.at[i].text == key->text) return true;
    vec_push(e->arena, &words, names.at[i].text);
  }
  Diag *d = diag_error(e->d, E_UNKNOWN_SETTING, key->loc,
                       "no function of `%s` has a dimension `%s` to set", e->named_item->name.text,
                       key->text);
  say_nearest(e, d, key->text, words.at, words.n);
  if (scope_find_here(&e->root->scope, key->text))
    diag_help(e->d, d, "`%s` is a size of the model: pass -D %s=.., or set it in a preset",
              key->text, key->text);
  return false;
}

static bool dim_value(Elab *e, const Expr *x, int64_t *out) {
  const char *name;
  *out = -1;
  if (x->kind == EX_AUTO) return true;
  if (!eval_dim(e, job_scope(e), x, out, &name)) return false;
  if (*out >= 1) return true;
  diag_error(e->d, E_VALUE, x->loc, "a dimension must be at least 1");
  return false;
}

static void read_dims(Elab *e, Stage *t, const Entry *block) {
  for (int i = 0; i < block->body.n; i++) {
    const Entry *en = block->body.at[i];
    int64_t value;
    if (en->kind != EN_SET) {
      diag_error(e->d, E_TYPE, en->loc, "`dims` holds lines like `T = 1024`");
    } else if (known_dim(e, &en->key) && dim_value(e, en->value, &value)) {
      set_dim(e, t, &(Name){en->key.text, en->value->loc}, value);
    }
  }
}

static void read_group(Elab *e, Stage *t, const Entry *block) {
  Settings s = settings_new(e, "group", block->loc);
  for (int i = 0; i < block->body.n; i++) settings_entry(e, &s, block->body.at[i], false);
  const SetValue *decay = settings_get(&s, "weight_decay"), *scale = settings_get(&s, "lr_scale");
  Group g = {.loc = block->loc,
             .weight_decay = decay->given ? decay->num : NAN,
             .lr_scale = scale->given ? scale->num : NAN};
  for (int i = 0; i < block->patterns.n; i++) {
    select_check(e, block->patterns.at[i].text, block->patterns.at[i].loc, false);
    vec_push(e->arena, &g.patterns, block->patterns.at[i].text);
  }
  vec_push(e->arena, &t->groups, g);
}

static void read_freeze(Elab *e, Stage *t, const Entry *en) {
  for (int i = 0; i < en->patterns.n; i++) {
    select_check(e, en->patterns.at[i].text, en->patterns.at[i].loc, false);
    vec_push(e->arena, &t->freezes,
             ((Freeze){en->patterns.at[i], !strcmp(en->key.text, "freeze")}));
  }
}

/* Reads the entries of `train` (but for phases, eval and checkpoint) or of a phase. */
static void read_entries(Elab *e, Stage *t, const EntryList *list, bool in_phase) {
  for (int i = 0; i < list->n && !diag_full(e->d); i++) {
    const Entry *en = list->at[i];
    if (!settings_entry(e, &t->s, en, in_phase)) continue;
    if (!strcmp(en->key.text, "dims")) read_dims(e, t, en);
    if (!strcmp(en->key.text, "group")) read_group(e, t, en);
    if (en->kind == EN_DO) read_freeze(e, t, en);
  }
}

/* steps and epochs exclude each other; a phase's own one displaces the other of `train`. */
static void settle_length(Elab *e, Stage *t, const Stage *base) {
  SetValue *steps = settings_get(&t->s, "steps"), *epochs = settings_get(&t->s, "epochs");
  bool own_steps = steps->given, own_epochs = epochs->given;
  if (base) {
    own_steps &= steps->x != settings_get(&base->s, "steps")->x;
    own_epochs &= epochs->x != settings_get(&base->s, "epochs")->x;
  }
  if (own_steps && own_epochs) {
    Diag *d = diag_error(e->d, E_VALUE, epochs->loc, "`steps` and `epochs` are both given");
    diag_label(e->d, d, steps->loc, "steps");
    diag_help(e->d, d, "keep one of them");
  }
  if (own_steps) epochs->given = false;
  if (own_epochs && !own_steps) steps->given = false;
}

static void read_optimizer(Elab *e, Stage *t, Optimizer *o) {
  const SetValue *v = settings_get(&t->s, "optimizer");
  Settings s;
  int kind;
  if (!v->given) return; /* reported by settings_complete */
  if (!settings_call(e, "optimizer", v->x, &s, &kind)) return;
  *o = (Optimizer){.kind = (OptKind)kind, .loc = v->loc};
  for (int i = 0; i < s.n; i++) {
    const SetValue *r = &s.at[i];
    if (!strcmp(r->row->key, "lr")) o->lr = r->num;
    if (!strcmp(r->row->key, "eps")) o->eps = r->num;
    if (!strcmp(r->row->key, "weight_decay")) o->weight_decay = r->num;
    if (!strcmp(r->row->key, "momentum")) o->momentum = r->num;
    if (!strcmp(r->row->key, "decay")) o->decay = r->num;
    if (!strcmp(r->row->key, "floor")) o->floor = r->num;
    if (!strcmp(r->row->key, "threshold")) o->threshold = r->num;
    if (!strcmp(r->row->key, "adam_scale")) o->adam_scale = r->num;
    if (!strcmp(r->row->key, "nesterov")) o->nesterov = r->num != 0;
    if (!strcmp(r->row->key, "relative")) o->relative = r->num != 0;
    if (!strcmp(r->row->key, "match_rms")) o->match_rms = r->num != 0;
    if (!strcmp(r->row->key, "betas")) o->beta1 = r->pair[0], o->beta2 = r->pair[1];
  }
}

static void read_schedule(Elab *e, Stage *t, Schedule *out) {
  const SetValue *v = settings_get(&t->s, "schedule");
  *out = (Schedule){.kind = SCHED_CONSTANT, .cycles = 1};
  Settings s;
  int kind;
  if (!v->given) return;
  if (!settings_call(e, "schedule", v->x, &s, &kind)) return;
  out->kind = (SchedKind)kind;
  bool final = false;
  for (int i = 0; i < s.n; i++) {
    const SetValue *r = &s.at[i];
    if (!strcmp(r->row->key, "warmup")) out->warmup = r->num;
    if (!strcmp(r->row->key, "decay")) out->decay = r->num;
    if (!strcmp(r->row->key, "cycles")) out->cycles = r->num;
    if (!strcmp(r->row->key, "final")) out->final = r->num, final = r->given;
    if (strcmp(r->row->key, "final_lr") || !r->given) continue;
    if (final) diag_error(e->d, E_VALUE, r->loc, "`final` and `final_lr` are both given");
    out->final = r->num;
    out->final_is_lr = true;
  }
}

/* ---- batch ---- */

static int64_t dim_of(const TrainPhase *p, const char *name) {
  for (int i = 0; name && i < p->dims.n; i++)
    if (p->dims.at[i].name.text == name) return p->dims.at[i].value;
  return -1;
}

static const DimSetting *dim_setting(const TrainPhase *p, const char *name) {
  for (int i = 0; name && i < p->dims.n; i++)
    if (p->dims.at[i].name.text == name) return &p->dims.at[i];
  return NULL;
}

/* The dim of the micro-batch is the one that is `auto`, else the first axis of the loss's first
 * input. */
static bool choose_batch_dim(Elab *e, TrainPhase *p) {
  const Fn *loss = e->root ? job_fn(e, FN_LOSS) : NULL;
  if (!loss || !loss->args.n || !loss->args.at[0].type) return false;
  const TypeExpr *t = loss->args.at[0].type;
  const Expr *first = t->has_dims && t->dims.n ? t->dims.at[0] : NULL;
  const Expr *second = t->has_dims && t->dims.n == 2 ? t->dims.at[1] : NULL;
  p->batch_dim = first && first->kind == EX_NAME ? first->text : NULL;
  e->seq_dim = second && second->kind == EX_NAME ? second->text : NULL;
  for (int i = 0; i < p->dims.n; i++) {
    const DimSetting *d = &p->dims.at[i];
    if (d->value >= 0 || d->name.text == p->batch_dim) continue;
    Diag *g = diag_error(e->d, E_VALUE, d->name.loc, "`%s` cannot be `auto`: only the batch can",
                         d->name.text);
    diag_help(e->d, g, "give it a number");
    return false;
  }
  if (p->batch_dim) return true;
  Diag *d = diag_error(e->d, E_TYPE, t->loc,
                       "the first axis of the loss's first input is the batch, "
                       "and has to have a name");
  diag_help(e->d, d, "write `i32[B, T]`");
  return false;
}

/* Whole samples in a step, whole micro-batches in them. */
static void check_batch(Elab *e, const TrainPhase *p, const SetValue *batch) {
  int64_t len = dim_of(p, e->seq_dim), n = p->batch;
  if (p->unit == BATCH_TOKENS) {
    if (len < 1) return; /* a missing size is reported with the function that needs it */
    if (n % len) {
      Diag *d =
          diag_error(e->d, E_VALUE, batch->loc, "a batch of %s tokens is no multiple of %s = %lld",
                     format_count(e->arena, n), e->seq_dim, (long long)len);
      const DimSetting *t = dim_setting(p, e->seq_dim);
      if (t) diag_label(e->d, d, t->name.loc, "%s is set here", e->seq_dim);
      int64_t below = n / len * len;
      if (below)
        diag_help(e->d, d, "%lld or %lld tokens would be whole samples", (long long)below,
                  (long long)(below + len));
      else
        diag_help(e->d, d, "one sample is %lld tokens", (long long)len);
      return;
    }
    n /= len;
  }
  int64_t micro = dim_of(p, p->batch_dim);
  if (micro < 1 || n % micro == 0) return;
  Diag *d =
      diag_error(e->d, E_VALUE, batch->loc, "a step of %lld samples is no multiple of %s = %lld",
                 (long long)n, p->batch_dim, (long long)micro);
  const DimSetting *b = dim_setting(p, p->batch_dim);
  if (b) diag_label(e->d, d, b->name.loc, "%s is set here", p->batch_dim);
  diag_help(e->d, d, "`%s = auto` leaves it to the planner", p->batch_dim);
}

static void read_batch(Elab *e, Stage *t, TrainPhase *p) {
  const SetValue *v = settings_get(&t->s, "batch");
  bool has_inputs = choose_batch_dim(e, p);
  Settings s;
  int unit;
  if (!v->given) return;
  if (!settings_call(e, "batch", v->x, &s, &unit)) return;
  p->unit = (BatchUnit)unit;
  p->batch_loc = v->loc;
  p->batch = (int64_t)settings_get(&s, "n")->num;
  if (p->unit == BATCH_TOKENS && has_inputs && !e->seq_dim) {
    Diag *d =
        diag_error(e->d, E_VALUE, v->loc, "samples of this model are not sequences of tokens");
    diag_help(e->d, d, "write `seqs(n)` or `images(n)`");
  }
  if (has_inputs) check_batch(e, p, v);
}

/* ---- phases ---- */

static void mark_frozen(Elab *e, const Stage *t, TrainPhase *p) {
  const Vars *vars = e->job->vars;
  int trained = 0, params = 0;
  for (int i = 0; i < vars->all.n; i++) {
    if (vars->all.at[i].role != VAR_PARAM) continue;
    bool frozen = false;
    for (int k = 0; k < t->freezes.n; k++)
      if (select_var(t->freezes.at[k].pattern.text, vars->all.at[i].path))
        frozen = t->freezes.at[k].frozen;
    if (frozen) vec_push(e->arena, &p->frozen, i);
    trained += !frozen;
    params++;
  }
  if (!trained && params)
    diag_error(e->d, E_VALUE, t->freezes.at[t->freezes.n - 1].pattern.loc,
               "every parameter is frozen: there is nothing to train");
}

static bool is_formal(const Elab *e, const char *name) {
  for (int i = 0; e->model_item && i < e->model_item->formals.n; i++)
    if (e->model_item->formals.at[i].name.text == name) return true;
  return false;
}

/* -D sizes of inputs hold in every phase. */
static void dims_of_command_line(Elab *e, Stage *t) {
  for (int i = 0; i < e->args->dims.n; i++) {
    const char *name = intern(e->args->dims.at[i].name);
    if (is_formal(e, name)) continue;
    const Expr *x =
        elab_parse_value(e, arena_printf(e->arena, "-D %s", name), e->args->dims.at[i].value);
    int64_t value;
    if (x && dim_value(e, x, &value)) set_dim(e, t, &(Name){name, x->loc}, value);
  }
}

static void add_phase(Elab *e, Stage *t, const char *name, Loc loc, const char *label) {
  TrainPhase p = {.name = name, .loc = loc, .batch = 1, .unit = BATCH_SEQS, .batch_loc = NO_LOC};
  dims_of_command_line(e, t);
  settings_complete(e, &t->s, loc, label);
  if (diag_full(e->d)) return;
  p.data = settings_get(&t->s, "data")->data;
  for (int i = 0; i < t->dims.n; i++) vec_push(e->arena, &p.dims, t->dims.at[i]);
  for (int i = 0; i < t->groups.n; i++) vec_push(e->arena, &p.groups, t->groups.at[i]);
  const SetValue *steps = settings_get(&t->s, "steps"), *epochs = settings_get(&t->s, "epochs");
  p.steps = steps->given ? (int64_t)steps->num : 0;
  p.epochs = epochs->given ? epochs->num : 0;
  if (!steps->given && !epochs->given) {
    Diag *d = diag_error(e->d, E_ARGUMENT, loc, "`%s` has neither `steps` nor `epochs`", label);
    diag_help(e->d, d, "say how long to train: `steps = 1000` or `epochs = 3`");
  }
  read_optimizer(e, t, &p.opt);
  read_schedule(e, t, &p.sched);
  p.clip = settings_get(&t->s, "clip")->num;
  p.nonfinite = settings_get(&t->s, "nonfinite")->choice ? NONFINITE_STOP : NONFINITE_SKIP;
  p.nonfinite_limit = (int64_t)settings_get(&t->s, "nonfinite_limit")->num;
  read_batch(e, t, &p);
  if (e->root) mark_frozen(e, t, &p);
  vec_push(e->arena, &e->job->phases, p);
}

static void read_phases(Elab *e, const Stage *base, const Item *train) {
  int n = 0;
  for (int i = 0; i < train->entries.n && !diag_full(e->d); i++) {
    const Entry *en = train->entries.at[i];
    if (en->kind != EN_SECTION || strcmp(en->key.text, "phase") || !en->name.text) continue;
    n++;
    for (int k = 0; k < e->job->phases.n; k++)
      if (!strcmp(e->job->phases.at[k].name, en->name.text))
        diag_error(e->d, E_REDEFINED, en->name.loc, "phase `%s` is given twice", en->name.text);
    Stage t = {.s = settings_copy(e, &base->s)};
    for (int k = 0; k < base->dims.n; k++) vec_push(e->arena, &t.dims, base->dims.at[k]);
    for (int k = 0; k < base->groups.n; k++) vec_push(e->arena, &t.groups, base->groups.at[k]);
    for (int k = 0; k < base->freezes.n; k++) vec_push(e->arena, &t.freezes, base->freezes.at[k]);
    read_entries(e, &t, &en->body, true);
    settle_length(e, &t, base);
    add_phase(e, &t, en->name.text, en->name.loc,
              arena_printf(e->arena, "phase %s", en->name.text));
  }
  Stage only = *base;
  if (!n) add_phase(e, &only, "", train->key.loc, "train");
}

/* ---- eval, checkpoint ---- */

static void read_eval(Elab *e, const Entry *block) {
  Settings s = settings_new(e, "eval", block->loc);
  for (int i = 0; i < block->body.n; i++)
    if (!settings_entry(e, &s, block->body.at[i], false)) return;
  if (!settings_complete(e, &s, block->key.loc, "eval")) return;
  const SetValue *metric = settings_get(&s, "metric");
  const Inst *owner;
  if (metric->given && e->root && !inst_fn(e->root, metric->text, &owner)) {
    Diag *d = diag_error(e->d, E_UNKNOWN_NAME, metric->loc, "`%s` has no function `%s`",
                         e->named_item->name.text, metric->text);
    VEC(const char *) names = {0};
    for (int i = 0; i < e->root->scope.all.n; i++)
      if (e->root->scope.all.at[i].val.kind == V_FN)
        vec_push(e->arena, &names, e->root->scope.all.at[i].name);
    say_nearest(e, d, metric->text, names.at, names.n);
  }
  e->job->eval = (EvalSetting){.data = settings_get(&s, "data")->data,
                               .every = (int64_t)settings_get(&s, "every")->num,
                               .batches = (int64_t)settings_get(&s, "batches")->num,
                               .metric = metric->text};
}

/* Each of the selectors in "*.a, *.b" must match. */
static void check_selectors(Elab *e, const SetValue *v) {
  const char *p = v->text;
  while (p && *p) {
    p += strspn(p, ", ");
    size_t n, used;
    int braces = 0; /* commas inside {a,b} separate alternatives */
    for (used = 0; p[used] && (p[used] != ',' || braces); used++)
      braces += p[used] == '{' ? 1 : p[used] == '}' ? -1 : 0;
    for (n = used; n && p[n - 1] == ' ';) n--;
    if (n) select_check(e, intern_n(p, n), v->loc, false);
    p += used;
  }
}

static void read_checkpoint(Elab *e, const Entry *block) {
  Settings s = settings_new(e, "checkpoint", block->loc);
  for (int i = 0; i < block->body.n; i++)
    if (!settings_entry(e, &s, block->body.at[i], false)) return;
  if (!settings_complete(e, &s, block->key.loc, "checkpoint")) return;
  check_selectors(e, settings_get(&s, "only"));
  e->job->checkpoint = (CheckpointSetting){.every = (int64_t)settings_get(&s, "every")->num,
                                           .keep = (int64_t)settings_get(&s, "keep")->num,
                                           .only = settings_get(&s, "only")->text};
}

/* Every -D is a size of the model or of its inputs. */
static void check_command_line_dims(Elab *e) {
  NameList dims = {0};
  if (!e->root) return;
  job_dim_names(e, &dims);
  for (int i = 0; i < e->args->dims.n; i++) {
    const char *name = intern(e->args->dims.at[i].name);
    bool known = false;
    VEC(const char *) words = {0};
    for (int k = 0; k < e->root->item->formals.n; k++) {
      known |= e->root->item->formals.at[k].name.text == name;
      vec_push(e->arena, &words, e->root->item->formals.at[k].name.text);
    }
    for (int k = 0; k < dims.n; k++) {
      known |= dims.at[k].text == name;
      vec_push(e->arena, &words, dims.at[k].text);
    }
    if (known) continue;
    Diag *d = diag_error(e->d, E_UNKNOWN_NAME, NO_LOC, "-D %s: `%s` has no such size", name,
                         e->named_item->name.text);
    const char *near = nearest_word(name, words.at, words.n);
    if (near) diag_help(e->d, d, "did you mean `%s`?", near);
  }
}

/* A job without `train` has one phase that nothing can be planned for. */
static void no_train(Elab *e) {
  Stage t = {.s = settings_new(e, "train", NO_LOC)};
  e->no_train = true;
  dims_of_command_line(e, &t);
  TrainPhase p = {.name = "",
                  .loc = NO_LOC,
                  .data = {-1, false},
                  .unit = BATCH_SEQS,
                  .batch = 1,
                  .opt = {.kind = OPT_ADAMW},
                  .sched = {.cycles = 1}};
  for (int i = 0; i < t.dims.n; i++) vec_push(e->arena, &p.dims, t.dims.at[i]);
  choose_batch_dim(e, &p);
  vec_push(e->arena, &e->job->phases, p);
  job_say_not_yet(e, NO_LOC, "training without a `train` section");
}

void job_train(Elab *e) {
  const Item *it = NULL;
  for (int i = 0; i < e->main->file->items.n && !it; i++) {
    const Item *k = e->main->file->items.at[i];
    if (k->kind == IT_SECTION && !strcmp(k->key.text, "train")) it = k;
  }
  check_command_line_dims(e);
  if (!it) {
    no_train(e);
    return;
  }
  Stage base = {.s = settings_new(e, "train", it->key.loc)};
  read_entries(e, &base, &it->entries, false);
  settle_length(e, &base, NULL);
  e->job->seed = (uint64_t)settings_get(&base.s, "seed")->num;
  e->job->init = settings_get(&base.s, "init")->text;
  read_phases(e, &base, it);
  for (int i = 0; i < it->entries.n && !diag_full(e->d); i++) {
    const Entry *en = it->entries.at[i];
    if (en->kind != EN_SECTION || en->name.text || en->patterns.n) continue;
    if (!strcmp(en->key.text, "eval")) read_eval(e, en);
    if (!strcmp(en->key.text, "checkpoint")) read_checkpoint(e, en);
  }
  for (int i = 0; i < e->job->data.n; i++) {
    static const char *const kinds[] = {
        [DATA_TSV] = "tsv", [DATA_IMAGES] = "images", [DATA_SPAN] = "span_corruption"};
    const Data *data = &e->job->data.at[i];
    if (data->kind >= DATA_TSV)
      job_say_not_yet(e, data->loc, "data of kind `%s`", kinds[data->kind]);
  }
}
