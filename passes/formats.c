/* formats.c - see formats.h. */
#include "formats_impl.h"

#include <math.h>
#include <string.h>

#include "assemble.h"
#include "optimizer.h"
#include "precision.h"

/* ---- the table ---- */

static const Format table[] = {
#define FORMAT(setting, word, dtype, tf32, bytes, price, doc) \
  {setting, word, dtype, tf32, bytes, price, doc},
#include "formats.def"
};

static const char *const setting_names[FMT_COUNT] = {"compute", "master", "moments", "accum"};

const char *format_setting_name(FormatSetting s) {
  return setting_names[s];
}

static int list_words(FormatSetting s, bool open, const char **to) {
  int n = 0;
  for (int i = 0; i < COUNT_OF(table); i++)
    if (table[i].setting == s && (!open || table[i].price > 0)) to[n++] = table[i].word;
  return n;
}

int format_words(FormatSetting s, const char *const **words) {
  static const char *all[FMT_COUNT][COUNT_OF(table)];
  *words = all[s];
  return list_words(s, false, all[s]);
}

int format_choices(FormatSetting s, const char *const **words) {
  static const char *open[FMT_COUNT][COUNT_OF(table)];
  *words = open[s];
  return list_words(s, true, open[s]);
}

bool formats_open(const Job *job) {
  for (int s = 0; s < FMT_COUNT; s++)
    if (job->precision.choice[s].open) return true;
  return false;
}

static int *field(Precision *p, FormatSetting s) {
  int *const fields[FMT_COUNT] = {&p->compute, &p->master, &p->moments, &p->accum};
  return fields[s];
}

/* The row that stands in a job; NULL for one that no row has. */
static const Format *format_of(const Job *job, FormatSetting s) {
  Precision p = job->precision;
  for (int i = 0; i < COUNT_OF(table); i++)
    if (table[i].setting == s && table[i].dtype == *field(&p, s) &&
        (s != FMT_COMPUTE || table[i].tf32 == p.tf32))
      return &table[i];
  return NULL;
}

static void set_formats(Job *job, const Combo *c) {
  for (int s = 0; s < FMT_COUNT; s++) {
    if (!job->precision.choice[s].open) continue;
    *field(&job->precision, (FormatSetting)s) = c->format[s]->dtype;
    if (s == FMT_COMPUTE) job->precision.tf32 = c->format[s]->tf32;
  }
}

/* ---- combinations ---- */

static double combo_price(const Job *job, const Combo *c) {
  double price = 1;
  for (int s = 0; s < FMT_COUNT; s++)
    if (job->precision.choice[s].open) price *= c->format[s]->price;
  return price;
}

/* Weights of f32 have no master: its formats are all the same then. */
static bool makes_sense(const Job *job, const Combo *c) {
  const Format *compute = c->format[FMT_COMPUTE];
  if (!compute || !job->precision.choice[FMT_MASTER].open) return true;
  return c->format[FMT_MASTER]->dtype == DT_F32 || compute->dtype == DT_BF16;
}

static void add_combos(FormatsPool *p, Combo c, FormatSetting s) {
  if (s == FMT_COUNT) {
    c.price = combo_price(p->job, &c);
    if (makes_sense(p->job, &c)) vec_push(p->a, &p->combos, c);
    return;
  }
  bool open = p->job->precision.choice[s].open;
  if (!open) c.format[s] = format_of(p->job, s);
  if (!open) add_combos(p, c, s + 1);
  for (int i = 0; open && i < COUNT_OF(table); i++) {
    if (table[i].setting != s || table[i].price == 0) continue;
    c.format[s] = &table[i];
    add_combos(p, c, s + 1);
  }
}

/* Cheap ones first; of equal price in order of the table. */
static void sort_combos(FormatsPool *p) {
  for (int i = 1; i < p->combos.n; i++) {
    Combo c = p->combos.at[i];
    int k = i;
    for (; k > 0 && p->combos.at[k - 1].price > c.price; k--) p->combos.at[k] = p->combos.at[k - 1];
    p->combos.at[k] = c;
  }
}

FormatsPool *formats_pool(Job *job, const JobArgs *again, Arena *a, Arena *scratch,
                          const PlanArgs *args) {
  FormatsPool *p = arena_new_of(a, FormatsPool);
  *p = (FormatsPool){.job = job,
                     .again = arena_copy(a, again, sizeof *again),
                     .a = a,
                     .scratch = scratch,
                     .args = *args};
  add_combos(p, (Combo){0}, 0);
  sort_combos(p);
  ensure(p->combos.n, "no combination of formats");
  return p;
}

