/* cli_weights.c - from --map FILE.mt to the slots that runtime/weights.h matches. */
#include "cli_weights.h"

#include <string.h>

Job *cli_map_job(Cli *c, const char *path) {
  JobArgs args = c->job;
  args.path = path;
  return elaborate(c->arena, c->diags, &args);
}

static WeightSlot slot_of(const Vars *vars, const char *key, int var, bool transposed) {
  const Var *v = &vars->all.at[var];
  WeightSlot s = {.key = key,
                  .path = v->path,
                  .var = var,
                  .transposed = transposed,
                  .dtype = v->dtype,
                  .rank = v->shape.rank};
  memcpy(s.dim, v->shape.dim, sizeof s.dim);
  return s;
}

WeightSlots cli_job_slots(Cli *c, const Job *job) {
  const Vars *vars = job->vars;
  WeightSlots s = {arena_array(c->arena, WeightSlot, vars->all.n + job->weights.n + 1), 0};
  for (int i = 0; i < job->weights.n; i++) {
    const WeightMap *m = &job->weights.at[i];
    s.at[s.n++] = slot_of(vars, m->key, m->var, m->transposed);
  }
  for (int i = 0; i < vars->all.n && !job->weights.n; i++) {
    const Var *v = &vars->all.at[i];
    if (v->role == VAR_PARAM || v->role == VAR_STATE)
      s.at[s.n++] = slot_of(vars, v->path, i, false);
  }
  return s;
}

int cli_failed(Cli *c, const Fail *f) {
  return f->page ? cli_fail(c, f->code, "[%s] %s", f->page, f->text)
                 : cli_fail(c, f->code, "%s", f->text);
}
