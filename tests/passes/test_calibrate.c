/* test_calibrate.c - a calibrated target tells the times that it was made from: launches, copy rate
 * and the speed of each class are found again from times that were computed with known ones. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>
#include "passes/calibrate.h"

enum { SAMPLES = 60 };

/* Loops of three classes in all sizes, products and attention. */
static int samples_of(CostSample *s, const Target *t) {
  int n = 0;
  for (int i = 0; i < 12; i++) {
    int64_t bytes = (int64_t)1 << (10 + 2 * (i % 10));
    s[n++].cost = (KernelCost){.kind = CL_LOOP, .launches = 1, .bytes = bytes, .flops = bytes / 8};
    s[n++].cost = (KernelCost){.kind = CL_LOOP, .launches = 1, .bytes = bytes, .sums = true};
    s[n++].cost =
        (KernelCost){.kind = CL_LOOP, .launches = 2, .bytes = bytes, .rows = 4096, .columns = 64};
    int64_t m = 512 << (i % 4), k = 256 << (i % 5);
    s[n++].cost = (KernelCost){.kind = CL_GEMM,
                               .type = DT_BF16,
                               .launches = 1,
                               .batch = 1,
                               .m = m,
                               .n = m,
                               .k = k,
                               .flops = 2 * m * m * k,
                               .bytes = 2 * (2 * m * k + m * m)};
    int64_t length = 256 << (i % 5);
    s[n++].cost = (KernelCost){.kind = i % 2 ? CL_ATTENTION : CL_ATTENTION_BWD,
                               .type = DT_BF16,
                               .launches = 1 + !(i % 2),
                               .batch = 64,
                               .m = length,
                               .n = length,
                               .k = 64,
                               .flops = 64 * length * length * 64 * 4,
                               .bytes = 64 * length * 64 * 8};
  }
  for (int i = 0; i < n; i++) s[i].seconds = 1e-9 * (double)cost_ns(&s[i].cost, t);
  return n;
}

static void known_times_are_found_again(void **state) {
  (void)state;
  Arena *a = arena_new();
  Target real = *target_by_name("h200");
  real.copy_gbs = 3900;
  real.launch_us = 2.5;
  for (int c = 0; c < KC_COUNT; c++) real.speed[c] = 0.6 + 0.01 * (c % 17);
  CostSample s[SAMPLES];
  TargetMeasure m[KC_COUNT];
  int n = samples_of(s, &real), measured;
  Target found = calibrate(target_by_name("h200"), s, n, 3900, m, &measured, a);
  assert_true(fabs(found.launch_us / 2.5 - 1) < 0.1);
  assert_true(measured > 8);
  double seconds = 0, told = 0;
  for (int i = 0; i < n; i++) {
    int c = cost_class(&s[i].cost, &found);
    if (found.speed[c] > 0 && fabs(found.speed[c] / real.speed[c] - 1) > 0.02)
      fail_msg("%s: speed %.3f, not %.3f", kernel_class_name(c), found.speed[c], real.speed[c]);
    seconds += s[i].seconds;
    told += 1e-9 * (double)cost_ns(&s[i].cost, &found);
  }
  assert_true(fabs(told / seconds - 1) < 0.01);
  arena_free(a);
}

static void without_samples_the_row_stays(void **state) {
  (void)state;
  Arena *a = arena_new();
  TargetMeasure m[KC_COUNT];
  int measured = -1;
  const Target *row = target_by_name("rtx4090");
  Target t = calibrate(row, NULL, 0, 0, m, &measured, a);
  assert_memory_equal(&t, row, sizeof t);
  assert_int_equal(measured, 0);
  arena_free(a);
}

/* Commands that are little but a launch change the launch, not the speed of their class. */
static void launches_say_nothing_about_speed(void **state) {
  (void)state;
  Arena *a = arena_new();
  CostSample s[8];
  for (int i = 0; i < 8; i++)
    s[i] = (CostSample){{.kind = CL_LOOP, .launches = 1, .bytes = 512}, (5 + 0.1 * i) * 1e-6};
  TargetMeasure m[KC_COUNT];
  int measured;
  Target t = calibrate(target_by_name("h200"), s, 8, 0, m, &measured, a);
  assert_true(t.launch_us > 5 && t.launch_us < 5.7);
  assert_true(t.speed[KC_MAP] == 0);
  assert_int_equal(measured, 1);
  assert_int_equal(m[0].commands, 8);
  arena_free(a);
}

/* A speed of a class moves the price of that class alone. */
static void speeds_are_by_class(void **state) {
  (void)state;
  Target t = *target_by_name("h200");
  KernelCost map = {.kind = CL_LOOP, .launches = 1, .bytes = 1 << 28}, sums = map;
  sums.sums = true;
  int64_t before = cost_ns(&map, &t), other = cost_ns(&sums, &t);
  t.speed[KC_MAP] = 0.5;
  assert_int_equal(cost_ns(&sums, &t), other);
  double launch = 1e3 * t.launch_us;
  assert_true(fabs(((double)cost_ns(&map, &t) - launch) / ((double)before - launch) - 2) < 1e-3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(known_times_are_found_again),
      cmocka_unit_test(without_samples_the_row_stays),
      cmocka_unit_test(launches_say_nothing_about_speed),
      cmocka_unit_test(speeds_are_by_class),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
