/* recompute_search.c - search on the true peak, for graphs that are no stack of layers and for the
 * last bytes.
 *
 * In: the pool that the programme and the baselines filled. Out: more plans in it.
 *   squeeze   the smallest peak that single changes and more drops reach
 *   explore   every single change of every plan of the pool, until none gives a new one
 *   anneal    random changes, bytes over a budget at a rising price
 * Every trial is offered to the pool, whatever it was made for. Annealing runs at a fixed grid of
 * budgets between the floor and the peak without drops, never at the user's budget: so the pool,
 * and with it every answer, does not depend on what is asked. Limits count simulated steps;
 * arithmetic is integer. */
#include "fixed.h"
#include "recompute_impl.h"

#include <stdlib.h>

enum { FLAG_VALUES = 8 };

typedef struct {
  RecChange change;
  int64_t ns, bytes;
} Candidate;

typedef struct {
  RecModel *m;
  RecSim *s;
  RecPool *pool;
  uint64_t rng;
  Candidate *cand;
} Search;

static RecChange to_state(int item, GapState s) {
  return (RecChange){.item = item, .to = (uint8_t)s};
}
static RecChange to_flags(int op, int flags) {
  return (RecChange){.item = -1, .op = op, .to = (uint8_t)flags};
}

static GapState state_of(const Search *x, int item) {
  return decision_get(x->m, sim_decision(x->s), item);
}

static int flags_of(const Search *x, int op) {
  return sim_decision(x->s)[x->m->nevent + op];
}

static void load(Search *x, const uint8_t *d) {
  sim_load(x->s, d);
}

/* Tries changes and offers what they give to the pool. Neither accepted nor rejected yet. */
static RecResult try_changes(Search *x, const RecChange *c, int n) {
  RecResult q = sim_try(x->s, c, n);
  if (q.peak != REC_INFEASIBLE) pool_add(x->pool, q, sim_decision(x->s));
  return q;
}

/* ---- more drops ---- */
/* Estimates the time to rebuild v at the end of its gap, dropped ancestors included; looks at
 * `left` ops at most. */
