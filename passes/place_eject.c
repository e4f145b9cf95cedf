/* place_eject.c - ejection chains: a plan within a capacity by placing one unplaced buffer after
 * another where the weight of what it hits is least, taking out what it hits, and making that
 * heavier.
 *
 * In: a Placer of at most PLACE_EXACT_BUFFERS buffers, a capacity below its best height. Out:
 * whether a plan was found. Every 10 or 20 steps all placed buffers fall to the floor, or rise to
 * the ceiling. Invariant: by_bottom and by_top hold the placed buffers, sorted by offset and by
 * offset + size. */
#include "place_impl.h"

#include <string.h>

enum { STEP_PER_BUFFER_PS = 14000, WEIGHT_BITS = 20 };

/* weight = (size * sections)^(exponent/100); a buffer taken out gains gain_percent of it; the
 * largest unplaced buffer is chosen with probability big_permille; every settle steps the plan
 * settles. */
typedef struct {
  int exponent_percent, gain_percent, big_permille, settle;
} Setting;
static const Setting settings[EJECT_SETTINGS] = {
    {30, 100, 100, 20}, {50, 10, 300, 10}, {15, 100, 300, 20}, {30, 30, 100, 10}};

struct EjectSearch {
  Placer *p;
  const PlaceInst *in;
  const PlaceGraph *graph;
  uint8_t *meets;  /* n x n */
  int64_t *offset; /* -1: unplaced */
  int64_t *weight, *base;
  int64_t *floor; /* per section, while settling */
  int *by_bottom, *by_top;
  int nplaced;
  int *waiting; /* unplaced buffers */
  int nwaiting;
  int *near_bottom, *near_top; /* placed buffers that meet the one to be placed, in both orders */
  bool *out;
  int64_t capacity;
};

EjectSearch *eject_new(Placer *p, const PlaceGraph *graph) {
  Arena *a = p->arena;
  int n = p->in->n;
  EjectSearch *e = arena_new_of(a, EjectSearch);
  *e = (EjectSearch){.p = p, .in = p->in, .graph = graph};
  e->meets = arena_array(a, uint8_t, (size_t)n * (size_t)n);
  e->offset = arena_array(a, int64_t, n);
  e->weight = arena_array(a, int64_t, n);
  e->base = arena_array(a, int64_t, n);
  e->floor = arena_array(a, int64_t, p->in->nsect);
  e->by_bottom = arena_array(a, int, n);
  e->by_top = arena_array(a, int, n);
  e->waiting = arena_array(a, int, n);
  e->near_bottom = arena_array(a, int, n);
  e->near_top = arena_array(a, int, n);
  e->out = arena_array(a, bool, n);
  for (int i = 0; i < n; i++)
    for (int k = 0; k < graph->nmeets[i]; k++)
      e->meets[(size_t)i * (size_t)n + (size_t)graph->meets[i][k]] = 1;
  return e;
}

static int64_t bottom(const EjectSearch *e, int i) {
  return e->offset[i];
}
static int64_t top(const EjectSearch *e, int i) {
  return e->offset[i] + e->in->size[i];
}

static void insert_by_bottom(EjectSearch *e, int n, int i) {
  int q = n;
  for (; q > 0 && bottom(e, e->by_bottom[q - 1]) > bottom(e, i); q--)
    e->by_bottom[q] = e->by_bottom[q - 1];
  e->by_bottom[q] = i;
}

static void insert_by_top(EjectSearch *e, int n, int i) {
  int q = n;
  for (; q > 0 && top(e, e->by_top[q - 1]) > top(e, i); q--) e->by_top[q] = e->by_top[q - 1];
  e->by_top[q] = i;
}

/* Base weights in fixed point, the heaviest buffer near 2^WEIGHT_BITS. */
static void weigh(EjectSearch *e, const Setting *set) {
  const PlaceInst *in = e->in;
  int64_t most = 0;
  for (int i = 0; i < in->n; i++) {
    int64_t l = fixed_log2(in->size[i]) + fixed_log2(in->end[i] - in->first[i]);
    e->base[i] = l / 100 * set->exponent_percent;
    if (e->base[i] > most) most = e->base[i];
  }
  for (int i = 0; i < in->n; i++) {
    e->base[i] = (fixed_exp2_neg(most - e->base[i]) >> (32 - WEIGHT_BITS)) + 1;
    e->weight[i] = e->base[i];
  }
}

static void start(EjectSearch *e, const int64_t *from) {
  e->nplaced = e->nwaiting = 0;
  for (int i = 0; i < e->in->n; i++) {
    e->offset[i] = from ? from[i] : -1;
    if (from && top(e, i) <= e->capacity) {
      insert_by_bottom(e, e->nplaced, i);
      insert_by_top(e, e->nplaced, i);
      e->nplaced++;
    } else {
      e->offset[i] = -1;
      e->waiting[e->nwaiting++] = i;
    }
  }
}

/* Takes one buffer out of the waiting list. */
static int choose(EjectSearch *e, const Setting *set) {
  int pick = 0;
  if ((int)(placer_random(e->p) % 1000) < set->big_permille) {
    for (int q = 1; q < e->nwaiting; q++)
      if (e->base[e->waiting[q]] > e->base[e->waiting[pick]]) pick = q;
  } else {
    pick = (int)(placer_random(e->p) % (uint64_t)e->nwaiting);
  }
  int i = e->waiting[pick];
  e->waiting[pick] = e->waiting[--e->nwaiting];
  return i;
}

