/* test_html.c - the page of a plan, checked from its own numbers: a rectangle a buffer at its
 * place, no two overlap in time and address, tables equal the plan, one file that asks for nothing;
 * merged maps keep every buffer and overlap nothing. And the Chrome trace: valid JSON whose events
 * follow one another. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>
#include "passes/assemble.h"
#include "passes/html.h"
#include "passes/trace.h"
#include "tests/support/planned.h"

typedef struct {
  Arena *a;
  FitResult r;
  char *page;
  size_t size;
} Fixture;

static Fixture hosted_page_of(const char *file, const char *target, int64_t budget, int64_t host) {
  Fixture f = {.a = arena_new()};
  f.r = planned_with(f.a, file, target, budget, host);
  assert_non_null(f.r.plan);
  FILE *to = open_memstream(&f.page, &f.size);
  html_page(&f.r, NULL, to);
  fclose(to);
  return f;
}

static Fixture page_of(const char *file, const char *target, int64_t budget) {
  return hosted_page_of(file, target, budget, 0);
}

static void done(Fixture *f) {
  free(f->page);
  arena_free(f->a);
}

/* ---- reading the page ---- */

typedef struct {
  double x, y, w, h; /* steps and bytes from the top */
  int cls, count;
  char name[200];
} Rect;
typedef struct {
  VEC(Rect) all;
  double base, high; /* bytes */
} Map;
typedef struct {
  VEC(Map) all;
} Maps;

static double attribute(const char *tag, const char *name, double otherwise) {
  char key[40];
  snprintf(key, sizeof key, " %s=\"", name);
  const char *end = strchr(tag, '>'), *at = strstr(tag, key);
  return at && at < end ? strtod(at + strlen(key), NULL) : otherwise;
}

static void read_name(const char *tag, char *name, size_t size) {
  const char *at = strstr(tag, " data-n=\"");
  assert_non_null(at);
  at += strlen(" data-n=\"");
  snprintf(name, size, "%.*s", (int)strcspn(at, "\""), at);
}

/* The maps of the page: one a program, the persistent buffers, those on the host. Bars of copies have a text of their own. */
static Maps maps_of(Fixture *f) {
  Maps m = {0};
  for (const char *p = f->page; (p = strstr(p, "<")); p++) {
    if (!strncmp(p, "<svg", 4) && attribute(p, "data-high", -1) >= 0) {
      Map one = {.base = attribute(p, "data-base", -1),
                 .high = attribute(p, "data-high", -1) * MAP_UNIT};
      vec_push(f->a, &m.all, one);
    }
    if (strncmp(p, "<rect", 5) != 0 || attribute(p, "data-t", -1) >= 0) continue;
    assert_true(m.all.n > 0);
    Rect r = {.x = attribute(p, "x", -1),
              .y = attribute(p, "y", -1) * MAP_UNIT,
              .w = attribute(p, "width", -1),
              .h = attribute(p, "height", -1) * MAP_UNIT,
              .count = (int)attribute(p, "data-k", 1)};
    assert_int_equal(sscanf(p, "<rect class=\"c%d\"", &r.cls), 1);
    read_name(p, r.name, sizeof r.name);
    vec_push(f->a, &vec_last(&m.all).all, r);
  }
  return m;
}

static void assert_apart(const Map *m) {
  for (int i = 0; i < m->all.n; i++)
    for (int k = i + 1; k < m->all.n; k++) {
      const Rect *a = &m->all.at[i], *b = &m->all.at[k];
      bool time = a->x < b->x + b->w && b->x < a->x + a->w,
           place = a->y < b->y + b->h && b->y < a->y + a->h;
      if (time && place) fail_msg("%s and %s overlap", a->name, b->name);
    }
}

/* ---- tests ---- */

