/* place_greedy.c - first fit in good orders, for any number of buffers (1 to 3 us each a pass).
 *
 * In: a Placer. Out: its best plan, at the target or when `rounds` of the portfolio or the work
 * limit are used up.
 *
 * Address index: a segment tree over the sections. over[v] holds the addresses of the buffers whose
 * range has v as a canonical node, below[v] those held anywhere at or below v; both as ascending,
 * merged, disjoint spans. The addresses that a range meets are below[] of its canonical nodes and
 * over[] of their ancestors. Dense plans merge into few spans, which makes first fit fast. A plan
 * is rebuilt from nothing for each order, so nothing is ever removed.
 *
 * Orders: what is alive at the peak goes first, by class of lifetime, long-lived at the floor; this
 * stacks the binding moment without a hole. The squeaky wheel then moves forward what sticks out.
 */
#include "place_impl.h"

#include <stdlib.h>
#include <string.h>

enum {
  PASSES = 10,     /* first fit and its squeaky-wheel repairs for each order */
  MAX_LISTS = 192, /* span lists that one range meets: below 6 log2(sections) */
  PEAK_PERMILLE = 999,
  JUMP_LOG2 = 12, /* a squeaky buffer's rank falls by up to 2^12 */
  PUT_NS = 2000   /* cost of placing one buffer */
};

typedef struct {
  int64_t from, to;
} Span;
typedef VEC(Span) Spans;

typedef struct {
  Arena *arena;
  int leaves; /* power of two >= sections; node 1 is the root, leaves at leaves.. */
  Spans *over, *below;
} AddressIndex;

/* Rank of a buffer in an order: ascending by group, key, tie, id. */
typedef struct {
  int64_t key, tie;
  int group, id;
} Rank;

typedef enum { TIE_START, TIE_LATE_END, TIE_END } Tie;

/* An order: buffers with crowd >= peak_permille of the bound first - by class of lifetime
 * floor(log2(life) / classes), longest first; BY_LIFE: by exact lifetime; BY_SIZE: by size - then
 * the others by size * life^(life_percent / 100). */
typedef struct {
  int peak_permille, life_percent, classes;
  Tie tie;
} Order;
enum { BY_LIFE = 0, BY_SIZE = -1, NO_PEAK = 2000 };

static const Order portfolio[] = {
    {999, 0, 2, TIE_START},
    {999, 25, BY_LIFE, TIE_LATE_END},
    {990, 0, 2, TIE_END},
    {NO_PEAK, 0, BY_LIFE, TIE_START},
    {999, 25, 2, TIE_LATE_END},
    {950, 0, BY_LIFE, TIE_START},
    {900, 25, 2, TIE_LATE_END},
    {990, 10, 1, TIE_START},
    {970, 0, 2, TIE_START},
    {995, 0, 4, TIE_END},
    {NO_PEAK, 10, BY_LIFE, TIE_LATE_END},
    {900, 0, BY_SIZE, TIE_START},
    {990, 25, BY_LIFE, TIE_LATE_END},
    {950, 10, 2, TIE_START},
    {980, 0, BY_SIZE, TIE_LATE_END},
    {NO_PEAK, 25, BY_LIFE, TIE_START},
};

static void spans_add(Arena *a, Spans *s, int64_t from, int64_t to) {
  int lo = 0, hi = s->n;
  while (lo < hi) { /* first span that ends at or after `from` */
    int mid = (lo + hi) / 2;
    if (s->at[mid].to >= from) {
      hi = mid;
    } else {
      lo = mid + 1;
    }
  }
  int e = lo; /* spans lo..e-1 touch the new one */
  for (; e < s->n && s->at[e].from <= to; e++) {
    if (s->at[e].from < from) from = s->at[e].from;
    if (s->at[e].to > to) to = s->at[e].to;
  }
  if (e == lo) {
    vec_reserve(a, s, s->n + 1);
    memmove(s->at + lo + 1, s->at + lo, (size_t)(s->n - lo) * sizeof(Span));
    s->n++;
  } else if (e > lo + 1) {
    memmove(s->at + lo + 1, s->at + e, (size_t)(s->n - e) * sizeof(Span));
    s->n -= e - lo - 1;
  }
  s->at[lo] = (Span){from, to};
}

