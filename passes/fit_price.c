/* fit_price.c - the candidates of a phase: every trace at every micro-batch, with each choice of what lives on the host
 * (see fit.h). Input: the families of a phase, the residencies. Output: choices with times and peaks by liveness.
 *
 * Where nothing is on the host, all are kept. With host variables, those alone that nothing beats at their own micro-batch
 * before copies count. Evaluation is left out: it is forward only, and the exact peak of a choice counts it. */
#include "fit_price.h"

#include <stdlib.h>

#include "assemble.h"

enum { UPDATE_ROOMS = 5 };

/* ---- programs that are run as they stand ---- */

static const int *as_it_stands(int n, Arena *a) {
  int *order = arena_array(a, int, n + 1);
  for (int i = 0; i < n; i++) order[i] = i;
  return order;
}

/* As it is placed. */
static Fixed placed(const FitPool *f, const Built *b, int res) {
  Arena *a = arena_new();
  Plan *p = fit_new_plan(f, a, res);
  assemble_program(p, a, "", &b->map, b->clusters.n, as_it_stands(b->clusters.n, a), PLAIN_ROOM);
  int64_t bytes = p->programs.at[0].transient_bytes;
  Fixed x = {.bytes = bytes, .exact = bytes, .ns = p->programs.at[0].ns, .room = PLAIN_ROOM};
  arena_free(a);
  return x;
}

Fixed fit_staged_at(const StageProblem *s, int room) {
  Arena *a = arena_new();
  StageProblem p = *s;
  p.room = room;
  StagePlan plan = stage_plan(&p, a);
  arena_free(a);
  return (Fixed){.bytes = plan.peak, .ns = plan.ns, .room = room};
}

StageProblem fit_staged(const FitPool *f, const Priced *price, const Timeline *time,
                        const HostUses *uses, const HostItems *items, int64_t *live) {
  timeline_live(time, price->unit_bytes, price->workspace, live);
  for (int s = 0; s < time->nsteps; s++) live[s] += price->inputs_bytes;
  return (StageProblem){.nsteps = time->nsteps,
                        .trace = time->trace,
                        .ns = price->ns,
                        .uses = uses,
                        .items = items,
                        .target = f->x.target,
                        .live = live};
}

/* The update with more and more room for its copies, while that makes it faster. */
static void price_update(const FitPool *f, const Built *b, int res, Resident *out) {
  Arena *a = arena_new();
  FitContext x = f->x;
  x.arena = a;
  const Built *const both[2] = {b, b};
  Priced price = fit_price(&x, both, 1, 1, 1);
  Timeline time = timeline_run(&b->map, a, b->clusters.n, as_it_stands(b->clusters.n, a), false);
  HostItems items = stage_items(&b->map, f->x.job->vars, f->res.at[res].host, &(SavedSet){0}, NULL, a);
  HostUses uses = stage_uses(&b->map, &items, a);
  StageProblem s = fit_staged(f, &price, &time, &uses, &items, arena_array(a, int64_t, time.nsteps + 2));
  for (int room = 0; room < UPDATE_ROOMS; room++) {
    Fixed v = fit_staged_at(&s, room);
    const Fixed *last = out->update.n ? &vec_last(&out->update) : NULL;
    if (last && v.ns >= last->ns) continue;
    vec_push(f->x.arena, &out->update, v);
  }
  arena_free(a);
}

static void price_plain(const FitPool *f, const PhasePool *pool, int res, Resident *out) {
  bool copies = f->res.at[res].host_bytes > 0;
  if (pool->sample) out->sample = placed(f, pool->sample, res);
  const Built *update = pool->update[micro_kind(&f->res.at[res])];
  if (update && copies)
    price_update(f, update, res, out);
  else
    vec_push(f->x.arena, &out->update, (update ? placed(f, update, res) : (Fixed){0}));
}

/* ---- choices ---- */

int64_t fit_step_ns(const Pricing *x, const Bare *b, int64_t micro_ns, const Fixed *update) {
  int64_t saved = fit_alone(x) ? 0 : b->ns - b->first_ns;
  return mul64(x->steps, micro_ns) - saved + update->ns;
}

