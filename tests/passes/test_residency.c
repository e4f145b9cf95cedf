/* test_residency.c - what may live on the host: more host memory never raises the floor, a bound that is lowered later is
 * kept, and too little for what the model demands is told. */
#include "train_case.h"

static Job *job_with(Arena *a, const char *where) {
  Override set[] = {{"train.batch", "seqs(8)"}, {"precision.compute", "f32"}, {"memory.optimizer", where}};
  return tiny_job(a, "llama", COUNT_OF(set), set);
}

static PlanArgs args_with(int64_t host_bytes) {
  return (PlanArgs){.target = target_by_name("cpu"), .recompute = -1, .micro_batch = 4, .chunks = 1, .host_bytes = host_bytes};
}

static FitResult floor_with(Arena *a, const char *where, int64_t host_bytes) {
  PlanArgs args = args_with(host_bytes);
  args.budget_bytes = 1;
  return plan_fit(job_with(a, where), a, &args);
}

static int64_t sum(const int64_t *bytes) {
  int64_t all = 0;
  for (int c = 0; c < BC_COUNT; c++) all += bytes[c];
  return all;
}

static void more_host_memory_lowers_the_floor(void **state) {
  (void)state;
  enum { SIZES = 16 };
  Arena *a = arena_new();
  FitResult all = floor_with(a, "auto", INT64_MAX), none = floor_with(a, "auto", 0);
  assert_true(all.floor_bytes < none.floor_bytes);
  assert_int_equal(none.floor_host, 0);
  FitResult before = none;
  for (int i = 1; i <= SIZES; i++) {
    int64_t most = all.floor_host * i / SIZES;
    FitResult r = floor_with(a, "auto", most);
    /* Once gradients may move, their squares have scalars of their own. */
    int64_t scalars = round_up(r.class_bytes[BC_SCALARS] - before.class_bytes[BC_SCALARS], 4096);
    assert_true(r.floor_bytes <= before.floor_bytes + scalars);
    assert_true(r.floor_host <= most);
    assert_int_equal(sum(r.floor_host_class), r.floor_host);
    assert_int_equal(sum(r.class_bytes) + r.floor_host_class[BC_SAVED], r.floor_host + r.floor_persistent);
    before = r;
  }
  assert_int_equal(before.floor_bytes, all.floor_bytes);
  arena_free(a);
}

static void what_the_model_demands(void **state) {
  (void)state;
  Arena *a = arena_new();
  FitResult none = floor_with(a, "host", 0);
  assert_null(none.plan);
  assert_true(none.host_needed > 0);
  FitResult little = floor_with(a, "host", none.host_needed - 1), enough = floor_with(a, "host", none.host_needed);
  assert_int_equal(little.host_needed, none.host_needed);
  assert_int_equal(little.floor_bytes, 0);
  assert_int_equal(enough.host_needed, 0);
  assert_int_equal(enough.floor_host, none.host_needed);
  assert_int_equal(floor_with(a, "device", INT64_MAX).floor_host, 0);
  FILE *to = tmpfile();
  ensure(to, "a temporary file");
  plan_report(&little, to, 100, false);
  char text[512] = {0};
  rewind(to);
  assert_true(fread(text, 1, sizeof text - 1, to) > 0);
  assert_non_null(strstr(text, "memory.optimizer = host takes"));
  assert_non_null(strstr(text, "short by 1 B"));
  fclose(to);
  arena_free(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(more_host_memory_lowers_the_floor),
      cmocka_unit_test(what_the_model_demands),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
