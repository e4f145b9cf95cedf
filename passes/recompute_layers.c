/* recompute_layers.c - the layered programme: the whole front of (peak, time) of a stack of layers
 * in one pass.
 *
 * In: the options of all segments. Out: plans in the pool, each simulated in full.
 *
 * Q(l) is the peak of layers l.. relative to what the layers before l hold: Q(l) = max(work, saved
 * + Q(l + g)) for a segment of g layers. One number carries the whole constraint, since peak = max
 * over l of (held by layers before l + work of l). So the front at each layer is two-dimensional,
 * (Q, time), knows no budget and no byte grid; thinning keeps points exact. Invariant: points of a
 * front are by rising Q and falling time. */
#include "recompute_options.h"

#include <string.h>

enum {
  MOST_BUCKETS = 2048, /* of Q; each keeps its lowest and its fastest point */
  FEWEST_BUCKETS = 1024,
  FINE_LAYERS = 40,      /* deeper stacks get fewer buckets */
  UNROLL_STEPS = 1200000 /* for simulating the plans of the final front */
};

typedef struct {
  int64_t q, ns;
  int count, option; /* of the segment that starts here */
  int next;          /* point of the front after it */
} Point;
typedef struct {
  Point *at;
  int n;
} Front;

typedef struct {
  Point low, fast;
  bool used;
} Bucket;

/* Layers of a segment: 1, 2, 3, 4, 6, 8. */
static int next_count(int count) {
  return count < 4 ? count + 1 : count + 2;
}

typedef struct {
  const Layers *ls;
  int longest;  /* segment */
  Front *front; /* one a layer, and one for the end */
  Bucket *bucket;
  Point *kept; /* scratch: points of one front */
  int nbucket;
  int64_t lo; /* Q of the layer in work: from lo to hi, buckets of 2^shift */
  int64_t hi;
  int shift;
} Programme;

static int64_t point_q(const Layers *ls, const Segment *g, const Option *o, const Point *after) {
  int64_t q = g->layer + g->count == ls->m->nlayer ? NO_BYTES : o->saved + after->q;
  return q > o->work ? q : o->work;
}

/* Sets the range of Q: from the lowest to that of the fastest point; nothing above it is of use. */
static void find_range(Programme *p, int layer) {
  const Layers *ls = p->ls;
  int64_t best_ns = INT64_MAX;
  p->lo = INT64_MAX;
  p->hi = INT64_MIN;
  for (int count = 1; count <= p->longest && layer + count <= ls->m->nlayer;
       count = next_count(count)) {
    const Segment *g = &ls->seg[count][layer];
    const Front *after = &p->front[layer + count];
    for (int i = 0; i < g->options->n; i++) {
      const Option *o = &g->options->at[i];
      const Point *fast = &after->at[after->n - 1];
      int64_t low = point_q(ls, g, o, &after->at[0]), high = point_q(ls, g, o, fast);
      int64_t ns = o->ns + fast->ns;
      if (low < p->lo) p->lo = low;
      if (ns > best_ns || (ns == best_ns && high > p->hi)) continue;
      best_ns = ns;
      p->hi = high;
    }
  }
  p->shift = 0;
  while ((p->hi - p->lo) >> p->shift >= p->nbucket) p->shift++;
}

static void bucket_add(Bucket *b, Point p) {
  if (!b->used) {
    *b = (Bucket){p, p, true};
    return;
  }
  if (p.q < b->low.q || (p.q == b->low.q && p.ns < b->low.ns)) b->low = p;
  if (p.ns < b->fast.ns || (p.ns == b->fast.ns && p.q < b->fast.q)) b->fast = p;
}

/* Puts one option before each point of the front after it. */
static void extend(Programme *p, const Segment *g, int option) {
  const Option *o = &g->options->at[option];
  const Front *after = &p->front[g->layer + g->count];
  int j = 0;
  /* Of the points that the option's own work covers, the last is the fastest. */
  while (j + 1 < after->n && point_q(p->ls, g, o, &after->at[j + 1]) <= o->work) j++;
  for (; j < after->n; j++) {
    int64_t q = point_q(p->ls, g, o, &after->at[j]);
    if (q > p->hi) return;
    Point point = {q, o->ns + after->at[j].ns, g->count, option, j};
    bucket_add(&p->bucket[(q - p->lo) >> p->shift], point);
  }
}

static void solve_layer(Programme *p, int layer) {
  const Layers *ls = p->ls;
  find_range(p, layer);
  for (int b = 0; b < p->nbucket; b++) p->bucket[b].used = false;
  for (int count = 1; count <= p->longest && layer + count <= ls->m->nlayer;
       count = next_count(count)) {
    const Segment *g = &ls->seg[count][layer];
    for (int i = 0; i < g->options->n; i++) extend(p, g, i);
  }
  int64_t best = INT64_MAX;
  int n = 0;
  for (int b = 0; b < p->nbucket; b++) {
    if (!p->bucket[b].used) continue;
    const Point *point[2] = {&p->bucket[b].low, &p->bucket[b].fast};
    for (int i = 0; i < 2; i++) {
      if (point[i]->ns >= best) continue;
      best = point[i]->ns;
      p->kept[n++] = *point[i];
    }
  }
  p->front[layer] = (Front){arena_copy(ls->arena, p->kept, (size_t)n * sizeof *p->kept), n};
}

static void unroll(const Programme *p, int point, uint8_t *d) {
  const Layers *ls = p->ls;
  for (int l = 0; l < ls->m->nlayer;) {
    const Point *at = &p->front[l].at[point];
    const Segment *g = &ls->seg[at->count][l];
    segment_apply(ls, g, g->options->at[at->option].choice, d);
    point = at->next;
    l += at->count;
  }
}

/* Simulates the points of the first front, or an even selection of them when there are too many. */
static void unroll_front(const Programme *p, RecSim *s, RecPool *pool) {
  const RecModel *m = p->ls->m;
  int n = p->front[0].n, most = UNROLL_STEPS / m->nop + 32;
  uint8_t *d = decision_new(m, m->arena);
  for (int i = 0; i < n; i++) {
    bool same = i > 0 && (int64_t)i * most / n == (int64_t)(i - 1) * most / n;
    if (same && i < n - 1) continue;
    memset(d, 0, decision_size(m));
    unroll(p, i, d);
    pool_add(pool, sim_run(s, d, NULL), d);
  }
}

void rec_layered(RecModel *m, RecSim *s, RecPool *pool, int longest, RecSegments *shared) {
  Layers ls;
  Arena *a = m->arena;
  if (!layers_init(&ls, m, s, a)) return;
  ls.shared = shared;
  Programme p = {.ls = &ls, .longest = longest, .front = arena_array(a, Front, m->nlayer + 1)};
  for (int count = 1; count <= longest; count = next_count(count))
    for (int l = 0; l + count <= m->nlayer; l++) layers_segment(&ls, l, count);
  p.nbucket = MOST_BUCKETS;
  if (m->nlayer > FINE_LAYERS) p.nbucket = MOST_BUCKETS * FINE_LAYERS / m->nlayer;
  if (p.nbucket < FEWEST_BUCKETS) p.nbucket = FEWEST_BUCKETS;
  p.bucket = arena_array(a, Bucket, p.nbucket);
  p.kept = arena_array(a, Point, 2 * p.nbucket);
  p.front[m->nlayer] = (Front){arena_new_of(a, Point), 1};
  for (int l = m->nlayer - 1; l >= 0; l--) solve_layer(&p, l);
  unroll_front(&p, s, pool);
}
