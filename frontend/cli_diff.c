/* cli_diff.c - two plans side by side (see cli_diff.h). A file of `mtc plan --json` tells all; a
 * .mtx knows its totals, its variables and its phases, and what it does not know is left out of the
 * comparison. Both become one list of named figures. */
#include "frontend/cli_diff.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "passes/report.h"
#include "runtime/program.h"

typedef enum { FIG_BYTES, FIG_SECONDS, FIG_RATE, FIG_COUNT, FIG_TEXT } FigureKind;

typedef struct {
  const char *name; /* JSON key */
  const char *shown;
  FigureKind kind;
  bool ledger;
  bool if_any; /* shown when it is not zero on both sides, as rows of the ledger are */
  double value;
  int64_t whole; /* bytes and counts */
  const char *text;
} Figure;

typedef struct {
  const char *path;
  VEC(Figure) all;
} Side;

/* ---- reading ---- */

static void add(Arena *a, Side *s, Figure f) {
  vec_push(a, &s->all, f);
}

static void add_text(Arena *a, Side *s, const char *name, const char *text) {
  add(a, s, (Figure){.name = name, .shown = name, .kind = FIG_TEXT, .text = text ? text : ""});
}

static void add_whole(Arena *a, Side *s, const char *name, const char *shown, FigureKind kind,
                      bool ledger, int64_t v) {
  add(a, s,
      (Figure){.name = name,
               .shown = shown,
               .kind = kind,
               .ledger = ledger,
               .whole = v,
               .value = (double)v});
}

static void add_real(Arena *a, Side *s, const char *name, const char *shown, FigureKind kind,
                     double v) {
  add(a, s, (Figure){.name = name, .shown = shown, .kind = kind, .value = v});
}

static const char *text_of(Arena *a, const json_t *o, const char *key) {
  const char *s = json_string_value(json_object_get(o, key));
  return s ? arena_printf(a, "%s", s) : "";
}

static int64_t int_of(const json_t *o, const char *key) {
  return json_integer_value(json_object_get(o, key));
}

/* "micro, op 148 of 408, dw#8": of the program that reaches highest. */
static const char *peak_of(Arena *a, const json_t *plan) {
  const json_t *best = NULL, *p;
  size_t i;
  json_array_foreach(json_object_get(plan, "programs"), i, p) {
    if (!best || int_of(p, "transient_bytes") > int_of(best, "transient_bytes")) best = p;
  }
  if (!best) return "";
  return arena_printf(a, "%s, op %lld of %lld, %s", text_of(a, best, "name"),
                      (long long)int_of(best, "peak_step") + 1, (long long)int_of(best, "steps"),
                      text_of(a, best, "peak_name"));
}

static const char *class_name(const char *json) {
  for (int c = 0; c < BC_COUNT; c++)
    if (!strcmp(buf_class_json((BufClass)c), json)) return buf_class_text((BufClass)c);
  return json;
}

static void read_ledger(Arena *a, Side *s, const json_t *plan) {
  size_t i;
  json_t *row;
  json_array_foreach(json_object_get(plan, "ledger"), i, row) {
    const char *name = text_of(a, row, "class");
    add_whole(a, s, name, class_name(name), FIG_BYTES, true, int_of(row, "bytes"));
  }
}

/* What is pinned, and the copies of a step: how long they take and how long they are waited for. */
static void read_host(Arena *a, Side *s, const json_t *plan) {
  static const char *const key[] = {"copy_in_seconds", "copy_out_seconds", "copy_exposed_seconds"};
  static const char *const shown[] = {"copies in", "copies out", "waits for copies"};
  add_whole(a, s, "host_bytes", "on the host", FIG_BYTES, false, int_of(plan, "host_bytes"));
  vec_last(&s->all).if_any = true;
  for (int k = 0; k < COUNT_OF(key); k++) {
    size_t i;
    json_t *row;
    double sum = 0;
    double times = (double)int_of(plan, "accumulation"), micro = 0;
    /* those of the phase begin with micro, first where there is one, update; or with step alone */
    json_array_foreach(json_object_get(plan, "programs"), i, row) {
      const char *name = text_of(a, row, "name");
      double x = json_number_value(json_object_get(row, key[k]));
      if (i == 0)
        micro = x;
      else
        sum += x;
      if (!strcmp(name, "first")) times--;
      if (!strcmp(name, "update") || !strcmp(name, "step")) break;
    }
    sum += times * micro;
    add_real(a, s, key[k], shown[k], FIG_SECONDS, sum);
    vec_last(&s->all).if_any = true;
  }
}