static void each_buffer_has_its_rectangle(void **state) {
  (void)state;
  Fixture f = page_of("char.mt", "cpu", 16 << 20);
  const Plan *p = f.r.plan;
  Maps m = maps_of(&f);
  assert_int_equal(m.all.n, p->programs.n + 1);
  int total = 0;
  for (int i = 0; i < m.all.n; i++) {
    assert_apart(&m.all.at[i]);
    total += m.all.at[i].all.n;
  }
  assert_int_equal(total, p->bufs.n);
  for (int i = 0; i < p->bufs.n; i++) {
    const PlanBuf *b = &p->bufs.at[i];
    const Map *map = &m.all.at[b->program < 0 ? p->programs.n : b->program];
    bool found = false;
    for (int k = 0; k < map->all.n && !found; k++) {
      const Rect *r = &map->all.at[k];
      found = !strcmp(r->name, b->name) && r->cls == (int)b->cls && r->h == (double)b->bytes &&
              map->base + map->high - r->y - r->h == (double)b->offset &&
              (b->program < 0 || (r->x == b->first && r->x + r->w == b->last + 1));
    }
    if (!found) fail_msg("%s has no rectangle at its place", b->name);
  }
  done(&f);
}

static int64_t floor_of(const char *file, int64_t host) {
  Arena *a = arena_new();
  int64_t floor = planned_with(a, file, "cpu", 1, host).floor_bytes;
  arena_free(a);
  return floor;
}

static void host_memory_and_copies_are_drawn(void **state) {
  (void)state;
  int64_t floor = floor_of("char.mt", 1 << 30);
  Fixture f = hosted_page_of("char.mt", "cpu", floor, 1 << 30);
  const Plan *p = f.r.plan;
  Maps m = maps_of(&f);
  assert_int_equal(m.all.n, p->programs.n + 2);
  const Map *host = &vec_last(&m.all);
  int on_host = 0, copies = 0, bars = 0;
  double drawn = 0;
  for (int i = 0; i < p->bufs.n; i++) /* of the programs' saved values, the most at once */
    on_host += p->bufs.at[i].space == SPACE_HOST && (p->bufs.at[i].program < 0 || p->bufs.at[i].program == plan_saver(p));
  for (int i = 0; i < host->all.n; i++) drawn += host->all.at[i].h;
  assert_int_equal(host->all.n, on_host);
  assert_true(drawn == (double)p->host_bytes);
  for (int i = 0; i < m.all.n; i++) assert_apart(&m.all.at[i]);
  for (int i = 0; i < p->programs.n; i++) copies += p->programs.at[i].ncopies;
  for (const char *at = f.page; (at = strstr(at, "<rect")); at++) bars += attribute(at, "data-t", -1) >= 0;
  assert_true(copies > 0);
  assert_int_equal(bars, copies);
  assert_non_null(strstr(f.page, "<table id=\"host\">"));
  done(&f);
}

static int64_t sum_of_bytes(const char *from, const char *to, int64_t *last) {
  int64_t sum = 0;
  *last = -1;
  for (const char *p = from; (p = strstr(p, "data-bytes=\"")) && p < to;) {
    p += strlen("data-bytes=\"");
    if (*last >= 0) sum += *last;
    *last = strtoll(p, NULL, 10);
  }
  return sum;
}

static void the_tables_are_the_plan(void **state) {
  (void)state;
  Fixture f = page_of("char.mt", "rtx3090", (int64_t)1 << 30);
  const char *table = strstr(f.page, "<table id=\"ledger\"");
  assert_non_null(table);
  int64_t total, sum = sum_of_bytes(table, strstr(table, "</table>"), &total);
  assert_int_equal(total, f.r.plan->peak_bytes);
  assert_int_equal(sum, total);
  Ledger l = plan_ledger(f.r.plan);
  assert_non_null(
      strstr(table, arena_printf(f.a, "data-bytes=\"%lld\"", (long long)l.bytes[BC_MOMENTS])));
  assert_non_null(strstr(f.page, arena_printf(f.a, "%08x", (unsigned)(f.r.plan->id >> 32))));
  const char *live = strstr(f.page, "<table id=\"live\"");
  assert_non_null(live);
  int rows = 0;
  for (const char *p = live; (p = strstr(p, "<tr")) && p < strstr(live, "</table>"); p++) rows++;
  assert_true(rows >= 10 && rows <= 22);
  done(&f);
}

