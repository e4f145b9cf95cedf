/* test_precision.c - whole runs on the CPU device in the formats of `precision`: losses beside f32, the factor on the loss
 * as it grows and falls, a planted overflow, a planted NaN, and resumed runs. Each run is a process of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <jansson.h>
#include <sys/wait.h>

#include "runtime/checkpoint.h"
#include "runtime/train.h"
#include "tests/runtime/folder.h"
#include "tests/support/session.h"

/* A residual block over an embedding. `gain` is in its hidden layer, `wide` in what it adds to the stream; byte 31 in a sample makes its
 * gradients NaN. */
static const char model_text[] =
    "mt 1\n"
    "use \"" MTC_SOURCE_DIR "/models/std/nn.mt\" (Embedding, LayerNorm, Linear)\n"
    "model Tiny(V = 32, D = 32, gain = 1.0, wide = 0.1) {\n"
    "  layer e    = Embedding(V, D, init = normal(0.3))\n"
    "  layer ln   = LayerNorm(D)\n"
    "  layer up   = Linear(D, 4 * D, init = normal(0.2))\n"
    "  layer down = Linear(4 * D, D, init = normal(wide))\n"
    "  layer out  = LayerNorm(D)\n"
    "  fn forward(tokens i32[B, T]) -> [B, T, V] {\n"
    "    x = e(tokens)\n"
    "    poison = where(tokens == 31, 1e38, 1.0) as [B, T, 1]\n"
    "    x = x + down(relu(up(ln(x)) * gain)) * (poison * poison)\n"
    "    return out(x) @ e.w.T\n"
    "  }\n"
    "  fn loss(tokens i32[B, T], targets i32[B, T]) -> f32 { return cross_entropy(forward(tokens), targets) }\n"
    "}\n"
    "data bytes = text(train = \"text.txt\", shuffle = false)\n"
    "precision { compute = f32 }\n"
    "train {\n"
    "  data      = bytes.train\n"
    "  dims { T = 16  B = auto }\n"
    "  batch     = seqs(4)\n"
    "  steps     = 60\n"
    "  optimizer = adamw(lr = 3e-3)\n"
    "  clip      = 1.0\n"
    "  nonfinite_limit = 5\n"
    "  checkpoint { every = 100 }\n"
    "}\n";

enum { T = 16, SAMPLES = 4, STEPS = 120, POISONED = 50 };

/* Bytes below 31 that can be learnt; step `poisoned` (from 1, 0 = none) sees a 31. */
static void write_files(Place *p, int poisoned) {
  enum { SIZE = STEPS * SAMPLES * T + 1 };
  char *text = arena_alloc(p->a, SIZE);
  for (int i = 0; i < SIZE; i++) text[i] = (char)((i * 7 + i / 64 * 3) % 31);
  if (poisoned) text[(poisoned - 1) * SAMPLES * T + 5] = 31;
  folder_file(p->a, p->dir, "text.txt", text, SIZE);
  folder_file(p->a, p->dir, "model.mt", model_text, sizeof model_text - 1);
}

static TrainOptions options(Place *p, const char *name) {
  return (TrainOptions){
      .dir = arena_printf(p->a, "%s/%s", p->dir, name), .steps = -1, .seed = -1, .quiet = true, .threads = 1};
}