static void read_rebuilt(Arena *a, Side *s, const json_t *plan) {
  size_t i;
  json_t *row;
  int64_t bytes = 0;
  double seconds = 0, accumulation = (double)int_of(plan, "accumulation");
  json_array_foreach(json_object_get(plan, "rebuilt"), i, row) {
    bytes += int_of(row, "bytes");
    seconds += json_number_value(json_object_get(row, "seconds"));
  }
  add_whole(a, s, "recompute_frees", "recompute frees", FIG_BYTES, false, bytes);
  add_real(a, s, "recompute_seconds", "recompute costs", FIG_SECONDS, seconds * accumulation);
}

static int read_plan(Cli *c, Side *s) {
  json_error_t e;
  json_t *plan = json_load_file(s->path, 0, &e);
  if (!plan) return cli_fail(c, EXIT_IO, "%s: %s", s->path, e.text);
  Arena *a = c->arena;
  const char *schema = text_of(a, plan, "schema");
  int code = EXIT_OK;
  if (!str_starts(schema, "mtc.plan/")) {
    code = cli_fail(c, EXIT_IO, "%s is no output of `mtc plan --json`", s->path);
  } else if (!json_is_true(json_object_get(plan, "fits"))) {
    code = cli_fail(c, EXIT_IO, "%s holds no plan: nothing fitted its budget", s->path);
  } else {
    add_text(a, s, "plan", text_of(a, plan, "plan"));
    const char *preset = text_of(a, plan, "preset");
    add_text(a, s, "model",
             *preset ? arena_printf(a, "%s(%s)", text_of(a, plan, "model"), preset)
                     : text_of(a, plan, "model"));
    add_text(a, s, "target", text_of(a, plan, "target"));
    read_ledger(a, s, plan);
    add_whole(a, s, "peak_bytes", "total", FIG_BYTES, true, int_of(plan, "peak_bytes"));
    read_host(a, s, plan);
    add_whole(a, s, "floor_bytes", "floor", FIG_BYTES, false, int_of(plan, "floor_bytes"));
    add_text(a, s, "peak", peak_of(a, plan));
    add_whole(a, s, "micro_batch", "micro-batch", FIG_COUNT, false, int_of(plan, "micro_batch"));
    add_whole(a, s, "accumulation", "accumulation", FIG_COUNT, false, int_of(plan, "accumulation"));
    add_whole(a, s, "chunks", "loss chunks", FIG_COUNT, false, int_of(plan, "chunks"));
    add_whole(a, s, "mlp_chunks", "MLP chunks", FIG_COUNT, false, int_of(plan, "mlp_chunks"));
    add_whole(a, s, "group", "parts of a layer", FIG_COUNT, false, int_of(plan, "group"));
    read_rebuilt(a, s, plan);
    add_real(a, s, "step_seconds", "step", FIG_SECONDS,
             json_number_value(json_object_get(plan, "step_seconds")));
    add_real(a, s, "tokens_per_second", "tok/s", FIG_RATE,
             json_number_value(json_object_get(plan, "tokens_per_second")));
  }
  json_decref(plan);
  return code;
}

static int read_program(Cli *c, Side *s) {
  const char *why = NULL;
  Arena *a = c->arena;
  Program *p = mtx_read(a, s->path, &why);
  if (!p) return cli_fail(c, EXIT_IO, "%s: %s", s->path, why);
  add_text(a, s, "plan", arena_printf(a, "%08x", (unsigned)(p->plan_id >> 32)));
  add_text(a, s, "model", p->preset ? arena_printf(a, "%s(%s)", p->model, p->preset) : p->model);
  add_text(a, s, "target", p->target);
  add_whole(a, s, "persistent_bytes", "persistent", FIG_BYTES, true, p->persistent_bytes);
  add_whole(a, s, "transient_bytes", "transient", FIG_BYTES, true,
            p->arena_bytes - p->persistent_bytes);
  add_whole(a, s, "context", "context", FIG_BYTES, true, p->overhead_bytes);
  add_whole(a, s, "reserve", "reserve", FIG_BYTES, true, p->reserve_bytes);
  add_whole(a, s, "peak_bytes", "total", FIG_BYTES, true, p->peak_bytes);
  add_whole(a, s, "host_bytes", "on the host", FIG_BYTES, false, p->host_bytes);
  vec_last(&s->all).if_any = true;
  if (p->nphases == 0) return EXIT_OK;
  const ProgramPhase *ph = &p->phases[0];
  double tokens = (double)(ph->micro_batch * ph->accumulation * ph->tokens_per_sample);
  add_whole(a, s, "micro_batch", "micro-batch", FIG_COUNT, false, ph->micro_batch);
  add_whole(a, s, "accumulation", "accumulation", FIG_COUNT, false, ph->accumulation);
  add_real(a, s, "step_seconds", "step", FIG_SECONDS, ph->est_step_seconds);
  if (ph->est_step_seconds > 0)
    add_real(a, s, "tokens_per_second", "tok/s", FIG_RATE, tokens / ph->est_step_seconds);
  return EXIT_OK;
}

