/* test_parallel.c - every piece of work is done once, whatever their number; arenas of threads join another; one text is one
 * pointer in all threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ir/base.h"
#include "ir/parallel.h"

enum { MOST = 200, WORDS = 500 };

static void count(void *arg, int i) { __atomic_fetch_add(&((int *)arg)[i], 1, __ATOMIC_RELAXED); }

static void each_once(void **state) {
  (void)state;
  static const int many[] = {0, 1, 2, 3, MOST};
  for (int k = 0; k < COUNT_OF(many); k++) {
    int done[MOST + 1] = {0};
    in_parallel(many[k], count, done);
    for (int i = 0; i <= MOST; i++) assert_int_equal(done[i], i < many[k]);
  }
}

typedef struct {
  Arena *arena[MOST];
  char *text[MOST]; /* of many sizes, some larger than a chunk */
  const char *word[MOST][WORDS];
} Results;

static void fill(void *arg, int i) {
  Results *r = arg;
  size_t n = (size_t)i * 1000 + 1;
  r->arena[i] = arena_new();
  r->text[i] = arena_alloc(r->arena[i], n);
  memset(r->text[i], 'a' + i % 26, n);
  for (int k = 0; k < WORDS; k++) r->word[i][k] = intern_printf("shared.%d", k);
}

static void arenas_join(void **state) {
  (void)state;
  Arena *a = arena_new(), *empty = arena_new();
  Results *r = arena_new_of(a, Results);
  in_parallel(MOST, fill, r);
  size_t used = arena_used(a);
  for (int i = 0; i < MOST; i++) {
    used += arena_used(r->arena[i]);
    arena_adopt(a, r->arena[i]);
  }
  arena_adopt(a, empty);
  assert_int_equal(arena_used(a), used);
  char *after = arena_alloc(a, 64);
  memset(after, 1, 64);
  for (int i = 0; i < MOST; i++) {
    assert_int_equal(r->text[i][0], 'a' + i % 26);
    assert_int_equal(r->text[i][i * 1000], 'a' + i % 26);
    for (int k = 0; k < WORDS; k++) assert_ptr_equal(r->word[i][k], r->word[0][k]);
  }
  Arena *to = arena_new(); /* that has given nothing yet */
  arena_adopt(to, a);
  assert_int_equal(r->text[MOST - 1][0], 'a' + (MOST - 1) % 26);
  arena_free(to);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_once), cmocka_unit_test(arenas_join)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
