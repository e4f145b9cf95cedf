/* test_philox.c - the generator against the known answers of Random123, and what counters and keys
 * are made of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "ir/philox.h"

static void known_answers(void **state) {
  (void)state;
  static const unsigned rows[][10] = {
      {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
      {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
      {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09,
       0x94fdcceb, 0x5001e420, 0x24126ea1},
  };
  for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
    unsigned c[4] = {rows[i][0], rows[i][1], rows[i][2], rows[i][3]};
    philox4x32_10(c, rows[i][4], rows[i][5]);
    for (int k = 0; k < 4; k++) assert_int_equal(c[k], rows[i][6 + k]);
  }
}

static void counters(void **state) {
  (void)state;
  unsigned long long element = (5ull << 34) + (7 << 2) + 3; /* word 3 of block 5 * 2^32 + 7 */
  unsigned c[4] = {7, 5, 11, 13};
  philox4x32_10(c, 0x100 ^ 0x4321, 0x200 ^ 0x8765);
  assert_int_equal(philox_bits(0x100, 0x200, 0x876500004321, 13, 11, element), c[3]);
}

static void uniforms(void **state) {
  (void)state;
  assert_true(philox_uniform(0) == 0);
  assert_true(philox_uniform(255) == 0);
  assert_true(philox_uniform(256) == 0x1p-24f);
  assert_true(philox_uniform(~0u) == 1 - 0x1p-24f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(known_answers),
      cmocka_unit_test(counters),
      cmocka_unit_test(uniforms),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
