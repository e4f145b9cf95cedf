/* report_json.c - the plan for programs: one JSON object, schema docs/schema/plan.json. Bytes,
 * seconds and counts. */
#include <jansson.h>

#include "report.h"

static void put_int(json_t *o, const char *key, int64_t v) {
  json_object_set_new(o, key, json_integer(v));
}
static void put_real(json_t *o, const char *key, double v) {
  json_object_set_new(o, key, json_real(v));
}
static void put_text(json_t *o, const char *key, const char *v) {
  json_object_set_new(o, key, v ? json_string(v) : json_null());
}

static const char *mode_text(RecomputeMode m) {
  static const char *const text[] = {"none", "auto", "full"};
  return text[m];
}

static json_t *candidate_json(const FitResult *r, const Candidate *c) {
  json_t *o = json_object();
  put_int(o, "peak_bytes", c->peak_bytes);
  put_real(o, "step_seconds", (double)c->step_ns * 1e-9);
  put_real(o, "tokens_per_second", tokens_per_second(r, r->phase, c->step_ns));
  put_int(o, "micro_batch", c->micro_batch);
  put_int(o, "chunks", c->chunks);
  put_int(o, "mlp_chunks", c->mlp_chunks);
  put_int(o, "group", c->group);
  put_int(o, "host_bytes", c->host_bytes);
  json_object_set_new(o, "early_update", json_boolean(c->early_update));
  json_object_set_new(o, "recompute", json_boolean(c->front > 0));
  return o;
}

/* Of variables: bytes per parameter, by format. */
static void put_formats(json_t *o, const Plan *p, BufClass c) {
  if (bytes_per_param(p, c, -1) == 0) return;
  json_t *formats = json_object();
  for (int t = 0; t < DT_COUNT; t++) {
    double each = bytes_per_param(p, c, t);
    if (each > 0) put_real(formats, dtype_name((DType)t), each);
  }
  json_object_set_new(o, "bytes_per_parameter", formats);
}

static json_t *ledger_json(const FitResult *r) {
  Ledger l = plan_ledger(r->plan);
  json_t *list = json_array();
  for (int c = 0; c < BC_COUNT; c++) {
    json_t *o = json_object();
    put_text(o, "class", buf_class_json((BufClass)c));
    put_int(o, "bytes", l.bytes[c]);
    put_formats(o, r->plan, (BufClass)c);
    json_array_append_new(list, o);
  }
  const struct {
    const char *name;
    int64_t bytes;
  } rest[] = {
      {"gaps", l.gaps}, {"context", r->plan->overhead_bytes}, {"reserve", r->plan->reserve_bytes}};
  for (int i = 0; i < COUNT_OF(rest); i++) {
    json_t *o = json_object();
    put_text(o, "class", rest[i].name);
    put_int(o, "bytes", rest[i].bytes);
    json_array_append_new(list, o);
  }
  return list;
}

static json_t *host_json(const FitResult *r) {
  Ledger l = plan_ledger(r->plan);
  json_t *list = json_array();
  for (int c = 0; c < BC_COUNT; c++) {
    if (l.host[c] == 0) continue;
    json_t *o = json_object();
    put_text(o, "class", buf_class_json((BufClass)c));
    put_int(o, "bytes", l.host[c]);
    json_array_append_new(list, o);
  }
  return list;
}

static json_t *formats_json(const FitResult *r) {
  json_t *list = json_array();
  for (int i = 0; i < r->formats.n; i++) {
    json_t *o = json_object();
    put_text(o, "setting", r->formats.at[i].setting);
    put_text(o, "format", r->formats.at[i].format);
    put_text(o, "why", r->formats.at[i].why);
    json_array_append_new(list, o);
  }
  return list;
}

static json_t *phase_json(const FitResult *r, const PlanPhase *ph) {
  json_t *o = json_object();
  put_text(o, "name", r->job->phases.at[ph->phase].name);
  put_int(o, "micro_batch", ph->micro_batch);
  put_int(o, "accumulation", ph->accumulation);
  put_int(o, "chunks", ph->chunks);
  put_int(o, "mlp_chunks", ph->mlp_chunks);
  put_int(o, "group", ph->group);
  json_object_set_new(o, "early_update", json_boolean(phase_updates_early(ph)));
  put_text(o, "recompute", mode_text(ph->recompute));
  put_int(o, "peak_bytes", ph->peak_bytes);
  put_real(o, "step_seconds", (double)ph->step_ns * 1e-9);
  put_real(o, "recompute_seconds", (double)ph->recompute_ns * (double)ph->accumulation * 1e-9);
  put_real(o, "tokens_per_second", tokens_per_second(r, ph->phase, ph->step_ns));
  return o;
}

static json_t *program_json(const Plan *plan, int program) {
  const PlanProgram *p = &plan->programs.at[program];
  CopyTraffic t = copy_traffic(plan, program);
  json_t *o = json_object();
  put_text(o, "name", p->name);
  put_int(o, "steps", p->nsteps);
  put_int(o, "peak_step", p->peak_step);
  put_text(o, "peak_name", p->nsteps ? p->clusters.at[p->steps[p->peak_step].cluster].name : "");
  put_int(o, "transient_bytes", p->transient_bytes);
  put_int(o, "liveness_bytes", p->liveness_bytes);
  put_real(o, "seconds", (double)p->ns * 1e-9);
  put_int(o, "copied_in_bytes", t.in_bytes);
  put_int(o, "copied_out_bytes", t.out_bytes);
  put_real(o, "copy_in_seconds", (double)t.in_ns * 1e-9);
  put_real(o, "copy_out_seconds", (double)t.out_ns * 1e-9);
  put_real(o, "copy_exposed_seconds", (double)t.exposed_ns * 1e-9);
  return o;
}

