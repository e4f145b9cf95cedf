/* residency.h - which variables live in pinned host memory, and which nowhere: the choices that the outer search weighs.
 *
 * Variables move in the order of what a moved byte costs: moments and masters are copied once a step, gradients and
 * weights in every micro-batch. Small ones stay on the device. Each choice contains the one before it. Accumulators that no
 * program uses when updates are early (GraphChoice.early_update) are nowhere: the same choices stand once more without them. */
#ifndef MTC_RESIDENCY_H
#define MTC_RESIDENCY_H
#include "../frontend/job.h"

typedef struct {
  const bool *host;                 /* per variable */
  const bool *absent;               /* per variable: of no program; NULL: updates are not early, all variables exist */
  int64_t device_bytes, host_bytes; /* of the two regions of variables, as placed */
  int variables;                    /* on the host */
  bool whole;                       /* no class of variables has moved in part */
  bool micro;                       /* gradients or weights are among them: each micro-batch copies */
} Residency;

typedef struct {
  int n;
  Residency *at;          /* the first holds nothing on the host, unless memory.optimizer = host */
  int64_t least_bytes;    /* host memory that the smallest choice takes: > 0 with memory.optimizer = host */
} Residencies;

/* The choices that pin at most host_bytes; none when the model asks for more. absent: NULL when updates cannot be early;
 * the choices with early updates stand last. */
Residencies residency_list(const Job *job, Arena *a, int64_t host_bytes, const bool *absent);

#endif
