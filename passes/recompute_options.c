/* recompute_options.c - for each segment of one to eight layers, the Pareto set of (saved bytes, working bytes, added time).
 *
 * In: the model and its base run. Out: options, found by simulating the segment's ops alone (a window), about a microsecond
 * each. Segments with the same signature are solved once.
 *   one layer    all state vectors when they are few, then local search around the Pareto set
 *   two layers   pairs of the layers' options, what passes between the layers dropped
 *   more layers  the same option in each layer, what passes between them dropped
 * A value between two layers belongs to segments that hold both; what spans more is kept. */
#include "recompute_options.h"

#include <stdlib.h>
#include <string.h>

enum {
  LAYER_STEPS = 120000, /* steps to simulate for one layer, a pair, a longer segment */
  PAIR_STEPS = 120000,
  LONG_STEPS = 45000,
  LIMIT_LONG = 60000,
  LAYER_OPTIONS = 64, /* kept */
  PAIR_OPTIONS = 40,
  LONG_OPTIONS = 28,
  SEARCH_OPTIONS = 256 /* held during a local search */
};

/* ---- sets of options ---- */
static bool dominates(const Option *a, const Option *b) {
  return a->saved <= b->saved && a->work <= b->work && a->ns <= b->ns;
}

/* Adds the option unless another is as good; its choice is copied. */
static bool options_add(Arena *a, Options *set, Option o, size_t size) {
  int n = 0;
  for (int i = 0; i < set->n; i++)
    if (dominates(&set->at[i], &o)) return false;
  for (int i = 0; i < set->n; i++)
    if (!dominates(&o, &set->at[i])) set->at[n++] = set->at[i];
  set->n = n;
  o.choice = arena_copy(a, o.choice, size);
  vec_push(a, set, o);
  return true;
}

static int cell(int64_t x, int64_t lo, int64_t hi, int n) {
  return (int)((__int128)(x - lo) * n / (hi - lo + 1));
}

/* Thins a set to about `most`: the fastest of each cell of a grid over saved and working bytes, and
 * the extremes. */
static void options_thin(Arena *a, Options *set, int most) {
  enum { WORK_CELLS = 3 };
  if (set->n <= most) return;
  int64_t s0 = INT64_MAX, s1 = INT64_MIN, w0 = INT64_MAX, w1 = INT64_MIN;
  int least_saved = 0, least_work = 0, fastest = 0;
  for (int i = 0; i < set->n; i++) {
    const Option *o = &set->at[i];
    const Option *ls = &set->at[least_saved], *lw = &set->at[least_work], *f = &set->at[fastest];
    if (o->saved < ls->saved || (o->saved == ls->saved && o->ns < ls->ns)) least_saved = i;
    if (o->work < lw->work || (o->work == lw->work && o->ns < lw->ns)) least_work = i;
    if (o->ns < f->ns || (o->ns == f->ns && o->saved < f->saved)) fastest = i;
    if (o->saved < s0) s0 = o->saved;
    if (o->saved > s1) s1 = o->saved;
    if (o->work < w0) w0 = o->work;
    if (o->work > w1) w1 = o->work;
  }
  int cols = most / WORK_CELLS + 1;
  int *best = arena_array(a, int, cols *WORK_CELLS);
  bool *kept = arena_array(a, bool, set->n);
  for (int c = 0; c < cols * WORK_CELLS; c++) best[c] = -1;
  for (int i = 0; i < set->n; i++) {
    const Option *o = &set->at[i];
    int *b = &best[cell(o->saved, s0, s1, cols) * WORK_CELLS + cell(o->work, w0, w1, WORK_CELLS)];
    if (*b < 0 || o->ns < set->at[*b].ns) *b = i;
  }
  kept[least_saved] = kept[least_work] = kept[fastest] = true;
  for (int c = 0; c < cols * WORK_CELLS; c++)
    if (best[c] >= 0) kept[best[c]] = true;
  int n = 0;
  for (int i = 0; i < set->n; i++)
    if (kept[i]) set->at[n++] = set->at[i];
  set->n = n;
}