/* The job of a combination, with its variables. NULL when it cannot be elaborated again. */
static Job *job_of(FormatsPool *p, Combo *c) {
  if (c->job) return c->job;
  bool first = !p->job_used;
  Job *job = first ? p->job : elaborate(p->a, diags_new(p->a), p->again);
  ensure(job && job->diags->errors == (first ? job->diags->errors : 0),
         "a model that was elaborated before cannot be elaborated again");
  p->job_used = true;
  set_formats(job, c);
  precision_vars(job);
  optimizer_vars(job);
  return c->job = job;
}

/* ---- what can be known without planning ---- */

/* Elements of the variables of a role. */
static int64_t elements(const Job *job, VarRole role) {
  int64_t n = 0;
  for (int i = 0; i < job->vars->all.n; i++)
    if (job->vars->all.at[i].role == role) n += shape_count(&job->vars->all.at[i].shape);
  return n;
}

/* Bytes that a combination stores less than another of the same weights, at the most. */
typedef struct {
  int64_t state, accum;
} Saved;

static int64_t saved_by(const Combo *base, const Combo *c, FormatSetting s, VarRole role) {
  const Format *from = base->format[s], *to = c->format[s];
  if (!from || !to || from->bytes <= to->bytes) return 0;
  return mul64(elements(base->job, role), from->bytes - to->bytes);
}

static Saved saved_bytes(const Combo *base, const Combo *c) {
  return (Saved){
      saved_by(base, c, FMT_MASTER, VAR_MASTER) + saved_by(base, c, FMT_MOMENTS, VAR_MOMENT),
      saved_by(base, c, FMT_ACCUM, VAR_ACCUM)};
}

/* The most precise combination of the same weights: it stores the most. */
static Combo *root_of(FormatsPool *p, const Combo *c) {
  for (int i = 0; i < p->combos.n; i++)
    if (p->combos.at[i].format[FMT_COMPUTE] == c->format[FMT_COMPUTE]) return &p->combos.at[i];
  bug("a combination of no pool");
}

bool combo_too_large(FormatsPool *p, Combo *c, int64_t budget) {
  Combo *root = root_of(p, c);
  const Vars *vars = job_of(p, root)->vars;
  Saved s = saved_bytes(root, c);
  int64_t gaps = (int64_t)PLAN_ALIGN * vars->all.n;
  int64_t accum = early_update_possible(root->job) ? accumulators_bytes(vars) : s.accum;
  int64_t bytes = variables_bytes(vars) - gaps - s.state - accum - p->args.host_bytes;
  return bytes + p->args.target->overhead_bytes + p->args.reserve_bytes > budget;
}

/* Nanoseconds that moving a byte takes at the slowest, by the cost model. */
static double ns_per_byte(const FormatsPool *p) {
  const Target *t = p->args.target;
  double slowest = 1;
  for (int k = 0; k < KC_COUNT; k++)
    if (t->speed[k] > 0 && t->speed[k] < slowest) slowest = t->speed[k];
  double rate = t->moving * t->copy_gbs * slowest;
  if (p->args.host_bytes > 0) rate = fmin(rate, fmin(t->h2d_gbs, t->d2h_gbs));
  return 1 / rate;
}

static double phase_weight(const Job *job, int phase) {
  return job->phases.at[phase].steps > 0 ? (double)job->phases.at[phase].steps : 1;
}

/* Least time of a phase in another combination of the same weights: a candidate of `base` that
 * would fit if the bytes that are stored less were added to the budget, faster by no more than the bytes
 * that are moved less. State is read and written once a step; a gradient is read and written in
 * each micro-batch, and read twice and written in the update. */
static double least_of_phase(const FormatsPool *p, const Combo *base, const Saved *s, int phase,
                             int64_t budget) {
  int64_t samples = phase_samples(base->job, phase);
  double least = INFINITY, per_byte = ns_per_byte(p);
  int64_t room = s->state + s->accum + (int64_t)PLAN_ALIGN * base->job->vars->all.n;
  for (int i = 0; i < base->ncandidates[phase]; i++) {
    const Candidate *c = &base->candidates[phase][i];
    bool fits = p->args.host_bytes > 0 || c->peak_bytes - c->peak_bytes / 64 - room <= budget;
    if (!fits) continue;
    double micro = (double)ceil_div(samples, c->micro_batch);
    double saved = 2 * (double)s->state + (double)s->accum * (2 * micro + 3);
    least = fmin(least, (double)c->step_ns - saved * per_byte);
  }
  return fmax(least, 0);
}

