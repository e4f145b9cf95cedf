/* fit_choose.c - from the pool of candidates to a plan: the fastest that fits a budget, and the smallest of all (see
 * fit.h). Input: a pool, a budget. Output: a FitResult.
 *
 * A candidate's peak is that of its assembled plan, placement included, or its estimate where that is higher; it is found
 * out when selection asks for it. Phases share one residency of variables: the residency is chosen for all of them. */
#include "fit.h"

#include <math.h>

#include "assemble.h"

/* ---- assembling a choice ---- */

/* The micro programs of a choice: one for the first micro-batch of a step, and one for the others where there are any. */
static void assemble_micro(Plan *p, Arena *a, const Choice *c, const Built *micro, PlanPhase *ph) {
  const Trace *t = &c->family->traces.at[c->trace];
  const int *order = arena_copy(a, t->order, sizeof *order * (size_t)t->n);
  bool one = ph->accumulation == 1;
  const SavedSet *saved = c->saved ? c->saved : &(SavedSet){0};
  const char *name = micro->clusters.g->name;
  ph->programs[PROG_MICRO] = assemble_saving(p, a, name, one ? &micro->first->map : &micro->map,
                                             t->n, order, c->room, saved);
  ph->programs[PROG_FIRST] = one ? -1 : assemble_saving(p, a, "first", &micro->first->map, t->n, order, c->room, saved);
}

/* The graph of a choice where the family was built at just that micro-batch; NULL elsewhere. */
static const Built *built_for(const Choice *c) {
  const Family *fam = c->family;
  if (fam->at_a == c->micro_batch) return fam->micro[0];
  return fam->at_b == c->micro_batch ? fam->micro[1] : NULL;
}

/* The programs of a choice, by PROG_MICRO... What the pool has of them is copied, unless another job's variables were in it. */
static void build_programs(const FitPool *f, Arena *a, const Choice *c, FitBuild *list) {
  const Family *fam = c->family;
  const PhasePool *pool = &f->phase[fam->phase];
  GraphChoice g = cut_choice(fam->phase, c->micro_batch, fam->cut);
  if (f->like) {
    TrainGraphs all = train_graphs(f->x.job, a, &g);
    list[PROG_MICRO].graph = all.micro;
    list[PROG_UPDATE].graph = all.update;
    list[PROG_EVAL].graph = all.eval;
    list[PROG_SAMPLE].graph = all.sample;
  } else {
    GraphChoice micro = g, eval = g;
    micro.micro_only = eval.eval_only = true;
    list[PROG_MICRO].like = built_for(c);
    if (!list[PROG_MICRO].like) list[PROG_MICRO].graph = train_graphs(f->x.job, a, &micro).micro;
    list[PROG_UPDATE].like = pool->update[fam->cut.kind];
    list[PROG_EVAL].graph = train_graphs(f->x.job, a, &eval).eval;
    list[PROG_SAMPLE].like = pool->sample;
  }
  list[PROG_MICRO].micro = true;
  list[PROG_MICRO].apart = fam->apart;
  fit_build_all(&f->x, PHASE_PROGRAMS, list, a);
}

/* Appends the phase's programs for a choice; false when its trace does not fit the graph that is
 * really built. */
static bool assemble_choice(const FitPool *f, Plan *p, Arena *a, const Choice *c) {
  const Family *fam = c->family;
  Fixed *update = &f->phase[fam->phase].res[c->res].update.at[c->update];
  FitBuild built[PHASE_PROGRAMS] = {{0}};
  build_programs(f, a, c, built);
  const Built *micro = built[PROG_MICRO].built;
  if (!fit_same_structure(fam->micro[0], micro)) return false;
  PlanPhase ph = {.phase = fam->phase,
                  .micro_batch = c->micro_batch,
                  .chunks = fit_chunks_of(micro->clusters.g),
                  .mlp_chunks = fit_mlp_chunks_of(micro->clusters.g),
                  .group = fam->cut.group};
  ph.accumulation = ceil_div(phase_samples(f->x.job, fam->phase), c->micro_batch);
  ph.recompute = c->trace == 0 ? RC_NONE : (RecomputeMode)f->x.recompute;
  ph.step_ns = c->step_ns;
  assemble_micro(p, a, c, micro, &ph);
  ph.programs[PROG_UPDATE] = fit_assemble_plain(p, a, "update", built[PROG_UPDATE].built, update->room);
  ph.programs[PROG_EVAL] = fit_assemble_plain(p, a, "eval", built[PROG_EVAL].built, PLAIN_ROOM);
  ph.programs[PROG_SAMPLE] = fit_assemble_plain(p, a, "sample", built[PROG_SAMPLE].built, PLAIN_ROOM);
  if (ph.programs[PROG_UPDATE] >= 0) update->exact = p->programs.at[ph.programs[PROG_UPDATE]].transient_bytes;
  const PlanProgram *m = &p->programs.at[ph.programs[PROG_MICRO]];
  for (int s = 0; s < m->nsteps; s++)
    if (m->steps[s].recomputed) ph.recompute_ns += m->clusters.at[m->steps[s].cluster].ns;
  vec_push(a, &p->phases, ph);
  return true;
}

