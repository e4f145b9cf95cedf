/* fit.c - the outer search: micro-batch x chunks of the loss head x what is rebuilt, within a
 * budget.
 *
 * The pool of candidates depends on the job, the target and what was forced, never on the budget; a
 * budget selects the fastest candidate whose peak fits. So more budget is never slower. A
 * candidate's peak is that of its assembled plan, placement included, or its estimate where that is
 * higher; it is found out when selection asks for it. */
#include "fit.h"

#include <stdlib.h>

#include "assemble.h"

typedef struct {
  const Family *family;
  int64_t micro_batch;
  int trace;
  int64_t estimate; /* peak by liveness */
  int64_t peak;     /* exact, -1 not yet known */
  int64_t step_ns;
} Choice;

typedef struct {
  int phase;
  FamilyList families;
  Fixed update, sample;
  VEC(Choice) all;      /* every candidate, fastest first */
  VEC(Choice) frontier; /* fastest first, by falling peak */
} PhasePool;

typedef struct FitPool {
  FitContext x;
  PlanArgs args;
  int64_t persistent_bytes;
  int nphases;
  PhasePool *phase; /* NULL when there is no hope or the job cannot be planned */
} Fit;

/* ---- programs that are run as they stand ---- */

static Plan *new_plan(const Fit *f, Arena *a) {
  Plan *p = arena_new_of(a, Plan);
  p->job = f->x.job;
  p->target = f->x.target;
  p->overhead_bytes = f->x.target->overhead_bytes;
  p->reserve_bytes = f->args.reserve_bytes;
  assemble_variables(p, a);
  return p;
}

static int assemble_plain(const Fit *f, Plan *p, Arena *a, const char *name, Graph *g) {
  if (!g) return -1;
  Built b = fit_build(&f->x, g, false, a);
  int *order = arena_array(a, int, b.clusters.n + 1);
  for (int i = 0; i < b.clusters.n; i++) order[i] = i;
  return assemble_program(p, a, name, &b.map, b.clusters.n, order);
}

/* Height and time of a graph that is run as it stands. */
static Fixed fixed_program(const Fit *f, Graph *g) {
  Plan *p = new_plan(f, f->x.arena);
  if (assemble_plain(f, p, f->x.arena, "", g) < 0) return (Fixed){0};
  return (Fixed){p->programs.at[0].transient_bytes, p->programs.at[0].ns};
}

/* ---- what there is to choose from ---- */

