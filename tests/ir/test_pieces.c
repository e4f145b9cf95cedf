/* test_pieces.c - formatted text without stdio is what vsnprintf writes; other formats are refused and then printed by it. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ir/base.h"
#include "ir/pieces.h"

/* Whether the format is one of pieces; its text, and that of the strings of base.h, is vsnprintf's either way. */
__attribute__((format(printf, 1, 2))) static bool check(const char *fmt, ...) {
  char want[4096];
  va_list ap;
  Pieces p;
  va_start(ap, fmt);
  bool ours = pieces_of(&p, fmt, ap);
  va_end(ap);
  va_start(ap, fmt);
  int n = vsnprintf(want, sizeof want, fmt, ap);
  va_end(ap);
  assert_in_range(n, 0, sizeof want - 1);
  if (ours) {
    char got[4096];
    assert_int_equal(p.bytes, n);
    pieces_copy(&p, got);
    assert_string_equal(got, want);
  }
  Arena *a = arena_new();
  va_start(ap, fmt);
  assert_string_equal(arena_vprintf(a, fmt, ap), want);
  va_end(ap);
  Str s = {.arena = a};
  for (int i = 0; i < 3; i++) {
    va_start(ap, fmt);
    str_vaddf(&s, fmt, ap);
    va_end(ap);
    assert_int_equal(s.len, (size_t)n * (size_t)(i + 1));
    assert_string_equal(s.text + (size_t)n * (size_t)i, want);
  }
  arena_free(a);
  return ours;
}

static void conversions(void **state) {
  (void)state;
  assert_true(check("plain"));
  assert_true(check("%s", ""));
  assert_true(check("%s.%d%%, %c%c", "h", -7, 'x', '\n'));
  assert_true(check("%d %d %d", 0, INT_MAX, INT_MIN));
  assert_true(check("%u %x", UINT_MAX, 0xc0ffeeu));
  assert_true(check("%lld %lld %lld", 0ll, LLONG_MAX, LLONG_MIN));
  assert_true(check("%llu|%llx", ULLONG_MAX, 0x123456789abcdefull));
  assert_true(check("[%.*s] [%.*s] [%.*s]", 2, "abc", 9, "abc", -1, "abc"));
  char open[3] = {'a', 'b', 'c'}; /* without a NUL */
  assert_true(check("%.*s", (int)sizeof open, open));
}

static void others(void **state) {
  (void)state;
  assert_false(check("%5d", 3));
  assert_false(check("%s %08x", "before", 3u));
  assert_false(check("%g and %s", 0.1, "after"));
  assert_false(check("%ld", 5l));
  assert_false(check("%zu", sizeof(int)));
  assert_false(check("%.3s", "abcdef"));
}

static void many_and_long(void **state) {
  (void)state;
#define FOUR "%d,%d,%d,%d,"
  assert_true(check(FOUR FOUR FOUR, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12));
  assert_false(check(FOUR FOUR FOUR FOUR FOUR, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
                     17, 18, 19, 20)); /* more pieces than there is room for */
  char text[3000];
  memset(text, 'y', sizeof text - 1);
  text[sizeof text - 1] = 0;
  assert_true(check("<%s>", text));
  assert_false(check("<%s%5d>", text, 3));
}

static void interned(void **state) {
  (void)state;
  char text[700];
  memset(text, 'z', sizeof text - 1);
  text[sizeof text - 1] = 0;
  assert_ptr_equal(intern_printf("%s.%d", "h", 12), intern("h.12"));
  assert_ptr_equal(intern_printf("%s", text), intern(text));
  assert_ptr_equal(intern_printf("%03d", 7), intern("007"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(conversions), cmocka_unit_test(others),
      cmocka_unit_test(many_and_long), cmocka_unit_test(interned)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
