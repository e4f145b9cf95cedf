/* train_runs.h - training runs of a toy model in processes of their own, and what they leave:
 * checkpoints, metrics. */
#ifndef MTC_TESTS_TRAIN_RUNS_H
#define MTC_TESTS_TRAIN_RUNS_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "folder.h"
#include "runtime/checkpoint.h"
#include "runtime/train.h"
#include "toy_model.h"

/* 640 bytes below TOY_V - 1 with a pattern that can be learnt. */
static inline void write_text(Place *p) {
  char text[640];
  for (int i = 0; i < 640; i++) text[i] = (char)((i * 7 + i / 64) % (TOY_V - 1));
  folder_file(p->a, p->dir, "text.txt", text, sizeof text);
}

/* Runs in a child with output thrown away; returns the wait status. `crash` is MTC_CRASH_AT or
 * NULL. */
static inline pid_t start(const Program *p, const TrainOptions *o, const char *crash) {
  fflush(NULL);
  pid_t pid = fork();
  if (pid) return pid;
  int null = open("/dev/null", O_WRONLY);
  dup2(null, 1);
  if (!getenv("MTC_TEST_SHOW")) dup2(null, 2);
  if (crash)
    setenv("MTC_CRASH_AT", crash, 1);
  else
    unsetenv("MTC_CRASH_AT");
  setenv("MTC_THREADS", "1", 1);
  _exit(train_run(p, o));
}

static inline int run(const Program *p, const TrainOptions *o, const char *crash) {
  int status;
  pid_t pid = start(p, o, crash);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  return status;
}
static inline void runs(const Program *p, const TrainOptions *o, int code) {
  int status = run(p, o, NULL);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), code);
}

static inline TrainOptions options(Place *p, const char *name) {
  return (TrainOptions){
      .dir = arena_printf(p->a, "%s/%s", p->dir, name), .steps = -1, .seed = -1, .quiet = true};
}

static inline char *checkpoint_bytes(Place *p, const TrainOptions *o, int64_t step, size_t *n) {
  const char *path = checkpoint_path(p->a, o->dir, step);
  char *bytes = read_file(p->a, path, n);
  if (!bytes) fail_msg("%s is missing", path);
  return bytes;
}

static inline void same_checkpoint(Place *p, const TrainOptions *x, const TrainOptions *y,
                                   int64_t step) {
  size_t n, m;
  char *a = checkpoint_bytes(p, x, step, &n), *b = checkpoint_bytes(p, y, step, &m);
  assert_int_equal(n, m);
  assert_memory_equal(a, b, n);
}

/* A number of the last line (or of line `line` from 0) of metrics.jsonl. */
static inline double metric(Place *p, const TrainOptions *o, int line, const char *key,
                            int *lines) {
  size_t n;
  char *text = read_file(p->a, arena_printf(p->a, "%s/metrics.jsonl", o->dir), &n);
  assert_non_null(text);
  double value = NAN;
  *lines = 0;
  for (char *rest = text, *one; (one = strsep(&rest, "\n")) && *one; ++*lines) {
    json_t *j = json_loads(one, 0, NULL);
    assert_non_null(j);
    assert_int_equal(json_integer_value(json_object_get(j, "step")), *lines + 1);
    if (line < 0 || line == *lines) {
      json_t *v = json_object_get(j, key);
      value = json_is_number(v)  ? json_number_value(v)
              : json_is_true(v)  ? 1
              : json_is_false(v) ? 0
                                 : NAN;
    }
    json_decref(j);
  }
  return value;
}

static inline Program *text_model(Place *p, int64_t micro_batch, int64_t accumulation,
                                  int64_t steps) {
  write_text(p);
  Program *m = toy_model(p->a, p->source, (ToySize){8, micro_batch, accumulation, steps});
  m->ckpt_every = 5, m->ckpt_keep = 2;
  return m;
}

#endif
