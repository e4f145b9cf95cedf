/* recompute_search.c - search on the true peak, for graphs that are no stack of layers and for the
 * last bytes.
 *
 * In: the pool that the programme and the baselines filled. Out: more plans in it.
 *   squeeze   the smallest peak that local changes reach
 *   repair    drop, step by step, what is idle at the peak and costs least a byte
 *   improve   undo or change drops while the plan fits; trade one drop for others
 *   anneal    random changes, bytes over the budget at a rising price
 * All run at a fixed grid of budgets between the floor and the peak without drops, never at the
 * user's budget: so the pool, and with it every answer, does not depend on what is asked. Limits
 * count simulated steps; arithmetic is integer. */
#include "fixed.h"
#include "recompute_impl.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
  RecModel *m;
  RecSim *s;
  RecPool *pool;
  Arena *arena;
  uint64_t rng;
  int64_t *sum_ns; /* scratch of rebuild_ns */
  struct Candidate *cand;
} Search;

typedef struct Candidate {
  RecChange change;
  int64_t ns, bytes;
} Candidate;

static bool better(RecResult a, RecResult b) {
  return a.ns < b.ns || (a.ns == b.ns && a.peak < b.peak);
}

static RecChange to_state(int item, GapState s) {
  return (RecChange){.item = item, .to = (uint8_t)s};
}
static RecChange to_flags(int op, int flags) {
  return (RecChange){.item = -1, .op = op, .to = (uint8_t)flags};
}

static GapState state_of(const Search *x, int item) {
  return decision_get(x->m, sim_decision(x->s), item);
}

static void load(Search *x, const uint8_t *d) {
  sim_load(x->s, d);
}

static void keep(Search *x) {
  pool_add(x->pool, sim_base(x->s), sim_decision(x->s));
}

/* ---- repair ---- */
/* Time to rebuild v at the end of its gap, dropped ancestors included. */
static int64_t rebuild_ns(const Search *x, int v, int depth) {
  enum { DEEPEST = 6 };
  const RecModel *m = x->m;
  const uint8_t *d = sim_decision(x->s);
  const RecOp *o = &m->op[m->prod[v]];
  int64_t ns = o->ns;
  if (depth > DEEPEST) return ns;
  for (int i = 0; i < o->nin; i++) {
    int u = o->in[i];
    if (m->prod[u] < 0 || !m->redo[m->prod[u]]) continue;
    bool crosses = false, dropped = false;
    for (int e = m->first_event[u]; e + 1 < m->first_event[u + 1]; e++) {
      if (m->event_op[e] >= m->first_bwd || m->event_op[e + 1] < m->first_bwd) continue;
      crosses = true;
      dropped = d[e] != KEEP;
    }
    if (!crosses || dropped) ns += rebuild_ns(x, u, depth + 1);
  }
  return ns;
}

static int compare_candidates(const void *a, const void *b) {
  const Candidate *x = a, *y = b;
  __int128 l = (__int128)x->ns * y->bytes, r = (__int128)y->ns * x->bytes;
  if (l != r) return l < r ? -1 : 1;
  return x->change.item - y->change.item;
}

/* Drops that free bytes at op `at`, cheapest a byte first. */
static int find_candidates(Search *x, int at, int tabu) {
  const RecModel *m = x->m;
  int n = 0;
  for (int i = 0; i < m->nitem; i++) {
    const RecItem *it = &m->item[i];
    int from = m->event_op[it->event], to = m->event_op[it->event + 1];
    if (i == tabu || from >= at || to < at) continue;
    GapState now = state_of(x, i), next;
    if (now == KEEP) {
      next = to == at ? NEVER : OWN;
    } else if (now != NEVER && to > at) {
      next = NEVER;
    } else {
      continue;
    }
    x->cand[n++] =
        (Candidate){to_state(i, next), rebuild_ns(x, it->value, 0), m->bytes[it->value] + 1};
  }
  qsort(x->cand, (size_t)n, sizeof *x->cand, compare_candidates);
  return n;
}

/* Changes made to the base, so that they can be undone. */
typedef struct {
  RecChange undo[MAX_CHANGES];
  int n;
} Journal;

static void accept(Search *x, RecChange c, RecChange undo, Journal *j) {
  sim_try(x->s, &c, 1);
  sim_accept(x->s);
  if (j && j->n < MAX_CHANGES) j->undo[j->n++] = undo;
}

