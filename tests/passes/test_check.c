/* test_check.c - planted faults: each must be found, and named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>
#include "small_plan.h"

static PlanStep *step_of(SmallPlan *s, ValueId v, int nth) {
  int cluster = naive_cluster_of(&s->c, v);
  PlanProgram *p = &s->plan->programs.at[0];
  for (int i = 0; i < p->nsteps; i++)
    if (p->steps[i].cluster == cluster && nth-- == 0) return &p->steps[i];
  fail_msg("no such step");
  return NULL;
}

static void found(SmallPlan *s, const char *word) {
  const char *why = plan_check(s->plan, s->a);
  if (!why) fail_msg("nothing found, expected: %s", word);
  if (!strstr(why, word)) fail_msg("found `%s`, expected: %s", why, word);
  arena_free(s->a);
}

static void overlapping_buffers(void **state) {
  (void)state;
  SmallPlan s = small_plan();
  Storage *in = step_of(&s, s.dk, 0)->in;
  s.plan->bufs.at[in[0].buf].offset = s.plan->bufs.at[in[1].buf].offset;
  found(&s, "overlaps");
}

static void buffer_outside_the_arena(void **state) {
  (void)state;
  SmallPlan s = small_plan();
  s.plan->bufs.at[s.plan->bufs.n - 1].offset = s.plan->arena_bytes;
  found(&s, "outside");
}

static void buffer_in_the_variables(void **state) {
  (void)state;
  SmallPlan s = small_plan();
  s.plan->bufs.at[s.plan->bufs.n - 1].offset = 0;
  found(&s, "outside");
}

static void peak_over_the_budget(void **state) {
  (void)state;
  SmallPlan s = small_plan();
  s.plan->budget_bytes = s.plan->peak_bytes - 1;
  found(&s, "budget");
}

static void access_after_death(void **state) {
  (void)state;
  SmallPlan s = small_plan();
  s.plan->bufs.at[step_of(&s, s.dk, 0)->in[1].buf].last--;
  found(&s, "lives in steps");
}

/* The rebuilt value is not rebuilt: its reader finds the first life gone. */
static void a_rebuild_left_out(void **state) {
  (void)state;
  SmallPlan s = small_plan();
  PlanProgram *p = &s.plan->programs.at[0];
  PlanStep *other = step_of(&s, s.dk, 0);
  p->steps[s.rebuild_step] = *other;
  assert_non_null(plan_check(s.plan, s.a));
  arena_free(s.a);
}

/* Reads a buffer of the right size that holds another value. */
static void a_read_of_another_value(void **state) {
  (void)state;
  SmallPlan s = small_plan();
  PlanStep *x = step_of(&s, s.dk, 0);
  x->in[0] = x->in[1];
  found(&s, "does not hold");
}

static void a_read_at_the_wrong_offset(void **state) {
  (void)state;
  SmallPlan s = small_plan();
  PlanStep *x = step_of(&s, s.k, 0);
  x->in[0].stride[0] = 1;
  x->in[0].stride[1] = 32;
  found(&s, "other addresses");
}

static void an_access_past_the_end(void **state) {
  (void)state;
  SmallPlan s = small_plan();
  step_of(&s, s.k, 0)->in[0].offset = 512;
  found(&s, "touches bytes");
}

/* y written over k although k is read once more. */
static void overwritten_before_its_last_read(void **state) {
  (void)state;
  SmallPlan s = small_plan();
  PlanProgram *p = &s.plan->programs.at[0];
  Storage k = step_of(&s, s.k, 0)->out[0], y = step_of(&s, s.y, 0)->out[0];
  for (int i = 0; i < p->nsteps; i++) {
    const Cluster *c = &p->clusters.at[p->steps[i].cluster];
    for (int j = 0; j < c->nin; j++)
      if (p->steps[i].in[j].buf == y.buf) p->steps[i].in[j].buf = k.buf;
    for (int j = 0; j < c->nout; j++)
      if (p->steps[i].out[j].buf == y.buf) p->steps[i].out[j].buf = k.buf;
  }
  found(&s, "does not hold");
}

