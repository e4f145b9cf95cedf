/* stage.c - windows and copies of one program (see stage.h). Input: a trace with times, uses of host variables, bytes
 * alive. Output: windows with the steps of their copies, the time of the program.
 *
 * Copies of one direction are served in order. At the boundary before a step: what was copied out gives its room back,
 * windows that ended are copied out, those that begin must be there, and later ones are fetched ahead while their time
 * has come and there is room. */
#include "stage.h"

#include <math.h>

#include "timeline.h"

HostItems stage_items(const StorageMap *m, const Vars *vars, const bool *host, const SavedSet *saved, const int64_t *unit_bytes,
                      Arena *a) {
  int nvars = vars->all.n, *of_unit = arena_array(a, int, m->nunits + 1);
  int64_t *bytes = arena_array(a, int64_t, nvars + saved->n + 1);
  for (int i = 0; i < nvars; i++) bytes[i] = round_up(shape_bytes(&vars->all.at[i].shape, vars->all.at[i].dtype), PLAN_ALIGN);
  for (int u = 0; u < m->nunits; u++) {
    int var = m->unit[u].var;
    of_unit[u] = var >= 0 && host[var] ? var : -1;
  }
  for (int i = 0; i < saved->n; i++) {
    of_unit[saved->unit[i]] = nvars + i;
    bytes[nvars + i] = unit_bytes[saved->unit[i]];
  }
  return (HostItems){.n = nvars + saved->n, .nvars = nvars, .of_unit = of_unit, .bytes = bytes};
}

HostUses stage_uses(const StorageMap *m, const HostItems *items, Arena *a) {
  const Clusters *c = m->clusters;
  HostUses u = {.first = arena_array(a, int, c->n + 2), .members = 1};
  VEC(HostUse) list = {0};
  for (int i = 0; i < c->n; i++) {
    u.first[i] = list.n;
    if (c->at[i].member > u.members) u.members = c->at[i].member;
    for (int k = 0; k < c->at[i].nin + c->at[i].nout; k++) {
      bool write = k >= c->at[i].nin;
      int unit = write ? m->out[i][k - c->at[i].nin].unit : m->place[c->at[i].in[k]].unit;
      int item = items->of_unit[unit];
      if (item < 0) continue;
      int at = u.first[i];
      while (at < list.n && list.at[at].item != item) at++;
      if (at == list.n) vec_push(a, &list, ((HostUse){.item = item}));
      *(write ? &list.at[at].write : &list.at[at].read) = true;
    }
  }
  u.first[c->n] = list.n;
  u.list = list.at;
  return u;
}

/* ---- windows ---- */

enum { TO_DEVICE, TO_HOST, WAYS };

/* Bytes a nanosecond of each direction, alone and beside the other. */
typedef struct {
  double alone[WAYS], both[WAYS];
  double start_ns; /* of each copy */
} Rates;

static Rates rates_of(const Target *t) {
  Rates r = {.alone = {t->h2d_gbs, t->d2h_gbs}, .start_ns = 1e3 * t->launch_us};
  for (int d = 0; d < WAYS; d++) r.both[d] = r.alone[d] * t->both_ways;
  return r;
}

typedef struct {
  const StageProblem *p;
  Arena *arena;
  Rates rate;
  int64_t *begin; /* per step, and the end: time of the steps before it, were there no copies */
  VEC(StageWindow) window;
  int *head;
  int *last;      /* per item: its latest window */
} Windows;

/* What waits this many times as long as a copy of it takes is copied out and in again; a variable with a group, times its
 * members: the next one wants it. */
enum { LONG_WAIT = 8 };

int64_t stage_long_wait(const Target *t, int64_t bytes) {
  Rates r = rates_of(t);
  return llround(LONG_WAIT * (r.start_ns + (double)bytes / r.both[TO_DEVICE])) + 1;
}

static void open_window(Windows *w, int step, const HostUse *u) {
  int item = u->item;
  StageWindow x = {.item = item,
                   .first = step,
                   .last = step,
                   .in = u->read,
                   .out = u->write,
                   .in_begin = step,
                   .before = w->last[item],
                   .next = -1};
  x.bytes = w->p->items->bytes[item];
  if (w->last[item] < 0)
    w->head[item] = w->window.n;
  else
    w->window.at[w->last[item]].next = w->window.n;
  w->last[item] = w->window.n;
  vec_push(w->arena, &w->window, x);
}

