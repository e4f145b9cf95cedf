/* test_host.c - what waits on the host is exact: a small Llama whose moments, masters, gradients, saved values and weights move
 * to the host as the device's budget falls trains to the same bits, whenever the copies are made. CPU target, poisoned. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "tests/support/session.h"

enum { STEPS = 3, SAMPLES = 8, T = 32, V = 128, BUDGETS = 10 };
#define LLAMA MTC_SOURCE_DIR "/tests/train/models/llama.mt"

typedef struct {
  float loss[STEPS];
  uint64_t state; /* hash of every parameter, master and moment */
  int64_t host_bytes, peak_bytes, floor_bytes;
  int64_t saved_bytes; /* on the host from forward to backward */
  unsigned roles; /* that have a variable on the host */
} Outcome;

static Outcome train(const char *const *settings, const PlanArgs *args, const DeviceOptions *options) {
  Session s;
  session_open(&s, LLAMA, NULL, settings, args, options);
  session_weights(&s);
  const Plan *p = s.fit.plan;
  Outcome o = {.host_bytes = p->host_bytes, .peak_bytes = p->peak_bytes, .floor_bytes = s.fit.floor_bytes};
  o.saved_bytes = p->programs.at[p->phases.at[0].programs[PROG_MICRO]].saved_bytes;
  int32_t tokens[SAMPLES * T], targets[SAMPLES * T];
  for (int step = 0; step < STEPS; step++) {
    session_tokens(tokens, SAMPLES * T, V, 7 + (uint64_t)step);
    session_tokens(targets, SAMPLES * T, V, 1000 + (uint64_t)step);
    session_step(&s, tokens, targets, step, 1e-2f, true);
    o.loss[step] = session_f32(&s, "metric.loss");
    assert_true(isfinite(o.loss[step]));
  }
  o.state = session_state(&s);
  o.roles = session_host_roles(&s);
  session_close(&s);
  return o;
}

static void expect_same(const Outcome *a, const Outcome *b, int budget) {
  for (int i = 0; i < STEPS; i++)
    if (memcmp(&a->loss[i], &b->loss[i], sizeof a->loss[i]) != 0)
      fail_msg("budget %d: loss of step %d is %.9g, not %.9g", budget, i, b->loss[i], a->loss[i]);
  if (a->state != b->state) fail_msg("budget %d: weights or states differ", budget);
}

/* From all on the device to as little as there can be. */
static void residency_is_exact(const char *const *settings, unsigned roles) {
  static const CopyTimes when[] = {COPIES_SOON, COPIES_LATE};
  PlanArgs args = session_plan_args();
  args.micro_batch = 4;
  args.chunks = args.mlp_chunks = 1;
  DeviceOptions options = {.poison = true};
  Outcome whole = train(settings, &args, &options);
  assert_int_equal(whole.host_bytes, 0);
  args.host_bytes = INT64_MAX;
  Arena *a = arena_new();
  int64_t floor = plan_fit(session_job(a, LLAMA, NULL, settings), a, &args).floor_bytes;
  arena_free(a);
  assert_true(floor < whole.floor_bytes);
  unsigned seen = 0;
  int saving[COUNT_OF(when)] = {0}; /* budgets with saved values on the host */
  for (int i = 0; i < BUDGETS; i++) {
    args.budget_bytes = floor + (whole.peak_bytes - floor) * i / BUDGETS;
    options.copies = when[i % COUNT_OF(when)];
    Outcome some = train(settings, &args, &options);
    expect_same(&whole, &some, i);
    assert_true(some.peak_bytes <= args.budget_bytes);
    assert_int_equal(some.floor_bytes, floor);
    seen |= some.roles;
    saving[i % COUNT_OF(when)] += some.saved_bytes > 0;
    if (i == 0) assert_int_equal(some.roles, roles);
  }
  assert_int_equal(seen, roles);
  for (int i = 0; i < COUNT_OF(when); i++) assert_true(saving[i] > 0);
}

static void in_f32(void **state) {
  (void)state;
  static const char *const settings[] = {NULL};
  residency_is_exact(settings, 1u << PV_PARAM | 1u << PV_MOMENT | 1u << PV_ACCUM);
}
static void in_bf16(void **state) {
  (void)state;
  static const char *const settings[] = {"precision.compute=bf16", "precision.master=f32", NULL};
  residency_is_exact(settings, 1u << PV_PARAM | 1u << PV_MASTER | 1u << PV_MOMENT | 1u << PV_ACCUM);
}

/* A micro-batch of two, layer by layer with variables on the host, against one after another on the device. */
static void groups_are_exact(void **state) {
  (void)state;
  static const char *const settings[] = {"precision.compute=bf16", "precision.master=f32", NULL};
  PlanArgs args = session_plan_args();
  args.micro_batch = 2;
  args.chunks = args.mlp_chunks = 1;
  DeviceOptions options = {.poison = true, .copies = COPIES_LATE};
  Outcome whole = train(settings, &args, &options);
  args.host_bytes = INT64_MAX;
  args.micro_batch = 4;
  args.group = 2;
  Arena *a = arena_new();
  args.budget_bytes = plan_fit(session_job(a, LLAMA, NULL, settings), a, &args).floor_bytes;
  arena_free(a);
  for (int i = 0; i < 2; i++) {
    Outcome group = train(settings, &args, &options);
    expect_same(&whole, &group, i);
    assert_true(group.roles & 1u << PV_PARAM && group.roles & 1u << PV_ACCUM);
    args.budget_bytes += args.budget_bytes / 8;
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(in_f32), cmocka_unit_test(in_bf16),
                                     cmocka_unit_test(groups_are_exact)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