static int64_t rebuild_ns(const Search *x, int v, int *left) {
  const RecModel *m = x->m;
  const uint8_t *d = sim_decision(x->s);
  const RecOp *o = &m->op[m->prod[v]];
  int64_t ns = o->ns;
  for (int i = 0; i<o->nin && * left> 0; i++) {
    int u = o->in[i];
    if (m->prod[u] < 0 || !m->redo[m->prod[u]]) continue;
    bool crosses = false, dropped = false;
    for (int e = m->first_event[u]; e + 1 < m->first_event[u + 1]; e++) {
      if (m->event_op[e] >= m->first_bwd || m->event_op[e + 1] < m->first_bwd) continue;
      crosses = true;
      dropped = d[e] != KEEP;
    }
    if (crosses && !dropped) continue;
    --*left;
    ns += rebuild_ns(x, u, left);
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
static int find_candidates(Search *x, int at) {
  enum { MOST_ANCESTORS = 32 };
  const RecModel *m = x->m;
  int n = 0;
  for (int i = 0; i < m->nitem; i++) {
    const RecItem *it = &m->item[i];
    int from = m->event_op[it->event], to = m->event_op[it->event + 1];
    if (from >= at || to < at) continue;
    GapState now = state_of(x, i), next;
    if (now == KEEP) {
      next = to == at ? NEVER : OWN;
    } else if (now != NEVER && to > at) {
      next = NEVER;
    } else {
      continue;
    }
    int left = MOST_ANCESTORS;
    x->cand[n++] = (Candidate){.change = to_state(i, next),
                               .ns = rebuild_ns(x, it->value, &left),
                               .bytes = m->bytes[it->value] + 1};
  }
  qsort(x->cand, (size_t)n, sizeof *x->cand, compare_candidates);
  return n;
}

static void accept(Search *x, RecChange c) {
  sim_try(x->s, &c, 1);
  sim_accept(x->s);
}

/* Takes the drop with the least added time per byte gained at the peak. False when none helps. */
static bool drop_more(Search *x) {
  RecResult now = sim_base(x->s);
  int n = find_candidates(x, now.at), best = -1;
  __int128 best_ns = 0, best_gain = 1;
  sim_watch(x->s, now.at);
  for (int c = 0; c < n; c++) {
    RecResult q = try_changes(x, &x->cand[c].change, 1);
    sim_reject(x->s);
    if (q.peak == REC_INFEASIBLE || q.peak > now.peak) continue;
    int64_t gain = now.peak - q.watched;
    if (gain <= 0) continue;
    __int128 ns = q.ns - now.ns + 1;
    if (best < 0 || ns * best_gain < best_ns * gain) {
      best = c;
      best_ns = ns;
      best_gain = gain;
    }
  }
  sim_watch(x->s, -1);
  if (best < 0) return false;
  accept(x, x->cand[best].change);
  return true;
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
    int now = flags_of(x, op);
    int order = ((now & CHAIN_ORDER) + 1 + random_int(x, 2)) % 3;
    c[0] = to_flags(op, random_int(x, 2) ? now ^ CHAIN_EARLY : (now & CHAIN_EARLY) | order);
    return 1;
  }
  int i = random_int(x, m->nitem);
  GapState si = state_of(x, i);
  if (kind < 6 || m->nitem < 2) {
    int s = si != KEEP && random_int(x, 2) ? KEEP : random_int(x, SEARCHED);
    c[0] = to_state(i, (GapState)(s == (int)si ? (s + 1) % SEARCHED : s));
    return 1;
  }
  int j = kind < 8 ? random_int(x, m->nitem) : (i + 1 + random_int(x, NEIGHBOURS)) % m->nitem;
  if (j == i) j = (i + 1) % m->nitem;
  GapState sj = state_of(x, j);
  if (si == sj) {
    si = (GapState)random_int(x, SEARCHED);
    sj = (GapState)random_int(x, SEARCHED);
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

/* Temperature and price of a byte (32 fractional bits), `done` of 2^20 through. */
static void cool(const Search *x, const Annealing *a, int64_t done, int64_t *temperature,
                 __int128 *price) {
  int64_t fall = fixed_log2(a->hot) - fixed_log2(a->cold);
  int64_t warmth = fixed_exp2_neg((int64_t)((__int128)fall * done >> 20));
  int64_t rise = fixed_exp2_neg((5 * (((int64_t)1 << 20) - done)) << 12); /* from 1/32 to 1 */
  *temperature = (int64_t)((__int128)a->hot * warmth >> 32) + 1;
  *price = (__int128)32 * x->m->base_ns * rise / (x->m->base_peak + 1);
}

/* Anneals from the base. What is good of it is in the pool. */
static void anneal(Search *x, const Annealing *a) {
  enum { COOL_EVERY = 64 };
  int64_t start = sim_work(x->s), span = a->limit - start, temperature = a->hot;
  __int128 price = 0;
  for (int64_t it = 0; sim_work(x->s) < a->limit; it++) {
    if (it % COOL_EVERY == 0)
      cool(x, a, ((sim_work(x->s) - start) << 20) / span, &temperature, &price);
    RecResult now = sim_base(x->s);
    RecChange c[2];
    RecResult q = try_changes(x, c, random_changes(x, c));
    if (q.peak == REC_INFEASIBLE) {
      sim_reject(x->s);
      continue;
    }
    int64_t over = q.peak > a->budget ? q.peak - a->budget : 0;
    if (now.peak > a->budget) over -= now.peak - a->budget;
    __int128 worse = (__int128)(q.ns - now.ns) * ((int64_t)1 << 32) + over * price;
    if (worse > 0 && worse > (__int128)temperature * random_exponential(x)) {
      sim_reject(x->s);
    } else {
      sim_accept(x->s);
    }
  }
}

/* ---- squeeze ---- */
typedef struct {
  RecResult result;
  RecChange change;
  bool found;
} Best;

static void try_lower(Search *x, RecChange c, Best *best) {
  RecResult q = try_changes(x, &c, 1);
  sim_reject(x->s);
  if (q.peak > best->result.peak || (q.peak == best->result.peak && q.ns >= best->result.ns))
    return;
  *best = (Best){q, c, true};
}

/* The change of what lives at the peak, or of the chains there, that lowers the peak most. */
static bool squeeze_step(Search *x, int64_t limit) {
  const RecModel *m = x->m;
  RecResult now = sim_base(x->s);
  Best best = {.result = now};
  for (int i = 0; i < m->nitem && sim_work(x->s) < limit; i++) {
    const RecItem *it = &m->item[i];
    if (m->event_op[it->event] > now.at || m->event_op[it->event + 1] < now.at) continue;
    for (int s = 0; s < SEARCHED; s++)
      if (s != (int)state_of(x, i)) try_lower(x, to_state(i, (GapState)s), &best);
  }
  for (int k = now.at; k <= now.at + 1 && k < m->nop; k++)
    for (int flags = 0; flags < FLAG_VALUES; flags++)
      if (flags != flags_of(x, k) && (flags & CHAIN_ORDER) != CHAIN_ORDER)
        try_lower(x, to_flags(k, flags), &best);
  if (best.found) accept(x, best.change);
  return best.found;
}

/* ---- local search on the front ---- */
/* Every single change of a plan. */
static void explore(Search *x, int64_t limit) {
  const RecModel *m = x->m;
  for (int i = 0; i < m->nitem && sim_work(x->s) < limit; i++) {
    GapState old = state_of(x, i);
    for (int s = 0; s < SEARCHED; s++) {
      RecChange c = to_state(i, (GapState)s);
      if (s == (int)old || (s == LOOSE && !m->item[i].nfollow)) continue;
      try_changes(x, &c, 1);
      sim_reject(x->s);
    }
  }
  for (int i = 0; i < m->nflag && sim_work(x->s) < limit; i++) {
    int k = m->flag_op[i];
    for (int flags = 0; flags < FLAG_VALUES; flags++) {
      RecChange c = to_flags(k, flags);
      if (flags == flags_of(x, k) || (flags & CHAIN_ORDER) == CHAIN_ORDER) continue;
      try_changes(x, &c, 1);
      sim_reject(x->s);
    }
  }
}

/* Explores plan after plan of the pool until all were explored. */
static void explore_front(Search *x, int64_t limit) {
  int at = 0;
  while (sim_work(x->s) < limit) {
    int n = x->pool->plan.n, tried = 0;
    while (tried < n && x->pool->plan.at[(at + tried) % n].explored) tried++;
    if (tried == n) return;
    at = (at + tried) % n;
    x->pool->plan.at[at].explored = true;
    load(x, x->pool->plan.at[at].decision);
    explore(x, limit);
    at++;
  }
}

static Search search_new(RecModel *m, RecSim *s, RecPool *pool) {
  Search x = {.m = m, .s = s, .pool = pool, .rng = 88172645463325252ull};
  x.cand = arena_array(m->arena, Candidate, m->nitem);
  return x;
}

void rec_squeeze(RecModel *m, RecSim *s, RecPool *pool, int64_t work) {
  Search x = search_new(m, s, pool);
  int64_t limit = sim_work(s) + work;
  load(&x, pool->plan.at[0].decision);
  while (sim_work(s) < limit && (squeeze_step(&x, limit) || drop_more(&x))) continue;
}

void rec_explore(RecModel *m, RecSim *s, RecPool *pool, int64_t work) {
  Search x = search_new(m, s, pool);
  explore_front(&x, sim_work(s) + work);
}

void rec_search(RecModel *m, RecSim *s, RecPool *pool, int64_t work) {
  enum {
    GRID = 16, /* budgets, denser towards the floor */
    ROUNDS = 3 * GRID,
    STRIDE = 5,   /* visits the grid in a mixed order */
    HOT_EVERY = 3 /* every third round starts hot, from the plan without drops */
  };
  Search x = search_new(m, s, pool);
  int64_t floor = pool->plan.at[0].peak, end = sim_work(s) + work;
  explore_front(&x, sim_work(s) + work / 3);
  int64_t share = (end - sim_work(s)) / ROUNDS;
  for (int i = 0; i < ROUNDS; i++) {
    int64_t start = sim_work(s), q = (i * STRIDE + 3) % GRID;
    Annealing a = {.limit = start + share / 10 * 7, .cold = m->base_ns / 20000 + 1};
    bool hot = i % HOT_EVERY == HOT_EVERY - 1;
    a.budget = floor + (int64_t)((__int128)(m->base_peak - floor) * q * q / (GRID * GRID));
    a.hot = m->base_ns / (hot ? 33 : 100) + 2;
    const PoolPlan *from = hot ? &pool->plan.at[pool->plan.n - 1] : pool_pick(pool, a.budget);
    load(&x, from->decision);
    anneal(&x, &a);
    explore_front(&x, start + share);
  }
}
