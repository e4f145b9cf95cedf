/* test_prelude.c - the functions that emitted C carries, measured against libm in f64: errors in
 * units in the last place, special values, every 16-bit float. */
#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "codegen/prelude_c.h"
#include "ir/philox.h"
#include "runtime/convert.h"
#include "runtime/cpu_cc.h"

/* name, reference, domain, bound in units in the last place */
#define FUNCTIONS(X)            \
  X(exp, exp, -104, 89, 1.5)    \
  X(exp, exp, -1, 1, 1.5)       \
  X(log, log, 1e-30, 1e30, 1.5) \
  X(log, log, 0.5, 2, 1.5)      \
  X(tanh, tanh, -10, 10, 2)     \
  X(tanh, tanh, -1, 1, 2)       \
  X(erf, erf, -5, 5, 2)         \
  X(sin, sin, -7, 7, 2)         \
  X(sin, sin, -1e6, 1e6, 2)     \
  X(cos, cos, -7, 7, 2)         \
  X(cos, cos, -1e6, 1e6, 2)

typedef void Map(float *y, const float *x, int64_t n);
typedef void Map2(float *y, const float *a, const float *b, int64_t n);
typedef uint32_t Random(uint32_t s0, uint32_t s1, int32_t step, uint64_t key, int32_t sample,
                        int64_t element);

static void *lib;

static int open_prelude(void **state) {
  (void)state;
  Arena *a = arena_new();
  Str s = {.arena = a};
  str_add(&s, prelude_c);
  str_add(&s, prelude_formats);
  static const char *const maps[] = {"exp", "log", "tanh",       "erf",
                                     "sin", "cos", "round_bf16", "round_f16"};
  for (int i = 0; i < COUNT_OF(maps); i++)
    str_addf(&s,
             "void map_%s(float *y, const float *x, int64_t n) {\n  for (int64_t i = 0; i < n; "
             "i++) y[i] = mt_%s(x[i]);\n}\n",
             maps[i], maps[i]);
  str_add(&s,
          "void map_pow(float *y, const float *a, const float *b, int64_t n) {\n"
          "  for (int64_t i = 0; i < n; i++) y[i] = mt_pow(a[i], b[i]);\n}\n"
          "uint32_t random_bits(uint32_t s0, uint32_t s1, int32_t step, uint64_t key, int32_t "
          "sample, int64_t e) {\n"
          "  return mt_random_u32(s0, s1, step, key, sample, e);\n}\n"
          "void map_from_f16(float *y, const uint16_t *x, int64_t n) {\n"
          "  for (int64_t i = 0; i < n; i++) y[i] = mt_from_f16(x[i]);\n}\n");
  const void *image;
  size_t size;
  Fail f = {0};
  if (!cpu_compile(a, s.text, &image, &size, NULL, &f)) fail_msg("%s", f.text);
  int fd = memfd_create("prelude", MFD_CLOEXEC);
  assert_true(fd >= 0 && write(fd, image, size) == (ssize_t)size);
  lib = dlopen(arena_printf(a, "/proc/self/fd/%d", fd), RTLD_NOW);
  close(fd);
  arena_free(a);
  return lib ? 0 : -1;
}

/* Distance in units in the last place of the f32 nearest to `want`. */
static double ulps(float got, double want) {
  if (isnan(want)) return isnan(got) ? 0 : INFINITY;
  if (isinf((float)want) || got == (float)want) return got == (float)want ? 0 : INFINITY;
  float size = fmaxf(fabsf((float)want), 0x1p-126f);
  return fabs((double)got - want) / ldexp(1, ilogbf(size) - 23);
}

static void check_function(const char *name, double (*ref)(double), double lo, double hi,
                           double bound) {
  enum { N = 200000 };
  static float x[N], y[N];
  char symbol[32];
  snprintf(symbol, sizeof symbol, "map_%s", name);
  Map *map = (Map *)dlsym(lib, symbol);
  assert_non_null(map);
  static const float special[] = {0,      -0.0f,   INFINITY, -INFINITY, NAN,
                                  1e-40f, -1e-40f, 1,        -1,        3e38f};
  for (int i = 0; i < N; i++) x[i] = (float)(lo + (hi - lo) * i / N);
  bool periodic = !strcmp(name, "sin") || !strcmp(name, "cos");
  for (int i = 0; i < COUNT_OF(special) - periodic; i++) x[i] = special[i];
  map(y, x, N);
  for (int i = 0; i < N; i++)
    if (!(ulps(y[i], ref(x[i])) <= bound))
      fail_msg("%s(%.9g) is %.9g, should be %.9g: %.2f units", name, x[i], y[i], ref(x[i]),
               ulps(y[i], ref(x[i])));
}

