/* test_train.c - the training loop on the CPU device with a hand-made model: exact resume at any
 * kill point, token-weighted accumulation, non-finite steps, interruption, evaluation, sampling.
 * Each run is a process of its own: a few seconds in all. */
#include "train_runs.h"
#include "runtime/sample.h"

static void learns_and_writes_its_folder(void **state) {
  Place *p = *state;
  Program *m = text_model(p, 4, 2, 60);
  m->eval_data = 0, m->eval_every = 20, m->data[0].holdout = 0.1;
  m->eval_val = true;
  TrainOptions o = options(p, "run");
  runs(m, &o, EXIT_OK);
  int lines;
  double first = metric(p, &o, 0, "loss", &lines), last = metric(p, &o, -1, "loss", &lines);
  assert_int_equal(lines, 60);
  assert_true(fabs(first - log(TOY_V)) < 0.3);
  assert_true(last < 0.7 * first);
  assert_true(isnan(metric(p, &o, 18, "eval_loss", &lines)));
  assert_true(metric(p, &o, 19, "eval_loss", &lines) > 0);
  assert_true(metric(p, &o, -1, "eval_loss", &lines) < 0.8 * first);
  assert_true(path_exists(checkpoint_path(p->a, o.dir, 60)) &&
              path_exists(checkpoint_path(p->a, o.dir, 55)));
  assert_false(path_exists(checkpoint_path(p->a, o.dir, 50))); /* keep = 2 */
  runs(m, &o, EXIT_USAGE);                                     /* holds a run already */
  o.resume = true;
  runs(m, &o, EXIT_OK); /* nothing left to do */
  o.resume = false, o.force = true, o.steps = 3;
  runs(m, &o, EXIT_OK);
  metric(p, &o, 0, "loss", &lines);
  assert_int_equal(lines, 3);
  assert_false(path_exists(checkpoint_path(p->a, o.dir, 60)));
}

/* 20 steps == n steps, kill -9, the rest: all bytes of the last checkpoint. */
static void resumes_exactly_after_a_kill(void **state) {
  Place *p = *state;
  Program *m = text_model(p, 2, 3, 20);
  TrainOptions whole = options(p, "whole");
  runs(m, &whole, EXIT_OK);
  size_t size;
  checkpoint_bytes(p, &whole, 20, &size);
  static const char *const points[] = {
      "step:1", "step:7", "step:10", "micro-step:32", "checkpoint-rename:1", "checkpoint-rename:2"};
  VEC(const char *) all = {0};
  for (int i = 0; i < COUNT_OF(points); i++) vec_push(p->a, &all, points[i]);
  for (int64_t at = 0; at < 2 * (int64_t)size; at += (int64_t)size / 5)
    vec_push(p->a, &all, arena_printf(p->a, "checkpoint-write:%lld", (long long)at));
  for (int i = 0; i < all.n; i++) {
    TrainOptions o = options(p, arena_printf(p->a, "cut%d", i));
    int status = run(m, &o, all.at[i]);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
      fail_msg("%s did not kill the run", all.at[i]);
    o.resume = true;
    runs(m, &o, EXIT_OK);
    same_checkpoint(p, &whole, &o, 20);
    int lines;
    metric(p, &o, 0, "loss", &lines); /* each step once, in order */
    assert_int_equal(lines, 20);
  }
}

static void another_plan_resumes(void **state) {
  Place *p = *state;
  Program *one = text_model(p, 2, 3, 10), *two = text_model(p, 6, 1, 10);
  two->plan_id++;
  TrainOptions whole = options(p, "whole"), o = options(p, "other");
  runs(one, &whole, EXIT_OK);
  o.steps = 4;
  runs(one, &o, EXIT_OK);
  o.resume = true, o.steps = -1;
  runs(two, &o, EXIT_OK);
  int lines;
  double a = metric(p, &whole, -1, "loss", &lines), b = metric(p, &o, -1, "loss", &lines);
  assert_true(fabs(a - b) < 1e-6 * fabs(a));
}

/* Two phases over the same data are one run through it; a kill in the second resumes in the second.
 */
