/* fit_saved.c - candidates whose saved values wait on the host (see fit_price.h, saved.h). Input: the best traces of each
 * micro-batch, the candidates without. Output: choices with times and peaks by liveness.
 *
 * A simulation of the copies is the dear part. Before it, a candidate is measured by what it cannot do without: the steps, the
 * copies' share of the bus, the bytes that stay; one that is beaten even so is not simulated. */
#include "fit_price.h"

/* Of candidates by rising time: the least peak of any that is no slower. */
typedef struct {
  int n;
  int64_t *ns, *peak;
} Beaten;

static Beaten beaten_by(const PhasePool *pool, Arena *a) {
  Beaten b = {.ns = arena_array(a, int64_t, pool->all.n + 1),
              .peak = arena_array(a, int64_t, pool->all.n + 1)};
  for (int i = 0; i < pool->all.n; i++) {
    const Choice *c = &pool->all.at[i];
    if (b.n > 0 && c->estimate >= b.peak[b.n - 1]) continue;
    b.ns[b.n] = c->step_ns;
    b.peak[b.n++] = c->estimate;
  }
  return b;
}

static bool is_beaten(const Beaten *b, int64_t ns, int64_t peak) {
  int lo = 0, hi = b->n; /* those before lo are no slower */
  while (lo < hi) {
    int mid = (lo + hi) / 2;
    if (b->ns[mid] <= ns)
      lo = mid + 1;
    else
      hi = mid;
  }
  return lo > 0 && b->peak[lo - 1] <= peak;
}

/* What all candidates of a trace with some values on the host share. */
typedef struct {
  const Pricing *x;
  const Beaten *beaten;
  const Bare *bare;
  const Priced *price;
  int64_t ns; /* of the steps */
  SavedSet saved;
  Timeline time;
  Priced rest; /* without what waits on the host */
  int64_t *live, height;
  Arena *arena;
} Saving;

/* Copies of both directions that run beside one another. */
static int64_t bus_ns(const Target *t, int64_t in, int64_t out) {
  double a = (double)in / t->h2d_gbs, b = (double)out / t->d2h_gbs;
  return (int64_t)(a < b ? b - a + a / t->both_ways : a - b + b / t->both_ways);
}

/* Each host variable is copied at least once in the directions that the program uses it in. */
static int64_t least_copying(const Saving *s, const HostItems *items, const HostUses *uses) {
  int nclusters = s->bare->family->micro[0]->clusters.n;
  bool *read = arena_array(s->arena, bool, items->n + 1),
       *written = arena_array(s->arena, bool, items->n + 1);
  int64_t in = s->saved.bytes, out = s->saved.bytes;
  for (int i = 0; i < uses->first[nclusters]; i++) {
    const HostUse *u = &uses->list[i];
    if (u->item >= items->nvars) continue;
    if (u->read && !read[u->item]) in += items->bytes[u->item];
    if (u->write && !written[u->item]) out += items->bytes[u->item];
    read[u->item] |= u->read;
    written[u->item] |= u->write;
  }
  return bus_ns(s->x->f->x.target, in, out);
}

static void add_with(const Saving *s, int res) {
  const Pricing *x = s->x;
  const FitPool *f = x->f;
  const Resident *r = &x->pool->res[res];
  const Fixed *fastest = &vec_last(&r->update);
  int64_t least = fit_whole_peak(f, res, &s->saved,
                                 max64(s->height, max64(r->update.at[0].bytes, r->sample.bytes)));
  if (least > f->x.target->usable_bytes) return;
  if (is_beaten(s->beaten, fit_step_ns(x, s->bare, s->ns, fastest), least)) return;
  const Built *micro = s->bare->family->micro[0];
  const StorageMap *m = fit_alone(x) ? &micro->first->map : &micro->map;
  HostItems items = stage_items(m, f->x.job->vars, f->res.at[res].host, &s->saved,
                                s->price->unit_bytes, s->arena);
  HostUses uses = stage_uses(m, &items, s->arena);
  int64_t ns = max64(s->ns, least_copying(s, &items, &uses));
  if (is_beaten(s->beaten, fit_step_ns(x, s->bare, ns, fastest), least)) return;
  StageProblem staged = fit_staged(f, &s->rest, &s->time, &uses, &items, s->live);
  if (fit_alone(x)) staged.ns = s->price->first_ns;
  Choice c = fit_choice(x, s->bare, res);
  int64_t before = INT64_MAX;
  for (c.room = 0; c.room <= MICRO_ROOMS; c.room++) {
    Fixed v = fit_staged_at(&staged, c.room);
    if (v.ns >= before) continue;
    before = v.ns;
    if (is_beaten(s->beaten, fit_step_ns(x, s->bare, v.ns, fastest),
                  fit_whole_peak(f, res, &s->saved, v.bytes)))
      continue;
    if (!c.saved) {
      SavedSet *kept = arena_copy(f->x.arena, &s->saved, sizeof s->saved);
      kept->unit = arena_copy(f->x.arena, s->saved.unit, sizeof *kept->unit * (size_t)kept->n);
      c.saved = kept;
    }
    fit_add_choice(x, c, s->bare, v.ns, v.bytes);
  }
}

static void add_part(Saving *s, const Timeline *time, const SavedSet *all, int part) {
  const FitPool *f = s->x->f;
  Arena *shared = s->arena;
  int nunits = s->bare->family->micro[0]->map.nunits;
  s->saved = saved_part(all, part, s->price->unit_bytes, shared);
  if (s->saved.n == 0) return;
  s->time = saved_apart(time, &s->saved, nunits, shared);
  int64_t *bytes = arena_copy(shared, s->price->unit_bytes, sizeof *bytes * (size_t)(nunits + 1));
  for (int i = 0; i < s->saved.n; i++) bytes[s->saved.unit[i]] = 0;
  s->rest = *s->price;
  s->rest.unit_bytes = bytes;
  s->live = arena_array(shared, int64_t, time->nsteps + 2);
  s->height = fit_height(&s->rest, &(Trace){.time = s->time}, s->live);
  for (int res = 0; res < f->res.n; res++) {
    const Residency *r = &f->res.at[res];
    if (!r->whole || micro_kind(r) != s->bare->family->cut.kind ||
        s->saved.bytes > f->args.host_bytes - r->host_bytes)
      continue;
    add_with(s, res);
  }
}

static void add_trace(const Pricing *x, const Bare *b, const Beaten *beaten) {
  Saving s = {.x = x, .beaten = beaten, .bare = b, .arena = arena_new()};
  s.price = &x->price[b->family - x->pool->families.at];
  s.ns = fit_bare_ns(x, b);
  const Timeline *time = &b->family->traces.at[b->trace].time;
  SavedSet all = saved_values(&b->family->micro[0]->map, time, s.price->ns, s.price->unit_bytes,
                              x->f->x.target, s.arena);
  for (int part = 1; part <= SAVED_PARTS && all.n > 0; part++) add_part(&s, time, &all, part);
  arena_free(s.arena);
}

void fit_add_saved(const PhasePool *pool, const Pricing *at, int n) {
  Arena *a = arena_new();
  Beaten beaten = beaten_by(pool, a);
  for (int k = 0; k < n; k++)
    for (int kind = 0; kind < MICRO_KINDS; kind++)
      for (int i = 0; i < at[k].best[kind].n; i++)
        add_trace(&at[k], &at[k].best[kind].at[i], &beaten);
  arena_free(a);
}
