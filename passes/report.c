/* report.c - the plan for people: the ledger at the peak, what is rebuilt, the estimate, what was
 * not chosen and what more memory would buy. Input: a FitResult. Output: text; every figure is the
 * plan's own. */
#include "report.h"

#include <math.h>
#include <string.h>

/* ---- numbers ---- */

char *bytes_short(Arena *a, int64_t bytes) {
  if (bytes >= (int64_t)1 << 30) return arena_printf(a, "%.2f GiB", gib(bytes));
  if (bytes >= 1 << 20) return arena_printf(a, "%.1f MiB", mib(bytes));
  return format_bytes(a, bytes);
}

char *time_short(Arena *a, int64_t ns) {
  if (ns >= 1000000000) return arena_printf(a, "%.2f s", (double)ns * 1e-9);
  if (ns >= 1000000) return arena_printf(a, "%.1f ms", (double)ns * 1e-6);
  return arena_printf(a, "%.1f us", (double)ns * 1e-3);
}

double tokens_per_second(const FitResult *r, int phase, int64_t step_ns) {
  return (double)phase_tokens(r->job, phase) / ((double)step_ns * 1e-9);
}

const char *rate_unit(const FitResult *r, int phase) {
  return r->job->phases.at[phase].unit == BATCH_IMAGES ? "img/s" : "tok/s";
}

char *candidate_how(Arena *a, const Candidate *c) {
  const char *chunks = c->chunks > 1 ? arena_printf(a, ", loss in %d chunks", c->chunks) : "";
  const char *mlps = c->mlp_chunks > 1 ? arena_printf(a, ", MLPs in %d chunks", c->mlp_chunks) : "";
  const char *group = c->group > 1 ? arena_printf(a, ", layers in %d parts", c->group) : "";
  return arena_printf(a, "%s%s%s%s%s", c->front ? "recompute" : "no recompute", chunks, mlps, group,
                      c->early_update ? ", early updates" : "");
}

char *candidate_text(Arena *a, const Candidate *c) {
  return arena_printf(a, "B=%-4lld %s", (long long)c->micro_batch, candidate_how(a, c));
}

static const char *optimizer_name(OptKind k) {
  static const char *const name[] = {"adamw", "adam", "sgd", "adafactor", "lion", "muon"};
  return name[k];
}

/* ---- what stands in each row ---- */

/* "bf16", "bf16 and f32": dtypes of the variables of a role. */
static const char *dtypes_of(const Report *x, VarRole role) {
  bool has[DT_COUNT] = {false};
  const Vars *v = x->r->job->vars;
  for (int i = 0; i < v->all.n; i++)
    if (v->all.at[i].role == role) has[v->all.at[i].dtype] = true;
  Str s = {.arena = x->arena};
  for (int t = 0; t < DT_COUNT; t++)
    if (has[t]) str_addf(&s, "%s%s", s.len ? " and " : "", dtype_name((DType)t));
  return s.text ? s.text : "";
}

static const char *moments_text(const Report *x) {
  const Vars *v = x->r->job->vars;
  int moments = 0, grads = 0;
  bool blocks = false;
  for (int i = 0; i < v->all.n; i++) {
    const Var *at = &v->all.at[i];
    bool scale = str_ends(at->path, ":scale");
    moments += at->role == VAR_MOMENT && !scale;
    grads += at->role == VAR_ACCUM;
    blocks |= scale;
  }
  int each = grads ? (moments + grads - 1) / grads : 0;
  const char *opt = optimizer_name(x->r->job->phases.at[x->r->phase].opt.kind);
  const char *format = blocks ? "i8" : dtypes_of(x, VAR_MOMENT);
  return each > 1 ? arena_printf(x->arena, "%s x %d  (%s)", format, each, opt) : format;
}

/* The role of the variables of a class; -1: other bytes. */
static int role_of(BufClass c) {
  static const struct {
    BufClass c;
    VarRole role;
  } rows[] = {{BC_WEIGHTS, VAR_PARAM},
              {BC_MASTER, VAR_MASTER},
              {BC_MOMENTS, VAR_MOMENT},
              {BC_GRADIENTS, VAR_ACCUM}};
  for (int i = 0; i < COUNT_OF(rows); i++)
    if (rows[i].c == c) return (int)rows[i].role;
  return -1;
}

