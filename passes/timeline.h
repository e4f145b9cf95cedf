/* timeline.h - a trace of clusters as instances of units: what is alive at each step, for any sizes
 * of the units. */
#ifndef MTC_TIMELINE_H
#define MTC_TIMELINE_H
#include "storage.h"

/* One life of a unit. */
typedef struct {
  int unit;
  int first, last; /* steps, inclusive */
  bool rebuilt;
  int takes; /* earlier instance whose buffer it takes over, -1 none */
} Instance;

typedef struct {
  int nsteps;
  const int *trace; /* cluster of each step */
  bool *again;      /* per step: a rebuild */
  int n;
  Instance *at;
  int **in, **out; /* per step and operand: instance, or -1 for variables and inputs; NULL when not
                      asked for */
  int *end;        /* per unit: instance that holds it at the end, -1 none */
} Timeline;

/* Follows the trace. bug() when a step reads what is not there. operands: fill in and out. */
Timeline timeline_run(const StorageMap *m, Arena *a, int nsteps, const int *trace, bool operands);

/* Bytes alive at each step, inputs not counted: unit_bytes are aligned sizes, workspace is by cluster. live has room for
 * one step more. */
void timeline_live(const Timeline *t, const int64_t *unit_bytes, const int64_t *workspace, int64_t *live);

/* Most bytes alive at one step, and that step: unit_bytes are aligned sizes, workspace is by
 * cluster. Inputs are not counted. */
int64_t timeline_peak(const Timeline *t, const int64_t *unit_bytes, const int64_t *workspace,
                      int64_t *scratch, int *step);

#endif
