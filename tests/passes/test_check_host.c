/* test_check_host.c - the check of host variables: a sound plan passes, each kind of broken copy is found. */
#include "train_case.h"

typedef struct {
  Arena *a;
  Plan *plan;
  PlanProgram *micro, *update;
} Hosted;

/* A small Llama at its floor, where everything that can lives on the host. */
static Hosted hosted(void) {
  Hosted h = {.a = arena_new()};
  PlanArgs args = {.target = target_by_name("cpu"), .recompute = -1, .micro_batch = 4, .chunks = 1, .host_bytes = 1 << 30};
  Override set[] = {{"train.batch", "seqs(8)"}, {"precision.compute", "f32"}};
  Job *job = tiny_job(h.a, "llama", COUNT_OF(set), set);
  FitPool *pool = fit_pool(job, h.a, &args);
  h.plan = fit_within(pool, h.a, fit_within(pool, h.a, 1).floor_bytes).plan;
  assert_non_null(h.plan);
  h.micro = &h.plan->programs.at[h.plan->phases.at[0].programs[PROG_MICRO]];
  h.update = &h.plan->programs.at[h.plan->phases.at[0].programs[PROG_UPDATE]];
  assert_true(h.micro->ncopies > 4 && h.update->ncopies > 4);
  assert_null(plan_check(h.plan, h.a));
  return h;
}

static void expect(Hosted *h, const char *what) {
  const char *why = plan_check(h->plan, h->a);
  if (!why) fail_msg("not found: %s", what);
  if (!strstr(why, what)) fail_msg("found `%s`, not: %s", why, what);
  arena_free(h->a);
}

/* A copy of this direction with steps between its begin and its end; the n-th. */
static int copy_at(const PlanProgram *p, bool to_host, int n) {
  for (int i = 0; i < p->ncopies; i++)
    if (p->copies[i].to_host == to_host && n-- == 0) return i;
  fail_msg("no such copy");
  return 0;
}

static void drop(PlanProgram *p, int i) {
  memmove(&p->copies[i], &p->copies[i + 1], sizeof *p->copies * (size_t)(p->ncopies - i - 1));
  p->ncopies--;
}

static void a_missing_copy_in(void **state) {
  (void)state;
  Hosted h = hosted();
  drop(h.micro, copy_at(h.micro, false, 2));
  expect(&h, "which holds nothing");
}

static void a_missing_copy_out(void **state) {
  (void)state;
  Hosted h = hosted();
  drop(h.update, copy_at(h.update, true, 1));
  expect(&h, "assigns");
}

static void a_copy_in_that_ends_late(void **state) {
  (void)state;
  Hosted h = hosted();
  PlanCopy *c = &h.micro->copies[copy_at(h.micro, false, 1)];
  h.plan->bufs.at[c->stage].last = h.micro->nsteps - 1;
  c->end++;
  expect(&h, "");
}

static void a_copy_out_that_begins_early(void **state) {
  (void)state;
  Hosted h = hosted();
  PlanCopy *c = &h.update->copies[copy_at(h.update, true, 0)];
  c->begin--;
  expect(&h, "");
}

static void a_copy_of_another_variable(void **state) {
  (void)state;
  Hosted h = hosted();
  PlanCopy *c = &h.update->copies[copy_at(h.update, false, 0)];
  c->host = h.update->copies[copy_at(h.update, false, 1)].host;
  expect(&h, "no stage of that variable");
}

static void a_stage_that_dies_under_way(void **state) {
  (void)state;
  Hosted h = hosted();
  int i = copy_at(h.update, true, 0);
  while (h.update->copies[i].end - h.update->copies[i].begin < 2) i++;
  h.plan->bufs.at[h.update->copies[i].stage].last = h.update->copies[i].begin - 1;
  expect(&h, "its stage is not alive");
}

static void a_copy_to_the_device_before_one_to_the_host(void **state) {
  (void)state;
  Hosted h = hosted();
  PlanProgram *p = h.update;
  for (int i = 0; i + 1 < p->ncopies; i++) {
    PlanCopy *c = &p->copies[i];
    if (!c[0].to_host || c[1].to_host || c[0].begin != c[1].begin) continue;
    PlanCopy first = c[0];
    c[0] = c[1];
    c[1] = first;
    expect(&h, "");
    return;
  }
  fail_msg("no two copies begin at one step");
}

static void two_host_variables_in_one_place(void **state) {
  (void)state;
  Hosted h = hosted();
  h.plan->bufs.at[h.update->copies[copy_at(h.update, false, 1)].host].offset =
      h.plan->bufs.at[h.update->copies[copy_at(h.update, false, 0)].host].offset;
  expect(&h, "overlaps another");
}

static void more_than_may_be_pinned(void **state) {
  (void)state;
  Hosted h = hosted();
  h.plan->host_budget_bytes = h.plan->host_bytes - 1;
  expect(&h, "exceeds its budget");
}

static void a_step_on_the_host(void **state) {
  (void)state;
  Hosted h = hosted();
  const PlanCopy *c = &h.update->copies[copy_at(h.update, false, 0)];
  PlanStep *s = &h.update->steps[c->end];
  const Cluster *cl = &h.update->clusters.at[s->cluster];
  for (int k = 0; k < cl->nin; k++)
    if (s->in[k].buf == c->stage) s->in[k].buf = c->host;
  expect(&h, "is on the host");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_missing_copy_in),
      cmocka_unit_test(a_missing_copy_out),
      cmocka_unit_test(a_copy_in_that_ends_late),
      cmocka_unit_test(a_copy_out_that_begins_early),
      cmocka_unit_test(a_copy_of_another_variable),
      cmocka_unit_test(a_stage_that_dies_under_way),
      cmocka_unit_test(a_copy_to_the_device_before_one_to_the_host),
      cmocka_unit_test(two_host_variables_in_one_place),
      cmocka_unit_test(more_than_may_be_pinned),
      cmocka_unit_test(a_step_on_the_host),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
