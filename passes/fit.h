/* fit.h - between the files of the outer search: families of programs, their traces, and the pool
 * of candidates.
 *
 * A family is the programs of one training phase with one number of chunks, for a range of
 * micro-batches: built at two of them, everything is linear between and beyond (shapes are), so
 * that a micro-batch costs arithmetic and no graph. */
#ifndef MTC_FIT_H
#define MTC_FIT_H
#include "cost.h"
#include "timeline.h"

/* One program at one micro-batch. */
typedef struct {
  Clusters clusters;
  StorageMap map;
  KernelCost *cost;     /* per cluster */
  int64_t inputs_bytes; /* aligned */
} Built;

typedef struct {
  int n;
  const int *order; /* cluster ids */
  Timeline time;
} Trace;

typedef struct {
  int phase, chunks;
  bool apart;          /* kernels end at what backward keeps: less is rebuilt, more is launched */
  int64_t at_a, at_b;  /* micro-batches that were built; equal when there is one */
  int64_t least, most; /* micro-batches that it stands for */
  const Built *micro[2];
  VEC(Trace) traces;      /* the first rebuilds nothing */
  int full;               /* the one that rebuilds each layer once, 0 when there is none */
  struct FitSolve *solve; /* under way */
} Family;

/* A program of a phase that does not depend on the micro-batch. */
typedef struct {
  int64_t bytes, ns; /* transient bytes as placed, time */
} Fixed;

/* Sizes and times of one program of a family at one micro-batch. */
typedef struct {
  int64_t *unit_bytes; /* aligned */
  int64_t *workspace;  /* per cluster, aligned */
  int64_t *ns;         /* per cluster */
  int64_t inputs_bytes;
} Priced;

typedef struct {
  const Job *job;
  const Target *target;
  Arena *arena;
  int recompute; /* RecomputeMode */
} FitContext;

/* ---- fit_family.c ---- */
/* Leaves g as it is. */
Built fit_build(const FitContext *x, const Graph *g, bool apart, Arena *a);
/* Same clusters, units and in-place chances: a trace of one is a trace of the other. */
bool fit_same_structure(const Built *a, const Built *b);
/* The families of a phase for micro-batches batch[0..n) (ascending) and this many chunks, joined
 * ones first, then those apart; false when a graph cannot be planned, which the job's diagnostics
 * tell. first is a graph that was built for
 * batch[0] already, or NULL. */
typedef VEC(Family) FamilyList;
bool fit_families(const FitContext *x, int phase, int chunks, const int64_t *batch, int n,
                  const Graph *first, FamilyList *out);
/* Finds what can be rebuilt at the smallest micro-batch, in a thread of its own from begin on, and
 * adds the traces that are new at the end. An end without a begin does nothing. */
void fit_solve_begin(const FitContext *x, Family *f);
void fit_solve_end(const FitContext *x, Family *f);
/* Adds the traces of another family of the same fusion, clusters matched by name and occurrence,
 * where they can run.
 * Any trace whose inputs were made before is right; what it is worth is priced like any other. */
void fit_translate(const FitContext *x, const Family *from, Family *to);
Priced fit_price(const FitContext *x, const Built *const b[2], int64_t at_a, int64_t at_b,
                 int64_t at);
/* Transient bytes of a program: inputs and the most that is alive. */
int64_t fit_height(const Priced *p, const Trace *t, int64_t *scratch);

#endif
