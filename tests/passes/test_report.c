/* test_report.c - the report: the ledger adds up, text and JSON agree, the JSON is what its schema
 * says, reasons are found, infeasible budgets name the floor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>
#include "passes/plan.h"
#include "tests/support/planned.h"
#include "tests/support/schema.h"

typedef struct {
  Arena *a;
  FitResult r;
} Fixture;

static Fixture plan_of(const char *file, const char *target, int64_t budget) {
  Fixture f = {.a = arena_new()};
  f.r = planned(f.a, file, target, budget);
  return f;
}

/* What `print` writes, as a string in the arena. */
static char *text_of(Fixture *f, const char *what, const char *path) {
  char *text = NULL;
  size_t size = 0;
  FILE *to = open_memstream(&text, &size);
  if (!strcmp(what, "report")) plan_report(&f->r, to, 100, false);
  if (!strcmp(what, "json")) plan_report_json(&f->r, to);
  if (!strcmp(what, "why")) assert_true(plan_why(&f->r, path, to));
  if (!strcmp(what, "plan")) plan_print(f->r.plan, to);
  if (!strcmp(what, "csv")) plan_print_csv(f->r.plan, 0, to);
  fclose(to);
  char *kept = arena_printf(f->a, "%s", text);
  free(text);
  return kept;
}

static json_t *json_of(Fixture *f) {
  json_error_t e;
  json_t *o = json_loads(text_of(f, "json", NULL), 0, &e),
         *schema = json_load_file(MTC_SOURCE_DIR "/docs/schema/plan.json", 0, &e);
  assert_non_null(o);
  assert_non_null(schema);
  validate(schema, o, "plan");
  json_decref(schema);
  return o;
}

static int64_t number(const json_t *o, const char *key) {
  return json_integer_value(json_object_get(o, key));
}

/* ---- tests ---- */

static void the_ledger_adds_up(void **state) {
  (void)state;
  const char *target[] = {"cpu", "rtx3090"};
  for (int i = 0; i < 2; i++) {
    Fixture f = plan_of("char.mt", target[i], (int64_t)2 << 30);
    json_t *o = json_of(&f), *ledger = json_object_get(o, "ledger");
    int64_t sum = 0;
    for (size_t k = 0; k < json_array_size(ledger); k++)
      sum += number(json_array_get(ledger, k), "bytes");
    assert_int_equal(sum, number(o, "peak_bytes"));
    assert_true(number(o, "peak_bytes") <= number(o, "budget_bytes"));
    assert_int_equal(number(o, "params"), 834304);
    assert_int_equal(number(o, "micro_batch") * number(o, "accumulation"), 12);
    assert_true(json_is_true(json_object_get(o, "fits")));
    json_decref(o);
    arena_free(f.a);
  }
}

/* The rows of the text, rounded to 0.1 MiB, add up to its total; shares and slack to the budget. */
static void the_text_adds_up(void **state) {
  (void)state;
  Fixture f = plan_of("char.mt", "rtx3090", INT64_MAX);
  char *text = text_of(&f, "report", NULL);
  double sum = 0, share = 0, total = -1, slack = -1, total_share = 0, slack_share = 0;
  bool inside = false;
  for (char *line; (line = strsep(&text, "\n"));) {
    if (strstr(line, "at the peak")) inside = true;
    if (strncmp(line, "  arena", 7) == 0) inside = false;
    double mib, percent;
    if (!inside || strlen(line) < 60 || sscanf(line + 53, "%lf %lf", &mib, &percent) != 2) continue;
    if (!strncmp(line, "  total", 7))
      total = mib, total_share = percent;
    else if (!strncmp(line, "  slack", 7))
      slack = mib, slack_share = percent;
    else
      sum += mib, share += percent;
  }
  assert_true(total > 0 && slack >= 0);
  assert_true(sum > total - 0.7 && sum < total + 0.7);
  assert_true(share > total_share - 0.7 && share < total_share + 0.7);
  assert_true(total_share + slack_share > 99.8 && total_share + slack_share < 100.2);
  arena_free(f.a);
}

static void text_and_json_agree(void **state) {
  (void)state;
  Fixture f = plan_of("char.mt", "cpu", 20 << 20);
  json_t *o = json_of(&f);
  const char *text = text_of(&f, "report", NULL);
  assert_non_null(strstr(text, json_string_value(json_object_get(o, "plan"))));
  const char *peak = arena_printf(f.a, "%.1f", (double)number(o, "peak_bytes") / (1 << 20));
  assert_non_null(strstr(text, peak));
  assert_non_null(strstr(text, "834,304 params"));
  assert_non_null(strstr(text, arena_printf(f.a, "= %lld x 64 x %lld accumulation",
                                            (long long)number(o, "micro_batch"),
                                            (long long)number(o, "accumulation"))));
  json_decref(o);
  arena_free(f.a);
}

