/* cli_largest.c - `mtc explore F.mt --max T`: the largest value of a dimension whose plan fits the
 * budget (see cli_explore.h).
 *
 * Each try elaborates and plans anew. Floors grow almost in proportion to a dimension, so the next
 * try lies where the line between two floors meets the budget; a bracket of one that fits and one
 * that does not closes until it is one step wide. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/cli_explore.h"
#include "passes/formats.h"
#include "passes/report.h"

enum { TOKENS_STEP = 64, MOST_TRIES = 48 };
static const int64_t most_value = (int64_t)1 << 22;

typedef struct {
  int64_t value, floor; /* floor 0: it does not elaborate */
  bool fits;
} Try;

typedef struct {
  Cli *c;
  const Job *job;
  const PlanArgs *args;
  const char *names; /* "T" or "T,Tmax": dimensions that get the same value */
  bool batch;        /* the micro-batch: divisors of a step's samples */
  int64_t step;
  VEC(Try) tries;
} Search;

/* ---- one value ---- */

/* The nearest whole number of samples of T tokens to what the model says. */
static const char *batch_of(Search *s, int64_t T) {
  const TrainPhase *p = &s->job->phases.at[0];
  int64_t n = (p->batch + T / 2) / T;
  return arena_printf(s->c->arena, "tokens(%lld)", (long long)((n > 0 ? n : 1) * T));
}

static bool setting_for(Search *s, int64_t value, Setting *out) {
  *out = cli_setting(s->c, s->args);
  const char *text = arena_printf(s->c->arena, "%lld", (long long)value);
  char *rest = arena_printf(s->c->arena, "%s", s->names);
  for (char *name; (name = strsep(&rest, ","));)
    if (*name && !cli_setting_with(s->c, s->job, out, name, text)) return false;
  const TrainPhase *p = &s->job->phases.at[0];
  bool tokens = p->unit == BATCH_TOKENS && (!strcmp(s->names, "T") || str_starts(s->names, "T,"));
  if (tokens && p->batch % value != 0)
    return cli_setting_with(s->c, s->job, out, "train.batch", batch_of(s, value));
  return true;
}

/* Plans a value with the smallest micro-batch, or as the command line says; into a, which may be a
 * scratch. */
static bool plan_value(Search *s, int64_t value, bool least, Arena *a, Diags *d, FitResult *r,
                       Setting *with) {
  if (!setting_for(s, value, with)) return false;
  Job *job = elaborate(a, d, &with->job);
  if (!job || d->errors) return false;
  PlanArgs args = cli_setting_args(with, s->args);
  if (least && args.micro_batch == 0) args.micro_batch = 1;
  *r = formats_fit(job, &with->job, a, &args);
  return d->errors == 0;
}

/* False when the value cannot be had at all; then why was printed if say. */
static bool try_value(Search *s, int64_t value, bool say, Try *out) {
  Arena *a = arena_new();
  Diags *d = diags_new(a);
  FitResult r;
  Setting with;
  bool ok = plan_value(s, value, true, a, d, &r, &with);
  if (!ok && say) diag_render(d, stderr, s->c->colour_err);
  *out = (Try){.value = value, .floor = ok ? r.floor_bytes : 0, .fits = ok && r.plan};
  if (ok) vec_push(s->c->arena, &s->tries, *out);
  if (ok && s->c->flag.verbose)
    fprintf(stderr, "%s=%lld needs %s\n", s->names, (long long)value,
            bytes_short(a, r.floor_bytes));
  arena_free(a);
  return ok;
}

/* ---- the search ---- */

static int64_t snap(const Search *s, double v) {
  if (!s->batch) return (int64_t)floor(v / (double)s->step) * s->step;
  int64_t samples = phase_samples(s->job, 0), best = 1;
  for (int64_t d = 1; d <= samples && (double)d <= v; d++)
    if (samples % d == 0) best = d;
  return best;
}

static int64_t after(const Search *s, int64_t v) {
  if (!s->batch) return v + s->step;
  int64_t samples = phase_samples(s->job, 0);
  for (int64_t d = v + 1; d <= samples; d++)
    if (samples % d == 0) return d;
  return most_value + 1;
}