/* A bound of its time within a budget; 0 while nothing of the same weights was planned. */
static double least_time(const FormatsPool *p, const Combo *c, int64_t budget) {
  const Combo *base = NULL;
  for (int i = 0; i < p->combos.n && !base; i++) {
    const Combo *b = &p->combos.at[i];
    if (b->pool && b->format[FMT_COMPUTE] == c->format[FMT_COMPUTE]) base = b;
  }
  if (!base || base == c) return 0;
  Saved s = saved_bytes(base, c);
  double total = 0;
  for (int phase = 0; phase < base->job->phases.n; phase++)
    total += phase_weight(base->job, phase) * least_of_phase(p, base, &s, phase, budget);
  return total;
}

/* ---- choosing ---- */

double fit_time(const FitResult *r) {
  double total = 0;
  for (int i = 0; r->plan && i < r->plan->phases.n; i++)
    total +=
        phase_weight(r->job, r->plan->phases.at[i].phase) * (double)r->plan->phases.at[i].step_ns;
  return total;
}

double formats_cost(const FitResult *r) {
  double price = 1;
  for (int s = 0; s < FMT_COUNT; s++) {
    const Format *f = format_of(r->job, (FormatSetting)s);
    if (r->job->precision.choice[s].open && f) price *= f->price;
  }
  return 1e-9 * price * fit_time(r);
}

/* Of the pools with the same weights and accumulators: the one with the most to share. */
static const FitPool *alike(const FormatsPool *p, const Combo *c) {
  const FitPool *best = NULL;
  for (int i = 0; i < p->combos.n; i++) {
    const Combo *b = &p->combos.at[i];
    bool same = b->format[FMT_COMPUTE] == c->format[FMT_COMPUTE] &&
                b->format[FMT_ACCUM] == c->format[FMT_ACCUM];
    if (same && b->pool && (!best || fit_families_known(b->pool) > fit_families_known(best)))
      best = b->pool;
  }
  return best;
}

FitResult combo_within(FormatsPool *p, Combo *c, Arena *a, int64_t budget) {
  Job *job = job_of(p, c);
  if (!c->pool) {
    c->pool = fit_pool_like(alike(p, c), job, p->scratch, &p->args);
    c->candidates = arena_array(p->scratch, Candidate *, job->phases.n);
    c->ncandidates = arena_array(p->scratch, int, job->phases.n);
    for (int i = 0; i < job->phases.n; i++)
      c->ncandidates[i] = fit_candidates(c->pool, i, p->scratch, &c->candidates[i]);
  }
  return fit_within(c->pool, a, budget);
}

/* What stores the least: its floor is the floor. */
static Combo *smallest(const FormatsPool *p) {
  Combo *best = NULL;
  int64_t least = 0;
  for (int i = 0; i < p->combos.n; i++) {
    Combo *c = &p->combos.at[i];
    int64_t bytes = 0;
    for (int s = 0; s < FMT_COUNT; s++)
      if (c->format[s]) bytes += c->format[s]->bytes * (s == FMT_MOMENTS ? 2 : 1);
    if (best && bytes >= least) continue;
    best = c;
    least = bytes;
  }
  return best;
}

FitResult formats_within(FormatsPool *p, Arena *a, int64_t budget_bytes) {
  int64_t most = p->args.target->usable_bytes;
  int64_t budget = budget_bytes < most ? budget_bytes : most;
  Combo *best = NULL;
  FitResult r = {0};
  double least = INFINITY;
  for (int i = 0; i < p->combos.n; i++) {
    Combo *c = &p->combos.at[i];
    c->time = 0;
    if (combo_too_large(p, c, budget) || least_time(p, c, budget) * c->price >= least) continue;
    FitResult with = combo_within(p, c, a, budget_bytes);
    c->time = with.plan ? fit_time(&with) : INFINITY;
    if (c->time * c->price >= least) continue;
    least = c->time * c->price;
    best = c;
    r = with;
  }
  if (!best) r = combo_within(p, best = smallest(p), a, budget_bytes);
  formats_explain(p, best, a, &r);
  return r;
}

FitResult formats_fit(Job *job, const JobArgs *again, Arena *a, const PlanArgs *args) {
  if (!formats_open(job)) return plan_fit(job, a, args);
  Arena *scratch = arena_new();
  FormatsPool *p = formats_pool(job, again, a, scratch, args);
  FitResult r = formats_within(p, a, args->budget_bytes);
  arena_free(scratch);
  return r;
}

int formats_planned(const FormatsPool *p) {
  int n = 0;
  for (int i = 0; i < p->combos.n; i++) n += p->combos.at[i].pool != NULL;
  return n;
}
