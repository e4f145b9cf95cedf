/* recompute_sim.c - the exact simulator: what a decision costs in bytes and time, op by op.
 *
 * In: a model and a decision. Out: peak, time, bytes at each op, the execution order.
 *
 * A step is one op of the program with the chain that rebuilds its missing inputs. It depends on
 * nothing but the decision and the residency of the values that it touches; where each value stands
 * among its events follows from the op alone. Full runs evaluate all steps in order. Windows
 * evaluate some, with what lies outside resident for free. Trials (recompute_trial.c) evaluate only
 * the steps that a change reaches. */
#include "recompute_sim.h"

#include <stdlib.h>
#include <string.h>

/* Runs and windows step through ops without telling which values a step touched. The functions of a step come in both
 * kinds, by a constant `tell`. */
#define EITHER static inline __attribute__((always_inline))

RecSim *sim_new(const RecModel *m, Arena *a) {
  RecSim *s = arena_new_of(a, RecSim);
  *s = (RecSim){.m = m, .arena = a, .d = decision_new(m, a)};
  s->v = arena_array(a, SimValue, m->nval);
  s->chain = arena_array(a, int, m->nop);
  s->stack = arena_array(a, int, m->nop);
  s->op_mark = arena_array(a, uint32_t, m->nop);
  s->touched = arena_array(a, int, m->nval);
  s->window_in = arena_array(a, int, m->nval);
  s->window_out = arena_array(a, int, m->nval);
  for (int v = 0; v < m->nval; v++) s->v[v].bytes = m->bytes[v];
  return s;
}

int64_t sim_work(const RecSim *s) {
  return s->work;
}

static void touch(RecSim *s, int v) {
  SimValue *x = &s->v[v];
  if (x->step == s->step) return;
  x->step = s->step;
  s->touched[s->ntouched++] = v;
  if (s->base) x->resident = sim_base_resident(s, v);
}

EITHER bool resident(RecSim *s, int v, bool tell) {
  if (tell) touch(s, v);
  return s->v[v].resident;
}

static inline void drop(RecSim *s, int v) {
  s->v[v].resident = false;
  s->cur -= s->v[v].bytes;
}

/* The gap of v that contains the time just before op k, as its first event; -1 when v is not made
 * yet or not read later. */
static int gap_at(const RecModel *m, int v, int k) {
  int lo = m->first_event[v], hi = m->first_event[v + 1];
  while (lo < hi) { /* first event at or after op k */
    int mid = (lo + hi) / 2;
    if (m->event_op[mid] >= k) {
      hi = mid;
    } else {
      lo = mid + 1;
    }
  }
  return lo > m->first_event[v] && lo < m->first_event[v + 1] ? lo - 1 : -1;
}

static inline GapState state_at(const RecSim *s, int v, int k) {
  const RecModel *m = s->m;
  const RecCrossing *c = &m->crossing[v];
  int e = c->event >= 0 && k >= m->first_bwd && k <= c->end ? c->event : gap_at(m, v, k);
  return e < 0 ? NEVER : (GapState)s->d[e];
}

/* Layer of the event that ends the gap of v. */
static int next_layer(const RecSim *s, int v, int k) {
  int e = gap_at(s->m, v, k);
  return e < 0 ? -1 : s->m->layer[s->m->event_op[e + 1]];
}

/* A chain run for `target` before op `when`. */
typedef struct {
  int target, when;
  int only;      /* rebuild this input alone, or -1: all that are missing */
  bool early;    /* for the op after `when`, whose own inputs must survive */
  uint32_t mark; /* of the ops in the chain, and of the values that must survive it */
  int n;
  int64_t ns, peak;
  int twins;
} Chain;

static inline void chain_push(RecSim *s, const Chain *c, int v, int *depth) {
  int j = s->m->prod[v];
  if (s->op_mark[j] == c->mark) return;
  s->op_mark[j] = c->mark;
  s->stack[(*depth)++] = j;
}

/* The value's readers in the chain, which are none until counted. */
static inline int *chain_readers(const Chain *c, SimValue *x) {
  if (x->read != c->mark) {
    x->read = c->mark;
    x->readers = 0;
  }
  return &x->readers;
}