/* With each update that is worth it: the fastest that needs no more than the micro-batch, and the faster ones. */
void fit_add_choice(const Pricing *x, Choice c, const Bare *b, int64_t micro_ns, int64_t height) {
  const Resident *r = &x->pool->res[c.res];
  int from = 0;
  while (from + 1 < r->update.n && r->update.at[from + 1].bytes <= height) from++;
  for (int i = from; i < r->update.n; i++) {
    const Fixed *u = &r->update.at[i];
    c.update = i;
    c.step_ns = fit_step_ns(x, b, micro_ns, u);
    c.estimate = fit_whole_peak(x->f, c.res, c.saved, max64(height, max64(u->bytes, r->sample.bytes)));
    vec_push(x->f->x.arena, &x->pool->all, c);
  }
}

static int by_speed(const void *a, const void *b) {
  const Bare *x = a, *y = b;
  if (x->ns != y->ns) return x->ns < y->ns ? -1 : 1;
  if (x->height != y->height) return x->height < y->height ? -1 : 1;
  return (x->trace > y->trace) - (x->trace < y->trace);
}

/* Uses of the host variables of one residency in a family's micro program, and in that of the first micro-batch of a
 * step; host: hash of the units that those are. */
typedef struct {
  HostItems items;
  HostUses uses, first;
  uint64_t host;
} FamilyUses;

/* Where a key is, or would be. */
static int cache_slot(const StagedCache *c, uint64_t key) {
  int i = (int)(key & (uint64_t)(c->cap - 1));
  while (c->slot[i].key && c->slot[i].key != key) i = (i + 1) & (c->cap - 1);
  return i;
}

static void cache_grow(StagedCache *c) {
  StagedCache old = *c;
  enum { FIRST = 1024 };
  c->cap = old.cap ? 2 * old.cap : FIRST;
  c->slot = arena_alloc(c->arena, sizeof *c->slot * (size_t)c->cap);
  for (int i = 0; i < old.cap; i++)
    if (old.slot[i].key) c->slot[cache_slot(c, old.slot[i].key)] = old.slot[i];
}

/* fit_staged_at for a trace of a family at one micro-batch. */
static Fixed staged_once(const Bare *b, int64_t at, uint64_t host, const StageProblem *s, int room) {
  StagedCache *c = b->family->staged;
  int64_t fact[] = {at, b->trace, room};
  uint64_t key = hash_bytes(fact, sizeof fact, host) | 1;
  if (2 * (c->n + 1) > c->cap) cache_grow(c);
  int i = cache_slot(c, key);
  if (!c->slot[i].key) {
    Fixed v = fit_staged_at(s, room);
    c->slot[i].key = key;
    c->slot[i].bytes = v.bytes;
    c->slot[i].ns = v.ns;
    c->n++;
  }
  return (Fixed){.bytes = c->slot[i].bytes, .ns = c->slot[i].ns, .room = room};
}

/* One trace with what lives on the host. Steps of the first micro-batch are taken to wait for copies as long as those of
 * another one, which copy more. */
static void add_resident(const Pricing *x, const Bare *b, FamilyUses *const *uses, const Priced *price) {
  const FitPool *f = x->f;
  const Trace *t = &b->family->traces.at[b->trace];
  StageProblem s = {0}; /* but for the uses the same with each residency */
  for (int res = 0; res < f->res.n; res++) {
    if (f->res.at[res].host_bytes == 0 || micro_kind(&f->res.at[res]) != b->family->cut.kind) continue;
    Choice c = fit_choice(x, b, res);
    if (b->family->cut.kind == MICRO_PLAIN) {
      fit_add_choice(x, c, b, fit_bare_ns(x, b), b->height);
      continue;
    }
    if (!s.live)
      s = fit_staged(f, price, &t->time, NULL, NULL, arena_array(x->arena, int64_t, t->n + 2));
    s.items = &uses[res]->items;
    s.uses = fit_alone(x) ? &uses[res]->first : &uses[res]->uses;
    if (fit_alone(x)) s.ns = price->first_ns;
    int64_t before = INT64_MAX;
    for (c.room = 0; c.room <= MICRO_ROOMS; c.room++) {
      Fixed v = staged_once(b, x->at, uses[res]->host, &s, c.room);
      if (v.ns >= before) continue;
      fit_add_choice(x, c, b, v.ns, v.bytes);
      before = v.ns;
    }
  }
}

