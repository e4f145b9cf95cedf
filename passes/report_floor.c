/* report_floor.c - E0501 for people: the floor, its parts, the shortfall, and changes that were really planned; or the
 * host memory that is missing. */
#include <math.h>
#include <string.h>

#include "report.h"

static void part(const Report *x, const char *name, const char *what, int64_t bytes,
                 const char *remark) {
  fprintf(x->to, "  %-18s %-40s %10s%s%s\n", name, what, bytes_short(x->arena, bytes),
          *remark ? "   " : "", remark);
}

/* "on the host", "43.9 GiB of it on the host", or nothing. */
static const char *host_remark(const Report *x, int64_t host, int64_t all) {
  if (host == 0) return "";
  return host == all ? "on the host" : arena_printf(x->arena, "%s of it on the host", bytes_short(x->arena, host));
}

/* Variables by class: each, and where it lies in the smallest plan. */
static void class_parts(const Report *x) {
  const FitResult *r = x->r;
  for (int c = 0; c < BC_COUNT; c++)
    if (r->class_bytes[c] > 0 && c != BC_SCALARS)
      part(x, "", buf_class_text((BufClass)c), r->class_bytes[c], host_remark(x, r->floor_host_class[c], r->class_bytes[c]));
}

static void floor_parts(const Report *x) {
  const FitResult *r = x->r;
  Str what = {.arena = x->arena};
  for (int c = 0; c < BC_COUNT; c++)
    if (r->class_bytes[c] > r->floor_host_class[c] && c != BC_SCALARS)
      str_addf(&what, "%s%s", what.len ? " + " : "", buf_class_text((BufClass)c));
  int64_t outside = r->args.target->overhead_bytes + r->args.reserve_bytes;
  const char *over = r->floor_persistent + outside > r->budget_bytes ? "already over budget" : "";
  part(x, "cannot shrink", what.text ? what.text : "variables", r->floor_persistent, over);
  class_parts(x);
  if (r->floor_host > 0)
    part(x, "", arena_printf(x->arena, "host memory, of --host-ram %s", format_bytes(x->arena, r->args.host_bytes)), r->floor_host, "");
  if (outside > 0) part(x, "", "context and reserve", outside, "");
  const Candidate *least = r->frontier.n ? &r->frontier.at[0] : NULL;
  const char *how = !least ? ""
                           : arena_printf(x->arena, "B=%lld, %s", (long long)least->micro_batch,
                                          candidate_how(x->arena, least));
  part(x, "smallest arena", how, r->floor_transient, "");
}

/* Plan i of the frontier, or the first above it that is not several times slower than what
 * a hundredth more memory buys. */
static int worth_naming(const FitResult *r, int i) {
  enum { TIMES_SLOWER = 3, NEAR = 100 };
  for (int k = i + 1; k < r->frontier.n; k++) {
    const Candidate *c = &r->frontier.at[i], *next = &r->frontier.at[k];
    if (next->peak_bytes > c->peak_bytes + c->peak_bytes / NEAR) break;
    if (mul64(next->step_ns, TIMES_SLOWER) <= c->step_ns) i = k;
  }
  return i;
}

/* The smallest budget of use and two plans of the frontier above it; the size is rounded up, so
 * that it works as it is printed. */
static void budgets(const Report *x) {
  const FitResult *r = x->r;
  if (r->frontier.n == 0) return;
  int pick[3] = {0, r->frontier.n / 3, 2 * r->frontier.n / 3};
  fputs("\n  or the budget:", x->to);
  for (int i = 0; i < 3; i++) {
    pick[i] = worth_naming(r, pick[i]);
    if (i > 0 && pick[i] <= pick[i - 1]) continue;
    const Candidate *c = &r->frontier.at[pick[i]];
    int64_t peak = pick[i] == 0 ? r->floor_bytes : c->peak_bytes;
    if (peak > r->args.target->usable_bytes) break;
    double size =
        peak >= (int64_t)1 << 30 ? ceil(gib(peak) * 100) / 100 : ceil(mib(peak) * 10) / 10;
    fprintf(x->to, "%s --vram %.*f%c (%s %s)", i ? "," : "", peak >= (int64_t)1 << 30 ? 2 : 1, size,
            peak >= (int64_t)1 << 30 ? 'G' : 'M',
            format_count(x->arena, llround(tokens_per_second(r, r->phase, c->step_ns))),
            rate_unit(r, r->phase));
  }
  if (r->floor_bytes > r->args.target->usable_bytes)
    fprintf(x->to, " more than %s has (%s)", r->args.target->title,
            bytes_short(x->arena, r->args.target->usable_bytes));
  fputc('\n', x->to);
}

static void remedies(const Report *x) {
  const FitResult *r = x->r;
  if (r->remedies.n == 0) return;
  fprintf(x->to, "\n  nearest plans that fit (each was planned inside %s)\n",
          format_bytes(x->arena, r->budget_bytes));
  int width = 32;
  for (int i = 0; i < r->remedies.n; i++) {
    int n = (int)strlen(r->remedies.at[i].change);
    if (n > width) width = n;
  }
  fprintf(x->to, "  %-*s %10s %8s %12s\n", width + 2, "", "floor", "B", rate_unit(r, r->phase));
  for (int i = 0; i < r->remedies.n; i++) {
    const Remedy *m = &r->remedies.at[i];
    fprintf(x->to, "    %-*s %10s %8lld %12s   %s\n", width, m->change,
            bytes_short(x->arena, m->floor_bytes), (long long)m->micro_batch,
            format_count(x->arena, llround(tokens_per_second(r, r->phase, m->step_ns))), m->effect);
  }
}

/* The model wants more on the host than there may be. */
static void too_little_host(const Report *x) {
  const FitResult *r = x->r;
  fprintf(x->to, "error[%s]: memory.optimizer = host takes %s of host memory, %s (short by %s)\n\n", err_code(E_INFEASIBLE),
          bytes_short(x->arena, r->host_needed),
          r->args.host_bytes > 0 ? arena_printf(x->arena, "more than --host-ram %s", format_bytes(x->arena, r->args.host_bytes))
                                 : "and --host-ram gives none",
          bytes_short(x->arena, r->host_needed - r->args.host_bytes));
  int n = 0;
  for (int c = BC_MASTER; c <= BC_MOMENTS; c++)
    if (r->class_bytes[c] > 0) part(x, n++ == 0 ? "on the host" : "", buf_class_text((BufClass)c), r->class_bytes[c], "");
}

void report_verdict(const Report *x) {
  const FitResult *r = x->r;
  if (r->host_needed > 0) {
    too_little_host(x);
    return;
  }
  fprintf(x->to, "error[%s]: no plan fits %s: the smallest possible is %s (short by %s)\n\n",
          err_code(E_INFEASIBLE), format_bytes(x->arena, r->budget_bytes),
          bytes_short(x->arena, r->floor_bytes),
          bytes_short(x->arena, r->floor_bytes - r->budget_bytes));
  floor_parts(x);
  for (int i = 0; i < r->formats.n; i++)
    fprintf(x->to, "  %-18s %s %s: %s\n", i == 0 ? "formats" : "", r->formats.at[i].setting,
            r->formats.at[i].format, r->formats.at[i].why);
}

void report_ways_out(const Report *x) {
  remedies(x);
  if (x->r->host_needed == 0) budgets(x);
}