static int by_value(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* Micro-batches: the divisors of the samples in a step, all equal parts of it. */
static int64_t *micro_batches(const Fit *f, int phase, int *n) {
  int64_t samples = phase_samples(f->x.job, phase), *list;
  *n = 0;
  if (f->args.micro_batch > 0) {
    list = arena_array(f->x.arena, int64_t, 1);
    list[(*n)++] = f->args.micro_batch;
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
  return round_up(f->persistent_bytes + transient, f->x.target->granule_bytes) +
         f->x.target->overhead_bytes + f->args.reserve_bytes;
}

static int64_t max64(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* Chunks that the graph really has. */
static int chunks_of(const Graph *g) {
  int most = 1;
  for (int i = 0; i < g->nodes.n; i++)
    if (g->nodes.at[i].chunk > most) most = g->nodes.at[i].chunk;
  return most;
}

/* Room for the steps of the longest trace. */
static int64_t *scratch_for(const Family *fam, Arena *a) {
  int most = 0;
  for (int i = 0; i < fam->traces.n; i++)
    if (fam->traces.at[i].n > most) most = fam->traces.at[i].n;
  return arena_array(a, int64_t, most + 2);
}

/* The candidates of one family at one micro-batch. Evaluation is left out: it is forward only, and
 * the exact peak of a choice counts it. */
static void add_choices(const Fit *f, PhasePool *pool, const Family *fam, int64_t at) {
  Arena *a = f->x.arena;
  Priced micro = fit_price(&f->x, fam->micro, fam->at_a, fam->at_b, at);
  int64_t samples = phase_samples(f->x.job, fam->phase), *scratch = scratch_for(fam, a);
  for (int i = 0; i < fam->traces.n; i++) {
    const Trace *t = &fam->traces.at[i];
    if (f->x.recompute == RC_FULL && i != fam->full) continue;
    int64_t ns = 0;
    for (int s = 0; s < t->n; s++) ns += micro.ns[t->order[s]];
    Choice c = {.family = fam, .micro_batch = at, .trace = i, .peak = -1};
    c.step_ns = mul64(ceil_div(samples, at), ns) + pool->update.ns;
    c.estimate = fit_height(&micro, t, scratch);
    c.estimate = max64(c.estimate, max64(pool->update.bytes, pool->sample.bytes));
    vec_push(a, &pool->all, c);
  }
}

/* Least height of families from..to-1 at their smallest micro-batch. */
static int64_t least_height(const Fit *f, const PhasePool *pool, int from, int to) {
  int64_t least = INT64_MAX;
  for (int i = from; i < to; i++) {
    const Family *fam = &pool->families.at[i];
    Priced p = fit_price(&f->x, fam->micro, fam->at_a, fam->at_b, fam->least);
    int64_t *scratch = scratch_for(fam, f->x.arena);
    for (int k = 0; k < fam->traces.n; k++) {
      int64_t h = fit_height(&p, &fam->traces.at[k], scratch);
      if (h < least) least = h;
    }
  }
  return least;
}

enum { CHUNKS_FACTOR = 8 };

/* What the families of one phase are made from. */
typedef struct {
  const Fit *f;
  PhasePool *pool;
  const PhasePool *before; /* phase, NULL at the first */
  const int64_t *batch;
  int n;
} Makes;

/* Families of one number of chunks. Their traces: those of the phase before, or else the solver's
 * at the smallest micro-batch, which begins; for joined ones with whole loss heads only (the others
 * rebuild little). */
static bool begin_chunked(const Makes *m, int chunks, const Graph *graph) {
  const FitContext *x = &m->f->x;
  FamilyList *list = &m->pool->families;
  int from = list->n;
  if (!fit_families(x, m->pool->phase, chunks, m->batch, m->n, graph, list)) return false;
  for (int i = from; i < list->n; i++) {
    Family *fam = &list->at[i];
    bool first = i == from || list->at[i - 1].apart != fam->apart;
    for (int k = 0; m->before && k < m->before->families.n; k++)
      if (m->before->families.at[k].chunks == chunks)
        fit_translate(x, &m->before->families.at[k], fam);
    if (fam->traces.n == 1 && first && (from == 0 || fam->apart)) fit_solve_begin(x, fam);
  }
  return true;
}

/* What was begun of families from..to-1; and the traces of the families before. */
static void end_chunked(const Makes *m, int from, int to) {
  const FitContext *x = &m->f->x;
  for (int i = from; i < to; i++) {
    Family *fam = &m->pool->families.at[i];
    if (fam->traces.n > 1) continue; /* from the phase before */
    fit_solve_end(x, fam);
    for (int k = 0; k < i; k++) fit_translate(x, &m->pool->families.at[k], fam);
    if (fam->traces.n > 1) continue;
    fit_solve_begin(x, fam);
    fit_solve_end(x, fam);
  }
}

/* As begin_chunked; *split tells whether the graph has that many chunks. */
static bool begin_split(const Makes *m, int chunks, bool *split) {
  GraphChoice c = {
      .phase = m->pool->phase, .micro_batch = m->batch[0], .chunks = chunks, .micro_only = true};
  TrainGraphs g = train_graphs(m->f->x.job, m->f->x.arena, &c);
  *split = g.micro && chunks_of(g.micro) >= chunks;
  return g.micro && (!*split || begin_chunked(m, chunks, g.micro));
}

/* The largest share of the peak that a whole loss head has, over the plans without rebuilding that
 * the card could hold. */
static double head_share(const Fit *f, const PhasePool *pool, const int64_t *batch, int n) {
  double most = 0;
  for (int i = 0; i < pool->families.n; i++) {
    const Family *fam = &pool->families.at[i];
    int64_t *scratch = scratch_for(fam, f->x.arena), axis = logits_axis(fam->micro[0]->clusters.g);
    for (int k = 0; k < n; k++) {
      if (batch[k] < fam->least || batch[k] > fam->most) continue;
      Priced p = fit_price(&f->x, fam->micro, fam->at_a, fam->at_b, batch[k]);
      int64_t logits = 0;
      for (int u = 0; u < fam->micro[0]->map.nunits; u++) {
        ValueId v = fam->micro[0]->map.unit[u].value;
        const Shape *s = v >= 0 ? &val(fam->micro[0]->clusters.g, v)->shape : NULL;
        if (s && s->rank > 1 && s->dim[s->rank - 1] == axis)
          logits = max64(logits, p.unit_bytes[u]);
      }
      int64_t peak = whole_peak(f, fit_height(&p, &fam->traces.at[0], scratch));
      if (k > 0 && peak > f->x.target->usable_bytes) continue;
      if ((double)logits / (double)peak > most) most = (double)logits / (double)peak;
    }
  }
  return most;
}

/* The first split of the loss head is solved along with the whole one. More chunks are tried while
 * they lower what the smallest micro-batch needs by more than a sixty-fourth. */
static bool make_families(const Makes *m, const Graph *whole, int forced) {
  PhasePool *pool = m->pool;
  if (!begin_chunked(m, forced > 0 ? forced : 1, whole)) return false;
  int from = 0, to = pool->families.n;
  double share = forced > 0 ? 0 : head_share(m->f, pool, m->batch, m->n);
  bool split = share >= 1.0 / 128;
  if (split && !begin_split(m, CHUNKS_FACTOR, &split)) return false;
  end_chunked(m, from, to);
  int64_t before = least_height(m->f, pool, from, to);
  for (int chunks = CHUNKS_FACTOR; split;) {
    from = to;
    to = pool->families.n;
    end_chunked(m, from, to);
    int64_t now = least_height(m->f, pool, from, to);
    share /= CHUNKS_FACTOR;
    chunks *= CHUNKS_FACTOR;
    /* What more pieces could give back, when the first have taken the most. */
    split = now < before - before / 64 && share >= 1.0 / 32;
    before = now;
    if (split && !begin_split(m, chunks, &split)) return false;
  }
  return true;
}

/* False when the job cannot be planned. */
static bool add_families(Fit *f, PhasePool *pool, const PhasePool *before) {
  Makes m = {.f = f, .pool = pool, .before = before};
  m.batch = micro_batches(f, pool->phase, &m.n);
  int forced = f->args.chunks;
  GraphChoice c = {
      .phase = pool->phase, .micro_batch = m.batch[0], .chunks = forced > 0 ? forced : 1};
  TrainGraphs g = train_graphs(f->x.job, f->x.arena, &c);
  if (!g.micro || f->x.job->diags->errors > 0) return false;
  f->persistent_bytes = variables_bytes(f->x.job->vars);
  pool->update = fixed_program(f, g.update);
  pool->sample = fixed_program(f, g.sample);
  bool made = make_families(&m, g.micro, forced);
  for (int i = 0; i < pool->families.n; i++) fit_solve_end(&f->x, &pool->families.at[i]);
  return made;
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
  for (int i = 0; i < pool->families.n; i++)
    for (int k = 0; k < n; k++)
      if (batch[k] >= pool->families.at[i].least && batch[k] <= pool->families.at[i].most)
        add_choices(f, pool, &pool->families.at[i], batch[k]);
  for (int i = 0; i < pool->all.n; i++)
    pool->all.at[i].estimate = whole_peak(f, pool->all.at[i].estimate);
  qsort(pool->all.at, (size_t)pool->all.n, sizeof *pool->all.at, by_time);
  int64_t least = INT64_MAX;
  for (int i = 0; i < pool->all.n; i++) {
    if (pool->all.at[i].estimate >= least) continue;
    least = pool->all.at[i].estimate;
    vec_push(f->x.arena, &pool->frontier, pool->all.at[i]);
  }
}

/* ---- assembling a choice ---- */

/* Appends the phase's programs for a choice; false when its trace does not fit the graph that is
 * really built. */
static bool assemble_choice(const Fit *f, Plan *p, Arena *a, const Choice *c) {
  const Family *fam = c->family;
  GraphChoice g = {.phase = fam->phase, .micro_batch = c->micro_batch, .chunks = fam->chunks};
  TrainGraphs graphs = train_graphs(f->x.job, a, &g);
  Built micro = fit_build(&f->x, graphs.micro, fam->apart, a);
  if (!fit_same_structure(fam->micro[0], &micro)) return false;
  const Trace *t = &fam->traces.at[c->trace];
  PlanPhase ph = {
      .phase = fam->phase, .micro_batch = c->micro_batch, .chunks = chunks_of(graphs.micro)};
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

/* Appends the choice to the plan and keeps it there when its exact peak, which is found out now, is
 * within the budget. */
static bool try_choice(const Fit *f, Plan *p, Arena *a, Choice *c, int64_t budget) {
  if (c->peak >= 0 && c->peak > budget) return false;
  int bufs = p->bufs.n, programs = p->programs.n;
  bool built = assemble_choice(f, p, a, c);
  int64_t highest = 0;
  for (int i = programs; i < p->programs.n; i++)
    highest = max64(highest, p->programs.at[i].transient_bytes);
  c->peak = built ? max64(whole_peak(f, highest), c->estimate) : INT64_MAX;
  if (built && c->peak <= budget) return true;
  p->phases.n -= built;
  p->bufs.n = bufs;
  p->programs.n = programs;
  return false;
}

/* The graph of a choice where the family was built at just that micro-batch; NULL elsewhere. */
static const Built *built_for(const Choice *c) {
  const Family *fam = c->family;
  if (fam->at_a == c->micro_batch) return fam->micro[0];
  return fam->at_b == c->micro_batch ? fam->micro[1] : NULL;
}

/* The exact peak of a choice, without a plan of it. */
static void find_peak(const Fit *f, const PhasePool *pool, Choice *c) {
  Arena *scratch = arena_new();
  const Built *micro = built_for(c);
  Plan *p = new_plan(f, scratch);
  if (micro) {
    const Trace *t = &c->family->traces.at[c->trace];
    GraphChoice g = {.phase = pool->phase,
                     .micro_batch = c->micro_batch,
                     .chunks = c->family->chunks,
                     .eval_only = true};
    assemble_program(p, scratch, "micro", &micro->map, t->n, t->order);
    assemble_plain(f, p, scratch, "eval", train_graphs(f->x.job, scratch, &g).eval);
    int64_t highest = max64(pool->update.bytes, pool->sample.bytes);
    for (int i = 0; i < p->programs.n; i++)
      highest = max64(highest, p->programs.at[i].transient_bytes);
    c->peak = max64(whole_peak(f, highest), c->estimate);
  } else {
    try_choice(f, p, scratch, c, -1);
  }
  arena_free(scratch);
}

/* Smallest peak of the pool, and whose it is. */
static Choice *floor_of(const Fit *f, PhasePool *pool) {
  Choice *best = NULL;
  for (int i = pool->frontier.n - 1; i >= 0; i--) {
    Choice *c = &pool->frontier.at[i];
    if (best && c->estimate >= best->peak) break;
    if (c->peak < 0) find_peak(f, pool, c);
    if (c->peak != INT64_MAX && (!best || c->peak < best->peak)) best = c;
  }
  return best;
}

/* The fastest choice within the budget, assembled into p; NULL when none fits. */
static Choice *select_within(const Fit *f, PhasePool *pool, Plan *p, Arena *a, int64_t budget) {
  for (int i = 0; i < pool->frontier.n; i++) {
    Choice *c = &pool->frontier.at[i];
    if (c->estimate <= budget && try_choice(f, p, a, c, budget)) return c;
  }
  return NULL;
}

/* ---- what the report tells besides the plan ---- */

static Candidate candidate_of(const Choice *c) {
  return (Candidate){.micro_batch = c->micro_batch,
                     .chunks = c->family->chunks,
                     .front = c->trace,
                     .peak_bytes = c->peak >= 0 && c->peak != INT64_MAX ? c->peak : c->estimate,
                     .step_ns = c->step_ns};
}

/* Slower ways that fit as well: nothing rebuilt, everything rebuilt, and the neighbouring
 * micro-batches. */
static void add_passed(const PhasePool *pool, const Choice *chosen, int64_t budget, Arena *a,
                       FitResult *r) {
  for (int kind = 0; kind < 4; kind++) {
    for (int i = 0; i < pool->all.n; i++) {
      const Choice *c = &pool->all.at[i];
      if (c->estimate > budget || c->step_ns <= chosen->step_ns) continue;
      if (kind == 0 && (c->trace != 0 || chosen->trace == 0)) continue;
      if (kind == 1 && (c->trace != c->family->full || c->trace == 0)) continue;
      if (kind == 2 && c->micro_batch >= chosen->micro_batch) continue;
      if (kind == 3 && c->micro_batch <= chosen->micro_batch) continue;
      Candidate x = candidate_of(c);
      bool known = false;
      for (int k = 0; k < r->passed.n; k++)
        known |= r->passed.at[k].micro_batch == x.micro_batch &&
                 r->passed.at[k].chunks == x.chunks && r->passed.at[k].step_ns == x.step_ns;
      if (!known) vec_push(a, &r->passed, x);
      break;
    }
  }
}

static int64_t capped_budget(const PlanArgs *args) {
  return args->budget_bytes < args->target->usable_bytes ? args->budget_bytes
                                                         : args->target->usable_bytes;
}

/* True when the variables alone are over the budget; but for a few scalars they exist once any
 * graph was asked for. */
static bool hopeless(Fit *f, int64_t budget) {
  GraphChoice c = {.micro_batch = 1, .chunks = 1, .eval_only = true};
  train_graphs(f->x.job, f->x.arena, &c);
  f->persistent_bytes = variables_bytes(f->x.job->vars);
  return whole_peak(f, 0) > budget;
}

static void fill_pools(Fit *f) {
  PhasePool *pool = arena_array(f->x.arena, PhasePool, f->nphases + 1);
  for (int i = 0; i < f->nphases; i++) {
    pool[i] = (PhasePool){.phase = i};
    if (!add_families(f, &pool[i], i > 0 ? &pool[i - 1] : NULL)) return;
  }
  f->persistent_bytes = variables_bytes(f->x.job->vars);
  for (int i = 0; i < f->nphases; i++) fill_pool(f, &pool[i]);
  f->phase = pool;
}

FitPool *fit_pool(const Job *job, Arena *a, const PlanArgs *args) {
  int mode = args->recompute >= 0 ? args->recompute : (int)job->memory.recompute;
  Fit *f = arena_new_of(a, Fit);
  *f = (Fit){.x = {.job = job, .target = args->target, .arena = a, .recompute = mode},
             .args = *args,
             .nphases = job->phases.n};
  if (!args->only_if_it_can || !hopeless(f, capped_budget(args))) fill_pools(f);
  return f;
}

static void count_variables(FitResult *r, const Vars *v) {
  for (int i = 0; i < v->all.n; i++)
    r->class_bytes[variable_class(v->all.at[i].role)] +=
        round_up(shape_bytes(&v->all.at[i].shape, v->all.at[i].dtype), PLAN_ALIGN);
}

/* Chooses for each phase and finds the floor. The floor comes second: what selection assembled is
 * known by then. */
static void choose(Fit *f, Arena *a, FitResult *r) {
  Choice **chosen = arena_array(a, Choice *, f->nphases + 1);
  Plan *p = new_plan(f, a);
  bool all = true;
  for (int i = 0; i < f->nphases && all; i++) {
    chosen[i] = select_within(f, &f->phase[i], p, a, r->budget_bytes);
    all = chosen[i] != NULL;
  }
  for (int i = 0; i < f->nphases; i++) {
    Choice *least = floor_of(f, &f->phase[i]);
    ensure(least, "fit: phase %d has no plan at all", i);
    if (least->peak <= r->floor_bytes) continue;
    r->floor_bytes = least->peak;
    r->phase = i;
  }
  r->floor_persistent = f->persistent_bytes;
  r->floor_transient =
      r->floor_bytes - f->persistent_bytes - f->x.target->overhead_bytes - f->args.reserve_bytes;
  if (!all) return;
  assemble_finish(p, a);
  p->budget_bytes = r->budget_bytes;
  p->floor_bytes = r->floor_bytes;
  r->plan = p;
  for (int i = 0; i < f->nphases; i++)
    if (p->phases.at[i].peak_bytes > p->phases.at[r->phase].peak_bytes) r->phase = i;
  add_passed(&f->phase[r->phase], chosen[r->phase], r->budget_bytes, a, r);
}

FitResult fit_within(FitPool *f, Arena *a, int64_t budget_bytes) {
  f->args.budget_bytes = budget_bytes;
  FitResult r = {.job = f->x.job, .args = f->args, .budget_bytes = capped_budget(&f->args)};
  if (!f->phase) return r;
  choose(f, a, &r);
  count_variables(&r, f->x.job->vars);
  const PhasePool *shown = &f->phase[r.phase];
  for (int i = shown->frontier.n - 1; i >= 0; i--) {
    Candidate c = candidate_of(&shown->frontier.at[i]);
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
  for (int i = 0; i < pool->all.n; i++) (*out)[i] = candidate_of(&pool->all.at[i]);
  return pool->all.n;
}

FitResult plan_fit(const Job *job, Arena *a, const PlanArgs *args) {
  Arena *scratch = arena_new();
  FitResult r = fit_within(fit_pool(job, scratch, args), a, args->budget_bytes);
  arena_free(scratch);
  return r;
}
