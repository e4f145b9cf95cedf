/* recompute_trial.c - trials: what changing a few decisions would do, at the cost of the steps that
 * the change reaches.
 *
 * A base run is kept with, for each step, its bytes, time and the values that it touched, and for
 * each value bit rows over the steps: resident before the step, touched by the step. A value is
 * dirty while its residency in the trial differs from the base. A step must be evaluated again when
 * it touches a dirty value or its own decisions changed; all other steps are the base's, with
 * `delta` bytes added. Accepting a trial edits the base in place.
 *
 * Invariant (tested): peak, time and place of a trial equal those of a full run of the changed
 * decision. */
#include "recompute_sim.h"

#include <string.h>

enum { BLOCK = 16 };

typedef struct {
  int value, from, to; /* residency before steps from..to differs from the base */
} Flip;

typedef struct {
  int step;
  RecStep result;
  int64_t delta;               /* bytes over the base after it */
  int first_touched, ntouched; /* in SimBase.log_touched */
} Evaluated;

typedef struct {
  int *at, n, cap;
} TouchedList;

typedef struct {
  int from; /* since when dirty */
  bool dirty;
} DirtyValue;

struct SimBase {
  RecResult result;
  int words;    /* 64-bit words in a row over the steps and the end */
  int64_t *cur; /* bytes before each step, and at the end */
  RecStep *step;
  int64_t *block; /* largest step peak in each block */
  TouchedList *touched;
  uint64_t *resident; /* rows by value */
  uint64_t *touches;
  int *since; /* while loading, per value: 1 + step since when it is resident, 0 when it is not */
  int neager; /* EAGER gaps in the decision in force */
  int watch;
  /* the trial in progress */
  DirtyValue *value;
  int ndirty, now;
  uint64_t *pending; /* steps to evaluate */
  VEC(Evaluated) log;
  VEC(int) log_touched;
  VEC(Flip) flips;
  RecChange undo[MAX_CHANGES];
  int nundo;
  RecResult trial;
};

static bool bit(const uint64_t *row, int i) {
  return row[i >> 6] >> (i & 63) & 1;
}
static void set_bit(uint64_t *row, int i) {
  row[i >> 6] |= 1ull << (i & 63);
}
static void clear_bit(uint64_t *row, int i) {
  row[i >> 6] &= ~(1ull << (i & 63));
}
static void flip_bits(uint64_t *row, int from, int to) { /* inclusive */
  for (int i = from; i <= to; i = (i | 63) + 1) {
    uint64_t mask = ~0ull << (i & 63);
    if (to < (i | 63)) mask &= ~0ull >> (63 - (to & 63));
    row[i >> 6] ^= mask;
  }
}
/* First bit set at or after i, or -1. */
static int next_bit(const uint64_t *row, int words, int i) {
  int w = i >> 6;
  if (w >= words) return -1;
  uint64_t z = row[w] & ~0ull << (i & 63);
  while (!z) {
    if (++w == words) return -1;
    z = row[w];
  }
  return w * 64 + __builtin_ctzll(z);
}
static uint64_t *resident_row(const SimBase *b, int v) {
  return b->resident + (size_t)v * (size_t)b->words;
}
static uint64_t *touches_row(const SimBase *b, int v) {
  return b->touches + (size_t)v * (size_t)b->words;
}

static SimBase *base_new(RecSim *s) {
  const RecModel *m = s->m;
  Arena *a = s->arena;
  SimBase *b = arena_new_of(a, SimBase);
  b->words = m->nop / 64 + 1;
  b->cur = arena_array(a, int64_t, m->nop + 1);
  b->step = arena_array(a, RecStep, m->nop);
  b->block = arena_array(a, int64_t, m->nop / BLOCK + 1);
  b->touched = arena_array(a, TouchedList, m->nop);
  b->resident = arena_array(a, uint64_t, (size_t)m->nval * (size_t)b->words);
  b->touches = arena_array(a, uint64_t, (size_t)m->nval * (size_t)b->words);
  b->value = arena_array(a, DirtyValue, m->nval);
  b->pending = arena_array(a, uint64_t, b->words);
  b->since = arena_array(a, int, m->nval);
  b->watch = -1;
  return b;
}