/* ---- evaluation of one choice ---- */
typedef struct {
  Layers *ls;
  Segment *g;
  Options *options; /* found so far */
  uint8_t *x;       /* the choice in work */
  int64_t base_ns, base_after, base_saved;
  int64_t ns;    /* of the last evaluation, REC_INFEASIBLE when impossible */
  int fullest;   /* op of the window with the most bytes */
  int64_t limit; /* on the simulator's work */
} Trial;

static size_t choice_size(const Segment *g) {
  return (size_t)g->nitem + (size_t)g->nflag;
}

void segment_apply(const Layers *ls, const Segment *g, const uint8_t *choice, uint8_t *d) {
  for (int i = 0; i < g->nitem; i++) decision_set(ls->m, d, g->item[i], (GapState)choice[i]);
  for (int i = 0; i < g->nflag; i++) *op_flags(ls->m, d, g->flag_op[i]) = choice[g->nitem + i];
}

static bool spent(const Trial *t) {
  return sim_work(t->ls->sim) >= t->limit;
}

/* Evaluates the choice in work. False when it is impossible. */
static bool evaluate(Trial *t, Option *o) {
  Layers *ls = t->ls;
  Segment *g = t->g;
  segment_apply(ls, g, t->x, ls->d);
  t->ns = sim_window_run(ls->sim, g->window, ls->d, ls->wlive, ls->wafter);
  if (t->ns == REC_INFEASIBLE) return false;
  int64_t after = g->nfwd ? ls->wafter[g->nfwd - 1] : 0;
  *o = (Option){.saved = t->base_saved - t->base_after + after,
                .work = NO_BYTES,
                .ns = t->ns - t->base_ns,
                .choice = t->x};
  for (int i = 0; i < g->window.n; i++) {
    int64_t live = ls->wlive[i] + g->outside[i];
    if (live > o->work) {
      o->work = live;
      t->fullest = i;
    }
  }
  return true;
}

static bool try_choice(Trial *t) {
  Option o;
  return evaluate(t, &o) && options_add(t->ls->arena, t->options, o, choice_size(t->g));
}

/* ---- one layer ---- */
static void enumerate(Trial *t, const uint8_t *state, int nstate) {
  int n = t->g->nitem;
  memset(t->x, 0, choice_size(t->g));
  int *digit = arena_array(t->ls->arena, int, n + 1);
  for (;;) {
    for (int i = 0; i < n; i++) t->x[i] = state[digit[i]];
    try_choice(t);
    int i = 0;
    while (i < n && ++digit[i] == nstate) digit[i++] = 0;
    if (i == n) return;
  }
}

/* From all items in one state to all in another, one at a time: the next is the one that costs
 * least a byte, or that saves most time. */
static void greedy_path(Trial *t, GapState from, GapState to) {
  const RecModel *m = t->ls->m;
  int n = t->g->nitem;
  memset(t->x, 0, choice_size(t->g));
  memset(t->x, from, (size_t)n);
  try_choice(t);
  for (int step = 0; step < n && !spent(t); step++) {
    int best = -1;
    __int128 best_ns = 0, best_bytes = 1;
    for (int i = 0; i < n; i++) {
      if (t->x[i] != from) continue;
      t->x[i] = (uint8_t)to;
      try_choice(t);
      t->x[i] = (uint8_t)from;
      if (t->ns == REC_INFEASIBLE) continue;
      int64_t bytes = to == KEEP ? 1 : m->bytes[m->item[t->g->item[i]].value] + 1;
      __int128 ns = t->ns - (to == KEEP ? 0 : t->base_ns);
      if (best < 0 || ns * best_bytes < best_ns * bytes) {
        best = i;
        best_ns = ns;
        best_bytes = bytes;
      }
    }
    if (best < 0) return;
    t->x[best] = (uint8_t)to;
  }
}

