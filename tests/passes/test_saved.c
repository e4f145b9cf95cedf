/* test_saved.c - saved values that wait on the host: which may, which parts of them do, the copies of a small program and
 * what the check says of broken ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "passes/report.h"
#include "small_plan.h"

/* The small program without its rebuild: h alone waits, from tanh to its gradient. */
typedef struct {
  SmallPlan s;
  int unit, order[16];
  int64_t *unit_bytes, ns[16];
  Timeline time;
} Small;

static Small small(int64_t step_ns) {
  Small x = {.s = small_plan()};
  Arena *a = x.s.a;
  Clusters *c = arena_copy(a, &x.s.c, sizeof x.s.c);
  x.s.m.clusters = c;
  for (int i = 0; i < c->n; i++) {
    x.order[i] = i;
    x.ns[i] = c->at[i].ns = step_ns;
  }
  x.unit_bytes = arena_array(a, int64_t, x.s.m.nunits + 1);
  for (int u = 0; u < x.s.m.nunits; u++)
    x.unit_bytes[u] = round_up(x.s.m.unit[u].bytes, PLAN_ALIGN);
  x.time = timeline_run(&x.s.m, a, c->n, arena_copy(a, x.order, sizeof x.order), false);
  x.unit = x.s.m.place[x.s.h].unit;
  return x;
}

static SavedSet may_wait(Small *x) {
  return saved_values(&x->s.m, &x->time, x->ns, x->unit_bytes, target_by_name("cpu"), x->s.a);
}

static void what_waits_long_enough(void **state) {
  (void)state;
  Small slow = small(1000000000), fast = small(1);
  SavedSet all = may_wait(&slow);
  assert_int_equal(all.n, 1);
  assert_int_equal(all.unit[0], slow.unit);
  assert_int_equal(all.bytes, slow.unit_bytes[slow.unit]);
  assert_int_equal(may_wait(&fast).n, 0);
  arena_free(slow.s.a);
  arena_free(fast.s.a);
}

static void what_is_rebuilt_does_not_wait(void **state) {
  (void)state;
  Small x = small(1000000000);
  int n = 0, *order = arena_array(x.s.a, int, 16);
  for (int i = 0; i < x.s.c.n; i++) {
    if (i == naive_cluster_of(&x.s.c, x.s.dh)) {
      order[n++] = naive_cluster_of(&x.s.c, x.s.product);
      order[n++] = naive_cluster_of(&x.s.c, x.s.h);
    }
    order[n++] = i;
  }
  x.time = timeline_run(&x.s.m, x.s.a, n, order, false);
  assert_int_equal(may_wait(&x).n, 0);
  arena_free(x.s.a);
}

static void parts_are_spread_and_grow(void **state) {
  (void)state;
  enum { N = 24 };
  Arena *a = arena_new();
  int unit[N];
  int64_t bytes[N];
  SavedSet all = {.n = N, .unit = unit};
  for (int i = 0; i < N; i++) {
    unit[i] = i;
    bytes[i] = PLAN_ALIGN * (i % 3 == 0 ? 4 : 1);
    all.bytes += bytes[i];
  }
  int64_t before = 0;
  for (int part = 1; part <= SAVED_PARTS; part++) {
    SavedSet some = saved_part(&all, part, bytes, a);
    int64_t sum = 0, half = 0;
    for (int i = 0; i < some.n; i++) {
      sum += bytes[some.unit[i]];
      if (some.unit[i] < N / 2) half += bytes[some.unit[i]];
      assert_true(i == 0 || some.unit[i] > some.unit[i - 1]);
    }
    assert_int_equal(some.bytes, sum);
    assert_true(sum > before);
    assert_true(llabs(sum * SAVED_PARTS - all.bytes * part) <= 4 * PLAN_ALIGN * SAVED_PARTS);
    assert_true(llabs(2 * half - sum) <= 8 * PLAN_ALIGN);
    before = sum;
  }
  assert_int_equal(before, all.bytes);
  arena_free(a);
}

static void they_stand_apart(void **state) {
  (void)state;
  Small x = small(1000000000);
  SavedSet all = may_wait(&x);
  Timeline t = saved_apart(&x.time, &all, x.s.m.nunits, x.s.a);
  assert_int_equal(t.n, x.time.n);
  for (int i = 0; i < t.n; i++) {
    bool touches = t.at[i].unit == x.unit ||
                   (x.time.at[i].takes >= 0 && x.time.at[x.time.at[i].takes].unit == x.unit);
    assert_int_equal(t.at[i].takes, touches ? -1 : x.time.at[i].takes);
  }
  arena_free(x.s.a);
}

/* ---- a plan of it ---- */

typedef struct {
  Small x;
  Plan *plan;
  PlanProgram *micro;
} Planned;

