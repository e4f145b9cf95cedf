/* place_impl.h - what the engines of static placement share: the preprocessed instance, the state
 * of a run, and exact integer arithmetic for everything that orders buffers.
 *
 * The time axis is reduced to sections (maximal live sets, in order of time): buffer i covers the
 * sections [first[i], end[i]), and two buffers are alive together iff they share a section. Sizes
 * and offsets are in units of the alignment. No floating point decides anything, so that every
 * machine finds the same plan. */
#ifndef MTC_PLACE_IMPL_H
#define MTC_PLACE_IMPL_H
#include "fixed.h"
#include "place.h"

enum {
  PLACE_EXACT_BUFFERS =
      1024, /* largest instance that the exact search and the ejection chains take */
  PLACE_EXACT_SECTIONS = 512
};
#define PLACE_NOWHERE ((int64_t)1 << 62) /* above every offset */

typedef struct {
  int n, nsect;
  int64_t *size;
  int64_t *life; /* length of the lifetime in the caller's units of time */
  int *first, *end;
  int64_t *load;  /* per section: sum of the sizes alive */
  int64_t *crowd; /* per buffer: largest load over its sections */
  int64_t bound;  /* largest load */
} PlaceInst;

typedef struct {
  const PlaceInst *in;
  Arena *arena;
  int64_t target;  /* stop as soon as a plan is no higher; >= bound */
  int64_t *offset; /* working plan */
  int64_t *best;   /* lowest plan so far, of height best_height, found by `method` */
  int64_t best_height;
  const char *method;
  int64_t work, limit;   /* nanoseconds of a 2020s core, estimated from operation counts */
  bool refuted, optimal; /* as in PlaceInfo */
  uint64_t rng;
} Placer;

/* Keeps the working plan when it is lower than the best one. */
void placer_keep(Placer *p, int64_t height, const char *method);
static inline bool placer_done(const Placer *p) {
  return p->best_height <= p->target || p->work >= p->limit;
}
static inline uint64_t placer_random(Placer *p) {
  return random_next(&p->rng);
}

/* First fit over a portfolio of orders, each followed by squeaky-wheel passes; any n. */
void place_greedy(Placer *p, int rounds);

/* ---- small instances: the exact search and the ejection chains take turns ---- */
typedef struct {
  int **meets; /* per buffer: buffers alive together with it, ascending */
  int *nmeets;
} PlaceGraph;
PlaceGraph place_graph(const PlaceInst *in, Arena *a);

typedef struct ExactSearch ExactSearch;
typedef enum { EXACT_NONE, EXACT_FOUND, EXACT_LIMIT } ExactResult;
ExactSearch *exact_new(Placer *p, const PlaceGraph *graph);
/* Looks for a plan no higher than `capacity` with rank order `order` (0..EXACT_ORDERS-1) in at most
 * `nodes` nodes. EXACT_NONE: there is none. */
enum { EXACT_ORDERS = 6 };
ExactResult exact_run(ExactSearch *x, int order, int64_t capacity, int64_t nodes);

typedef struct EjectSearch EjectSearch;
EjectSearch *eject_new(Placer *p, const PlaceGraph *graph);
/* Looks for a plan no higher than `capacity` in at most `steps` steps, from nothing or from the
 * best plan. */
enum { EJECT_SETTINGS = 4 };
bool eject_run(EjectSearch *e, int setting, int64_t capacity, int64_t steps, bool from_best);

#endif
