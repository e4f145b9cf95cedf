/* html_map.c - the memory map of each program and the bytes live over time below it, on one axis of
 * steps. Input: a plan. Output: SVG, in the coordinates that html.h states. */
#include <string.h>

#include "html.h"
#include "report.h"

enum { TICKS = 5, STRIP_LEAST = 44, STRIP_MOST = 150, LIVE_HEIGHT = 100000 };

const char *html_place(const Page *p, Loc at, bool whole) {
  if (!loc_ok(at)) return "";
  const char *text = loc_text(p->plan->job->diags, p->arena, at), *slash = strrchr(text, '/');
  char *name = arena_printf(p->arena, "%s", slash ? slash + 1 : text);
  char *column = strrchr(name, ':');
  if (column) *column = 0;
  const char *source = strrchr(p->plan->job->path, '/');
  source = source ? source + 1 : p->plan->job->path;
  size_t n = strlen(source);
  return !whole && !strncmp(name, source, n) && name[n] == ':' ? name + n + 1 : name;
}

/* Bytes in units of the map, all digits: a multiple of 512 has at most seven behind the point. */
static const char *units(const Page *p, int64_t bytes) {
  ensure(bytes % PLAN_ALIGN == 0, "a buffer of the map is not aligned: %lld", (long long)bytes);
  int64_t rest = bytes % MAP_UNIT / PLAN_ALIGN;
  if (rest == 0) return arena_printf(p->arena, "%lld", (long long)(bytes / MAP_UNIT));
  char *s = arena_printf(p->arena, "%lld.%07lld", (long long)(bytes / MAP_UNIT),
                         (long long)(rest * (10000000 / (MAP_UNIT / PLAN_ALIGN))));
  for (size_t n = strlen(s); s[n - 1] == '0'; n--) s[n - 1] = 0;
  return s;
}

/* ---- one map ---- */

static void box(const Page *p, const MapBox *b, int64_t high) {
  const PlanBuf *buf = &p->plan->bufs.at[b->buf];
  fprintf(p->to, "<rect class=\"c%d\" x=\"%lld\" y=\"%s\" width=\"%lld\" height=\"%s\"", buf->cls,
          (long long)b->x0, units(p, high - b->y1), (long long)(b->x1 - b->x0),
          units(p, b->y1 - b->y0));
  if (b->count > 1) fprintf(p->to, " data-k=\"%d\"", b->count);
  fputs(" data-n=\"", p->to);
  html_text(p->to, buf->name);
  fputc('"', p->to);
  const char *place = html_place(p, buf->loc, false);
  if (*place) fprintf(p->to, " data-s=\"%s\"", place);
  fputs("/>\n", p->to);
}

static void labels(const Page *p, int64_t low, int64_t high, int ticks) {
  for (int i = 0; i < ticks; i++) {
    int64_t at = low + (high - low) * i / (ticks - 1);
    fprintf(p->to, "<span style=\"bottom:%d%%\">%s</span>", 100 * i / (ticks - 1),
            bytes_short(p->arena, at));
  }
}

/* Steps of every other layer, forward and backward, as one faint shape. */
static void bands(const Page *p, const PlanProgram *x, const char *height) {
  fputs("<path class=\"band\" d=\"", p->to);
  for (int s = 0; s < x->nsteps;) {
    int layer = x->clusters.at[x->steps[s].cluster].layer, e = s;
    while (e < x->nsteps && x->clusters.at[x->steps[e].cluster].layer == layer) e++;
    if (layer >= 0 && layer % 2 == 0) fprintf(p->to, "M%d 0H%dV%sH%dZ", s, e, height, s);
    s = e;
  }
  fputs("\"/>", p->to);
}

/* First step of the backward pass; 0 when there is none. */
static int turn_of(const PlanProgram *x) {
  for (int s = 0; s < x->nsteps; s++)
    if (x->clusters.at[x->steps[s].cluster].phase == PH_BACKWARD) return s;
  return 0;
}

static void marks(const Page *p, const PlanProgram *x, const char *height) {
  bands(p, x, height);
  int turn = turn_of(x);
  if (turn > 0) fprintf(p->to, "<path class=\"turn\" d=\"M%d 0V%s\"/>", turn, height);
}

static void steps_axis(const Page *p, int steps) {
  fputs("<div class=\"x\" aria-hidden=\"true\">", p->to);
  for (int i = 0; i < TICKS; i++)
    fprintf(p->to, "<span style=\"left:%d%%\">%d%s</span>", 100 * i / (TICKS - 1),
            steps * i / (TICKS - 1), i ? "" : " steps");
  fputs("</div>\n", p->to);
}