static int read_side(Cli *c, Side *s) {
  if (!path_exists(s->path)) return cli_fail(c, EXIT_IO, "%s: no such file", s->path);
  return str_ends(s->path, ".mtx") ? read_program(c, s) : read_plan(c, s);
}

/* ---- comparing ---- */

static const Figure *same(const Side *s, const char *name) {
  for (int i = 0; i < s->all.n; i++)
    if (!strcmp(s->all.at[i].name, name)) return &s->all.at[i];
  return NULL;
}

/* Two files of one kind have the same rows; of different kinds, the rows that both have. */
static bool worth_showing(const Figure *x, const Figure *y) {
  if (!y) return false;
  return x->kind == FIG_TEXT || !(x->ledger || x->if_any) || x->value != 0 || y->value != 0;
}

static const char *value_text(Arena *a, const Figure *f) {
  switch (f->kind) {
    case FIG_BYTES:
      return arena_printf(a, "%.1f", mib(f->whole));
    case FIG_SECONDS:
      return time_short(a, llround(f->value * 1e9));
    case FIG_RATE:
      return format_count(a, llround(f->value));
    case FIG_COUNT:
      return format_count(a, f->whole);
    case FIG_TEXT:
      return f->text;
  }
  return "";
}

static const char *difference_text(Arena *a, const Figure *x, const Figure *y) {
  double share = x->value ? 100 * (y->value / x->value - 1) : 0;
  switch (x->kind) {
    case FIG_BYTES:
      return x->whole == y->whole ? "" : arena_printf(a, "%+.1f", mib(y->whole - x->whole));
    case FIG_SECONDS:
    case FIG_RATE:
      return x->value == y->value || x->value == 0 ? "" : arena_printf(a, "%+.1f %%", share);
    case FIG_COUNT:
      return x->whole == y->whole ? "" : arena_printf(a, "%+lld", (long long)(y->whole - x->whole));
    case FIG_TEXT:
      return strcmp(x->text, y->text) != 0 ? "differs" : "";
  }
  return "";
}

static void print_text(Cli *c, const Side *x, const Side *y) {
  Arena *a = c->arena;
  bool ledger = false;
  printf("A  %s\nB  %s\n\n%-18s %26s %26s %14s\n", x->path, y->path, "", "A", "B", "B - A");
  for (int i = 0; i < x->all.n; i++) {
    const Figure *p = &x->all.at[i], *q = same(y, p->name);
    if (!worth_showing(p, q)) continue;
    if (p->ledger && !ledger) printf("at the peak, MiB\n");
    ledger = p->ledger;
    const char *left = value_text(a, p), *right = value_text(a, q);
    const char *difference = difference_text(a, p, q);
    const char *unit = p->kind == FIG_BYTES && !p->ledger ? " MiB" : "";
    if (p->kind == FIG_TEXT && (strlen(left) > 26 || strlen(right) > 26))
      printf("%-18s %s\n%-18s %s\n", p->shown, left, "", strcmp(left, right) ? right : "the same");
    else
      printf("%s%-*s %26s %26s%s\n", p->ledger ? "  " : "", p->ledger ? 16 : 18,
             arena_printf(a, "%s%s", p->shown, unit), left, right,
             *difference ? arena_printf(a, " %14s", difference) : "");
  }
}

static json_t *value_json(const Figure *f) {
  if (f->kind == FIG_TEXT) return json_string(f->text);
  return f->kind == FIG_BYTES || f->kind == FIG_COUNT ? json_integer(f->whole)
                                                      : json_real(f->value);
}

static void print_json(const Side *x, const Side *y) {
  json_t *o = json_object(), *list = json_array();
  json_object_set_new(o, "schema", json_string("mtc.diff/1"));
  json_object_set_new(o, "a", json_string(x->path));
  json_object_set_new(o, "b", json_string(y->path));
  for (int i = 0; i < x->all.n; i++) {
    const Figure *p = &x->all.at[i], *q = same(y, p->name);
    if (!q) continue;
    json_t *row = json_object();
    json_object_set_new(row, "name", json_string(p->name));
    json_object_set_new(row, "a", value_json(p));
    json_object_set_new(row, "b", value_json(q));
    if (p->kind == FIG_BYTES || p->kind == FIG_COUNT)
      json_object_set_new(row, "difference", json_integer(q->whole - p->whole));
    json_array_append_new(list, row);
  }
  json_object_set_new(o, "rows", list);
  json_dumpf(o, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
  putchar('\n');
  json_decref(o);
}

int cli_diff(Cli *c) {
  if (c->args.n != 2) return cli_usage(c, "`mtc inspect --diff` takes two files");
  Side x = {.path = c->args.at[0]}, y = {.path = c->args.at[1]};
  int code = read_side(c, &x);
  if (code == EXIT_OK) code = read_side(c, &y);
  if (code != EXIT_OK) return code;
  if (c->flag.json)
    print_json(&x, &y);
  else
    print_text(c, &x, &y);
  return EXIT_OK;
}