/* Appends the choice to the plan and keeps it there when its exact peak, which is found out now, is
 * within the budget. */
static bool try_choice(const FitPool *f, Plan *p, Arena *a, Choice *c, int64_t budget) {
  if (c->peak >= 0 && c->peak > budget) return false;
  int bufs = p->bufs.n, programs = p->programs.n;
  bool built = assemble_choice(f, p, a, c);
  int64_t highest = 0;
  for (int i = programs; i < p->programs.n; i++)
    highest = max64(highest, p->programs.at[i].transient_bytes);
  c->peak = built ? max64(fit_whole_peak(f, c->res, c->saved, highest), c->estimate) : INT64_MAX;
  if (built && c->peak <= budget) return true;
  p->phases.n -= built;
  p->bufs.n = bufs;
  p->programs.n = programs;
  return false;
}

/* The exact peak of a choice, without a plan of it. */
static void find_peak(const FitPool *f, const PhasePool *pool, Choice *c) {
  Arena *scratch = arena_new();
  const Built *micro = fit_host_bytes(f, c) == 0 ? built_for(c) : NULL;
  Plan *p = fit_new_plan(f, scratch, c->res);
  if (micro) {
    const Trace *t = &c->family->traces.at[c->trace];
    GraphChoice g = cut_choice(pool->phase, c->micro_batch, c->family->cut);
    g.eval_only = true;
    assemble_program(p, scratch, micro->clusters.g->name, &micro->map, t->n, t->order, 0);
    FitBuild eval = {.graph = train_graphs(f->x.job, scratch, &g).eval};
    fit_build_all(&f->x, 1, &eval, scratch);
    fit_assemble_plain(p, scratch, "eval", eval.built, PLAIN_ROOM);
    int64_t highest = max64(pool->res[c->res].update.at[0].bytes, pool->res[c->res].sample.bytes);
    for (int i = 0; i < p->programs.n; i++)
      highest = max64(highest, p->programs.at[i].transient_bytes);
    c->peak = max64(fit_whole_peak(f, c->res, NULL, highest), c->estimate);
  } else {
    try_choice(f, p, scratch, c, -1);
  }
  arena_free(scratch);
}

/* What is known of a choice's peak: no plan of it is lower. */
static int64_t bound_of(const FitPool *f, const Choice *c) {
  if (c->peak >= 0) return c->peak;
  const Fixed *update = &f->phase[c->family->phase].res[c->res].update.at[c->update];
  return max64(c->estimate, fit_whole_peak(f, c->res, c->saved, update->exact));
}

/* Smallest peak of a residency's choices, and whose it is; NULL when none is below `bound`. */
static Choice *floor_of(const FitPool *f, PhasePool *pool, int res, int64_t bound) {
  Choice *best = NULL;
  const Resident *r = &pool->res[res];
  for (int i = r->frontier.n - 1; i >= 0; i--) {
    Choice *c = &pool->all.at[r->frontier.at[i]];
    if (c->estimate >= (best ? best->peak : bound)) break;
    if (bound_of(f, c) >= (best ? best->peak : bound)) continue;
    if (c->peak < 0) find_peak(f, pool, c);
    if (c->peak < (best ? best->peak : bound)) best = c;
  }
  return best;
}

/* Of variables, by class: all but those of `left_out`, or of these those that are on the host. */
static void count_variables(const Vars *v, const bool *counted, const bool *left_out,
                            int64_t *bytes) {
  for (int i = 0; i < v->all.n; i++)
    if ((!counted || counted[i]) && !(left_out && left_out[i]))
      bytes[variable_class(v->all.at[i].role)] += round_up(shape_bytes(&v->all.at[i].shape, v->all.at[i].dtype), PLAN_ALIGN);
}