static void undo_all(Search *x, Journal *j) {
  RecChange back[MAX_CHANGES];
  for (int i = 0; i < j->n; i++) back[i] = j->undo[j->n - 1 - i];
  if (j->n) {
    sim_try(x->s, back, j->n);
    sim_accept(x->s);
  }
  j->n = 0;
}

/* One step of repair: the drop with the least added time per byte gained at the peak, among the
 * first `width` candidates. False when none helps. */
static bool repair_step(Search *x, int64_t budget, int width, int tabu, Journal *j) {
  RecResult now = sim_base(x->s);
  int n = find_candidates(x, now.at, tabu), best = -1;
  __int128 best_ns = 0, best_gain = 1;
  sim_watch(x->s, now.at);
  for (int c = 0; c < n && (c < width || best < 0); c++) {
    RecResult q = sim_try(x->s, &x->cand[c].change, 1);
    sim_reject(x->s);
    if (q.peak == REC_INFEASIBLE || q.peak > now.peak) continue;
    int64_t gain = now.peak - q.watched;
    if (gain <= 0) gain = now.peak - q.peak;
    if (gain <= 0) continue;
    if (gain > now.peak - budget) gain = now.peak - budget;
    __int128 ns = q.ns - now.ns + 1;
    if (best < 0 || ns * best_gain < best_ns * gain) {
      best = c;
      best_ns = ns;
      best_gain = gain;
    }
  }
  sim_watch(x->s, -1);
  if (best < 0) return false;
  RecChange c = x->cand[best].change;
  accept(x, c, to_state(c.item, state_of(x, c.item)), j);
  return true;
}

/* Lowers the base's peak to the budget. False when it cannot within the steps. */
static bool repair(Search *x, int64_t budget, int steps, int width, int tabu, Journal *j) {
  enum { MANY_ITEMS = 200, FAR = 50 };
  for (int i = 0; i < steps; i++) {
    int64_t over = sim_base(x->s).peak - budget;
    if (over <= 0) return true;
    bool far = x->m->nitem > MANY_ITEMS && over > x->m->base_peak / FAR;
    if (!repair_step(x, budget, far ? 1 : width, tabu, j)) return false;
  }
  return sim_base(x->s).peak <= budget;
}

/* ---- improve ---- */
/* Puts the item into the state that is fastest within the budget. */
static bool improve_item(Search *x, int item, int64_t budget) {
  GapState old = state_of(x, item), best = old;
  RecResult best_result = sim_base(x->s);
  for (int s = 0; s < STATE_COUNT; s++) {
    if (s == (int)old) continue;
    RecChange c = to_state(item, (GapState)s);
    RecResult q = sim_try(x->s, &c, 1);
    sim_reject(x->s);
    if (q.peak > budget || !better(q, best_result)) continue;
    best = (GapState)s;
    best_result = q;
  }
  if (best == old) return false;
  accept(x, to_state(item, best), to_state(item, old), NULL);
  return true;
}

/* Keeps the item and repairs with up to four other drops; undoes all unless that is faster. */
static bool exchange(Search *x, int item, int64_t budget) {
  enum { DROPS = 4, WIDTH = 4 };
  Journal j = {.n = 0};
  RecResult before = sim_base(x->s);
  RecChange c = to_state(item, KEEP);
  RecResult q = sim_try(x->s, &c, 1);
  if (q.ns >= before.ns) { /* infeasible too */
    sim_reject(x->s);
    return false;
  }
  sim_reject(x->s);
  accept(x, c, to_state(item, state_of(x, item)), &j);
  if (repair(x, budget, DROPS, WIDTH, item, &j) && sim_base(x->s).ns < before.ns) return true;
  undo_all(x, &j);
  return false;
}

/* Improves the base, which fits the budget. */
static void improve(Search *x, int64_t budget, int64_t limit) {
  for (bool again = true; again && sim_work(x->s) < limit;) {
    again = false;
    for (int i = 0; i < x->m->nitem && sim_work(x->s) < limit; i++)
      if (state_of(x, i) != KEEP) again |= improve_item(x, i, budget);
    if (again) continue;
    for (int i = 0; i < x->m->nitem && sim_work(x->s) < limit; i++)
      if (state_of(x, i) != KEEP) again |= exchange(x, i, budget);
  }
  keep(x);
}

/* ---- anneal ---- */
typedef struct {
  int64_t budget;
  int64_t hot, cold; /* temperatures, ns */
  int64_t limit;     /* of work */
} Annealing;