typedef VEC(Bare) BareList;

/* The traces of a family at one micro-batch: those without host variables become choices. */
static void bare_traces(const Pricing *x, const Family *fam, const Priced *price, BareList *out) {
  const FitPool *f = x->f;
  int64_t *scratch = NULL;
  int most = 0;
  for (int i = 0; i < fam->traces.n; i++)
    if (fam->traces.at[i].n > most) most = fam->traces.at[i].n;
  scratch = arena_array(x->arena, int64_t, most + 2);
  for (int i = 0; i < fam->traces.n; i++) {
    const Trace *t = &fam->traces.at[i];
    if (f->x.recompute == RC_FULL && i != fam->full) continue;
    Bare b = {.family = fam, .trace = i, .height = fit_height(price, t, scratch)};
    for (int s = 0; s < t->n; s++) {
      b.first_ns += price->first_ns[t->order[s]];
      b.ns += price->ns[t->order[s]];
    }
    for (int res = 0; res < f->res.n; res++)
      if (f->res.at[res].host_bytes == 0 && micro_kind(&f->res.at[res]) == fam->cut.kind)
        fit_add_choice(x, fit_choice(x, &b, res), &b, fit_bare_ns(x, &b), b.height);
    vec_push(x->arena, out, b);
  }
}

/* Uses of host variables in a family's micro program, by residency; they are the same at every micro-batch. */
static FamilyUses **family_uses(const FitPool *f, const Family *fam, Arena *a) {
  FamilyUses **uses = arena_array(a, FamilyUses *, f->res.n + 1);
  const StorageMap *m = &fam->micro[0]->map;
  for (int res = 0; res < f->res.n; res++) {
    if (micro_kind(&f->res.at[res]) != fam->cut.kind || fam->cut.kind == MICRO_PLAIN) continue;
    const bool *host = f->res.at[res].host;
    uses[res] = arena_new_of(a, FamilyUses);
    uses[res]->items = stage_items(m, f->x.job->vars, host, &(SavedSet){0}, NULL, a);
    uses[res]->uses = stage_uses(m, &uses[res]->items, a);
    uses[res]->first = stage_uses(&fam->micro[0]->first->map, &uses[res]->items, a);
    for (int u = 0; u < m->nunits; u++)
      if (m->unit[u].var >= 0 && host[m->unit[u].var])
        uses[res]->host = hash_bytes(&u, sizeof u, uses[res]->host);
  }
  return uses;
}

/* Of traces of families of one kind: those that nothing beats, with host variables. */
static void add_best(Pricing *x, BareList *list, MicroKind kind, FamilyUses **const *uses) {
  const FitPool *f = x->f;
  if (list->n) qsort(list->at, (size_t)list->n, sizeof *list->at, by_speed);
  int64_t least = INT64_MAX;
  for (int i = 0; i < list->n; i++) {
    const Bare *b = &list->at[i];
    if (b->height >= least) continue;
    least = b->height;
    vec_push(x->arena, &x->best[kind], *b);
    if (fit_whole_peak(f, f->res.n - 1, NULL, b->height) > f->x.target->usable_bytes) continue;
    int family = (int)(b->family - x->pool->families.at);
    add_resident(x, b, uses[family], &x->price[family]);
  }
}

