/* test_fit.c - the outer search on a small model: what a budget selects, what is forced, phases,
 * determinism. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "passes/plan.h"

static Job *char_job(Arena *a, const char *setting, const char *value) {
  Diags *d = diags_new(a);
  JobArgs args = {.path = MTC_SOURCE_DIR "/models/char.mt"};
  if (setting) vec_push(a, &args.settings, ((Override){setting, value}));
  Job *job = elaborate(a, d, &args);
  if (!job || d->errors) diag_render(d, stderr, false);
  assert_non_null(job);
  return job;
}

static PlanArgs on_cpu(int64_t budget) {
  return (PlanArgs){
      .target = target_by_name("cpu"), .budget_bytes = budget, .recompute = -1, .check = true};
}

static void the_floor_is_the_edge(void **state) {
  (void)state;
  Arena *a = arena_new();
  Job *job = char_job(a, NULL, NULL);
  PlanArgs args = on_cpu(1);
  FitResult none = plan_fit(job, a, &args);
  assert_null(none.plan);
  assert_true(none.floor_bytes > 0);
  assert_int_equal(none.floor_bytes % args.target->granule_bytes, 0);
  assert_int_equal(none.floor_persistent + none.floor_transient, none.floor_bytes);
  args.budget_bytes = none.floor_bytes;
  FitResult at = plan_fit(job, a, &args);
  assert_non_null(at.plan);
  assert_true(at.plan->peak_bytes <= args.budget_bytes);
  args.budget_bytes -= args.target->granule_bytes;
  assert_null(plan_fit(job, a, &args).plan);
  arena_free(a);
}

/* A long sequence of one sample: what MLPs hold inside is a large part of the floor, and chunks lower it. */
static void mlps_in_chunks_lower_the_floor(void **state) {
  (void)state;
  Arena *a = arena_new();
  JobArgs sized = {.path = MTC_SOURCE_DIR "/tests/train/models/llama.mt"};
  vec_push(a, &sized.settings, ((Override){"train.batch", "seqs(1)"}));
  vec_push(a, &sized.dims, ((Override){"T", "2048"}));
  Job *job = elaborate(a, diags_new(a), &sized);
  assert_non_null(job);
  PlanArgs args = on_cpu(1);
  FitResult free = plan_fit(job, a, &args);
  args.mlp_chunks = 1;
  FitResult whole = plan_fit(job, a, &args);
  assert_true(free.floor_bytes < whole.floor_bytes);
  args.mlp_chunks = 0;
  args.budget_bytes = free.floor_bytes;
  FitResult at = plan_fit(job, a, &args);
  assert_non_null(at.plan);
  assert_true(at.plan->phases.at[0].mlp_chunks > 1);
  for (int i = 0; i < 8; i++) { /* with more choices never slower */
    args.budget_bytes = whole.floor_bytes + (int64_t)i * (whole.floor_bytes / 16);
    args.mlp_chunks = 1;
    int64_t ns = plan_fit(job, a, &args).plan->phases.at[0].step_ns;
    args.mlp_chunks = 0;
    assert_true(plan_fit(job, a, &args).plan->phases.at[0].step_ns <= ns);
  }
  arena_free(a);
}

/* Each point of the frontier is what its own budget selects. */
static void the_frontier_reproduces(void **state) {
  (void)state;
  Arena *a = arena_new();
  Job *job = char_job(a, NULL, NULL);
  PlanArgs args = on_cpu(INT64_MAX);
  FitPool *pool = fit_pool(job, a, &args);
  FitResult r = fit_within(pool, a, INT64_MAX);
  assert_true(r.frontier.n > 3);
  for (int i = 0; i < r.frontier.n; i++) {
    const Candidate *c = &r.frontier.at[i];
    if (i > 0) assert_true(c->peak_bytes > c[-1].peak_bytes && c->step_ns < c[-1].step_ns);
    FitResult x = fit_within(pool, a, c->peak_bytes);
    assert_non_null(x.plan);
    assert_int_equal(x.plan->phases.at[0].step_ns, c->step_ns);
    assert_int_equal(x.plan->phases.at[0].micro_batch, c->micro_batch);
  }
  arena_free(a);
}