/* Collects the ops of the chain, what they read and what they make. False when one of them may not run again. */
EITHER bool chain_collect(RecSim *s, Chain *c, bool tell) {
  const RecModel *m = s->m;
  const RecUses *target = &m->uses[c->target];
  int depth = 0;
  if (c->early)
    for (int i = 0; i < m->uses[c->when].nin; i++)
      s->v[m->uses[c->when].in[i].value].need = c->mark;
  for (int i = 0; i < target->nin; i++) {
    int v = target->in[i].value;
    s->v[v].need = c->mark;
    if (resident(s, v, tell) || (c->only >= 0 && c->only != v)) continue;
    if (c->early && m->prod[v] == c->when) continue; /* about to be made */
    chain_push(s, c, v, &depth);
  }
  while (depth) {
    int j = s->stack[--depth];
    const RecUses *o = &m->uses[j];
    if (!o->redo || j >= c->when) return false;
    s->chain[c->n++] = j;
    for (int i = 0; i < o->nin; i++) {
      int u = o->in[i].value;
      ++*chain_readers(c, &s->v[u]);
      if (!resident(s, u, tell)) chain_push(s, c, u, &depth);
    }
    for (int i = 0; i < o->nout; i++) {
      SimValue *x = &s->v[o->out[i].value];
      chain_readers(c, x);
      if (!resident(s, o->out[i].value, tell)) x->made = c->mark;
    }
  }
  return true;
}

static int compare_ints(const void *a, const void *b) {
  return *(const int *)a - *(const int *)b;
}

/* Sorts the ops of a chain, all of which have its mark. */
static void sort_chain(RecSim *s, const Chain *c) {
  enum { SMALL = 16, SPARSE = 8 };
  int *op = s->chain, n = c->n, lo = INT32_MAX, hi = 0;
  if (n > SMALL) {
    for (int i = 0; i < n; i++) {
      if (op[i] < lo) lo = op[i];
      if (op[i] > hi) hi = op[i];
    }
    if ((hi - lo) / SPARSE > n) {
      qsort(op, (size_t)n, sizeof *op, compare_ints);
      return;
    }
    for (int j = lo, i = 0; j <= hi; j++)
      if (s->op_mark[j] == c->mark) op[i++] = j;
    return;
  }
  for (int i = 1; i < n; i++) {
    int x = op[i], j = i;
    for (; j > 0 && op[j - 1] > x; j--) op[j] = op[j - 1];
    op[j] = x;
  }
}

/* Frees a rebuilt value that nothing later in the chain reads, unless the op or its state wants it.
 */
static void settle(RecSim *s, const Chain *c, int v) {
  if (s->v[v].need == c->mark || !s->v[v].resident) return;
  switch (state_at(s, v, c->when)) {
    case ONCE:
    case EAGER:
    case RELAY:
      return;
    case OWN:
      if (s->m->layer[c->target] == s->m->layer[s->m->prod[v]]) return;
      break;
    case HOLD:
      if (s->m->layer[c->target] == next_layer(s, v, c->when)) return;
      break;
    case KEEP:
    case NEVER:
    case UNTIL:
    case LOOSE:
    case STATE_COUNT:
      break;
  }
  drop(s, v);
}

/* Makes the outputs of rebuilt op o. Siblings that are still there are written to scratch, whose
 * bytes are returned. */
EITHER int64_t remake_outputs(RecSim *s, const RecUses *o, bool tell) {
  int64_t scratch = 0;
  for (int i = 0; i < o->nout; i++) {
    SimValue *x = &s->v[o->out[i].value];
    if (resident(s, o->out[i].value, tell)) {
      scratch += x->bytes;
      continue;
    }
    if (i == 0 && o->takes >= 0) {
      s->v[o->takes].resident = false;
    } else {
      s->cur += x->bytes;
    }
    x->resident = true;
  }
  return scratch;
}

static inline void ran_again(RecSim *s, Chain *c, int op, int64_t scratch) {
  int64_t live = s->cur + s->m->uses[op].ws + scratch;
  if (live > c->peak) c->peak = live;
  c->twins += scratch > 0;
  c->ns += s->m->uses[op].ns;
  s->work++;
  if (s->trace) vec_push(s->trace_arena, s->trace, op);
}

EITHER void chain_execute(RecSim *s, Chain *c, bool tell) {
  const RecModel *m = s->m;
  for (int n = 0; n < c->n; n++) {
    const RecUses *o = &m->uses[s->chain[n]];
    ran_again(s, c, s->chain[n], remake_outputs(s, o, tell));
    for (int i = 0; i < o->nin; i++) {
      int u = o->in[i].value;
      SimValue *x = &s->v[u];
      if (--x->readers || !x->resident) continue;
      if (x->made == c->mark) {
        settle(s, c, u);
      } else if (x->need != c->mark) {
        GapState state = state_at(s, u, c->when);
        if (state == RELAY || state == UNTIL) drop(s, u);
      }
    }
    for (int i = 0; i < o->nout; i++) {
      const SimValue *x = &s->v[o->out[i].value];
      if (x->made == c->mark && !x->readers) settle(s, c, o->out[i].value);
    }
  }
}

