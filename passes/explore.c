/* explore.c - one setting explored: its points from the pool of a single fit, and the rows worth
 * showing, assembled (see explore.h). Input: a job, bounds, a range of budgets. Output: an
 * ExploreSetting. Touches no device. */
#include "explore.h"

#include <math.h>
#include <string.h>

#include "report.h"

/* ---- sizes and words ---- */

const char *explore_vram(Arena *a, int64_t bytes, int64_t *rounded) {
  bool big = bytes >= (int64_t)1 << 30;
  double unit = big ? (double)(1 << 30) / 100 : (double)(1 << 20) / 10;
  for (int64_t n = (int64_t)floor((double)bytes / unit);; n++) {
    const char *text =
        big ? arena_printf(a, "%lld.%02lldG", (long long)(n / 100), (long long)(n % 100))
            : arena_printf(a, "%lld.%lldM", (long long)(n / 10), (long long)(n % 10));
    if (parse_bytes(text, 0, rounded) && *rounded >= bytes) return text;
  }
}

/* "h[0..10].mlp.gelu" -> "mlp.gelu": without array and layers. */
static const char *short_name(Arena *a, const char *name) {
  const char *close = strrchr(name, ']');
  if (close && close[1] == '.') name = close + 2;
  return arena_printf(a, "%s", *name ? name : "values between");
}

enum { NAMED_GROUPS = 2 };

const char *explore_recompute(Arena *a, const Plan *p, int program) {
  LayerGroups rb = plan_rebuilt(p, program, a);
  if (rb.n == 0) return "nothing";
  const char *seen[NAMED_GROUPS];
  Str s = {.arena = a};
  int n = 0, others = 0;
  for (int i = 0; i < rb.n; i++) {
    const char *name = short_name(a, rb.at[i].name);
    bool known = false;
    for (int k = 0; k < n; k++) known |= !strcmp(seen[k], name);
    if (known) continue;
    if (n == NAMED_GROUPS) {
      others++;
      continue;
    }
    str_addf(&s, "%s%s", n ? ", " : "", name);
    seen[n++] = name;
  }
  if (others) str_addf(&s, " +%d", others);
  if (rb.layers > 0 && rb.layers < p->job->layers)
    str_addf(&s, " in %d/%d", rb.layers, p->job->layers);
  return s.text;
}

/* ---- points ---- */

static double rate_of(const FitResult *r, int64_t step_ns) {
  return tokens_per_second(r, r->phase, step_ns);
}

/* The fastest of each written size that is faster than all below it. The frontier stands by rising
 * memory already. */
static void fill_points(ExploreSetting *s, Arena *a, const FitResult *r, int64_t high) {
  for (int i = 0; i < r->frontier.n; i++) {
    ExplorePoint p = {.at = r->frontier.at[i]};
    if (p.at.peak_bytes < r->floor_bytes) p.at.peak_bytes = r->floor_bytes;
    if (p.at.peak_bytes > r->args.target->usable_bytes) continue;
    p.vram = explore_vram(a, p.at.peak_bytes, &p.vram_bytes);
    if (s->points.n == 0 && p.vram_bytes > high && p.at.peak_bytes <= high) {
      p.vram_bytes = p.at.peak_bytes;
      p.vram = arena_printf(a, "%lld", (long long)p.vram_bytes);
    }
    p.rate = rate_of(r, p.at.step_ns);
    if (s->points.n && p.rate <= vec_last(&s->points).rate) continue;
    if (s->points.n && vec_last(&s->points).vram_bytes == p.vram_bytes) s->points.n--;
    vec_push(a, &s->points, p);
  }
}

static void fill_all(ExploreSetting *s, Arena *a, const FitPool *pool, const FitResult *r) {
  Candidate *all;
  int n = fit_candidates(pool, r->phase, a, &all);
  for (int i = 0; i < n; i++)
    if (all[i].peak_bytes <= r->args.target->usable_bytes) vec_push(a, &s->all, all[i]);
}

/* The last point within a budget; -1 below the floor. */
static int point_within(const ExploreSetting *s, int64_t budget) {
  int at = -1;
  for (int i = 0; i < s->points.n && s->points.at[i].vram_bytes <= budget; i++) at = i;
  return at;
}

/* ---- which rows ---- */

typedef struct {
  unsigned *kinds; /* per point */
  int from, to;    /* the points of the range */
} Wanted;

