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

/* ---- programs that are run as they stand ---- */

int64_t fit_overhead(const FitPool *f, int res, const SavedSet *saved) {
  const Residency *r = &f->res.at[res];
  int64_t bytes = r->host_bytes + (saved ? saved->bytes : 0);
  return f->x.target->overhead_bytes + target_pinning_bytes(f->x.target, bytes, r->variables + (saved ? saved->n : 0));
}

int64_t fit_host_bytes(const FitPool *f, const Choice *c) {
  return f->res.at[c->res].host_bytes + (c->saved ? c->saved->bytes : 0);
}

Plan *fit_new_plan(const FitPool *f, Arena *a, int res) {
  Plan *p = arena_new_of(a, Plan);
  p->job = f->x.job;
  p->target = f->x.target;
  p->overhead_bytes = fit_overhead(f, res, NULL);
  p->reserve_bytes = f->args.reserve_bytes;
  assemble_variables(p, a, f->res.at[res].host, f->res.at[res].absent);
  return p;
}

int fit_assemble_plain(Plan *p, Arena *a, const char *name, const Built *b, int room) {
  if (!b) return -1;
  int *order = arena_array(a, int, b->clusters.n + 1);
  for (int i = 0; i < b->clusters.n; i++) order[i] = i;
  return assemble_program(p, a, name, &b->map, b->clusters.n, order, room);
}

/* ---- what there is to choose from ---- */

