/* planned.h - an example model, elaborated and planned, for tests of what is made of a plan. */
#ifndef TEST_PLANNED_H
#define TEST_PLANNED_H
#include <stdlib.h>
#include "passes/plan.h"

/* models/FILE on a target inside a budget; the plan is NULL when nothing fits. Exits when the model has errors: the
 * examples are sound. */
static inline FitResult planned_with(Arena *a, const char *file, const char *target, int64_t budget, int64_t host) {
  Diags *d = diags_new(a);
  JobArgs args = {.path = arena_printf(a, "%s/models/%s", MTC_SOURCE_DIR, file)};
  Job *job = elaborate(a, d, &args);
  if (!job) {
    diag_render(d, stderr, false);
    exit(1);
  }
  PlanArgs p = {.target = target_by_name(target), .budget_bytes = budget, .host_bytes = host, .recompute = -1};
  return plan_fit(job, a, &p);
}

/* Without host memory. */
static inline FitResult planned(Arena *a, const char *file, const char *target, int64_t budget) {
  return planned_with(a, file, target, budget, 0);
}

#endif