static void one_file_is_enough(void **state) {
  (void)state;
  Fixture f = page_of("char.mt", "cpu", 16 << 20);
  const char *const foreign[] = {"http", "src=", "href=", "@import", "url(", "{{", "}}"};
  for (int i = 0; i < COUNT_OF(foreign); i++)
    if (strstr(f.page, foreign[i])) fail_msg("the page holds `%s`", foreign[i]);
  const char *script = strstr(f.page, "//<![CDATA[");
  assert_non_null(script);
  assert_true(strstr(script, "</script>") - script <= 6144);
  assert_true(f.size < 2 << 20);
  assert_non_null(strstr(f.page, "prefers-color-scheme: dark"));
  char *again = NULL;
  size_t size = 0;
  FILE *to = open_memstream(&again, &size);
  html_page(&f.r, NULL, to);
  fclose(to);
  assert_int_equal(size, f.size);
  assert_memory_equal(again, f.page, size);
  free(again);
  done(&f);
}

/* The curve's steps from its path: the highest top edge is the peak. */
static void the_curve_reaches_the_peak(void **state) {
  (void)state;
  Fixture f = page_of("char.mt", "cpu", 64 << 20);
  const Plan *p = f.r.plan;
  const char *live = strstr(f.page, arena_printf(f.a, "data-program=\"%s\"",
                                                 p->programs.at[plan_ledger(p).program].name));
  assert_non_null(live);
  const char *svg = strstr(live, "data-top=\"");
  assert_non_null(svg);
  double top = strtod(svg + strlen("data-top=\""), NULL), least = 1e9;
  const char *area = strstr(svg, "<path class=\"c"), *end = strstr(svg, "</svg>");
  for (; area && area < end; area = strstr(area + 1, "<path class=\"c"))
    for (const char *v = area; *v != '/'; v++)
      if (*v == 'V') least = fmin(least, strtod(v + 1, NULL));
  double highest = (1 - least / 100000) * top;
  assert_true(fabs(highest - (double)p->peak_bytes) < top * 0.0005 + 4096);
  done(&f);
}

static void merging_keeps_all_and_overlaps_nothing(void **state) {
  (void)state;
  Fixture f = page_of("char.mt", "cpu", 16 << 20);
  Page page = {.r = &f.r, .plan = f.r.plan, .arena = f.a};
  MapBoxes whole = html_boxes(&page, MOST_RECTS), few = html_boxes(&page, 300);
  assert_int_equal(whole.rects, f.r.plan->bufs.n);
  assert_true(few.rects < whole.rects && few.rects <= 300);
  int total = 0, rects = 0;
  for (int l = 0; l < few.nlists; l++)
    for (int i = 0; i < few.list[l].n; i++) {
      const MapBox *a = &few.list[l].at[i];
      if (a->dead) continue;
      total += a->count;
      rects++;
      for (int k = i + 1; k < few.list[l].n; k++) {
        const MapBox *b = &few.list[l].at[k];
        assert_false(!b->dead && a->x0 < b->x1 && b->x0 < a->x1 && a->y0 < b->y1 && b->y0 < a->y1);
      }
    }
  assert_int_equal(total, f.r.plan->bufs.n);
  assert_int_equal(rects, few.rects);
  done(&f);
}

/* ---- the trace ---- */

/* The trace of a plan, read back. */
static json_t *trace_of(const Plan *p) {
  char *text = NULL;
  size_t size = 0;
  FILE *to = open_memstream(&text, &size);
  plan_trace(p, to);
  fclose(to);
  json_error_t e;
  json_t *o = json_loads(text, 0, &e);
  free(text);
  assert_non_null(o);
  return o;
}

/* Events of a program's row: how many. They follow one another without overlap, and without gaps where that is asked for; *end
 * is that of the last. */
