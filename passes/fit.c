/* fit.c - the outer search: micro-batch x chunks of the loss head x what is rebuilt, within a budget.
 *
 * The pool of candidates depends on the job, the target and what was forced, never on the budget; a budget selects the
 * fastest candidate whose peak fits. So more budget is never slower. A candidate's peak is that of its assembled plan,
 * placement included, or its estimate where that is higher; it is found out when selection asks for it. */
#include "fit.h"

#include <stdlib.h>

#include "assemble.h"

typedef struct {
  const Family *family;
  int64_t micro_batch;
  int trace;
  int64_t estimate;          /* peak by liveness */
  int64_t peak;              /* exact, -1 not yet known */
  int64_t step_ns;
} Choice;

typedef struct {
  int phase;
  int nfamilies;
  Family *family;
  VEC(Choice) all;           /* every candidate, fastest first */
  VEC(Choice) frontier;      /* fastest first, by falling peak */
} PhasePool;

typedef struct {
  FitContext x;
  const PlanArgs *args;
  int64_t persistent_bytes;
} Fit;

/* ---- what there is to choose from ---- */

static int by_value(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* Micro-batches: the divisors of the samples in a step, all equal parts of it. */
static int64_t *micro_batches(const Fit *f, int phase, int *n) {
  int64_t samples = phase_samples(f->x.job, phase), *list;
  *n = 0;
  if (f->args->micro_batch > 0) {
    list = arena_array(f->x.arena, int64_t, 1);
    list[(*n)++] = f->args->micro_batch;
    return list;
  }
  VEC(int64_t) all = {0};
  for (int64_t d = 1; d * d <= samples; d++) {
    if (samples % d) continue;
    vec_push(f->x.arena, &all, d);
    if (d * d != samples) vec_push(f->x.arena, &all, samples / d);
  }
  qsort(all.at, (size_t)all.n, sizeof *all.at, by_value);
  *n = all.n;
  return all.at;
}

/* Peak of the whole process, as the granule of the target rounds the arena. */
static int64_t whole_peak(const Fit *f, int64_t transient) {
  return round_up(f->persistent_bytes + transient, f->x.target->granule_bytes) + f->x.target->overhead_bytes +
         f->args->reserve_bytes;
}

static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

/* The candidates of one family at one micro-batch. */
static void add_choices(const Fit *f, PhasePool *pool, const Family *fam, int64_t at) {
  Arena *a = f->x.arena;
  Priced micro = fit_price(&f->x, fam->micro, fam->at_a, fam->at_b, at), eval;
  int64_t other = fam->fixed_bytes;
  if (fam->has_eval) {
    eval = fit_price(&f->x, fam->eval, fam->at_a, fam->at_b, at);
    other = max64(other, fit_height(&eval, &fam->eval_trace, arena_array(a, int64_t, fam->eval_trace.n + 1)));
  }
  int64_t samples = phase_samples(f->x.job, fam->phase);
  for (int i = 0; i < fam->traces.n; i++) {
    const Trace *t = &fam->traces.at[i];
    if (f->x.recompute == RC_FULL && i == 0 && fam->traces.n > 1) continue;
    int64_t ns = 0;
    for (int s = 0; s < t->n; s++) ns += micro.ns[t->order[s]];
    Choice c = {.family = fam, .micro_batch = at, .trace = i, .peak = -1};
    c.step_ns = mul64(ceil_div(samples, at), ns) + fam->update_ns;
    c.estimate = max64(other, fit_height(&micro, t, arena_array(a, int64_t, t->n + 1)));
    vec_push(a, &pool->all, c);
  }
}

/* Bytes that the loss head's pieces could still give back at this number of chunks, as a share of all transients. */
static bool chunks_helped(const Fit *f, const Family *less, const Family *more) {
  int64_t was = INT64_MAX, now = INT64_MAX;
  for (int i = 0; i < 2; i++) {
    const Family *fam = i ? more : less;
    Priced p = fit_price(&f->x, fam->micro, fam->at_a, fam->at_b, fam->least);
    for (int k = 0; k < fam->traces.n; k += fam->traces.n > 1 ? fam->traces.n - 1 : 1) {
      int64_t h = fit_height(&p, &fam->traces.at[k], arena_array(f->x.arena, int64_t, fam->traces.at[k].n + 1));
      if (h < *(i ? &now : &was)) *(i ? &now : &was) = h;
    }
  }
  return now < was - was / 64;
}

enum { MOST_CHUNKS = 64 };

static void add_families(const Fit *f, PhasePool *pool) {
  int n;
  int64_t *batch = micro_batches(f, pool->phase, &n);
  int64_t wide = batch[0];
  for (int i = 0; i < n && batch[i] <= 16; i++) wide = batch[i];
  int before = 0, forced = f->args->chunks;
  for (int chunks = forced > 0 ? forced : 1; chunks <= (forced > 0 ? forced : MOST_CHUNKS); chunks *= 2) {
    int from = pool->nfamilies;
    fit_families(&f->x, pool->phase, chunks, batch, n, &pool->family, &pool->nfamilies);
    if (chunks > 1 && forced <= 0 && !fit_has_chunks(&pool->family[from])) {
      pool->nfamilies = from;
      break;
    }
    for (int i = from; i < pool->nfamilies; i++) {
      Family *fam = &pool->family[i];
      fit_traces(&f->x, fam, fam->least);
      if (fam->most > fam->least && wide > fam->least) fit_traces(&f->x, fam, wide < fam->most ? wide : fam->most);
    }
    if (chunks > 1 && forced <= 0 && !chunks_helped(f, &pool->family[before], &pool->family[from])) break;
    before = from;
  }
}

static int by_time(const void *a, const void *b) {
  const Choice *x = a, *y = b;
  if (x->step_ns != y->step_ns) return x->step_ns < y->step_ns ? -1 : 1;
  if (x->estimate != y->estimate) return x->estimate < y->estimate ? -1 : 1;
  if (x->family->chunks != y->family->chunks) return x->family->chunks < y->family->chunks ? -1 : 1;
  if (x->micro_batch != y->micro_batch) return x->micro_batch < y->micro_batch ? -1 : 1;
  return (x->trace > y->trace) - (x->trace < y->trace);
}

/* Needs persistent_bytes: all phases' families are built, so that all variables exist. */
static void fill_pool(const Fit *f, PhasePool *pool) {
  int n;
  int64_t *batch = micro_batches(f, pool->phase, &n);
  for (int i = 0; i < pool->nfamilies; i++)
    for (int k = 0; k < n; k++)
      if (batch[k] >= pool->family[i].least && batch[k] <= pool->family[i].most)
        add_choices(f, pool, &pool->family[i], batch[k]);
  for (int i = 0; i < pool->all.n; i++) pool->all.at[i].estimate = whole_peak(f, pool->all.at[i].estimate);
  qsort(pool->all.at, (size_t)pool->all.n, sizeof *pool->all.at, by_time);
  int64_t least = INT64_MAX;
  for (int i = 0; i < pool->all.n; i++) {
    if (pool->all.at[i].estimate >= least) continue;
    least = pool->all.at[i].estimate;
    vec_push(f->x.arena, &pool->frontier, pool->all.at[i]);
  }
}

/* ---- assembling a choice ---- */

static Plan *new_plan(const Fit *f, Arena *a) {
  Plan *p = arena_new_of(a, Plan);
  p->job = f->x.job;
  p->target = f->x.target;
  p->overhead_bytes = f->x.target->overhead_bytes;
  p->reserve_bytes = f->args->reserve_bytes;
  assemble_variables(p, a);
  return p;
}

static int assemble_plain(const Fit *f, Plan *p, Arena *a, const char *name, Graph *g) {
  if (!g) return -1;
  Built b = fit_build(&f->x, g, a);
  int *order = arena_array(a, int, b.clusters.n + 1);
  for (int i = 0; i < b.clusters.n; i++) order[i] = i;
  return assemble_program(p, a, name, &b.map, b.clusters.n, order);
}

/* Appends the phase's programs for a choice; false when its trace does not fit the graph that is really built. */
static bool assemble_choice(const Fit *f, Plan *p, Arena *a, const Choice *c) {
  const Family *fam = c->family;
  GraphChoice g = {.phase = fam->phase, .micro_batch = c->micro_batch, .chunks = fam->chunks};
  TrainGraphs graphs = train_graphs(f->x.job, a, &g);
  Built micro = fit_build(&f->x, graphs.micro, a);
  if (!fit_same_structure(&fam->micro[0], &micro)) return false;
  const Trace *t = &fam->traces.at[c->trace];
  PlanPhase ph = {.phase = fam->phase, .micro_batch = c->micro_batch, .chunks = fam->chunks};
  ph.accumulation = ceil_div(phase_samples(f->x.job, fam->phase), c->micro_batch);
  ph.recompute = c->trace == 0 ? RC_NONE : (RecomputeMode)f->x.recompute;
  ph.step_ns = c->step_ns;
  ph.programs[0] = assemble_program(p, a, "micro", &micro.map, t->n,
                                    arena_copy(a, t->order, sizeof *t->order * (size_t)t->n));
  ph.programs[1] = assemble_plain(f, p, a, "update", graphs.update);
  ph.programs[2] = assemble_plain(f, p, a, "eval", graphs.eval);
  ph.programs[3] = assemble_plain(f, p, a, "sample", graphs.sample);
  const PlanProgram *m = &p->programs.at[ph.programs[0]];
  for (int s = 0; s < m->nsteps; s++)
    if (m->steps[s].recomputed) ph.recompute_ns += m->clusters.at[m->steps[s].cluster].ns;
  vec_push(a, &p->phases, ph);
  return true;
}

/* The exact peak of a choice. */
static int64_t choice_peak(const Fit *f, Choice *c) {
  if (c->peak >= 0) return c->peak;
  Arena *scratch = arena_new();
  Plan *p = new_plan(f, scratch);
  c->peak = INT64_MAX;
  if (assemble_choice(f, p, scratch, c)) {
    assemble_finish(p, scratch);
    c->peak = max64(p->peak_bytes, c->estimate);
  }
  arena_free(scratch);
  return c->peak;
}

/* Smallest peak of the pool, and whose it is. */
static Choice *floor_of(const Fit *f, PhasePool *pool) {
  Choice *best = NULL;
  for (int i = pool->frontier.n - 1; i >= 0; i--) {
    Choice *c = &pool->frontier.at[i];
    if (best && c->estimate >= best->peak) break;
    if (choice_peak(f, c) != INT64_MAX && (!best || c->peak < best->peak)) best = c;
  }
  return best;
}

static Choice *select_within(const Fit *f, PhasePool *pool, int64_t budget) {
  for (int i = 0; i < pool->frontier.n; i++) {
    Choice *c = &pool->frontier.at[i];
    if (c->estimate <= budget && choice_peak(f, c) <= budget) return c;
  }
  return NULL;
}

/* ---- what the report tells besides the plan ---- */

static Candidate candidate_of(const Choice *c) {
  return (Candidate){.micro_batch = c->micro_batch, .chunks = c->family->chunks, .front = c->trace,
                     .peak_bytes = c->peak >= 0 && c->peak != INT64_MAX ? c->peak : c->estimate,
                     .step_ns = c->step_ns};
}

/* Slower ways that fit as well: nothing rebuilt, everything rebuilt, and the neighbouring micro-batches. */
static void add_passed(const PhasePool *pool, const Choice *chosen, int64_t budget, Arena *a, FitResult *r) {
  for (int kind = 0; kind < 4; kind++) {
    for (int i = 0; i < pool->all.n; i++) {
      const Choice *c = &pool->all.at[i];
      if (c->estimate > budget || c->step_ns <= chosen->step_ns) continue;
      if (kind == 0 && (c->trace != 0 || chosen->trace == 0)) continue;
      if (kind == 1 && (c->trace != c->family->traces.n - 1 || c->trace == 0)) continue;
      if (kind == 2 && c->micro_batch >= chosen->micro_batch) continue;
      if (kind == 3 && c->micro_batch <= chosen->micro_batch) continue;
      Candidate x = candidate_of(c);
      bool known = false;
      for (int k = 0; k < r->passed.n; k++)
        known |= r->passed.at[k].micro_batch == x.micro_batch && r->passed.at[k].chunks == x.chunks &&
                 r->passed.at[k].front == x.front;
      if (!known) vec_push(a, &r->passed, x);
      break;
    }
  }
}

static int64_t capped_budget(const PlanArgs *args) {
  return args->budget_bytes < args->target->usable_bytes ? args->budget_bytes : args->target->usable_bytes;
}

static bool build_pools(Fit *f, PhasePool *pool, int nphases) {
  for (int i = 0; i < nphases; i++) {
    pool[i] = (PhasePool){.phase = i};
    add_families(f, &pool[i]);
  }
  f->persistent_bytes = variables_bytes(f->x.job->vars);
  for (int i = 0; i < nphases; i++) fill_pool(f, &pool[i]);
  return true;
}

FitResult plan_fit(const Job *job, Arena *a, const PlanArgs *args) {
  Arena *scratch = arena_new();
  int mode = args->recompute >= 0 ? args->recompute : (int)job->memory.recompute;
  Fit f = {.x = {.job = job, .target = args->target, .arena = scratch, .recompute = mode}, .args = args};
  int nphases = job->phases.n;
  PhasePool *pool = arena_array(scratch, PhasePool, nphases + 1);
  build_pools(&f, pool, nphases);

  FitResult r = {.job = job, .args = *args, .budget_bytes = capped_budget(args)};
  int64_t budget = r.budget_bytes;
  Choice **chosen = arena_array(scratch, Choice *, nphases + 1);
  bool all = true;
  for (int i = 0; i < nphases; i++) {
    Choice *least = floor_of(&f, &pool[i]);
    ensure(least, "fit: phase %d has no plan at all", i);
    if (least->peak > r.floor_bytes) {
      r.floor_bytes = least->peak;
      r.phase = i;
    }
    chosen[i] = select_within(&f, &pool[i], budget);
    all &= chosen[i] != NULL;
  }
  r.floor_persistent = f.persistent_bytes;
  for (int i = 0; i < job->vars->all.n; i++) {
    const Var *v = &job->vars->all.at[i];
    r.class_bytes[variable_class(v->role)] += round_up(shape_bytes(&v->shape, v->dtype), PLAN_ALIGN);
  }
  r.floor_transient = r.floor_bytes - f.persistent_bytes - args->target->overhead_bytes - args->reserve_bytes;
  if (all) {
    r.plan = new_plan(&f, a);
    for (int i = 0; i < nphases; i++)
      ensure(assemble_choice(&f, r.plan, a, chosen[i]), "fit: a plan cannot be built twice");
    assemble_finish(r.plan, a);
    r.plan->budget_bytes = budget;
    r.plan->floor_bytes = r.floor_bytes;
    for (int i = 0; i < nphases; i++)
      if (r.plan->phases.at[i].peak_bytes > r.plan->phases.at[r.phase].peak_bytes) r.phase = i;
    add_passed(&pool[r.phase], chosen[r.phase], budget, a, &r);
  }
  PhasePool *shown = &pool[r.phase];
  for (int i = shown->frontier.n - 1; i >= 0; i--) {
    Candidate c = candidate_of(&shown->frontier.at[i]);
    vec_push(a, &r.frontier, c);
  }
  arena_free(scratch);
  if (args->check && r.plan) {
    const char *why = plan_check(r.plan, a);
    ensure(!why, "the plan is unsound: %s", why);
  }
  return r;
}
