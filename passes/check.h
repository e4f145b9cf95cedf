/* check.h - between the files of the check. */
#ifndef MTC_CHECK_H
#define MTC_CHECK_H
#include "plan.h"

/* Buffers alone: alignment, bounds of both arenas, no overlap of what lives together, peak = arena + overhead +
 * reserve <= budget. */
const char *check_buffers(const Plan *p, Arena *a);

/* ---- check_copies.c: what buffers on the host and their stages hold, along one program ---- */
typedef struct {
  const Plan *p;
  int program;
  bool fresh;  /* accumulators hold nothing when it begins */
  int begun;   /* copies of the program before this one have begun */
  bool *saves; /* per buffer: an end of a copy of a saved value */
  int *
      holds; /* per buffer: of a variable, so many of its assigns; of a saved value, what was written to this buffer; or -1 */
  int *under_way; /* per buffer: copies into it */
  int *leaving;   /* per buffer: copies out of it */
  bool *left;     /* per buffer: a copy out of it has begun */
  int *carries;   /* per copy: what it holds */
} Copying;
Copying copying_begin(const Plan *p, int program, bool fresh, Arena *a);
/* What ends and begins before a step (nsteps: after the last). These answer NULL or a fault. */
const char *copying_boundary(Copying *x, int step, Arena *a);
/* A step reads a stage whose variable was assigned so often; writes one, which then has so many assigns. */
const char *copying_read(const Copying *x, int buf, int assigned, Arena *a);
const char *copying_write(Copying *x, int buf, int assigned, Arena *a);
/* The same for the stages of saved values: the buffer whose writes are found in this one, -1 with a fault; whether it may be
 * written. */
int copying_source(const Copying *x, int buf, Arena *a, const char **why);
const char *copying_make(Copying *x, int buf, Arena *a);
/* After the program: assigned is per variable. */
const char *copying_end(const Copying *x, const int *assigned, Arena *a);

#endif