/* A GEMM that writes over its own operand. */
static void in_place_where_it_is_not_safe(void **state) {
  (void)state;
  SmallPlan s = small_plan();
  PlanProgram *p = &s.plan->programs.at[0];
  int gemm = naive_cluster_of(&s.c, s.product), loop = naive_cluster_of(&s.c, s.h);
  PlanStep *x = step_of(&s, s.h, 0);
  assert_true(gemm >= 0 && loop >= 0);
  /* As a contraction the same step may not lie over its input. */
  assert_int_equal(x->out[0].buf, x->in[0].buf);
  p->clusters.at[loop].kind = CL_GEMM;
  found(&s, "while it is read");
}

static void a_variable_assigned_twice(void **state) {
  (void)state;
  SmallPlan s = small_plan();
  PlanProgram *p = &s.plan->programs.at[0];
  PlanStep last = p->steps[p->nsteps - 1];
  PlanStep *more = arena_array(s.a, PlanStep, p->nsteps + 1);
  memcpy(more, p->steps, sizeof last * (size_t)p->nsteps);
  more[p->nsteps] = last;
  for (int i = 0; i < s.plan->bufs.n; i++)
    if (s.plan->bufs.at[i].program == 0 && s.plan->bufs.at[i].last == p->nsteps - 1)
      s.plan->bufs.at[i].last++;
  p->steps = more;
  p->nsteps++;
  found(&s, "w:grad");
}

static void a_cluster_that_never_runs(void **state) {
  (void)state;
  SmallPlan s = small_plan();
  s.plan->programs.at[0].nsteps--;
  for (int i = 0; i < s.plan->bufs.n; i++)
    if (s.plan->bufs.at[i].last >= s.plan->programs.at[0].nsteps)
      s.plan->bufs.at[i].last = s.plan->programs.at[0].nsteps - 1;
  found(&s, "never runs");
}

/* A chain of 100,000 buffers is checked in under a second (bar of the module; the test allows for a
 * loaded machine). */
static void a_hundred_thousand_buffers(void **state) {
  (void)state;
  enum { N = 100000 };
  Arena *a = arena_new();
  Vars *vars = vars_new(a);
  Graph *g = graph_new(a, "micro", vars);
  Shape sh = shape_of(2, (int64_t[]){16, 16});
  ValueId x = g_input(g, "x", DT_F32, sh), y = x;
  ValueId last[8] = {x, x, x, x, x, x, x, x};
  for (int i = 0; i < N; i++) {
    y = g_binary(g, OP_ADD, y, last[i % 8]);
    last[(i + 3) % 8] = y;
  }
  graph_result(g, "y", y);
  Clusters c = naive_clusters(g, a);
  StorageMap m = storage_map(&c, a);
  Job job = {.arena = a, .vars = vars, .model = "chain"};
  Plan p = {.job = &job, .target = target_by_name("cpu"), .budget_bytes = INT64_MAX};
  assemble_variables(&p, a, NULL, NULL);
  int *order = arena_array(a, int, c.n);
  for (int i = 0; i < c.n; i++) order[i] = i;
  for (int i = 0; i < c.n; i++) memset(m.over[i], -1, sizeof(int));
  assemble_program(&p, a, "micro", &m, c.n, order, 0);
  assemble_finish(&p, a);
  clock_t from = clock();
  const char *why = plan_check(&p, a);
  double seconds = (double)(clock() - from) / CLOCKS_PER_SEC;
  if (why) fail_msg("%s", why);
  assert_true(p.bufs.n >= N);
  if (seconds > 3.0) fail_msg("%.2f s", seconds);
  arena_free(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(overlapping_buffers),
      cmocka_unit_test(buffer_outside_the_arena),
      cmocka_unit_test(buffer_in_the_variables),
      cmocka_unit_test(peak_over_the_budget),
      cmocka_unit_test(access_after_death),
      cmocka_unit_test(a_rebuild_left_out),
      cmocka_unit_test(a_read_of_another_value),
      cmocka_unit_test(a_read_at_the_wrong_offset),
      cmocka_unit_test(an_access_past_the_end),
      cmocka_unit_test(overwritten_before_its_last_read),
      cmocka_unit_test(in_place_where_it_is_not_safe),
      cmocka_unit_test(a_variable_assigned_twice),
      cmocka_unit_test(a_cluster_that_never_runs),
      cmocka_unit_test(a_hundred_thousand_buffers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
