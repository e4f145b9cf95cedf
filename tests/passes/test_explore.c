/* test_explore.c - the explorer: sizes that are written give the same plan again, the front rises,
 * the marks are where they belong, the JSON is what its schema says and the table says the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>
#include "passes/explore.h"
#include "passes/report.h"
#include "tests/support/schema.h"

typedef struct {
  Arena *a;
  Job *job;
  PlanArgs args;
  Explore x;
  FitResult best;
} Fixture;

static Fixture explored(const char *file, const char *target, int64_t low, int64_t high,
                        int64_t mark) {
  Fixture f = {.a = arena_new()};
  Diags *d = diags_new(f.a);
  JobArgs job_args = {.path = arena_printf(f.a, "%s/models/%s", MTC_SOURCE_DIR, file)};
  f.job = elaborate(f.a, d, &job_args);
  if (!f.job) diag_render(d, stderr, false);
  assert_non_null(f.job);
  f.args = (PlanArgs){.target = target_by_name(target), .budget_bytes = INT64_MAX, .recompute = -1};
  f.x = (Explore){.job = f.job,
                  .target = f.args.target,
                  .command = file,
                  .low = low,
                  .high = high,
                  .mark = mark};
  f.best = explore_setting(&f.x, f.a, f.a, f.job, &f.args, "", "");
  return f;
}

static const ExploreSetting *only(const Fixture *f) {
  assert_int_equal(f->x.settings.n, 1);
  return &f->x.settings.at[0];
}

/* ---- sizes ---- */

static void written_sizes_are_not_below(void **state) {
  (void)state;
  Arena *a = arena_new();
  uint64_t seed = 7;
  for (int i = 0; i < 3000; i++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    int64_t bytes = (int64_t)(seed >> 24) >> (i % 30), back, rounded;
    bytes++;
    const char *text = explore_vram(a, bytes, &rounded);
    assert_true(parse_bytes(text, 0, &back));
    assert_int_equal(back, rounded);
    assert_true(rounded >= bytes);
    int64_t grain = bytes >= (int64_t)1 << 30 ? (1 << 30) / 100 : (1 << 20) / 10;
    assert_true(rounded - bytes <= grain + 1);
  }
  arena_free(a);
}

/* ---- the front ---- */

static void each_point_plans_again(void **state) {
  (void)state;
  Fixture f = explored("char.mt", "cpu", 0, (int64_t)1 << 30, 0);
  const ExploreSetting *s = only(&f);
  assert_true(s->points.n > 20);
  for (int i = 0; i < s->points.n; i++) {
    const ExplorePoint *p = &s->points.at[i];
    assert_true(p->at.peak_bytes <= p->vram_bytes);
    if (i == 0) continue;
    assert_true(p->vram_bytes > p[-1].vram_bytes);
    assert_true(p->rate > p[-1].rate);
  }
  FitPool *pool = fit_pool(f.job, f.a, &f.args);
  for (int i = 0; i < s->points.n; i += 3) {
    int64_t bytes;
    assert_true(parse_bytes(s->points.at[i].vram, 0, &bytes));
    FitResult r = fit_within(pool, f.a, bytes);
    assert_non_null(r.plan);
    assert_int_equal(r.plan->phases.at[0].step_ns, s->points.at[i].at.step_ns);
    assert_int_equal(r.plan->phases.at[0].micro_batch, s->points.at[i].at.micro_batch);
  }
  arena_free(f.a);
}

/* Asked on its own, a row's size gives the row's plan, to its id. */
static void each_row_is_its_plan(void **state) {
  (void)state;
  Fixture f = explored("char.mt", "rtx3090", 0, (int64_t)2 << 30, 0);
  const ExploreSetting *s = only(&f);
  assert_true(s->rows.n >= 4);
  for (int i = 0; i < s->rows.n; i++) {
    const ExploreRow *row = &s->rows.at[i];
    PlanArgs args = f.args;
    assert_true(parse_bytes(row->vram, 0, &args.budget_bytes));
    FitResult r = plan_fit(f.job, f.a, &args);
    assert_non_null(r.plan);
    assert_int_equal(r.plan->id, row->plan_id);
    assert_int_equal(r.plan->peak_bytes, row->peak_bytes);
    assert_int_equal(r.plan->phases.at[0].step_ns, row->step_ns);
    assert_true(row->more_rate >= row->rate);
  }
  arena_free(f.a);
}

static int with_kind(const ExploreSetting *s, unsigned kind) {
  int found = -1;
  for (int i = 0; i < s->rows.n; i++)
    if (s->rows.at[i].kinds & kind) {
      assert_int_equal(found, -1);
      found = i;
    }
  return found;
}

