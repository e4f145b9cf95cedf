/* html_front.c - memory against speed: every plan that was weighed, the front, the plan that is
 * drawn, and the table of rows when a range was explored. Input: an Explore, or the frontier of a
 * plan. Output: SVG in pixels, and a table. */
#include <math.h>

#include "html.h"
#include "report.h"

enum {
  WIDTH = 1140,
  HEIGHT = 380,
  LEFT = 72,
  RIGHT = 16,
  TOP = 14,
  BOTTOM = 34,
  GRID = 5,
  MOST_DOTS = 2500
};
static const int front_colours[] = {BC_ACTIVATION, BC_LOGITS, BC_TRANSIENT, BC_RECOMPUTED,
                                    BC_WORKSPACE,  BC_INPUTS, BC_WEIGHTS,   BC_GRADIENTS};

typedef struct {
  double x0, x1, y0, y1;
} Scale;

static double px(const Scale *s, double bytes) {
  return LEFT + (bytes - s->x0) / (s->x1 - s->x0) * (WIDTH - LEFT - RIGHT);
}
static double py(const Scale *s, double rate) {
  return HEIGHT - BOTTOM - (rate - s->y0) / (s->y1 - s->y0) * (HEIGHT - TOP - BOTTOM);
}
static bool inside(const Scale *s, double bytes, double rate) {
  return bytes >= s->x0 && bytes <= s->x1 && rate >= s->y0 && rate <= s->y1;
}

/* A plan's own frontier as one setting. */
static Explore of_plan(const Page *p) {
  Explore x = {
      .job = p->plan->job, .target = p->plan->target, .high = p->plan->target->usable_bytes};
  ExploreSetting s = {.label = "", .flags = "", .unit = rate_unit(p->r, p->r->phase)};
  for (int i = 0; i < p->r->frontier.n; i++) {
    ExplorePoint q = {.at = p->r->frontier.at[i]};
    q.rate = tokens_per_second(p->r, p->r->phase, q.at.step_ns);
    if (s.points.n && q.rate <= vec_last(&s.points).rate) continue;
    q.vram = explore_vram(p->arena, q.at.peak_bytes, &q.vram_bytes);
    vec_push(p->arena, &s.points, q);
  }
  for (int i = 0; i < p->r->passed.n; i++) vec_push(p->arena, &s.all, p->r->passed.at[i]);
  vec_push(p->arena, &x.settings, s);
  return x;
}

/* To a little above the plan that is drawn or the end of the range; below two fifths of the best
 * speed nothing is drawn. */
static bool scale_of(const Page *p, const Explore *x, Scale *s) {
  double first = INFINITY, last = 0, lowest = INFINITY, best = 0, end = (double)x->high;
  if (!p->explore || x->mark > 0) end = fmin(end, (double)p->plan->peak_bytes * 2.5);
  for (int i = 0; i < x->settings.n; i++) {
    const ExploreSetting *t = &x->settings.at[i];
    for (int k = 0; k < t->points.n && (double)t->points.at[k].vram_bytes <= end; k++) {
      first = fmin(first, (double)t->points.at[k].vram_bytes);
      last = fmax(last, (double)t->points.at[k].vram_bytes);
      lowest = fmin(lowest, t->points.at[k].rate);
      best = fmax(best, t->points.at[k].rate);
    }
  }
  last = fmax(last, (double)p->plan->peak_bytes);
  if (!(last > first) || !(best > lowest)) return false;
  double margin = (last - first) * 0.03;
  *s = (Scale){first - margin, last + margin, fmax(lowest, best * 0.4), best};
  double air = (s->y1 - s->y0) * 0.04;
  s->y0 -= air;
  s->y1 += air;
  return true;
}

/* ---- the picture ---- */

static void grid(const Page *p, const Scale *s, const char *unit) {
  FILE *to = p->to;
  fputs("<path class=\"grid\" d=\"", to);
  for (int i = 0; i <= GRID; i++) {
    double y = s->y0 + (s->y1 - s->y0) * i / GRID, x = s->x0 + (s->x1 - s->x0) * i / GRID;
    fprintf(to, "M%d %.1fH%dM%.1f %dV%d", LEFT, py(s, y), WIDTH - RIGHT, px(s, x), TOP,
            HEIGHT - BOTTOM);
  }
  fputs("\"/>\n", to);
  bool big = s->x1 >= (double)(1 << 30);
  for (int i = 0; i <= GRID; i++) {
    double y = s->y0 + (s->y1 - s->y0) * i / GRID, x = s->x0 + (s->x1 - s->x0) * i / GRID;
    fprintf(to, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>", LEFT - 8, py(s, y) + 4,
            format_count(p->arena, llround(y)));
    fprintf(to, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">%.1f%s</text>\n", px(s, x),
            HEIGHT - BOTTOM + 18, i == GRID ? "end" : "middle", big ? x / (1 << 30) : x / (1 << 20),
            i == GRID ? (big ? " GiB" : " MiB") : "");
  }
  fprintf(to, "<text x=\"%d\" y=\"%d\">%s</text>\n", LEFT + 8, TOP + 14, unit);
}

/* Plans that were weighed and are not on the front; at most so many. */
static void slower(const Page *p, const Scale *s, const ExploreSetting *t) {
  if (t->points.n == 0 || t->all.n == 0) return;
  double work = t->points.at[0].rate * (double)t->points.at[0].at.step_ns;
  int every = t->all.n / MOST_DOTS + 1;
  fputs("<path class=\"dots\" d=\"", p->to);
  for (int i = 0; i < t->all.n; i += every) {
    double bytes = (double)t->all.at[i].peak_bytes, rate = work / (double)t->all.at[i].step_ns;
    if (inside(s, bytes, rate)) fprintf(p->to, "M%.1f %.1fh0", px(s, bytes), py(s, rate));
  }
  fputs("\"/>\n", p->to);
}