static void phases_follow_each_other(void **state) {
  Place *p = *state;
  Program *one = text_model(p, 2, 3, 12), *two = text_model(p, 2, 3, 12);
  two->nphases = 2;
  two->phases = arena_array(p->a, ProgramPhase, 2);
  two->phases[0] = two->phases[1] = one->phases[0];
  two->phases[0].name = "first", two->phases[0].steps = 5;
  two->phases[1].name = "second", two->phases[1].steps = 7;
  TrainOptions a = options(p, "one"), b = options(p, "two");
  runs(one, &a, EXIT_OK);
  int status = run(two, &b, "step:8");
  assert_true(WIFSIGNALED(status));
  b.resume = true;
  runs(two, &b, EXIT_OK);
  Fail f = {0};
  Checkpoint *x = checkpoint_open(checkpoint_path(p->a, a.dir, 12), &f);
  Checkpoint *y = checkpoint_open(checkpoint_path(p->a, b.dir, 12), &f);
  assert_non_null(x);
  assert_non_null(y);
  assert_int_equal(y->state.phase, 2);
  const StEntry *w = checkpoint_find(x, "w");
  assert_memory_equal(w->data, checkpoint_find(y, "w")->data, (size_t)w->bytes);
  checkpoint_close(x);
  checkpoint_close(y);
  size_t n;
  char *log = read_file(p->a, arena_printf(p->a, "%s/metrics.jsonl", b.dir), &n);
  assert_non_null(strstr(log, "{\"step\": 5, \"phase\": \"first\""));
  assert_non_null(strstr(log, "{\"step\": 6, \"phase\": \"second\""));
}

static void damaged_checkpoints_are_passed_over(void **state) {
  Place *p = *state;
  Program *m = text_model(p, 2, 3, 20);
  TrainOptions whole = options(p, "whole"), o = options(p, "hurt");
  runs(m, &whole, EXIT_OK);
  o.steps = 10;
  runs(m, &o, EXIT_OK);
  size_t n;
  char *bytes = checkpoint_bytes(p, &o, 10, &n);
  bytes[n / 2] ^= 1;
  folder_file(p->a, o.dir, "step-000010.mtck", bytes, n);
  o.resume = true, o.steps = -1;
  runs(m, &o, EXIT_OK);
  same_checkpoint(p, &whole, &o, 20);
}

/* Micro-batches of 10 targets at one loss and of 2 at another weigh 10 : 2, however the step is
 * split. */
static void accumulation_weighs_targets(void **state) {
  Place *p = *state;
  const char *text =
      "{\"ids\": [1,2,3,4,5,6,7,8,9,10,11]}\n{\"ids\": [1,2,3]}\n{\"ids\": [4,5,6,7], \"mask\": "
      "[1,0,1,0]}\n"
      "{\"ids\": [9,8,7,6,5,4,3,2]}\n";
  folder_file(p->a, p->dir, "s.jsonl", text, strlen(text));
  double loss[3], norm[3];
  static const int64_t batches[3] = {1, 2, 4};
  for (int i = 0; i < 3; i++) {
    Program *m = toy_model(p->a, p->source, (ToySize){10, batches[i], 4 / batches[i], 3});
    m->data[0] = (ProgramData){.name = "d", .kind = 2, .train = "s.jsonl"};
    TrainOptions o = options(p, arena_printf(p->a, "b%d", i));
    runs(m, &o, EXIT_OK);
    int lines;
    assert_true(metric(p, &o, -1, "tokens", &lines) == 10 + 2 + 1 + 7);
    loss[i] = metric(p, &o, -1, "loss", &lines);
    norm[i] = metric(p, &o, -1, "grad_norm", &lines);
    assert_true(fabs(loss[i] - loss[0]) < 1e-6 * loss[0]);
    assert_true(fabs(norm[i] - norm[0]) < 1e-5 * norm[0]);
  }
}

