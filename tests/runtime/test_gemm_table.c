/* test_gemm_table.c - the table of algorithms: what is written is read, files of another machine and
 * damaged ones add nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "runtime/gemm_table.h"

static const char machine[] = "NVIDIA H200, cuBLASLt 130100";

static GemmChoice choice(uint64_t key) {
  GemmChoice c = {.key = key, .workspace = 32 << 20, .us = 12.5, .rule_us = 20};
  for (int i = 0; i < COUNT_OF(c.algo); i++) c.algo[i] = key * 0x9e3779b97f4a7c15u + (uint64_t)i;
  c.what = "1x 64x768x50257 NT bf16>f32 +=";
  return c;
}

typedef struct {
  Arena *a;
  char *folder, *path;
} Files;

static int make_files(void **state) {
  static Files f;
  char folder[] = "/tmp/mtc_products_XXXXXX";
  f.a = arena_new();
  if (!mkdtemp(folder)) return -1;
  f.folder = arena_printf(f.a, "%s", folder);
  f.path = arena_printf(f.a, "%s/new/table.txt", folder);
  *state = &f;
  return 0;
}

static int drop_files(void **state) {
  Files *f = *state;
  unlink(f->path);
  rmdir(arena_printf(f->a, "%s/new", f->folder));
  rmdir(f->folder);
  arena_free(f->a);
  return 0;
}

static void round_trip(void **state) {
  Files *f = *state;
  GemmTable t = gemm_table_new(f->a, machine), back = gemm_table_new(f->a, machine);
  assert_false(gemm_table_read(&back, f->path));
  for (uint64_t key = 1; key < 20; key++) gemm_table_put(&t, choice(key << 59 | key));
  assert_true(gemm_table_write(&t, f->path));
  assert_true(gemm_table_read(&back, f->path));
  assert_int_equal(back.all.n, t.all.n);
  for (int i = 0; i < t.all.n; i++) {
    const GemmChoice *x = &t.all.at[i], *y = gemm_table_find(&back, x->key);
    assert_non_null(y);
    assert_memory_equal(x->algo, y->algo, sizeof x->algo);
    assert_true(x->workspace == y->workspace && x->us == y->us && x->rule_us == y->rule_us);
    assert_string_equal(x->what, y->what);
  }
  assert_null(gemm_table_find(&back, 12345));
}

static void replace_and_drop(void **state) {
  Files *f = *state;
  GemmTable t = gemm_table_new(f->a, machine);
  for (uint64_t key = 1; key < 5; key++) gemm_table_put(&t, choice(key));
  GemmChoice better = choice(2);
  better.us = 1;
  gemm_table_put(&t, better);
  assert_int_equal(t.all.n, 4);
  assert_true(gemm_table_find(&t, 2)->us == 1);
  gemm_table_drop(&t, 2);
  gemm_table_drop(&t, 77);
  assert_int_equal(t.all.n, 3);
  assert_null(gemm_table_find(&t, 2));
  assert_true(gemm_table_find(&t, 3)->key == 3 && gemm_table_find(&t, 4)->key == 4);
}

/* What is read is added to what is there. */
static void another_machine(void **state) {
  Files *f = *state;
  GemmTable t = gemm_table_new(f->a, machine),
            other = gemm_table_new(f->a, "NVIDIA H200, cuBLASLt 130101");
  gemm_table_put(&t, choice(1));
  assert_true(gemm_table_write(&t, f->path));
  gemm_table_put(&other, choice(9));
  assert_false(gemm_table_read(&other, f->path));
  assert_int_equal(other.all.n, 1);
  char *a = gemm_table_path(f->a, t.machine), *b = gemm_table_path(f->a, other.machine);
  assert_string_not_equal(a, b);
}

static void damaged(void **state) {
  Files *f = *state;
  GemmTable t = gemm_table_new(f->a, machine);
  for (uint64_t key = 1; key < 4; key++) gemm_table_put(&t, choice(key));
  assert_true(gemm_table_write(&t, f->path));
  size_t size;
  char *text = read_file(f->a, f->path, &size);
  const char *first = strchr(text, '\n');
  for (size_t n = 0; n < size; n += 61) {
    /* a file cut within a line of numbers is refused whole */
    GemmTable back = gemm_table_new(f->a, machine);
    assert_true(write_file_atomic(f->path, text, n));
    bool ok = gemm_table_read(&back, f->path);
    if (n < (size_t)(first - text)) assert_false(ok);
    if (!ok) assert_int_equal(back.all.n, 0);
    for (int i = 0; i < back.all.n; i++)
      assert_memory_equal(back.all.at[i].algo, t.all.at[i].algo, sizeof t.all.at[i].algo);
  }
  text[size / 2] = 0;
  assert_true(write_file_atomic(f->path, text, size));
  assert_false(gemm_table_read(&(GemmTable){.arena = f->a, .machine = machine}, f->path));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(round_trip, make_files, drop_files),
      cmocka_unit_test_setup_teardown(replace_and_drop, make_files, drop_files),
      cmocka_unit_test_setup_teardown(another_machine, make_files, drop_files),
      cmocka_unit_test_setup_teardown(damaged, make_files, drop_files)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
