/* report_why.c - `mtc plan --why PATH`: what was decided about variables and values under a model
 * path, and by which line. Input: a FitResult with a plan. Output: text. */
#include <string.h>

#include "precision.h"
#include "report.h"

/* PATH itself, or something below it: "h.3.attn" covers "h.3.attn.q.w" and "h.3.attn.q.w:grad". */
static bool under(const char *name, const char *path) {
  size_t n = strlen(path);
  if (!name || strncmp(name, path, n)) return false;
  return name[n] == 0 || name[n] == '.' || name[n] == ':' || n == 0;
}

/* "master 4 KiB, moments 8 KiB, gradients 4 KiB" of a parameter. */
static const char *derived_text(const Report *x, int param) {
  const Plan *p = x->r->plan;
  int64_t bytes[BC_COUNT] = {0}, host[BC_COUNT] = {0};
  for (int i = 0; i < p->job->vars->all.n; i++) {
    if (p->job->vars->all.at[i].of != param || p->var_buf[i] < 0) continue;
    const PlanBuf *b = &p->bufs.at[p->var_buf[i]];
    *(b->space == SPACE_HOST ? &host[b->cls] : &bytes[b->cls]) += b->bytes;
  }
  Str s = {.arena = x->arena};
  for (int c = 0; c < BC_COUNT; c++) {
    if (bytes[c]) str_addf(&s, ", %s %s", buf_class_text((BufClass)c), format_bytes(x->arena, bytes[c]));
    if (host[c]) str_addf(&s, ", %s %s on the host", buf_class_text((BufClass)c), format_bytes(x->arena, host[c]));
  }
  return s.text ? s.text : "";
}

/* Formats of what belongs to parameters, where the model leaves them open. */
static void open_formats(const Report *x) {
  const FitResult *r = x->r;
  for (int i = 0; i < r->formats.n; i++)
    if (strcmp(r->formats.at[i].setting, "compute") != 0)
      fprintf(x->to, "%-28s `%s = auto`: %s, %s\n", "", r->formats.at[i].setting, r->formats.at[i].format,
              r->formats.at[i].why);
}

/* Copies of a variable on the host, and of those that belong to it: "update: 3 copies in, 3 out, 5.40 ms a run". */
static void copies_of(const Report *x, int var) {
  const Plan *p = x->r->plan;
  for (int i = 0; i < p->programs.n; i++) {
    const PlanProgram *y = &p->programs.at[i];
    int n[2] = {0};
    int64_t ns = 0;
    for (int k = 0; k < y->ncopies; k++) {
      int v = p->bufs.at[y->copies[k].host].var;
      if (v < 0 || (v != var && p->job->vars->all.at[v].of != var)) continue;
      n[y->copies[k].to_host]++;
      ns += y->copies[k].to_ns - y->copies[k].from_ns;
    }
    if (n[0] + n[1] > 0)
      fprintf(x->to, "%-28s %s: %d %s in, %d out, %s a run\n", "", y->name, n[0], n[0] == 1 ? "copy" : "copies", n[1],
              time_short(x->arena, ns));
  }
}

/* The step of a program that assigns a variable; -1: none. */
static int step_that_assigns(const PlanProgram *p, int var) {
  for (int s = 0; s < p->nsteps; s++) {
    const Cluster *c = &p->clusters.at[p->steps[s].cluster];
    for (int k = 0; k < c->nout; k++)
      if (c->out_var[k] == var) return s;
  }
  return -1;
}

/* Where the backward pass updates a parameter, and what that spares. */
static void early_updates(const Report *x, int param) {
  const Plan *p = x->r->plan;
  bool accumulated = false;
  for (int i = 0; i < p->job->vars->all.n; i++) {
    const Var *v = &p->job->vars->all.at[i];
    if (v->of == param && v->role == VAR_ACCUM) accumulated = p->var_buf[i] >= 0;
  }
  for (int i = 0; i < p->phases.n; i++) {
    if (!phase_updates_early(&p->phases.at[i])) continue;
    const PlanProgram *micro = &p->programs.at[p->phases.at[i].programs[PROG_MICRO]];
    int s = step_that_assigns(micro, param);
    if (s < 0) continue;
    fprintf(x->to, "%-28s updated at %d of %d in %s: %s\n", "", s + 1, micro->nsteps, micro->name,
            accumulated ? "its gradient has several parts, and an accumulator"
                        : "right after its gradient, which has no accumulator");
  }
}

