/* cli_vary.c - `--vary B,recompute,T=512,1024`: the settings that stand for all combinations (see
 * cli_explore.h). */
#include <stdlib.h>
#include <string.h>

#include "frontend/cli_explore.h"
#include "passes/formats.h"

enum { MOST_SETTINGS = 64, MOST_BATCHES = 6 };

typedef struct {
  const char *name;
  VEC(const char *) values;
} Axis;
typedef VEC(Axis) AxisList;

/* The setting of `precision` that may be `auto` and has this name, with the section or not; -1. */
static int format_setting(const char *name) {
  if (str_starts(name, "precision.")) name += strlen("precision.");
  for (int s = 0; s < FMT_COUNT; s++)
    if (!strcmp(name, format_setting_name((FormatSetting)s))) return s;
  return -1;
}

/* Settings that are known by a short name. */
static const char *full_name(const char *name) {
  bool known = format_setting(name) >= 0 || !strcmp(name, "frozen");
  return known && !strchr(name, '.') ? intern_printf("precision.%s", name) : name;
}

static bool is_batch(const Job *job, const char *name) {
  const char *b = job->phases.at[0].batch_dim;
  return !strcmp(name, "B") || (b && !strcmp(name, b));
}

static bool is_bound(const char *name) {
  return !strcmp(name, "recompute") || !strcmp(name, "chunks") || !strcmp(name, "host-ram");
}

/* ---- values of names that come without ---- */

static void divisors(const Cli *c, const Job *job, Axis *x) {
  int64_t samples = phase_samples(job, 0);
  for (int64_t b = 1; b <= samples && x->values.n < MOST_BATCHES; b *= 2)
    if (samples % b == 0)
      vec_push(c->arena, &x->values, arena_printf(c->arena, "%lld", (long long)b));
}

static void split_words(const Cli *c, const char *words, Axis *x) {
  char *rest = arena_printf(c->arena, "%s", words);
  for (char *one; (one = strsep(&rest, " "));) vec_push(c->arena, &x->values, one);
}

static bool known_values(Cli *c, const Job *job, Axis *x) {
  const char *name = full_name(x->name);
  int64_t now = phase_dim(job, 0, x->name);
  if (is_batch(job, x->name)) {
    divisors(c, job, x);
  } else if (!strcmp(name, "recompute")) {
    split_words(c, "none auto full", x);
  } else if (!strcmp(name, "chunks")) {
    split_words(c, "1 8 64", x);
  } else if (format_setting(name) >= 0) {
    const char *const *words;
    int n = format_words((FormatSetting)format_setting(name), &words);
    for (int i = 0; i < n; i++) vec_push(c->arena, &x->values, words[i]);
  } else if (str_starts(name, "precision.")) {
    split_words(c, "f32 bf16", x);
  } else if (now > 1 && now % 2 == 0) {
    for (int64_t v = now / 2; v <= now * 2; v *= 2)
      vec_push(c->arena, &x->values, arena_printf(c->arena, "%lld", (long long)v));
  } else {
    cli_usage(c, "--vary %s needs values: --vary %s=1,2,4", x->name, x->name);
    return false;
  }
  return true;
}

/* ---- reading ---- */

/* A word without `=` after NAME=VALUE is one more value, unless it is a name that needs none. */
static bool is_value(const Job *job, const AxisList *axes, const char *word) {
  if (axes->n == 0 || vec_last(axes).values.n == 0) return false;
  return !is_batch(job, word) && !is_bound(word) && full_name(word) == word &&
         phase_dim(job, 0, word) < 0;
}

static bool read_axes(Cli *c, const Job *job, AxisList *axes) {
  for (int i = 0; i < c->flag.vary.n; i++) {
    char *rest = arena_printf(c->arena, "%s", c->flag.vary.at[i]);
    for (char *word; (word = strsep(&rest, ","));) {
      if (!*word) continue;
      char *equals = strchr(word, '=');
      if (!equals && is_value(job, axes, word)) {
        vec_push(c->arena, &vec_last(axes).values, word);
        continue;
      }
      Axis x = {.name = equals ? arena_printf(c->arena, "%.*s", (int)(equals - word), word) : word};
      if (equals) vec_push(c->arena, &x.values, equals + 1);
      vec_push(c->arena, axes, x);
    }
  }
  for (int i = 0; i < axes->n; i++)
    if (axes->at[i].values.n == 0 && !known_values(c, job, &axes->at[i])) return false;
  return true;
}

/* ---- settings ---- */

static void copy_overrides(Arena *a, JobArgs *to, const JobArgs *from) {
  *to = (JobArgs){.path = from->path, .preset = from->preset};
  for (int i = 0; i < from->dims.n; i++) vec_push(a, &to->dims, from->dims.at[i]);
  for (int i = 0; i < from->settings.n; i++) vec_push(a, &to->settings, from->settings.at[i]);
}