static void find_blocks(SimBase *b, int nop, int from, int to) {
  for (int i = from / BLOCK; i <= to / BLOCK; i++) {
    int64_t max = 0;
    for (int k = i * BLOCK; k < (i + 1) * BLOCK && k < nop; k++)
      if (b->step[k].peak > max) max = b->step[k].peak;
    b->block[i] = max;
  }
}

static void store_touched(RecSim *s, int k, const int *touched, int n) {
  TouchedList *t = &s->bases->touched[k];
  if (n > t->cap) {
    t->cap = n + n / 2 + 4;
    t->at = arena_array(s->arena, int, t->cap);
  }
  if (n) memcpy(t->at, touched, (size_t)n * sizeof *touched);
  t->n = n;
}

/* First step at which the base reaches its peak. */
static void find_base_peak(SimBase *b, int nop) {
  b->result.peak = 0;
  b->result.at = -1;
  for (int k = 0; k < nop; k++) {
    if (b->step[k].peak > b->result.peak) {
      b->result.peak = b->step[k].peak;
      b->result.at = k;
    }
  }
}

void sim_load(RecSim *s, const uint8_t *d) {
  const RecModel *m = s->m;
  if (!s->bases) s->bases = base_new(s);
  SimBase *b = s->bases;
  int *since = b->since;
  memcpy(s->d, d, decision_size(m));
  memset(b->resident, 0, (size_t)m->nval * (size_t)b->words * sizeof *b->resident);
  memset(b->touches, 0, (size_t)m->nval * (size_t)b->words * sizeof *b->touches);
  sim_start(s);
  b->neager = 0;
  for (int e = 0; e < m->nevent; e++) b->neager += d[e] == EAGER;
  for (int v = 0; v < m->nval; v++) since[v] = s->v[v].resident;
  b->result = (RecResult){0};
  for (int k = 0; k < m->nop; k++) {
    b->cur[k] = s->cur;
    bool ok = sim_step_touching(s, k, k + 1 < m->nop ? k + 1 : -1, &b->step[k]);
    ensure(ok, "the base of a trial is infeasible at op %d", k);
    b->result.ns += b->step[k].ns;
    b->result.twins += b->step[k].twins;
    store_touched(s, k, s->touched, s->ntouched);
    for (int i = 0; i < s->ntouched; i++) {
      int v = s->touched[i];
      set_bit(touches_row(b, v), k);
      if (s->v[v].resident == (since[v] > 0)) continue;
      if (since[v]) flip_bits(resident_row(b, v), since[v] - 1, k);
      since[v] = s->v[v].resident ? k + 2 : 0;
    }
  }
  b->cur[m->nop] = s->cur;
  for (int v = 0; v < m->nval; v++)
    if (since[v]) flip_bits(resident_row(b, v), since[v] - 1, m->nop);
  find_blocks(b, m->nop, 0, m->nop - 1);
  find_base_peak(b, m->nop);
}

RecResult sim_base(const RecSim *s) {
  return s->bases->result;
}
const uint8_t *sim_decision(const RecSim *s) {
  return s->d;
}
void sim_watch(RecSim *s, int op) {
  s->bases->watch = op;
}

bool sim_base_resident(const RecSim *s, int v) {
  const SimBase *b = s->base;
  return bit(resident_row(b, v), b->now) != b->value[v].dirty;
}

/* ---- changes ---- */
static void mark_item_steps(RecSim *s, int item, bool eager) {
  const RecModel *m = s->m;
  SimBase *b = s->bases;
  const RecItem *it = &m->item[item];
  for (int f = -1; f < it->nfollow; f++) {
    int e = f < 0 ? it->event : it->follow[f];
    const uint64_t *row = touches_row(b, m->event_value[e]);
    set_bit(b->pending, m->event_op[e]);
    for (int k = m->event_op[e] + 1;
         (k = next_bit(row, b->words, k)) >= 0 && k <= m->event_op[e + 1]; k++)
      set_bit(b->pending, k);
  }
  if (!eager) return;
  for (int i = m->eager_first[item]; i < m->eager_first[item + 1]; i++)
    set_bit(b->pending, m->eager_ops[i]);
}