static void find_windows(Windows *w) {
  const StageProblem *p = w->p;
  int n = p->items->n;
  w->head = arena_array(w->arena, int, n + 1);
  w->last = arena_array(w->arena, int, n + 1);
  int64_t *copied = arena_array(w->arena, int64_t, n + 1), total = 0; /* before the item's last use */
  for (int i = 0; i < n; i++) w->head[i] = w->last[i] = -1;
  for (int s = 0; s < p->nsteps; s++) {
    for (int i = p->uses->first[p->trace[s]]; i < p->uses->first[p->trace[s] + 1]; i++) {
      const HostUse *u = &p->uses->list[i];
      int at = w->last[u->item];
      StageWindow *x = at < 0 ? NULL : &w->window.at[at];
      bool joins = false;
      if (x) {
        double own = (double)x->bytes / w->rate.both[TO_DEVICE];
        double steps = (double)(w->begin[s] - w->begin[x->last + 1]);
        double copies = (double)(total - copied[u->item]) / w->rate.both[TO_DEVICE];
        own *= LONG_WAIT * (u->item < p->items->nvars ? p->uses->members : 1);
        joins = steps <= own && copies <= own;
      }
      if (joins) {
        x->last = s;
        x->out |= u->write;
      } else {
        open_window(w, s, u);
        total += w->window.at[w->window.n - 1].bytes;
      }
      copied[u->item] = total;
    }
  }
  for (int i = p->items->nvars; i < n; i++) /* a saved value that is not read again need not be kept */
    if (w->head[i] >= 0) w->window.at[w->head[i]].out &= w->window.at[w->head[i]].next >= 0;
}

/* ---- three timelines ---- */

typedef struct {
  int *queue; /* windows in order */
  int head, tail;
  double left; /* bytes of the one at the head, its start included */
  double busy; /* ns */
} Stream;

typedef struct {
  const StageProblem *p;
  const Rates *rate;
  StageWindow *at;
  int n;
  double now;
  Stream way[WAYS];
  bool *arrived;         /* per window: the copy in is done */
  bool *left_over;       /* per window: the copy out is done */
  int64_t room, held;    /* bytes of stages: at most, now */
  const int64_t *need;   /* per step: bytes of the stages that it must find */
  bool tight;            /* no room besides that of the step that needs the most */
  int released;          /* copies out whose room was given back */
  int fetched;           /* windows before it are there or under way */
  int used;              /* windows before it have begun */
  double *latest;        /* per window: when the copy in should begin, on the timeline of the steps */
  double exposed;
  int64_t *stages;       /* per step and one more: change of stage bytes, for the peak */
  int64_t *begin_ns;     /* per step */
} Sim;

static void begin_head(Sim *x, int d) {
  Stream *q = &x->way[d];
  if (q->head == q->tail) return;
  StageWindow *w = &x->at[q->queue[q->head]];
  q->left = (double)w->bytes + x->rate->start_ns * x->rate->alone[d];
  *(d == TO_DEVICE ? &w->in_from : &w->out_from) = llround(x->now);
}

static void end_head(Sim *x, int d) {
  int window = x->way[d].queue[x->way[d].head++];
  (d == TO_DEVICE ? x->arrived : x->left_over)[window] = true;
  *(d == TO_DEVICE ? &x->at[window].in_to : &x->at[window].out_to) = llround(x->now);
  begin_head(x, d);
}

static void enqueue(Sim *x, int d, int window) {
  Stream *q = &x->way[d];
  q->queue[q->tail++] = window;
  if (q->tail == q->head + 1) begin_head(x, d);
}

/* To the next end of a copy, but no further than `until`; false when no copy runs. */
static bool next_event(Sim *x, double until) {
  bool runs[WAYS];
  double rate[WAYS], dt = until - x->now;
  for (int d = 0; d < WAYS; d++) runs[d] = x->way[d].head < x->way[d].tail;
  if (!runs[0] && !runs[1]) return false;
  for (int d = 0; d < WAYS; d++) {
    rate[d] = runs[0] && runs[1] ? x->rate->both[d] : x->rate->alone[d];
    if (runs[d] && x->way[d].left / rate[d] < dt) dt = x->way[d].left / rate[d];
  }
  x->now += dt;
  for (int d = 0; d < WAYS; d++) {
    Stream *q = &x->way[d];
    if (!runs[d]) continue;
    q->busy += dt;
    q->left -= dt * rate[d];
    if (q->left <= 0.5) end_head(x, d);
  }
  return true;
}

