/* check.h - between the files of the check. */
#ifndef MTC_CHECK_H
#define MTC_CHECK_H
#include "plan.h"

/* Buffers alone: alignment, bounds of both arenas, no overlap of what lives together, peak = arena + overhead +
 * reserve <= budget. */
const char *check_buffers(const Plan *p, Arena *a);

/* ---- check_copies.c: what host variables and their stages hold, along one program ---- */
typedef struct {
  const Plan *p;
  int program;
  bool fresh;     /* accumulators hold nothing when it begins */
  int begun;      /* copies of the program before this one have begun */
  int *holds;     /* per buffer: assigns of its variable that its content has, or -1 */
  int *under_way; /* per buffer: copies into it */
  int *leaving;   /* per buffer: copies out of it */
  int *carries;   /* per copy: assigns that it carries */
} Copying;
Copying copying_begin(const Plan *p, int program, bool fresh, Arena *a);
/* What ends and begins before a step (nsteps: after the last). These answer NULL or a fault. */
const char *copying_boundary(Copying *x, int step, Arena *a);
/* A step reads a stage whose variable was assigned so often; writes one, which then has so many assigns. */
const char *copying_read(const Copying *x, int buf, int assigned, Arena *a);
const char *copying_write(Copying *x, int buf, int assigned, Arena *a);
/* After the program: assigned is per variable. */
const char *copying_end(const Copying *x, const int *assigned, Arena *a);

#endif