double bytes_per_param(const Plan *p, BufClass c, int dtype) {
  const Job *job = p->job;
  int64_t bytes = 0, params = c == BC_WEIGHTS ? job->params : job->trainable;
  for (int i = 0; i < job->vars->all.n; i++) {
    const Var *v = &job->vars->all.at[i];
    if (p->var_buf[i] >= 0 && (int)v->role == role_of(c) && (dtype < 0 || (int)v->dtype == dtype))
      bytes += shape_bytes(&v->shape, v->dtype);
  }
  return params ? (double)bytes / (double)params : 0;
}

static const char *activations_text(const Report *x, const PlanPhase *ph) {
  LayerGroups rb = plan_rebuilt(x->r->plan, ph->programs[PROG_MICRO], x->arena);
  if (rb.n == 0) return "all kept";
  int layers = x->r->job->layers;
  return arena_printf(x->arena, "%d of %d layers kept whole", layers - rb.layers, layers);
}

static const char *format_text(const Report *x, BufClass c, const PlanPhase *ph) {
  switch (c) {
    case BC_WEIGHTS:
      return dtypes_of(x, VAR_PARAM);
    case BC_MASTER:
      return x->r->job->precision.master == PREC_SPLIT ? "split" : dtypes_of(x, VAR_MASTER);
    case BC_MOMENTS:
      return moments_text(x);
    case BC_GRADIENTS:
      return arena_printf(x->arena, "%s, accumulated", dtypes_of(x, VAR_ACCUM));
    case BC_STATES:
      return dtypes_of(x, VAR_STATE);
    case BC_ACTIVATION:
      return activations_text(x, ph);
    case BC_LOGITS:
      return ph->chunks > 1 ? arena_printf(x->arena, "1 of %d chunks", ph->chunks) : "whole";
    case BC_STAGES:
      return "of what is on the host";
    case BC_WORKSPACE:
      return x->r->plan->target->kind == DEV_CUDA ? "cuBLASLt and column sums" : "column sums";
    default:
      return "";
  }
}

/* The format; of variables with bytes per parameter. */
static const char *class_text(const Report *x, BufClass c, const PlanPhase *ph) {
  const char *text = format_text(x, c, ph);
  double each = bytes_per_param(x->r->plan, c, -1);
  return each > 0 ? arena_printf(x->arena, "%-18s %5.2f B/param", text, each) : text;
}

/* ---- rows ---- */

static void bar(const Report *x, double percent) {
  int room = x->columns - 72, per = room >= 50 ? 2 : room >= 20 ? 5 : 0;
  if (per == 0) return;
  int n = (int)lround(percent / per);
  if (n > 0) fputs("  ", x->to);
  for (int i = 0; i < n; i++) fputs(x->unicode ? "\u2588" : "#", x->to);
}

static void row(const Report *x, const char *name, const char *detail, int64_t bytes) {
  double share = 100.0 * (double)bytes / (double)x->r->budget_bytes;
  fprintf(x->to, "  %-15s %-34.34s %10.1f", name, detail, mib(bytes));
  if (x->r->budget_bytes < INT64_MAX) {
    fprintf(x->to, " %6.1f", share);
    bar(x, share);
  }
  fputc('\n', x->to);
}

static void header(const Report *x) {
  const Plan *p = x->r->plan;
  const Job *j = p->job;
  const PlanPhase *ph = &p->phases.at[x->r->phase];
  char *left = arena_printf(x->arena, "%s%s%s%s   %s params   %d layers", j->model,
                            j->preset ? "(" : "", j->preset ? j->preset : "", j->preset ? ")" : "",
                            format_count(x->arena, j->params), j->layers);
  int64_t T = phase_dim(j, ph->phase, "T");
  if (T > 0) left = arena_printf(x->arena, "%s   T=%lld", left, (long long)T);
  fprintf(x->to, "%-*s   plan %08x\n", x->columns >= 96 ? 78 : 60, left, (unsigned)(p->id >> 32));
  const Target *t = p->target;
  char *what = t->kind == DEV_CUDA ? arena_printf(x->arena, "%s  sm_%d  %.0f MiB", t->name, t->sm,
                                                  mib(t->usable_bytes))
                                   : arena_printf(x->arena, "%s", t->name);
  fprintf(x->to, "target          %s", what);
  int64_t asked = x->r->args.budget_bytes;
  if (asked < INT64_MAX && asked > p->budget_bytes)
    fprintf(x->to, "   (%s asked for; capped to the card)", format_bytes(x->arena, asked));
  fputc('\n', x->to);
  for (int i = 0; i < p->phases.n; i++) {
    const PlanPhase *q = &p->phases.at[i];
    const char *name = j->phases.at[q->phase].name;
    int64_t per = phase_tokens(j, q->phase) / phase_samples(j, q->phase);
    fprintf(x->to, "%-15s %s %s = %lld", i == 0 ? "batch" : "",
            format_count(x->arena, phase_tokens(j, q->phase)),
            j->phases.at[q->phase].unit == BATCH_IMAGES ? "images" : "tokens",
            (long long)q->micro_batch);
    if (per > 1) fprintf(x->to, " x %lld", (long long)per);
    fprintf(x->to, " x %lld accumulation step%s", (long long)q->accumulation,
            q->accumulation == 1 ? "" : "s");
    if (name && *name) fprintf(x->to, "   (phase %s)", name);
    fputc('\n', x->to);
  }
  for (int i = 0; i < j->overrides.n; i++)
    fprintf(x->to, "%-15s %s\n", i == 0 ? "command line" : "", j->overrides.at[i]);
}