static void run_until(Sim *x, double t) {
  while (x->now < t && next_event(x, t)) {
  }
  x->now = t;
}

static void wait_for(Sim *x, const bool *done, int window) {
  double from = x->now;
  while (!done[window])
    if (!next_event(x, INFINITY)) bug("stage: window %d waits for a copy that was not begun", window);
  x->exposed += x->now - from;
}

/* ---- one boundary ---- */

static void give_back(Sim *x, int window, int step) {
  x->held -= x->at[window].bytes;
  x->stages[step] -= x->at[window].bytes;
}

static void take(Sim *x, int window, int step) {
  x->held += x->at[window].bytes;
  x->stages[step] += x->at[window].bytes;
}

/* The oldest copy out that still holds room is over before `step`. */
static void release(Sim *x, int step) {
  int window = x->way[TO_HOST].queue[x->released++];
  x->at[window].out_end = step;
  give_back(x, window, step);
}

static bool out_in_flight(const Sim *x, int window) {
  return window >= 0 && x->at[window].out && !x->left_over[window];
}

static bool has_room(const Sim *x, int window) {
  return x->held + x->at[window].bytes <= x->room;
}

/* The stage of a window from this step on: waits until copies out have made room for it. */
static void make_room(Sim *x, int window, int s) {
  while (!has_room(x, window) && x->released < x->way[TO_HOST].tail) {
    wait_for(x, x->left_over, x->way[TO_HOST].queue[x->released]);
    release(x, s);
  }
  while (x->released < x->way[TO_HOST].head) release(x, s); /* what the waits saw */
}

/* Where there is no room to spare, a step that takes most of it has it for itself: its stages then lie side by side in what
 * they add up to, whatever is placed before and after. */
static bool alone(const Sim *x, int step) {
  return x->tight && step < x->p->nsteps && x->need[step] > x->room / 2;
}

static bool may_fetch_ahead(const Sim *x, int window, int s) {
  if (alone(x, s) || alone(x, x->at[window].first)) return false;
  int64_t limit = x->tight ? x->room - x->room / 4 : x->room; /* what is full cannot be placed without gaps */
  return x->held + x->at[window].bytes <= limit;
}

/* All that was copied out gives its room back. */
static void drain(Sim *x, int step) {
  while (x->released < x->way[TO_HOST].tail) {
    wait_for(x, x->left_over, x->way[TO_HOST].queue[x->released]);
    release(x, step);
  }
}

/* Copies in that must begin now, and those whose time has come while there is room. */
static void fetch(Sim *x, const int64_t *begin, int s) {
  for (; x->fetched < x->n; x->fetched++) {
    int k = x->fetched;
    StageWindow *w = &x->at[k];
    if (!w->in) continue;
    if (w->first == s) {
      if (out_in_flight(x, w->before)) wait_for(x, x->left_over, w->before);
      make_room(x, k, s);
    } else if ((double)begin[s + 1] <= x->latest[k] || out_in_flight(x, w->before) || !may_fetch_ahead(x, k, s)) {
      break;
    }
    w->in_begin = s;
    take(x, k, s);
    enqueue(x, TO_DEVICE, k);
  }
}

/* Steps wait for what they use; what they only write begins here. */
static void arrive(Sim *x, int s) {
  for (; x->used < x->n && x->at[x->used].first == s; x->used++) {
    if (x->at[x->used].in) {
      wait_for(x, x->arrived, x->used);
    } else {
      make_room(x, x->used, s);
      take(x, x->used, s);
    }
  }
}

static void send(Sim *x, const int *by_last, const int *first_last, int s) {
  if (s == 0) return;
  for (int i = first_last[s - 1]; i < first_last[s]; i++) {
    int k = by_last[i];
    if (x->at[k].out)
      enqueue(x, TO_HOST, k);
    else
      give_back(x, k, s);
  }
}

/* ---- the whole ---- */

