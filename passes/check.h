/* check.h - between the files of the check. */
#ifndef MTC_CHECK_H
#define MTC_CHECK_H
#include "plan.h"

/* Buffers alone: alignment, bounds, no overlap of what lives together, peak = arena + overhead +
 * reserve <= budget. */
const char *check_buffers(const Plan *p, Arena *a);

#endif