/* Pareto local search: every option's neighbours (one item in another state) until nothing new
 * comes. */
static void local_search(Trial *t) {
  static const uint8_t states[] = {KEEP, OWN, NEVER};
  Options *set = t->options;
  size_t size = choice_size(t->g);
  VEC(const uint8_t *) seen = {0};
  while (!spent(t)) {
    const uint8_t *from = NULL;
    for (int i = 0; i < set->n && !from; i++) {
      bool old = false;
      for (int k = 0; k < seen.n && !old; k++) old = seen.at[k] == set->at[i].choice;
      if (!old) from = set->at[i].choice;
    }
    if (!from) return;
    vec_push(t->ls->arena, &seen, from);
    for (int i = 0; i < t->g->nitem && !spent(t); i++) {
      for (int k = 0; k < COUNT_OF(states); k++) {
        if (states[k] == from[i]) continue;
        memcpy(t->x, from, size);
        t->x[i] = states[k];
        try_choice(t);
      }
    }
    options_thin(t->ls->arena, set, SEARCH_OPTIONS);
  }
}

/* Chains run before the previous op's outputs exist where that lowers an option's working bytes. */
static void try_early_chains(Trial *t) {
  enum { ROUNDS = 3 };
  Segment *g = t->g;
  int n = t->options->n;
  const uint8_t **choice = arena_array(t->ls->arena, const uint8_t *, n);
  for (int i = 0; i < n; i++) choice[i] = t->options->at[i].choice;
  for (int i = 0; i < n && !spent(t); i++) {
    memcpy(t->x, choice[i], choice_size(g));
    Option now;
    if (!evaluate(t, &now)) continue;
    for (int round = 0; round < ROUNDS; round++) {
      int op = g->window.ops[t->fullest], flag = -1;
      for (int f = 0; f < g->nflag; f++)
        if (g->flag_op[f] == op && op >= t->ls->m->first_bwd) flag = f;
      if (flag < 0 || t->x[g->nitem + flag]) break;
      t->x[g->nitem + flag] = CHAIN_EARLY;
      Option o;
      if (!evaluate(t, &o) || o.work >= now.work) break;
      now = o;
      options_add(t->ls->arena, t->options, o, choice_size(g));
    }
  }
}

static double power(double x, int n) {
  double r = 1;
  while (n-- > 0 && r < 1e9) r *= x;
  return r;
}

static void solve_layer(Trial *t) {
  static const uint8_t three[] = {KEEP, OWN, NEVER}, two[] = {KEEP, OWN};
  double room = LAYER_STEPS / 2.0 / t->g->window.n;
  if (power(3, t->g->nitem) <= room) {
    enumerate(t, three, COUNT_OF(three));
  } else if (power(2, t->g->nitem) <= room) {
    enumerate(t, two, COUNT_OF(two));
  } else {
    greedy_path(t, KEEP, OWN);
    greedy_path(t, OWN, KEEP);
  }
  local_search(t);
  options_thin(t->ls->arena, t->options, LAYER_OPTIONS);
  t->limit += LAYER_STEPS / 4;
  try_early_chains(t);
}

/* ---- several layers ---- */
/* Lays the choice of a one-layer option over the segment's choice in work. */
static void take_layer(Trial *t, const Segment *one, const uint8_t *choice) {
  Segment *g = t->g;
  for (int i = 0, k = 0; i < g->nitem && k < one->nitem; i++)
    if (g->item[i] == one->item[k]) t->x[i] = choice[k++];
  for (int i = 0, k = 0; i < g->nflag && k < one->nflag; i++)
    if (g->flag_op[i] == one->flag_op[k]) t->x[g->nitem + i] = choice[one->nitem + k++];
}

