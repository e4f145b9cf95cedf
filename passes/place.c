/* place.c - static placement: reduces the time axis to sections, then runs the engines until a plan
 * reaches the target.
 *
 * In: buffers with lifetimes and sizes. Out: an offset for each, no two live buffers overlapping,
 * and the bound.
 *   1. place_greedy.c  first fit over good orders, repaired by a squeaky wheel; any n
 *   2. place_exact.c   depth-first search over canonical plans                  } n <=
 * PLACE_EXACT_BUFFERS,
 *   3. place_eject.c   ejection chains below the best height, in turns with 2   } when 1 has not
 * reached the target Sizes must add up to less than 2^62 units of the alignment. */
#include "place_impl.h"

#include <stdlib.h>
#include <string.h>

enum { EXACT_ALONE_NS = 800000000 }; /* work before ejection chains join the exact search */

void placer_keep(Placer *p, int64_t height, const char *method) {
  if (height >= p->best_height) return;
  p->best_height = height;
  p->method = method;
  memcpy(p->best, p->offset, (size_t)p->in->n * sizeof *p->best);
}

static int compare_int64(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* Index of the first of cut[0..n) above t. */
static int section_after(const int64_t *cut, int n, int64_t t) {
  int lo = 0, hi = n;
  while (lo < hi) {
    int mid = (lo + hi) / 2;
    if (cut[mid] > t) {
      hi = mid;
    } else {
      lo = mid + 1;
    }
  }
  return lo;
}

/* A section closes at the first death after a birth. cut[s] is the time at which section s closes.
 */
static int64_t *find_sections(PlaceInst *in, const PlaceBuf *buf, const int *id, Arena *a) {
  int n = in->n;
  int64_t *born = arena_array(a, int64_t, n), *dead = arena_array(a, int64_t, n);
  int64_t *cut = arena_array(a, int64_t, n);
  for (int i = 0; i < n; i++) {
    born[i] = buf[id[i]].lower;
    dead[i] = buf[id[i]].upper;
  }
  qsort(born, (size_t)n, sizeof *born, compare_int64);
  qsort(dead, (size_t)n, sizeof *dead, compare_int64);
  bool open = false;
  for (int i = 0, j = 0; j < n;) {
    if (i < n && born[i] < dead[j]) {
      open = true;
      i++;
    } else {
      if (open) cut[in->nsect++] = dead[j];
      open = false;
      j++;
    }
  }
  return cut;
}

/* Largest load over each buffer's sections, through a tree of maxima. */
static void find_crowds(PlaceInst *in, Arena *a) {
  int leaves = 1;
  while (leaves < in->nsect) leaves *= 2;
  int64_t *max = arena_array(a, int64_t, 2 * leaves);
  memcpy(max + leaves, in->load, (size_t)in->nsect * sizeof *max);
  for (int v = leaves - 1; v > 0; v--)
    max[v] = max[2 * v] > max[2 * v + 1] ? max[2 * v] : max[2 * v + 1];
  in->bound = max[1];
  for (int i = 0; i < in->n; i++) {
    int64_t m = 0;
    for (int l = in->first[i] + leaves, r = in->end[i] + leaves; l < r; l >>= 1, r >>= 1) {
      if (l & 1) {
        if (max[l] > m) m = max[l];
        l++;
      }
      if (r & 1) {
        r--;
        if (max[r] > m) m = max[r];
      }
    }
    in->crowd[i] = m;
  }
}

/* Instance of the buffers id[0..n), which have a size and a lifetime. */
static PlaceInst make_instance(int n, const PlaceBuf *buf, const int *id, int64_t align, Arena *a) {
  PlaceInst in = {.n = n};
  in.size = arena_array(a, int64_t, n);
  in.life = arena_array(a, int64_t, n);
  in.crowd = arena_array(a, int64_t, n);
  in.first = arena_array(a, int, n);
  in.end = arena_array(a, int, n);
  int64_t total = 0;
  for (int i = 0; i < n; i++) {
    const PlaceBuf *b = &buf[id[i]];
    in.size[i] = (b->size - 1) / align + 1;
    bool over = __builtin_sub_overflow(b->upper, b->lower, &in.life[i]);
    over |= __builtin_add_overflow(total, in.size[i], &total);
    ensure(!over && total < PLACE_NOWHERE,
           "buffers add up to 2^62 units or more, or one lives 2^63");
  }
  int64_t *cut = find_sections(&in, buf, id, a);
  in.load = arena_array(a, int64_t, in.nsect + 1);
  for (int i = 0; i < n; i++) {
    in.first[i] = section_after(cut, in.nsect, buf[id[i]].lower);
    in.end[i] = section_after(cut, in.nsect, buf[id[i]].upper);
    in.load[in.first[i]] += in.size[i];
    in.load[in.end[i]] -= in.size[i];
  }
  for (int s = 1; s <= in.nsect; s++) in.load[s] += in.load[s - 1];
  find_crowds(&in, a);
  return in;
}

PlaceGraph place_graph(const PlaceInst *in, Arena *a) {
  PlaceGraph g = {.meets = arena_array(a, int *, in->n), .nmeets = arena_array(a, int, in->n)};
  int *row = arena_array(a, int, in->n);
  for (int i = 0; i < in->n; i++) {
    for (int j = 0; j < in->n; j++)
      if (j != i && in->first[j] < in->end[i] && in->first[i] < in->end[j]) row[g.nmeets[i]++] = j;
    g.meets[i] = arena_copy(a, row, (size_t)g.nmeets[i] * sizeof *row);
  }
  return g;
}

/* One tree for each rank order, until one decides. */
static ExactResult try_orders(Placer *p, ExactSearch *exact, int64_t capacity, int64_t nodes) {
  for (int order = 0; order < EXACT_ORDERS && p->work < p->limit; order++) {
    ExactResult r = exact_run(exact, order, capacity, nodes);
    if (r != EXACT_LIMIT) return r;
  }
  return EXACT_LIMIT;
}

/* No plan is as low as `refuted`: halves the range up to the best height until it is closed. */
static void close_range(Placer *p, ExactSearch *exact, int64_t refuted) {
  int64_t nodes = 2 * p->in->n;
  while (refuted + 1 < p->best_height && p->work < p->limit) {
    int64_t middle = refuted + (p->best_height - refuted) / 2;
    ExactResult r = try_orders(p, exact, middle, nodes);
    if (r == EXACT_NONE) refuted = middle;
    if (r == EXACT_LIMIT) nodes *= 2;
  }
  p->optimal = refuted + 1 >= p->best_height;
}

/* Exact search alone first, node limits doubling; then in turns with ejection chains. When the
 * target itself resists, the chains take the height down in steps that halve at every fourth
 * failure. */
static void place_small(Placer *p) {
  PlaceGraph graph = place_graph(p->in, p->arena);
  ExactSearch *exact = exact_new(p, &graph);
  EjectSearch *eject = NULL;
  int64_t nodes = p->in->n, step = 0;
  int turn = 0;
  while (!placer_done(p)) {
    nodes *= 2;
    int64_t start = p->work;
    if (try_orders(p, exact, p->target, nodes) == EXACT_NONE) {
      p->refuted = true;
      if (p->target == p->in->bound) close_range(p, exact, p->target);
      return;
    }
    if (p->work < EXACT_ALONE_NS || placer_done(p)) continue;
    if (!eject) eject = eject_new(p, &graph);
    int64_t middle = p->work, share = 4 * (middle - start);
    while (!placer_done(p) && p->work - middle < share) {
      int64_t gap = p->best_height - p->target;
      if (!step || step > gap) step = gap / 4 + 1;
      bool found = eject_run(eject, turn % EJECT_SETTINGS, p->best_height - step,
                             40000000 / p->in->n + 1, turn / EJECT_SETTINGS % 2);
      turn++;
      if (!found && turn % EJECT_SETTINGS == 0) step = step / 2 + 1;
    }
  }
}

int64_t place_buffers(int n, const PlaceBuf *buf, int64_t *offset, const PlaceOptions *opt,
                      PlaceInfo *info) {
  Arena *a = arena_new();
  int64_t align = opt && opt->align > 0 ? opt->align : 1;
  int *id = arena_array(a, int, n + 1);
  int m = 0;
  for (int i = 0; i < n; i++) {
    offset[i] = 0;
    if (buf[i].size > 0 && buf[i].lower < buf[i].upper) id[m++] = i;
  }
  PlaceInst in = {0};
  Placer p = {.in = &in, .arena = a, .rng = 88172645463325252ull, .method = "none"};
  if (m > 0) {
    in = make_instance(m, buf, id, align, a);
    p.best_height = PLACE_NOWHERE;
    p.target = opt ? opt->target / align : 0;
    if (p.target < in.bound) p.target = in.bound;
    p.limit = (int64_t)((opt && opt->effort > 0 ? opt->effort : 10) * 1e9);
    p.offset = arena_array(a, int64_t, m);
    p.best = arena_array(a, int64_t, m);
    bool small = m <= PLACE_EXACT_BUFFERS && in.nsect <= PLACE_EXACT_SECTIONS;
    place_greedy(&p, small ? 1 : INT32_MAX);
    if (small && !placer_done(&p)) place_small(&p);
    for (int i = 0; i < m; i++) offset[id[i]] = p.best[i] * align;
  }
  int64_t height = p.best_height * align;
  if (info) {
    *info = (PlaceInfo){.bound = in.bound * align,
                        .height = height,
                        .refuted = p.refuted,
                        .optimal = p.optimal || p.best_height == in.bound,
                        .method = p.method,
                        .work = (double)p.work * 1e-9};
  }
  arena_free(a);
  return height;
}