static int row_of(const json_t *o, int pid, int tid, bool gapless, double *end) {
  size_t i;
  json_t *ev;
  int n = 0;
  *end = 0;
  json_array_foreach(json_object_get(o, "traceEvents"), i, ev) {
    if (strcmp(json_string_value(json_object_get(ev, "ph")), "X") != 0) continue;
    if (json_integer_value(json_object_get(ev, "pid")) != pid || json_integer_value(json_object_get(ev, "tid")) != tid) continue;
    double ts = json_number_value(json_object_get(ev, "ts")), dur = json_number_value(json_object_get(ev, "dur"));
    assert_true(ts > *end - 0.01 && dur >= 0);
    if (gapless) assert_true(ts < *end + 0.01);
    *end = ts + dur;
    n++;
  }
  return n;
}

static int64_t highest_count(const json_t *o, int pid) {
  size_t i;
  json_t *ev, *v;
  const char *key;
  int64_t highest = 0;
  json_array_foreach(json_object_get(o, "traceEvents"), i, ev) {
    if (strcmp(json_string_value(json_object_get(ev, "ph")), "C") != 0) continue;
    if (json_integer_value(json_object_get(ev, "pid")) != pid) continue;
    int64_t sum = 0;
    json_object_foreach(json_object_get(ev, "args"), key, v) sum += json_integer_value(v);
    if (sum > highest) highest = sum;
  }
  return highest;
}

static void the_trace_follows_the_steps(void **state) {
  (void)state;
  Fixture f = page_of("char.mt", "cpu", 16 << 20);
  const Plan *p = f.r.plan;
  json_t *o = trace_of(p);
  for (int k = 0; k < p->programs.n; k++) {
    double end;
    assert_int_equal(row_of(o, k + 1, 1, true, &end), p->programs.at[k].nsteps);
    assert_true(fabs(end * 1000 - (double)p->programs.at[k].ns) < 100);
  }
  Ledger l = plan_ledger(p);
  int64_t sum = 0;
  for (int c = 0; c < BC_COUNT; c++) sum += l.bytes[c];
  assert_int_equal(highest_count(o, 1), sum);
  json_decref(o);
  done(&f);
}

static void the_trace_shows_copies(void **state) {
  (void)state;
  int64_t floor = floor_of("char.mt", 1 << 30);
  Fixture f = hosted_page_of("char.mt", "cpu", floor, 1 << 30);
  const Plan *p = f.r.plan;
  json_t *o = trace_of(p);
  for (int k = 0; k < p->programs.n; k++) {
    const PlanProgram *x = &p->programs.at[k];
    double end[3], latest = 0;
    int out = 0, n[3];
    for (int i = 0; i < x->ncopies; i++) out += x->copies[i].to_host;
    for (int row = 0; row < 3; row++) {
      n[row] = row_of(o, k + 1, row + 1, false, &end[row]);
      latest = fmax(latest, end[row]);
    }
    assert_int_equal(n[0], x->nsteps);
    assert_int_equal(n[1], x->ncopies - out);
    assert_int_equal(n[2], out);
    assert_true(fabs(latest * 1000 - (double)x->ns) < 100);
    for (int i = 0; i < x->ncopies; i++) {
      const PlanCopy *c = &x->copies[i];
      if (!c->to_host) assert_true(c->end == x->nsteps || c->to_ns <= x->begin_ns[c->end] + 1);
      if (c->to_host) assert_true(c->begin == x->nsteps || c->from_ns + 1 >= x->begin_ns[c->begin - 1]);
    }
  }
  json_decref(o);
  done(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_buffer_has_its_rectangle),
                                     cmocka_unit_test(the_tables_are_the_plan),
                                     cmocka_unit_test(one_file_is_enough),
                                     cmocka_unit_test(the_curve_reaches_the_peak),
                                     cmocka_unit_test(merging_keeps_all_and_overlaps_nothing),
                                     cmocka_unit_test(the_trace_follows_the_steps),
                                     cmocka_unit_test(host_memory_and_copies_are_drawn),
                                     cmocka_unit_test(the_trace_shows_copies)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
