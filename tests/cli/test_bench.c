/* test_bench.c - `mtc bench` and `mtc train --profile` from the outside, on the CPU: reports add
 * up, the target file makes the plan's estimate that of the bench, and a profile shows every
 * command and the planned bytes. */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/support/command.h"
#include "tests/support/schema.h"

typedef struct {
  Arena *a;
  const char *dir;
} Fixture;

static const char model[] =
    "mt 1\n"
    "use \"" MTC_SOURCE_DIR
    "/models/gpt2.mt\" (GPT2)\n"
    "model Tiny = GPT2(V = 256, Tmax = 32, D = 64, H = 2, L = 2)\n"
    "data words = text(train = \"" MTC_SOURCE_DIR
    "/models/data/tinyshakespeare.txt\", holdout = 0.1)\n"
    "precision { compute = f32 }\n"
    "train {\n  data = words.train\n  dims { T = 32  B = auto }\n  batch = seqs(8)\n  steps = 8\n"
    "  optimizer = adamw(lr = 1e-3)\n  schedule = constant()\n}\n";

static int setup(void **state) {
  Arena *a = arena_new();
  Fixture *x = arena_new_of(a, Fixture);
  char *dir = arena_printf(a, "/tmp/mtc_bench_XXXXXX");
  *x = (Fixture){a, mkdtemp(dir)};
  FILE *f = fopen(arena_printf(a, "%s/tiny.mt", dir), "w");
  if (!f) return -1;
  fputs(model, f);
  *state = x;
  return fclose(f);
}

static int teardown(void **state) {
  Fixture *x = *state;
  int code;
  command_output(x->a, arena_printf(x->a, "rm -rf %s", x->dir), &code);
  arena_free(x->a);
  return code;
}

/* `mtc ARGS` in the fixture's folder; D in the arguments is that folder. */
static const char *mtc(Fixture *x, int want, const char *args) {
  int code;
  const char *out = command_output(
      x->a, arena_printf(x->a, "cd %s && MTC_THREADS=1 %s %s 2>err", x->dir, MTC_BINARY, args),
      &code);
  if (code != want) fail_msg("exit %d, not %d: mtc %s", code, want, args);
  return out;
}

static json_t *parsed(const char *text) {
  json_error_t e;
  json_t *o = json_loads(text, 0, &e);
  if (!o) fail_msg("no JSON: %s", e.text);
  return o;
}

static double real(const json_t *o, const char *key) {
  return json_number_value(json_object_get(o, key));
}

static void close_to(double x, double y, double share) {
  if (fabs(x - y) > share * fabs(y)) fail_msg("%g is not %g", x, y);
}

static void reports_add_up(void **state) {
  Fixture *x = *state;
  json_error_t e;
  json_t *o =
      parsed(mtc(x, 0, "bench tiny.mt --device cpu --vram 32M --runs 4 --json -o mine.json"));
  json_t *schema = json_load_file(MTC_SOURCE_DIR "/docs/schema/bench.json", 0, &e), *g;
  assert_non_null(schema);
  validate(schema, o, "bench");
  double calls[2] = {0}, predicted[2] = {0};
  size_t i;
  json_array_foreach(json_object_get(o, "kernels"), i, g) {
    int p = !strcmp(json_string_value(json_object_get(g, "program")), "update");
    calls[p] += real(g, "calls");
    predicted[p] += real(g, "predicted_seconds");
    assert_true(real(g, "least_seconds") <= real(g, "median_seconds") * 1.0000001);
    assert_true(real(g, "median_seconds") <= real(g, "most_seconds") * 1.0000001);
    close_to(real(g, "seconds"), real(g, "calls") * real(g, "median_seconds"), 1e-6);
  }
  double step = 0, guess = 0;
  json_array_foreach(json_object_get(o, "programs"), i, g) {
    assert_int_equal((int64_t)calls[i], (int64_t)real(g, "commands"));
    close_to(predicted[i], real(g, "predicted_seconds"), 1e-6);
    step += real(g, "median_seconds") * (i ? 1 : real(o, "accumulation"));
    guess += real(g, "calibrated_seconds") * (i ? 1 : real(o, "accumulation"));
    assert_true(real(g, "median_seconds") > 0);
  }
  close_to(real(o, "step_seconds"), step, 1e-6);
  close_to(real(o, "calibrated_step_seconds"), guess, 1e-6);
  json_decref(o);
  json_decref(schema);
}

