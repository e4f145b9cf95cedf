/* test_assemble.c - a whole small plan from hand-made clusters: lifetimes, classes, the ledger,
 * inputs and results. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>
#include "small_plan.h"

static void the_plan_is_sound(void **state) {
  (void)state;
  SmallPlan s = small_plan();
  assert_null(plan_check(s.plan, s.a));
  arena_free(s.a);
}

static void the_ledger_adds_up(void **state) {
  (void)state;
  SmallPlan s = small_plan();
  Ledger l = plan_ledger(s.plan);
  int64_t sum = l.gaps + s.plan->overhead_bytes + s.plan->reserve_bytes;
  for (int c = 0; c < BC_COUNT; c++) sum += l.bytes[c];
  assert_int_equal(sum, s.plan->peak_bytes);
  assert_int_equal(l.bytes[BC_WEIGHTS], 64 * 64 * 4);
  assert_int_equal(l.bytes[BC_GRADIENTS], 64 * 64 * 4);
  assert_int_equal(l.bytes[BC_INPUTS], 32 * 64 * 4);
  assert_int_equal(l.program, 0);
  arena_free(s.a);
}

static void placement_reaches_the_bound(void **state) {
  (void)state;
  SmallPlan s = small_plan();
  const PlanProgram *p = &s.plan->programs.at[0];
  assert_true(p->liveness_bytes > 0);
  assert_int_equal(p->transient_bytes, p->liveness_bytes);
  assert_int_equal(s.plan->arena_bytes, round_up(s.plan->persistent_bytes + p->transient_bytes,
                                                 s.plan->target->granule_bytes));
  arena_free(s.a);
}

static void classes_tell_what_a_buffer_is(void **state) {
  (void)state;
  SmallPlan s = small_plan();
  int kept = 0, rebuilt = 0;
  for (int i = 0; i < s.plan->bufs.n; i++) {
    kept += s.plan->bufs.at[i].cls == BC_ACTIVATION;
    rebuilt += s.plan->bufs.at[i].cls == BC_RECOMPUTED && s.plan->bufs.at[i].program == 0;
  }
  assert_true(kept > 0);
  assert_int_equal(rebuilt, 1);
  for (int s2 = 0; s2 < s.plan->programs.at[0].nsteps; s2++)
    assert_int_equal(s.plan->programs.at[0].steps[s2].recomputed,
                     s2 == s.rebuild_step || s2 == s.rebuild_step - 1);
  arena_free(s.a);
}

static void equal_plans_have_equal_ids(void **state) {
  (void)state;
  SmallPlan s = small_plan(), t = small_plan();
  assert_true(s.plan->id == t.plan->id);
  t.plan->bufs.at[t.plan->bufs.n - 1].bytes += 512;
  assemble_finish(t.plan, t.a);
  assert_true(s.plan->id != t.plan->id);
  arena_free(s.a);
  arena_free(t.a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_plan_is_sound),
      cmocka_unit_test(the_ledger_adds_up),
      cmocka_unit_test(placement_reaches_the_bound),
      cmocka_unit_test(classes_tell_what_a_buffer_is),
      cmocka_unit_test(equal_plans_have_equal_ids),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
