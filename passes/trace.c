/* trace.c - a plan's predicted timeline as a Chrome trace (see trace.h). Times in microseconds with
 * three decimals. */
#include "trace.h"

#include <jansson.h>

typedef struct {
  const Plan *plan;
  Arena *arena;
  FILE *to;
  bool first;
} Trace;

/* One event, one line. Takes o. */
static void event(Trace *t, json_t *o) {
  fputs(t->first ? "\n" : ",\n", t->to);
  t->first = false;
  json_dumpf(o, t->to, JSON_COMPACT | JSON_REAL_PRECISION(15));
  json_decref(o);
}

static double us(int64_t ns) {
  return (double)ns / 1000;
}

const char *trace_phase(const Plan *p, int program) {
  for (int i = 0; i < p->phases.n && p->phases.n > 1; i++)
    for (int k = 0; k < COUNT_OF(p->phases.at[i].programs); k++)
      if (p->phases.at[i].programs[k] == program)
        return p->job->phases.at[p->phases.at[i].phase].name;
  return "";
}

static void name_process(Trace *t, int program) {
  const char *name = t->plan->programs.at[program].name, *phase = trace_phase(t->plan, program);
  if (*phase) name = arena_printf(t->arena, "%s: %s", phase, name);
  event(t, json_pack("{s:s,s:s,s:i,s:{s:s}}", "name", "process_name", "ph", "M", "pid", program + 1,
                     "args", "name", name));
  static const char *const rows[] = {"compute", "copies to the device", "copies to the host"};
  for (int i = 0; i < (t->plan->programs.at[program].ncopies ? COUNT_OF(rows) : 1); i++)
    event(t, json_pack("{s:s,s:s,s:i,s:i,s:{s:s}}", "name", "thread_name", "ph", "M", "pid",
                       program + 1, "tid", i + 1, "args", "name", rows[i]));
}

static const char *phase_text(Phase p) {
  return p == PH_FORWARD ? "forward" : p == PH_BACKWARD ? "backward" : "update";
}

static const char *kind_text(ClusterKind k) {
  static const char *const text[] = {"loop", "gemm", "attention", "attention backward", "scatter"};
  return text[k];
}

static void step_event(Trace *t, int pid, const PlanProgram *x, int s, int64_t at) {
  const Cluster *c = &x->clusters.at[x->steps[s].cluster];
  const char *line =
      c->nnodes ? loc_text(t->plan->job->diags, t->arena, node_at(x->clusters.g, c->nodes[0])->loc)
                : "";
  json_t *args =
      json_pack("{s:i,s:i,s:s,s:s,s:I,s:I,s:b,s:s}", "step", s + 1, "layer", c->layer, "phase",
                phase_text(c->phase), "kind", kind_text(c->kind), "flops", (json_int_t)c->flops,
                "bytes", (json_int_t)c->bytes, "recomputed", x->steps[s].recomputed, "line", line);
  const char *group = x->steps[s].recomputed ? "recomputed" : phase_text(c->phase);
  event(t, json_pack("{s:s,s:s,s:s,s:f,s:f,s:i,s:i,s:o}", "name", c->name, "cat", group, "ph", "X",
                     "ts", us(at), "dur", us(c->ns), "pid", pid, "tid", 1, "args", args));
}

static void copy_event(Trace *t, int pid, const PlanCopy *c) {
  const PlanBuf *stage = &t->plan->bufs.at[c->stage];
  json_t *args = json_pack("{s:I,s:i,s:i}", "bytes", (json_int_t)stage->bytes, "from step", c->begin + 1, "before step", c->end + 1);
  const char *to = c->to_host ? "to the host" : "to the device";
  event(t, json_pack("{s:s,s:s,s:s,s:f,s:f,s:i,s:i,s:o}", "name", t->plan->bufs.at[c->host].name, "cat", to, "ph", "X", "ts",
                     us(c->from_ns), "dur", us(c->to_ns - c->from_ns), "pid", pid, "tid", c->to_host ? 3 : 2, "args", args));
}

/* Bytes of each class alive at each step: [step][class]. */
static int64_t (*live_bytes(Trace *t, int program))[BC_COUNT] {
  const PlanProgram *x = &t->plan->programs.at[program];
  int64_t(*at)[BC_COUNT] = arena_alloc(t->arena, sizeof *at * (size_t)(x->nsteps + 1));
  for (int i = 0; i < t->plan->bufs.n; i++) {
    const PlanBuf *b = &t->plan->bufs.at[i];
    if (b->space != SPACE_DEVICE || (b->program >= 0 && b->program != program)) continue;
    int first = b->program < 0 ? 0 : b->first, last = b->program < 0 ? x->nsteps - 1 : b->last;
    for (int s = first; s <= last; s++) at[s][b->cls] += b->bytes;
  }
  return at;
}

static void counter(Trace *t, int pid, const int64_t *bytes, int64_t at) {
  json_t *args = json_object();
  for (int c = 0; c < BC_COUNT; c++)
    if (bytes[c] > 0)
      json_object_set_new(args, buf_class_json((BufClass)c), json_integer(bytes[c]));
  event(t, json_pack("{s:s,s:s,s:f,s:i,s:o}", "name", "bytes live", "ph", "C", "ts", us(at), "pid",
                     pid, "args", args));
}

void plan_trace(const Plan *p, FILE *to) {
  Trace t = {.plan = p, .arena = arena_new(), .to = to, .first = true};
  fprintf(to,
          "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"plan\":\"%08x\",\"peak_bytes\":%lld},"
          "\"traceEvents\":[",
          (unsigned)(p->id >> 32), (long long)p->peak_bytes);
  for (int i = 0; i < p->programs.n; i++) {
    const PlanProgram *x = &p->programs.at[i];
    int64_t(*live)[BC_COUNT] = live_bytes(&t, i), at = 0;
    name_process(&t, i);
    for (int k = 0; k < x->ncopies; k++) copy_event(&t, i + 1, &x->copies[k]);
    for (int s = 0; s < x->nsteps; s++) {
      if (x->begin_ns) at = x->begin_ns[s];
      counter(&t, i + 1, live[s], at);
      step_event(&t, i + 1, x, s, at);
      at += x->clusters.at[x->steps[s].cluster].ns;
    }
    if (x->nsteps) counter(&t, i + 1, live[x->nsteps - 1], at);
  }
  fputs("\n]}\n", to);
  arena_free(t.arena);
}
