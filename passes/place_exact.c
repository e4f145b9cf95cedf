/* place_exact.c - exact placement for a fixed capacity: depth-first search over canonical plans.
 *
 * In: a Placer of at most PLACE_EXACT_BUFFERS buffers and PLACE_EXACT_SECTIONS sections, a
 * capacity, a rank order, a limit on nodes. Out: a plan within the capacity, the proof that there
 * is none, or neither within the limit.
 *
 * A canonical plan rests each buffer on the floor or on another one; its buffers are placed in
 * increasing (offset, rank). Invariants at each node, for the component (buffers and sections) that
 * it works on: low[i]        lowest offset that placed buffers leave to unplaced buffer i
 *   unplaced[s]   sum of the sizes not yet placed in section s
 *   crossing[s]   unplaced buffers that cover both s and s + 1; where it falls to 0 the component
 * splits Pruning: an unplaced buffer must start below the lowest possible top (or a hole is left
 * that it fits); no section's floor plus unplaced load may exceed the capacity; equal buffers go in
 * rank order; a refuted state is not searched again. A state is known by its hash: 64 bits of one
 * sum and, in the choice of the table's slot, 20 of another. */
#include "place_impl.h"

#include <string.h>

enum {
  MASK_WORDS = PLACE_EXACT_BUFFERS / 64,
  SECTION_WORDS = PLACE_EXACT_SECTIONS / 64,
  TABLE_BITS = 20,
  NODE_NS = 800
};

/* Rank orders: by Total load of the fullest section, Width (lifetime), Area; each then by the next.
 */
static const char *const order_keys[EXACT_ORDERS] = {"TWA", "WAT", "TAW", "AWT", "WTA", "ATW"};

typedef struct {
  int buffer;
  int64_t low;
} Change;

struct ExactSearch {
  Placer *p;
  const PlaceInst *in;
  const PlaceGraph *graph;
  /* the run */
  const char *keys;
  int64_t capacity, nodes, limit;
  uint64_t salt;
  /* per buffer */
  int64_t *low, *offset; /* offset -1: unplaced */
  int64_t *fullest;      /* largest unplaced load over its sections, when last ranked */
  int *rank;
  int *twin;            /* an equal buffer of a lower index, or -1 */
  int *by_rank, *above; /* scratch */
  uint64_t *code;       /* random, identifies it in state hashes */
  /* per section */
  int64_t *unplaced;
  int *crossing;
  /* stacks */
  int *ints; /* buffer lists of the nodes on the path */
  size_t nints;
  int64_t *longs;
  size_t nlongs;
  Change *trail; /* raised low offsets, to be undone */
  size_t ntrail;
  int *ranks; /* ranks before a split, to be restored */
  size_t nranks;
  uint64_t *refuted; /* hash table of states, newest wins */
};

/* Part of an instance that shares no section with the rest. */
typedef struct {
  int from, to; /* sections */
} Part;

static uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a + b * 0x9E3779B97F4A7C15ull;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9ull;
  x ^= x >> 32;
  x *= 0x94D049BB133111EBull;
  return x ^ x >> 29;
}