static void nonfinite_steps_are_skipped_counted_and_named(void **state) {
  Place *p = *state;
  char text[] = "{\"ids\": [1,2,3]}\n{\"ids\": [4,31]}\n{\"ids\": [7,8,9]}\n";
  folder_file(p->a, p->dir, "s.jsonl", text, strlen(text));
  Program *m = toy_model(p->a, p->source, (ToySize){4, 1, 1, 6});
  m->data[0] = (ProgramData){.name = "d", .kind = 2, .train = "s.jsonl"};
  TrainOptions o = options(p, "skip");
  runs(m, &o, EXIT_OK);
  int lines;
  for (int i = 0; i < 6; i++) assert_true(metric(p, &o, i, "skipped", &lines) == (i % 3 == 1));
  size_t n;
  char *log = read_file(p->a, arena_printf(p->a, "%s/metrics.jsonl", o.dir), &n);
  assert_non_null(strstr(log, "\"loss\": null"));
  assert_non_null(strstr(log, "\"nonfinite\": \"w\""));
  assert_true(isfinite(metric(p, &o, -1, "loss", &lines)));
  Fail f = {0};
  Checkpoint *c = checkpoint_open(checkpoint_path(p->a, o.dir, 6), &f);
  assert_int_equal(c->state.skipped, 2);
  assert_int_equal(*(const int32_t *)checkpoint_find(c, "opt.t")->data, 4);
  checkpoint_close(c);
  folder_file(p->a, p->dir, "s.jsonl", "{\"ids\": [4,31]}\n", 16);
  o = options(p, "stop");
  runs(m, &o, EXIT_STOPPED); /* three in a row */
  assert_true(path_exists(checkpoint_path(p->a, o.dir, 3)));
  m->nonfinite_stop = true;
  o = options(p, "at-once");
  runs(m, &o, EXIT_STOPPED);
  assert_true(path_exists(checkpoint_path(p->a, o.dir, 1)));
}

static void interruption_writes_a_checkpoint(void **state) {
  Place *p = *state;
  Program *m = text_model(p, 2, 3, 100000);
  m->ckpt_every = 0;
  TrainOptions o = options(p, "stop");
  int status, lines = 0;
  pid_t pid = start(m, &o, NULL);
  const char *log = arena_printf(p->a, "%s/metrics.jsonl", o.dir);
  for (int i = 0; i < 2000 && !lines; i++) {
    size_t n = 0;
    char *text = read_file(p->a, log, &n);
    lines = text && n > 400;
    usleep(5000);
  }
  kill(pid, SIGINT);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_INTERRUPTED);
  Fail f = {0};
  Checkpoint *c = checkpoint_newest(o.dir, &f);
  assert_non_null(c);
  int64_t at = c->state.step;
  checkpoint_close(c);
  TrainOptions whole = options(p, "whole");
  whole.steps = o.steps = at + 3;
  o.resume = true;
  runs(m, &o, EXIT_OK);
  runs(m, &whole, EXIT_OK);
  same_checkpoint(p, &whole, &o, at + 3);
}

static void what_cannot_run_is_refused_before_step_0(void **state) {
  Place *p = *state;
  Program *m = text_model(p, 2, 3, 5);
  TrainOptions o = options(p, "no");
  m->data[0].train = "none.txt";
  runs(m, &o, EXIT_IO);
  m->data[0].train = "text.txt";
  m->programs[0].inputs[0].name = "image";
  runs(m, &o, EXIT_IO);
  m->programs[0].inputs[0].name = "tokens";
  m->init = "none.safetensors";
  runs(m, &o, EXIT_IO);
  m->init = NULL;
  assert_false(path_exists(arena_printf(p->a, "%s/metrics.jsonl", o.dir)));
  o.dry_run = 2, o.dir = NULL;
  runs(m, &o, EXIT_OK);
}

/* init from a safetensors file, then export by the same map gives the same values at step 0. */
static void init_loads_weights(void **state) {
  Place *p = *state;
  Program *m = text_model(p, 2, 3, 5);
  float *w = arena_array(p->a, float, TOY_V *TOY_V);
  for (int i = 0; i < TOY_V * TOY_V; i++) w[i] = (float)i;
  char *head =
      arena_printf(p->a, "{\"W\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[0,%d]}}",
                   TOY_V, TOY_V, 4 * TOY_V * TOY_V);
  size_t n = strlen(head);
  char *file = arena_alloc(p->a, 8 + n + sizeof(float) * TOY_V * TOY_V);
  file[0] = (char)n;
  memcpy(file + 8, head, n);
  memcpy(file + 8 + n, w, sizeof(float) * TOY_V * TOY_V);
  folder_file(p->a, p->dir, "w.safetensors", file, 8 + n + sizeof(float) * TOY_V * TOY_V);
  m->nweights = 1;
  m->weights = arena_array(p->a, ProgramWeight, 1);
  m->weights[0] = (ProgramWeight){"W", TOY_W, true};
  m->init = "w.safetensors";
  m->phases[0].lr = 0;
  TrainOptions o = options(p, "init");
  o.steps = 1;
  runs(m, &o, EXIT_OK);
  Fail f = {0};
  Checkpoint *c = checkpoint_open(checkpoint_path(p->a, o.dir, 1), &f);
  const float *got = checkpoint_find(c, "w")->data;
  for (int i = 0; i < TOY_V; i++)
    for (int k = 0; k < TOY_V; k++) assert_true(got[i * TOY_V + k] == w[k * TOY_V + i]);
  checkpoint_close(c);
  m->init = "init/step-000001.mtck";
  o = options(p, "again");
  o.steps = 1;
  runs(m, &o, EXIT_OK);
  c = checkpoint_open(checkpoint_path(p->a, o.dir, 1), &f);
  assert_true(((const float *)checkpoint_find(c, "w")->data)[1] == w[TOY_V]);
  checkpoint_close(c);
}