/* Where the budget lies between the two, inside the bracket; the middle every third time, against
 * slow ends. */
static int64_t between(const Search *s, const Try *lo, const Try *hi, int64_t budget, int tries) {
  double share =
      tries % 3 == 2 ? 0.5 : (double)(budget - lo->floor) / (double)(hi->floor - lo->floor);
  int64_t v = snap(s, (double)lo->value + share * (double)(hi->value - lo->value));
  if (v <= lo->value) v = after(s, lo->value);
  if (v >= hi->value) v = snap(s, (double)(hi->value - 1));
  return v;
}

/* A bracket [lo fits, hi does not]: from the value in force up, or down. hi->value 0: none found up
 * to the limit. */
static bool bracket(Search *s, int64_t from, Try *lo, Try *hi) {
  *hi = (Try){0};
  if (!try_value(s, from, true, lo)) return false;
  while (!lo->fits) {
    *hi = *lo;
    int64_t v = snap(s, (double)hi->value / 2);
    if (v < 1 || v >= hi->value) {
      *lo = (Try){0};
      return true;
    }
    if (!try_value(s, v, true, lo)) return false;
  }
  while (hi->value == 0) {
    Try next;
    int64_t v = s->batch ? after(s, lo->value) : lo->value * 2;
    if (v > most_value || (s->batch && v > phase_samples(s->job, 0))) break;
    if (!try_value(s, v, true, &next)) return false;
    *(next.fits ? lo : hi) = next;
  }
  return true;
}

static bool narrow(Search *s, Try *lo, Try *hi) {
  for (int i = 0;
       lo->value > 0 && hi->value > 0 && i < MOST_TRIES && after(s, lo->value) < hi->value; i++) {
    Try t;
    if (!try_value(s, between(s, lo, hi, s->args->budget_bytes, i), true, &t)) return false;
    *(t.fits ? lo : hi) = t;
  }
  return true;
}

/* ---- the answer ---- */

static void put_int(json_t *o, const char *key, int64_t v) {
  json_object_set_new(o, key, json_integer(v));
}