static void point(const Page *p, const Scale *s, const ExploreSetting *t, const ExplorePoint *q,
                  int colour, bool shown) {
  fprintf(p->to, "<circle class=\"c%d%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%s\" data-t=\"", colour,
          shown ? " now" : "", px(s, (double)q->vram_bytes), py(s, q->rate), shown ? "7" : "4");
  if (*t->label) {
    html_text(p->to, t->label);
    fputs("&#10;", p->to);
  }
  fprintf(p->to, "--vram %s   %s %s   step %s&#10;B=%lld, %s%s%s\"/>\n", q->vram,
          format_count(p->arena, llround(q->rate)), t->unit, time_short(p->arena, q->at.step_ns),
          (long long)q->at.micro_batch, q->at.front ? "part recomputed" : "nothing recomputed",
          q->at.chunks > 1 ? arena_printf(p->arena, ", loss in %d chunks", q->at.chunks) : "",
          shown ? " - the plan that is drawn" : "");
}

static void front(const Page *p, const Scale *s, const ExploreSetting *t, int colour) {
  const PlanPhase *ph = &p->plan->phases.at[p->r->phase];
  bool started = false;
  fprintf(p->to, "<path class=\"edge\" style=\"stroke:var(--c%d)\" d=\"", colour);
  for (int k = 0; k < t->points.n; k++) {
    const ExplorePoint *q = &t->points.at[k];
    if (!inside(s, (double)q->vram_bytes, q->rate)) continue;
    fprintf(p->to, started ? "H%.1fV%.1f" : "M%.1f %.1f", px(s, (double)q->vram_bytes),
            py(s, q->rate));
    started = true;
  }
  fputs("\"/>\n", p->to);
  for (int k = 0; k < t->points.n; k++) {
    const ExplorePoint *q = &t->points.at[k];
    if (!inside(s, (double)q->vram_bytes, q->rate)) continue;
    bool shown = q->at.step_ns == ph->step_ns && q->at.micro_batch == ph->micro_batch;
    point(p, s, t, q, colour, shown);
  }
}

static void picture(const Page *p, const Explore *x) {
  Scale s;
  if (!scale_of(p, x, &s)) return;
  fprintf(
      p->to,
      "<div class=\"chart\" tabindex=\"0\" role=\"group\" aria-label=\"memory against "
      "speed\">\n<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"memory against speed\">\n",
      WIDTH, HEIGHT);
  grid(p, &s, x->settings.at[0].unit);
  for (int i = 0; i < x->settings.n; i++) slower(p, &s, &x->settings.at[i]);
  for (int i = 0; i < x->settings.n; i++)
    front(p, &s, &x->settings.at[i], front_colours[i % COUNT_OF(front_colours)]);
  fputs("</svg></div>\n", p->to);
}

/* ---- the rows ---- */

static void row(const Page *p, const ExploreSetting *t, const ExploreRow *r, int colour) {
  fprintf(p->to, "<tr%s><td>", r->plan_id == p->plan->id ? " class=\"now\"" : "");
  fprintf(p->to, "<i style=\"background:var(--c%d)\"></i>", colour);
  html_text(p->to, t->label);
  fprintf(p->to,
          "</td><td class=\"n\" data-peak=\"%lld\">%s</td><td class=\"n\">%s</td><td "
          "class=\"n\">%s</td><td class=\"n\">%lld x %lld</td><td>%s</td><td>",
          (long long)r->peak_bytes, r->vram, format_count(p->arena, llround(r->rate)),
          time_short(p->arena, r->step_ns), (long long)r->micro_batch, (long long)r->accumulation,
          r->chunks > 1 ? arena_printf(p->arena, "1/%d", r->chunks) : "whole");
  html_text(p->to, r->recompute);
  fprintf(p->to, "</td><td class=\"n\">%s</td><td>", explore_more(p->arena, r));
  html_text(p->to, r->remark);
  fputs("</td></tr>\n", p->to);
}

static void rows(const Page *p, const Explore *x) {
  fprintf(p->to,
          "<div class=\"wide\"><table id=\"rows\"><thead><tr><th></th><th "
          "class=\"n\">--vram</th><th class=\"n\">%s</th><th class=\"n\">step</th><th "
          "class=\"n\">B x accum</th><th>loss</th><th>recompute</th><th class=\"n\">with %s "
          "more</th><th>what changed</th></tr></thead><tbody>\n",
          x->settings.at[0].unit, format_bytes(p->arena, x->more_bytes));
  for (int i = 0; i < x->settings.n; i++)
    for (int k = 0; k < x->settings.at[i].rows.n; k++)
      row(p, &x->settings.at[i], &x->settings.at[i].rows.at[k],
          front_colours[i % COUNT_OF(front_colours)]);
  fputs("</tbody></table></div>\n", p->to);
}

void html_front(const Page *p) {
  Explore own = {0};
  const Explore *x = p->explore;
  if (!x) {
    own = of_plan(p);
    x = &own;
  }
  fputs(
      "<section id=\"front\" aria-label=\"memory against speed\">\n<h2>Memory against "
      "speed</h2>\n<p class=\"soft\">Each point is the fastest plan in its memory; the ring is the "
      "plan that is drawn on this page.</p>\n",
      p->to);
  picture(p, x);
  if (p->explore) rows(p, x);
  fputs("</section>\n", p->to);
}