static bool passes_between(const Trial *t, int item) {
  return t->ls->item_first_layer[item] != t->ls->item_last_layer[item];
}

static void solve_pair(Trial *t) {
  static const uint8_t between[] = {OWN, ONCE, NEVER};
  Segment *g = t->g, *one[2] = {&t->ls->seg[1][g->layer], &t->ls->seg[1][g->layer + 1]};
  Arena *a = t->ls->arena;
  bool any = false;
  for (int i = 0; i < g->nitem; i++) any |= passes_between(t, g->item[i]);
  if (!any) return;
  int most = 1;
  while ((int64_t)most * most * COUNT_OF(between) * g->window.n < PAIR_STEPS) most++;
  Options list[2] = {{0}};
  for (int q = 0; q < 2; q++) {
    for (int i = 0; i < one[q]->options->n; i++) vec_push(a, &list[q], one[q]->options->at[i]);
    options_thin(a, &list[q], most);
  }
  for (int p = 0; p < list[0].n; p++)
    for (int q = 0; q < list[1].n; q++)
      for (int s = 0; s < COUNT_OF(between) && !spent(t); s++) {
        memset(t->x, 0, choice_size(g));
        memset(t->x, between[s], (size_t)g->nitem);
        take_layer(t, one[0], list[0].at[p].choice);
        take_layer(t, one[1], list[1].at[q].choice);
        try_choice(t);
      }
  options_thin(a, t->options, PAIR_OPTIONS);
}

/* Every layer takes option c of the segment's second layer where it is like it, else drops all; c <
 * 0: all drop all. */
static void take_layers(Trial *t, int c, GapState between) {
  Segment *g = t->g, *like = &t->ls->seg[1][g->layer + 1];
  memset(t->x, 0, choice_size(g));
  for (int i = 0; i < g->nitem; i++) t->x[i] = passes_between(t, g->item[i]) ? between : OWN;
  if (c < 0) return;
  for (int l = g->layer; l < g->layer + g->count; l++) {
    Segment *one = &t->ls->seg[1][l];
    if (one->options == like->options) take_layer(t, one, like->options->at[c].choice);
  }
}

static void solve_long(Trial *t) {
  Segment *g = t->g;
  Arena *a = t->ls->arena;
  Segment *last = &t->ls->seg[1][g->layer + g->count - 1];
  uint8_t *all = arena_alloc(a, choice_size(last)); /* KEEP */
  int n = t->ls->seg[1][g->layer + 1].options->n;
  int step = (int)((int64_t)3 * n * g->window.n / LONG_STEPS) + 1;
  for (int c = -1; c < n && !spent(t); c += c < 0 ? 1 : step) {
    take_layers(t, c, NEVER);
    try_choice(t);
    take_layers(t, c, ONCE);
    try_choice(t);
    take_layer(t, last, all);
    try_choice(t);
  }
  options_thin(a, t->options, LONG_OPTIONS);
}

/* ---- segments ---- */
static int compare_ints(const void *a, const void *b) {
  return *(const int *)a - *(const int *)b;
}

static void collect_ops(Layers *ls, Segment *g) {
  int n = 0;
  if (g->count == 1) return; /* layers_init made it */
  for (int l = g->layer; l < g->layer + g->count; l++) n += ls->seg[1][l].window.n;
  int *ops = arena_array(ls->arena, int, n);
  n = 0;
  for (int l = g->layer; l < g->layer + g->count; l++) {
    RecWindow one = ls->seg[1][l].window;
    memcpy(ops + n, one.ops, (size_t)one.n * sizeof *ops);
    n += one.n;
  }
  qsort(ops, (size_t)n, sizeof *ops, compare_ints);
  g->window = (RecWindow){ops, n};
}