static void apply_change(RecSim *s, const RecChange *c, bool mark) {
  const RecModel *m = s->m;
  SimBase *b = s->bases;
  RecChange *undo = &b->undo[b->nundo++];
  *undo = *c;
  if (c->item < 0) {
    undo->to = *op_flags(m, s->d, c->op);
    *op_flags(m, s->d, c->op) = c->to;
    if (mark) set_bit(b->pending, c->op);
    if (mark && c->op > 0) set_bit(b->pending, c->op - 1);
    return;
  }
  undo->to = (uint8_t)decision_get(m, s->d, c->item);
  decision_set(m, s->d, c->item, (GapState)c->to);
  b->neager += ((c->to == EAGER) - (undo->to == EAGER)) * (1 + m->item[c->item].nfollow);
  if (mark) mark_item_steps(s, c->item, undo->to == EAGER || c->to == EAGER);
}

/* ---- the trial ---- */
/* Largest step peak of the base in [lo, hi). */
static int64_t range_peak(const SimBase *b, int lo, int hi) {
  int64_t max = 0;
  int k = lo;
  for (; k < hi && k % BLOCK; k++)
    if (b->step[k].peak > max) max = b->step[k].peak;
  for (; k + BLOCK <= hi; k += BLOCK)
    if (b->block[k / BLOCK] > max) max = b->block[k / BLOCK];
  for (; k < hi; k++)
    if (b->step[k].peak > max) max = b->step[k].peak;
  return max;
}

typedef struct {
  int64_t peak;
  int lo, hi;    /* steps among which it is reached first */
  int64_t delta; /* over the base there; lo + 1 == hi: evaluated */
  bool evaluated;
} TrialPeak;

static void see_range(const SimBase *b, TrialPeak *p, int lo, int hi, int64_t delta) {
  if (lo >= hi) return;
  int64_t max = range_peak(b, lo, hi) + delta;
  if (max > p->peak) *p = (TrialPeak){max, lo, hi, delta, false};
}

/* After step k of the trial, value v is resident or not: starts, keeps up or ends its being dirty.
 */
static void see_value(RecSim *s, int v, int k, bool resident) {
  SimBase *b = s->bases;
  DirtyValue *x = &b->value[v];
  if (resident == bit(resident_row(b, v), k + 1)) {
    if (!x->dirty) return;
    vec_push(s->arena, &b->flips, ((Flip){v, x->from, k}));
    x->dirty = false;
    b->ndirty--;
    return;
  }
  if (!x->dirty) {
    *x = (DirtyValue){.from = k + 1, .dirty = true};
    b->ndirty++;
  }
  int next = next_bit(touches_row(b, v), b->words, k + 1);
  if (next >= 0) set_bit(b->pending, next);
}

static bool evaluate(RecSim *s, int k, int64_t *delta, TrialPeak *peak) {
  SimBase *b = s->bases;
  int nop = s->m->nop;
  b->now = k;
  s->cur = b->cur[k] + *delta;
  RecStep step;
  if (!sim_step_touching(s, k, k + 1 < nop ? k + 1 : -1, &step)) return false;
  *delta = s->cur - b->cur[k + 1];
  vec_push(s->arena, &b->log, ((Evaluated){k, step, *delta, b->log_touched.n, s->ntouched}));
  vec_reserve(s->arena, &b->log_touched, b->log_touched.n + s->ntouched);
  for (int i = 0; i < s->ntouched; i++) {
    int v = s->touched[i];
    b->log_touched.at[b->log_touched.n++] = v;
    see_value(s, v, k, s->v[v].resident);
  }
  for (int i = 0; i < b->touched[k].n; i++) {
    int v = b->touched[k].at[i];
    if (s->v[v].step == s->step) continue;
    see_value(s, v, k, bit(resident_row(b, v), k) != b->value[v].dirty);
  }
  b->trial.ns += step.ns - b->step[k].ns;
  b->trial.twins += step.twins - b->step[k].twins;
  if (k == b->watch) b->trial.watched = step.peak;
  if (step.peak > peak->peak) *peak = (TrialPeak){step.peak, k, k + 1, 0, true};
  return true;
}

static int peak_step(const SimBase *b, const TrialPeak *p) {
  if (p->evaluated) return p->lo;
  for (int k = p->lo; k < p->hi; k++)
    if (b->step[k].peak + p->delta == p->peak) return k;
  return -1;
}

