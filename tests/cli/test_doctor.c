/* test_doctor.c - `mtc doctor` from the outside: its JSON is its schema, its exit code says whether
 * anything can train, and what is missing has a remedy. Runs with and without a GPU. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <cmocka.h>
#include "ir/base.h"
#include "tests/support/command.h"
#include "tests/support/schema.h"

static json_t *part(const json_t *o, const char *key) {
  return json_object_get(o, key);
}

static void json_is_its_schema(void **state) {
  (void)state;
  Arena *a = arena_new();
  int code;
  json_error_t e;
  json_t *o = json_loads(command_output(a, MTC_BINARY " doctor --json", &code), 0, &e);
  json_t *schema = json_load_file(MTC_SOURCE_DIR "/docs/schema/doctor.json", 0, &e);
  assert_non_null(o);
  assert_non_null(schema);
  validate(schema, o, "doctor");
  bool gpu = json_is_true(part(part(o, "gpu"), "trains")),
       cpu = json_is_true(part(part(o, "cpu"), "trains"));
  assert_int_equal(code, gpu || cpu ? 0 : 4);
  assert_int_equal(json_is_null(part(part(o, "gpu"), "why")), gpu);
  assert_true(json_integer_value(part(part(o, "host"), "ram_bytes")) > 0);
  assert_true(json_integer_value(part(part(o, "host"), "cores")) >= 1);
  json_decref(o);
  json_decref(schema);
  arena_free(a);
}

/* No compiler, no libraries: nothing can train, and each line says why. */
static void nothing_to_train_with_exits_with_4(void **state) {
  (void)state;
  Arena *a = arena_new();
  int code;
  const char *out = command_output(
      a,
      "d=$(mktemp -d); PATH=$d HOME=$d XDG_CACHE_HOME=$d CUDA_VISIBLE_DEVICES= " MTC_BINARY
      " doctor; x=$?; rm -rf $d; exit $x",
      &code);
  assert_int_equal(code, 4);
  assert_non_null(strstr(out, "nothing here can train"));
  assert_non_null(strstr(out, "gpu      cannot train: "));
  assert_non_null(strstr(out, "cpu      cannot train: "));
  assert_non_null(strstr(out, "install gcc or clang"));
  arena_free(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(json_is_its_schema),
      cmocka_unit_test(nothing_to_train_with_exits_with_4),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
