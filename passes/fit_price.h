/* fit_price.h - between the files that price candidates: fit_price.c, fit_saved.c. */
#ifndef MTC_FIT_PRICE_H
#define MTC_FIT_PRICE_H
#include "fit.h"
#include "stage.h"

enum { MICRO_ROOMS = 2 };

/* A program's trace with its copies, for any room. */
typedef struct {
  StageProblem problem;
  int64_t inputs_bytes;
} Staged;

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
  VEC(Bare) best[2]; /* by early squares: what nothing beats before copies count, fastest first */
} Pricing;

/* live has room for the steps and one more, and is filled in. */
Staged fit_staged(const FitPool *f, const Priced *price, const Timeline *time, const HostUses *uses,
                  const HostItems *items, int64_t *live);
Fixed fit_staged_at(const Staged *s, int room);
/* Adds it with each update that is worth it. Times are of the first micro-batch of a step and of another one. */
void fit_add_choice(const Pricing *x, Choice c, int64_t first_ns, int64_t micro_ns, int64_t height);

/* fit_saved.c: candidates whose saved values wait on the host, where those that stand in the pool do not beat them. */
void fit_add_saved(const PhasePool *pool, const Pricing *at, int n);

#endif
