/* test_plan_speed.c - time to plan, on one core: GPT-2 124M < 0.5 s, Llama-2-7B < 2 s, fitting and
 * not. Prints what it took and fails at twice the bar, so that a busy machine does not. Only
 * optimised builds count: elsewhere it is skipped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>
#include <time.h>
#include "passes/plan.h"

static void planned_in(const char *file, const char *preset, const char *target, int64_t gib,
                       bool fits, double bar) {
  Arena *a = arena_new();
  Diags *d = diags_new(a);
  JobArgs args = {.path = arena_printf(a, "%s/models/%s", MTC_SOURCE_DIR, file), .preset = preset};
  clock_t from = clock(); /* processor time of this process */
  Job *job = elaborate(a, d, &args);
  assert_non_null(job);
  PlanArgs p = {.target = target_by_name(target),
                .budget_bytes = gib << 30,
                .recompute = -1,
                .reserve_bytes = 256 << 20};
  FitResult r = plan_fit(job, a, &p);
  double seconds = (double)(clock() - from) / CLOCKS_PER_SEC;
  printf("%s%s%s in %lld GiB: %.2f s (bar %.1f s)\n", file, preset ? " " : "", preset ? preset : "",
         (long long)gib, seconds, bar);
  assert_true((r.plan != NULL) == fits);
  arena_free(a);
  if (seconds > 2 * bar) fail_msg("%.2f s", seconds);
}

static void gpt2_small(void **state) {
  (void)state;
  planned_in("gpt2.mt", NULL, "rtx4090", 24, true, 0.5);
}
static void llama2_7b(void **state) {
  (void)state;
  planned_in("llama.mt", "llama2_7b", "h200", 139, true, 2.0);
  planned_in("llama.mt", "llama2_7b", "h200", 80, false, 2.0);
}

int main(void) {
#ifndef __OPTIMIZE__
  return 77;
#endif
  const struct CMUnitTest tests[] = {cmocka_unit_test(gpt2_small), cmocka_unit_test(llama2_7b)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
