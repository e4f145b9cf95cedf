/* test_checkpoint.c - .mtck files: round trip, any damage found, newest and prune, `only`. Runs
 * that use them are in test_train.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "folder.h"
#include "runtime/checkpoint.h"

static const float six[] = {1, 2, 3, 4, 5, 6};
static const int32_t count = 41;
static const StEntry vars[] = {
    {.name = "w", .dtype = DT_F32, .rank = 2, .dim = {2, 3}, .data = six, .bytes = 24},
    {.name = "opt.t", .dtype = DT_I32, .rank = 0, .data = &count, .bytes = 4},
};
static const TrainState full = {.step = 12,
                                .phase = 1,
                                .phase_step = 2,
                                .data = {3, 4},
                                .seed = 0xfedcba9876543210u,
                                .plan_id = 99,
                                .skipped = 5,
                                .skipped_in_row = 1};

static bool fetch(void *context, int i, void *to, Fail *f) {
  (void)f;
  const StEntry *e = (const StEntry *)context + i;
  memcpy(to, e->data, (size_t)e->bytes);
  return true;
}

static const char *write_one(Place *p, int64_t step) {
  Fail f = {0};
  TrainState s = full;
  s.step = step;
  const char *path = checkpoint_path(p->a, p->dir, step);
  if (!checkpoint_write(path, "Toy", &s, vars, 2, fetch, (void *)(uintptr_t)vars, &f))
    fail_msg("%s", f.text);
  return path;
}

static void round_trip(void **state) {
  Place *p = *state;
  Fail f = {0};
  Checkpoint *c = checkpoint_open(write_one(p, 12), &f);
  if (!c) fail_msg("%s", f.text);
  assert_memory_equal(&c->state, &full, sizeof full);
  assert_string_equal(c->model, "Toy");
  assert_int_equal(c->nvars, 2);
  const StEntry *w = checkpoint_find(c, "w");
  assert_int_equal(w->rank, 2);
  assert_int_equal(w->dim[1], 3);
  assert_memory_equal(w->data, six, sizeof six);
  assert_int_equal(*(const int32_t *)checkpoint_find(c, "opt.t")->data, 41);
  assert_null(checkpoint_find(c, "v"));
  checkpoint_close(c);
}

static void damage_is_found(void **state) {
  Place *p = *state;
  size_t n;
  char *bytes = read_file(p->a, write_one(p, 12), &n);
  for (size_t i = 0; i < n; i++) {
    Fail f = {0};
    bytes[i] ^= (char)(1 << i % 8);
    if (checkpoint_open_mem(bytes, n, "x", &f))
      fail_msg("a flip in byte %zu of %zu was accepted", i, n);
    assert_int_equal(f.code, EXIT_IO);
    bytes[i] ^= (char)(1 << i % 8);
    f.code = 0;
    assert_null(checkpoint_open_mem(bytes, i, "x", &f));
  }
}

static void newest_and_prune(void **state) {
  Place *p = *state;
  Fail f = {0};
  assert_null(checkpoint_newest(p->dir, &f));
  assert_int_equal(f.code, 0);
  for (int step = 5; step <= 30; step += 5) write_one(p, step);
  folder_file(p->a, p->dir, "step-000030.mtck.tmp-17", "x", 1);
  folder_file(p->a, p->dir, "step-000031.mtck", "damaged", 7);
  Checkpoint *c = checkpoint_newest(p->dir, &f);
  assert_int_equal(c->state.step, 30);
  checkpoint_close(c);
  checkpoint_prune(p->dir, 20, 2); /* 25, 30 and 31 belong to another past: left alone */
  static const struct {
    const char *name;
    bool there;
  } files[] = {{"step-000005.mtck", false},       {"step-000010.mtck", false},
               {"step-000015.mtck", true},        {"step-000020.mtck", true},
               {"step-000025.mtck", true},        {"step-000031.mtck", true},
               {"step-000030.mtck.tmp-17", false}};
  for (int i = 0; i < COUNT_OF(files); i++)
    assert_int_equal(path_exists(arena_printf(p->a, "%s/%s", p->dir, files[i].name)),
                     files[i].there);
  checkpoint_prune(p->dir, 30, 0); /* keep all */
  assert_true(path_exists(checkpoint_path(p->a, p->dir, 15)));
}

static void a_folder_of_damaged_ones_is_a_failure(void **state) {
  Place *p = *state;
  Fail f = {0};
  folder_file(p->a, p->dir, "step-000031.mtck", "damaged", 7);
  assert_null(checkpoint_newest(p->dir, &f));
  assert_int_equal(f.code, EXIT_IO);
  assert_non_null(strstr(f.text, "not a checkpoint"));
}

static void nothing_is_left_of_a_failed_write(void **state) {
  Place *p = *state;
  Fail f = {0};
  const char *path = arena_printf(p->a, "%s/none/step-000001.mtck", p->dir);
  assert_false(checkpoint_write(path, "Toy", &full, vars, 2, fetch, (void *)(uintptr_t)vars, &f));
  assert_int_equal(f.code, EXIT_IO);
  assert_non_null(strstr(f.text, "step-000001.mtck"));
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(round_trip),
      TEST(damage_is_found),
      TEST(newest_and_prune),
      TEST(a_folder_of_damaged_ones_is_a_failure),
      TEST(nothing_is_left_of_a_failed_write),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