static Pricing add_micro_batch(const FitPool *f, PhasePool *pool, int64_t at, FamilyUses **const *uses) {
  Pricing x = {.f = f, .pool = pool, .arena = arena_new(), .at = at};
  x.steps = ceil_div(phase_samples(f->x.job, pool->phase), at);
  FitContext here = f->x;
  here.arena = x.arena;
  BareList list[MICRO_KINDS] = {{0}};
  x.price = arena_array(x.arena, Priced, pool->families.n + 1);
  for (int i = 0; i < pool->families.n; i++) {
    const Family *fam = &pool->families.at[i];
    if (at < fam->least || at > fam->most || at % fam->cut.group) continue;
    if (fam->cut.group != f->args.group) continue;
    if (f->args.mlp_chunks > 0 && fam->cut.mlp_chunks != f->args.mlp_chunks) continue;
    x.price[i] = fit_price(&here, fam->micro, fam->at_a, fam->at_b, at);
    bare_traces(&x, fam, &x.price[i], &list[fam->cut.kind]);
  }
  for (int kind = 0; kind < MICRO_KINDS; kind++) add_best(&x, &list[kind], (MicroKind)kind, uses);
  return x;
}

static int by_time(const void *a, const void *b) {
  const Choice *x = a, *y = b;
  if (x->step_ns != y->step_ns) return x->step_ns < y->step_ns ? -1 : 1;
  if (x->estimate != y->estimate) return x->estimate < y->estimate ? -1 : 1;
  if (x->res != y->res) return x->res < y->res ? -1 : 1;
  const Cut *p = &x->family->cut, *q = &y->family->cut;
  if (p->chunks != q->chunks) return p->chunks < q->chunks ? -1 : 1;
  if (p->mlp_chunks != q->mlp_chunks) return p->mlp_chunks < q->mlp_chunks ? -1 : 1;
  if (p->group != q->group) return p->group < q->group ? -1 : 1;
  if (x->micro_batch != y->micro_batch) return x->micro_batch < y->micro_batch ? -1 : 1;
  if (x->room != y->room) return x->room < y->room ? -1 : 1;
  int64_t saves = (x->saved ? x->saved->bytes : 0) - (y->saved ? y->saved->bytes : 0);
  if (saves) return saves < 0 ? -1 : 1;
  if (x->update != y->update) return x->update < y->update ? -1 : 1;
  if (x->family != y->family) return x->family < y->family ? -1 : 1;
  return (x->trace > y->trace) - (x->trace < y->trace);
}

void fit_fill_pool(const FitPool *f, PhasePool *pool, const int64_t *batch, int n) {
  Arena *scratch = arena_new();
  pool->res = arena_array(f->x.arena, Resident, f->res.n + 1);
  for (int res = 0; res < f->res.n; res++) price_plain(f, pool, res, &pool->res[res]);
  FamilyUses ***uses = arena_array(scratch, FamilyUses **, pool->families.n + 1);
  for (int i = 0; i < pool->families.n; i++) uses[i] = family_uses(f, &pool->families.at[i], scratch);
  Pricing *at = arena_array(scratch, Pricing, n + 1);
  for (int k = 0; k < n; k++) at[k] = add_micro_batch(f, pool, batch[k], uses);
  qsort(pool->all.at, (size_t)pool->all.n, sizeof *pool->all.at, by_time);
  if (f->args.host_bytes > 0 && f->nphases == 1) {
    fit_add_saved(pool, at, n);
    qsort(pool->all.at, (size_t)pool->all.n, sizeof *pool->all.at, by_time);
  }
  for (int k = 0; k < n; k++) arena_free(at[k].arena);
  arena_free(scratch);
  int64_t least = INT64_MAX, *own = arena_array(f->x.arena, int64_t, f->res.n + 1);
  for (int res = 0; res < f->res.n; res++) own[res] = INT64_MAX;
  for (int i = 0; i < pool->all.n; i++) {
    const Choice *c = &pool->all.at[i];
    if (c->estimate < own[c->res]) {
      own[c->res] = c->estimate;
      vec_push(f->x.arena, &pool->res[c->res].frontier, i);
    }
    if (c->estimate < least) {
      least = c->estimate;
      vec_push(f->x.arena, &pool->frontier, i);
    }
  }
}