static void equal_questions_have_equal_answers(void **state) {
  (void)state;
  uint64_t id[2];
  for (int i = 0; i < 2; i++) {
    Arena *a = arena_new();
    PlanArgs args = on_cpu(24 << 20);
    FitResult r = plan_fit(char_job(a, NULL, NULL), a, &args);
    assert_non_null(r.plan);
    id[i] = r.plan->id;
    arena_free(a);
  }
  assert_true(id[0] == id[1]);
}

/* No cluster runs more than twice, some do, and the time is that of one forward more at most. */
static void full_rebuilds_each_layer_once(void **state) {
  (void)state;
  Arena *a = arena_new();
  Job *job = char_job(a, NULL, NULL);
  PlanArgs args = on_cpu(INT64_MAX);
  args.micro_batch = 4;
  args.chunks = 1;
  args.recompute = RC_NONE;
  FitResult none = plan_fit(job, a, &args);
  args.recompute = RC_FULL;
  FitResult full = plan_fit(job, a, &args);
  const PlanProgram *p = &full.plan->programs.at[full.plan->phases.at[0].programs[PROG_MICRO]];
  int *runs = arena_array(a, int, p->clusters.n), again = 0;
  for (int s = 0; s < p->nsteps; s++) {
    int n = ++runs[p->steps[s].cluster];
    assert_true(n <= 2);
    assert_int_equal(p->steps[s].recomputed, n == 2);
    again += n == 2;
  }
  assert_true(again > 0);
  assert_true(full.plan->peak_bytes < none.plan->peak_bytes);
  int64_t fast = none.plan->phases.at[0].step_ns, slow = full.plan->phases.at[0].step_ns;
  assert_true(slow > fast && slow < fast + fast / 2);
  args.recompute = RC_AUTO;
  FitResult best = plan_fit(job, a, &args);
  assert_true(best.floor_bytes < full.floor_bytes);
  args.budget_bytes = full.plan->peak_bytes;
  best = plan_fit(job, a, &args);
  assert_true(best.plan->phases.at[0].step_ns <= slow);
  arena_free(a);
}

/* Small budgets are slow, but not absurdly so. */
static void the_floor_is_of_use(void **state) {
  (void)state;
  Arena *a = arena_new();
  Diags *d = diags_new(a);
  JobArgs job = {.path = MTC_SOURCE_DIR "/models/gpt2.mt"};
  PlanArgs args = {.target = target_by_name("h200"), .budget_bytes = 1, .recompute = -1};
  FitResult r = plan_fit(elaborate(a, d, &job), a, &args);
  assert_null(r.plan);
  assert_true(r.frontier.at[0].step_ns < 8 * vec_last(&r.frontier).step_ns);
  for (int i = 0; i < r.frontier.n; i++)
    if (r.frontier.at[i].peak_bytes > r.floor_bytes + r.floor_bytes / 20)
      assert_true(r.frontier.at[i].step_ns < 2 * vec_last(&r.frontier).step_ns);
  arena_free(a);
}

static void what_is_forced_is_done(void **state) {
  (void)state;
  Arena *a = arena_new();
  Job *job = char_job(a, NULL, NULL);
  PlanArgs args = on_cpu(INT64_MAX);
  args.micro_batch = 3;
  args.chunks = 4;
  args.recompute = RC_FULL;
  FitResult r = plan_fit(job, a, &args);
  assert_non_null(r.plan);
  const PlanPhase *ph = &r.plan->phases.at[0];
  assert_int_equal(ph->micro_batch, 3);
  assert_int_equal(ph->accumulation, phase_samples(job, 0) / 3);
  assert_int_equal(ph->chunks, 4);
  assert_int_equal(ph->recompute, RC_FULL);
  assert_true(ph->recompute_ns > 0);
  args.recompute = RC_NONE;
  FitResult plain = plan_fit(job, a, &args);
  assert_int_equal(plain.plan->phases.at[0].recompute_ns, 0);
  assert_true(plain.plan->peak_bytes > r.plan->peak_bytes);
  assert_true(plain.plan->phases.at[0].step_ns < ph->step_ns);
  arena_free(a);
}

