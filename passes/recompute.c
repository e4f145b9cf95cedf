/* recompute.c - the driver of the recompute solver, its pool of plans, and the independent check.
 *
 * In: a problem. Out: the front of plans that depends on the problem and the effort alone; a budget
 * only selects from it, so more budget is never slower.
 *   1. recompute_layers.c     programme over layers of a stack: the whole front, to the byte
 *   2. recompute_baselines.c  plans that any graph has: knapsacks, each layer in full
 *   3. recompute_search.c     the smallest peak; search on the true peak for what is no stack of
 * layers */
#include "recompute_impl.h"

#include <string.h>

enum {
  SMALLEST_SHARE = 5000,      /* values below this share of the peak are never dropped, */
  SMALLEST_PER_OP = 7,        /* or below 1 / (7 ops) of it in large graphs */
  STEPS_PER_EFFORT = 6000000, /* search steps */
  SQUEEZE_STEPS = 300000,
  EXPLORE_STEPS = 600000 /* without effort, for graphs that are no stack of layers */
};

void pool_add(RecPool *pool, RecResult r, const uint8_t *d) {
  if (r.peak == REC_INFEASIBLE) return;
  int lo = 0, hi = pool->plan.n; /* first plan above r.peak */
  while (lo < hi) {
    int mid = (lo + hi) / 2;
    if (pool->plan.at[mid].peak > r.peak) {
      hi = mid;
    } else {
      lo = mid + 1;
    }
  }
  if (lo > 0 && pool->plan.at[lo - 1].ns <= r.ns) return;
  int from = lo, to = lo; /* plans from..to-1 are dominated */
  if (lo > 0 && pool->plan.at[lo - 1].peak == r.peak) from--;
  while (to < pool->plan.n && pool->plan.at[to].ns >= r.ns) to++;
  PoolPlan plan = {.peak = r.peak, .ns = r.ns, .twins = r.twins > 0};
  plan.decision = arena_copy(pool->arena, d, decision_size(pool->m));
  if (from == to) vec_push(pool->arena, &pool->plan, plan);
  int moved = pool->plan.n - (from == to) - to;
  memmove(pool->plan.at + from + 1, pool->plan.at + to, (size_t)moved * sizeof plan);
  pool->plan.n = from + 1 + moved;
  pool->plan.at[from] = plan;
}

const PoolPlan *pool_pick(const RecPool *pool, int64_t budget) {
  const PoolPlan *best = NULL;
  for (int i = 0; i < pool->plan.n && pool->plan.at[i].peak <= budget; i++)
    best = &pool->plan.at[i];
  return best;
}

/* ---- replay ---- */
/* One instance of a value in a trace. It lives from its op to its last reader, or to the end. */
typedef struct {
  int64_t bytes;
  int born, last;
} Copy;

typedef struct {
  const RecProblem *p;
  Arena *arena;
  const char *why;
  int ntrace;
  int *prod; /* per value */
  int *copy; /* per value: newest instance, -1 none, -2 overwritten */
  VEC(Copy) copies;
} Replay;

static bool replay_read(Replay *r, int t, const RecOp *o) {
  for (int i = 0; i < o->nin; i++) {
    int v = o->in[i];
    if (r->copy[v] == -2 || (r->prod[v] >= 0 && r->copy[v] < 0)) {
      r->why =
          arena_printf(r->arena, "step %d: %s reads value %d, which is %s", t,
                       o->name ? o->name : "op", v, r->copy[v] == -2 ? "overwritten" : "not there");
      return false;
    }
    if (r->copy[v] >= 0) r->copies.at[r->copy[v]].last = t;
  }
  return true;
}

static void replay_write(Replay *r, int t, const RecOp *o) {
  for (int i = 0; i < o->nout; i++) {
    int v = o->out[i];
    Copy c = {r->p->bytes[v], t, t};
    if (i == 0 && o->alias >= 0) {
      int from = r->copy[o->alias];
      c.bytes = 0;
      if (from >= 0) { /* the storage moves, so its first owner ends one step earlier */
        c.bytes = r->copies.at[from].bytes;
        r->copies.at[from].last = t - 1;
      }
      r->copy[o->alias] = -2;
    }
    r->copy[v] = r->copies.n;
    vec_push(r->arena, &r->copies, c);
  }
}