static json_t *groups_json(const LayerGroups *groups, bool timed) {
  json_t *list = json_array();
  for (int i = 0; i < groups->n; i++) {
    const LayerGroup *g = &groups->at[i];
    json_t *o = json_object();
    put_text(o, "name", g->name);
    put_int(o, "bytes", g->bytes);
    if (timed) put_real(o, "seconds", (double)g->ns * 1e-9);
    json_array_append_new(list, o);
  }
  return list;
}

static void plan_fields(json_t *o, const FitResult *r) {
  const Plan *p = r->plan;
  const PlanPhase *ph = &p->phases.at[r->phase];
  Arena *a = arena_new();
  put_text(o, "plan", arena_printf(a, "%08x", (unsigned)(p->id >> 32)));
  put_int(o, "peak_bytes", p->peak_bytes);
  put_int(o, "arena_bytes", p->arena_bytes);
  put_int(o, "persistent_bytes", p->persistent_bytes);
  put_int(o, "host_bytes", p->host_bytes);
  json_object_set_new(o, "host", host_json(r));
  put_real(o, "step_seconds", (double)ph->step_ns * 1e-9);
  put_real(o, "tokens_per_second", tokens_per_second(r, ph->phase, ph->step_ns));
  put_int(o, "micro_batch", ph->micro_batch);
  put_int(o, "accumulation", ph->accumulation);
  put_int(o, "chunks", ph->chunks);
  put_int(o, "mlp_chunks", ph->mlp_chunks);
  put_int(o, "group", ph->group);
  json_object_set_new(o, "early_update", json_boolean(phase_updates_early(ph)));
  put_text(o, "recompute", mode_text(ph->recompute));
  put_int(o, "buffers", p->bufs.n);
  json_object_set_new(o, "ledger", ledger_json(r));
  json_t *list = json_array();
  for (int i = 0; i < p->phases.n; i++)
    json_array_append_new(list, phase_json(r, &p->phases.at[i]));
  json_object_set_new(o, "phases", list);
  list = json_array();
  for (int i = 0; i < p->programs.n; i++)
    json_array_append_new(list, program_json(p, i));
  json_object_set_new(o, "programs", list);
  LayerGroups rebuilt = plan_rebuilt(p, ph->programs[PROG_MICRO], a);
  LayerGroups waiting = plan_waiting(p, ph->programs[PROG_MICRO], a);
  json_object_set_new(o, "rebuilt", groups_json(&rebuilt, true));
  json_object_set_new(o, "waiting", groups_json(&waiting, false));
  arena_free(a);
}

void plan_report_json(const FitResult *r, FILE *to) {
  json_t *o = json_object();
  const Job *j = r->job;
  put_text(o, "schema", "mtc.plan/1");
  put_text(o, "source", j->path);
  put_text(o, "model", j->model);
  put_text(o, "preset", j->preset);
  put_int(o, "params", j->params);
  put_int(o, "trainable", j->trainable);
  put_int(o, "layers", j->layers);
  put_text(o, "target", r->args.target->name);
  json_object_set_new(o, "fits", json_boolean(r->plan != NULL));
  json_object_set_new(o, "budget_bytes",
                      r->budget_bytes == INT64_MAX ? json_null() : json_integer(r->budget_bytes));
  put_int(o, "floor_bytes", r->floor_bytes);
  put_int(o, "overhead_bytes", r->args.target->overhead_bytes);
  put_int(o, "reserve_bytes", r->args.reserve_bytes);
  if (r->formats.n) json_object_set_new(o, "formats", formats_json(r));
  if (r->plan) {
    plan_fields(o, r);
  } else {
    put_int(o, "persistent_bytes", r->floor_persistent);
    put_int(o, "floor_host_bytes", r->floor_host);
    put_int(o, "shortfall_bytes", r->host_needed > 0 ? 0 : r->floor_bytes - r->budget_bytes);
    if (r->host_needed > 0) put_int(o, "host_shortfall_bytes", r->host_needed - r->args.host_bytes);
    json_t *list = json_array();
    for (int i = 0; i < r->remedies.n; i++) {
      const Remedy *m = &r->remedies.at[i];
      json_t *x = json_object();
      put_text(x, "change", m->change);
      put_text(x, "effect", m->effect);
      put_int(x, "floor_bytes", m->floor_bytes);
      put_int(x, "micro_batch", m->micro_batch);
      put_real(x, "tokens_per_second", tokens_per_second(r, r->phase, m->step_ns));
      json_array_append_new(list, x);
    }
    json_object_set_new(o, "remedies", list);
  }
  json_t *list = json_array();
  for (int i = 0; i < r->frontier.n; i++)
    json_array_append_new(list, candidate_json(r, &r->frontier.at[i]));
  json_object_set_new(o, "frontier", list);
  json_dumpf(o, to, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
  fputc('\n', to);
  json_decref(o);
}