static void arena_map(const Page *p, const MapBoxes *m, int program) {
  const PlanProgram *x = &p->plan->programs.at[program];
  int64_t low = m->list[program].low, high = m->list[program].high;
  const char *height = units(p, high - low);
  int steps = m->list[program].steps;
  fprintf(p->to,
          "<div class=\"arena\"><div class=\"plot\" tabindex=\"0\" role=\"group\" aria-label=\"%s: "
          "%d buffers over %d steps\">",
          x->name, m->list[program].n, steps);
  labels(p, low, high, TICKS);
  int turn = turn_of(x);
  if (turn > 0) {
    fprintf(p->to, "<em style=\"right:%.2f%%;top:-17px;margin-right:5px\">forward</em>",
            100.0 - 100.0 * turn / steps);
    fprintf(p->to, "<em style=\"left:%.2f%%;top:-17px;margin-left:5px\">backward</em>",
            100.0 * turn / steps);
  }
  fprintf(p->to,
          "\n<svg viewBox=\"0 0 %d %s\" data-w=\"0 0 %d %s\" preserveAspectRatio=\"none\" "
          "data-base=\"%lld\" data-high=\"%s\" role=\"img\" aria-label=\"memory map of %s\">",
          steps, height, steps, height, (long long)low, height, x->name);
  marks(p, x, height);
  fputc('\n', p->to);
  for (int i = 0; i < m->list[program].n; i++)
    if (!m->list[program].at[i].dead) box(p, &m->list[program].at[i], high);
  fputs("</svg></div></div>\n", p->to);
}

/* What lives for the whole run, at a scale of its own: on the device, or on the host. */
static void persistent_map(const Page *p, const MapBoxes *m, bool host) {
  int l = m->nlists - (host ? 1 : 2);
  if (m->list[l].n == 0) return;
  int64_t high = m->list[l].high;
  const char *height = units(p, high), *where = host ? "host memory" : "persistent memory";
  double share = (double)high / (double)p->plan->arena_bytes;
  int px = (int)(share * 440);
  px = px < STRIP_LEAST ? STRIP_LEAST : px > STRIP_MOST ? STRIP_MOST : px;
  if (host)
    fprintf(p->to, "<p class=\"name\">pinned on the host for the whole run: %s</p>\n", bytes_short(p->arena, high));
  else
    fprintf(p->to, "<p class=\"name\">for the whole run, at a scale of its own: %s below address %s</p>\n",
            bytes_short(p->arena, high), bytes_short(p->arena, high));
  fprintf(p->to, "<div class=\"plot\" style=\"height:%dpx\" tabindex=\"0\" role=\"group\" aria-label=\"%s: %d buffers\">", px, where,
          m->list[l].n);
  labels(p, 0, high, 2);
  fprintf(p->to,
          "\n<svg viewBox=\"0 0 1 %s\" preserveAspectRatio=\"none\" data-base=\"0\" "
          "data-high=\"%s\" role=\"img\" aria-label=\"%s\">\n",
          height, height, where);
  for (int i = 0; i < m->list[l].n; i++)
    if (!m->list[l].at[i].dead) box(p, &m->list[l].at[i], high);
  fputs("</svg></div>\n", p->to);
}

void html_map(const Page *p) {
  MapBoxes m = html_boxes(p, MOST_RECTS);
  int first = p->plan->phases.at[p->r->phase].programs[PROG_MICRO];
  for (int i = 0; i < p->plan->programs.n; i++) {
    fprintf(p->to, "<div data-p=\"%d\"%s>\n", i, i == first ? "" : " hidden=\"hidden\"");
    arena_map(p, &m, i);
    steps_axis(p, m.list[i].steps);
    fputs("</div>\n", p->to);
  }
  persistent_map(p, &m, false);
  persistent_map(p, &m, true);
  for (int i = 0; i < p->plan->programs.n; i++) html_live(p, i, i != first);
}

/* ---- bytes live over time ---- */