/* Each op must run, the first times in order, and more than once only where it may. */
static bool replay_order(Replay *r, const RecPlan *plan) {
  const RecProblem *p = r->p;
  bool *ran = arena_array(r->arena, bool, p->nop);
  int next = 0;
  for (int t = 0; t < plan->ntrace; t++) {
    int k = plan->trace[t];
    if (k < 0 || k >= p->nop) {
      r->why = arena_printf(r->arena, "step %d is no op", t);
      return false;
    }
    if (k == next) next++;
    if (k > next || (ran[k] && (!p->op[k].redo || p->op[k].bwd))) {
      r->why = arena_printf(r->arena, "step %d: op %d %s", t, k,
                            k > next ? "before its time" : "runs twice");
      return false;
    }
    ran[k] = true;
  }
  if (next < p->nop) r->why = arena_printf(r->arena, "op %d does not run", next);
  return next == p->nop;
}

static bool replay(Replay *r, const RecPlan *plan, int64_t *peak, int64_t *ns) {
  const RecProblem *p = r->p;
  r->prod = arena_array(r->arena, int, p->nval);
  r->copy = arena_array(r->arena, int, p->nval);
  for (int v = 0; v < p->nval; v++) r->prod[v] = r->copy[v] = -1;
  for (int k = 0; k < p->nop; k++)
    for (int i = 0; i < p->op[k].nout; i++) r->prod[p->op[k].out[i]] = k;
  if (!replay_order(r, plan)) return false;
  *ns = *peak = 0;
  for (int t = 0; t < plan->ntrace; t++) {
    const RecOp *o = &p->op[plan->trace[t]];
    *ns += o->ns;
    if (!replay_read(r, t, o)) return false;
    replay_write(r, t, o);
  }
  int64_t *change = arena_array(r->arena, int64_t, plan->ntrace + 2), cur = 0;
  for (int v = 0; v < p->nval; v++)
    if (p->keep && p->keep[v] && r->copy[v] >= 0) r->copies.at[r->copy[v]].last = plan->ntrace;
  for (int i = 0; i < r->copies.n; i++) {
    change[r->copies.at[i].born] += r->copies.at[i].bytes;
    change[r->copies.at[i].last + 1] -= r->copies.at[i].bytes;
  }
  for (int t = 0; t < plan->ntrace; t++) {
    cur += change[t];
    if (cur + p->op[plan->trace[t]].ws > *peak) *peak = cur + p->op[plan->trace[t]].ws;
  }
  return true;
}

bool recompute_check(const RecProblem *p, const RecPlan *plan, Arena *a, const char **why) {
  Replay r = {.p = p, .arena = a, .ntrace = plan->ntrace};
  int64_t peak, ns;
  if (!replay(&r, plan, &peak, &ns)) {
    *why = r.why;
    return false;
  }
  if (peak == plan->peak && ns == plan->ns) return true;
  *why = arena_printf(a, "the trace has a peak of %lld bytes and takes %lld ns, not %lld and %lld",
                      (long long)peak, (long long)ns, (long long)plan->peak, (long long)plan->ns);
  return false;
}

/* ---- the front ---- */
void recompute_traces(Arena *a, const RecProblem *p, int n, RecPlan *const *plan) {
  Arena *own = arena_new();
  RecModel *m = rec_model(own, p);
  RecSim *s = sim_new(m, own);
  for (int i = 0; i < n; i++)
    plan[i]->ntrace = sim_trace(s, plan[i]->state, a, &plan[i]->trace);
  arena_free(own);
}

void recompute_trace(Arena *a, const RecProblem *p, RecPlan *plan) {
  recompute_traces(a, p, 1, &plan);
}

/* The simulator keeps both instances of a value that is rebuilt as a by-product while it is there;
 * a replay frees the older one at its last reader. Takes the replay's peak, which is what the trace
 * needs. */
static void settle_peaks(RecPool *pool, RecSim *s, const RecProblem *p) {
  RecPool exact = {.m = pool->m, .arena = pool->arena};
  for (int i = 0; i < pool->plan.n; i++) {
    PoolPlan *plan = &pool->plan.at[i];
    if (!plan->twins) {
      pool_add(&exact, (RecResult){.peak = plan->peak, .ns = plan->ns}, plan->decision);
      continue;
    }
    Arena *own = arena_new();
    RecPlan traced = {0};
    Replay r = {.p = p, .arena = own};
    RecResult result = {0};
    traced.ntrace = sim_trace(s, plan->decision, own, &traced.trace);
    bool ok = replay(&r, &traced, &result.peak, &result.ns);
    ensure(ok, "%s", r.why);
    ensure(result.ns == plan->ns && result.peak <= plan->peak,
           "the simulator and the replay disagree");
    pool_add(&exact, result, plan->decision);
    arena_free(own);
  }
  *pool = exact;
}