static void collect_decisions(Layers *ls, Segment *g) {
  const RecModel *m = ls->m;
  VEC(int) items = {0}, flags = {0};
  for (int i = 0; i < m->nitem; i++)
    if (m->item[i].crosses && ls->item_first_layer[i] >= g->layer &&
        ls->item_last_layer[i] < g->layer + g->count)
      vec_push(ls->arena, &items, i);
  for (int i = 0; i < m->nflag; i++) {
    int l = m->layer[m->flag_op[i]];
    if (l >= g->layer && l < g->layer + g->count) vec_push(ls->arena, &flags, m->flag_op[i]);
  }
  g->nitem = items.n;
  g->item = items.at;
  g->nflag = flags.n;
  g->flag_op = flags.at;
}

static uint64_t hash_value(const Layers *ls, int v) {
  const RecModel *m = ls->m;
  uint64_t h = hash_bytes(&m->bytes[v], sizeof m->bytes[v], m->p->keep && m->p->keep[v]);
  for (int e = m->first_event[v]; e < m->first_event[v + 1]; e++) {
    int k = m->event_op[e];
    int64_t place[2] = {ls->position[k], k >= m->first_bwd};
    h = hash_bytes(place, sizeof place, h);
  }
  return h;
}

/* All that the options depend on: the ops, what passes between them, what is live around them. */
static uint64_t hash_segment(Layers *ls, const Segment *g) {
  const RecModel *m = ls->m;
  uint64_t h = (uint64_t)g->count;
  int64_t held = ls->held[g->layer + g->count] - ls->held[g->layer];
  h = hash_bytes(&held, sizeof held, h);
  for (int i = 0; i < g->window.n; i++) ls->position[g->window.ops[i]] = i;
  for (int i = 0; i < g->window.n; i++) {
    int k = g->window.ops[i];
    const RecOp *o = &m->op[k];
    int64_t fact[] = {o->ns,
                      o->ws,
                      m->redo[k],
                      k >= m->first_bwd,
                      m->layer[k] - g->layer,
                      o->nin,
                      o->nout,
                      ls->live[k] - ls->held[g->layer]};
    h = hash_bytes(fact, sizeof fact, h);
    for (int j = 0; j < o->nin; j++) {
      int p = m->prod[o->in[j]];
      int64_t from[2] = {p < 0 ? -2 : ls->position[p], o->in[j] == o->alias};
      h = hash_bytes(from, sizeof from, h);
    }
    for (int j = 0; j < o->nout; j++) h ^= hash_value(ls, o->out[j]) + h * 31;
  }
  for (int i = 0; i < g->nitem; i++)
    h = h * 31 + (uint64_t)ls->position[m->prod[m->item[g->item[i]].value]];
  for (int i = 0; i < g->window.n; i++) ls->position[g->window.ops[i]] = -1;
  return h;
}

static void solve(Layers *ls, Segment *g) {
  Trial t = {.ls = ls, .g = g, .options = arena_new_of(ls->arena, Options)};
  g->options = t.options;
  if (!g->window.n) {
    options_add(ls->arena, t.options, (Option){.work = NO_BYTES, .choice = ls->d}, 0);
    return;
  }
  g->outside = arena_array(ls->arena, int64_t, g->window.n);
  t.x = arena_alloc(ls->arena, choice_size(g));
  sim_window_begin(ls->sim, g->window);
  t.base_ns = sim_window_run(ls->sim, g->window, ls->d, ls->wlive, ls->wafter);
  t.base_after = g->nfwd ? ls->wafter[g->nfwd - 1] : 0;
  t.base_saved = ls->held[g->layer + g->count] - ls->held[g->layer];
  for (int i = 0; i < g->window.n; i++)
    g->outside[i] = ls->live[g->window.ops[i]] - ls->wlive[i] - ls->held[g->layer];
  t.limit = sim_work(ls->sim) + (g->count == 1   ? LAYER_STEPS
                                 : g->count == 2 ? 2 * PAIR_STEPS
                                                 : LIMIT_LONG);
  if (g->count == 1) {
    solve_layer(&t);
  } else if (g->count == 2) {
    solve_pair(&t);
  } else {
    solve_long(&t);
  }
  memset(t.x, 0, choice_size(g));
  segment_apply(ls, g, t.x, ls->d);
  sim_window_end(ls->sim);
}