static void find_first_step(const ExploreSetting *s, const Wanted *w) {
  const ExplorePoint *f = &s->points.at[w->from];
  double best = 0;
  int at = -1;
  for (int i = w->from + 1; i <= w->to; i++) {
    const ExplorePoint *p = &s->points.at[i];
    double gain = (p->rate / f->rate - 1) / (double)(p->vram_bytes - f->vram_bytes);
    if (gain > best * 1.0001) {
      best = gain;
      at = i;
    }
  }
  if (at > 0) w->kinds[at] |= ROW_FIRST;
}

/* The point farthest above the line from the first to the last. What lies under half of the best
 * speed is no place to stay, and would draw the line down. */
static void find_knee(const ExploreSetting *s, const Wanted *w) {
  int from = w->from;
  const ExplorePoint *l = &s->points.at[w->to];
  while (from < w->to && s->points.at[from].rate < l->rate / 2) from++;
  const ExplorePoint *f = &s->points.at[from];
  double farthest = 0;
  int at = -1;
  for (int i = from + 1; i < w->to; i++) {
    const ExplorePoint *p = &s->points.at[i];
    double along =
        (double)(p->vram_bytes - f->vram_bytes) / (double)(l->vram_bytes - f->vram_bytes);
    double above = (p->rate - f->rate) / (l->rate - f->rate) - along;
    if (above > farthest) {
      farthest = above;
      at = i;
    }
  }
  if (at > 0) w->kinds[at] |= ROW_KNEE;
}

enum { MOST_SIZES = 6 };

/* The smallest power of two that cuts span into few parts. */
static int64_t round_step(int64_t span, int parts) {
  int64_t step = 1 << 20;
  while (step < span / parts) step *= 2;
  return step;
}

static void find_sizes(const Explore *x, const ExploreSetting *s, const Wanted *w) {
  int64_t low = s->points.at[w->from].vram_bytes, high = s->points.at[w->to].vram_bytes;
  if (x->low > low) low = x->low;
  if (x->high < high) high = x->high;
  int64_t step = round_step(high - low, MOST_SIZES);
  for (int64_t size = round_up(low, step); size <= high; size += step) {
    int at = point_within(s, size);
    if (at >= w->from && at <= w->to) w->kinds[at] |= ROW_SIZE;
  }
}

static Wanted choose_rows(const Explore *x, const ExploreSetting *s, Arena *a) {
  Wanted w = {.kinds = arena_array(a, unsigned, s->points.n + 1), .from = 0};
  w.to = point_within(s, x->high);
  int low = point_within(s, x->low);
  if (low > 0 && !x->brief) w.from = low;
  w.kinds[w.from] |= w.from == 0 ? ROW_FLOOR : ROW_SIZE;
  w.kinds[w.to] |= ROW_LAST | (w.to == s->points.n - 1 ? ROW_END : 0);
  int mark = x->mark > 0 ? point_within(s, x->mark) : -1;
  if (mark >= 0) w.kinds[mark] |= ROW_MARK;
  if (w.to == w.from) return w;
  find_knee(s, &w);
  if (x->brief) return w;
  if (w.from == 0) find_first_step(s, &w);
  find_sizes(x, s, &w);
  return w;
}

/* ---- rows ---- */

static char *gain_text(Arena *a, double from, double to) {
  double ratio = to / from;
  return ratio >= 10  ? arena_printf(a, "x%.0f", ratio)
         : ratio >= 3 ? arena_printf(a, "x%.1f", ratio)
                      : arena_printf(a, "%+.1f %%", 100 * (ratio - 1));
}

const char *explore_more(Arena *a, const ExploreRow *r) {
  return r->more_rate < r->rate * 1.0005 ? "-" : gain_text(a, r->rate, r->more_rate);
}

/* What one point more would cost that is worth having: the next with 2 % more. */
static const char *beyond_knee(const ExploreSetting *s, Arena *a, const ExploreRow *row) {
  const ExplorePoint *k = &s->points.at[row->point];
  for (int i = row->point + 1; i < s->points.n; i++) {
    const ExplorePoint *p = &s->points.at[i];
    if (p->rate < k->rate * 1.02 && i + 1 < s->points.n) continue;
    return arena_printf(a, "knee: the next %s costs %s", gain_text(a, k->rate, p->rate),
                        bytes_short(a, p->vram_bytes - k->vram_bytes));
  }
  return "knee";
}