/* From span x on, the first that ends above `o`, by galloping. */
static int spans_skip(const Spans *s, int x, int64_t o) {
  if (x >= s->n || s->at[x].to > o) return x;
  int step = 1;
  while (x + step < s->n && s->at[x + step].to <= o) {
    x += step;
    step *= 2;
  }
  int lo = x + 1, hi = x + step < s->n ? x + step : s->n;
  while (lo < hi) {
    int mid = (lo + hi) / 2;
    if (s->at[mid].to > o) {
      hi = mid;
    } else {
      lo = mid + 1;
    }
  }
  return lo;
}

/* The span lists that sections [first, end) meet. */
static int lists_met(const AddressIndex *ix, int first, int end, const Spans **list) {
  int n = 0, l = first + ix->leaves, r = end - 1 + ix->leaves;
  for (int x = l, y = r + 1; x < y; x >>= 1, y >>= 1) {
    if (x & 1) {
      if (ix->below[x].n) list[n++] = &ix->below[x];
      x++;
    }
    if (y & 1) {
      y--;
      if (ix->below[y].n) list[n++] = &ix->below[y];
    }
  }
  for (int x = l >> 1; x; x >>= 1)
    if (ix->over[x].n) list[n++] = &ix->over[x];
  for (int x = l >> 1, y = r >> 1; y != x; x >>= 1, y >>= 1)
    if (ix->over[y].n) list[n++] = &ix->over[y];
  return n;
}

/* Lowest offset where `size` bytes over [first, end) meet nothing: the lists are asked in turn, and
 * the search ends when all of them in a row accept the offset. */
static int64_t first_fit(const AddressIndex *ix, int first, int end, int64_t size) {
  const Spans *list[MAX_LISTS];
  int at[MAX_LISTS];
  int n = lists_met(ix, first, end, list);
  memset(at, 0, (size_t)n * sizeof *at);
  int64_t o = 0;
  for (int accepted = 0, j = 0; accepted < n;) {
    int x = at[j] = spans_skip(list[j], at[j], o);
    if (x < list[j]->n && list[j]->at[x].from < o + size) {
      o = list[j]->at[x].to;
      accepted = 0;
      continue;
    }
    accepted++;
    if (++j == n) j = 0;
  }
  return o;
}

static void index_add(AddressIndex *ix, int first, int end, int64_t from, int64_t to) {
  int l = first + ix->leaves, r = end + ix->leaves;
  for (int x = l, y = r; x < y; x >>= 1, y >>= 1) {
    if (x & 1) {
      spans_add(ix->arena, &ix->over[x], from, to);
      spans_add(ix->arena, &ix->below[x], from, to);
      x++;
    }
    if (y & 1) {
      y--;
      spans_add(ix->arena, &ix->over[y], from, to);
      spans_add(ix->arena, &ix->below[y], from, to);
    }
  }
  /* Ancestors that reach beyond the range. */
  for (int h = 1, x = l >> 1, y = (r - 1) >> 1; x; x >>= 1, y >>= 1, h++) {
    if (x << h < l || (x + 1) << h > r) spans_add(ix->arena, &ix->below[x], from, to);
    if (y != x && (y << h < l || (y + 1) << h > r)) spans_add(ix->arena, &ix->below[y], from, to);
  }
}

static int compare_ranks(const void *a, const void *b) {
  const Rank *x = a, *y = b;
  if (x->group != y->group) return x->group - y->group;
  if (x->key != y->key) return x->key < y->key ? -1 : 1;
  if (x->tie != y->tie) return x->tie < y->tie ? -1 : 1;
  return x->id - y->id;
}

static bool at_peak(const PlaceInst *in, int i, int permille) {
  return (__int128)in->crowd[i] * 1000 >= (__int128)in->bound * permille;
}

static int64_t life_key(const PlaceInst *in, int i, int classes) {
  if (classes == BY_SIZE) return -in->size[i];
  if (classes == BY_LIFE) return -in->life[i];
  return -((63 - __builtin_clzll((uint64_t)in->life[i])) / classes);
}