/* The smallest budget with a plan: over residencies, of the phases' largest. */
static void find_floor(const FitPool *f, FitResult *r) {
  int64_t best = INT64_MAX;
  int of = -1;
  const SavedSet *saved = NULL;
  for (int res = f->res.n - 1; res >= 0; res--) { /* the smallest first: it bounds the others */
    int64_t most = 0;
    int phase = 0;
    const SavedSet *saves = NULL;
    for (int i = 0; i < f->nphases && most < best; i++) {
      const Choice *least = floor_of(f, &f->phase[i], res, best);
      if (!least) most = INT64_MAX;
      if (!least || least->peak <= most) continue;
      most = least->peak;
      phase = i;
      saves = least->saved;
    }
    if (most >= best) continue;
    best = most;
    of = res;
    saved = saves;
    r->phase = phase;
  }
  ensure(of >= 0, "fit: no plan at all");
  r->floor_bytes = best;
  r->floor_persistent = f->res.at[of].device_bytes;
  count_variables(f->x.job->vars, f->res.at[of].host, NULL, r->floor_host_class);
  count_variables(f->x.job->vars, NULL, f->res.at[of].absent, r->class_bytes);
  r->floor_host_class[BC_SAVED] = saved ? saved->bytes : 0;
  r->floor_host = f->res.at[of].host_bytes + r->floor_host_class[BC_SAVED];
  r->floor_transient = best - r->floor_persistent - fit_overhead(f, of, saved) - f->args.reserve_bytes;
}

/* ---- selection ---- */

/* The fastest choice of a residency that may fit, from number *at of its frontier on; NULL when there is none. */
static Choice *next_fit(const FitPool *f, PhasePool *pool, int res, int64_t budget, int *at) {
  const Resident *r = &pool->res[res];
  for (; *at < r->frontier.n; ++*at) {
    Choice *c = &pool->all.at[r->frontier.at[*at]];
    if (bound_of(f, c) <= budget) return c;
  }
  return NULL;
}

/* Training time of all phases with a residency, as far as is known; INFINITY when a phase has no choice. */
static double total_time(const FitPool *f, int res, int64_t budget, int *at, Choice **chosen) {
  double sum = 0;
  for (int i = 0; i < f->nphases; i++) {
    chosen[i] = next_fit(f, &f->phase[i], res, budget, &at[i]);
    if (!chosen[i]) return INFINITY;
    int64_t steps = f->x.job->phases.at[i].steps;
    sum += (double)chosen[i]->step_ns * (double)(steps > 0 ? steps : 1);
  }
  return sum;
}

/* The fastest plan within the budget, and the choice of each phase; NULL when none fits. The residency that looks best
 * is assembled; one whose choice turns out not to fit looks worse then. */
static Plan *select_within(const FitPool *f, Arena *a, int64_t budget, Choice **chosen) {
  int n = f->nphases, *at = arena_array(a, int, n * f->res.n + 1);
  for (;;) {
    int best = -1;
    double least = INFINITY;
    for (int res = 0; res < f->res.n; res++) {
      double t = total_time(f, res, budget, at + res * n, chosen);
      if (t >= least) continue;
      least = t;
      best = res;
    }
    if (best < 0) return NULL;
    total_time(f, best, budget, at + best * n, chosen);
    Plan *p = fit_new_plan(f, a, best);
    int fit = 0;
    while (fit < n && try_choice(f, p, a, chosen[fit], budget)) fit++;
    if (fit < n) continue;
    p->overhead_bytes = fit_overhead(f, best, chosen[0]->saved); /* of several phases, none saves on the host */
    return p;
  }
}

/* ---- what the report tells besides the plan ---- */

static Candidate candidate_of(const FitPool *f, const Choice *c) {
  return (Candidate){.micro_batch = c->micro_batch,
                     .chunks = c->family->cut.chunks,
                     .mlp_chunks = c->family->cut.mlp_chunks,
                     .group = c->family->cut.group,
                     .front = c->trace,
                     .early_update = c->family->cut.kind == MICRO_UPDATES,
                     .peak_bytes = c->peak >= 0 && c->peak != INT64_MAX ? c->peak : c->estimate,
                     .step_ns = c->step_ns,
                     .host_bytes = fit_host_bytes(f, c)};
}