ExactSearch *exact_new(Placer *p, const PlaceGraph *graph) {
  const PlaceInst *in = p->in;
  Arena *a = p->arena;
  ExactSearch *x = arena_new_of(a, ExactSearch);
  size_t n = (size_t)in->n, edges = 0;
  *x = (ExactSearch){.p = p, .in = in, .graph = graph};
  x->low = arena_array(a, int64_t, n);
  x->offset = arena_array(a, int64_t, n);
  x->fullest = arena_array(a, int64_t, n);
  x->rank = arena_array(a, int, n);
  x->twin = arena_array(a, int, n);
  x->by_rank = arena_array(a, int, n);
  x->above = arena_array(a, int, n);
  x->code = arena_array(a, uint64_t, n);
  x->unplaced = arena_array(a, int64_t, in->nsect);
  x->crossing = arena_array(a, int, in->nsect);
  for (int i = 0; i < in->n; i++) {
    x->code[i] = mix(12345, (uint64_t)i + 1);
    x->twin[i] = -1;
    edges += (size_t)graph->nmeets[i];
    for (int k = 0; k < graph->nmeets[i]; k++) {
      int j = graph->meets[i][k];
      if (j < i && in->first[j] == in->first[i] && in->end[j] == in->end[i] &&
          in->size[j] == in->size[i])
        x->twin[i] = j;
    }
  }
  /* A path has at most n nodes. A node of m buffers holds two lists of m, a split two of its
   * sections and one of m. */
  x->ints = arena_array(a, int, n *n * 4 + n * 2 * (size_t)in->nsect);
  x->longs = arena_array(a, int64_t, n * (size_t)in->nsect);
  x->trail = arena_array(a, Change, edges + n);
  x->ranks = arena_array(a, int, n *n + n);
  x->refuted = arena_array(a, uint64_t, (size_t)1 << TABLE_BITS);
  return x;
}

/* Is buffer a ahead of b in the rank order? */
static bool ranks_ahead(const ExactSearch *x, int a, int b) {
  const PlaceInst *in = x->in;
  for (const char *key = x->keys; *key; key++) {
    __int128 u, v;
    if (*key == 'T') {
      u = x->fullest[a];
      v = x->fullest[b];
    } else if (*key == 'W') {
      u = in->life[a];
      v = in->life[b];
    } else {
      u = (__int128)in->life[a] * in->size[a];
      v = (__int128)in->life[b] * in->size[b];
    }
    if (u != v) return u > v;
  }
  return a < b;
}

/* Ranks the buffers of a part afresh, by what is still unplaced. */
static void rank_part(ExactSearch *x, const int *buf, int n) {
  int *sorted = x->above;
  for (int k = 0; k < n; k++) {
    int64_t t = 0;
    for (int s = x->in->first[buf[k]]; s < x->in->end[buf[k]]; s++)
      if (x->unplaced[s] > t) t = x->unplaced[s];
    x->fullest[buf[k]] = t;
  }
  for (int k = 0; k < n; k++) { /* binary insertion */
    int lo = 0, hi = k;
    while (lo < hi) {
      int mid = (lo + hi) / 2;
      if (ranks_ahead(x, buf[k], sorted[mid])) {
        hi = mid;
      } else {
        lo = mid + 1;
      }
    }
    memmove(sorted + lo + 1, sorted + lo, (size_t)(k - lo) * sizeof *sorted);
    sorted[lo] = buf[k];
  }
  for (int k = 0; k < n; k++) x->rank[sorted[k]] = k;
}

/* The unplaced buffers of a component as its parent sorted them, and the placement that made it. */
typedef struct {
  const int *buf;
  int n;
  Part part;
  int64_t offset; /* of the last placement, and its rank: the next may not come before */
  int rank;
  int64_t raised; /* low offsets were just raised to this, -1: fresh part */
} Node;

static ExactResult search(ExactSearch *x, const Node *node);

static ExactResult search_part(ExactSearch *x, Part part, const int *buf, int n) {
  rank_part(x, buf, n);
  return search(x, &(Node){.buf = buf, .n = n, .part = part, .rank = -1, .raised = -1});
}

/* Buffers of buf[0..n) but buf[skip] that lie in `part`, pushed on the stack. */
static int *push_members(ExactSearch *x, const int *buf, int n, int skip, Part part, int *count) {
  int *list = x->ints + x->nints;
  int c = 0;
  for (int k = 0; k < n; k++) {
    if (k == skip) continue;
    if (x->in->first[buf[k]] >= part.from && x->in->end[buf[k]] <= part.to) list[c++] = buf[k];
  }
  x->nints += (size_t)c;
  *count = c;
  return list;
}

/* The last placement, buf[skip], cut the component into parts: solve each on its own, the fullest
 * first. */