static void ledger_rows(const Report *x, const Ledger *l) {
  const Plan *p = x->r->plan;
  const PlanPhase *ph = &p->phases.at[x->r->phase];
  for (int c = 0; c < BC_COUNT; c++)
    if (l->bytes[c] > 0)
      row(x, buf_class_text((BufClass)c), class_text(x, (BufClass)c, ph), l->bytes[c]);
  if (l->gaps > 0) row(x, "gaps", "placement and rounding", l->gaps);
  if (p->overhead_bytes > 0)
    row(x, "CUDA context", "with streams and graphs", p->overhead_bytes);
  if (p->reserve_bytes > 0) row(x, "reserve", "left to others", p->reserve_bytes);
}

static void ledger(const Report *x) {
  const Plan *p = x->r->plan;
  Ledger l = plan_ledger(p);
  const PlanProgram *peak = &p->programs.at[l.program];
  const char *at = peak->nsteps ? peak->clusters.at[peak->steps[peak->peak_step].cluster].name : "";
  char *title = arena_printf(x->arena, "at the peak: op %d of %d of %s, %s", peak->peak_step + 1,
                             peak->nsteps, peak->name, at);
  fprintf(x->to, "\n  %-50.50s %10s%s\n", title, "MiB",
          x->r->budget_bytes < INT64_MAX ? "      %" : "");
  ledger_rows(x, &l);
  fputs("  ", x->to);
  for (int i = 0; i < 69; i++) fputc('-', x->to);
  fputc('\n', x->to);
  row(x, "total", "", p->peak_bytes);
  if (p->budget_bytes < INT64_MAX) row(x, "slack", "", p->budget_bytes - p->peak_bytes);
  report_host(x, &l);

  int64_t all = 0;
  int n = 0;
  for (int i = 0; i < p->bufs.n; i++) {
    if (p->bufs.at[i].program >= 0 && p->bufs.at[i].program != l.program) continue;
    if (p->bufs.at[i].space != SPACE_DEVICE) continue;
    all += p->bufs.at[i].bytes;
    n++;
  }
  fprintf(x->to, "\n  arena           %d buffers, %.1f MiB if never reused -> %.1f MiB\n", n,
          mib(all), mib(p->arena_bytes));
  double waste = peak->liveness_bytes
                     ? 100.0 * (double)(peak->transient_bytes - peak->liveness_bytes) /
                           (double)(p->persistent_bytes + peak->liveness_bytes)
                     : 0;
  fprintf(x->to, "  %-15s liveness lower bound %.1f MiB, fragmentation %.1f %%\n", "",
          mib(p->persistent_bytes + peak->liveness_bytes), waste);
}

enum { SHOWN_GROUPS = 8 };

static void recompute_rows(const Report *x) {
  const Plan *p = x->r->plan;
  const PlanPhase *ph = &p->phases.at[x->r->phase];
  LayerGroups rb = plan_rebuilt(p, ph->programs[PROG_MICRO], x->arena);
  if (rb.n == 0) {
    fputs("\n  recompute       nothing\n", x->to);
    return;
  }
  int64_t bytes = 0, ns = 0;
  fputc('\n', x->to);
  for (int i = 0; i < rb.n && i < SHOWN_GROUPS; i++) {
    const LayerGroup *g = &rb.at[i];
    fprintf(x->to, "  %-15s %-34s frees %9s   costs %s\n", i == 0 ? "recompute" : "", g->name,
            bytes_short(x->arena, g->bytes), time_short(x->arena, g->ns));
    bytes += g->bytes;
    ns += g->ns;
  }
  if (rb.n > SHOWN_GROUPS)
    fprintf(x->to, "  %-15s %-34s frees %9s   costs %s\n", "",
            arena_printf(x->arena, "%d others", rb.n - SHOWN_GROUPS),
            bytes_short(x->arena, rb.bytes - bytes), time_short(x->arena, rb.ns - ns));
  double share = 100.0 * (double)(rb.ns * ph->accumulation) / (double)ph->step_ns;
  fprintf(x->to, "  %-15s %-34s frees %9s   costs %.1f %%\n", "", "total",
          bytes_short(x->arena, rb.bytes), share);
}