/* Slower ways that fit as well: nothing rebuilt, everything rebuilt, the neighbouring micro-batches, less and more on the
 * host. */
static void add_passed(const FitPool *f, const PhasePool *pool, const Choice *chosen, int64_t budget, Arena *a,
                       FitResult *r) {
  for (int kind = 0; kind < 6; kind++) {
    for (int i = 0; i < pool->all.n; i++) {
      const Choice *c = &pool->all.at[i];
      if (c->estimate > budget || c->step_ns <= chosen->step_ns) continue;
      if (kind == 0 && (c->trace != 0 || chosen->trace == 0)) continue;
      if (kind == 1 && (c->trace != c->family->full || c->trace == 0)) continue;
      if (kind == 2 && c->micro_batch >= chosen->micro_batch) continue;
      if (kind == 3 && c->micro_batch <= chosen->micro_batch) continue;
      if (kind == 4 && fit_host_bytes(f, c) >= fit_host_bytes(f, chosen)) continue;
      if (kind == 5 && fit_host_bytes(f, c) <= fit_host_bytes(f, chosen)) continue;
      Candidate x = candidate_of(f, c);
      bool known = false;
      for (int k = 0; k < r->passed.n; k++)
        known |= r->passed.at[k].micro_batch == x.micro_batch &&
                 r->passed.at[k].chunks == x.chunks && r->passed.at[k].mlp_chunks == x.mlp_chunks && r->passed.at[k].group == x.group && r->passed.at[k].step_ns == x.step_ns;
      if (!known) vec_push(a, &r->passed, x);
      break;
    }
  }
}

/* Chooses for each phase and finds the floor. The floor comes second: what selection assembled is
 * known by then. */
static void choose(FitPool *f, Arena *a, FitResult *r) {
  Choice **chosen = arena_array(a, Choice *, f->nphases + 1);
  Plan *p = select_within(f, a, r->budget_bytes, chosen);
  find_floor(f, r);
  if (!p) {
    r->early_floor_bytes = fit_early_floor(f, r);
    return;
  }
  p->host_budget_bytes = f->args.host_bytes;
  assemble_finish(p, a);
  p->budget_bytes = r->budget_bytes;
  p->floor_bytes = r->floor_bytes;
  r->plan = p;
  for (int i = 0; i < f->nphases; i++)
    if (p->phases.at[i].peak_bytes > p->phases.at[r->phase].peak_bytes) r->phase = i;
  add_passed(f, &f->phase[r->phase], chosen[r->phase], r->budget_bytes, a, r);
}

FitResult fit_within(FitPool *f, Arena *a, int64_t budget_bytes) {
  f->args.budget_bytes = budget_bytes;
  FitResult r = {.job = f->x.job,
                 .args = f->args,
                 .budget_bytes = fit_capped_budget(&f->args),
                 .early_floor_bytes = INT64_MAX};
  if (f->res.n == 0) r.host_needed = f->res.least_bytes;
  if (!f->phase) {
    count_variables(f->x.job->vars, NULL, NULL, r.class_bytes);
    return r;
  }
  choose(f, a, &r);
  const PhasePool *shown = &f->phase[r.phase];
  for (int i = shown->frontier.n - 1; i >= 0; i--) {
    Candidate c = candidate_of(f, &shown->all.at[shown->frontier.at[i]]);
    vec_push(a, &r.frontier, c);
  }
  if (f->args.check && r.plan) {
    const char *why = plan_check(r.plan, a);
    ensure(!why, "the plan is unsound: %s", why);
  }
  return r;
}

int fit_candidates(const FitPool *f, int phase, Arena *a, Candidate **out) {
  *out = NULL;
  if (!f->phase) return 0;
  const PhasePool *pool = &f->phase[phase];
  *out = arena_array(a, Candidate, pool->all.n + 1);
  for (int i = 0; i < pool->all.n; i++) (*out)[i] = candidate_of(f, &pool->all.at[i]);
  return pool->all.n;
}

FitResult plan_fit(const Job *job, Arena *a, const PlanArgs *args) {
  Arena *scratch = arena_new();
  FitResult r = fit_within(fit_pool(job, scratch, args), a, args->budget_bytes);
  arena_free(scratch);
  return r;
}