static void rank_buffers(const PlaceInst *in, const Order *o, Rank *rank) {
  for (int i = 0; i < in->n; i++) {
    Rank *r = &rank[i];
    r->id = i;
    r->group = at_peak(in, i, o->peak_permille) ? 0 : 1;
    if (r->group == 0) {
      r->key = life_key(in, i, o->classes);
    } else if (o->life_percent == 0) {
      r->key = -in->size[i];
    } else {
      r->key = -(100 * fixed_log2(in->size[i]) + o->life_percent * fixed_log2(in->life[i]));
    }
    r->tie = o->tie == TIE_START ? in->first[i] : o->tie == TIE_END ? in->end[i] : -in->end[i];
  }
  qsort(rank, (size_t)in->n, sizeof *rank, compare_ranks);
}

/* Squeaky wheel: what ends above `limit` moves forward, to a rank log-uniform between its own and
 * the first - but what misses the peak never overtakes what is at it, or the stack at the peak
 * would get a hole. */
static void move_squeaky(Placer *p, Rank *rank, int64_t limit) {
  const PlaceInst *in = p->in;
  int n = in->n, lead = 0;
  while (lead < n && at_peak(in, rank[lead].id, PEAK_PERMILLE)) lead++;
  for (int k = 0; k < n; k++) {
    Rank *r = &rank[k];
    r->group = 0;
    r->tie = 0;
    if (p->offset[r->id] + in->size[r->id] > limit) {
      int64_t from = k < lead ? 0 : lead;
      int64_t jump = (int64_t)(placer_random(p) >> 32) * JUMP_LOG2;
      r->key = (from << 32) + (k - from) * fixed_exp2_neg(jump);
    } else {
      r->key = ((int64_t)k << 32) + ((int64_t)1 << 31);
    }
  }
  qsort(rank, (size_t)n, sizeof *rank, compare_ranks);
}

static int64_t place_in_order(Placer *p, AddressIndex *ix, const Rank *rank) {
  const PlaceInst *in = p->in;
  for (int v = 0; v < 2 * ix->leaves; v++) ix->over[v].n = ix->below[v].n = 0;
  int64_t height = 0;
  for (int k = 0; k < in->n; k++) {
    int i = rank[k].id;
    int64_t o = first_fit(ix, in->first[i], in->end[i], in->size[i]);
    index_add(ix, in->first[i], in->end[i], o, o + in->size[i]);
    p->offset[i] = o;
    if (o + in->size[i] > height) height = o + in->size[i];
  }
  p->work += (int64_t)PUT_NS * in->n + 2 * ix->leaves;
  return height;
}

/* One order and its repairs. */
static void run_order(Placer *p, AddressIndex *ix, const Order *o, Rank *rank) {
  int64_t bound = p->in->bound;
  rank_buffers(p->in, o, rank);
  for (int pass = 0; pass < PASSES; pass++) {
    int64_t height = place_in_order(p, ix, rank);
    placer_keep(p, height, pass ? "squeaky" : "greedy");
    if (p->best_height <= p->target) return;
    if (!pass && height > bound + bound / 10) return; /* first fit will not do in this order */
    int64_t limit = bound + (bound >> 11);
    if (limit > p->best_height - 1) limit = p->target;
    move_squeaky(p, rank, limit);
  }
}

void place_greedy(Placer *p, int rounds) {
  AddressIndex ix = {.arena = p->arena, .leaves = 1};
  while (ix.leaves < p->in->nsect) ix.leaves *= 2;
  ix.over = arena_array(p->arena, Spans, 2 * ix.leaves);
  ix.below = arena_array(p->arena, Spans, 2 * ix.leaves);
  Rank *rank = arena_array(p->arena, Rank, p->in->n);
  for (int r = 0; r < rounds; r++)
    for (int c = 0; c < COUNT_OF(portfolio); c++) {
      if (placer_done(p)) return;
      run_order(p, &ix, &portfolio[c], rank);
    }
}