/* When each copy in should begin, counted back from its first use and from the copy after it. */
static void latest_begins(Sim *x, const int64_t *begin) {
  double next = INFINITY;
  for (int k = x->n - 1; k >= 0; k--) {
    const StageWindow *w = &x->at[k];
    x->latest[k] = INFINITY;
    if (!w->in) continue;
    double end = fmin((double)begin[w->first], next);
    next = end - 1.25 * (x->rate->start_ns + (double)w->bytes / x->rate->both[TO_DEVICE]);
    x->latest[k] = next;
  }
}

/* Windows by the step of their last use: those of step s are list[first[s]..first[s+1]). */
static int *sorted_by_last(const StageProblem *p, const StageWindow *at, int n, int **first, Arena *a) {
  int *count = arena_array(a, int, p->nsteps + 2), *list = arena_array(a, int, n + 1);
  *first = arena_array(a, int, p->nsteps + 2);
  for (int k = 0; k < n; k++) count[at[k].last + 1]++;
  for (int s = 0; s <= p->nsteps; s++) count[s + 1] += count[s];
  for (int s = 0; s <= p->nsteps; s++) (*first)[s] = count[s];
  for (int k = 0; k < n; k++) list[count[at[k].last]++] = k;
  return list;
}

/* Bytes of the windows that each step lies in; the most of them. */
static int64_t *needs_of(const StageProblem *p, const StageWindow *at, int n, int64_t *most, Arena *a) {
  int64_t *need = arena_array(a, int64_t, p->nsteps + 2), now = 0;
  for (int k = 0; k < n; k++) {
    need[at[k].first] += at[k].bytes;
    need[at[k].last + 1] -= at[k].bytes;
  }
  *most = 0;
  for (int s = 0; s < p->nsteps; s++) {
    now += need[s];
    need[s] = now;
    if (now > *most) *most = now;
  }
  return need;
}

static void simulate(Sim *x, const Windows *w, Arena *a) {
  const StageProblem *p = x->p;
  int *first, *by_last = sorted_by_last(p, x->at, x->n, &first, a);
  latest_begins(x, w->begin);
  for (int s = 0; s < p->nsteps; s++) {
    while (x->released < x->way[TO_HOST].head) release(x, s);
    send(x, by_last, first, s);
    if (alone(x, s) || (s > 0 && alone(x, s - 1))) drain(x, s);
    fetch(x, w->begin, s);
    arrive(x, s);
    x->begin_ns[s] = llround(x->now);
    run_until(x, x->now + (double)p->ns[p->trace[s]]);
  }
  while (x->released < x->way[TO_HOST].head) release(x, p->nsteps);
  send(x, by_last, first, p->nsteps);
  drain(x, p->nsteps);
}

static int64_t peak_of(const Sim *x) {
  int64_t peak = 0, now = 0;
  for (int s = 0; s < x->p->nsteps; s++) {
    now += x->stages[s];
    if (now + x->p->live[s] > peak) peak = now + x->p->live[s];
  }
  return peak;
}

StagePlan stage_plan(const StageProblem *p, Arena *a) {
  Windows w = {.p = p, .arena = a, .rate = rates_of(p->target)};
  w.begin = arena_array(a, int64_t, p->nsteps + 2);
  for (int s = 0; s < p->nsteps; s++) w.begin[s + 1] = w.begin[s] + p->ns[p->trace[s]];
  find_windows(&w);
  int n = w.window.n;
  Sim x = {.p = p, .rate = &w.rate, .at = w.window.at, .n = n};
  for (int d = 0; d < WAYS; d++) x.way[d].queue = arena_array(a, int, n + 1);
  x.arrived = arena_array(a, bool, n + 1);
  x.left_over = arena_array(a, bool, n + 1);
  x.latest = arena_array(a, double, n + 1);
  x.stages = arena_array(a, int64_t, p->nsteps + 2);
  x.begin_ns = arena_array(a, int64_t, p->nsteps + 1);
  int64_t most;
  x.need = needs_of(p, x.at, n, &most, a);
  x.room = most + most / 2 * p->room;
  x.tight = p->room == 0;
  simulate(&x, &w, a);
  return (StagePlan){.n = n,
                     .at = x.at,
                     .head = w.head,
                     .begin_ns = x.begin_ns,
                     .ns = llround(x.now),
                     .in_ns = llround(x.way[TO_DEVICE].busy),
                     .out_ns = llround(x.way[TO_HOST].busy),
                     .exposed_ns = llround(x.exposed),
                     .peak = peak_of(&x)};
}