static const char *remark_of(const Explore *x, const ExploreSetting *s, Arena *a,
                             const ExploreRow *row, const ExploreRow *before) {
  Str t = {.arena = a};
  if (row->kinds & ROW_FLOOR) str_add(&t, "the floor");
  if (!before && !(row->kinds & ROW_FLOOR)) str_addf(&t, "the best in %s", format_bytes(a, x->low));
  if (row->kinds & ROW_KNEE) str_addf(&t, "%s%s", t.len ? "; " : "", beyond_knee(s, a, row));
  if (before && !(row->kinds & ROW_KNEE))
    str_addf(&t, "+%s  %s", bytes_short(a, row->vram_bytes - before->vram_bytes),
             gain_text(a, before->rate, row->rate));
  if (row->early_update != (before && before->early_update))
    str_addf(&t, "%s%s", t.len ? ", " : "",
             row->early_update ? "early updates" : "updates after backward");
  if (row->kinds & ROW_FIRST) str_addf(&t, "%sbest first step", t.len ? ", " : "");
  if (row->kinds & ROW_MARK)
    str_addf(&t, "%s--vram %s", t.len ? ", " : "", format_bytes(a, x->mark));
  if (row->kinds & ROW_END) str_addf(&t, "%sno gain beyond this", t.len ? ", " : "");
  return t.text ? t.text : "";
}

static void add_row(const Explore *x, ExploreSetting *s, Arena *a, const FitResult *r, int point,
                    unsigned kinds) {
  const PlanPhase *ph = &r->plan->phases.at[r->phase];
  const ExplorePoint *p = &s->points.at[point];
  ExploreRow row = {.kinds = kinds,
                    .point = point,
                    .vram = p->vram,
                    .vram_bytes = p->vram_bytes,
                    .peak_bytes = r->plan->peak_bytes,
                    .step_ns = ph->step_ns,
                    .rate = rate_of(r, ph->step_ns),
                    .micro_batch = ph->micro_batch,
                    .accumulation = ph->accumulation,
                    .chunks = ph->chunks,
                    .recompute_ns = ph->recompute_ns * ph->accumulation,
                    .host_bytes = r->plan->host_bytes,
                    .early_update = phase_updates_early(ph),
                    .plan_id = r->plan->id};
  row.recompute = explore_recompute(a, r->plan, ph->programs[PROG_MICRO]);
  row.more_rate = s->points.at[point_within(s, p->vram_bytes + x->more_bytes)].rate;
  if (row.more_rate < row.rate) row.more_rate = row.rate;
  row.remark = remark_of(x, s, a, &row, s->rows.n ? &vec_last(&s->rows) : NULL);
  vec_push(a, &s->rows, row);
}

static void fill_rows(const Explore *x, ExploreSetting *s, Arena *a, FitPool *pool) {
  Wanted w = choose_rows(x, s, a);
  for (int i = w.from; i <= w.to; i++) {
    if (!w.kinds[i]) continue;
    Arena *scratch = arena_new();
    FitResult r = fit_within(pool, scratch, s->points.at[i].vram_bytes);
    if (r.plan) add_row(x, s, a, &r, i, w.kinds[i]);
    arena_free(scratch);
  }
}

/* ---- the setting ---- */

/* "What would 2 GiB more bring?", or a part of the range where all is smaller. */
static int64_t more_bytes(const Explore *x, const ExploreSetting *s) {
  int64_t first = s->points.at[0].vram_bytes, last = vec_last(&s->points).vram_bytes;
  if (first >= (int64_t)1 << 30) return (int64_t)2 << 30;
  return round_step((x->high < last ? x->high : last) - first, MOST_SIZES);
}

FitResult explore_setting(Explore *x, Arena *a, Arena *own, const Job *job, const PlanArgs *args,
                          const char *label, const char *flags) {
  Arena *scratch = arena_new();
  ExploreSetting s = {.label = label, .flags = flags, .layers = job->layers};
  FitPool *pool = fit_pool(job, scratch, args);
  FitResult best = fit_within(pool, own, x->mark > 0 ? x->mark : x->high);
  s.floor_bytes = best.floor_bytes;
  x->host |= args->host_bytes > 0;
  if (best.plan || best.floor_bytes > 0) {
    s.unit = rate_unit(&best, best.phase);
    fill_points(&s, a, &best, x->mark > 0 ? x->mark : x->high);
    fill_all(&s, a, pool, &best);
  }
  if (point_within(&s, x->high) >= 0) {
    if (x->more_bytes == 0) x->more_bytes = more_bytes(x, &s);
    fill_rows(x, &s, a, pool);
  }
  vec_push(a, &x->settings, s);
  arena_free(scratch);
  return best;
}
