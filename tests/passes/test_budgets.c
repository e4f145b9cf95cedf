/* test_budgets.c - fifty budgets from the floor to no recompute, at the real shapes of GPT-2 small and of a Llama model:
 * the peak stays inside, more memory is never slower, the floor plans and the floor less one granule does not. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "passes/plan.h"

enum { BUDGETS = 50 };

static Job *job_of(Arena *a, const char *path, const char *preset, const char *dim, const char *value) {
  Diags *d = diags_new(a);
  JobArgs args = {.path = path, .preset = preset};
  if (dim) vec_push(a, &args.dims, ((Override){dim, value}));
  Job *job = elaborate(a, d, &args);
  if (!job) diag_render(d, stderr, false);
  assert_non_null(job);
  return job;
}

/* Of all phases, as they share one choice of what lives on the host. */
static double training_time(const Plan *p) {
  double sum = 0;
  for (int i = 0; i < p->phases.n; i++) {
    int64_t steps = p->job->phases.at[i].steps;
    sum += (double)p->phases.at[i].step_ns * (double)(steps > 0 ? steps : 1);
  }
  return sum;
}

static void sweep(const char *path, const char *preset, const char *dim, const char *value,
                  const char *target, int64_t host_bytes) {
  Arena *a = arena_new();
  Job *job = job_of(a, path, preset, dim, value);
  PlanArgs args = {.target = target_by_name(target), .budget_bytes = INT64_MAX, .recompute = RC_NONE,
                   .check = true, .reserve_bytes = 256 << 20};
  FitResult none = plan_fit(job, a, &args);
  assert_non_null(none.plan);
  int64_t most = none.plan->peak_bytes;
  args.recompute = RC_AUTO;
  args.host_bytes = host_bytes;
  FitPool *pool = fit_pool(job, a, &args);
  int64_t floor = fit_within(pool, a, INT64_MAX).floor_bytes, granule = args.target->granule_bytes;
  assert_true(floor < most);

  double last = INFINITY;
  int64_t pinned = 0;
  for (int i = 0; i <= BUDGETS; i++) {
    int64_t budget = floor + (most - floor) * i / BUDGETS;
    Arena *one = arena_new();
    FitResult r = fit_within(pool, one, budget);
    assert_non_null(r.plan);
    assert_true(r.plan->peak_bytes <= budget);
    assert_int_equal(r.floor_bytes, floor);
    const char *fault = plan_check(r.plan, one);
    if (fault) fail_msg("budget %d: %s", i, fault);
    if (r.plan->host_bytes > pinned) pinned = r.plan->host_bytes;
    double now = training_time(r.plan);
    if (now > last) fail_msg("budget %d is slower than the one before: %.6g > %.6g", i, now, last);
    last = now;
    arena_free(one);
  }
  assert_true((pinned > 0) == (host_bytes > 0) && pinned <= host_bytes);
  /* Asked on their own, both sides of the floor are what the pool says. */
  args.budget_bytes = floor;
  assert_non_null(plan_fit(job, a, &args).plan);
  args.budget_bytes = floor - granule;
  FitResult under = plan_fit(job, a, &args);
  assert_null(under.plan);
  assert_int_equal(under.floor_bytes, floor);
  arena_free(a);
}

static void gpt2_small(void **state) {
  (void)state;
  sweep(MTC_SOURCE_DIR "/models/gpt2.mt", NULL, NULL, NULL, "rtx4090", 0);
}
static void llama_shape(void **state) {
  (void)state;
  sweep(MTC_SOURCE_DIR "/models/llama.mt", NULL, "L", "4", "h200", 0);
}

static void gpt2_with_host_memory(void **state) {
  (void)state;
  sweep(MTC_SOURCE_DIR "/models/gpt2.mt", NULL, NULL, NULL, "rtx4090", (int64_t)64 << 30);
}
static void llama_with_some_host_memory(void **state) {
  (void)state;
  sweep(MTC_SOURCE_DIR "/models/llama.mt", NULL, "L", "4", "h200", (int64_t)12 << 30);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gpt2_small), cmocka_unit_test(llama_shape),
                                     cmocka_unit_test(gpt2_with_host_memory),
                                     cmocka_unit_test(llama_with_some_host_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