static Planned planned(void) {
  Planned p = {.x = small(1000000000)};
  Arena *a = p.x.s.a;
  SavedSet all = may_wait(&p.x);
  p.plan = arena_new_of(a, Plan);
  *p.plan = (Plan){.job = p.x.s.plan->job,
                   .target = target_by_name("cpu"),
                   .budget_bytes = INT64_MAX,
                   .host_budget_bytes = all.bytes};
  assemble_variables(p.plan, a, NULL, NULL);
  assemble_saving(p.plan, a, "micro", &p.x.s.m, p.x.s.c.n,
                  arena_copy(a, p.x.order, sizeof p.x.order), 0, &all);
  assemble_finish(p.plan, a);
  p.micro = &p.plan->programs.at[0];
  return p;
}

static void it_is_copied_out_and_in(void **state) {
  (void)state;
  Planned p = planned();
  int64_t bytes = p.x.unit_bytes[p.x.unit];
  assert_null(plan_check(p.plan, p.x.s.a));
  assert_int_equal(p.micro->ncopies, 2);
  assert_int_equal(p.micro->saved_bytes, bytes);
  assert_int_equal(p.plan->host_bytes, bytes);
  const PlanCopy *out = &p.micro->copies[0], *in = &p.micro->copies[1];
  assert_true(out->to_host && !in->to_host && out->host == in->host && out->stage != in->stage);
  assert_true(out->end <= in->begin);
  assert_int_equal(p.plan->bufs.at[out->host].cls, BC_SAVED);
  Ledger l = plan_ledger(p.plan);
  assert_int_equal(l.host[BC_SAVED], bytes);
  assert_int_equal(l.bytes[BC_SAVED], 0);
  LayerGroups w = plan_waiting(p.plan, 0, p.x.s.a);
  assert_int_equal(w.n, 1);
  assert_int_equal(w.bytes, bytes);
  arena_free(p.x.s.a);
}

static void expect(Planned *p, const char *what) {
  const char *why = plan_check(p->plan, p->x.s.a);
  if (!why) fail_msg("not found: %s", what);
  if (!strstr(why, what)) fail_msg("found `%s`, not: %s", why, what);
  arena_free(p->x.s.a);
}

static void a_missing_copy_is_found(void **state) {
  (void)state;
  Planned p = planned();
  p.micro->ncopies = 1; /* never copied in */
  expect(&p, "does not hold it");
  p = planned();
  p.micro->copies[0] = p.micro->copies[1]; /* never copied out */
  p.micro->ncopies = 1;
  expect(&p, "it carries nothing");
}

static void a_copy_out_before_the_value_is_made_is_found(void **state) {
  (void)state;
  Planned p = planned();
  PlanCopy *c = &p.micro->copies[0];
  c->begin = c->end = p.plan->bufs.at[c->stage].first;
  expect(&p, "");
}

static void a_copy_in_that_ends_late_is_found(void **state) {
  (void)state;
  Planned p = planned();
  PlanCopy *c = &p.micro->copies[1];
  p.plan->bufs.at[c->stage].last = p.micro->nsteps - 1;
  c->end++;
  expect(&p, "");
}

static void a_place_that_is_given_up_is_found(void **state) {
  (void)state;
  Planned p = planned();
  PlanBuf *host = &p.plan->bufs.at[p.micro->copies[0].host];
  host->last = p.micro->copies[1].begin - 2;
  expect(&p, "its place on the host is not its own");
}

static void a_place_outside_the_arena_is_found(void **state) {
  (void)state;
  Planned p = planned();
  p.plan->bufs.at[p.micro->copies[0].host].offset += PLAN_ALIGN;
  expect(&p, "lies outside its part of the arena");
  p = planned();
  p.plan->host_budget_bytes--;
  expect(&p, "the host's arena exceeds its budget");
}

static void another_value_in_the_stage_is_found(void **state) {
  (void)state;
  Planned p = planned();
  /* tanh writes where its operand waited to be copied in. */
  PlanStep *s = &p.micro->steps[naive_cluster_of(&p.x.s.c, p.x.s.k)];
  s->out[0].buf = p.micro->copies[0].stage;
  p.plan->bufs.at[s->out[0].buf].last = p.micro->nsteps - 1;
  expect(&p, "");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_waits_long_enough),
      cmocka_unit_test(what_is_rebuilt_does_not_wait),
      cmocka_unit_test(parts_are_spread_and_grow),
      cmocka_unit_test(they_stand_apart),
      cmocka_unit_test(it_is_copied_out_and_in),
      cmocka_unit_test(a_missing_copy_is_found),
      cmocka_unit_test(a_copy_out_before_the_value_is_made_is_found),
      cmocka_unit_test(a_copy_in_that_ends_late_is_found),
      cmocka_unit_test(a_place_that_is_given_up_is_found),
      cmocka_unit_test(a_place_outside_the_arena_is_found),
      cmocka_unit_test(another_value_in_the_stage_is_found),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