/* Runs sample in a child; its output. */
static char *sampled(Place *p, const char *dir, SampleOptions o, int code) {
  const char *path = arena_printf(p->a, "%s/out", p->dir);
  int status;
  size_t n;
  fflush(NULL);
  pid_t pid = fork();
  if (!pid) {
    FILE *out = fopen(path, "w");
    freopen("/dev/null", "w", stderr);
    int rc = sample_run(dir, &o, out);
    fclose(out);
    _exit(rc);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), code);
  return read_file(p->a, path, &n);
}

static void samples_what_was_learnt(void **state) {
  Place *p = *state;
  char text[600];
  for (int i = 0; i < 600; i++) text[i] = (char)(1 + i % 9); /* after 9 comes 1 */
  Program *m = toy_model(p->a, p->source, (ToySize){8, 4, 1, 80});
  folder_file(p->a, p->dir, "text.txt", text, sizeof text);
  TrainOptions o = options(p, "run");
  runs(m, &o, EXIT_OK);
  SampleOptions s = {.prompt = "\1\2", .tokens = 20, .budget_bytes = -1, .threads = 1};
  char *greedy = sampled(p, o.dir, s, EXIT_OK);
  assert_int_equal(strlen(greedy), 23);
  for (int i = 0; i < 22; i++) assert_int_equal(greedy[i], 1 + i % 9);
  s.temperature = 5;
  char *a = sampled(p, o.dir, s, EXIT_OK), *b = sampled(p, o.dir, s, EXIT_OK);
  assert_string_equal(a, b);
  s.seed = 1;
  assert_string_not_equal(a, sampled(p, o.dir, s, EXIT_OK));
  s.prompt = "\x1f\x20";
  sampled(p, o.dir, s, EXIT_USAGE); /* not in the vocabulary */
  s.prompt = NULL, s.device = "cuda";
  sampled(p, o.dir, s, EXIT_DEVICE);
  s.device = "cpu", s.budget_bytes = 1000;
  sampled(p, o.dir, s, EXIT_INFEASIBLE);
  s.budget_bytes = -1;
  sampled(p, arena_printf(p->a, "%s/none", p->dir), s, EXIT_IO);
  sampled(p, checkpoint_path(p->a, o.dir, 80), s, EXIT_OK);
}

static void draws_follow_their_rules(void **state) {
  (void)state;
  const float logits[] = {0, 2, 1, 2};
  int32_t order[4];
  int count[4] = {0};
  assert_int_equal(sample_draw(logits, 4, 0, 0, 1, 0, order), 1);
  for (int i = 0; i < 4000; i++) count[sample_draw(logits, 4, 1, 3, 1, i, order)]++;
  assert_int_equal(count[0], 0);
  double e = exp(1), share = 1 / (1 + 2 * e);
  assert_true(fabs(count[2] / 4000.0 - share) < 0.03);
  assert_true(fabs(count[1] / 4000.0 - e * share) < 0.03);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(learns_and_writes_its_folder),
      TEST(resumes_exactly_after_a_kill),
      TEST(another_plan_resumes),
      TEST(phases_follow_each_other),
      TEST(damaged_checkpoints_are_passed_over),
      TEST(accumulation_weighs_targets),
      TEST(nonfinite_steps_are_skipped_counted_and_named),
      TEST(interruption_writes_a_checkpoint),
      TEST(what_cannot_run_is_refused_before_step_0),
      TEST(init_loads_weights),
      TEST(samples_what_was_learnt),
      cmocka_unit_test(draws_follow_their_rules),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