static ExactResult split(ExactSearch *x, const int *buf, int n, int skip, Part whole) {
  int placed = buf[skip], nparts = 0, from = whole.from;
  size_t ints = x->nints, longs = x->nlongs;
  Part *part = (Part *)(x->ints + x->nints);
  int64_t *load = x->longs + x->nlongs;
  for (int s = x->in->first[placed]; s < x->in->end[placed]; s++) {
    int to;
    if (s == x->in->end[placed] - 1) {
      to = whole.to;
    } else if (x->crossing[s] == 0) {
      to = s + 1;
    } else {
      continue;
    }
    int64_t t = 0;
    for (int q = from; q < to; q++)
      if (x->unplaced[q] > t) t = x->unplaced[q];
    int y = nparts++;
    for (; y > 0 && load[y - 1] < t; y--) {
      load[y] = load[y - 1];
      part[y] = part[y - 1];
    }
    load[y] = t;
    part[y] = (Part){from, to};
    from = to;
  }
  x->nints += 2 * (size_t)nparts;
  x->nlongs += (size_t)nparts;
  ExactResult result = EXACT_FOUND;
  size_t base = x->nints;
  for (int q = 0; q < nparts && result == EXACT_FOUND; q++) {
    int count;
    x->nints = base;
    int *members = push_members(x, buf, n, skip, part[q], &count);
    result = search_part(x, part[q], members, count);
  }
  x->nints = ints;
  x->nlongs = longs;
  return result;
}

/* Sorts the node's buffers by (low, rank) into `out`. After a placement all raised offsets are
 * equal, so the parent's order gives three streams: below, equal (by rank), above. */
static void sort_node(ExactSearch *x, const Node *node, int *out) {
  const int64_t *low = x->low;
  const int *rank = x->rank;
  if (node->raised < 0) {
    for (int k = 0; k < node->n; k++) {
      int i = node->buf[k], q = k;
      for (; q > 0 && (low[out[q - 1]] > low[i] ||
                       (low[out[q - 1]] == low[i] && rank[out[q - 1]] > rank[i]));
           q--)
        out[q] = out[q - 1];
      out[q] = i;
    }
    return;
  }
  uint64_t equal[MASK_WORDS];
  int words = (x->in->n + 63) / 64, n = 0, nabove = 0;
  memset(equal, 0, (size_t)words * sizeof *equal);
  for (int k = 0; k < node->n; k++) {
    int i = node->buf[k];
    if (low[i] < node->raised) {
      out[n++] = i;
    } else if (low[i] > node->raised) {
      x->above[nabove++] = i;
    } else {
      equal[rank[i] >> 6] |= 1ull << (rank[i] & 63);
      x->by_rank[rank[i]] = i;
    }
  }
  for (int w = 0; w < words; w++)
    for (uint64_t z = equal[w]; z; z &= z - 1) out[n++] = x->by_rank[w * 64 + __builtin_ctzll(z)];
  memcpy(out + n, x->above, (size_t)nabove * sizeof *out);
}

/* Can every section still take its unplaced load? Buffers by ascending low offset claim the
 * sections not yet claimed, whose floor their offset is. */
static bool sections_fit(const ExactSearch *x, const Node *node, const int *sorted) {
  uint64_t open[SECTION_WORDS];
  Part part = node->part;
  int w0 = part.from >> 6, w1 = (part.to - 1) >> 6, left = part.to - part.from;
  for (int w = w0; w <= w1; w++) open[w] = ~0ull;
  open[w0] &= ~0ull << (part.from & 63);
  if (part.to & 63) open[w1] &= ~0ull >> (64 - (part.to & 63));
  for (int k = 0; k < node->n && left; k++) {
    int i = sorted[k], l = x->in->first[i], r = x->in->end[i], a = l >> 6, b = (r - 1) >> 6;
    int64_t floor = x->low[i] < node->offset ? node->offset : x->low[i];
    for (int w = a; w <= b; w++) {
      uint64_t z = open[w];
      if (w == a) z &= ~0ull << (l & 63);
      if (w == b && (r & 63)) z &= ~0ull >> (64 - (r & 63));
      open[w] &= ~z;
      left -= __builtin_popcountll(z);
      for (; z; z &= z - 1)
        if (floor + x->unplaced[w * 64 + __builtin_ctzll(z)] > x->capacity) return false;
    }
  }
  return true;
}

