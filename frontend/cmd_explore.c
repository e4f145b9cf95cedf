/* cmd_explore.c - `mtc explore F.mt`: what each budget buys, as a plot and a table, CSV, JSON or a
 * page. */
#include <errno.h>
#include <string.h>

#include "frontend/cli_explore.h"
#include "passes/explore.h"
#include "passes/html.h"
#include "passes/report.h"

const char *cli_plan_command(const Cli *c) {
  Str s = {.arena = c->arena};
  str_add(&s, c->job.path);
  if (c->job.preset) str_addf(&s, " --preset %s", c->job.preset);
  for (int i = 0; i < c->job.dims.n; i++)
    str_addf(&s, " -D %s=%s", c->job.dims.at[i].name, c->job.dims.at[i].value);
  for (int i = 0; i < c->job.settings.n; i++)
    str_addf(&s, " --set %s=%s", c->job.settings.at[i].name, c->job.settings.at[i].value);
  return s.text;
}

/* ---- the range ---- */

static bool is_size(const char *text) {
  int64_t bytes;
  return *text && parse_bytes(text, 100, &bytes);
}

/* "8G..48G", "24G" or nothing. The upper end becomes c->flag.vram, which bounds plans as for `mtc
 * plan`. */
static int read_range(Cli *c, SizeArg *low) {
  const char *text = c->flag.vram_range, *dots = text ? strstr(text, "..") : NULL;
  *low = (SizeArg){NULL, -1};
  if (!text) return EXIT_OK;
  const char *upper = dots ? dots + 2 : text;
  const char *lower = dots ? arena_printf(c->arena, "%.*s", (int)(dots - text), text) : NULL;
  if (!is_size(upper) || (lower && !is_size(lower)))
    return cli_usage(c, "--vram takes a size or a range of sizes, such as 24G or 8G..48G, not `%s`",
                     text);
  c->flag.vram = (SizeArg){upper, -1};
  if (lower) *low = (SizeArg){lower, -1};
  return EXIT_OK;
}

/* ---- what comes out ---- */

/* The page of the plan at the mark or the upper end. */
static int write_page(Cli *c, const Explore *x, const FitResult *best) {
  FILE *f = fopen(c->flag.html, "w");
  if (!f) return cli_fail(c, EXIT_IO, "cannot write %s: %s", c->flag.html, strerror(errno));
  html_page(best, x, f);
  return cli_close(c, f, c->flag.html);
}

static void print(Cli *c, const Explore *x) {
  if (c->flag.json)
    explore_json(x, stdout);
  else if (c->flag.csv)
    explore_csv(x, stdout);
  else
    explore_text(x, stdout, cli_columns());
}

static int nothing_fits(Cli *c, const Explore *x, const FitResult *r) {
  if (c->flag.json || c->flag.csv) return EXIT_INFEASIBLE;
  if (x->settings.n == 1) {
    plan_report(r, stderr, cli_columns(), false);
    return EXIT_INFEASIBLE;
  }
  return cli_fail(c, EXIT_INFEASIBLE, "no setting has a plan in %s",
                  format_bytes(c->arena, x->high));
}

static void suggest(Cli *c, const Explore *x) {
  const ExploreSetting *s = NULL;
  for (int i = 0; i < x->settings.n && !s; i++)
    if (x->settings.at[i].rows.n) s = &x->settings.at[i];
  if (!s) return;
  const ExploreRow *row = &vec_last(&s->rows);
  for (int i = 0; i < s->rows.n; i++)
    if (s->rows.at[i].kinds & ROW_KNEE) row = &s->rows.at[i];
  cli_next(c, "mtc plan %s%s --vram %s --target %s", x->command, s->flags, row->vram,
           x->target->name);
}

/* ---- the settings ---- */

static double speed(const FitResult *r) {
  return r->plan ? tokens_per_second(r, r->phase, r->plan->phases.at[r->phase].step_ns) : 0;
}

/* Explores each setting; the fastest plan of all goes to *shown and the arena that holds it to *kept, for the caller to
 * free. EXIT_OK also when some do not fit. */
static int explore_all(Cli *c, Explore *x, const SettingList *list, const PlanArgs *args,
                       FitResult *shown, Arena **kept) {
  for (int i = 0; i < list->n; i++) {
    const Setting *s = &list->at[i];
    Arena *a = arena_new();
    Diags *d = *s->label ? diags_new(a) : c->diags;
    Job *job = elaborate(a, d, &s->job);
    PlanArgs bounds = cli_setting_args(s, args);
    FitResult best = {0};
    if (job && d->errors == 0)
      best = explore_setting(x, c->arena, a, job, &bounds, s->label, s->flags);
    if (d->errors > 0) {
      if (d != c->diags) diag_render(d, stderr, c->colour_err);
      arena_free(a);
      return EXIT_SOURCE;
    }
    if (i > 0 && speed(&best) <= speed(shown)) {
      arena_free(a);
      continue;
    }
    arena_free(*kept);
    *kept = a;
    *shown = best;
  }
  return EXIT_OK;
}

static int explore_into(Cli *c, Explore *x, const PlanArgs *args, Arena **kept) {
  SettingList list = {0};
  if (!cli_settings(c, x->job, args, &list)) return EXIT_USAGE;
  x->brief = list.n > 1;
  FitResult best = {0};
  int code = explore_all(c, x, &list, args, &best, kept);
  if (code != EXIT_OK) return code;
  bool rows = false;
  for (int i = 0; i < x->settings.n; i++) rows |= x->settings.at[i].rows.n > 0;
  if (rows || c->flag.json || c->flag.csv) print(c, x);
  if (!rows) return nothing_fits(c, x, &best);
  if (c->flag.html && best.plan && (code = write_page(c, x, &best)) != EXIT_OK) return code;
  if (!c->flag.json && !c->flag.csv) suggest(c, x);
  return best.plan ? EXIT_OK : EXIT_INFEASIBLE;
}

static int explore(Cli *c, Explore *x, const PlanArgs *args) {
  Arena *kept = NULL;
  int code = explore_into(c, x, args, &kept);
  arena_free(kept);
  return code;
}

int cmd_explore(Cli *c) {
  SizeArg low;
  int code = read_range(c, &low);
  if (code != EXIT_OK) return code;
  Job *job;
  if ((code = cli_plannable(c, &job)) != EXIT_OK) return code;
  PlanArgs args;
  if ((code = cli_plan_args(c, job, &args)) != EXIT_OK) return code;
  if (args.budget_bytes > args.target->usable_bytes) args.budget_bytes = args.target->usable_bytes;
  if (c->flag.max) return cli_largest(c, job, &args);
  Explore x = {
      .job = job, .target = args.target, .command = cli_plan_command(c), .high = args.budget_bytes};
  int64_t whole = args.target->usable_bytes < INT64_MAX ? args.target->usable_bytes : 0;
  if (low.text) {
    x.low = cli_bytes(&low, whole);
    if (x.low < 0 || x.low > x.high)
      return cli_usage(c, "--vram %s: the range is empty", c->flag.vram_range);
  } else if (c->flag.vram_range) {
    /* A single budget is marked, and what lies above it is shown as well. */
    x.mark = args.budget_bytes;
    x.high = args.target->usable_bytes;
  }
  return explore(c, &x, &args);
}