EITHER bool run_chain(RecSim *s, Chain *c, int only, bool tell) {
  c->only = only;
  c->n = 0;
  c->mark = ++s->mark;
  if (!chain_collect(s, c, tell)) return false;
  sort_chain(s, c);
  chain_execute(s, c, tell);
  return true;
}

/* Rebuilds the missing inputs of the target, input by input. */
EITHER bool run_ordered_chains(RecSim *s, Chain *c, int order, bool tell) {
  const RecUses *o = &s->m->uses[c->target];
  for (int i = 0; i < o->nin; i++) {
    int v = o->in[order == 1 ? i : o->nin - 1 - i].value;
    if (resident(s, v, tell) || (c->early && s->m->prod[v] == c->when)) continue;
    if (!run_chain(s, c, v, tell)) return false;
  }
  return true;
}

/* Rebuilds the missing inputs of the target. */
EITHER bool run_chains(RecSim *s, Chain *c, bool tell) {
  int order = s->d[s->m->nevent + c->target] & CHAIN_ORDER;
  return order ? run_ordered_chains(s, c, order, tell) : run_chain(s, c, -1, tell);
}

/* Does op j make a missing value that wants to be rebuilt now, from inputs that are all there? */
static bool eager_wants(RecSim *s, int j, int k, bool tell) {
  const RecUses *o = &s->m->uses[j];
  bool want = false;
  if (!o->redo || s->m->op[j].alias >= 0) return false;
  for (int i = 0; i < o->nout; i++) {
    int v = o->out[i].value, e = gap_at(s->m, v, k);
    want |= e >= 0 && s->d[e] == EAGER && !resident(s, v, tell);
  }
  for (int i = 0; want && i < o->nin; i++) want &= resident(s, o->in[i].value, tell);
  return want;
}

/* Value u is about to go, at op k: rebuilds what is EAGER and made from it. */
static void run_eager(RecSim *s, Chain *c, int u, int k, bool tell) {
  const RecModel *m = s->m;
  for (int e = m->first_event[u] + 1; e < m->first_event[u + 1]; e++) {
    int j = m->event_op[e];
    if (!eager_wants(s, j, k, tell)) continue;
    const RecUses *o = &m->uses[j];
    ran_again(s, c, j, remake_outputs(s, o, tell));
    for (int i = 0; i < o->nout; i++) {
      GapState state = state_at(s, o->out[i].value, k);
      if (state == NEVER || state == LOOSE) drop(s, o->out[i].value);
    }
  }
}

/* A use of a value at op k has happened: the value goes when it was the last or the gap's state says so. */
EITHER void after_use(RecSim *s, Chain *c, RecUse use, int k, bool tell) {
  const RecModel *m = s->m;
  SimValue *x = &s->v[use.value];
  if (!x->resident || use.event == KEPT_USE) return;
  if (use.event != LAST_USE) {
    if (s->d[use.event] == KEEP || s->d[use.event] == UNTIL) return;
  } else if (s->has_eager && k >= m->first_bwd && m->prod[use.value] < m->first_bwd) {
    run_eager(s, c, use.value, k, tell);
  }
  drop(s, use.value);
}

EITHER void make_outputs(RecSim *s, const RecUses *o, int k, bool tell) {
  for (int i = 0; i < o->nout; i++) {
    int v = o->out[i].value;
    ensure(!resident(s, v, tell), "value %d is there before op %d makes it", v, k);
    if (i == 0 && o->takes >= 0) {
      s->v[o->takes].resident = false;
    } else {
      s->cur += s->v[v].bytes;
    }
    s->v[v].resident = true;
  }
}

