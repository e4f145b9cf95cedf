/* cli_bench.c - groups timed commands by kernel and prints them (see cli_bench.h). Input: commands
 * with times. Output: a table and sentences, or one JSON object, schema docs/schema/bench.json. */
#include "frontend/cli_bench.h"

#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 24, LARGE_BYTES = 64 << 20 };
static const double wanted_share = 0.8;

/* ---- groups ---- */

static bool same_kernel(const BenchCommand *x, const BenchCommand *y) {
  return !strcmp(x->kernel, y->kernel) && !strcmp(x->program, y->program) &&
         x->cost.bytes == y->cost.bytes;
}

static void add_to(BenchGroup *g, const BenchCommand *c) {
  if (!g->calls || c->time.least < g->time.least) g->time.least = c->time.least;
  if (c->time.most > g->time.most) g->time.most = c->time.most;
  g->calls++;
  g->seconds += c->time.median;
  g->predicted += 1e-9 * (double)c->predicted_ns;
}

static int by_seconds(const void *a, const void *b) {
  const BenchGroup *x = a, *y = b;
  if (x->seconds != y->seconds) return x->seconds < y->seconds ? 1 : -1;
  return (x->first > y->first) - (x->first < y->first);
}

const BenchProgram *bench_program(const BenchResult *r, int program) {
  const BenchProgram *const of[] = {
      [BENCH_MICRO] = &r->micro, [BENCH_UPDATE] = &r->update, [BENCH_FIRST] = &r->first};
  return of[program];
}

static void predict(BenchReport *b, int program) {
  const BenchProgram *t = bench_program(b->result, program);
  if (t->runs == 0) return;
  const PlanProgram *x = &b->plan->programs.at[t->program];
  for (int s = 0; s < x->nsteps; s++) {
    int i = x->steps[s].cluster;
    KernelCost k = cost_kernel(&x->clusters, i, &b->plan->job->precision);
    b->predicted[program] += 1e-9 * (double)x->clusters.at[i].ns;
    b->calibrated[program] += 1e-9 * (double)cost_ns(&k, &b->target);
  }
}

void bench_groups(BenchReport *b, Arena *a) {
  for (int i = 0; i < BENCH_PROGRAMS; i++) predict(b, i);
  b->groups = arena_array(a, BenchGroup, b->ncommands + 1);
  for (int i = 0; i < b->ncommands; i++) {
    const BenchCommand *c = &b->commands[i];
    int g = 0;
    while (g < b->ngroups && !same_kernel(b->groups[g].first, c)) g++;
    if (g == b->ngroups) b->groups[b->ngroups++].first = c;
    add_to(&b->groups[g], c);
  }
  for (int g = 0; g < b->ngroups; g++)
    b->groups[g].time.median = b->groups[g].seconds / b->groups[g].calls;
  qsort(b->groups, (size_t)b->ngroups, sizeof *b->groups, by_seconds);
}

static bool is_product(const KernelCost *k) {
  return k->kind == CL_GEMM || k->kind == CL_ATTENTION || k->kind == CL_ATTENTION_BWD;
}

double bench_gbs(const BenchGroup *g) {
  return 1e-9 * (double)g->first->cost.bytes / g->time.median;
}

double bench_tflops(const BenchGroup *g) {
  return is_product(&g->first->cost) ? 1e-12 * (double)g->first->cost.flops / g->time.median : 0;
}

static double limit_tflops(const BenchReport *b, const KernelCost *k) {
  const Target *t = &b->target;
  return k->type == DT_F32 && k->tf32 ? t->tf32_tflops : t->tflops[k->type];
}

static double step_seconds(const BenchReport *b, const double of[BENCH_PROGRAMS]) {
  bool first = b->result->first.runs > 0;
  return of[BENCH_FIRST] + of[BENCH_MICRO] * (double)(b->phase->accumulation - first) + of[BENCH_UPDATE];
}

static double measured_step(const BenchReport *b) {
  double whole[BENCH_PROGRAMS];
  for (int i = 0; i < BENCH_PROGRAMS; i++) whole[i] = bench_program(b->result, i)->whole.median;
  return step_seconds(b, whole);
}

/* ---- text ---- */

/* "h.*.attn.q" for a kernel of many layers. */
static const char *name_of(const BenchGroup *g, Arena *a) {
  const char *name = g->first->name;
  if (g->calls == 1) return name;
  Str s = {.arena = a};
  for (const char *p = name; *p;) {
    bool number = isdigit((unsigned char)*p) && (p == name || p[-1] == '.');
    const char *end = p;
    while (number && isdigit((unsigned char)*end)) end++;
    if (number && (*end == '.' || !*end)) {
      str_add(&s, "*");
      p = end;
    } else {
      str_add_n(&s, p++, 1);
    }
  }
  return s.text ? s.text : "";
}