static void rows_are_marked(void **state) {
  (void)state;
  int64_t mark = 20 << 20;
  Fixture f = explored("char.mt", "cpu", 0, (int64_t)1 << 30, mark);
  const ExploreSetting *s = only(&f);
  assert_int_equal(with_kind(s, ROW_FLOOR), 0);
  assert_int_equal(with_kind(s, ROW_END), s->rows.n - 1);
  assert_int_equal(with_kind(s, ROW_LAST), s->rows.n - 1);
  int64_t least; /* the floor, as it is written */
  explore_vram(f.a, s->floor_bytes, &least);
  assert_true(s->rows.at[0].vram_bytes == least && s->rows.at[0].peak_bytes >= s->floor_bytes);
  int knee = with_kind(s, ROW_KNEE), marked = with_kind(s, ROW_MARK);
  assert_true(knee > 0 && knee < s->rows.n - 1);
  assert_true(marked > 0 && s->rows.at[marked].vram_bytes <= mark);
  assert_true(s->rows.at[marked + 1].vram_bytes > mark);
  assert_int_equal(f.best.plan->id, s->rows.at[marked].plan_id);
  assert_string_equal(vec_last(&s->rows).recompute, "nothing");
  arena_free(f.a);
}

static void a_range_is_kept(void **state) {
  (void)state;
  int64_t low = 16 << 20, high = 24 << 20;
  Fixture f = explored("char.mt", "cpu", low, high, 0);
  const ExploreSetting *s = only(&f);
  assert_int_equal(with_kind(s, ROW_FLOOR), -1);
  for (int i = 0; i < s->rows.n; i++) assert_true(s->rows.at[i].vram_bytes <= high);
  for (int i = 1; i < s->rows.n; i++) assert_true(s->rows.at[i].vram_bytes > low);
  arena_free(f.a);
}

static void too_little_has_a_floor(void **state) {
  (void)state;
  Fixture f = explored("char.mt", "cpu", 0, 1 << 20, 0);
  const ExploreSetting *s = only(&f);
  assert_null(f.best.plan);
  assert_int_equal(s->rows.n, 0);
  assert_true(s->floor_bytes > 1 << 20);
  arena_free(f.a);
}

/* ---- what is printed ---- */

static char *printed(Fixture *f, void (*print)(const Explore *, FILE *)) {
  char *text = NULL;
  size_t size = 0;
  FILE *to = open_memstream(&text, &size);
  print(&f->x, to);
  fclose(to);
  char *kept = arena_printf(f->a, "%s", text);
  free(text);
  return kept;
}

static void wide_text(const Explore *x, FILE *to) {
  explore_text(x, to, 100);
}

static void json_is_its_schema(void **state) {
  (void)state;
  Fixture f = explored("char.mt", "cpu", 0, 1 << 30, 0);
  json_error_t e;
  json_t *o = json_loads(printed(&f, explore_json), 0, &e),
         *schema = json_load_file(MTC_SOURCE_DIR "/docs/schema/explore.json", 0, &e);
  assert_non_null(o);
  assert_non_null(schema);
  validate(schema, o, "explore");
  const json_t *s = json_array_get(json_object_get(o, "settings"), 0);
  assert_int_equal(json_array_size(json_object_get(s, "frontier")), only(&f)->points.n);
  assert_int_equal(json_array_size(json_object_get(s, "rows")), only(&f)->rows.n);
  json_decref(o);
  json_decref(schema);
  arena_free(f.a);
}

static int lines_of(const char *text) {
  int n = 0;
  for (; *text; text++) n += *text == '\n';
  return n;
}

static void text_and_csv_hold_every_row(void **state) {
  (void)state;
  Fixture f = explored("char.mt", "cpu", 0, 1 << 30, 0);
  const ExploreSetting *s = only(&f);
  char *text = printed(&f, wide_text);
  for (int i = 0; i < s->rows.n; i++)
    assert_non_null(strstr(text, format_count(f.a, (int64_t)(s->rows.at[i].rate + 0.5))));
  assert_non_null(strstr(text, "the floor"));
  assert_non_null(strstr(text, "knee"));
  assert_non_null(strstr(text, " o"));
  for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
    if (strchr(line, '|') && strcspn(line, "\n") > 100) fail_msg("the plot is too wide");
  assert_int_equal(lines_of(printed(&f, explore_csv)), s->points.n + 1);
  arena_free(f.a);
}

static void a_mark_below_the_floor_is_said(void **state) {
  (void)state;
  Fixture f = explored("char.mt", "cpu", 0, 1 << 30, 1 << 20);
  assert_null(f.best.plan);
  assert_int_equal(with_kind(only(&f), ROW_MARK), -1);
  assert_non_null(strstr(printed(&f, wide_text), "no plan fits 1 MiB"));
  arena_free(f.a);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(written_sizes_are_not_below),
                                     cmocka_unit_test(each_point_plans_again),
                                     cmocka_unit_test(each_row_is_its_plan),
                                     cmocka_unit_test(rows_are_marked),
                                     cmocka_unit_test(a_range_is_kept),
                                     cmocka_unit_test(too_little_has_a_floor),
                                     cmocka_unit_test(json_is_its_schema),
                                     cmocka_unit_test(text_and_csv_hold_every_row),
                                     cmocka_unit_test(a_mark_below_the_floor_is_said)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