/* Ends all dirtiness; what is dirty at the end stays so to the end. */
static void close_dirty(RecSim *s, bool keep) {
  SimBase *b = s->bases;
  if (!b->ndirty) return;
  for (int i = 0; i < b->log_touched.n; i++) {
    DirtyValue *x = &b->value[b->log_touched.at[i]];
    if (!x->dirty) continue;
    if (keep) vec_push(s->arena, &b->flips, ((Flip){b->log_touched.at[i], x->from, s->m->nop}));
    x->dirty = false;
    b->ndirty--;
  }
  /* A value can also be dirty because the base touched it and the trial did not. */
  for (int n = 0; n < b->log.n && b->ndirty; n++) {
    const TouchedList *t = &b->touched[b->log.at[n].step];
    for (int i = 0; i < t->n; i++) {
      DirtyValue *x = &b->value[t->at[i]];
      if (!x->dirty) continue;
      if (keep) vec_push(s->arena, &b->flips, ((Flip){t->at[i], x->from, s->m->nop}));
      x->dirty = false;
      b->ndirty--;
    }
  }
  ensure(b->ndirty == 0, "a dirty value was touched by no step");
}

RecResult sim_try(RecSim *s, const RecChange *change, int n) {
  SimBase *b = s->bases;
  int nop = s->m->nop;
  ensure(n <= MAX_CHANGES, "%d changes in one trial", n);
  memset(b->pending, 0, (size_t)b->words * sizeof *b->pending);
  b->log.n = b->log_touched.n = b->flips.n = b->nundo = 0;
  for (int i = 0; i < n; i++) apply_change(s, &change[i], true);
  s->has_eager = b->neager > 0;
  s->base = b;
  b->trial = (RecResult){.ns = b->result.ns, .twins = b->result.twins};
  if (b->watch >= 0) b->trial.watched = b->step[b->watch].peak;
  TrialPeak peak = {0};
  int64_t delta = 0;
  bool feasible = true;
  int seen = 0; /* steps before it are in `peak` */
  for (int k = 0; feasible && (k = next_bit(b->pending, b->words, k)) >= 0; k++) {
    see_range(b, &peak, seen, k, delta);
    if (b->watch >= seen && b->watch < k) b->trial.watched = b->step[b->watch].peak + delta;
    feasible = evaluate(s, k, &delta, &peak);
    seen = k + 1;
  }
  s->base = NULL;
  if (feasible) {
    see_range(b, &peak, seen, nop, delta);
    if (b->watch >= seen) b->trial.watched = b->step[b->watch].peak + delta;
    b->trial.peak = peak.peak;
    b->trial.at = peak_step(b, &peak);
  } else {
    b->trial = (RecResult){.peak = REC_INFEASIBLE, .ns = REC_INFEASIBLE, .at = -1};
  }
  close_dirty(s, feasible);
  return b->trial;
}

void sim_reject(RecSim *s) {
  SimBase *b = s->bases;
  int n = b->nundo;
  RecChange undo[MAX_CHANGES];
  memcpy(undo, b->undo, (size_t)n * sizeof *undo);
  b->nundo = 0;
  for (int i = n - 1; i >= 0; i--) apply_change(s, &undo[i], false);
  b->nundo = 0;
}

void sim_accept(RecSim *s) {
  const RecModel *m = s->m;
  SimBase *b = s->bases;
  ensure(b->trial.ns != REC_INFEASIBLE, "an infeasible trial was accepted");
  for (int i = 0; i < b->flips.n; i++) {
    const Flip *f = &b->flips.at[i];
    flip_bits(resident_row(b, f->value), f->from, f->to);
  }
  for (int n = 0; n < b->log.n; n++) {
    const Evaluated *e = &b->log.at[n];
    int k = e->step, end = n + 1 < b->log.n ? b->log.at[n + 1].step : m->nop;
    const int *touched = b->log_touched.at + e->first_touched;
    for (int i = 0; i < b->touched[k].n; i++) clear_bit(touches_row(b, b->touched[k].at[i]), k);
    for (int i = 0; i < e->ntouched; i++) set_bit(touches_row(b, touched[i]), k);
    store_touched(s, k, touched, e->ntouched);
    b->step[k] = e->result;
    if (e->delta) {
      for (int j = k + 1; j < end; j++) b->step[j].peak += e->delta;
      for (int j = k + 1; j <= end; j++) b->cur[j] += e->delta;
    }
  }
  if (b->log.n) find_blocks(b, m->nop, b->log.at[0].step, m->nop - 1);
  b->result = b->trial;
  b->nundo = 0;
}
