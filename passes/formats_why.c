/* formats_why.c - what each chosen format buys: the plan within the same budget with the most
 * precise format in its place, in bytes of variables and time (see formats.h). */
#include "formats_impl.h"

#include <math.h>
#include <string.h>

#include "assemble.h"
#include "report.h"

/* The combination that differs in one setting, where it has the most precise format; NULL when that
 * is the chosen one. Weights of f32 have no master, whatever its format. */
static Combo *precise_of(FormatsPool *p, const Combo *chosen, FormatSetting s) {
  for (int i = 0; i < p->combos.n; i++) {
    Combo *c = &p->combos.at[i];
    bool same = true;
    for (int k = 0; k < FMT_COUNT; k++)
      same &=
          k == (int)s || (s == FMT_COMPUTE && k == FMT_MASTER) || c->format[k] == chosen->format[k];
    if (same) return c == chosen ? NULL : c;
  }
  return NULL;
}

/* The least that another format of the setting has to buy, as a share of the step. */
static double least_gain(const FormatsPool *p, const Combo *chosen, FormatSetting s) {
  double least = INFINITY;
  for (int i = 0; i < p->combos.n; i++) {
    const Format *f = p->combos.at[i].format[s];
    if (f->price >= chosen->format[s]->price && f != chosen->format[s])
      least = fmin(least, f->price / chosen->format[s]->price - 1);
  }
  return least;
}

static const char *saved_text(Arena *a, int64_t bytes) {
  return bytes > 0 ? arena_printf(a, "saves %s; ", bytes_short(a, bytes)) : "";
}

static const char *reason(FormatsPool *p, const Combo *chosen, FormatSetting s, Arena *a,
                          const FitResult *r) {
  if (!r->plan) return "the smallest that `auto` may choose";
  Combo *other = precise_of(p, chosen, s);
  if (!other) {
    double gain = least_gain(p, chosen, s);
    if (!isfinite(gain)) return "the only one here";
    if (gain == 0) return "the most precise; nothing else is faster here";
    return arena_printf(a, "the most precise; another would have to be %.1f %% faster", 100 * gain);
  }
  int64_t budget = r->budget_bytes;
  const char *word = other->format[s]->word;
  if (combo_too_large(p, other, budget))
    return arena_printf(a, "with %s the variables alone are over the budget", word);
  if (other->time == 0) { /* it could not win */
    Arena *scratch = arena_new();
    FitResult with = combo_within(p, other, scratch, budget);
    other->time = with.plan ? fit_time(&with) : INFINITY;
    arena_free(scratch);
  }
  bool fits = isfinite(other->time);
  double slower = fits ? other->time / fit_time(r) - 1 : 0;
  int64_t saved = variables_bytes(other->job->vars) - variables_bytes(chosen->job->vars);
  if (!fits)
    return arena_printf(a, "%swith %s nothing fits the budget", saved_text(a, saved), word);
  return arena_printf(a, "%s%.1f %% faster than with %s", saved_text(a, saved), 100 * slower, word);
}

void formats_explain(FormatsPool *p, const Combo *chosen, Arena *a, FitResult *r) {
  for (int s = 0; s < FMT_COUNT; s++) {
    FormatChoice *c = &chosen->job->precision.choice[s];
    if (!c->open) continue;
    const char *why = reason(p, chosen, (FormatSetting)s, a, r);
    c->why = arena_printf(p->a, "%s, %s", chosen->format[s]->word, why);
    FormatNote note = {format_setting_name((FormatSetting)s), chosen->format[s]->word, why};
    vec_push(a, &r->formats, note);
  }
}