static void group_row(const BenchReport *b, const BenchGroup *g, double total, FILE *to, Arena *a) {
  double gbs = bench_gbs(g), flops = bench_tflops(g);
  fprintf(to, "  %-24.24s %-42.42s %5d %9.3f %5.1f %10.1f %10.1f %10.1f  %7.0f %4.0f",
          name_of(g, a), g->first->kernel, g->calls, 1e3 * g->seconds, 100 * g->seconds / total,
          1e6 * g->time.least, 1e6 * g->time.median, 1e6 * g->time.most, gbs,
          100 * gbs / b->target.copy_gbs);
  if (flops > 0)
    fprintf(to, " %8.2f %4.0f", flops, 100 * flops / limit_tflops(b, &g->first->cost));
  else
    fprintf(to, " %8s %4s", "", "");
  fprintf(to, " %9.3f\n", 1e3 * g->predicted);
}

static void kernel_table(const BenchReport *b, FILE *to, bool all, Arena *a) {
  double total = 0;
  for (int i = 0; i < b->ngroups; i++) total += b->groups[i].seconds;
  fprintf(to, "  %-24s %-42s %5s %9s %5s %10s %10s %10s  %7s %4s %8s %4s %9s\n", "command",
          "kernel", "calls", "ms", "%", "least us", "median", "most", "GB/s", "%", "TFLOP/s", "%",
          "model ms");
  for (int i = 0; i < b->ngroups && (all || i < SHOWN); i++)
    group_row(b, &b->groups[i], total, to, a);
  if (!all && b->ngroups > SHOWN) {
    double rest = 0;
    for (int i = SHOWN; i < b->ngroups; i++) rest += b->groups[i].seconds;
    fprintf(to, "  and %d more kernels, %.3f ms together (-v shows them)\n", b->ngroups - SHOWN,
            1e3 * rest);
  }
}

static void program_line(const char *name, const BenchTime *t, double predicted, double calibrated,
                         FILE *to) {
  fprintf(to,
          "  %-8s measured %10.3f ms (%.3f to %.3f)   predicted %10.3f ms (%+.1f %%)   calibrated "
          "%10.3f ms (%+.1f %%)\n",
          name, 1e3 * t->median, 1e3 * t->least, 1e3 * t->most, 1e3 * predicted,
          100 * (predicted / t->median - 1), 1e3 * calibrated, 100 * (calibrated / t->median - 1));
}

static bool is_large(const BenchGroup *g) {
  return !is_product(&g->first->cost) && g->first->cost.bytes >= LARGE_BYTES;
}

static void large_lines(const BenchReport *b, FILE *to, Arena *a) {
  int n = 0, slow = 0;
  for (int i = 0; i < b->ngroups; i++)
    if (is_large(&b->groups[i]))
      n++, slow += bench_gbs(&b->groups[i]) < wanted_share * b->target.copy_gbs;
  if (!n) return;
  fprintf(to,
          "  kernels bound by memory that move 64 MiB or more: %d of %d reach %.0f %% of the copy "
          "rate\n",
          n - slow, n, 100 * wanted_share);
  for (int i = 0; i < b->ngroups; i++) {
    const BenchGroup *g = &b->groups[i];
    double share = bench_gbs(g) / b->target.copy_gbs;
    if (is_large(g) && share < wanted_share)
      fprintf(to, "    below: %-24s %-42s %6.0f GB/s, %.0f %%\n", name_of(g, a), g->first->kernel,
              bench_gbs(g), 100 * share);
  }
}

void bench_text(const BenchReport *b, FILE *to, bool all, Arena *a) {
  const Plan *p = b->plan;
  const BenchResult *r = b->result;
  fprintf(to, "%s%s%s%s on %s: plan %08x, micro-batch %lld, accumulation %lld; %d runs\n\n",
          b->program->model, b->program->preset ? "(" : "",
          b->program->preset ? b->program->preset : "", b->program->preset ? ")" : "",
          p->target->name, (unsigned)(p->id >> 32), (long long)b->phase->micro_batch,
          (long long)b->phase->accumulation, r->micro.runs);
  kernel_table(b, to, all, a);
  fputc('\n', to);
  for (int i = 0; i < BENCH_PROGRAMS; i++)
    if (bench_program(r, i)->runs > 0)
      program_line(b->program->programs[bench_program(r, i)->program].name,
                   &bench_program(r, i)->whole, b->predicted[i], b->calibrated[i], to);
  double step = measured_step(b), predicted = step_seconds(b, b->predicted);
  fprintf(to, "  %-8s measured %10.3f ms   predicted %.3f ms (%+.1f %%)   calibrated %.3f ms\n",
          "step", 1e3 * step, 1e3 * predicted, 100 * (predicted / step - 1),
          1e3 * step_seconds(b, b->calibrated));
  large_lines(b, to, a);
  fprintf(to, "  copies   %.1f GB/s read + written (table %.1f)   launch %.2f us (table %.2f)\n",
          b->target.copy_gbs, p->target->copy_gbs, b->target.launch_us, p->target->launch_us);
  if (r->tune.products)
    fprintf(to,
            "  products %d of %d are faster by another algorithm than the rule's, one of each takes "
            "%.3f ms instead of %.3f;\n           later runs take them from %s\n",
            r->tune.faster, r->tune.products, 1e3 * r->tune.best, 1e3 * r->tune.rule, r->tune.path);
  if (p->target->kind == DEV_CUDA && r->overhead_bytes > 0)
    fprintf(to, "  overhead %.1f MiB besides the arena (table %.1f)\n",
            (double)r->overhead_bytes / (1 << 20), (double)p->target->overhead_bytes / (1 << 20));
}

