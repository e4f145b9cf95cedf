/* test_sweep.c - a model's plans over many budgets, from the floor up: each keeps within its
 * budget, more memory is never slower, the checker passes each, the floor plans and one granule
 * less does not. All budgets are selections from one pool.
 *
 *   t_bench_sweep          a few budgets of GPT-2 124M
 *   t_bench_sweep --all    64 budgets of each model; bench_sweep.sh runs this
 *
 * The card is an H200 without its limit of memory, so that every model has a range. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>
#include <string.h>
#include <time.h>
#include "passes/check.h"
#include "passes/plan.h"

enum { FEW = 8, MANY = 64 };

typedef struct {
  const char *file, *preset;
  int budgets;
  double bar; /* seconds of one core */
} Sweep;

static const Sweep quick = {"gpt2.mt", NULL, FEW, 5};
static const Sweep all[] = {
    {"gpt2.mt", NULL, MANY, 60},         {"gpt2.mt", "medium", MANY, 60},
    {"gpt2.mt", "large", MANY, 60},      {"gpt2.mt", "xl", MANY, 60},
    {"llama.mt", "llama2_7b", MANY, 60}, {"llama.mt", "llama3_8b", MANY, 60},
};

static double now(void) {
  return (double)clock() / CLOCKS_PER_SEC; /* of this process */
}

/* Denser towards the floor, up to the fastest plan or twice the floor. */
static int64_t budget_at(int i, int n, int64_t floor, int64_t top) {
  double x = (double)i / (n - 1);
  return floor + (int64_t)(x * x * x * (double)(top - floor));
}

static void within(FitPool *pool, int64_t budget, int64_t *last_ns) {
  Arena *a = arena_new();
  FitResult r = fit_within(pool, a, budget);
  assert_non_null(r.plan);
  assert_true(r.plan->peak_bytes <= budget);
  const char *why = plan_check(r.plan, a);
  if (why) fail_msg("%lld bytes: %s", (long long)budget, why);
  for (int i = 0; i < r.plan->phases.n; i++) {
    assert_true(r.plan->phases.at[i].step_ns <= last_ns[i]);
    last_ns[i] = r.plan->phases.at[i].step_ns;
  }
  arena_free(a);
}

static void swept(const Sweep *s) {
  Arena *a = arena_new();
  Diags *d = diags_new(a);
  JobArgs args = {.path = arena_printf(a, "%s/models/%s", MTC_SOURCE_DIR, s->file),
                  .preset = s->preset};
  double from = now();
  Job *job = elaborate(a, d, &args);
  assert_non_null(job);
  Target card = *target_by_name("h200");
  card.usable_bytes = (int64_t)1 << 44;
  PlanArgs p = {.target = &card,
                .budget_bytes = card.usable_bytes,
                .recompute = -1,
                .reserve_bytes = 256 << 20};
  FitPool *pool = fit_pool(job, a, &p);
  FitResult r = fit_within(pool, a, card.usable_bytes);
  double planned = now() - from;
  assert_non_null(r.plan);
  int64_t floor = r.floor_bytes, top = r.plan->peak_bytes;
  if (top > 2 * floor) top = 2 * floor;
  int64_t *ns = arena_array(a, int64_t, job->phases.n + 1);
  for (int i = 0; i < job->phases.n; i++) ns[i] = INT64_MAX;
  for (int i = 0; i < s->budgets; i++) within(pool, budget_at(i, s->budgets, floor, top), ns);
  assert_null(fit_within(pool, a, floor - card.granule_bytes).plan);
  double seconds = now() - from;
  printf(
      "%-9s %-10s %9.3f GiB .. %9.3f GiB   first plan %5.2f s   %2d budgets %6.2f s (bar %.0f)\n",
      s->file, s->preset ? s->preset : "", (double)floor / (1 << 30), (double)top / (1 << 30),
      planned, s->budgets, seconds, s->bar);
  fflush(stdout);
  arena_free(a);
#ifdef __OPTIMIZE__
  if (seconds > 2 * s->bar) fail_msg("%.2f s", seconds);
#endif
}

static void few(void **state) {
  (void)state;
  swept(&quick);
}
static void many(void **state) {
  (void)state;
  for (int i = 0; i < COUNT_OF(all); i++) swept(&all[i]);
}

int main(int argc, char **argv) {
  const struct CMUnitTest quick_test[] = {cmocka_unit_test(few)};
  const struct CMUnitTest all_tests[] = {cmocka_unit_test(many)};
  if (argc > 1 && !strcmp(argv[1], "--all")) return cmocka_run_group_tests(all_tests, NULL, NULL);
  return cmocka_run_group_tests(quick_test, NULL, NULL);
}