static void print_json(const Search *s, const FitResult *r, const Setting *with, const Try *lo,
                       const Try *hi) {
  json_t *o = json_object(), *list = json_array();
  json_object_set_new(o, "schema", json_string("mtc.largest/1"));
  json_object_set_new(o, "name", json_string(s->names));
  put_int(o, "value", lo->value);
  put_int(o, "budget_bytes", s->args->budget_bytes);
  json_object_set_new(o, "next", hi->value ? json_integer(hi->value) : json_null());
  json_object_set_new(o, "next_floor_bytes", hi->value ? json_integer(hi->floor) : json_null());
  if (r) {
    const PlanPhase *ph = &r->plan->phases.at[r->phase];
    json_object_set_new(o, "flags", json_string(with->flags + 1));
    put_int(o, "peak_bytes", r->plan->peak_bytes);
    put_int(o, "micro_batch", ph->micro_batch);
    json_object_set_new(o, "step_seconds", json_real((double)ph->step_ns * 1e-9));
    json_object_set_new(o, "tokens_per_second",
                        json_real(tokens_per_second(r, ph->phase, ph->step_ns)));
  }
  for (int i = 0; i < s->tries.n; i++) {
    json_t *t = json_object();
    put_int(t, "value", s->tries.at[i].value);
    put_int(t, "floor_bytes", s->tries.at[i].floor);
    json_array_append_new(list, t);
  }
  json_object_set_new(o, "tries", list);
  json_dumpf(o, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
  putchar('\n');
  json_decref(o);
}

/* At the edge all is rebuilt, again and again: how much more memory would bring half of the best
 * speed. */
static void print_faster(const FitResult *r, Arena *a) {
  const Candidate *best = r->frontier.n ? &vec_last(&r->frontier) : NULL;
  const PlanPhase *ph = &r->plan->phases.at[r->phase];
  if (!best || ph->step_ns <= best->step_ns * 2) return;
  for (int i = 0; i < r->frontier.n; i++) {
    const Candidate *c = &r->frontier.at[i];
    if (c->step_ns > best->step_ns * 2) continue;
    printf("  %-10s %s more would bring %s %s\n", "faster",
           bytes_short(a, c->peak_bytes - r->plan->peak_bytes),
           format_count(a, llround(tokens_per_second(r, ph->phase, c->step_ns))),
           rate_unit(r, ph->phase));
    return;
  }
}

static void print_text(const Search *s, const FitResult *r, const Setting *with, const Try *lo,
                       const Try *hi) {
  Arena *a = s->c->arena;
  const Plan *p = r->plan;
  const PlanPhase *ph = &p->phases.at[r->phase];
  const char *budget = format_bytes(a, s->args->budget_bytes);
  printf("the largest %s in %s on %s is %s\n", s->names, budget, p->target->name,
         format_count(a, lo->value));
  printf("  %-10s %lld x %lld accumulation steps, %s recomputed\n", "plan",
         (long long)ph->micro_batch, (long long)ph->accumulation,
         ph->recompute_ns ? "part" : "nothing");
  printf("  %-10s %s of %s   step %s   %s %s\n", "peak", bytes_short(a, p->peak_bytes), budget,
         time_short(a, ph->step_ns),
         format_count(a, llround(tokens_per_second(r, ph->phase, ph->step_ns))),
         rate_unit(r, ph->phase));
  print_faster(r, a);
  if (hi->value)
    printf("  %-10s %s would need %s\n", "next", format_count(a, hi->value),
           bytes_short(a, hi->floor));
  else
    printf("  %-10s nothing larger was tried\n", "next");
  printf("  %-10s mtc plan %s%s --vram %s --target %s\n", "again", cli_plan_command(s->c),
         with->flags,
         s->c->flag.vram_range ? s->c->flag.vram_range
                               : arena_printf(a, "%lld", (long long)s->args->budget_bytes),
         p->target->name);
}

static int64_t starting_value(Search *s, int *code) {
  const char *first = arena_printf(s->c->arena, "%.*s", (int)strcspn(s->names, ","), s->names);
  if (s->batch) return 1;
  int64_t now = phase_dim(s->job, 0, first);
  for (int i = 0; now < 0 && i < s->c->job.dims.n; i++)
    if (!strcmp(s->c->job.dims.at[i].name, first)) now = atoll(s->c->job.dims.at[i].value);
  if (now < 1)
    *code = cli_usage(s->c, "--max %s: no dimension of that name with a value; give one by -D %s=N",
                      s->names, first);
  s->step = !strcmp(first, "T") && now >= TOKENS_STEP ? TOKENS_STEP : 1;
  return now > 0 ? snap(s, (double)now) : 0;
}

int cli_largest(Cli *c, const Job *job, const PlanArgs *args) {
  const char *b = job->phases.at[0].batch_dim;
  Search s = {.c = c, .job = job, .args = args, .names = c->flag.max, .step = 1};
  s.batch = !strcmp(s.names, "B") || (b && !strcmp(s.names, b));
  int code = EXIT_OK;
  int64_t from = starting_value(&s, &code);
  if (code != EXIT_OK) return code;
  Try lo, hi;
  if (!bracket(&s, from, &lo, &hi) || !narrow(&s, &lo, &hi)) {
    cli_fail(
        c, EXIT_SOURCE,
        "%s cannot take every value; dimensions that must follow are given with it: --max T,Tmax",
        s.names);
    return EXIT_SOURCE;
  }
  FitResult r;
  Setting with;
  bool found =
      lo.value > 0 && plan_value(&s, lo.value, s.batch, c->arena, c->diags, &r, &with) && r.plan;
  if (c->flag.json)
    print_json(&s, found ? &r : NULL, &with, &lo, &hi);
  else if (found)
    print_text(&s, &r, &with, &lo, &hi);
  if (found) return EXIT_OK;
  if (c->diags->errors) return EXIT_SOURCE;
  cli_fail(c, EXIT_INFEASIBLE, "no %s fits %s: %lld needs %s", s.names,
           format_bytes(c->arena, args->budget_bytes), (long long)hi.value,
           bytes_short(c->arena, hi.floor));
  return EXIT_INFEASIBLE;
}