static int random_int(Search *x, int n) {
  return random_below(&x->rng, n);
}

/* A random change: states of one item or of two, or the flags of an op. */
static int random_changes(Search *x, RecChange *c) {
  enum { NEIGHBOURS = 8 };
  const RecModel *m = x->m;
  int kind = random_int(x, 10);
  if (kind == 9 && m->nflag) {
    int op = m->flag_op[random_int(x, m->nflag)];
    int now = sim_decision(x->s)[m->nevent + op];
    int order = ((now & CHAIN_ORDER) + 1 + random_int(x, 2)) % 3;
    c[0] = to_flags(op, random_int(x, 2) ? now ^ CHAIN_EARLY : (now & CHAIN_EARLY) | order);
    return 1;
  }
  int i = random_int(x, m->nitem);
  GapState si = state_of(x, i);
  if (kind < 6 || m->nitem < 2) {
    int s = si != KEEP && random_int(x, 2) ? KEEP : random_int(x, STATE_COUNT);
    c[0] = to_state(i, (GapState)(s == (int)si ? (s + 1) % STATE_COUNT : s));
    return 1;
  }
  int j = kind < 8 ? random_int(x, m->nitem) : (i + 1 + random_int(x, NEIGHBOURS)) % m->nitem;
  if (j == i) j = (i + 1) % m->nitem;
  GapState sj = state_of(x, j);
  if (si == sj) {
    si = (GapState)random_int(x, STATE_COUNT);
    sj = (GapState)random_int(x, STATE_COUNT);
  }
  c[0] = to_state(i, sj);
  c[1] = to_state(j, si);
  return 2;
}

/* -ln(u) for a random u in (0, 1], with 32 fractional bits. */
static int64_t random_exponential(Search *x) {
  int64_t u = (int64_t)(random_next(&x->rng) >> 32) + 1;
  return (int64_t)((__int128)(((int64_t)32 << 32) - fixed_log2(u)) * 2977044472 >> 32); /* ln 2 */
}

/* Anneals from the base. The best plan that fits goes to the pool and becomes the base; without one
 * the base stays what it is in the end. */
static void anneal(Search *x, const Annealing *a) {
  const RecModel *m = x->m;
  int64_t start = sim_work(x->s), span = a->limit - start;
  int64_t fall = fixed_log2(a->hot) - fixed_log2(a->cold); /* log2, over the whole run */
  int64_t price_q32 = 0, temperature = a->hot;
  RecResult best = {.ns = REC_INFEASIBLE};
  uint8_t *best_d = decision_new(m, x->arena);
  for (int64_t it = 0; sim_work(x->s) < a->limit; it++) {
    if (it % 64 == 0) {
      int64_t done = ((sim_work(x->s) - start) << 20) / span; /* 20 fractional bits */
      temperature =
          (int64_t)((__int128)a->hot * fixed_exp2_neg((int64_t)((__int128)fall * done >> 20)) >>
                    32) +
          1;
      /* Price of a byte: from 1 to 32 times time/peak. */
      int64_t rise = fixed_exp2_neg(5 * (((int64_t)1 << 20) - done) << 12);
      price_q32 = (int64_t)((__int128)32 * m->base_ns * rise / (m->base_peak + 1));
    }
    RecResult now = sim_base(x->s);
    RecChange c[2];
    RecResult q = sim_try(x->s, c, random_changes(x, c));
    if (q.peak == REC_INFEASIBLE) {
      sim_reject(x->s);
      continue;
    }
    int64_t over = q.peak > a->budget ? q.peak - a->budget : 0;
    int64_t over_now = now.peak > a->budget ? now.peak - a->budget : 0;
    __int128 worse = ((__int128)(q.ns - now.ns) << 32) + (__int128)(over - over_now) * price_q32;
    if (worse > 0 && worse > (__int128)temperature * random_exponential(x)) {
      sim_reject(x->s);
      continue;
    }
    sim_accept(x->s);
    if (over == 0 && better(q, best)) {
      best = q;
      memcpy(best_d, sim_decision(x->s), decision_size(m));
    }
  }
  if (best.ns == REC_INFEASIBLE) return;
  load(x, best_d);
  keep(x);
}

/* ---- squeeze ---- */
/* Any single change of what lives at the peak, or of the chains there, that lowers the peak; the
 * lowest is taken. */