static void recompute_of_the_model_is_obeyed(void **state) {
  (void)state;
  Arena *a = arena_new();
  PlanArgs args = on_cpu(INT64_MAX);
  args.micro_batch = 12;
  Job *none = char_job(a, "memory.recompute", "none"),
      *full = char_job(a, "memory.recompute", "full");
  FitResult r = plan_fit(none, a, &args);
  assert_int_equal(r.plan->phases.at[0].recompute, RC_NONE);
  r = plan_fit(full, a, &args);
  assert_int_equal(r.plan->phases.at[0].recompute, RC_FULL);
  arena_free(a);
}

static void reserve_and_context_are_inside_the_budget(void **state) {
  (void)state;
  Arena *a = arena_new();
  Job *job = char_job(a, NULL, NULL);
  PlanArgs args = on_cpu(INT64_MAX);
  args.target = target_by_name("rtx3090");
  FitResult r = plan_fit(job, a, &args);
  assert_non_null(r.plan);
  assert_true(r.plan->peak_bytes >= r.plan->arena_bytes + args.target->overhead_bytes);
  assert_int_equal(r.plan->budget_bytes, args.target->usable_bytes);
  int64_t floor = r.floor_bytes;
  args.reserve_bytes = 64 << 20;
  r = plan_fit(job, a, &args);
  assert_int_equal(r.floor_bytes, floor + (64 << 20));
  arena_free(a);
}

/* Two phases of different length: the budget holds in both, and the longer one decides. */
static void the_budget_holds_in_every_phase(void **state) {
  (void)state;
  Arena *a = arena_new();
  Diags *d = diags_new(a);
  JobArgs args = {.path = MTC_SOURCE_DIR "/models/llama.mt"};
  const char *dims[][2] = {{"D", "64"}, {"H", "4"},  {"KV", "2"},
                           {"L", "2"},  {"F", "96"}, {"V", "256"}};
  for (int i = 0; i < COUNT_OF(dims); i++)
    vec_push(a, &args.dims, ((Override){dims[i][0], dims[i][1]}));
  Job *job = elaborate(a, d, &args);
  if (!job) diag_render(d, stderr, false);
  assert_non_null(job);
  assert_int_equal(job->phases.n, 2);
  PlanArgs p = on_cpu(1);
  int64_t floor = plan_fit(job, a, &p).floor_bytes;
  p.budget_bytes = floor + floor / 8;
  FitResult r = plan_fit(job, a, &p);
  assert_non_null(r.plan);
  assert_int_equal(r.plan->phases.n, 2);
  for (int i = 0; i < 2; i++) {
    assert_true(r.plan->phases.at[i].peak_bytes <= p.budget_bytes);
    assert_true(r.plan->phases.at[i].programs[PROG_MICRO] >= 0 &&
                r.plan->phases.at[i].programs[PROG_UPDATE] >= 0);
  }
  assert_int_equal(r.plan->peak_bytes, r.plan->phases.at[r.phase].peak_bytes);
  arena_free(a);
}

static void hopeless_budgets_are_answered_at_once(void **state) {
  (void)state;
  Arena *a = arena_new();
  PlanArgs args = on_cpu(1 << 20);
  args.only_if_it_can = true;
  FitResult r = plan_fit(char_job(a, NULL, NULL), a, &args);
  assert_null(r.plan);
  assert_int_equal(r.frontier.n, 0);
  arena_free(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_floor_is_the_edge),
      cmocka_unit_test(mlps_in_chunks_lower_the_floor),
      cmocka_unit_test(the_frontier_reproduces),
      cmocka_unit_test(equal_questions_have_equal_answers),
      cmocka_unit_test(full_rebuilds_each_layer_once),
      cmocka_unit_test(the_floor_is_of_use),
      cmocka_unit_test(what_is_forced_is_done),
      cmocka_unit_test(recompute_of_the_model_is_obeyed),
      cmocka_unit_test(reserve_and_context_are_inside_the_budget),
      cmocka_unit_test(the_budget_holds_in_every_phase),
      cmocka_unit_test(hopeless_budgets_are_answered_at_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