/* Placed buffers that meet i, sorted both ways; returns their number. */
static int gather(EjectSearch *e, int i) {
  const uint8_t *meets = e->meets + (size_t)i * (size_t)e->in->n;
  int n = 0, m = 0;
  for (int q = 0; q < e->nplaced; q++) {
    e->near_bottom[n] = e->by_bottom[q];
    n += meets[e->by_bottom[q]];
    e->near_top[m] = e->by_top[q];
    m += meets[e->by_top[q]];
  }
  return n;
}

/* Offset for i that hits the least weight among its n neighbours; equals are drawn. The candidates,
 * swept upwards, are 0, tops, bottoms - size and capacity - size. */
static int64_t lightest_offset(EjectSearch *e, int i, int n) {
  const int *nb = e->near_bottom, *nt = e->near_top;
  int64_t size = e->in->size[i], last = e->capacity - size, at = 0, chosen = 0;
  int64_t best = INT64_MAX, weight = 0;
  int ib = 0, it = 0; /* neighbours below `at` + size, and of them those that end by `at` */
  uint64_t ties = 0;
  for (;;) {
    while (ib < n && bottom(e, nb[ib]) - size < at) weight += e->weight[nb[ib++]];
    while (it < n && top(e, nt[it]) <= at) weight -= e->weight[nt[it++]];
    if (weight < best) {
      best = weight;
      chosen = at;
      ties = 1;
    } else if (weight == best && placer_random(e->p) % ++ties == 0) {
      chosen = at;
    }
    if (weight == 0 && (placer_random(e->p) & 3)) return chosen;
    int64_t next = PLACE_NOWHERE;
    int cb = ib;
    while (cb < n && bottom(e, nb[cb]) - size <= at) cb++;
    if (cb < n) next = bottom(e, nb[cb]) - size;
    if (it < n && top(e, nt[it]) < next) next = top(e, nt[it]);
    if (at < last && next > last) next = last;
    if (next > last) return chosen;
    at = next;
  }
}

/* Takes out the neighbours that [at, at + size) hits; they gain weight. */
static void eject(EjectSearch *e, int n, int64_t at, int64_t size, const Setting *set) {
  int first = e->nwaiting;
  for (int q = 0; q < n; q++) {
    int j = e->near_bottom[q];
    if (bottom(e, j) >= at + size || top(e, j) <= at) continue;
    e->out[j] = true;
    e->waiting[e->nwaiting++] = j;
    e->weight[j] += e->base[j] * set->gain_percent / 100;
  }
  if (first == e->nwaiting) return;
  int nb = 0, nt = 0;
  for (int q = 0; q < e->nplaced; q++) {
    if (!e->out[e->by_bottom[q]]) e->by_bottom[nb++] = e->by_bottom[q];
    if (!e->out[e->by_top[q]]) e->by_top[nt++] = e->by_top[q];
  }
  e->nplaced = nb;
  for (int q = first; q < e->nwaiting; q++) {
    e->offset[e->waiting[q]] = -1;
    e->out[e->waiting[q]] = false;
  }
}

/* All placed buffers fall to the floor; with `rise`, the address axis is turned round first, so
 * that they rise. */
static void settle(EjectSearch *e, bool rise) {
  const PlaceInst *in = e->in;
  int n = e->nplaced;
  if (rise) {
    int *swap = e->by_bottom;
    e->by_bottom = e->by_top;
    e->by_top = swap;
    for (int l = 0, r = n - 1; l < r; l++, r--) {
      int t = e->by_bottom[l];
      e->by_bottom[l] = e->by_bottom[r];
      e->by_bottom[r] = t;
    }
    for (int k = 0; k < n; k++) e->offset[e->by_bottom[k]] = e->capacity - top(e, e->by_bottom[k]);
  }
  memset(e->floor, 0, (size_t)in->nsect * sizeof *e->floor);
  for (int k = 0; k < n; k++) {
    int j = e->by_bottom[k];
    int64_t h = 0;
    for (int s = in->first[j]; s < in->end[j]; s++)
      if (e->floor[s] > h) h = e->floor[s];
    e->offset[j] = h;
    for (int s = in->first[j]; s < in->end[j]; s++) e->floor[s] = h + in->size[j];
  }
  for (int k = 0; k < n; k++) insert_by_bottom(e, k, e->by_bottom[k]);
  for (int k = 0; k < n; k++) insert_by_top(e, k, e->by_bottom[k]);
}

bool eject_run(EjectSearch *e, int setting, int64_t capacity, int64_t steps, bool from_best) {
  const Setting *set = &settings[setting];
  e->capacity = capacity;
  weigh(e, set);
  start(e, from_best ? e->p->best : NULL);
  int64_t step = 0;
  while (e->nwaiting && step < steps) {
    step++;
    int i = choose(e, set), n = gather(e, i);
    int64_t at = lightest_offset(e, i, n);
    eject(e, n, at, e->in->size[i], set);
    e->offset[i] = at;
    insert_by_bottom(e, e->nplaced, i);
    insert_by_top(e, e->nplaced, i);
    e->nplaced++;
    if (step % set->settle == 0) settle(e, placer_random(e->p) & 1);
  }
  e->p->work += STEP_PER_BUFFER_PS * step / 1000 * e->in->n;
  if (e->nwaiting) return false;
  int64_t height = 0;
  for (int i = 0; i < e->in->n; i++) {
    e->p->offset[i] = e->offset[i];
    if (top(e, i) > height) height = top(e, i);
  }
  placer_keep(e->p, height, "ejection");
  return true;
}