/* Variables; what belongs to a parameter that is told as well is told with it. */
static int variables(const Report *x, const char *path) {
  const Plan *p = x->r->plan;
  const Vars *vars = p->job->vars;
  int found = 0;
  for (int i = 0; i < vars->all.n; i++) {
    const Var *v = &vars->all.at[i];
    if (!under(v->path, path) || p->var_buf[i] < 0) continue;
    found++;
    if (v->of >= 0 && under(vars->all.at[v->of].path, path)) continue;
    const PlanBuf *b = &p->bufs.at[p->var_buf[i]];
    fprintf(x->to, "%-28s %s%s  %s at byte %lld %sfor the whole run: %s%s\n", v->path, dtype_name(v->dtype),
            shape_text(x->arena, &v->shape), format_bytes(x->arena, b->bytes), (long long)b->offset,
            b->space == SPACE_HOST ? "of pinned host memory " : "", buf_class_text(b->cls), derived_text(x, i));
    copies_of(x, i);
    if (v->role != VAR_PARAM) continue;
    fprintf(x->to, "%-28s %s; %s\n", "", precision_why_stored(p->job, i, x->arena),
            v->trainable ? "trained" : "frozen");
    if (trained_ever(p->job, i)) open_formats(x);
    early_updates(x, i);
  }
  return found;
}

static int64_t rebuild_cost(const PlanProgram *p, int cluster, int *times) {
  *times = 0;
  for (int s = 0; s < p->nsteps; s++)
    *times += p->steps[s].recomputed && p->steps[s].cluster == cluster;
  return p->clusters.at[cluster].ns * *times;
}

static void one_output(const Report *x, const PlanProgram *p, int step, int k) {
  const Plan *plan = x->r->plan;
  const PlanStep *s = &p->steps[step];
  const Cluster *c = &p->clusters.at[s->cluster];
  const Value *v = val(p->clusters.g, c->out[k]);
  const PlanBuf *b = &plan->bufs.at[s->out[k].buf];
  char *at = loc_text(plan->job->diags, x->arena, node_of(p->clusters.g, c->out[k])->loc);
  fprintf(x->to, "%-28s %s%s  %s", c->name, dtype_name(v->dtype), shape_text(x->arena, &v->shape),
          bytes_short(x->arena, b->bytes));
  if (b->program < 0) {
    fprintf(x->to, " in %s", b->name);
  } else {
    fprintf(x->to, " at byte %lld, steps %d..%d of %d in %s: %s", (long long)b->offset,
            b->first + 1, b->last + 1, p->nsteps, p->name, buf_class_text(b->cls));
    if (b->name != c->name) fprintf(x->to, ", in one buffer with %s", b->name);
  }
  fprintf(x->to, "%s%s\n", *at ? "   " : "", at);
  const char *why = precision_why(plan->job, node_of(p->clusters.g, c->out[k]), v, x->arena);
  if (why && b->program >= 0) fprintf(x->to, "%-28s %s\n", "", why);
}

/* Kept or rebuilt, with the figures of the decision. */
static void decision(const Report *x, const PlanProgram *p, int cluster) {
  int times;
  int64_t cost = rebuild_cost(p, cluster, &times), bytes = 0;
  const Cluster *c = &p->clusters.at[cluster];
  for (int k = 0; k < c->nout; k++)
    bytes +=
        shape_bytes(&val(p->clusters.g, c->out[k])->shape, val(p->clusters.g, c->out[k])->dtype);
  if (times > 0)
    fprintf(x->to, "%-28s rebuilt %s: frees %s, costs %s a micro-batch\n", "",
            times == 1 ? "once" : "more than once", bytes_short(x->arena, bytes),
            time_short(x->arena, cost));
  else if (c->phase == PH_FORWARD)
    fprintf(x->to, "%-28s not rebuilt: would cost %s to free %s\n", "", time_short(x->arena, c->ns),
            bytes_short(x->arena, bytes));
}

static int values(const Report *x, const char *path) {
  const Plan *plan = x->r->plan;
  int found = 0;
  for (int i = 0; i < plan->programs.n; i++) {
    const PlanProgram *p = &plan->programs.at[i];
    if (strcmp(p->name, "micro") != 0 && strcmp(p->name, "step") != 0) continue;
    for (int s = 0; s < p->nsteps; s++) {
      const Cluster *c = &p->clusters.at[p->steps[s].cluster];
      const char *where = c->nnodes ? node_at(p->clusters.g, c->nodes[0])->path : NULL;
      if (p->steps[s].recomputed || !(under(c->name, path) || under(where, path))) continue;
      for (int k = 0; k < c->nout; k++) one_output(x, p, s, k);
      decision(x, p, p->steps[s].cluster);
      found++;
    }
  }
  return found;
}

bool plan_why(const FitResult *r, const char *path, FILE *to) {
  Report x = {.r = r, .arena = arena_new(), .to = to};
  int found = r->plan ? variables(&x, path) + values(&x, path) : 0;
  arena_free(x.arena);
  return found > 0;
}
