/* explore_text.c - what was explored, for people: a plot of speed against memory and a table of
 * plans that --vram gives again. Input: an Explore. Output: text. */
#include <math.h>
#include <string.h>

#include "explore.h"
#include "report.h"

/* ---- the plot ---- */

enum { PLOT_ROWS = 14, PLOT_LEAST = 24, PLOT_MOST = 72, PLOT_MARGIN = 10, PLOT_TICKS = 4 };

typedef struct {
  double x0, x1, y0, y1; /* bytes and rates at the edges */
  int columns;
  char at[PLOT_ROWS][PLOT_MOST + 1];
} Plot;

/* Of the front of setting i: 'o' when it is alone, else a letter. */
static char front_sign(const Explore *x, int i) {
  return x->settings.n == 1 ? 'o' : (char)(i < 26 ? 'a' + i : '+');
}

static int column_of(const Plot *p, double bytes) {
  return (int)lround((bytes - p->x0) / (p->x1 - p->x0) * (p->columns - 1));
}

static void dot(Plot *p, double bytes, double rate, char sign) {
  int c = column_of(p, bytes);
  double up = (rate - p->y0) / (p->y1 - p->y0);
  int r = PLOT_ROWS - 1 - (int)lround(up * (PLOT_ROWS - 1));
  if (c < 0 || c >= p->columns || r < 0 || r >= PLOT_ROWS) return;
  char *at = &p->at[r][c];
  if (*at == ' ' || *at == '|' || *at == '.' || sign == '*') *at = sign;
}

/* From the lowest floor to the budget; from two fifths of the best speed, or the lowest that there
 * is. */
static bool scale(Plot *p, const Explore *x) {
  double first = INFINITY, last = 0, lowest = INFINITY, best = 0;
  for (int i = 0; i < x->settings.n; i++) {
    const ExploreSetting *s = &x->settings.at[i];
    for (int k = 0; k < s->points.n; k++) {
      const ExplorePoint *q = &s->points.at[k];
      if (q->vram_bytes > x->high) break;
      if (q->vram_bytes < x->low && k + 1 < s->points.n && s->points.at[k + 1].vram_bytes <= x->low)
        continue;
      first = fmin(first, (double)q->vram_bytes);
      last = fmax(last, (double)q->vram_bytes);
      lowest = fmin(lowest, q->rate);
      best = fmax(best, q->rate);
    }
  }
  if (!(last > first)) return false;
  double beyond = last + (last - first) / 10;
  p->x0 = first;
  p->x1 = fmin(fmax(beyond, (double)x->mark), fmax((double)x->high, last));
  p->y1 = best;
  p->y0 = fmax(lowest, best * 0.4);
  return p->y1 > p->y0;
}

static void fill_plot(Plot *p, const Explore *x) {
  for (int r = 0; r < PLOT_ROWS; r++) {
    memset(p->at[r], ' ', (size_t)p->columns);
    p->at[r][p->columns] = 0;
  }
  if ((double)x->mark >= p->x0 && (double)x->mark <= p->x1)
    for (int r = 0; r < PLOT_ROWS; r++) p->at[r][column_of(p, (double)x->mark)] = '|';
  for (int i = 0; i < x->settings.n; i++) {
    const ExploreSetting *s = &x->settings.at[i];
    for (int k = 0; k < s->points.n; k++)
      dot(p, (double)s->points.at[k].vram_bytes, s->points.at[k].rate, front_sign(x, i));
  }
  for (int i = 0; i < x->settings.n; i++) {
    const ExploreSetting *s = &x->settings.at[i];
    double work = s->points.n ? s->points.at[0].rate * (double)s->points.at[0].at.step_ns : 0;
    for (int k = 0; k < s->all.n; k++)
      dot(p, (double)s->all.at[k].peak_bytes, work / (double)s->all.at[k].step_ns, '.');
    for (int k = 0; k < s->rows.n; k++)
      if (s->rows.at[k].kinds & ROW_MARK)
        dot(p, (double)s->rows.at[k].vram_bytes, s->rows.at[k].rate, '*');
  }
}

