/* job.c - elaborate(): from the files and the command line to a Job; and what a Job answers about
 * itself. */
#include <math.h>
#include <string.h>
#include "elab.h"

static void echo_overrides(Elab *e) {
  Job *j = e->job;
  if (e->args->preset)
    vec_push(e->arena, &j->overrides, arena_printf(e->arena, "preset %s", e->args->preset));
  for (int i = 0; i < e->args->dims.n; i++)
    vec_push(
        e->arena, &j->overrides,
        arena_printf(e->arena, "%s = %s", e->args->dims.at[i].name, e->args->dims.at[i].value));
  for (int i = 0; i < e->args->settings.n; i++)
    vec_push(e->arena, &j->overrides,
             arena_printf(e->arena, "%s = %s", e->args->settings.at[i].name,
                          e->args->settings.at[i].value));
}

static int longest_array(const Inst *root) {
  int n = 0;
  for (int i = 0; i < root->scope.all.n; i++) {
    const Val *v = &root->scope.all.at[i].val;
    if (v->kind == V_LAYERS && v->n > n) n = v->n;
  }
  return n;
}

/* Counts parameters; one that is frozen in every phase is not trainable. */
static void count_params(Elab *e) {
  Job *j = e->job;
  for (int i = 0; i < j->vars->all.n; i++) {
    Var *v = &j->vars->all.at[i];
    if (v->role != VAR_PARAM) continue;
    int frozen = 0;
    for (int p = 0; p < j->phases.n; p++)
      for (int k = 0; k < j->phases.at[p].frozen.n; k++)
        frozen += j->phases.at[p].frozen.at[k] == i;
    v->trainable = !j->phases.n || frozen < j->phases.n;
    j->params += shape_count(&v->shape);
    if (v->trainable) j->trainable += shape_count(&v->shape);
  }
}

Job *elaborate(Arena *a, Diags *d, const JobArgs *args) {
  Job *j = arena_new_of(a, Job);
  Elab *e = arena_new_of(a, Elab);
  *j = (Job){.arena = a,
             .diags = d,
             .path = args->path,
             .preset = args->preset,
             .vars = vars_new(a),
             .elab = e,
             .eval = {.data = {-1, false}}};
  *e = (Elab){
      .arena = a, .d = d, .job = j, .args = args, .not_yet_loc = NO_LOC};
  int before = d->errors;
  e->main = elab_load(e, args->path, NO_LOC);
  if (!e->main) return NULL;
  elab_overrides(e);
  echo_overrides(e);
  if (!diag_full(d)) elab_model(e);
  if (!e->named_item) return NULL;
  j->model = e->named_item->name.text;
  if (!diag_full(d)) job_sections(e);
  if (!diag_full(d)) job_train(e);
  count_params(e);
  if (e->root && !diag_full(d)) job_weights(e);
  if (e->root && j->phases.n && !diag_full(d)) job_check_functions(e);
  if (e->root) j->layers = longest_array(e->root);
  return d->errors > before ? NULL : j;
}

int64_t phase_dim(const Job *j, int phase, const char *name) {
  const TrainPhase *p = &j->phases.at[phase];
  for (int i = 0; i < p->dims.n; i++)
    if (!strcmp(p->dims.at[i].name.text, name)) return p->dims.at[i].value;
  return -1;
}

/* Tokens of one sample; 1 where samples are no sequences. */
static int64_t sample_length(const Job *j, int phase) {
  int64_t len = j->elab->seq_dim ? phase_dim(j, phase, j->elab->seq_dim) : 1;
  return len > 0 ? len : 1;
}

int64_t phase_samples(const Job *j, int phase) {
  const TrainPhase *p = &j->phases.at[phase];
  return p->unit == BATCH_TOKENS ? p->batch / sample_length(j, phase) : p->batch;
}

int64_t phase_tokens(const Job *j, int phase) {
  return mul64(phase_samples(j, phase), sample_length(j, phase));
}

bool job_target_input(const Job *j, const char **input, int64_t *ignore) {
  *input = j->elab->target_input;
  *ignore = j->elab->target_ignore;
  return *input != NULL;
}

const char *job_not_yet(const Job *j, Loc *at) {
  const Elab *e = j->elab;
  Str s = {.arena = j->arena};
  *at = e->not_yet_loc;
  for (int i = 0; i < e->not_yet.n; i++)
    str_addf(&s, "%s%s", !i ? "" : i + 1 < e->not_yet.n ? ", " : " and ", e->not_yet.at[i]);
  return s.text;
}

double job_weight_decay(const Job *j, int phase, int var) {
  const TrainPhase *p = &j->phases.at[phase];
  double decay = p->opt.weight_decay;
  for (int i = 0; i < p->groups.n; i++) {
    const Group *g = &p->groups.at[i];
    for (int k = 0; k < g->patterns.n && !isnan(g->weight_decay); k++)
      if (selector_covers(g->patterns.at[k], j->vars->all.at[var].path, NULL))
        decay = g->weight_decay;
  }
  return decay;
}

double job_lr_scale(const Job *j, int phase, int var) {
  const TrainPhase *p = &j->phases.at[phase];
  double scale = 1;
  for (int i = 0; i < p->groups.n; i++) {
    const Group *g = &p->groups.at[i];
    for (int k = 0; k < g->patterns.n && !isnan(g->lr_scale); k++)
      if (selector_covers(g->patterns.at[k], j->vars->all.at[var].path, NULL)) scale = g->lr_scale;
  }
  return scale;
}
