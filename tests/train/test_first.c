/* test_first.c - the first micro-batch of a step overwrites the accumulators, which are NaN before it: a step has the bits of one
 * that adds every micro-batch to zeros. Tied and frozen weights, one without a gradient, bf16 accumulators, variables on the host
 * with copies early and late. CPU target, poisoned. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "tests/support/session.h"

enum { STEPS = 3, SAMPLES = 8, T = 32, V = 64 };
#define MODEL MTC_SOURCE_DIR "/tests/train/models/first.mt"

static const char *const f32[] = {NULL};
static const char *const narrow[] = {"precision.compute=bf16", "precision.master=f32",
                                     "precision.accum=bf16", NULL};

typedef struct {
  float loss[STEPS];
  uint64_t state; /* hash of every parameter, master and moment */
  bool host;      /* some accumulator lives there */
} Outcome;

static void batch(int32_t *tokens, int32_t *targets, int step) {
  session_tokens(tokens, SAMPLES * T, V, 7 + (uint64_t)step);
  session_tokens(targets, SAMPLES * T, V, 1000 + (uint64_t)step);
  for (int i = 0; i < SAMPLES; i++) /* unequal numbers of valid tokens */
    for (int t = T - 3 * i; t < T; t++) targets[i * T + t] = -1;
}

/* Where not `first`, a step adds to zeros. */
static Outcome train(const char *const *settings, const PlanArgs *args, CopyTimes when,
                     bool first) {
  Session s;
  session_open(&s, MODEL, NULL, settings, args, &(DeviceOptions){.poison = true, .copies = when});
  session_weights(&s);
  Outcome o = {.host = session_host_roles(&s) & 1u << PV_ACCUM};
  ProgramPhase adds = *s.phase;
  adds.first = -1;
  if (!first) s.phase = &adds;
  int32_t tokens[SAMPLES * T], targets[SAMPLES * T];
  for (int step = 0; step < STEPS; step++) {
    batch(tokens, targets, step);
    session_step_from(&s, tokens, targets, step, 1e-2f, true, first ? 0xff : 0);
    o.loss[step] = session_f32(&s, "metric.loss");
    assert_true(isfinite(o.loss[step]));
    assert_true(session_f32(&s, "metric.skipped") == 0);
  }
  o.state = session_state(&s);
  session_close(&s);
  return o;
}

static void expect_same(const Outcome *a, const Outcome *b, const char *what) {
  for (int i = 0; i < STEPS; i++)
    if (memcmp(&a->loss[i], &b->loss[i], sizeof a->loss[i]) != 0)
      fail_msg("%s: loss of step %d is %.9g, not %.9g", what, i, b->loss[i], a->loss[i]);
  if (a->state != b->state) fail_msg("%s: weights or states differ", what);
}

static void adds_to_zeros(const char *const *settings) {
  PlanArgs args = session_plan_args();
  args.micro_batch = 2;
  args.chunks = args.mlp_chunks = 1;
  Outcome zeros = train(settings, &args, COPIES_SOON, false);
  Outcome device = train(settings, &args, COPIES_SOON, true);
  expect_same(&zeros, &device, "on the device");
  assert_false(device.host);

  args.host_bytes = INT64_MAX;
  Arena *a = arena_new();
  args.budget_bytes = plan_fit(session_job(a, MODEL, NULL, settings), a, &args).floor_bytes;
  arena_free(a);
  for (int late = 0; late < 2; late++) {
    Outcome host = train(settings, &args, late ? COPIES_LATE : COPIES_SOON, true);
    assert_true(host.host);
    expect_same(&zeros, &host, late ? "on the host, copied late" : "on the host, copied early");
  }
}

static void in_f32(void **state) {
  (void)state;
  adds_to_zeros(f32);
}
static void in_bf16_accumulators(void **state) {
  (void)state;
  adds_to_zeros(narrow);
}

/* One micro-batch: its program overwrites. */
static void one_micro_batch(void **state) {
  (void)state;
  PlanArgs args = session_plan_args();
  args.micro_batch = SAMPLES;
  args.chunks = args.mlp_chunks = 1;
  Outcome nan = train(f32, &args, COPIES_SOON, true), zeros = train(f32, &args, COPIES_SOON, false);
  expect_same(&zeros, &nan, "one micro-batch");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(in_f32),
                                     cmocka_unit_test(in_bf16_accumulators),
                                     cmocka_unit_test(one_micro_batch)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