/* ---- JSON ---- */

static void real(json_t *o, const char *key, double v) {
  json_object_set_new(o, key, json_real(v));
}
static void whole(json_t *o, const char *key, int64_t v) {
  json_object_set_new(o, key, json_integer(v));
}
static void text(json_t *o, const char *key, const char *v) {
  json_object_set_new(o, key, v ? json_string(v) : json_null());
}

static json_t *group_json(const BenchReport *b, const BenchGroup *g) {
  const KernelCost *k = &g->first->cost;
  json_t *o = json_object();
  text(o, "program", g->first->program);
  text(o, "name", g->first->name);
  text(o, "kernel", g->first->kernel);
  text(o, "class", kernel_class_name(cost_class(k, &b->target)));
  whole(o, "calls", g->calls);
  whole(o, "bytes", k->bytes);
  whole(o, "flops", k->flops);
  real(o, "seconds", g->seconds);
  real(o, "least_seconds", g->time.least);
  real(o, "median_seconds", g->time.median);
  real(o, "most_seconds", g->time.most);
  real(o, "predicted_seconds", g->predicted);
  real(o, "gbs", bench_gbs(g));
  real(o, "copy_share", bench_gbs(g) / b->target.copy_gbs);
  if (is_product(k)) {
    real(o, "tflops", bench_tflops(g));
    real(o, "rate_share", bench_tflops(g) / limit_tflops(b, k));
  }
  return o;
}

static json_t *program_json(const char *name, const BenchProgram *p, int commands, double predicted,
                            double calibrated) {
  json_t *o = json_object();
  text(o, "name", name);
  whole(o, "commands", commands);
  whole(o, "runs", p->runs);
  real(o, "least_seconds", p->whole.least);
  real(o, "median_seconds", p->whole.median);
  real(o, "most_seconds", p->whole.most);
  real(o, "predicted_seconds", predicted);
  real(o, "calibrated_seconds", calibrated);
  real(o, "event_seconds", p->event_cost);
  return o;
}

void bench_json(const BenchReport *b, FILE *to) {
  const BenchResult *r = b->result;
  char id[16];
  snprintf(id, sizeof id, "%08x", (unsigned)(b->plan->id >> 32));
  json_t *o = json_object(), *list = json_array();
  text(o, "schema", "mtc.bench/1");
  text(o, "model", b->program->model);
  text(o, "preset", b->program->preset);
  text(o, "target", b->plan->target->name);
  text(o, "plan", id);
  whole(o, "micro_batch", b->phase->micro_batch);
  whole(o, "accumulation", b->phase->accumulation);
  real(o, "copy_gbs", b->target.copy_gbs);
  real(o, "launch_us", b->target.launch_us);
  whole(o, "overhead_bytes", r->overhead_bytes);
  whole(o, "products", r->tune.products);
  whole(o, "products_faster", r->tune.faster);
  real(o, "products_rule_seconds", r->tune.rule);
  real(o, "products_seconds", r->tune.best);
  real(o, "step_seconds", measured_step(b));
  real(o, "predicted_step_seconds", step_seconds(b, b->predicted));
  real(o, "calibrated_step_seconds", step_seconds(b, b->calibrated));
  for (int i = 0; i < BENCH_PROGRAMS; i++) {
    const BenchProgram *p = bench_program(r, i);
    if (p->runs == 0) continue;
    const ProgramCode *code = &b->program->programs[p->program];
    json_array_append_new(
        list, program_json(code->name, p, code->ncmds, b->predicted[i], b->calibrated[i]));
  }
  json_object_set_new(o, "programs", list);
  list = json_array();
  for (int i = 0; i < b->ngroups; i++) json_array_append_new(list, group_json(b, &b->groups[i]));
  json_object_set_new(o, "kernels", list);
  json_dumpf(o, to, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
  fputc('\n', to);
  json_decref(o);
}
