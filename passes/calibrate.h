/* calibrate.h - from measured times of commands to a target whose cost model tells them: the
 * launch, and for each class of kernels its speed over the model's. Pure, so that one measurement
 * always gives one target. */
#ifndef MTC_CALIBRATE_H
#define MTC_CALIBRATE_H
#include "../codegen/target_file.h"
#include "cost.h"

typedef struct {
  KernelCost cost;
  double seconds; /* from the start of the command to the start of the next */
} CostSample;

/* base is a row of the table; copy_gbs 0 = not measured. Classes that no sample tells about keep
 * the model's speed. measures: room for KC_COUNT, filled in order of classes. */
Target calibrate(const Target *base, const CostSample *samples, int n, double copy_gbs,
                 TargetMeasure *measures, int *nmeasures, Arena *a);
#endif