static int by_value(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* Micro-batches: the divisors of the samples in a step, all equal parts of it. */
static int64_t *micro_batches(const FitPool *f, int phase, int *n) {
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

int64_t fit_whole_peak(const FitPool *f, int res, const SavedSet *saved, int64_t transient) {
  return round_up(f->res.at[res].device_bytes + transient, f->x.target->granule_bytes) +
         fit_overhead(f, res, saved) + f->args.reserve_bytes;
}

int fit_chunks_of(const Graph *g) {
  int most = 1;
  for (int i = 0; i < g->nodes.n; i++)
    if (g->nodes.at[i].chunk > most) most = g->nodes.at[i].chunk;
  return most;
}

int fit_mlp_chunks_of(const Graph *g) {
  int most = 1;
  for (int i = 0; i < g->nodes.n; i++)
    if (g->nodes.at[i].tile > most) most = g->nodes.at[i].tile;
  return most;
}

/* Room for the steps of the longest trace. */
static int64_t *scratch_for(const Family *fam, Arena *a) {
  int most = 0;
  for (int i = 0; i < fam->traces.n; i++)
    if (fam->traces.at[i].n > most) most = fam->traces.at[i].n;
  return arena_array(a, int64_t, most + 2);
}

int64_t fit_least_height(const FitPool *f, const PhasePool *pool, int from, int to, int64_t at) {
  int64_t least = INT64_MAX;
  for (int i = from; i < to; i++) {
    const Family *fam = &pool->families.at[i];
    if (at > 0 && (at < fam->least || at > fam->most)) continue;
    Priced p = fit_price(&f->x, fam->micro, fam->at_a, fam->at_b, at > 0 ? at : fam->least);
    int64_t *scratch = scratch_for(fam, f->x.arena);
    for (int k = 0; k < fam->traces.n; k++) {
      int64_t h = fit_height(&p, &fam->traces.at[k], scratch);
      if (h < least) least = h;
    }
  }
  return least;
}

enum { CHUNKS_FACTOR = 8, MLP_CHUNKS = 4 };

/* What the families of one phase are made from. */
typedef struct {
  const FitPool *f;
  PhasePool *pool;
  const PhasePool *before; /* phase, NULL at the first */
  const int64_t *batch;
  int n;
} Makes;

/* Begins to look for traces of new families of one way of fusing: those of the phase before, or else the solver's at the
 * smallest micro-batch; for joined ones with whole loss heads only (the others rebuild little). */
static void begin_traces(const Makes *m, const PhasePool *fused, bool whole) {
  const FitContext *x = &m->f->x;
  for (int i = 0; i < fused->families.n; i++) {
    Family *fam = &fused->families.at[i];
    for (int k = 0; m->before && k < m->before->families.n; k++)
      if (same_cut(m->before->families.at[k].cut, fam->cut))
        fit_translate(x, &m->before->families.at[k], fam);
    if (fam->traces.n == 1 && i == 0 && (whole || fam->apart)) fit_solve_begin(x, fam);
  }
}

/* A program of plain micro-batches with the loss head in so many chunks. */
static Cut plain_cut(int chunks) {
  return (Cut){.chunks = chunks, .mlp_chunks = 1, .group = 1};
}

/* Families of one cut, joined ones first. Those apart are made first: their solver takes longest. */
static bool begin_cut(const Makes *m, Cut cut, const Graph *graph) {
  const FitContext *x = &m->f->x;
  PhasePool fused[2] = {{.phase = m->pool->phase}, {.phase = m->pool->phase}};
  bool whole = m->pool->families.n == 0, ok = true;
  FitGraphs *g = fit_graphs(x, m->pool->phase, cut, m->batch, m->n, graph);
  for (int apart = 1; ok && apart >= 0; apart--) {
    ok = fit_add_fused(g, apart, &fused[apart]);
    if (ok) begin_traces(m, &fused[apart], whole);
  }
  for (int apart = 0; apart < 2; apart++)
    for (int i = 0; i < fused[apart].families.n; i++)
      vec_push(x->arena, &m->pool->families, fused[apart].families.at[i]);
  return ok;
}

/* What was begun of families from..to-1; and the traces of the families before. */
static void end_cut(const Makes *m, int from, int to) {
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

/* As begin_cut; *split tells whether the graph has that many chunks. */
static bool begin_split(const Makes *m, int chunks, bool *split) {
  Cut cut = plain_cut(chunks);
  GraphChoice c = cut_choice(m->pool->phase, m->batch[0], cut);
  c.micro_only = true;
  TrainGraphs g = train_graphs(m->f->x.job, m->f->x.arena, &c);
  *split = g.micro && fit_chunks_of(g.micro) >= chunks;
  return g.micro && (!*split || begin_cut(m, cut, g.micro));
}

/* The largest share of the peak that a whole loss head has, over the plans without rebuilding that
 * the card could hold. */
static double head_share(const FitPool *f, const PhasePool *pool, const int64_t *batch, int n) {
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
      int64_t peak = fit_whole_peak(f, f->res.n - 1, NULL, fit_height(&p, &fam->traces.at[0], scratch));
      if (k > 0 && peak > f->x.target->usable_bytes) continue;
      if ((double)logits / (double)peak > most) most = (double)logits / (double)peak;
    }
  }
  return most;
}

static const Built *built_plain(const FitPool *f, const Graph *g) {
  FitBuild b = {.graph = g};
  fit_build_all(&f->x, 1, &b, f->x.arena);
  return b.built;
}

/* The first split of the loss head is solved along with the whole one. More chunks are tried while
 * they lower what the smallest micro-batch needs by more than a sixty-fourth. */
static bool make_families(const Makes *m, const TrainGraphs *whole, int forced) {
  PhasePool *pool = m->pool;
  if (!begin_cut(m, plain_cut(forced > 0 ? forced : 1), whole->micro)) return false;
  FitBuild plain[] = {{.graph = whole->update}, {.graph = whole->sample}};
  fit_build_all(&m->f->x, COUNT_OF(plain), plain, m->f->x.arena); /* while the solver works */
  pool->update[MICRO_PLAIN] = plain[0].built;
  pool->sample = plain[1].built;
  int from = 0, to = pool->families.n;
  double share = forced > 0 ? 0 : head_share(m->f, pool, m->batch, m->n);
  bool split = share >= 1.0 / 128;
  if (split && !begin_split(m, CHUNKS_FACTOR, &split)) return false;
  end_cut(m, from, to);
  int64_t before = fit_least_height(m->f, pool, from, to, 0);
  for (int chunks = CHUNKS_FACTOR; split;) {
    from = to;
    to = pool->families.n;
    end_cut(m, from, to);
    int64_t now = fit_least_height(m->f, pool, from, to, 0);
    share /= CHUNKS_FACTOR;
    chunks *= CHUNKS_FACTOR;
    /* What more pieces could give back, when the first have taken the most. */
    split = now < before - before / 64 && share >= 1.0 / 32;
    before = now;
    if (split && !begin_split(m, chunks, &split)) return false;
  }
  return true;
}

/* What an MLP holds inside, at once with its gradients, is about four products like the widest of a layer: whether that is a
 * sixteenth of the least peak at the smallest micro-batch. */
static bool mlps_are_large(const FitPool *f, const PhasePool *pool, int64_t at) {
  const Family *fam = &pool->families.at[0];
  const StorageMap *map = &fam->micro[0]->map;
  Priced p = fit_price(&f->x, fam->micro, fam->at_a, fam->at_b, at);
  int64_t widest = 0;
  for (int u = 0; u < map->nunits; u++) {
    const Node *n = map->unit[u].value < 0 ? NULL : node_of(fam->micro[0]->clusters.g, map->unit[u].value);
    if (n && n->op == OP_DOT && n->phase == PH_FORWARD && n->layer >= 0) widest = max64(widest, p.unit_bytes[u]);
  }
  if (widest < fit_whole_peak(f, f->res.n - 1, NULL, 0) / 64) return false; /* least heights are dearer to find */
  int64_t height = fit_least_height(f, pool, 0, pool->families.n, at);
  return (double)widest / (double)fit_whole_peak(f, f->res.n - 1, NULL, height) >= 1.0 / 64;
}

/* The families with so many chunks of the loss head once more, MLPs in chunks; with the same traces, where each rebuild is that
 * of one chunk. */
static bool add_mlp_chunks(const Makes *m, int chunks, int mlp_chunks) {
  Cut whole = plain_cut(chunks), cut = whole;
  cut.mlp_chunks = mlp_chunks;
  return fit_add_like(&m->f->x, cut, whole, m->batch, m->n, m->pool);
}

/* Where MLPs are small, chunks of them gain nothing; nor do they without recompute. */
static bool chunk_mlps(const Makes *m) {
  const FitPool *f = m->f;
  PhasePool *pool = m->pool;
  int forced = f->args.mlp_chunks, whole = pool->families.n;
  if (forced == 0 && f->x.recompute != RC_NONE && mlps_are_large(f, pool, m->batch[0]))
    return add_mlp_chunks(m, pool->families.at[whole - 1].cut.chunks, MLP_CHUNKS);
  for (int i = 0; i < whole && forced > 1; i++) {
    int chunks = pool->families.at[i].cut.chunks;
    if (i > 0 && chunks == pool->families.at[i - 1].cut.chunks) continue;
    if (!add_mlp_chunks(m, chunks, forced)) return false;
  }
  return true;
}

static bool any_squares(const PhasePool *pool) {
  for (int i = 0; i < pool->families.n; i++)
    if (pool->families.at[i].cut.kind == MICRO_SQUARES) return true;
  return false;
}

/* Where micro-batches have host variables: families and an update for them. */
static bool finish_early(const Makes *m, GraphChoice c) {
  const FitPool *f = m->f;
  if (!f->res.at[f->res.n - 1].micro) return true;
  if (!any_squares(m->pool) && !fit_add_kind(f, m->pool, MICRO_SQUARES, m->batch, m->n))
    return false;
  c.early_squares = c.update_only = true;
  m->pool->update[MICRO_SQUARES] = built_plain(f, train_graphs(f->x.job, f->x.arena, &c).update);
  return true;
}

/* The same families for groups of micro-batches, with the same traces for each member; unless there are some. */
static bool add_group(const Makes *m, int chunks, int group, MicroKind kind) {
  Cut one = plain_cut(chunks), cut = one;
  cut.group = group;
  cut.kind = kind;
  for (int i = 0; i < m->pool->families.n; i++)
    if (m->pool->families.at[i].cut.group == group && m->pool->families.at[i].cut.kind == kind) return true;
  return fit_add_like(&m->f->x, cut, one, m->batch, m->n, m->pool);
}

/* Groups that are asked for, with the loss head whole or in its first split. */
static bool add_groups(const Makes *m) {
  int group = m->f->args.group, split = m->f->args.chunks > 0 ? m->f->args.chunks : 1;
  if (group == 1) return true;
  for (int i = 0; i < m->pool->families.n && m->f->args.chunks == 0; i++)
    if (m->pool->families.at[i].cut.chunks == CHUNKS_FACTOR) split = CHUNKS_FACTOR;
  bool squares = m->f->res.at[m->f->res.n - 1].micro;
  return add_group(m, split, group, MICRO_PLAIN) &&
         (!squares || add_group(m, split, group, MICRO_SQUARES));
}

/* The families of another job, and this one's updates. */
static bool take_families(const Makes *m, GraphChoice c) {
  const FitPool *f = m->f;
  bool early = f->res.at[f->res.n - 1].micro;
  fit_take_families(&f->like->phase[m->pool->phase], f->number, f->x.job->vars->all.n, early,
                    f->x.arena, m->pool);
  c.update_only = true;
  m->pool->update[MICRO_PLAIN] = built_plain(f, train_graphs(f->x.job, f->x.arena, &c).update);
  return finish_early(m, c) && add_groups(m);
}

/* False when the job cannot be planned. */
static bool add_families(FitPool *f, PhasePool *pool, const PhasePool *before) {
  Makes m = {.f = f, .pool = pool, .before = before};
  m.batch = micro_batches(f, pool->phase, &m.n);
  int forced = f->args.chunks;
  GraphChoice c = cut_choice(pool->phase, m.batch[0], plain_cut(forced > 0 ? forced : 1));
  TrainGraphs g = {0};
  if (!f->like) {
    g = train_graphs(f->x.job, f->x.arena, &c);
    if (!g.micro) return false;
  }
  if (f->x.job->diags->errors > 0) return false;
  f->res = residency_list(f->x.job, f->x.arena, f->args.host_bytes, NULL);
  if (f->res.n == 0) return false;
  if (f->like) return take_families(&m, c);
  bool made = make_families(&m, &g, forced);
  for (int i = 0; i < pool->families.n; i++) fit_solve_end(&f->x, &pool->families.at[i]);
  return made && chunk_mlps(&m) && finish_early(&m, c) && add_groups(&m);
}

/* ---- the pool ---- */

int64_t fit_capped_budget(const PlanArgs *args) {
  return args->budget_bytes < args->target->usable_bytes ? args->budget_bytes
                                                         : args->target->usable_bytes;
}

/* True when the variables and what is known to stand beside them are over the budget; but for a few scalars they exist once any
 * graph was asked for. */
static bool hopeless(FitPool *f, int64_t budget) {
  GraphChoice c = {.micro_batch = 1, .chunks = 1, .eval_only = true};
  train_graphs(f->x.job, f->x.arena, &c);
  const bool *absent = NULL; /* at most these */
  if (fit_may_update_early(f)) absent = fit_unused_accumulators(f, NULL);
  f->res = residency_list(f->x.job, f->x.arena, f->args.host_bytes, absent);
  return f->res.n == 0 || fit_whole_peak(f, f->res.n - 1, NULL, f->args.beside_bytes) > budget;
}

static void fill_pools(FitPool *f) {
  PhasePool *pool = arena_array(f->x.arena, PhasePool, f->nphases + 1);
  for (int i = 0; i < f->nphases; i++) {
    pool[i] = (PhasePool){.phase = i};
    if (!add_families(f, &pool[i], i > 0 ? &pool[i - 1] : NULL)) return;
  }
  const bool *absent;
  if (!fit_add_early(f, pool, &absent)) return;
  /* Now that all variables exist. */
  f->res = residency_list(f->x.job, f->x.arena, f->args.host_bytes, absent);
  for (int i = 0; i < f->nphases; i++) {
    int n;
    const int64_t *batch = micro_batches(f, i, &n);
    fit_fill_pool(f, &pool[i], batch, n);
  }
  f->phase = pool;
}

FitPool *fit_pool_like(const FitPool *like, const Job *job, Arena *a, const PlanArgs *args) {
  int mode = args->recompute >= 0 ? args->recompute : (int)job->memory.recompute;
  FitPool *f = arena_new_of(a, FitPool);
  *f = (FitPool){.x = {.job = job, .target = args->target, .arena = a, .recompute = mode},
             .args = *args,
             .nphases = job->phases.n};
  if (f->args.group == 0) f->args.group = 1;
  if (args->only_if_it_can && hopeless(f, fit_capped_budget(args))) return f;
  if (like && like->phase) f->number = fit_same_variables(like->x.job->vars, job->vars, a);
  if (f->number) f->like = like;
  f->x.segments = rec_segments_new();
  fill_pools(f);
  rec_segments_free(f->x.segments);
  f->x.segments = NULL;
  return f;
}

FitPool *fit_pool(const Job *job, Arena *a, const PlanArgs *args) {
  return fit_pool_like(NULL, job, a, args);
}

int fit_families_known(const FitPool *f) {
  int n = 0;
  for (int i = 0; f->phase && i < f->nphases; i++) n += f->phase[i].families.n;
  return n;
}
