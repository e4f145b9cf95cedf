/* test_schedule.c - learning rates at the places that matter; steps from epochs; random numbers of
 * initial weights. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>

#include "runtime/convert.h"
#include "runtime/rng.h"
#include "runtime/schedule.h"

static ProgramPhase phase(int kind, double warmup) {
  return (ProgramPhase){.lr = 1e-3,
                        .sched_kind = kind,
                        .warmup = warmup,
                        .final = 0.1,
                        .cycles = 1,
                        .decay = 0.2,
                        .micro_batch = 3,
                        .accumulation = 4};
}

static void near(double got, double want) {
  if (fabs(got - want) > 1e-12) fail_msg("got %.15g, want %.15g", got, want);
}

static void warmup_rises_to_the_full_rate(void **state) {
  (void)state;
  for (int kind = RS_CONSTANT; kind <= RS_WSD; kind++) {
    ProgramPhase p = phase(kind, 100);
    near(schedule_lr(&p, 2000, 0), 1e-5);
    near(schedule_lr(&p, 2000, 49), 5e-4);
    near(schedule_lr(&p, 2000, 99), 1e-3);
    near(schedule_lr(&p, 2000, 100), 1e-3);
    p.warmup = 0.05; /* the same as a share */
    near(schedule_lr(&p, 2000, 49), 5e-4);
    p.warmup = 0;
    near(schedule_lr(&p, 2000, 0), 1e-3);
  }
}

static void ends_are_as_set(void **state) {
  (void)state;
  ProgramPhase p = phase(RS_COSINE, 100);
  near(schedule_lr(&p, 2100, 1100), 0.55e-3); /* half-way */
  near(schedule_lr(&p, 1100, 600), 0.55e-3);
  assert_true(schedule_lr(&p, 2100, 2099) < 1.01e-4);
  p.final = 2e-4, p.final_is_lr = true;
  assert_true(fabs(schedule_lr(&p, 2100, 2099) - 2e-4) < 1e-8);
  p.cycles = 2; /* restarts at the full rate half-way */
  near(schedule_lr(&p, 2100, 1100), 1e-3);
  p = phase(RS_LINEAR, 0);
  near(schedule_lr(&p, 100, 50), 0.55e-3);
  p = phase(RS_WSD, 10);
  near(schedule_lr(&p, 100, 79), 1e-3);
  near(schedule_lr(&p, 100, 90), 0.55e-3);
  p = phase(RS_RSQRT, 100);
  near(schedule_lr(&p, 1000, 10), 1e-3);
  near(schedule_lr(&p, 1000, 399), 0.5e-3);
  p = phase(RS_CONSTANT, 0);
  near(schedule_lr(&p, 1000, 999), 1e-3);
}

static void epochs_become_steps(void **state) {
  (void)state;
  ProgramPhase p = phase(RS_CONSTANT, 0);
  p.epochs = 2;
  assert_int_equal(schedule_steps(&p, 120), 20);
  assert_int_equal(schedule_steps(&p, 121), 21);
  assert_int_equal(schedule_steps(&p, 1), 1);
  p.epochs = 0.5;
  assert_int_equal(schedule_steps(&p, 120), 5);
  p.steps = 7;
  assert_int_equal(schedule_steps(&p, 120), 7);
}

/* Known answers of Philox4x32-10 (Random123's kat_vectors). */
static void philox_known_answers(void **state) {
  (void)state;
  uint32_t out[4];
  rng_philox(0, 0, 0, out);
  assert_int_equal(out[0], 0x6627e8d5);
  assert_int_equal(out[3], 0x9b00dbd8);
  rng_philox(0xffffffffffffffffu, 0xffffffffffffffffu, 0xffffffffffffffffu, out);
  assert_int_equal(out[0], 0x408f276d);
  assert_int_equal(out[3], 0x6d5451fd);
  rng_philox(0x299f31d0a4093822u, 0x85a308d3243f6a88u, 0x0370734413198a2eu, out);
  assert_int_equal(out[0], 0xd16cfe09);
  assert_int_equal(out[3], 0x24126ea1);
}

static void normals_do_not_depend_on_the_cut(void **state) {
  (void)state;
  static float whole[20001], parts[20001];
  rng_normals(5, 9, 0, 20001, 1, 2, whole);
  for (int64_t at = 0, n = 1; at < 20001; at += n, n = n % 7 + 1)
    rng_normals(5, 9, (uint64_t)at, 20001 - at < n ? 20001 - at : n, 1, 2, parts + at);
  assert_memory_equal(whole, parts, sizeof whole);
  double sum = 0, square = 0;
  for (int i = 0; i < 20001; i++) sum += whole[i], square += (whole[i] - 1.0) * (whole[i] - 1.0);
  assert_true(fabs(sum / 20001 - 1) < 0.05);
  assert_true(fabs(square / 20001 - 4) < 0.15);
}

/* Against the C library in a wider type: at most the rounding to f32 is between them. */
static void normals_are_those_of_box_and_muller(void **state) {
  (void)state;
  enum { N = 100000 };
  static float got[N];
  const long double turn = 6.283185307179586476925286766559L;
  rng_normals(3, 9, 0, N, 0, 1, got);
  for (int i = 0; i < N; i++) {
    long double u = rng_uniform(3, 9, (uint64_t)i & ~1u), v = rng_uniform(3, 9, (uint64_t)i | 1);
    long double r = sqrtl(-2 * logl(1 - u)), want = r * (i % 2 ? sinl(turn * v) : cosl(turn * v));
    assert_true(fabsl(got[i] - want) <= 6e-8L * fabsl(want) + 1e-15L);
  }
}

static void halves_round_to_nearest_even(void **state) {
  (void)state;
  static const struct {
    float x;
    uint16_t bf16, f16;
  } cases[] = {
      {0, 0, 0},
      {-0.0f, 0x8000, 0x8000},
      {1, 0x3f80, 0x3c00},
      {65504, 0x4780, 0x7bff},
      {65520, 0x4780, 0x7c00},
      {1e-8f, 0x322c, 0},
      {0x1p-24f, 0x3380, 0x0001},
      {0x1p-25f, 0x3300, 0},
      {0x1.8p-24f, 0x33c0, 0x0002},
      {1.00390625f, 0x3f80, 0x3c04},
      {1.01171875f, 0x3f82, 0x3c0c},
      {INFINITY, 0x7f80, 0x7c00},
      {3.3895314e38f, 0x7f7f, 0x7c00},
      {3.4e38f, 0x7f80, 0x7c00},
  };
  for (int i = 0; i < COUNT_OF(cases); i++) {
    assert_int_equal(f32_to_bf16(cases[i].x), cases[i].bf16);
    assert_int_equal(f32_to_f16(cases[i].x), cases[i].f16);
  }
  for (uint32_t h = 0; h < 0x10000; h++) {
    float a = f16_to_f32((uint16_t)h), b = bf16_to_f32((uint16_t)h);
    if (!isnan(a)) assert_int_equal(f32_to_f16(a), h);
    if (!isnan(b)) assert_int_equal(f32_to_bf16(b), h);
    assert_true(!isnan(a) || isnan(f16_to_f32(f32_to_f16(a))));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(warmup_rises_to_the_full_rate),
      cmocka_unit_test(ends_are_as_set),
      cmocka_unit_test(epochs_become_steps),
      cmocka_unit_test(philox_known_answers),
      cmocka_unit_test(normals_do_not_depend_on_the_cut),
      cmocka_unit_test(normals_are_those_of_box_and_muller),
      cmocka_unit_test(halves_round_to_nearest_even),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
