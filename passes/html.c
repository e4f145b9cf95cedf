/* html.c - the page: its text with the parts filled in (see html.h). */
#include "html.h"

#include <math.h>
#include <string.h>

#include "codegen/embed.h"
#include "report.h"
#include "trace.h"

EMBED_TEXT(html_page_text, "passes/html/page.html");

_Static_assert(BC_COUNT == 14, "page.html has a colour for each class, and two more");

void html_text(FILE *to, const char *s) {
  for (; s && *s; s++) {
    switch (*s) {
      case '&':
        fputs("&amp;", to);
        break;
      case '<':
        fputs("&lt;", to);
        break;
      case '>':
        fputs("&gt;", to);
        break;
      case '"':
        fputs("&quot;", to);
        break;
      case '\n':
        fputs("&#10;", to);
        break;
      default:
        fputc(*s, to);
    }
  }
}

/* A string of JSON that is also sound inside XML. */
static void json_text(FILE *to, const char *s) {
  fputc('"', to);
  for (; s && *s; s++) {
    unsigned char c = (unsigned char)*s;
    if (c < 32 || strchr("\"\\<>&", c))
      fprintf(to, "\\u%04x", c);
    else
      fputc(c, to);
  }
  fputc('"', to);
}

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

/* ---- parts ---- */

static void part_title(const Page *p) {
  html_text(p->to, p->plan->job->model);
  if (p->plan->job->preset) {
    fputc('(', p->to);
    html_text(p->to, p->plan->job->preset);
    fputc(')', p->to);
  }
  fprintf(p->to, " in %s on %s", bytes_short(p->arena, p->plan->peak_bytes), p->plan->target->name);
}

static void part_kind(const Page *p) {
  fputs(p->explore ? "explore" : "plan", p->to);
}

static void card(const Page *p, const char *name, const char *id, const char *value,
                 const char *more) {
  fprintf(p->to, "<div><dt>%s</dt><dd id=\"%s\">%s<small>%s</small></dd></div>\n", name, id, value,
          more);
}

static void part_head(const Page *p) {
  const Plan *plan = p->plan;
  const Job *j = plan->job;
  const PlanPhase *ph = &plan->phases.at[p->r->phase];
  Arena *a = p->arena;
  fputs("<h1>", p->to);
  part_title(p);
  fprintf(p->to, "</h1>\n<p class=\"soft\">%s parameters, %d layers", format_count(a, j->params),
          j->layers);
  int64_t T = phase_dim(j, ph->phase, "T");
  if (T > 0) fprintf(p->to, ", T = %lld", (long long)T);
  fprintf(p->to, ". Plan <code>%08x</code> of <code>", (unsigned)(plan->id >> 32));
  html_text(p->to, j->path);
  fputs("</code>.</p>\n<dl class=\"cards\">\n", p->to);
  bool bounded = plan->budget_bytes < INT64_MAX;
  card(p, "peak of the whole process", "card-peak", bytes_short(a, plan->peak_bytes),
       bounded ? arena_printf(a, "of %s", bytes_short(a, plan->budget_bytes)) : "no budget");
  card(p, "speed, estimated", "card-rate",
       arena_printf(a, "%s %s",
                    format_count(a, llround(tokens_per_second(p->r, ph->phase, ph->step_ns))),
                    rate_unit(p->r, ph->phase)),
       arena_printf(a, "step %s", time_short(a, ph->step_ns)));
  card(p, "micro-batch", "card-batch", arena_printf(a, "%lld", (long long)ph->micro_batch),
       arena_printf(a, "x %lld accumulation steps", (long long)ph->accumulation));
  card(p, "recomputed", "card-recompute",
       arena_printf(a, "%.1f %%",
                    100.0 * (double)(ph->recompute_ns * ph->accumulation) / (double)ph->step_ns),
       ph->recompute_ns ? "of the step's time" : "nothing");
  card(p, "smallest budget", "card-floor", bytes_short(a, plan->floor_bytes), "the floor");
  if (plan->host_bytes > 0)
    card(p, "pinned on the host", "card-host", bytes_short(a, plan->host_bytes),
         plan->host_budget_bytes < INT64_MAX ? arena_printf(a, "of %s", bytes_short(a, plan->host_budget_bytes)) : "no bound");
  card(p, "buffers", "card-buffers", format_count(a, plan->bufs.n),
       arena_printf(a, "arena %s", bytes_short(a, plan->arena_bytes)));
  fputs("</dl>", p->to);
}

