/* fit_price.h - between the files that price candidates: fit_price.c, fit_saved.c. */
#ifndef MTC_FIT_PRICE_H
#define MTC_FIT_PRICE_H
#include "fit.h"
#include "stage.h"

enum { MICRO_ROOMS = 2 };

/* A trace at one micro-batch, before copies. */
typedef struct {
  const Family *family;
  int trace;
  int64_t first_ns, ns, height; /* in the first micro-batch of a step, in another one */
} Bare;

/* The candidates of one micro-batch, in the making. */
typedef struct {
  const FitPool *f;
  PhasePool *pool;
  Arena *arena;
  int64_t at, steps; /* micro-batch, micro-batches in a step */
  Priced *price;     /* per family */
  VEC(Bare) best[MICRO_KINDS]; /* what nothing beats before copies count, fastest first */
} Pricing;

/* A trace with its copies, for any room. live has room for the steps and one more, and is filled in. */
StageProblem fit_staged(const FitPool *f, const Priced *price, const Timeline *time,
                        const HostUses *uses, const HostItems *items, int64_t *live);
Fixed fit_staged_at(const StageProblem *s, int room);

/* The micro-batch is the first and the last of its step. */
static inline bool fit_alone(const Pricing *x) {
  return x->steps == 1;
}
/* Time of a micro-batch before copies: of the only one, else of one that is not the first. */
static inline int64_t fit_bare_ns(const Pricing *x, const Bare *b) {
  return fit_alone(x) ? b->first_ns : b->ns;
}
static inline Choice fit_choice(const Pricing *x, const Bare *b, int res) {
  return (Choice){
      .family = b->family, .micro_batch = x->at, .trace = b->trace, .res = res, .peak = -1};
}
/* Time of a step whose micro-batches take micro_ns with their copies, but for the first of several, which saves what it
 * saves before copies. */
int64_t fit_step_ns(const Pricing *x, const Bare *b, int64_t micro_ns, const Fixed *update);
/* Adds it with each update that is worth it. */
void fit_add_choice(const Pricing *x, Choice c, const Bare *b, int64_t micro_ns, int64_t height);

/* fit_saved.c: candidates whose saved values wait on the host, where those that stand in the pool do not beat them. */
void fit_add_saved(const PhasePool *pool, const Pricing *at, int n);

#endif
