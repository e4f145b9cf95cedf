/* html_peak.c - what is alive at the peak: the ledger by class, and the largest buffers. Input: a
 * plan. Output: two tables. */
#include <stdlib.h>

#include "html.h"
#include "report.h"

enum { SHOWN_BUFFERS = 20 };

static void ledger_row(const Page *p, int colour, const char *name, int64_t bytes) {
  if (bytes == 0) return;
  fputs("<tr><td>", p->to);
  if (colour >= 0) fprintf(p->to, "<i style=\"background:var(--c%d)\"></i>", colour);
  fprintf(p->to,
          "%s</td><td class=\"n\" data-bytes=\"%lld\">%.1f</td><td class=\"n\">%.1f</td></tr>\n",
          name, (long long)bytes, mib(bytes), 100.0 * (double)bytes / (double)p->plan->peak_bytes);
}

static void ledger_table(const Page *p, const Ledger *l) {
  fputs(
      "<div class=\"wide\"><table id=\"ledger\"><thead><tr><th>class</th><th "
      "class=\"n\">MiB</th><th class=\"n\">% of the peak</th></tr></thead><tbody>\n",
      p->to);
  for (int c = 0; c < BC_COUNT; c++) ledger_row(p, c, buf_class_text((BufClass)c), l->bytes[c]);
  ledger_row(p, -1, "gaps: placement and rounding", l->gaps);
  ledger_row(p, CONTEXT_COLOUR, "CUDA context", p->plan->overhead_bytes);
  ledger_row(p, CONTEXT_COLOUR, "reserve, left to others", p->plan->reserve_bytes);
  fprintf(p->to,
          "<tr class=\"sum\"><td>total</td><td class=\"n\" data-bytes=\"%lld\">%.1f</td><td "
          "class=\"n\">100.0</td></tr>\n</tbody></table></div>\n",
          (long long)p->plan->peak_bytes, mib(p->plan->peak_bytes));
}

/* What is pinned on the host, by class. */
static void host_table(const Page *p, const Ledger *l) {
  if (p->plan->host_bytes == 0) return;
  fputs("<div class=\"wide\"><table id=\"host\"><thead><tr><th>pinned on the host</th><th class=\"n\">MiB</th><th "
        "class=\"n\">%</th></tr></thead><tbody>\n", p->to);
  for (int c = 0; c < BC_COUNT; c++)
    if (l->host[c] > 0)
      fprintf(p->to, "<tr><td><i style=\"background:var(--c%d)\"></i>%s</td><td class=\"n\">%.1f</td><td class=\"n\">%.1f</td></tr>\n", c,
              buf_class_text((BufClass)c), mib(l->host[c]), 100.0 * (double)l->host[c] / (double)p->plan->host_bytes);
  fprintf(p->to, "<tr class=\"sum\"><td>total</td><td class=\"n\">%.1f</td><td class=\"n\">100.0</td></tr>\n</tbody></table></div>\n",
          mib(p->plan->host_bytes));
}

static const Plan *sorted_plan; /* of the sort in progress */

static int by_bytes(const void *a, const void *b) {
  int x = *(const int *)a, y = *(const int *)b;
  int64_t m = sorted_plan->bufs.at[x].bytes, n = sorted_plan->bufs.at[y].bytes;
  return m != n ? (m > n ? -1 : 1) : (x > y) - (x < y);
}

static void buffer_row(const Page *p, const PlanBuf *b) {
  fprintf(p->to, "<tr><td><i style=\"background:var(--c%d)\"></i><code>", b->cls);
  html_text(p->to, b->name);
  fprintf(p->to,
          "</code></td><td>%s</td><td class=\"n\">%.1f</td><td "
          "class=\"n\">%d..%d</td><td><code>%s</code></td></tr>\n",
          buf_class_text(b->cls), mib(b->bytes), b->first + 1, b->last + 1,
          html_place(p, b->loc, true));
}

static void live_table(const Page *p, const Ledger *l) {
  const PlanProgram *x = &p->plan->programs.at[l->program];
  int *live = arena_array(p->arena, int, p->plan->bufs.n + 1), n = 0;
  for (int i = 0; i < p->plan->bufs.n; i++) {
    const PlanBuf *b = &p->plan->bufs.at[i];
    if (b->program == l->program && b->space == SPACE_DEVICE && b->first <= x->peak_step &&
        x->peak_step <= b->last)
      live[n++] = i;
  }
  sorted_plan = p->plan;
  qsort(live, (size_t)n, sizeof *live, by_bytes);
  fputs(
      "<div class=\"wide\"><table id=\"live\"><thead><tr><th>largest live buffers of the "
      "step</th><th>class</th><th class=\"n\">MiB</th><th "
      "class=\"n\">steps</th><th>line</th></tr></thead><tbody>\n",
      p->to);
  int64_t rest = 0;
  for (int i = 0; i < n; i++) {
    if (i < SHOWN_BUFFERS)
      buffer_row(p, &p->plan->bufs.at[live[i]]);
    else
      rest += p->plan->bufs.at[live[i]].bytes;
  }
  if (n > SHOWN_BUFFERS)
    fprintf(p->to,
            "<tr class=\"sum\"><td>%d others</td><td></td><td "
            "class=\"n\">%.1f</td><td></td><td></td></tr>\n",
            n - SHOWN_BUFFERS, mib(rest));
  fputs("</tbody></table></div>\n", p->to);
}

void html_peak(const Page *p) {
  Ledger l = plan_ledger(p->plan);
  const PlanProgram *x = &p->plan->programs.at[l.program];
  fprintf(p->to, "<p class=\"soft\">Step %d of %d of %s", x->peak_step + 1, x->nsteps, x->name);
  if (x->nsteps) {
    fputs(", <code>", p->to);
    html_text(p->to, x->clusters.at[x->steps[x->peak_step].cluster].name);
    fputs("</code>", p->to);
  }
  fprintf(p->to,
          ". The liveness bound of its transient buffers is %s; they take %s.</p>\n<div "
          "class=\"two\">\n",
          bytes_short(p->arena, x->liveness_bytes), bytes_short(p->arena, x->transient_bytes));
  ledger_table(p, &l);
  live_table(p, &l);
  host_table(p, &l);
  fputs("</div>\n", p->to);
}