static void part_programs(const Page *p) {
  int first = p->plan->phases.at[p->r->phase].programs[PROG_MICRO];
  for (int i = 0; i < p->plan->programs.n; i++) {
    const char *phase = trace_phase(p->plan, i);
    fprintf(p->to, "<button data-show=\"%d\" aria-pressed=\"%s\">", i,
            i == first ? "true" : "false");
    html_text(p->to, *phase ? arena_printf(p->arena, "%s: %s", phase, p->plan->programs.at[i].name)
                            : p->plan->programs.at[i].name);
    fputs("</button>\n", p->to);
  }
}

static void part_legend(const Page *p) {
  Ledger l = plan_ledger(p->plan);
  bool any[BC_COUNT] = {false};
  for (int i = 0; i < p->plan->bufs.n; i++) any[p->plan->bufs.at[i].cls] = true;
  for (int c = 0; c < BC_COUNT; c++)
    if (any[c])
      fprintf(p->to,
              "<label><input type=\"checkbox\" checked=\"checked\" value=\"%d\"/><i "
              "style=\"background:var(--c%d)\"></i>%s <b>%s</b></label>\n",
              c, c, buf_class_text((BufClass)c),
              l.bytes[c] ? bytes_short(p->arena, l.bytes[c]) : "");
}

static void part_data(const Page *p) {
  FILE *to = p->to;
  fprintf(to, "{\"unit\":%d,\"source\":", MAP_UNIT);
  json_text(to, base_name(p->plan->job->path));
  fputs(",\"classes\":[", to);
  for (int c = 0; c < BC_COUNT; c++) {
    if (c) fputc(',', to);
    json_text(to, buf_class_text((BufClass)c));
  }
  fputs("],\"programs\":[", to);
  for (int i = 0; i < p->plan->programs.n; i++) {
    const PlanProgram *x = &p->plan->programs.at[i];
    fputs(i ? ",{\"name\":" : "{\"name\":", to);
    json_text(to, x->name);
    fputs(",\"steps\":[", to);
    for (int s = 0; s < x->nsteps; s++) {
      if (s) fputc(',', to);
      json_text(to, x->clusters.at[x->steps[s].cluster].name);
    }
    fputs("]}", to);
  }
  fputs("]}", to);
}

static void part_command(const Page *p) {
  fprintf(p->to, "mtc %s ", p->explore ? "explore" : "plan");
  html_text(p->to, p->plan->job->path);
  for (int i = 0; i < p->plan->job->overrides.n; i++) {
    fputs(i ? ", " : "   with ", p->to);
    html_text(p->to, p->plan->job->overrides.at[i]);
  }
}

/* ---- the template ---- */

static const struct {
  const char *name;
  void (*write)(const Page *);
} parts[] = {{"title", part_title},       {"kind", part_kind},     {"head", part_head},
             {"programs", part_programs}, {"legend", part_legend}, {"map", html_map},
             {"peak", html_peak},         {"front", html_front},   {"data", part_data},
             {"command", part_command}};

static void write_part(const Page *p, const char *name, size_t n) {
  for (int i = 0; i < COUNT_OF(parts); i++) {
    if (strlen(parts[i].name) != n || strncmp(parts[i].name, name, n) != 0) continue;
    parts[i].write(p);
    return;
  }
  bug("page.html names an unknown part: %.*s", (int)n, name);
}

/* Text of the page without the spaces that lines begin with. */
static void write_lines(FILE *to, const char *at, const char *end) {
  for (bool start = at > html_page_text && at[-1] == '\n'; at < end; at++) {
    if (start && *at == ' ') continue;
    start = *at == '\n';
    fputc(*at, to);
  }
}

void html_page(const FitResult *r, const Explore *x, FILE *to) {
  ensure(r->plan, "a page needs a plan");
  Page p = {.r = r, .plan = r->plan, .explore = x, .arena = arena_new(), .to = to};
  const char *at = html_page_text;
  for (const char *open; (open = strstr(at, "{{"));) {
    const char *close = strstr(open, "}}");
    write_lines(to, at, open);
    write_part(&p, open + 2, (size_t)(close - open - 2));
    at = close + 2;
  }
  write_lines(to, at, at + strlen(at));
  arena_free(p.arena);
}
