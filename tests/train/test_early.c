/* test_early.c - updates inside the backward pass give the bits that updates after it give: losses, norms, weights and optimizer
 * state, at less memory, for every optimizer and format of state, for tied and for frozen weights, with recompute, on the host.
 *
 * `nonfinite = skip` forces the update after the backward pass; with `stop` the planner is free, and takes the early one when
 * the budget is what that needs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "runtime/variables.h"
#include "tests/support/session.h"

enum { STEPS = 4, SAMPLES = 8, T = 32, V = 128, MOST = 12 };

#define GPT2  MTC_SOURCE_DIR "/tests/train/models/gpt2.mt"
#define LLAMA MTC_SOURCE_DIR "/tests/train/models/llama.mt"

typedef struct {
  float loss[STEPS], norm[STEPS];
  uint64_t state; /* hash of every parameter and what the optimizer keeps */
  int64_t accumulators, persistent, peak, host;
  bool early;
  int rebuilt, copies;
} Outcome;

static int64_t accumulators_of(const Plan *p) {
  int64_t sum = 0;
  for (int i = 0; i < p->bufs.n; i++)
    if (p->bufs.at[i].cls == BC_GRADIENTS && p->bufs.at[i].program < 0) sum += p->bufs.at[i].bytes;
  return sum;
}

static uint64_t hash_state(Session *s) {
  uint64_t h = 0;
  for (int v = 0; v < s->program->nvars; v++) {
    const ProgramVar *var = &s->program->vars[v];
    if (!variable_persists(var)) continue;
    int64_t n;
    void *p = session_read(s, var->path, &n);
    h = hash_bytes(p, (size_t)(n * dtype_bytes(var->at.dtype)), h);
    free(p);
  }
  return h;
}

static Outcome train(const char *model, const char *const *settings, const PlanArgs *args) {
  Session s;
  session_open(&s, model, NULL, settings, args,
               &(DeviceOptions){.poison = true, .copies = COPIES_LATE});
  session_weights(&s);
  const Plan *p = s.fit.plan;
  Outcome o = {.accumulators = accumulators_of(p),
               .persistent = p->persistent_bytes,
               .peak = p->peak_bytes,
               .host = p->host_bytes,
               .copies = p->programs.at[0].ncopies,
               .early = s.phase->update < 0};
  for (int i = 0; i < p->programs.at[0].nsteps; i++)
    o.rebuilt += p->programs.at[0].steps[i].recomputed;
  int32_t tokens[SAMPLES * T], targets[SAMPLES * T];
  for (int step = 0; step < STEPS; step++) {
    session_tokens(tokens, SAMPLES * T, V, 7 + (uint64_t)step);
    session_tokens(targets, SAMPLES * T, V, 1000 + (uint64_t)step);
    session_step(&s, tokens, targets, step, 1e-2f, true);
    o.loss[step] = session_f32(&s, "metric.loss");
    o.norm[step] = session_f32(&s, "metric.grad_norm");
    assert_true(isfinite(o.loss[step]) && o.norm[step] > 0);
  }
  assert_true(o.loss[0] != o.loss[STEPS - 1]);
  o.state = hash_state(&s);
  session_close(&s);
  return o;
}

static void expect_same(const Outcome *a, const Outcome *b, const char *what) {
  for (int i = 0; i < STEPS; i++) {
    if (memcmp(&a->loss[i], &b->loss[i], sizeof a->loss[i]) != 0)
      fail_msg("%s: loss of step %d is %.9g, not %.9g", what, i, b->loss[i], a->loss[i]);
    if (memcmp(&a->norm[i], &b->norm[i], sizeof a->norm[i]) != 0)
      fail_msg("%s: norm of step %d is %.9g, not %.9g", what, i, b->norm[i], a->norm[i]);
  }
  if (a->state != b->state) fail_msg("%s: weights or optimizer state differ", what);
}

/* The settings and one more. */
static const char *const *with(const char **list, const char *const *settings, const char *one) {
  int n = 0;
  while (settings[n]) list[n] = settings[n], n++;
  list[n++] = "train.clip=0";
  list[n++] = one;
  list[n] = NULL;
  return list;
}

static PlanArgs whole_step(int recompute) {
  PlanArgs args = session_plan_args();
  args.micro_batch = SAMPLES;
  args.chunks = args.mlp_chunks = 1;
  args.check = true;
  args.recompute = recompute;
  return args;
}

static int64_t floor_of(const char *model, const char *const *settings, const PlanArgs *args) {
  Arena *a = arena_new();
  FitResult r = plan_fit(session_job(a, model, NULL, settings), a, args);
  int64_t floor = r.floor_bytes;
  arena_free(a);
  return floor;
}

/* At what it needs at least, with as much rebuilt as can be. */
static void early_is_exact(const char *model, const char *const *settings) {
  const char *list[MOST], *what = settings[0] ? settings[0] : model;
  PlanArgs args = whole_step(RC_NONE);
  Outcome after = train(model, with(list, settings, "train.nonfinite=skip"), &args);
  assert_false(after.early);
  with(list, settings, "train.nonfinite=stop");
  args = whole_step(RC_AUTO);
  args.budget_bytes = floor_of(model, list, &args);
  Outcome early = train(model, list, &args);
  if (!early.early) fail_msg("%s: the update is not early", what);
  assert_true(early.rebuilt > 0);
  expect_same(&after, &early, what);
  /* The tied head of GPT-2 is used more than once. */
  if (!strcmp(model, LLAMA)) assert_int_equal(early.accumulators, 0);
  assert_true(early.accumulators < after.accumulators / 4);
  assert_true(early.persistent < after.persistent);
  assert_true(early.peak < after.peak);
}

static void optimizers(void **state) {
  (void)state;
  static const char *const rows[][2] = {
      {NULL},
      {"train.optimizer=sgd(lr = 1e-2, momentum = 0.9, nesterov = true)"},
      {"train.optimizer=adafactor(lr = 1e-2)"},
      {"train.optimizer=muon(lr = 1e-2)"},
  };
  for (int i = 0; i < COUNT_OF(rows); i++) early_is_exact(i % 2 ? LLAMA : GPT2, rows[i]);
}

static void formats(void **state) {
  (void)state;
  static const char *const rows[][5] = {
      {"precision.compute=bf16", "precision.moments=i8"},
      {"precision.compute=bf16", "precision.master=split"},
      {"precision.compute=bf16", "precision.master=bf16", "precision.moments=bf16",
       "precision.accum=bf16"},
  };
  for (int i = 0; i < COUNT_OF(rows); i++) early_is_exact(i % 2 ? GPT2 : LLAMA, rows[i]);
}

/* Moments, masters and weights on the host, streamed through the backward pass that updates them. */
static void on_the_host(void **state) {
  (void)state;
  const char *list[MOST], *const none[] = {"precision.compute=bf16", NULL};
  PlanArgs args = whole_step(RC_NONE);
  Outcome after = train(LLAMA, with(list, none, "train.nonfinite=skip"), &args);
  with(list, none, "train.nonfinite=stop");
  args = whole_step(RC_AUTO);
  args.host_bytes =
      after.persistent / 4; /* with all of it on the host, accumulators would be there as well */
  args.budget_bytes = floor_of(LLAMA, list, &args);
  Outcome early = train(LLAMA, list, &args);
  assert_true(early.early);
  assert_true(early.host > 0 && early.copies > 0);
  expect_same(&after, &early, "on the host");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(optimizers),
      cmocka_unit_test(formats),
      cmocka_unit_test(on_the_host),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
