/* schedule.h - the learning rate of a step, and steps from epochs. Pure functions of the phase's
 * settings. */
#ifndef MTC_SCHEDULE_H
#define MTC_SCHEDULE_H
#include "program.h"

/* As SchedKind of the job; the compiler asserts that they agree. */
enum { RS_CONSTANT, RS_LINEAR, RS_COSINE, RS_WSD, RS_RSQRT, RS_COUNT };

/* Rate at `step` (from 0) of a phase of `steps` steps. Warm-up rises linearly and reaches the full
 * rate at its last step: lr * (step + 1) / warmup. What follows falls from the full rate at the
 * first step after it towards the final rate at the end of the phase. */
double schedule_lr(const ProgramPhase *p, int64_t steps, int64_t step);

/* Warm-up in steps: a setting below 1 is a share of the phase. */
int64_t schedule_warmup(const ProgramPhase *p, int64_t steps);

/* Steps of the phase when `samples` samples are an epoch: so many that each sample is seen `epochs`
 * times. */
int64_t schedule_steps(const ProgramPhase *p, int64_t samples);

#endif