/* The plan by the written file estimates what the bench called calibrated, twice the same. Micro-batch, chunks and
 * recompute are given: with other times the planner may well choose another plan than the one that was measured. */
#define CHOICE " --vram 32M --micro-batch 8 --chunks 1 --recompute none --json"
static void the_target_file_is_what_plan_uses(void **state) {
  Fixture *x = *state;
  json_t *b =
      parsed(mtc(x, 0, "bench tiny.mt --device cpu --runs 4 -o mine.json" CHOICE));
  const char *once = mtc(x, 0, "plan tiny.mt --target mine.json" CHOICE);
  assert_string_equal(
      once, mtc(x, 0, "plan tiny.mt --target mine.json" CHOICE));
  json_t *p = parsed(once),
         *q = parsed(mtc(x, 0, "plan tiny.mt --target cpu" CHOICE));
  assert_int_equal((int)real(b, "micro_batch"), 8);
  json_t *phase = json_array_get(json_object_get(p, "phases"), 0),
         *plain = json_array_get(json_object_get(q, "phases"), 0);
  close_to(real(phase, "step_seconds"), real(b, "calibrated_step_seconds"), 1e-4);
  close_to(real(plain, "step_seconds"), real(b, "predicted_step_seconds"), 1e-4);
  mtc(x, 2, "plan tiny.mt --target none.json --vram 32M");
  mtc(x, 2, "bench tiny.mt --target h200 --device cpu --vram 1G");
  mtc(x, 2, "bench tiny.mt --device cpu --runs 0");
  json_decref(b);
  json_decref(p);
  json_decref(q);
}

static void a_profile_shows_every_command_and_the_planned_bytes(void **state) {
  Fixture *x = *state;
  json_error_t e;
  json_t *plan = parsed(mtc(x, 0, "plan tiny.mt --target cpu --vram 32M --micro-batch 4 --json"));
  mtc(x, 0, "train tiny.mt --device cpu --vram 32M --micro-batch 4 --dry-run 2 --profile p.json");
  json_t *o = json_load_file(arena_printf(x->a, "%s/p.json", x->dir), 0, &e), *v;
  assert_non_null(o);
  size_t i;
  int64_t most = 0, programs = 0, copies = 0, commands = 0;
  double end = -1;
  json_array_foreach(json_object_get(o, "traceEvents"), i, v) {
    const char *ph = json_string_value(json_object_get(v, "ph")),
               *cat = json_string_value(json_object_get(v, "cat"));
    json_t *args = json_object_get(v, "args");
    if (!strcmp(ph, "C")) {
      int64_t bytes = json_integer_value(json_object_get(args, "arena"));
      if (bytes > most) most = bytes;
    }
    if (!cat) continue;
    programs += !strcmp(cat, "program");
    copies += !strcmp(cat, "copy");
    if (!strcmp(cat, "program") || !strcmp(cat, "copy")) continue;
    commands++;
    assert_true(real(v, "ts") >= end - 1e-3); /* one after another */
    end = real(v, "ts") + real(v, "dur");
    assert_true(json_is_string(json_object_get(args, "layer")) &&
                json_is_string(json_object_get(args, "kernel")));
  }
  int64_t steps = 0;
  json_array_foreach(json_object_get(plan, "programs"), i, v) {
    const char *name = json_string_value(json_object_get(v, "name"));
    if (!strcmp(name, "micro")) steps += 2 * (int64_t)real(v, "steps");
    if (!strcmp(name, "update")) steps += (int64_t)real(v, "steps");
  }
  assert_int_equal(programs, 3); /* two micro-batches and the update */
  assert_int_equal(copies, 3);
  assert_int_equal(commands, steps);
  int64_t peak = (int64_t)real(plan, "peak_bytes"); /* in whole pages */
  assert_true(most <= peak && most > peak - 4096);
  mtc(x, 2, "train tiny.mt --device cpu --vram 32M --dry-run 1 --profile q.json");
  json_decref(o);
  json_decref(plan);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reports_add_up),
      cmocka_unit_test(the_target_file_is_what_plan_uses),
      cmocka_unit_test(a_profile_shows_every_command_and_the_planned_bytes),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
