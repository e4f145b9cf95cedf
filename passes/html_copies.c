/* html_copies.c - the copies of one program between host and device, a row for each direction, on the map's axis of steps.
 * Input: a plan. Output: SVG; a bar reaches from the step before which its copy begins to the one before which it is over. */
#include "html.h"
#include "report.h"

enum { ROW = 100, BAR = 80, ROWS_HEIGHT = 52 };

static void bar(const Page *p, const PlanCopy *c) {
  const PlanBuf *host = &p->plan->bufs.at[c->host], *stage = &p->plan->bufs.at[c->stage];
  const char *way = c->to_host ? "to the host" : "to the device";
  double x = c->begin, width = c->end > c->begin ? c->end - c->begin : 0.5;
  if (c->end == c->begin) x -= 0.5;
  fprintf(p->to, "<rect class=\"c%d\" x=\"%g\" y=\"%d\" width=\"%g\" height=\"%d\" data-n=\"", host->cls, x, c->to_host ? ROW : 0, width, BAR);
  html_text(p->to, host->name);
  fputs("\" data-t=\"", p->to);
  html_text(p->to, arena_printf(p->arena, "%s   %s %s   before step %d, over before step %d   %s", host->name,
                                bytes_short(p->arena, stage->bytes), way, c->begin + 1, c->end + 1,
                                time_short(p->arena, c->to_ns - c->from_ns)));
  fputs("\"/>\n", p->to);
}

void html_copies(const Page *p, int program) {
  const PlanProgram *x = &p->plan->programs.at[program];
  if (x->ncopies == 0) return;
  CopyTraffic t = copy_traffic(p->plan, program);
  fprintf(p->to, "<p class=\"name\">copies: %s to the device (above) in %s, %s to the host in %s; the steps wait %s</p>\n",
          bytes_short(p->arena, t.in_bytes), time_short(p->arena, t.in_ns), bytes_short(p->arena, t.out_bytes),
          time_short(p->arena, t.out_ns), time_short(p->arena, t.exposed_ns));
  fprintf(p->to,
          "<div class=\"live\"><div class=\"plot\" style=\"height:%dpx\" tabindex=\"0\" role=\"group\" aria-label=\"%d copies\">\n"
          "<svg viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"copies of %s\">\n",
          ROWS_HEIGHT, x->ncopies, x->nsteps, 2 * ROW, x->name);
  for (int i = 0; i < x->ncopies; i++) bar(p, &x->copies[i]);
  fputs("</svg></div></div>\n", p->to);
}
