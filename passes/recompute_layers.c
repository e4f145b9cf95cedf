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

enum {
  BUCKETS = 2048,        /* of Q; each keeps its lowest and its fastest point */
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

static int64_t point_q(const Layers *ls, const Segment *g, const Option *o, const Point *after) {
  int64_t q = g->layer + g->count == ls->m->nlayer ? INT64_MIN : o->saved + after->q;
  return q > o->work ? q : o->work;
}

/* Lowest Q, and the Q of the fastest point: nothing above it is of use. */
static void q_range(const Layers *ls, const Front *front, int layer, int64_t *lo, int64_t *hi) {
  int64_t best_ns = INT64_MAX;
  *lo = INT64_MAX;
  for (int count = 1; count <= MAX_SEGMENT && layer + count <= ls->m->nlayer; count++) {
    const Segment *g = &ls->seg[count][layer];
    const Front *after = &front[layer + count];
    for (int i = 0; i < g->options->n; i++) {
      const Option *o = &g->options->at[i];
      const Point *fast = &after->at[after->n - 1];
      int64_t q = point_q(ls, g, o, &after->at[0]);
      if (q < *lo) *lo = q;
      q = point_q(ls, g, o, fast);
      if (o->ns + fast->ns > best_ns || (o->ns + fast->ns == best_ns && q > *hi)) continue;
      best_ns = o->ns + fast->ns;
      *hi = q;
    }
  }
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
static void extend(const Layers *ls, const Segment *g, int option, const Front *after,
                   Bucket *bucket, int64_t lo, double scale) {
  const Option *o = &g->options->at[option];
  int j = 0;
  /* Of the points that the option's own work covers, the last is the fastest. */
  while (j + 1 < after->n && point_q(ls, g, o, &after->at[j + 1]) <= o->work) j++;
  for (; j < after->n; j++) {
    int64_t q = point_q(ls, g, o, &after->at[j]);
    int b = (int)((double)(q - lo) * scale);
    if (b >= BUCKETS) continue; /* slower than the fastest point and higher */
    bucket_add(&bucket[b], (Point){q, o->ns + after->at[j].ns, g->count, option, j});
  }
}

static void solve_layer(const Layers *ls, Front *front, int layer, Bucket *bucket) {
  int64_t lo, hi = 0;
  q_range(ls, front, layer, &lo, &hi);
  double scale = BUCKETS / ((double)(hi - lo) + 1.0 + (double)(hi - lo) * 1e-9);
  for (int b = 0; b < BUCKETS; b++) bucket[b].used = false;
  for (int count = 1; count <= MAX_SEGMENT && layer + count <= ls->m->nlayer; count++) {
    const Segment *g = &ls->seg[count][layer];
    for (int i = 0; i < g->options->n; i++)
      extend(ls, g, i, &front[layer + count], bucket, lo, scale);
  }
  Front *f = &front[layer];
  f->at = arena_array(ls->arena, Point, 2 * BUCKETS);
  int64_t best = INT64_MAX;
  for (int b = 0; b < BUCKETS; b++) {
    if (!bucket[b].used) continue;
    const Point *p[2] = {&bucket[b].low, &bucket[b].fast};
    for (int i = 0; i < 2; i++) {
      if (p[i]->ns >= best) continue;
      best = p[i]->ns;
      f->at[f->n++] = *p[i];
    }
  }
}

static void unroll(const Layers *ls, const Front *front, int point, uint8_t *d) {
  for (int l = 0; l < ls->m->nlayer;) {
    const Point *p = &front[l].at[point];
    const Segment *g = &ls->seg[p->count][l];
    segment_apply(ls, g, g->options->at[p->option].choice, d);
    point = p->next;
    l += p->count;
  }
}

bool rec_layered(RecModel *m, RecSim *s, RecPool *pool) {
  Layers ls;
  Arena *a = m->arena;
  if (!layers_init(&ls, m, s, a)) return false;
  for (int count = 1; count <= MAX_SEGMENT; count++)
    for (int l = 0; l + count <= m->nlayer; l++) layers_segment(&ls, l, count);
  Front *front = arena_array(a, Front, m->nlayer + 1);
  Bucket *bucket = arena_array(a, Bucket, BUCKETS);
  front[m->nlayer] = (Front){arena_new_of(a, Point), 1};
  for (int l = m->nlayer - 1; l >= 0; l--) solve_layer(&ls, front, l, bucket);
  int n = front[0].n, most = UNROLL_STEPS / m->nop + 32;
  for (int i = 0; i < n; i++) {
    if (n > most && i > 0 && i < n - 1 && (int64_t)i * most / n == (int64_t)(i - 1) * most / n)
      continue;
    uint8_t *d = ls.d;
    __builtin_memset(d, 0, decision_size(m));
    unroll(&ls, front, i, d);
    pool_add(pool, sim_run(s, d, NULL), d);
  }
  return true;
}