static char *rate_short(Arena *a, double rate) {
  return rate >= 999500  ? arena_printf(a, "%.2fM", rate * 1e-6)
         : rate >= 10000 ? arena_printf(a, "%.1fk", rate * 1e-3)
                         : arena_printf(a, rate < 100 ? "%.1f" : "%.0f", rate);
}

static void print_axis(const Plot *p, Arena *a, FILE *to) {
  bool big = p->x1 >= (double)(1 << 30);
  double unit = big ? (double)(1 << 30) : (double)(1 << 20);
  fprintf(to, "%*s+", PLOT_MARGIN, "");
  for (int i = 0; i < p->columns; i++) fputc('-', to);
  fprintf(to, "\n%*s", PLOT_MARGIN + 1, "");
  int digits = (p->x1 - p->x0) / unit < 1 ? 2 : (p->x1 - p->x0) / unit < 64 ? 1 : 0, at = 0;
  for (int i = 0; i <= PLOT_TICKS; i++) {
    double bytes = p->x0 + (p->x1 - p->x0) * i / PLOT_TICKS;
    char *text = arena_printf(a, "%.*f", digits, bytes / unit);
    int want = column_of(p, bytes) - (i == 0 ? 0 : (int)strlen(text) / 2);
    if (want < at + (i > 0)) continue;
    fprintf(to, "%*s%s", want - at, "", text);
    at = want + (int)strlen(text);
  }
  fprintf(to, " %s\n", big ? "GiB" : "MiB");
}

static int points_in_range(const Explore *x) {
  int n = 0;
  for (int i = 0; i < x->settings.n; i++) n += x->settings.at[i].points.n;
  return n;
}

static int weighed(const Explore *x) {
  int n = 0;
  for (int i = 0; i < x->settings.n; i++) n += x->settings.at[i].all.n;
  return n;
}

static void plot(const Explore *x, Arena *a, FILE *to, int columns) {
  Plot *p = arena_new_of(a, Plot);
  p->columns = columns - PLOT_MARGIN - 6;
  if (p->columns > PLOT_MOST) p->columns = PLOT_MOST;
  if (p->columns < PLOT_LEAST || !scale(p, x)) return;
  fill_plot(p, x);
  fprintf(to, "\n%s (est.)   %s plans weighed, %s on the front     %s . slower%s%s\n",
          x->settings.at[0].unit, format_count(a, weighed(x)), format_count(a, points_in_range(x)),
          x->settings.n == 1 ? "o front" : "a b .. fronts", x->mark > 0 ? "  * --vram " : "",
          x->mark > 0 ? format_bytes(a, x->mark) : "");
  for (int r = 0; r < PLOT_ROWS; r++) {
    double rate = p->y1 - (p->y1 - p->y0) * r / (PLOT_ROWS - 1);
    int end = p->columns;
    while (end > 0 && p->at[r][end - 1] == ' ') end--;
    fprintf(to, "%*s |%.*s\n", PLOT_MARGIN - 1,
            r % 4 == 0 || r == PLOT_ROWS - 1 ? rate_short(a, rate) : "", end, p->at[r]);
  }
  print_axis(p, a, to);
}

/* ---- the table ---- */

static bool any_big(const Explore *x) {
  for (int i = 0; i < x->settings.n; i++) {
    const ExploreSetting *s = &x->settings.at[i];
    if (s->rows.n && vec_last(&s->rows).vram_bytes >= (int64_t)1 << 30) return true;
  }
  return false;
}