/* Saved values that wait on the host. */
static void waiting_rows(const Report *x) {
  const PlanPhase *ph = &x->r->plan->phases.at[x->r->phase];
  LayerGroups w = plan_waiting(x->r->plan, ph->programs[PROG_MICRO], x->arena);
  int64_t bytes = 0;
  for (int i = 0; i < w.n && i < SHOWN_GROUPS; i++) {
    fprintf(x->to, "  %-15s %-34s frees %9s   copied out and in\n", i == 0 ? "on the host" : "", w.at[i].name,
            bytes_short(x->arena, w.at[i].bytes));
    bytes += w.at[i].bytes;
  }
  if (w.n > SHOWN_GROUPS)
    fprintf(x->to, "  %-15s %-34s frees %9s\n", "", arena_printf(x->arena, "%d others", w.n - SHOWN_GROUPS),
            bytes_short(x->arena, w.bytes - bytes));
  if (w.n > 1) fprintf(x->to, "  %-15s %-34s frees %9s\n", "", "total", bytes_short(x->arena, w.bytes));
}

/* Gradients that have no accumulator; nothing where the update is a program of its own. */
static void early_row(const Report *x) {
  const Plan *p = x->r->plan;
  const Vars *v = p->job->vars;
  if (!phase_updates_early(&p->phases.at[x->r->phase])) return;
  int64_t bytes = 0;
  for (int i = 0; i < v->all.n; i++)
    if (v->all.at[i].role == VAR_ACCUM && p->var_buf[i] < 0)
      bytes += shape_bytes(&v->all.at[i].shape, v->all.at[i].dtype);
  fprintf(x->to, "  %-15s %-34s frees %9s   of gradients\n", "early updates",
          "each right after its gradient", bytes_short(x->arena, bytes));
}

static void precision_row(const Report *x) {
  const Job *j = x->r->job;
  fprintf(x->to, "  %-15s %s", "precision",
          j->precision.compute < 0 ? "auto" : j->precision.tf32 ? "tf32" : dtype_name((DType)j->precision.compute));
  for (int i = 0; i < j->precision.rules.n; i++) {
    const PrecRule *rule = &j->precision.rules.at[i];
    char *place = loc_text(j->diags, x->arena, rule->loc);
    fprintf(x->to, "%s %s (%s%s%s)", i == 0 ? " except" : ",", rule->pattern,
            rule->dtype < 0 ? "auto" : rule->tf32 ? "tf32" : dtype_name((DType)rule->dtype), *place ? ", " : "", place);
  }
  const LossScale *scale = &j->precision.scale;
  if (scale->on) fprintf(x->to, "; loss scale %s%.0f", scale->dynamic ? "from " : "", scale->init);
  fputc('\n', x->to);
}

/* Nothing when MLPs run whole. */
static void mlp_row(const Report *x) {
  const PlanPhase *ph = &x->r->plan->phases.at[x->r->phase];
  if (ph->mlp_chunks <= 1) return;
  fprintf(x->to, "  %-15s each in %d chunks of tokens, forward and backward\n", "MLPs", ph->mlp_chunks);
}

/* Nothing when every layer runs the micro-batch as a whole. */
static void group_row(const Report *x) {
  const PlanPhase *ph = &x->r->plan->phases.at[x->r->phase];
  if (ph->group <= 1) return;
  int64_t each = ph->micro_batch / ph->group;
  fprintf(x->to, "  %-15s each layer in %d parts of %lld sample%s, forward and backward\n", "group",
          ph->group, (long long)each, each == 1 ? "" : "s");
}

/* What the planner chose where the model says `auto`. */
static void format_rows(const Report *x) {
  for (int i = 0; i < x->r->formats.n; i++) {
    const FormatNote *f = &x->r->formats.at[i];
    fprintf(x->to, "  %-15s %-8s %-5s %s\n", i == 0 ? "auto" : "", f->setting, f->format, f->why);
  }
}