/* Bytes of each class at each step of a program; [class * steps + step]. */
static int64_t *live_bytes(const Page *p, int program, int steps) {
  int64_t *at = arena_array(p->arena, int64_t, (size_t)BC_COUNT * (size_t)steps);
  for (int i = 0; i < p->plan->bufs.n; i++) {
    const PlanBuf *b = &p->plan->bufs.at[i];
    if (b->space != SPACE_DEVICE || (b->program >= 0 && b->program != program)) continue;
    int first = b->program < 0 ? 0 : b->first, last = b->program < 0 ? steps - 1 : b->last;
    for (int s = first; s <= last; s++) at[(size_t)b->cls * (size_t)steps + (size_t)s] += b->bytes;
  }
  return at;
}

/* The area under sum[0..steps): only where it changes. */
static void area(const Page *p, int colour, const int64_t *sum, int steps, double scale) {
  fprintf(p->to, "<path class=\"c%d\" d=\"M0 %d", colour, LIVE_HEIGHT);
  int64_t last = -1;
  for (int s = 0; s < steps; s++) {
    int64_t y = LIVE_HEIGHT - (int64_t)((double)sum[s] * scale);
    if (y == last) continue;
    if (s > 0) fprintf(p->to, "H%d", s);
    fprintf(p->to, "V%lld", (long long)y);
    last = y;
  }
  fprintf(p->to, "H%dV%dZ\"/>\n", steps, LIVE_HEIGHT);
}

static void areas(const Page *p, int program, int steps, double scale) {
  const Plan *plan = p->plan;
  int64_t *bytes = live_bytes(p, program, steps), *sum = arena_array(p->arena, int64_t, steps);
  for (int s = 0; s < steps; s++) {
    sum[s] = plan->overhead_bytes + plan->reserve_bytes;
    for (int c = 0; c < BC_COUNT; c++) sum[s] += bytes[(size_t)c * (size_t)steps + (size_t)s];
  }
  for (int c = BC_COUNT - 1; c >= 0; c--) {
    bool any = false;
    for (int s = 0; s < steps; s++) any |= bytes[(size_t)c * (size_t)steps + (size_t)s] > 0;
    if (!any) continue;
    area(p, c, sum, steps, scale);
    for (int s = 0; s < steps; s++) sum[s] -= bytes[(size_t)c * (size_t)steps + (size_t)s];
  }
  if (sum[0] == 0) return;
  area(p, CONTEXT_COLOUR, sum, steps, scale);
}

void html_live(const Page *p, int program, bool hidden) {
  const Plan *plan = p->plan;
  const PlanProgram *x = &plan->programs.at[program];
  int steps = x->nsteps > 0 ? x->nsteps : 1;
  bool budget = plan->budget_bytes < plan->peak_bytes * 2;
  int64_t top = budget ? plan->budget_bytes : plan->peak_bytes;
  top += top / 40;
  double scale = (double)LIVE_HEIGHT / (double)top;
  fprintf(p->to,
          "<div data-p=\"%d\"%s>\n<p class=\"name\">bytes live over time, of the whole process",
          program, hidden ? " hidden=\"hidden\"" : "");
  Ledger l = plan_ledger(plan);
  if (l.program == program && x->nsteps) {
    fprintf(p->to, ": <b>peak %s</b> at step %d, <code>", bytes_short(p->arena, plan->peak_bytes),
            x->peak_step + 1);
    html_text(p->to, x->clusters.at[x->steps[x->peak_step].cluster].name);
    fputs("</code>", p->to);
  }
  if (budget)
    fprintf(p->to, "; <b>budget %s</b> dashed", bytes_short(p->arena, plan->budget_bytes));
  fprintf(p->to, "</p>\n<div class=\"live\"><div class=\"plot\" data-program=\"%s\">", x->name);
  labels(p, 0, top, TICKS);
  fprintf(p->to,
          "\n<svg viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" data-top=\"%lld\" "
          "role=\"img\" aria-label=\"bytes live over the steps of %s\">\n",
          steps, LIVE_HEIGHT, (long long)top, x->name);
  marks(p, x, arena_printf(p->arena, "%d", LIVE_HEIGHT));
  areas(p, program, steps, scale);
  if (budget)
    fprintf(p->to, "<path class=\"limit\" d=\"M0 %lldH%d\"/>",
            LIVE_HEIGHT - (long long)((double)plan->budget_bytes * scale), steps);
  if (l.program == program)
    fprintf(p->to, "<path class=\"top\" d=\"M%.1f 0V%d\"/>", x->peak_step + 0.5, LIVE_HEIGHT);
  fputs("</svg></div></div>\n", p->to);
  html_copies(p, program);
  steps_axis(p, steps);
  fputs("</div>\n", p->to);
}