EITHER bool step_either(RecSim *s, int k, int next, RecStep *out, bool tell) {
  const RecModel *m = s->m;
  const RecUses *o = &m->uses[k];
  Chain c = {.target = k, .when = k};
  s->work++;
  bool miss = false;
  for (int i = 0; i < o->nin; i++) miss |= !resident(s, o->in[i].value, tell);
  if (miss && !run_chains(s, &c, tell)) return false;
  if (next >= 0 && s->d[m->nevent + next] & CHAIN_EARLY) {
    c.target = next;
    c.early = true;
    if (!run_chains(s, &c, tell)) return false;
  }
  make_outputs(s, o, k, tell);
  if (s->trace) vec_push(s->trace_arena, s->trace, k);
  if (s->cur + o->ws > c.peak) c.peak = s->cur + o->ws;
  for (int i = 0; i < o->nin; i++) after_use(s, &c, o->in[i], k, tell);
  for (int i = 0; i < o->nout; i++) after_use(s, &c, o->out[i], k, tell);
  *out = (RecStep){.peak = c.peak, .ns = c.ns + o->ns, .twins = c.twins};
  return true;
}

bool sim_step_touching(RecSim *s, int k, int next, RecStep *out) {
  s->step++;
  s->ntouched = 0;
  return step_either(s, k, next, out, true);
}

static bool step(RecSim *s, int k, int next, RecStep *out) {
  return step_either(s, k, next, out, false);
}

void sim_start(RecSim *s) {
  const RecModel *m = s->m;
  s->cur = 0;
  s->base = NULL;
  s->has_eager = memchr(s->d, EAGER, (size_t)m->nevent) != NULL;
  for (int v = 0; v < m->nval; v++) s->v[v].resident = m->prod[v] < 0;
}

RecResult sim_run(RecSim *s, const uint8_t *d, int64_t *live) {
  const RecModel *m = s->m;
  RecResult r = {.at = -1};
  uint8_t *own = s->d;
  SimBase *base = s->base;
  s->d = (uint8_t *)d;
  sim_start(s);
  for (int k = 0; k < m->nop; k++) {
    RecStep x;
    if (!step(s, k, k + 1 < m->nop ? k + 1 : -1, &x)) {
      r = (RecResult){.peak = REC_INFEASIBLE, .ns = REC_INFEASIBLE, .at = k};
      break;
    }
    r.ns += x.ns;
    r.twins += x.twins;
    if (live) live[k] = x.peak;
    if (x.peak > r.peak) {
      r.peak = x.peak;
      r.at = k;
    }
  }
  s->d = own;
  s->base = base;
  return r;
}

int sim_trace(RecSim *s, const uint8_t *d, Arena *a, int **trace) {
  SimTrace t = {0};
  s->trace = &t;
  s->trace_arena = a;
  sim_run(s, d, NULL);
  s->trace = NULL;
  *trace = t.at;
  return t.n;
}

void sim_window_begin(RecSim *s, RecWindow w) {
  const RecModel *m = s->m;
  uint32_t mark = ++s->mark;
  s->nwindow_in = s->nwindow_out = 0;
  for (int n = 0; n < w.n; n++) {
    const RecUses *o = &m->uses[w.ops[n]];
    for (int i = 0; i < o->nin; i++) { /* what an op of the window has made is marked */
      int v = o->in[i].value;
      if (s->v[v].need == mark) continue;
      s->v[v].need = mark;
      s->v[v].bytes = 0;
      s->window_in[s->nwindow_in++] = v;
    }
    int alias = m->op[w.ops[n]].alias;
    for (int i = 0; i < o->nout; i++) {
      int v = o->out[i].value;
      s->v[v].need = mark;
      s->v[v].bytes = i == 0 && alias >= 0 ? s->v[alias].bytes : m->bytes[v];
      s->window_out[s->nwindow_out++] = v;
    }
  }
}

int64_t sim_window_run(RecSim *s, RecWindow w, const uint8_t *d, int64_t *live, int64_t *after) {
  uint8_t *own = s->d;
  int64_t ns = 0;
  s->d = (uint8_t *)d;
  s->base = NULL;
  s->cur = 0;
  s->has_eager = false;
  for (int i = 0; i < s->nwindow_in; i++) s->v[s->window_in[i]].resident = true;
  for (int i = 0; i < s->nwindow_out; i++) s->v[s->window_out[i]].resident = false;
  for (int n = 0; n < w.n; n++) {
    RecStep x;
    if (!step(s, w.ops[n], n + 1 < w.n ? w.ops[n + 1] : -1, &x)) {
      ns = REC_INFEASIBLE;
      break;
    }
    ns += x.ns;
    live[n] = x.peak;
    after[n] = s->cur;
  }
  s->d = own;
  return ns;
}

void sim_window_end(RecSim *s) {
  for (int v = 0; v < s->m->nval; v++) s->v[v].bytes = s->m->bytes[v];
}