typedef struct {
  size_t slot;
  uint64_t check;
} StateKey;

/* The state is the set of (buffer, lowest offset it may still take). */
static StateKey state_key(const ExactSearch *x, const Node *node, const int *sorted) {
  uint64_t sum = x->salt, squares = 0;
  for (int k = 0; k < node->n; k++) {
    int i = sorted[k];
    int64_t o = 2 * x->low[i];
    if (x->low[i] <= node->offset)
      o = 2 * node->offset + (x->low[i] < node->offset || x->rank[i] < node->rank);
    uint64_t h = mix(x->code[i], (uint64_t)o);
    sum += h;
    squares += h * h;
  }
  uint64_t check = mix(sum, (uint64_t)node->part.from);
  return (StateKey){.slot = mix(squares, sum) >> (64 - TABLE_BITS), .check = check + !check};
}

/* Places buffer i at its low offset and raises its neighbours. True when something unplaced lies
 * above it. */
static bool put(ExactSearch *x, int i, bool *cut) {
  const PlaceInst *in = x->in;
  int64_t top = x->low[i] + in->size[i];
  bool covered = false;
  x->offset[i] = x->low[i];
  for (int q = 0; q < x->graph->nmeets[i]; q++) {
    int j = x->graph->meets[i][q];
    if (x->offset[j] >= 0) continue;
    covered = true;
    if (x->low[j] < top) {
      x->trail[x->ntrail++] = (Change){j, x->low[j]};
      x->low[j] = top;
    }
  }
  for (int s = in->first[i]; s < in->end[i]; s++) x->unplaced[s] -= in->size[i];
  *cut = false;
  for (int s = in->first[i]; s + 1 < in->end[i]; s++) *cut |= --x->crossing[s] == 0;
  return covered;
}

static void take_out(ExactSearch *x, int i) {
  const PlaceInst *in = x->in;
  for (int s = in->first[i]; s < in->end[i]; s++) x->unplaced[s] += in->size[i];
  for (int s = in->first[i]; s + 1 < in->end[i]; s++) x->crossing[s]++;
  x->offset[i] = -1;
}

/* Searches below the placement of sorted[k], which was just put. Placements stay when a plan is
 * found; else those of parts already solved are taken out again. */
static ExactResult descend(ExactSearch *x, const Node *node, const int *sorted, int k, bool cut) {
  int n = node->n, i = sorted[k];
  if (!cut) {
    int *rest = x->ints + x->nints;
    x->nints += (size_t)n;
    memcpy(rest, sorted, (size_t)k * sizeof *rest);
    memcpy(rest + k, sorted + k + 1, (size_t)(n - k - 1) * sizeof *rest);
    return search(x, &(Node){.buf = rest,
                             .n = n - 1,
                             .part = node->part,
                             .offset = x->offset[i],
                             .rank = x->rank[i],
                             .raised = x->offset[i] + x->in->size[i]});
  }
  int *saved = x->ranks + x->nranks;
  for (int q = 0; q < n; q++) saved[q] = x->rank[sorted[q]];
  x->nranks += (size_t)n;
  ExactResult result = split(x, sorted, n, k, node->part);
  if (result == EXACT_FOUND) return result;
  for (int q = 0; q < n; q++) {
    int j = sorted[q];
    x->rank[j] = saved[q];
    if (q != k && x->offset[j] >= 0) take_out(x, j);
  }
  x->nranks -= (size_t)n;
  return result;
}