void layers_segment(Layers *ls, int layer, int count) {
  Segment *g = &ls->seg[count][layer];
  g->layer = layer;
  g->count = count;
  collect_ops(ls, g);
  while (g->nfwd < g->window.n && g->window.ops[g->nfwd] < ls->m->first_bwd) g->nfwd++;
  collect_decisions(ls, g);
  g->signature = hash_segment(ls, g);
  for (int l = 0; l < layer; l++) {
    const Segment *other = &ls->seg[count][l];
    if (other->signature != g->signature || other->nitem != g->nitem || other->nflag != g->nflag)
      continue;
    g->options = other->options;
    return;
  }
  g->options = ls->shared ? segments_take(ls->shared, g) : NULL;
  if (g->options) return;
  solve(ls, g);
  if (ls->shared) segments_put(ls->shared, g);
}

/* ---- base run and layers ---- */
static void find_spans(Layers *ls) {
  const RecModel *m = ls->m;
  for (int i = 0; i < m->nitem; i++) {
    int v = m->item[i].value, lo = INT32_MAX, hi = 0;
    for (int e = m->first_event[v]; e < m->first_event[v + 1]; e++) {
      int l = m->layer[m->event_op[e]];
      if (l < lo) lo = l;
      if (l > hi) hi = l;
    }
    ls->item_first_layer[i] = lo;
    ls->item_last_layer[i] = hi;
  }
}

static void find_held(Layers *ls) {
  const RecModel *m = ls->m;
  for (int v = 0; v < m->nval; v++) {
    if (m->prod[v] < 0) continue;
    for (int e = m->first_event[v]; e + 1 < m->first_event[v + 1]; e++)
      if (m->event_op[e] < m->first_bwd && m->event_op[e + 1] >= m->first_bwd)
        ls->held[m->layer[m->prod[v]] + 1] += m->bytes[v];
  }
  for (int l = 0; l < m->nlayer; l++) ls->held[l + 1] += ls->held[l];
}

static void find_layer_ops(Layers *ls) {
  const RecModel *m = ls->m;
  int *count = arena_array(ls->arena, int, m->nlayer);
  for (int k = 0; k < m->nop; k++) count[m->layer[k]]++;
  for (int l = 0; l < m->nlayer; l++) {
    ls->seg[1][l].window.ops = arena_array(ls->arena, int, count[l]);
  }
  for (int k = 0; k < m->nop; k++) {
    RecWindow *w = &ls->seg[1][m->layer[k]].window;
    ((int *)w->ops)[w->n++] = k;
  }
}

bool layers_init(Layers *ls, RecModel *m, RecSim *sim, Arena *a) {
  if (m->nlayer < 3 || m->first_bwd == m->nop) return false;
  *ls = (Layers){.m = m, .sim = sim, .arena = a, .d = decision_new(m, a)};
  for (int g = 1; g <= MAX_SEGMENT; g++) ls->seg[g] = arena_array(a, Segment, m->nlayer);
  ls->live = arena_array(a, int64_t, m->nop);
  ls->held = arena_array(a, int64_t, m->nlayer + 1);
  ls->wlive = arena_array(a, int64_t, m->nop);
  ls->wafter = arena_array(a, int64_t, m->nop);
  ls->position = arena_array(a, int, m->nop);
  ls->item_first_layer = arena_array(a, int, m->nitem);
  ls->item_last_layer = arena_array(a, int, m->nitem);
  for (int k = 0; k < m->nop; k++) ls->position[k] = -1;
  sim_run(sim, ls->d, ls->live);
  find_held(ls);
  find_spans(ls);
  find_layer_ops(ls);
  return true;
}