static void rebuilt_layers_are_grouped(void **state) {
  (void)state;
  Fixture less = plan_of("char.mt", "cpu", 1);
  Fixture f = plan_of("char.mt", "cpu", less.r.floor_bytes);
  arena_free(less.a);
  json_t *o = json_of(&f), *rebuilt = json_object_get(o, "rebuilt");
  assert_true(json_array_size(rebuilt) > 0);
  const char *text = text_of(&f, "report", NULL);
  assert_non_null(strstr(text, "recompute       h["));
  assert_non_null(strstr(text, "total  "));
  json_decref(o);
  arena_free(f.a);
}

static void too_little_names_the_floor(void **state) {
  (void)state;
  Fixture f = plan_of("char.mt", "cpu", 8 << 20);
  assert_null(f.r.plan);
  json_t *o = json_of(&f);
  assert_true(json_is_false(json_object_get(o, "fits")));
  assert_int_equal(number(o, "floor_bytes") - number(o, "budget_bytes"),
                   number(o, "shortfall_bytes"));
  assert_null(json_object_get(o, "peak_bytes"));
  const char *text = text_of(&f, "report", NULL);
  assert_non_null(strstr(text, "error[E0501]: no plan fits 8 MiB"));
  assert_non_null(strstr(text, "already over budget"));
  /* The first budget that it suggests works. */
  const char *vram = strstr(text, "--vram ");
  assert_non_null(vram);
  int64_t bytes;
  char *size = arena_printf(f.a, "%.*s", (int)strcspn(vram + 7, " "), vram + 7);
  assert_true(parse_bytes(size, 0, &bytes));
  assert_true(bytes >= f.r.floor_bytes);
  Fixture g = plan_of("char.mt", "cpu", bytes);
  assert_non_null(g.r.plan);
  json_decref(o);
  arena_free(f.a);
  arena_free(g.a);
}

static void reasons_are_given(void **state) {
  (void)state;
  Fixture f = plan_of("char.mt", "cpu", 15 << 20);
  const char *text = text_of(&f, "why", "h.2.c_fc");
  assert_non_null(strstr(text, "h.2.c_fc.w"));
  assert_non_null(strstr(text, "`compute = f32`"));
  assert_true(strstr(text, "rebuilt") != NULL);
  assert_null(strstr(text, "h.3.c_fc"));
  FILE *null = fopen("/dev/null", "w");
  assert_false(plan_why(&f.r, "h.2.c_f", null));
  fclose(null);
  arena_free(f.a);
}

/* The plan's text has every step; its CSV every buffer of the program, and no two rows overlap. */
static void plans_print_whole(void **state) {
  (void)state;
  Fixture f = plan_of("char.mt", "cpu", 20 << 20);
  const PlanProgram *p = &f.r.plan->programs.at[0];
  const char *text = text_of(&f, "plan", NULL);
  assert_non_null(strstr(text, arena_printf(f.a, "program 0 micro  %d steps", p->nsteps)));
  long long row[2000][5];
  int n = 0;
  char *csv = text_of(&f, "csv", NULL);
  strsep(&csv, "\n");
  for (char *line; (line = strsep(&csv, "\n")) && *line; n++)
    assert_int_equal(sscanf(line, "%lld,%lld,%lld,%lld,%lld", &row[n][0], &row[n][1], &row[n][2],
                            &row[n][3], &row[n][4]),
                     5);
  assert_true(n > 100);
  for (int i = 0; i < n; i++)
    for (int k = 0; k < i; k++)
      assert_true(row[i][1] >= row[k][2] || row[k][1] >= row[i][2] ||
                  row[i][4] >= row[k][4] + row[k][3] || row[k][4] >= row[i][4] + row[i][3]);
  arena_free(f.a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_ledger_adds_up),         cmocka_unit_test(the_text_adds_up),
      cmocka_unit_test(text_and_json_agree),        cmocka_unit_test(rebuilt_layers_are_grouped),
      cmocka_unit_test(too_little_names_the_floor), cmocka_unit_test(reasons_are_given),
      cmocka_unit_test(plans_print_whole),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