static bool squeeze_step(Search *x, int64_t limit) {
  const RecModel *m = x->m;
  RecResult now = sim_base(x->s), best = now;
  RecChange choice = {0}, undo = {0};
  for (int i = 0; i < m->nitem && sim_work(x->s) < limit; i++) {
    const RecItem *it = &m->item[i];
    if (m->event_op[it->event] > now.at || m->event_op[it->event + 1] < now.at) continue;
    GapState old = state_of(x, i);
    for (int s = KEEP; s < STATE_COUNT; s++) {
      RecChange c = to_state(i, (GapState)s);
      if (s == (int)old) continue;
      RecResult q = sim_try(x->s, &c, 1);
      sim_reject(x->s);
      if (q.peak > best.peak || (q.peak == best.peak && q.ns >= best.ns)) continue;
      best = q;
      choice = c;
      undo = to_state(i, old);
    }
  }
  for (int k = now.at; k <= now.at + 1 && k < m->nop; k++) {
    int old = sim_decision(x->s)[m->nevent + k];
    for (int flags = 0; flags < 8; flags++) {
      if (flags == old || (flags & CHAIN_ORDER) == CHAIN_ORDER) continue;
      RecChange c = to_flags(k, flags);
      RecResult q = sim_try(x->s, &c, 1);
      sim_reject(x->s);
      if (q.peak > best.peak || (q.peak == best.peak && q.ns >= best.ns)) continue;
      best = q;
      choice = c;
      undo = to_flags(k, old);
    }
  }
  if (best.peak == now.peak && best.ns == now.ns) return false;
  accept(x, choice, undo, NULL);
  return true;
}

static Search search_new(RecModel *m, RecSim *s, RecPool *pool) {
  Search x = {.m = m, .s = s, .pool = pool, .arena = m->arena, .rng = 88172645463325252ull};
  x.cand = arena_array(m->arena, Candidate, m->nitem);
  return x;
}

/* Squeezes the base until nothing helps; every step goes to the pool. */
static void squeeze(Search *x, int64_t limit) {
  while (sim_work(x->s) < limit && squeeze_step(x, limit)) keep(x);
}

void rec_squeeze(RecModel *m, RecSim *s, RecPool *pool, int64_t work) {
  Search x = search_new(m, s, pool);
  int64_t limit = sim_work(s) + work;
  load(&x, pool->plan.at[0].decision);
  squeeze(&x, limit);
  while (sim_work(s) < limit && repair_step(&x, 0, m->nitem, -1, NULL)) keep(&x);
}

/* ---- the grid ---- */
static void search_at(Search *x, int64_t budget, int64_t work) {
  enum { ANNEALINGS = 2 };
  const RecModel *m = x->m;
  int64_t start = sim_work(x->s);
  const PoolPlan *p = pool_pick(x->pool, budget);
  load(x, x->pool->plan.at[x->pool->plan.n - 1].decision);
  if (repair(x, budget, 2 * m->nitem, 6, -1, NULL)) {
    keep(x);
    int64_t added = sim_base(x->s).ns - m->base_ns;
    if (!p || added <= (p->ns - m->base_ns) / 5 * 6) improve(x, budget, start + work / 4);
  }
  p = pool_pick(x->pool, budget);
  if (p) {
    load(x, p->decision);
    improve(x, budget, sim_work(x->s) + work / 8);
  }
  for (int i = 0; i < ANNEALINGS; i++) {
    int64_t left = start + work - sim_work(x->s);
    if (left <= 0) return;
    p = pool_pick(x->pool, budget);
    load(x, i % 2 ? x->pool->plan.at[x->pool->plan.n - 1].decision
            : p   ? p->decision
                  : x->pool->plan.at[0].decision);
    Annealing a = {.budget = budget, .limit = sim_work(x->s) + left / (ANNEALINGS - i) * 3 / 4};
    a.hot = m->base_ns / (i % 2 ? 33 : 250) + 2;
    a.cold = m->base_ns / 50000 + 1;
    anneal(x, &a);
    if (sim_base(x->s).peak <= budget) improve(x, budget, sim_work(x->s) + left / 8);
  }
}

void rec_search(RecModel *m, RecSim *s, RecPool *pool, int64_t work) {
  enum { GRID = 16 };
  Search x = search_new(m, s, pool);
  int64_t lo = pool->plan.at[0].peak, hi = m->base_peak;
  for (int i = GRID - 1; i >= 0; i--) {
    int64_t budget = lo + (int64_t)((__int128)(hi - lo) * i / GRID);
    search_at(&x, budget, work / GRID);
  }
}