static void table_row(const ExploreRow *r, bool big, bool host, int wide, Arena *a, FILE *to) {
  char *batch =
      arena_printf(a, "%lld x %-5lld", (long long)r->micro_batch, (long long)r->accumulation);
  char *size =
      arena_printf(a, big ? "%.2f" : "%.1f", big ? gib(r->vram_bytes) : mib(r->vram_bytes));
  const char *loss = r->chunks > 1 ? arena_printf(a, "1/%d", r->chunks) : "whole";
  fprintf(to, "%s %7s ", r->kinds & ROW_MARK ? "*" : " ", size);
  if (host) fprintf(to, "%7s ", arena_printf(a, big ? "%.2f" : "%.1f", big ? gib(r->host_bytes) : mib(r->host_bytes)));
  fprintf(to, "%11s %9s %12s %5s  %-*.*s %8s  %s\n", format_count(a, llround(r->rate)), time_short(a, r->step_ns), batch,
          loss, wide, wide, r->recompute, explore_more(a, r), r->remark);
}

static void setting_head(const Explore *x, int i, Arena *a, FILE *to) {
  const ExploreSetting *s = &x->settings.at[i];
  if (!*s->label) return;
  fprintf(to, "  %c  %s", front_sign(x, i), s->label);
  if (s->floor_bytes == 0)
    fprintf(to, "   cannot be planned\n");
  else if (!s->rows.n)
    fprintf(to, "   does not fit: the smallest possible is %s\n", bytes_short(a, s->floor_bytes));
  else
    fputc('\n', to);
}

static void table(const Explore *x, Arena *a, FILE *to, int columns) {
  bool big = any_big(x);
  int wide = columns >= 112 ? 30 : 24;
  char *more = arena_printf(a, "+%s", format_bytes(a, x->more_bytes));
  fprintf(to, "\n  %7s %s%11s %9s %12s %5s  %-*s %8s  what changed\n", big ? "GiB" : "MiB", x->host ? "on host " : "",
          x->settings.at[0].unit, "step", "B x accum", "loss", wide, "recompute", more);
  for (int i = 0; i < x->settings.n; i++) {
    setting_head(x, i, a, to);
    for (int k = 0; k < x->settings.at[i].rows.n; k++)
      table_row(&x->settings.at[i].rows.at[k], big, x->host, wide, a, to);
  }
}

/* ---- the whole ---- */

static void head(const Explore *x, Arena *a, FILE *to) {
  const Job *j = x->job;
  fprintf(to, "%s%s%s%s   %s params   %d layers", j->model, j->preset ? "(" : "",
          j->preset ? j->preset : "", j->preset ? ")" : "", format_count(a, j->params), j->layers);
  int64_t T = phase_dim(j, 0, "T");
  if (T > 0) fprintf(to, "   T=%lld", (long long)T);
  fprintf(to, "   target %s", x->target->name);
  if (x->target->usable_bytes < INT64_MAX)
    fprintf(to, " (%s)", bytes_short(a, x->target->usable_bytes));
  fputc('\n', to);
  for (int i = 0; i < j->overrides.n; i++)
    fprintf(to, "%s%s", i ? ", " : "command line    ", j->overrides.at[i]);
  if (j->overrides.n) fputc('\n', to);
}

void explore_text(const Explore *x, FILE *to, int columns) {
  Arena *a = arena_new();
  bool rows = false;
  for (int i = 0; i < x->settings.n; i++) rows |= x->settings.at[i].rows.n > 0;
  head(x, a, to);
  if (rows) {
    plot(x, a, to, columns);
    table(x, a, to, columns);
  }
  const ExploreSetting *s = &x->settings.at[0];
  if (x->mark > 0 && x->settings.n == 1 && x->mark < s->floor_bytes)
    fprintf(to, "\nno plan fits %s\n", format_bytes(a, x->mark));
  if (x->settings.n == 1 && rows && x->low < s->floor_bytes)
    fprintf(to, "\nbelow %s nothing fits; above %s nothing is gained\n",
            bytes_short(a, s->floor_bytes), bytes_short(a, vec_last(&s->points).vram_bytes));
  arena_free(a);
}
