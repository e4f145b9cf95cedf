/* test_pass_table.c - letters and names of the passes, and the dumps of their graphs. */
#include <ctype.h>

#include "train_case.h"

#include "passes/pass_table.h"

static void letters(void **state) {
  (void)state;
  for (int p = 0; p < PASS_COUNT; p++) {
    assert_true(isupper((unsigned char)pass_letter((PassId)p)));
    assert_true(strlen(pass_doc((PassId)p)) > 8);
    for (int q = 0; q < p; q++) {
      assert_int_not_equal(pass_letter((PassId)p), pass_letter((PassId)q));
      assert_string_not_equal(pass_name((PassId)p), pass_name((PassId)q));
    }
  }
  assert_string_equal(pass_name(PASS_REMAT), "remat");
}

static void unknown_letter(void **state) {
  (void)state;
  char bad = 0;
  assert_false(pass_dump("?", stderr, &bad));
  assert_int_equal(bad, '?');
}

/* What is dumped is the graph in text form: it can be read again. */
static void dumps(void **state) {
  (void)state;
  static const Override f32[] = {{"precision.compute", "f32"}};
  Arena *a = arena_new();
  char *text = NULL, bad;
  size_t size = 0;
  FILE *to = open_memstream(&text, &size);
  assert_true(pass_dump("R", to, &bad));
  Job *job = tiny_job(a, "gpt2", 1, f32);
  train_graphs(job, a, &(GraphChoice){.micro_batch = 1, .chunks = 1, .micro_only = true});
  pass_times(to);
  fclose(to);
  assert_true(str_starts(text, "# micro after remat\n"));
  const char *graph = strchr(text, '\n') + 1, *end = strstr(graph, "\n\n"), *why = NULL;
  assert_non_null(end);
  Graph *g = graph_read(a, graph, (size_t)(end - graph) + 1, &why);
  if (!g) fail_msg("%s", why);
  assert_null(graph_verify(g, a));
  assert_non_null(strstr(end, "R remat"));
  free(text);
  arena_free(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(letters), cmocka_unit_test(unknown_letter),
                                     cmocka_unit_test(dumps)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