static void functions_are_accurate(void **state) {
  (void)state;
#define X(name, ref, lo, hi, bound) check_function(#name, ref, lo, hi, bound);
  FUNCTIONS(X)
#undef X
}

static void powers(void **state) {
  (void)state;
  static const float base[] = {0,  -0.0f, INFINITY, -INFINITY, NAN,  1e-40f, 3e38f, 1,
                               -1, 2,     -2,       3,         0.5f, -0.5f,  7.25f, 1e-5f};
  static const float power[] = {0,  -0.0f, INFINITY, -INFINITY, NAN, 1,      -1,   2,
                                -2, 3,     0.5f,     -0.5f,     -3,  10.75f, 1e9f, 37};
  enum { N = COUNT_OF(base) * COUNT_OF(power) };
  float a[N], b[N], y[N];
  for (int i = 0; i < N; i++) {
    a[i] = base[i / COUNT_OF(power)];
    b[i] = power[i % COUNT_OF(power)];
  }
  ((Map2 *)dlsym(lib, "map_pow"))(y, a, b, N);
  for (int i = 0; i < N; i++) {
    double want = pow(a[i], b[i]);
    if (!(ulps(y[i], want) <= 1.5) || (want == 0 && !signbit(want) != !signbit(y[i])))
      fail_msg("pow(%g, %g) is %.9g, should be %.9g", a[i], b[i], y[i], want);
  }
}

static void short_floats(void **state) {
  (void)state;
  enum { N = 65536 };
  static uint16_t h[N];
  static float y[N], x[N];
  for (int i = 0; i < N; i++) h[i] = (uint16_t)i;
  ((void (*)(float *, const uint16_t *, int64_t))dlsym(lib, "map_from_f16"))(y, h, N);
  for (int i = 0; i < N; i++) {
    float want = f16_to_f32((uint16_t)i);
    if (memcmp(&want, &y[i], 4) && !(isnan(want) && isnan(y[i])))
      fail_msg("f16 0x%04x is %g", i, y[i]);
  }
  for (int round = 0; round < 64; round++) {
    for (int i = 0; i < N; i++) {
      uint32_t bits = (uint32_t)i * 65537u + (uint32_t)round * 1021u;
      memcpy(&x[i], &bits, 4);
    }
    ((Map *)dlsym(lib, "map_round_bf16"))(y, x, N);
    for (int i = 0; i < N; i++) {
      float want = bf16_to_f32(f32_to_bf16(x[i]));
      if (memcmp(&want, &y[i], 4) && !(isnan(want) && isnan(y[i])))
        fail_msg("%.9g as bf16 is %.9g", x[i], y[i]);
    }
    ((Map *)dlsym(lib, "map_round_f16"))(y, x, N);
    for (int i = 0; i < N; i++) {
      float want = f16_to_f32(f32_to_f16(x[i]));
      if (memcmp(&want, &y[i], 4) && !(isnan(want) && isnan(y[i])))
        fail_msg("%.9g as f16 is %.9g", x[i], y[i]);
    }
  }
}

static void random_bits_are_philox(void **state) {
  (void)state;
  Random *draw = (Random *)dlsym(lib, "random_bits");
  for (int64_t e = 0; e < 50; e++)
    for (int i = 0; i < 3; i++) {
      int64_t element = e + (i == 2 ? (int64_t)1 << 35 : 0);
      uint64_t key = i ? 0xfedcba9876543210u : 5;
      assert_int_equal(
          draw(1337, 42, 9, key, i * 1000, element),
          philox_bits(1337, 42, key, 9, (unsigned)i * 1000, (unsigned long long)element));
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(functions_are_accurate),
                                     cmocka_unit_test(powers), cmocka_unit_test(short_floats),
                                     cmocka_unit_test(random_bits_are_philox)};
  return cmocka_run_group_tests(tests, open_prelude, NULL);
}