/* Plans, compiles and trains in a child. Returns its exit code; standard error goes to DIR.err. */
static int train_within(Place *p, const char *const *settings, const PlanArgs *args,
                        const TrainOptions *o) {
  fflush(NULL);
  pid_t pid = fork();
  if (!pid) {
    int err = open(arena_printf(p->a, "%s.err", o->dir), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(err, 2);
    Job *job = session_job(p->a, p->source, NULL, settings);
    FitResult r = plan_fit(job, p->a, args);
    const char *why = "";
    Program *m = r.plan ? program_build(r.plan, p->a, &why) : NULL;
    ensure(m, "%s has no program: %s", p->source, why);
    _exit(train_run(m, o));
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

static int train(Place *p, const char *const *settings, const TrainOptions *o) {
  PlanArgs args = session_plan_args();
  return train_within(p, settings, &args, o);
}

static json_t *steps_of(Place *p, const TrainOptions *o) {
  size_t n;
  char *text = read_file(p->a, arena_printf(p->a, "%s/metrics.jsonl", o->dir), &n);
  assert_non_null(text);
  json_t *all = json_array();
  for (char *rest = text, *one; (one = strsep(&rest, "\n")) && *one;)
    assert_int_equal(json_array_append_new(all, json_loads(one, 0, NULL)), 0);
  return all;
}

static double number_at(const json_t *steps, size_t step, const char *key) {
  return json_number_value(json_object_get(json_array_get(steps, step), key));
}
static bool skipped_at(const json_t *steps, size_t step) {
  return json_is_true(json_object_get(json_array_get(steps, step), "skipped"));
}

/* ---- losses ---- */

static double last_losses(Place *p, const char *name, const char *const *settings, int *skipped) {
  TrainOptions o = options(p, name);
  assert_int_equal(train(p, settings, &o), EXIT_OK);
  json_t *steps = steps_of(p, &o);
  double sum = 0;
  *skipped = 0;
  assert_int_equal(json_array_size(steps), STEPS);
  for (size_t i = 0; i < STEPS; i++) *skipped += skipped_at(steps, i);
  for (size_t i = STEPS - 20; i < STEPS; i++) sum += number_at(steps, i, "loss");
  json_decref(steps);
  return sum / 20;
}

static void losses_agree_with_f32(void **state) {
  Place *p = *state;
  write_files(p, 0);
  static const char *const f32[] = {"train.steps=120", NULL};
  static const struct {
    const char *name;
    const char *settings[6];
  } rows[] = {{"tf32", {"train.steps=120", "precision.compute=tf32"}},
              {"bf16", {"train.steps=120", "precision.compute=bf16"}},
              {"f16", {"train.steps=120", "precision.compute=f16"}},
              {"auto", {"train.steps=120", "precision.compute=auto"}},
              {"lean", {"train.steps=120", "precision.compute=bf16", "precision.master=split",
                        "precision.moments=bf16", "precision.accum=bf16"}}};
  int skipped;
  double exact = last_losses(p, "f32", f32, &skipped);
  assert_true(exact < 2); /* it learns: log 31 is 3.4 */
  for (int i = 0; i < COUNT_OF(rows); i++) {
    double loss = last_losses(p, rows[i].name, rows[i].settings, &skipped);
    if (!(fabs(loss - exact) < 0.01)) fail_msg("%s: %.4f, f32 has %.4f", rows[i].name, loss, exact);
    assert_true(skipped < 3);
  }
}

/* ---- the factor on the loss ---- */

static const char *const growing[] = {
    "precision.compute=f16", "precision.loss_scale=dynamic(init=1e9, interval=3)", "train.nonfinite_limit=40",
    "train.steps=60", NULL};

/* Every step's factor follows from the one before. */
static void scale_grows_and_falls(void **state) {
  Place *p = *state;
  write_files(p, 0);
  TrainOptions o = options(p, "run");
  assert_int_equal(train(p, growing, &o), EXIT_OK);
  json_t *steps = steps_of(p, &o);
  int good = 0, grown = 0, fallen = 0;
  double scale = 0x1p29; /* 1e9 rounded down */
  for (size_t i = 0; i < 60; i++) {
    assert_true(number_at(steps, i, "loss_scale") == scale);
    bool skipped = skipped_at(steps, i);
    good = skipped ? 0 : good + 1;
    fallen += skipped, grown += good == 3;
    if (skipped) scale /= 2;
    if (good == 3) scale *= 2, good = 0;
  }
  assert_true(fallen > 3 && grown > 3);
  json_decref(steps);
}

static void scale_stays_at_one(void **state) {
  Place *p = *state;
  write_files(p, 1);
  static const char *const low[] = {"precision.compute=f16", "precision.loss_scale=dynamic(init=2)", "train.steps=4",
                                    NULL};
  TrainOptions o = options(p, "run");
  assert_int_equal(train(p, low, &o), EXIT_OK);
  json_t *steps = steps_of(p, &o);
  assert_true(skipped_at(steps, 0) && !skipped_at(steps, 1));
  assert_true(number_at(steps, 0, "loss_scale") == 2 && number_at(steps, 1, "loss_scale") == 1);
  json_decref(steps);
}

/* All bytes of the last checkpoint, the factor and its counters among them. */
static void resume_keeps_the_scale(void **state) {
  Place *p = *state;
  write_files(p, 0);
  TrainOptions whole = options(p, "whole"), cut = options(p, "cut");
  assert_int_equal(train(p, growing, &whole), EXIT_OK);
  cut.steps = 31;
  assert_int_equal(train(p, growing, &cut), EXIT_OK);
  cut.steps = -1, cut.resume = true;
  assert_int_equal(train(p, growing, &cut), EXIT_OK);
  size_t n, m;
  char *a = read_file(p->a, checkpoint_path(p->a, whole.dir, 60), &n);
  char *b = read_file(p->a, checkpoint_path(p->a, cut.dir, 60), &m);
  assert_non_null(a);
  assert_non_null(b);
  assert_int_equal(n, m);
  assert_memory_equal(a, b, n);
}

/* ---- steps that are not finite ---- */

/* Variables of two checkpoints that differ, but for counters of skipped steps. */
static int differing(Place *p, const TrainOptions *o, int64_t x, int64_t y) {
  Fail f = {0};
  Checkpoint *a = checkpoint_open(checkpoint_path(p->a, o->dir, x), &f);
  Checkpoint *b = checkpoint_open(checkpoint_path(p->a, o->dir, y), &f);
  assert_non_null(a);
  assert_non_null(b);
  assert_int_equal(a->nvars, b->nvars);
  int n = 0;
  for (int i = 0; i < a->nvars; i++) {
    bool counts = !strcmp(a->vars[i].name, "opt.scale") || !strcmp(a->vars[i].name, "opt.good") ||
                  !strcmp(a->vars[i].name, "opt.skips");
    n += !counts && memcmp(a->vars[i].data, b->vars[i].data, (size_t)a->vars[i].bytes) != 0;
  }
  assert_int_equal(b->state.skipped - a->state.skipped, n == 0);
  checkpoint_close(a);
  checkpoint_close(b);
  return n;
}

static void nan_changes_only_the_counter(Place *p, const char *compute) {
  write_files(p, POISONED);
  const char *const settings[] = {arena_printf(p->a, "precision.compute=%s", compute), "train.steps=52",
                                  "train.checkpoint.every=1", "train.checkpoint.keep=100", NULL};
  TrainOptions o = options(p, compute);
  assert_int_equal(train(p, settings, &o), EXIT_OK);
  assert_int_equal(differing(p, &o, POISONED - 1, POISONED), 0);
  assert_true(differing(p, &o, POISONED - 2, POISONED - 1) > 5);
  assert_true(differing(p, &o, POISONED, POISONED + 1) > 5);
  json_t *steps = steps_of(p, &o);
  for (size_t i = 0; i < 52; i++) assert_int_equal(skipped_at(steps, i), i == POISONED - 1);
  json_decref(steps);
}
static void nan_f32(void **state) {
  nan_changes_only_the_counter(*state, "f32");
}
static void nan_bf16(void **state) {
  nan_changes_only_the_counter(*state, "bf16");
}
static void nan_f16(void **state) {
  nan_changes_only_the_counter(*state, "f16");
}

static const char *message(Place *p, const TrainOptions *o) {
  size_t n;
  char *text = read_file(p->a, arena_printf(p->a, "%s.err", o->dir), &n);
  assert_non_null(text);
  return text;
}

/* A hidden value beyond 65504: the run ends after the stated number of steps, with a checkpoint of the weights that it
 * began with, and says which operation, where, and what it read. */
static void overflow_is_named(void **state) {
  Place *p = *state;
  write_files(p, 0);
  static const char *const settings[] = {"gain=1e5", "precision.compute=f16",
                                         "precision.loss_scale=dynamic(init=4)", NULL};
  TrainOptions o = options(p, "run");
  assert_int_equal(train(p, settings, &o), EXIT_STOPPED);
  const char *said = message(p, &o);
  if (!strstr(said, "stopped after step 5: 5 steps in a row") || !strstr(said, "inf at [") ||
      !strstr(said, "of relu (f16, ") || !strstr(said, "largest finite number"))
    fail_msg("%s", said);
  Fail f = {0};
  Checkpoint *c = checkpoint_open(checkpoint_path(p->a, o.dir, 5), &f);
  assert_non_null(c);
  assert_int_equal(c->state.skipped_in_row, 5);
  assert_int_equal(*(const int32_t *)checkpoint_find(c, "opt.t")->data, 0);
  assert_int_equal(*(const int32_t *)checkpoint_find(c, "opt.skips")->data, 5);
  assert_true(*(const float *)checkpoint_find(c, "opt.scale")->data == 1);
  checkpoint_close(c);
  json_t *steps = steps_of(p, &o);
  assert_int_equal(json_array_size(steps), 5);
  json_decref(steps);
}

/* What a branch adds to the residual stream is over 65504 and stays f32; a rule that makes it f16 after all overflows. */
static void residual_branch_does_not_overflow(void **state) {
  Place *p = *state;
  write_files(p, 0);
  static const char *const settings[] = {"gain=1e4", "wide=1.0", "precision.compute=f16", "train.steps=5", NULL};
  TrainOptions o = options(p, "run"), forced = options(p, "forced");
  assert_int_equal(train(p, settings, &o), EXIT_OK);
  json_t *steps = steps_of(p, &o);
  assert_false(skipped_at(steps, 4));
  json_decref(steps);
  const char *plain = "precision { compute = f32 }";
  const char *at = strstr(model_text, plain);
  assert_non_null(at);
  const char *text = arena_printf(p->a, "%.*sprecision { compute = f16  \"down\" = f16 }%s", (int)(at - model_text),
                                  model_text, at + strlen(plain));
  folder_file(p->a, p->dir, "model.mt", text, strlen(text));
  assert_int_equal(train(p, settings, &forced), EXIT_STOPPED);
  if (!strstr(message(p, &forced), "of down (f16, ")) fail_msg("%s", message(p, &forced));
}

static void stop_ends_at_the_first(void **state) {
  Place *p = *state;
  write_files(p, 3);
  static const char *const settings[] = {"train.nonfinite=stop", NULL};
  TrainOptions o = options(p, "run");
  assert_int_equal(train(p, settings, &o), EXIT_STOPPED);
  const char *said = message(p, &o);
  if (!strstr(said, "stopped after step 3: 1 step in a row") || !strstr(said, "inf at [")) fail_msg("%s", said);
}

/* Where the backward pass updates, the weights have taken the bad step in: the run ends without a checkpoint of it. */
static void an_early_update_is_not_saved(void **state) {
  Place *p = *state;
  write_files(p, 3);
  static const char *const settings[] = {"train.clip=0", "train.nonfinite=stop",
                                         "train.checkpoint.every=1", NULL};
  PlanArgs args = session_plan_args();
  args.micro_batch = SAMPLES;
  args.mlp_chunks = 1;
  args.budget_bytes = 1;
  args.budget_bytes =
      plan_fit(session_job(p->a, p->source, NULL, settings), p->a, &args).floor_bytes;
  FitResult r = plan_fit(session_job(p->a, p->source, NULL, settings), p->a, &args);
  assert_true(r.plan && phase_updates_early(&r.plan->phases.at[0]));
  TrainOptions o = options(p, "run");
  assert_int_equal(train_within(p, settings, &args, &o), EXIT_STOPPED);
  const char *said = message(p, &o);
  if (!strstr(said, "stopped after step 3: 1 step in a row") || !strstr(said, ", first in ") ||
      !strstr(said, "go on from the last checkpoint with --resume"))
    fail_msg("%s", said);
  assert_true(path_exists(checkpoint_path(p->a, o.dir, 2)));
  assert_false(path_exists(checkpoint_path(p->a, o.dir, 3)));
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
  const struct CMUnitTest tests[] = {TEST(losses_agree_with_f32),
                                     TEST(scale_grows_and_falls),
                                     TEST(scale_stays_at_one),
                                     TEST(resume_keeps_the_scale),
                                     TEST(nan_f32),
                                     TEST(nan_bf16),
                                     TEST(nan_f16),
                                     TEST(overflow_is_named),
                                     TEST(residual_branch_does_not_overflow),
                                     TEST(stop_ends_at_the_first),
                                     TEST(an_early_update_is_not_saved)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