/* "   12.00 GiB pinned", where host memory may be used. */
static const char *pinned_text(const Report *x, int64_t bytes) {
  if (x->r->args.host_bytes == 0) return "";
  return bytes == 0 ? "   nothing pinned" : arena_printf(x->arena, "   %s pinned", bytes_short(x->arena, bytes));
}

static void estimate_rows(const Report *x) {
  const Plan *p = x->r->plan;
  const PlanPhase *ph = &p->phases.at[x->r->phase];
  double rate = tokens_per_second(x->r, ph->phase, ph->step_ns);
  const PlanProgram *micro = &p->programs.at[ph->programs[PROG_MICRO]];
  fprintf(x->to,
          "\n  step estimate   %s   %s %s   (micro-batch %s; %s)\n",
          time_short(x->arena, ph->step_ns), format_count(x->arena, llround(rate)),
          rate_unit(x->r, ph->phase), time_short(x->arena, micro->ns),
          p->target->file ? arena_printf(x->arena, "calibrated by %s", p->target->file)
                          : "the model is within about 15 %");
  report_copies(x, ph);
  for (int i = 0; i < x->r->passed.n; i++) {
    const Candidate *c = &x->r->passed.at[i];
    double other = tokens_per_second(x->r, ph->phase, c->step_ns);
    fprintf(x->to, "  %-15s %-34s %12s   %s %s   %+.1f %%%s\n", i == 0 ? "not chosen" : "",
            candidate_text(x->arena, c), bytes_short(x->arena, c->peak_bytes),
            format_count(x->arena, llround(other)), rate_unit(x->r, ph->phase),
            100.0 * (other / rate - 1.0), pinned_text(x, c->host_bytes));
  }
}

/* Three larger budgets: the next plan, the last, and the one that is half-way there in speed. */
static void more_budget_row(const Report *x) {
  const FitResult *r = x->r;
  const PlanPhase *ph = &r->plan->phases.at[r->phase];
  double rate = tokens_per_second(r, ph->phase, ph->step_ns);
  int first = 0;
  while (first < r->frontier.n && r->frontier.at[first].step_ns >= ph->step_ns) first++;
  fprintf(x->to, "  %-15s ", "more budget");
  int last = r->frontier.n - 1, n = 0, before = -1;
  while (last > first && r->frontier.at[last].peak_bytes / 4 > r->budget_bytes)
    last--; /* of no interest */
  int pick[3] = {first, last, last};
  double best =
      first <= last ? tokens_per_second(r, ph->phase, r->frontier.at[last].step_ns) : rate;
  for (int i = last; i >= first; i--)
    if (tokens_per_second(r, ph->phase, r->frontier.at[i].step_ns) >= (rate + best) / 2)
      pick[1] = i;
  for (int i = 0; i < 3; i++) {
    if (pick[i] <= before || pick[i] > last) continue;
    const Candidate *c = &r->frontier.at[pick[i]];
    double gain = 100.0 * (tokens_per_second(r, ph->phase, c->step_ns) / rate - 1.0);
    fprintf(x->to, "%s%s %+.1f %%", n++ ? "   " : "", bytes_short(x->arena, c->peak_bytes), gain);
    before = pick[i];
  }
  fprintf(x->to, "%s\n", n ? last < r->frontier.n - 1 ? "" : "   beyond: nothing" : "buys nothing");
}

void plan_report(const FitResult *r, FILE *to, int columns, bool unicode) {
  Report x = {.r = r, .arena = arena_new(), .to = to, .columns = columns, .unicode = unicode};
  if (r->plan) {
    header(&x);
    ledger(&x);
    recompute_rows(&x);
    waiting_rows(&x);
    mlp_row(&x);
    group_row(&x);
    early_row(&x);
    precision_row(&x);
    format_rows(&x);
    estimate_rows(&x);
    more_budget_row(&x);
  } else {
    report_verdict(&x);
    report_ways_out(&x);
  }
  arena_free(x.arena);
}

static void half(const FitResult *r, FILE *to, int columns, void (*print)(const Report *x)) {
  Report x = {.r = r, .arena = arena_new(), .to = to, .columns = columns};
  print(&x);
  arena_free(x.arena);
}

void plan_verdict(const FitResult *r, FILE *to, int columns) {
  half(r, to, columns, report_verdict);
}

void plan_ways_out(const FitResult *r, FILE *to, int columns) {
  half(r, to, columns, report_ways_out);
}