/* Whether nearly all that is saved stays within a layer or passes to the next: then the layered
 * programme sees all of it. */
static bool is_stack(const RecModel *m) {
  enum { MOST_PERCENT = 90 };
  __int128 all = 0, near = 0;
  if (m->nlayer < 3) return false;
  for (int i = 0; i < m->nitem; i++) {
    int v = m->item[i].value, lo = m->nlayer, hi = 0;
    if (!m->item[i].crosses) continue;
    for (int e = m->first_event[v]; e < m->first_event[v + 1]; e++) {
      int layer = m->layer[m->event_op[e]];
      if (layer < lo) lo = layer;
      if (layer > hi) hi = layer;
    }
    all += m->bytes[v];
    if (hi - lo <= 1) near += m->bytes[v];
  }
  return near * 100 >= all * MOST_PERCENT;
}

/* The run that drops nothing, and the items, whose size depends on it. */
static RecResult base_run(RecModel *m, RecSim *s, const uint8_t *nothing) {
  RecResult base = sim_run(s, nothing, NULL);
  ensure(base.peak != REC_INFEASIBLE, "op %d reads a value that is not there", base.at);
  m->base_peak = base.peak;
  m->base_ns = base.ns;
  int64_t share = (int64_t)SMALLEST_PER_OP * m->nop;
  rec_find_items(m, base.peak / (share > SMALLEST_SHARE ? share : SMALLEST_SHARE));
  return base;
}

bool recompute_full(Arena *a, const RecProblem *p, RecPlan *plan) {
  Arena *own = arena_new();
  RecModel *m = rec_model(own, p);
  RecSim *s = sim_new(m, own);
  uint8_t *d = decision_new(m, own);
  base_run(m, s, d);
  RecResult r = {.peak = REC_INFEASIBLE};
  if (rec_full(m, d)) r = sim_run(s, d, NULL);
  *plan = (RecPlan){.peak = r.peak, .ns = r.ns, .state = arena_copy(a, d, decision_size(m))};
  arena_free(own);
  if (r.peak == REC_INFEASIBLE) return false;
  recompute_trace(a, p, plan);
  return true;
}

RecFront recompute_front(Arena *a, const RecProblem *p, const RecOptions *opt) {
  Arena *own = arena_new();
  RecModel *m = rec_model(own, p);
  RecSim *s = sim_new(m, own);
  RecPool pool = {.m = m, .arena = own};
  uint8_t *nothing = decision_new(m, own);
  double effort = opt ? opt->effort : 0;
  pool_add(&pool, base_run(m, s, nothing), nothing);
  if (m->nitem > 0) {
    bool stack = effort <= 0 && is_stack(m);
    rec_baselines(m, s, &pool);
    if (stack) rec_held(m, s, &pool); /* what the squeeze starts from */
    rec_layered(m, s, &pool, opt && opt->no_floor ? 2 : REC_LONGEST, opt ? opt->segments : NULL);
    if (!opt || !opt->no_floor) rec_squeeze(m, s, &pool, SQUEEZE_STEPS);
    if (effort > 0) {
      rec_search(m, s, &pool, (int64_t)(effort * STEPS_PER_EFFORT));
    } else if (!stack) {
      rec_explore(m, s, &pool, EXPLORE_STEPS);
    }
    if (!stack) rec_held(m, s, &pool);
  }
  settle_peaks(&pool, s, p);
  RecFront front = {.at = arena_array(a, RecPlan, pool.plan.n), .n = pool.plan.n};
  for (int i = 0; i < front.n; i++) {
    const PoolPlan *plan = &pool.plan.at[front.n - 1 - i];
    front.at[i] = (RecPlan){.peak = plan->peak,
                            .ns = plan->ns,
                            .state = arena_copy(a, plan->decision, decision_size(m))};
  }
  front.floor = front.at[front.n - 1].peak;
  arena_free(own);
  return front;
}
