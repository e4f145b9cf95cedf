/* test_target_file.c - calibrated targets: what is written is read back, faulty files are refused
 * with a reason, and the classes of kernels have names of their own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "codegen/target_file.h"

static const char *write_text(Arena *a, const char *text) {
  char *path = arena_printf(a, "/tmp/mtc_target_%d.json", (int)getpid());
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  fputs(text, f);
  fclose(f);
  return path;
}

static void what_is_written_is_read_back(void **state) {
  (void)state;
  Arena *a = arena_new();
  Target t = *target_by_name("rtx3090");
  t.overhead_bytes = 401 << 20;
  t.usable_bytes = 123456789;
  t.copy_gbs = 812.5;
  t.launch_us = 2.25;
  t.moving = 0.875;
  t.gemm_depth = 192;
  for (int c = 0; c < KC_COUNT; c += 3) t.speed[c] = 0.5 + c / 64.0;
  const TargetMeasure m[] = {{.cls = KC_ROWS, .commands = 12, .seconds = 0.25, .gbs = 700}};
  const char *path = write_text(a, ""), *why;
  assert_true(target_write(&t, "some GPU", m, COUNT_OF(m), path));
  const Target *back = target_read(a, path, &why);
  assert_non_null(back);
  assert_string_equal(back->file, path);
  Target expected = t;
  expected.file = back->file;
  assert_memory_equal(back, &expected, sizeof expected);
  unlink(path);
  arena_free(a);
}

static void what_is_left_out_is_the_base_row(void **state) {
  (void)state;
  Arena *a = arena_new();
  const char *why,
      *path = write_text(a, "{\"schema\":\"mtc.target/1\",\"base\":\"h200\",\"launch_us\":7}");
  const Target *t = target_read(a, path, &why);
  assert_non_null(t);
  Target expected = *target_by_name("h200");
  expected.launch_us = 7;
  expected.file = t->file;
  assert_memory_equal(t, &expected, sizeof expected);
  unlink(path);
  arena_free(a);
}

static void faulty_files_are_refused(void **state) {
  (void)state;
#define HEAD "{\"schema\":\"mtc.target/1\",\"base\":\"h200\","
  static const struct {
    const char *text, *why;
  } faulty[] = {
      {"{", "line 1"},
      {"[1]", "no target file"},
      {"{\"schema\":\"mtc.plan/1\"}", "no target file"},
      {"{\"schema\":\"mtc.target/1\",\"base\":\"h2000\"}", "names no target"},
      {HEAD "\"launch_ms\":1}", "`launch_ms` is not known"},
      {HEAD "\"launch_us\":-1}", "`launch_us` is a number"},
      {HEAD "\"copy_gbs\":\"fast\"}", "`copy_gbs` is a number"},
      {HEAD "\"overhead_bytes\":1.5}", "whole number of bytes"},
      {HEAD "\"efficiency\":{\"luck\":1}}", "`luck` is no efficiency"},
      {HEAD "\"speed\":{\"rows\":0}}", "`rows` is a number"},
      {HEAD "\"speed\":{\"waltz\":1}}", "`waltz` is no class"},
  };
  for (int i = 0; i < COUNT_OF(faulty); i++) {
    Arena *a = arena_new();
    const char *why = NULL, *path = write_text(a, faulty[i].text);
    if (target_read(a, path, &why)) fail_msg("was read: %s", faulty[i].text);
    if (!why || !strstr(why, faulty[i].why)) fail_msg("%s: %s", faulty[i].text, why);
    unlink(path);
    arena_free(a);
  }
  Arena *a = arena_new();
  const char *why;
  assert_null(target_read(a, "/nonexistent/t.json", &why));
  assert_non_null(strstr(why, "cannot be read"));
  arena_free(a);
}

static void classes_are_distinct(void **state) {
  (void)state;
  for (int c = 0; c < KC_COUNT; c++)
    for (int d = 0; d < c; d++) assert_string_not_equal(kernel_class_name(c), kernel_class_name(d));
  assert_string_equal(kernel_class_name(kernel_class_gemm(4, 2047)), "gemm waves>=4 depth<2048");
  assert_string_equal(kernel_class_name(kernel_class_gemm(0.5, 64)), "gemm waves<1 depth<512");
  assert_string_equal(kernel_class_name(kernel_class_attention(true, 64, 1024)),
                      "attention backward head<=64 length<=1024");
  assert_string_equal(kernel_class_name(kernel_class_attention(false, 128, 8192)),
                      "attention forward head>96 length>4096");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_written_is_read_back),
      cmocka_unit_test(what_is_left_out_is_the_base_row),
      cmocka_unit_test(faulty_files_are_refused),
      cmocka_unit_test(classes_are_distinct),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
