/* test_train_host.c - training with variables on the host: the same bytes as on the device, copied
 * early or late, resumed from either, profiled, measured without copies; and runs that write no
 * checkpoint. */
#include "train_runs.h"

#include <dirent.h>

static Program *host_model(Place *p, bool late, int64_t steps) {
  Program *m = text_model(p, 2, 3, steps);
  toy_to_host(p->a, m, late);
  return m;
}

static void residency_changes_no_bit(void **state) {
  Place *p = *state;
  Program *device = text_model(p, 2, 3, 12);
  device->eval_data = 0, device->eval_every = 6, device->data[0].holdout = 0.1;
  TrainOptions plain = options(p, "plain");
  runs(device, &plain, EXIT_OK);
  int lines;
  double eval = metric(p, &plain, -1, "eval_loss", &lines);
  for (int late = 0; late < 2; late++)
    for (int poison = 0; poison < 2; poison++) {
      Program *m = host_model(p, late, 12);
      m->eval_data = 0, m->eval_every = 6, m->data[0].holdout = 0.1;
      TrainOptions o = options(p, arena_printf(p->a, "host%d%d", late, poison));
      o.poison = poison;
      runs(m, &o, EXIT_OK);
      same_checkpoint(p, &plain, &o, 12);
      assert_true(metric(p, &o, -1, "eval_loss", &lines) == eval);
    }
}

/* Poison and late copies find a program that does not wait for what it reads. */
static void a_missing_wait_shows(void **state) {
  Place *p = *state;
  Program *m = host_model(p, true, 4);
  ProgramCode *update = &m->programs[1];
  update->cmds[5] =
      update->cmds[3]; /* waits twice for the weight, never for the gradient behind it */
  TrainOptions soon = options(p, "soon"), late = options(p, "late");
  late.poison = true;
  runs(m, &soon, EXIT_OK);
  runs(m, &late, EXIT_STOPPED); /* gradients are NaN */
}

static void either_resumes_the_other_after_a_kill(void **state) {
  Place *p = *state;
  Program *device = text_model(p, 2, 3, 20), *host = host_model(p, true, 20);
  TrainOptions whole = options(p, "whole");
  runs(device, &whole, EXIT_OK);
  for (int first = 0; first < 2; first++) {
    TrainOptions o = options(p, first ? "to-device" : "to-host");
    int status = run(first ? host : device, &o, "step:11");
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    o.resume = true;
    runs(first ? device : host, &o, EXIT_OK);
    same_checkpoint(p, &whole, &o, 20);
  }
}

static int entries_with(const char *dir, const char *word) {
  int n = 0;
  DIR *d = opendir(dir);
  for (struct dirent *e; d && (e = readdir(d));) n += strstr(e->d_name, word) != NULL;
  if (d) closedir(d);
  return n;
}

/* The arenas are anonymous: whoever dies leaves its folder and nothing else. */
static void a_kill_leaves_nothing(void **state) {
  Place *p = *state;
  Program *m = host_model(p, true, 100000);
  TrainOptions o = options(p, "run");
  o.no_checkpoint = true;
  int status, left = entries_with("/dev/shm", "mtc");
  pid_t pid = start(m, &o, "step:3");
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  assert_int_equal(entries_with("/dev/shm", "mtc"), left);
  assert_int_equal(entries_with("/dev/shm", arena_printf(p->a, "%d", (int)pid)), 0);
  assert_int_equal(entries_with(o.dir, ""), 4); /* ., .., model.mtx, metrics.jsonl */
}

static void no_checkpoint_means_none(void **state) {
  Place *p = *state;
  Program *m = host_model(p, true, 12);
  TrainOptions o = options(p, "run");
  o.no_checkpoint = true;
  runs(m, &o, EXIT_OK);
  int lines;
  metric(p, &o, 0, "loss", &lines);
  assert_int_equal(lines, 12);
  assert_int_equal(entries_with(o.dir, "mtck"), 0);
  o.resume = true, o.no_checkpoint = false;
  runs(m, &o, EXIT_OK); /* from the start, as there is nothing to go on from */
  assert_int_equal(entries_with(o.dir, "mtck"), 2);
}

/* The disk is full before the first step, not after the last. */
static void a_checkpoint_without_room_is_refused(void **state) {
  Place *p = *state;
  Program *m = host_model(p, true, 5);
  assert_int_equal(checkpoint_size(m), 2 * 4096 + 64);
  m->vars[TOY_M].at.dim[0] = (int64_t)1 << 50;
  TrainOptions o = options(p, "run");
  runs(m, &o, EXIT_IO);
  assert_false(path_exists(arena_printf(p->a, "%s/metrics.jsonl", o.dir)));
}

static void without_copies_times_count_and_nothing_else(void **state) {
  Place *p = *state;
  Program *m = host_model(p, true, 12);
  TrainOptions o = options(p, "run");
  o.no_copies = true;
  runs(m, &o, EXIT_USAGE);
  o.dry_run = 3, o.dir = NULL;
  runs(m, &o, EXIT_OK);
}

static double number(const json_t *v, const char *key) {
  return json_number_value(json_object_get(v, key));
}

static void a_profile_has_a_row_for_each_direction(void **state) {
  Place *p = *state;
  Program *m = host_model(p, true, 12);
  const char *file = arena_printf(p->a, "%s/p.json", p->dir);
  TrainOptions o = options(p, "run");
  o.dry_run = 2, o.dir = NULL, o.profile = file;
  runs(m, &o, EXIT_OK);
  json_error_t e;
  json_t *trace = json_load_file(file, 0, &e), *v;
  assert_non_null(trace);
  size_t i;
  int copies[5] = {0}, named = 0;
  double compute_end = 0;
  json_array_foreach(json_object_get(trace, "traceEvents"), i, v) {
    const char *name = json_string_value(json_object_get(v, "name")),
               *cat = json_string_value(json_object_get(v, "cat"));
    if (!strcmp(name, "thread_name")) {
      const char *row = json_string_value(json_object_get(json_object_get(v, "args"), "name"));
      named += strstr(row, "to the device") || strstr(row, "to the host");
    }
    int row = (int)number(v, "tid");
    if (cat && !strcmp(cat, "program")) compute_end = number(v, "ts") + number(v, "dur");
    if (!cat || strcmp(cat, "copy") || row < 3) continue;
    const json_t *args = json_object_get(v, "args");
    assert_true(number(args, "bytes") == 4 * TOY_V * TOY_V && number(args, "GB/s") >= 0);
    assert_true(!strcmp(name, "w") || !strcmp(name, "w:m") || !strcmp(name, "w:grad"));
    copies[row]++;
  }
  assert_int_equal(named, 2);
  assert_int_equal(copies[3], 3 * 2 + 3); /* three micro-batches, one update */
  assert_int_equal(copies[4], 3 * 2 + 3);
  assert_true(compute_end > 0);
  json_decref(trace);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(residency_changes_no_bit),
      TEST(a_missing_wait_shows),
      TEST(either_resumes_the_other_after_a_kill),
      TEST(a_kill_leaves_nothing),
      TEST(no_checkpoint_means_none),
      TEST(a_checkpoint_without_room_is_refused),
      TEST(without_copies_times_count_and_nothing_else),
      TEST(a_profile_has_a_row_for_each_direction),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
