/* report_host.c - the host's part of a plan for people: what is pinned there, by class, and what the copies of each program
 * cost. Input: a plan. Output: text. */
#include "report.h"

static int64_t bytes_of(const Ledger *l) {
  int64_t sum = 0;
  for (int c = 0; c < BC_COUNT; c++) sum += l->host[c];
  return sum;
}

CopyTraffic copy_traffic(const Plan *p, int program) {
  CopyTraffic t = {0};
  if (program < 0) return t;
  const PlanProgram *x = &p->programs.at[program];
  for (int i = 0; i < x->ncopies; i++) *(x->copies[i].to_host ? &t.out_bytes : &t.in_bytes) += p->bufs.at[x->copies[i].stage].bytes;
  t.in_ns = x->in_ns;
  t.out_ns = x->out_ns;
  t.exposed_ns = x->exposed_ns;
  return t;
}

/* "75.3 % of them": how much of a class of variables lives on the host. */
static const char *share_text(const Report *x, BufClass c, int64_t host) {
  const Plan *p = x->r->plan;
  const PlanProgram *micro = &p->programs.at[p->phases.at[x->r->phase].programs[PROG_MICRO]];
  if (c == BC_SAVED) return arena_printf(x->arena, "of %s, from forward to backward", micro->name);
  int64_t all = 0;
  for (int i = 0; i < p->bufs.n; i++)
    if (p->bufs.at[i].program < 0 && p->bufs.at[i].cls == c) all += p->bufs.at[i].bytes;
  return arena_printf(x->arena, "%.1f %% of them", 100.0 * (double)host / (double)all);
}

void report_host(const Report *x, const Ledger *l) {
  const Plan *p = x->r->plan;
  int64_t all = bytes_of(l);
  if (all == 0) return;
  bool bounded = p->host_budget_bytes < INT64_MAX;
  char *title = bounded ? arena_printf(x->arena, "pinned on the host, of %s", format_bytes(x->arena, p->host_budget_bytes))
                        : "pinned on the host";
  fprintf(x->to, "\n  %-50.50s %10s%s\n", title, "MiB", bounded ? "      %" : "");
  for (int c = 0; c <= BC_COUNT; c++) {
    int64_t bytes = c < BC_COUNT ? l->host[c] : all;
    if (bytes == 0) continue;
    fprintf(x->to, "  %-15s %-34.34s %10.1f", c < BC_COUNT ? buf_class_text((BufClass)c) : "total",
            c < BC_COUNT ? share_text(x, (BufClass)c, bytes) : "", mib(bytes));
    if (bounded) fprintf(x->to, " %6.1f", 100.0 * (double)bytes / (double)p->host_budget_bytes);
    fputc('\n', x->to);
  }
}

void report_copies(const Report *x, const PlanPhase *ph) {
  int n = 0;
  for (int k = 0; k < COUNT_OF(ph->programs); k++) {
    CopyTraffic t = copy_traffic(x->r->plan, ph->programs[k]);
    if (t.in_bytes + t.out_bytes == 0) continue;
    fprintf(x->to, "  %-15s %-7s in %s, out %s: %s and %s, %s of it exposed\n", n++ == 0 ? "copies" : "",
            x->r->plan->programs.at[ph->programs[k]].name, bytes_short(x->arena, t.in_bytes), bytes_short(x->arena, t.out_bytes),
            time_short(x->arena, t.in_ns), time_short(x->arena, t.out_ns), time_short(x->arena, t.exposed_ns));
  }
}
