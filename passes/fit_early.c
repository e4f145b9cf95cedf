/* fit_early.c - programs of micro-batches that do more than gradients (see fit.h): the plain families once more, and whether updates
 * inside the backward pass are worth a look. Input: the plain families of all phases. Output: families of other kinds. */
#include "fit.h"

#include "assemble.h"
#include "optimizer.h"

bool fit_add_kind(const FitPool *f, PhasePool *pool, MicroKind kind, const int64_t *batch, int n) {
  int all = pool->families.n;
  for (int k = 0; k < all && pool->families.at[k].cut.kind == MICRO_PLAIN; k++) {
    Cut plain = pool->families.at[k].cut, cut = plain;
    if (k > 0 && same_cut(pool->families.at[k - 1].cut, plain)) continue;
    if (kind == MICRO_UPDATES && plain.mlp_chunks > 1) continue; /* gradients of several parts have accumulators */
    cut.kind = kind;
    if (!fit_add_like(&f->x, cut, plain, batch, n, pool)) return false;
  }
  return true;
}

/* Where a micro-batch is a group, gradients wait for all its members. */
static bool may_be_one(const FitPool *f) {
  if (f->args.group > 1) return false;
  for (int i = 0; i < f->nphases; i++)
    if (f->args.micro_batch > 0 && f->args.micro_batch != phase_samples(f->x.job, i)) return false;
  return true;
}

bool fit_may_update_early(const FitPool *f) {
  return may_be_one(f) && early_update_possible(f->x.job);
}

const bool *fit_unused_accumulators(const FitPool *f, const PhasePool *pool) {
  const Vars *vars = f->x.job->vars;
  bool *absent = arena_array(f->x.arena, bool, vars->all.n + 1);
  for (int i = 0; i < vars->all.n; i++) absent[i] = vars->all.at[i].role == VAR_ACCUM;
  for (int p = 0; pool && p < f->nphases; p++)
    for (int i = 0; i < pool[p].families.n; i++) {
      const Family *fam = &pool[p].families.at[i];
      for (int u = 0; fam->cut.kind == MICRO_UPDATES && u < fam->micro[0]->map.nunits; u++)
        if (fam->micro[0]->map.unit[u].var >= 0) absent[fam->micro[0]->map.unit[u].var] = false;
    }
  return absent;
}

/* What all phases need at the least: micro-batches of a whole step, or the smallest ones. */
static int64_t height_of(const FitPool *f, const PhasePool *pool, bool whole) {
  int64_t most = 0, smallest = f->args.micro_batch > 0 ? f->args.micro_batch : 1;
  for (int i = 0; i < f->nphases; i++) {
    int64_t at = whole ? phase_samples(f->x.job, i) : smallest;
    most = max64(most, fit_least_height(f, &pool[i], 0, pool[i].families.n, at));
  }
  return most;
}

/* They open budgets that are closed without: what a step needs at once is, with all rebuilt that can be and some of it waiting on
 * the host, less than what the smallest micro-batch needs beside accumulators. Where it is not, nothing that they allow is
 * worth their graphs. */
static bool pays(const FitPool *f, const PhasePool *pool) {
  int64_t waiting = f->nphases == 1 ? f->args.host_bytes : 0;
  int64_t more = height_of(f, pool, true) - height_of(f, pool, false);
  return more - waiting < accumulators_bytes(f->x.job->vars);
}

bool fit_add_early(const FitPool *f, PhasePool *pool, const bool **absent) {
  *absent = NULL;
  if (!fit_may_update_early(f) || !pays(f, pool)) return true;
  for (int i = 0; i < f->nphases; i++) {
    int64_t samples = phase_samples(f->x.job, i);
    if (!fit_add_kind(f, &pool[i], MICRO_UPDATES, &samples, 1)) return false;
  }
  *absent = fit_unused_accumulators(f, pool);
  return true;
}

int64_t fit_early_floor(const FitPool *f, const FitResult *r) {
  int64_t saved = r->class_bytes[BC_GRADIENTS] - r->floor_host_class[BC_GRADIENTS];
  if (!may_be_one(f) || early_update_possible(f->x.job)) return INT64_MAX;
  FitPool here = *f;
  here.x.arena = arena_new();
  int64_t height = height_of(&here, f->phase, true);
  arena_free(here.x.arena);
  return r->floor_bytes - r->floor_transient - saved + height;
}