Setting cli_setting(const Cli *c, const PlanArgs *args) {
  Setting s = {.label = "",
               .flags = "",
               .recompute = args->recompute,
               .micro_batch = args->micro_batch,
               .chunks = args->chunks,
               .group = args->group,
               .host_bytes = args->host_bytes};
  copy_overrides(c->arena, &s.job, &c->job);
  return s;
}

static bool whole_number(Cli *c, const char *name, const char *value, int64_t *out) {
  char *end;
  *out = strtoll(value, &end, 10);
  if (end != value && !*end && *out > 0 && *out < 1 << 30) return true;
  cli_usage(c, "%s takes a whole number from 1 on, not `%s`", name, value);
  return false;
}

static bool bound_plan(Cli *c, const Job *job, Setting *s, const char *name, const char *value,
                       const char **flag) {
  int64_t n = 0;
  if (!strcmp(name, "recompute")) {
    *flag = "--recompute";
    s->recompute = !strcmp(value, "none") ? RC_NONE : !strcmp(value, "auto") ? RC_AUTO : RC_FULL;
    if (s->recompute != RC_FULL || !strcmp(value, "full")) return true;
    cli_usage(c, "recompute is one of none, auto and full, not `%s`", value);
    return false;
  }
  if (!strcmp(name, "host-ram")) {
    *flag = "--host-ram";
    if (parse_bytes(value, 0, &s->host_bytes)) return true;
    cli_usage(c, "host-ram takes sizes such as 0 or 48G, not `%s`", value);
    return false;
  }
  if (!whole_number(c, name, value, &n)) return false;
  if (!strcmp(name, "chunks")) {
    *flag = "--chunks";
    s->chunks = (int)n;
    return true;
  }
  *flag = "--micro-batch";
  s->micro_batch = n;
  if (phase_samples(job, 0) % n == 0) return true;
  cli_usage(c, "%s = %lld does not divide the %lld samples of a step", name, (long long)n,
            (long long)phase_samples(job, 0));
  return false;
}

bool cli_setting_with(Cli *c, const Job *job, Setting *s, const char *name, const char *value) {
  const char *flag = NULL, *full = full_name(name);
  Setting old = *s;
  copy_overrides(c->arena, &s->job, &old.job);
  if (is_batch(job, name) || is_bound(name)) {
    if (!bound_plan(c, job, s, name, value, &flag)) return false;
    s->flags = arena_printf(c->arena, "%s %s %s", old.flags, flag, value);
  } else {
    bool setting = strchr(full, '.') != NULL;
    Override o = {intern(full), intern(value)};
    if (setting)
      vec_push(c->arena, &s->job.settings, o);
    else
      vec_push(c->arena, &s->job.dims, o);
    const char *quote = strpbrk(value, "()'\"$* ;&|<>") ? "'" : ""; /* against the shell */
    s->flags = arena_printf(c->arena, "%s %s %s%s=%s%s", old.flags, setting ? "--set" : "-D", quote,
                            full, value, quote);
  }
  s->label = arena_printf(c->arena, "%s%s%s=%s", old.label, *old.label ? ", " : "", name, value);
  return true;
}

/* What the model leaves open is shown with each of its formats. */
static void open_axes(Cli *c, const Job *job, AxisList *axes) {
  for (int s = 0; s < FMT_COUNT; s++) {
    bool given = !job->precision.choice[s].open;
    for (int i = 0; i < axes->n && !given; i++) given = format_setting(axes->at[i].name) == s;
    if (given) continue;
    Axis x = {.name = format_setting_name((FormatSetting)s)};
    const char *const *words;
    int n = format_choices((FormatSetting)s, &words);
    for (int i = 0; i < n; i++) vec_push(c->arena, &x.values, words[i]);
    vec_push(c->arena, axes, x);
  }
}

bool cli_settings(Cli *c, const Job *job, const PlanArgs *args, SettingList *out) {
  AxisList axes = {0};
  if (!read_axes(c, job, &axes)) return false;
  open_axes(c, job, &axes);
  vec_push(c->arena, out, cli_setting(c, args));
  for (int i = 0; i < axes.n; i++) {
    SettingList next = {0};
    for (int k = 0; k < out->n; k++) {
      for (int v = 0; v < axes.at[i].values.n; v++) {
        Setting s = out->at[k];
        if (!cli_setting_with(c, job, &s, axes.at[i].name, axes.at[i].values.at[v])) return false;
        vec_push(c->arena, &next, s);
      }
    }
    *out = next;
    if (out->n <= MOST_SETTINGS) continue;
    cli_usage(c, "--vary makes too many settings: %d (the most is %d)", out->n, MOST_SETTINGS);
    return false;
  }
  return true;
}

PlanArgs cli_setting_args(const Setting *s, const PlanArgs *args) {
  PlanArgs p = *args;
  p.recompute = s->recompute;
  p.micro_batch = s->micro_batch;
  p.chunks = s->chunks;
  p.group = s->group;
  p.host_bytes = s->host_bytes;
  return p;
}
