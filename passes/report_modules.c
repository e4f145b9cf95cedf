/* report_modules.c - `mtc plan --modules`: which part of the model the memory at the peak and the
 * time of a step belong to, layers of an array together. Input: a plan. Output: text; the columns
 * add up to the plan's own figures. Host memory has a column where there is any. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

typedef struct {
  const char *name;              /* "h[*].c_fc", interned */
  int64_t persistent, transient; /* bytes: for the whole run, and besides at the peak */
  int64_t host;                  /* pinned bytes */
  int64_t ns;                    /* of a micro-batch */
} Module;

typedef struct {
  Arena *arena;
  VEC(Module) all;
} Modules;

static Module *module_named(Modules *m, const char *name) {
  for (int i = 0; i < m->all.n; i++)
    if (m->all.at[i].name == name) return &m->all.at[i];
  Module x = {.name = name};
  vec_push(m->arena, &m->all, x);
  return &vec_last(&m->all);
}

/* "h.3.c_fc.w:grad" -> "h[*].c_fc". */
static const char *module_of_variable(Arena *a, const char *path) {
  char *name = arena_printf(a, "%.*s", (int)strcspn(path, ":"), path);
  char *dot = strrchr(name, '.');
  if (dot) *dot = 0;
  int layer;
  return name_without_layer(name, &layer);
}

/* The module with parameters that a value's path lies in, else the path itself; "" for what the
 * model does outside of any: "h.3.ln_1.layernorm" -> "h[*].ln_1", "h.3.gelu" -> "h[*].gelu",
 * "dot#8" -> "". */
static const char *module_of_value(Modules *m, int modules, const char *name) {
  int layer, n = (int)strcspn(name, "#");
  if (n >= 4 && !strncmp(name + n - 4, ".bwd", 4)) n -= 4;
  const char *path = name_without_layer(arena_printf(m->arena, "%.*s", n, name), &layer);
  const char *best = NULL;
  for (int i = 0; i < modules; i++) {
    size_t length = strlen(m->all.at[i].name);
    bool inside =
        !strncmp(path, m->all.at[i].name, length) && (path[length] == '.' || path[length] == 0);
    if (length > 0 && inside && (!best || length > strlen(best))) best = m->all.at[i].name;
  }
  return best ? best : strchr(path, '.') ? path : intern("");
}

static int by_bytes(const void *a, const void *b) {
  const Module *x = a, *y = b;
  int64_t m = x->persistent + x->transient, n = y->persistent + y->transient;
  return m != n ? (m > n ? -1 : 1) : strcmp(x->name, y->name);
}

static void count(const Plan *p, int program, int micro, Modules *m) {
  const PlanProgram *peak = &p->programs.at[program], *x = &p->programs.at[micro];
  for (int i = 0; i < p->bufs.n; i++) {
    const PlanBuf *b = &p->bufs.at[i];
    if (b->program >= 0) continue;
    Module *of = module_named(m, module_of_variable(m->arena, b->name));
    *(b->space == SPACE_HOST ? &of->host : &of->persistent) += b->bytes;
  }
  int modules = m->all.n;
  for (int i = 0; i < p->bufs.n; i++) {
    const PlanBuf *b = &p->bufs.at[i];
    if (b->program == micro && b->space == SPACE_HOST) module_named(m, module_of_value(m, modules, b->name))->host += b->bytes;
    if (b->program != program || b->space != SPACE_DEVICE || b->first > peak->peak_step ||
        b->last < peak->peak_step)
      continue;
    module_named(m, module_of_value(m, modules, b->name))->transient += b->bytes;
  }
  for (int s = 0; s < x->nsteps; s++) {
    const Cluster *c = &x->clusters.at[x->steps[s].cluster];
    module_named(m, module_of_value(m, modules, c->name))->ns += c->ns;
  }
}

static void add_to(Module *sum, const Module *x) {
  sum->persistent += x->persistent;
  sum->transient += x->transient;
  sum->host += x->host;
  sum->ns += x->ns;
}

/* sum: of all modules, what shares are of. */
static void print_row(FILE *to, const char *name, const Module *x, const Module *sum) {
  int64_t both = x->persistent + x->transient;
  double bytes = (double)(sum->persistent + sum->transient), ns = sum->ns ? (double)sum->ns : 1;
  fprintf(to, "%-30s %12.1f %12.1f %12.1f %7.1f %7.1f", name, mib(x->persistent), mib(x->transient), mib(both),
          100 * (double)both / bytes, 100 * (double)x->ns / ns);
  if (sum->host) fprintf(to, " %12.1f", mib(x->host));
  fputc('\n', to);
}

void plan_modules(const FitResult *r, FILE *to) {
  Arena *a = arena_new();
  const Plan *p = r->plan;
  Ledger l = plan_ledger(p);
  int micro = p->phases.at[r->phase].programs[PROG_MICRO];
  Modules m = {.arena = a};
  count(p, l.program, micro, &m);
  qsort(m.all.at, (size_t)m.all.n, sizeof *m.all.at, by_bytes);
  Module sum = {0}, others = {0};
  for (int i = 0; i < m.all.n; i++) add_to(&sum, &m.all.at[i]);
  fprintf(to, "%-30s %12s %12s %12s %7s %7s%s\n", "module", "kept, MiB", "live, MiB", "both, MiB", "% mem", "% time",
          sum.host ? "    host, MiB" : "");
  double bytes = (double)(sum.persistent + sum.transient);
  for (int i = 0; i < m.all.n; i++) {
    const Module *x = &m.all.at[i];
    bool small = (double)(x->persistent + x->transient) < bytes / 5000 && (double)x->ns < (double)sum.ns / 1000 && x->host < sum.host / 5000 + 1;
    if (small)
      add_to(&others, x);
    else
      print_row(to, *x->name ? x->name : "the model itself", x, &sum);
  }
  if (others.persistent + others.transient + others.ns > 0) print_row(to, "others", &others, &sum);
  print_row(to, "all", &sum, &sum);
  fprintf(to,
          "\nkept: parameters and their state. live: values of %s at the peak, %s. time: of a "
          "micro-batch, %s.%s\n",
          p->programs.at[l.program].name,
          bytes_short(a, p->peak_bytes - p->overhead_bytes - p->reserve_bytes),
          time_short(a, sum.ns), sum.host ? " host: pinned there for the whole run." : "");
  arena_free(a);
}