/* Tries each buffer that may come next. */
static ExactResult branch(ExactSearch *x, const Node *node, const int *sorted, int64_t deadline) {
  const PlaceInst *in = x->in;
  int64_t lowest_top = PLACE_NOWHERE;
  for (int k = 0; k < node->n && x->low[sorted[k]] < lowest_top; k++) {
    int64_t top = x->low[sorted[k]] + in->size[sorted[k]];
    if (top < lowest_top) lowest_top = top;
  }
  for (int k = 0; k < node->n; k++) {
    int i = sorted[k], twin = x->twin[i];
    int64_t o = x->low[i];
    if (o >= lowest_top || o > deadline) break;
    if (o < node->offset || (o == node->offset && x->rank[i] < node->rank)) continue;
    if (twin >= 0 && x->offset[twin] < 0 && x->rank[twin] < x->rank[i]) continue;
    size_t trail = x->ntrail, ints = x->nints;
    bool cut, covered = put(x, i, &cut);
    ExactResult result = descend(x, node, sorted, k, cut);
    x->nints = ints;
    if (result == EXACT_FOUND) return result;
    while (x->ntrail > trail) {
      x->ntrail--;
      x->low[x->trail[x->ntrail].buffer] = x->trail[x->ntrail].low;
    }
    take_out(x, i);
    if (result == EXACT_LIMIT) return result;
    if (!covered) break; /* nothing could lie above i: its place is not to blame */
  }
  return EXACT_NONE;
}

static ExactResult search(ExactSearch *x, const Node *node) {
  if (node->n == 0) return EXACT_FOUND;
  if (++x->nodes > x->limit) return EXACT_LIMIT;
  /* Offsets only grow, so none may start above the tightest section's room. */
  int64_t deadline = PLACE_NOWHERE;
  for (int s = node->part.from; s < node->part.to; s++)
    if (x->capacity - x->unplaced[s] < deadline) deadline = x->capacity - x->unplaced[s];
  if (deadline < node->offset) return EXACT_NONE;
  size_t ints = x->nints;
  int *sorted = x->ints + x->nints;
  x->nints += (size_t)node->n;
  sort_node(x, node, sorted);
  ExactResult result = EXACT_NONE;
  if (sections_fit(x, node, sorted)) {
    StateKey key = {0};
    if (node->n > 2) key = state_key(x, node, sorted);
    if (!key.check || x->refuted[key.slot] != key.check) {
      result = branch(x, node, sorted, deadline);
      if (result == EXACT_NONE && key.check) x->refuted[key.slot] = key.check;
    }
  }
  x->nints = ints;
  return result;
}

ExactResult exact_run(ExactSearch *x, int order, int64_t capacity, int64_t nodes) {
  const PlaceInst *in = x->in;
  x->keys = order_keys[order];
  x->capacity = capacity;
  x->limit = nodes;
  x->nodes = 0;
  /* Refuted states stay known to later runs of the same order and capacity. */
  x->salt = mix((uint64_t)order + 777, (uint64_t)capacity);
  x->nints = x->nlongs = x->ntrail = x->nranks = 0;
  memset(x->low, 0, (size_t)in->n * sizeof *x->low);
  memset(x->crossing, 0, (size_t)in->nsect * sizeof *x->crossing);
  memcpy(x->unplaced, in->load, (size_t)in->nsect * sizeof *x->unplaced);
  for (int i = 0; i < in->n; i++) {
    x->offset[i] = -1;
    for (int s = in->first[i]; s + 1 < in->end[i]; s++) x->crossing[s]++;
  }
  int *all = arena_array(x->p->arena, int, in->n);
  for (int i = 0; i < in->n; i++) all[i] = i;
  ExactResult result = EXACT_FOUND;
  for (int from = 0, s = 0; s < in->nsect && result == EXACT_FOUND; s++) {
    if (s < in->nsect - 1 && x->crossing[s]) continue;
    Part part = {from, s + 1};
    int count;
    x->nints = 0;
    int *members = push_members(x, all, in->n, -1, part, &count);
    result = search_part(x, part, members, count);
    from = s + 1;
  }
  x->p->work += NODE_NS * x->nodes;
  if (result == EXACT_FOUND) {
    int64_t height = 0;
    for (int i = 0; i < in->n; i++) {
      x->p->offset[i] = x->offset[i];
      if (x->offset[i] + in->size[i] > height) height = x->offset[i] + in->size[i];
    }
    placer_keep(x->p, height, "exact");
  }
  return result;
}
