/* assemble.c - steps, buffers, lifetimes and offsets (see assemble.h).
 *
 * Each instance of the timeline that takes over no other, each workspace and each input is one
 * buffer for place_buffers. */
#include "assemble.h"

#include <stdlib.h>
#include <string.h>

#include "place.h"
#include "precision.h"
#include "stage.h"
#include "timeline.h"

const char *buf_class_text(BufClass c) {
  static const char *const text[] = {
#define X(id, text, json) text,
      BUF_CLASSES(X)
#undef X
  };
  return text[c];
}

const char *buf_class_json(BufClass c) {
  static const char *const json[] = {
#define X(id, text, json) json,
      BUF_CLASSES(X)
#undef X
  };
  return json[c];
}

/* ---- variables ---- */

BufClass variable_class(VarRole r) {
  switch (r) {
    case VAR_PARAM:
      return BC_WEIGHTS;
    case VAR_STATE:
      return BC_STATES;
    case VAR_MASTER:
      return BC_MASTER;
    case VAR_MOMENT:
      return BC_MOMENTS;
    case VAR_ACCUM:
      return BC_GRADIENTS;
    default:
      return BC_SCALARS;
  }
}

int64_t variables_bytes(const Vars *v) {
  int64_t sum = 0;
  for (int i = 0; i < v->all.n; i++)
    sum += round_up(shape_bytes(&v->all.at[i].shape, v->all.at[i].dtype), PLAN_ALIGN);
  return sum;
}

int64_t accumulators_bytes(const Vars *v) {
  int64_t sum = 0;
  for (int i = 0; i < v->all.n; i++)
    if (v->all.at[i].role == VAR_ACCUM) sum += shape_bytes(&v->all.at[i].shape, v->all.at[i].dtype);
  return sum;
}

void assemble_variables(Plan *p, Arena *a, const bool *host, const bool *absent) {
  const Vars *vars = p->job->vars;
  int64_t at[] = {[SPACE_DEVICE] = 0, [SPACE_HOST] = 0};
  p->var_buf = arena_array(a, int, vars->all.n + 1);
  for (int cls = 0; cls < BC_COUNT; cls++) {
    for (int i = 0; i < vars->all.n; i++) {
      const Var *v = &vars->all.at[i];
      if ((int)variable_class(v->role) != cls) continue;
      if (absent && absent[i]) {
        p->var_buf[i] = -1;
        continue;
      }
      Space space = host && host[i] ? SPACE_HOST : SPACE_DEVICE;
      PlanBuf b = {.name = v->path,
                   .cls = (BufClass)cls,
                   .space = space,
                   .offset = at[space],
                   .program = -1,
                   .var = i,
                   .value = -1,
                   .loc = v->loc};
      b.bytes = round_up(shape_bytes(&v->shape, v->dtype), PLAN_ALIGN);
      at[space] += b.bytes;
      p->var_buf[i] = p->bufs.n;
      vec_push(a, &p->bufs, b);
    }
  }
  p->persistent_bytes = at[SPACE_DEVICE];
  p->host_persistent_bytes = p->host_bytes = at[SPACE_HOST];
}

/* What the parts of one program's assembly share. */
typedef struct {
  const StorageMap *m;
  const Clusters *c;
  Arena *arena;
  Timeline time;
  int *inst_buf; /* per instance: in Plan.bufs */
  int *unit_buf; /* per unit: of variables and inputs */
  const SavedSet *saved;
  int first_saved;  /* buffer on the host of the first saved value; those of the others follow */
  HostItems items;  /* variables on the host and saved values */
  StagePlan stages; /* of them; without windows when there are none */
  int first_stage;  /* buffer of the first window; those of the others follow */
  int *window;      /* per item: the window of the step at hand, or -1 */
} Assembly;

/* ---- classes ---- */

int64_t logits_axis(const Graph *g) {
  int64_t best = 0, axis = 0;
  const char *tag = intern("cross_entropy");
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *n = node_at(g, i);
    if (n->tag != tag) continue;
    for (int k = 0; k < n->nin; k++) {
      const Shape *s = &val(g, n->in[k])->shape;
      if (s->rank > 1 && shape_count(s) > best) {
        best = shape_count(s);
        axis = s->dim[s->rank - 1];
      }
    }
  }
  return axis;
}

static bool near_loss(const Assembly *t, int step) {
  const char *tag = intern("cross_entropy");
  const Cluster *c = &t->c->at[t->time.trace[step]];
  for (int k = 0; k < c->nnodes; k++)
    if (node_at(t->c->g, c->nodes[k])->tag == tag) return true;
  return false;
}

static bool is_logits(const Assembly *t, const Instance *x, int64_t axis, const bool *loss_step) {
  ValueId v = t->m->unit[x->unit].value;
  if (v < 0 || axis == 0) return false;
  const Shape *s = &val(t->c->g, v)->shape;
  if (s->rank < 2 || s->dim[s->rank - 1] != axis) return false;
  for (int step = x->first; step <= x->last; step++)
    if (loss_step[step]) return true;
  return false;
}

static BufClass class_of(const Assembly *t, const Instance *x) {
  const Cluster *maker = &t->c->at[t->time.trace[x->first]],
                *reader = &t->c->at[t->time.trace[x->last]];
  if (x->rebuilt) return BC_RECOMPUTED;
  return maker->phase == PH_FORWARD && reader->phase != PH_FORWARD ? BC_ACTIVATION : BC_TRANSIENT;
}

/* ---- buffers ---- */

static void add_instance_bufs(Plan *p, Assembly *t, int program) {
  int64_t axis = logits_axis(t->c->g);
  bool *loss_step = arena_array(t->arena, bool, t->time.nsteps + 1);
  for (int s = 0; s < t->time.nsteps; s++) loss_step[s] = axis > 0 && near_loss(t, s);
  t->inst_buf = arena_array(t->arena, int, t->time.n + 1);
  for (int i = 0; i < t->time.n; i++) {
    const Instance *x = &t->time.at[i];
    t->inst_buf[i] = -1;
    if (t->items.of_unit[x->unit] >= 0) continue; /* in stages */
    if (x->takes >= 0) { /* always an earlier instance */
      t->inst_buf[i] = t->inst_buf[x->takes];
      PlanBuf *b = &p->bufs.at[t->inst_buf[i]];
      b->last = x->last;
      if (b->cls == BC_TRANSIENT &&
          class_of(t, x) == BC_ACTIVATION) { /* what it is for most of its life */
        b->cls = BC_ACTIVATION;
        b->name = t->c->at[t->time.trace[x->first]].name;
        b->value = t->m->unit[x->unit].value;
      }
      continue;
    }
    const Unit *u = &t->m->unit[x->unit];
    PlanBuf b = {.name = t->c->at[t->time.trace[x->first]].name,
                 .space = SPACE_DEVICE,
                 .bytes = round_up(u->bytes, PLAN_ALIGN),
                 .program = program,
                 .first = x->first,
                 .last = x->last,
                 .var = -1,
                 .value = u->value};
    b.cls = is_logits(t, x, axis, loss_step) ? BC_LOGITS : class_of(t, x);
    b.loc = u->value >= 0 ? node_of(t->c->g, u->value)->loc : NO_LOC;
    t->inst_buf[i] = p->bufs.n;
    vec_push(t->arena, &p->bufs, b);
  }
}

static void add_input_bufs(Plan *p, Assembly *t, int program) {
  t->unit_buf = arena_array(t->arena, int, t->m->nunits + 1);
  for (int u = 0; u < t->m->nunits; u++) {
    const Unit *x = &t->m->unit[u];
    t->unit_buf[u] = x->var >= 0 ? p->var_buf[x->var] : -1;
    if (x->input < 0) continue;
    const Node *n = node_of(t->c->g, x->input);
    PlanBuf b = {.name = n->sym,
                 .cls = BC_INPUTS,
                 .space = SPACE_DEVICE,
                 .bytes = round_up(x->bytes, PLAN_ALIGN),
                 .program = program,
                 .first = 0,
                 .last = t->time.nsteps > 0 ? t->time.nsteps - 1 : 0,
                 .var = -1,
                 .value = x->input,
                 .loc = n->loc};
    t->unit_buf[u] = p->bufs.n;
    vec_push(t->arena, &p->bufs, b);
  }
}

static int add_workspace(Plan *p, Assembly *t, int program, int step) {
  const Cluster *c = &t->c->at[t->time.trace[step]];
  if (c->workspace == 0) return -1;
  PlanBuf b = {.name = c->name,
               .cls = BC_WORKSPACE,
               .space = SPACE_DEVICE,
               .bytes = round_up(c->workspace, PLAN_ALIGN),
               .program = program,
               .first = step,
               .last = step,
               .var = -1,
               .value = -1,
               .loc = NO_LOC};
  vec_push(t->arena, &p->bufs, b);
  return p->bufs.n - 1;
}

/* ---- stages of host variables and saved values ---- */

static bool on_host(const Plan *p, int var) {
  return p->var_buf[var] >= 0 && p->bufs.at[p->var_buf[var]].space == SPACE_HOST;
}

static void find_items(const Plan *p, Assembly *t) {
  const Vars *vars = p->job->vars;
  bool *host = arena_array(t->arena, bool, vars->all.n + 1);
  for (int i = 0; i < vars->all.n; i++) host[i] = on_host(p, i);
  int64_t *bytes = arena_array(t->arena, int64_t, t->m->nunits + 1);
  for (int u = 0; u < t->m->nunits; u++) bytes[u] = round_up(t->m->unit[u].bytes, PLAN_ALIGN);
  t->items = stage_items(t->m, vars, host, t->saved, bytes, t->arena);
  t->time = saved_apart(&t->time, t->saved, t->m->nunits, t->arena);
}

/* Bytes alive at each step without stages: what room the copies have. */
static int64_t *live_bytes(const Plan *p, const Assembly *t, int first_buf) {
  int64_t *live = arena_array(t->arena, int64_t, t->time.nsteps + 2), now = 0;
  for (int i = first_buf; i < p->bufs.n; i++) {
    live[p->bufs.at[i].first] += p->bufs.at[i].bytes;
    live[p->bufs.at[i].last + 1] -= p->bufs.at[i].bytes;
  }
  for (int s = 0; s < t->time.nsteps; s++) {
    now += live[s];
    live[s] = now + round_up(t->c->at[t->time.trace[s]].workspace, PLAN_ALIGN);
  }
  return live;
}

static void plan_stages(const Plan *p, Assembly *t, int first_buf, int room) {
  HostUses uses = stage_uses(t->m, &t->items, t->arena);
  if (uses.first[t->c->n] == 0) return;
  int64_t *ns = arena_array(t->arena, int64_t, t->c->n + 1);
  for (int i = 0; i < t->c->n; i++) ns[i] = t->c->at[i].ns;
  StageProblem x = {.nsteps = t->time.nsteps,
                    .trace = t->time.trace,
                    .ns = ns,
                    .uses = &uses,
                    .items = &t->items,
                    .target = p->target,
                    .live = live_bytes(p, t, first_buf),
                    .room = room};
  t->stages = stage_plan(&x, t->arena);
  t->window = t->stages.head;
}

/* Places on the host, side by side above the variables: at the end of forward all are taken. */
static void add_saved_bufs(Plan *p, Assembly *t, int program, PlanProgram *out) {
  t->first_saved = p->bufs.n;
  for (int k = 0; k < t->saved->n; k++) {
    const Unit *u = &t->m->unit[t->saved->unit[k]];
    int item = t->items.nvars + k, first = t->stages.head[item], last = first;
    while (t->stages.at[last].next >= 0) last = t->stages.at[last].next;
    PlanBuf b = {.name = t->c->at[u->maker].name,
                 .cls = BC_SAVED,
                 .space = SPACE_HOST,
                 .bytes = t->items.bytes[item],
                 .offset = p->host_persistent_bytes + out->saved_bytes,
                 .program = program,
                 .first = t->stages.at[first].last,
                 .last = last == first ? t->stages.at[last].last : t->stages.at[last].first,
                 .var = -1,
                 .value = u->value,
                 .loc = u->value >= 0 ? node_of(t->c->g, u->value)->loc : NO_LOC};
    out->saved_bytes += b.bytes;
    vec_push(t->arena, &p->bufs, b);
  }
}

/* The place on the host of an item. */
static int host_buf(const Plan *p, const Assembly *t, int item) {
  return item < t->items.nvars ? p->var_buf[item] : t->first_saved + item - t->items.nvars;
}

static void add_stage_bufs(Plan *p, Assembly *t, int program) {
  t->first_stage = p->bufs.n;
  for (int k = 0; k < t->stages.n; k++) {
    const StageWindow *w = &t->stages.at[k];
    const PlanBuf *of = &p->bufs.at[host_buf(p, t, w->item)];
    PlanBuf b = {.name = of->name,
                 .cls = BC_STAGES,
                 .space = SPACE_DEVICE,
                 .bytes = w->bytes,
                 .program = program,
                 .first = w->in ? w->in_begin : w->first,
                 .last = w->out && w->out_end - 1 > w->last ? w->out_end - 1 : w->last,
                 .var = of->var,
                 .value = of->value,
                 .loc = of->loc};
    vec_push(t->arena, &p->bufs, b);
  }
}

static int by_begin(const void *a, const void *b) {
  const PlanCopy *x = a, *y = b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  if (x->to_host != y->to_host) return x->to_host ? -1 : 1;
  return (x->stage > y->stage) - (x->stage < y->stage); /* in order of windows */
}

static void add_copies(const Plan *p, const Assembly *t, PlanProgram *out) {
  out->copies = arena_array(t->arena, PlanCopy, 2 * t->stages.n + 1);
  for (int k = 0; k < t->stages.n; k++) {
    const StageWindow *w = &t->stages.at[k];
    PlanCopy c = {.host = host_buf(p, t, w->item), .stage = t->first_stage + k};
    if (w->in) {
      c.begin = w->in_begin;
      c.end = w->first;
      c.from_ns = w->in_from;
      c.to_ns = w->in_to;
      out->copies[out->ncopies++] = c;
    }
    if (w->out) {
      c.to_host = true;
      c.begin = w->last + 1;
      c.end = w->out_end;
      c.from_ns = w->out_from;
      c.to_ns = w->out_to;
      out->copies[out->ncopies++] = c;
    }
  }
  qsort(out->copies, (size_t)out->ncopies, sizeof *out->copies, by_begin);
}

/* Where an item lies in step s: in the stage of its window. Steps are asked for in order. */
static int stage_of(Assembly *t, int item, int s) {
  int *w = &t->window[item];
  while (*w >= 0 && t->stages.at[*w].last < s) *w = t->stages.at[*w].next;
  ensure(*w >= 0 && t->stages.at[*w].first <= s, "assemble: item %d has no stage at step %d", item, s);
  return t->first_stage + *w;
}

static Storage storage_at(Assembly *t, const ValuePlace *at, int inst, int step) {
  Storage s = {.offset = at->offset};
  int item = t->items.of_unit[at->unit];
  if (item >= 0)
    s.buf = stage_of(t, item, step);
  else
    s.buf = inst >= 0 ? t->inst_buf[inst] : t->unit_buf[at->unit];
  memcpy(s.stride, at->stride, sizeof s.stride);
  return s;
}

static void fill_steps(Plan *p, Assembly *t, int program, PlanProgram *out) {
  const Timeline *time = &t->time;
  out->nsteps = time->nsteps;
  out->steps = arena_array(t->arena, PlanStep, time->nsteps + 1);
  for (int s = 0; s < time->nsteps; s++) {
    const Cluster *c = &t->c->at[time->trace[s]];
    PlanStep *x = &out->steps[s];
    x->cluster = time->trace[s];
    x->recomputed = time->again[s];
    x->in = arena_array(t->arena, Storage, c->nin + 1);
    x->out = arena_array(t->arena, Storage, c->nout + 1);
    for (int k = 0; k < c->nin; k++)
      x->in[k] = storage_at(t, &t->m->place[c->in[k]], time->in[s][k], s);
    for (int k = 0; k < c->nout; k++)
      x->out[k] = storage_at(t, &t->m->out[x->cluster][k], time->out[s][k], s);
    x->workspace = add_workspace(p, t, program, s);
    out->ns += c->ns;
  }
  if (t->stages.n == 0) return;
  out->ns = t->stages.ns;
  out->in_ns = t->stages.in_ns;
  out->out_ns = t->stages.out_ns;
  out->exposed_ns = t->stages.exposed_ns;
  out->begin_ns = t->stages.begin_ns;
}

static void fill_ends(Assembly *t, PlanProgram *out) {
  const Graph *g = t->c->g;
  out->inputs = arena_alloc(t->arena, sizeof *out->inputs * (size_t)(t->m->nunits + 1));
  for (int u = 0; u < t->m->nunits; u++) {
    ValueId v = t->m->unit[u].input;
    if (v < 0) continue;
    out->inputs[out->ninputs].name = node_of(g, v)->sym;
    out->inputs[out->ninputs].value = v;
    out->inputs[out->ninputs++].at = storage_at(t, &t->m->place[v], -1, 0);
  }
  out->nresults = g->results.n;
  out->results = arena_alloc(t->arena, sizeof *out->results * (size_t)(g->results.n + 1));
  for (int i = 0; i < g->results.n; i++) {
    const ValuePlace *at = &t->m->place[g->results.at[i]];
    out->results[i].name = g->result_names.at[i];
    out->results[i].value = g->results.at[i];
    out->results[i].at =
        storage_at(t, at, is_made(&t->m->unit[at->unit]) ? t->time.end[at->unit] : -1, out->nsteps);
  }
}

/* Heights that were found for some buffers of a program; offsets are parallel to them. */
typedef struct {
  int n;
  int *id; /* in Plan.bufs */
  int64_t *offset, height;
} Placed;

enum { ALL_BUFS, STAGES_ONLY, OTHERS_ONLY };

static Placed place_some(const Plan *p, Arena *a, int first_buf, int which, double effort) {
  int most = p->bufs.n - first_buf;
  Placed x = {.id = arena_array(a, int, most + 1), .offset = arena_array(a, int64_t, most + 1)};
  PlaceBuf *b = arena_array(a, PlaceBuf, most + 1);
  for (int i = first_buf; i < p->bufs.n; i++) {
    const PlanBuf *buf = &p->bufs.at[i];
    if (buf->space == SPACE_HOST) continue;
    if (which != ALL_BUFS && (buf->cls == BC_STAGES) != (which == STAGES_ONLY)) continue;
    x.id[x.n] = i;
    b[x.n++] = (PlaceBuf){.lower = buf->first, .upper = buf->last + 1, .size = buf->bytes};
  }
  PlaceOptions opt = {.align = PLAN_ALIGN, .effort = effort};
  x.height = x.n > 0 ? place_buffers(x.n, b, x.offset, &opt, NULL) : 0;
  return x;
}

static void settle(Plan *p, const Placed *x, int64_t above) {
  for (int i = 0; i < x->n; i++) p->bufs.at[x->id[i]].offset = p->persistent_bytes + above + x->offset[i];
}

/* Takes over the places of the program before this one, whose buffers end at first_buf; false when they do not live as
 * these do. */
static bool placed_before(Plan *p, int first_buf, PlanProgram *out) {
  int n = p->bufs.n - first_buf, before = 0;
  if (p->programs.n == 0) return false;
  while (before < first_buf && p->bufs.at[first_buf - before - 1].program == p->programs.n - 1) before++;
  if (n == 0 || before != n) return false;
  for (int i = first_buf; i < p->bufs.n; i++) {
    const PlanBuf *x = &p->bufs.at[i], *y = &p->bufs.at[i - n];
    if (x->first != y->first || x->last != y->last || x->bytes != y->bytes) return false;
  }
  const PlanProgram *like = &vec_last(&p->programs);
  for (int i = first_buf; i < p->bufs.n; i++) p->bufs.at[i].offset = p->bufs.at[i - n].offset;
  out->peak_step = like->peak_step;
  out->transient_bytes = like->transient_bytes;
  out->liveness_bytes = like->liveness_bytes;
  return true;
}

/* All together; or stages, which come and go in a beat of their own, above the others, where that is lower. */
static void place_program(Plan *p, Arena *a, int first_buf, PlanProgram *out) {
  const double effort = 0.25, effort_mixed = 0.02;
  int64_t *change = arena_array(a, int64_t, out->nsteps + 2), live = 0;
  for (int i = first_buf; i < p->bufs.n; i++) {
    const PlanBuf *x = &p->bufs.at[i];
    if (x->space == SPACE_HOST) continue;
    change[x->first] += x->bytes;
    change[x->last + 1] -= x->bytes;
  }
  for (int s = 0; s <= out->nsteps; s++) {
    live += change[s];
    if (live <= out->liveness_bytes) continue;
    out->liveness_bytes = live;
    out->peak_step = s;
  }
  Placed all = place_some(p, a, first_buf, ALL_BUFS, out->ncopies ? effort_mixed : effort);
  out->transient_bytes = all.height;
  settle(p, &all, 0);
  if (!out->ncopies || all.height == out->liveness_bytes) return;
  Placed others = place_some(p, a, first_buf, OTHERS_ONLY, effort);
  Placed stages = place_some(p, a, first_buf, STAGES_ONLY, effort_mixed);
  if (others.height + stages.height >= all.height) return;
  out->transient_bytes = others.height + stages.height;
  settle(p, &others, 0);
  settle(p, &stages, others.height);
}

int assemble_program(Plan *p, Arena *a, const char *name, const StorageMap *m, int ntrace,
                     const int *trace, int room) {
  return assemble_saving(p, a, name, m, ntrace, trace, room, &(SavedSet){0});
}

int assemble_saving(Plan *p, Arena *a, const char *name, const StorageMap *m, int ntrace, const int *trace, int room,
                    const SavedSet *saved) {
  int program = p->programs.n, first_buf = p->bufs.n;
  Assembly t = {
      .m = m, .c = m->clusters, .arena = a, .saved = saved, .time = timeline_run(m, a, ntrace, trace, true)};
  PlanProgram out = {.name = name, .clusters = *m->clusters};
  find_items(p, &t);
  add_input_bufs(p, &t, program);
  add_instance_bufs(p, &t, program);
  plan_stages(p, &t, first_buf, room);
  add_saved_bufs(p, &t, program, &out);
  add_stage_bufs(p, &t, program);
  add_copies(p, &t, &out);
  fill_steps(p, &t, program, &out);
  fill_ends(&t, &out);
  if (!placed_before(p, first_buf, &out)) place_program(p, a, first_buf, &out);
  vec_push(a, &p->programs, out);
  return program;
}

/* ---- totals ---- */

static uint64_t mix(uint64_t h, int64_t x) {
  return hash_bytes(&x, sizeof x, h);
}

static uint64_t hash_storage(uint64_t h, const Storage *s, int n) {
  for (int k = 0; k < n; k++) {
    h = mix(mix(h, s[k].buf), s[k].offset);
    h = hash_bytes(s[k].stride, sizeof s[k].stride, h);
  }
  return h;
}

static uint64_t hash_program(uint64_t h, const PlanProgram *x) {
  const Graph *g = x->clusters.g;
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *n = node_at(g, i);
    h = mix(mix(h, n->op), n->nin);
    if (n->nin) h = hash_bytes(n->in, sizeof *n->in * (size_t)n->nin, h);
    if (n->nints) h = hash_bytes(n->ints, sizeof *n->ints * (size_t)n->nints, h);
    h = hash_bytes(n->num, sizeof n->num, h);
  }
  for (int s = 0; s < x->nsteps; s++) {
    const PlanStep *st = &x->steps[s];
    const Cluster *c = &x->clusters.at[st->cluster];
    h = mix(mix(h, st->cluster), c->kind);
    h = hash_bytes(c->nodes, sizeof *c->nodes * (size_t)c->nnodes, h);
    h = hash_storage(hash_storage(h, st->in, c->nin), st->out, c->nout);
  }
  for (int i = 0; i < x->ncopies; i++) {
    const PlanCopy *c = &x->copies[i];
    h = mix(mix(mix(h, c->stage), c->to_host), (int64_t)c->begin << 32 | c->end);
  }
  return h;
}

static uint64_t plan_id(const Plan *p) {
  uint64_t h = hash_text(p->target->name) ^ hash_text(p->job->model) ^ precision_rounding(&p->job->precision);
  for (int i = 0; i < p->job->vars->all.n; i++) {
    const Var *v = &p->job->vars->all.at[i];
    h = mix(mix(h, (int64_t)hash_text(v->path)), v->dtype);
    h = hash_bytes(v->shape.dim, sizeof v->shape.dim[0] * (size_t)v->shape.rank, h);
  }
  for (int i = 0; i < p->bufs.n; i++) {
    const PlanBuf *b = &p->bufs.at[i];
    h = mix(mix(mix(h, b->bytes), b->offset), b->program);
    h = mix(mix(h, b->first), b->last);
    if (b->space == SPACE_HOST) h = mix(h, SPACE_HOST);
  }
  for (int i = 0; i < p->programs.n; i++) h = hash_program(h, &p->programs.at[i]);
  for (int i = 0; i < p->phases.n; i++)
    h = mix(mix(h, p->phases.at[i].micro_batch), p->phases.at[i].accumulation);
  return h;
}

static int64_t outside_arena(const Plan *p) {
  return p->overhead_bytes + p->reserve_bytes;
}

void assemble_finish(Plan *p, Arena *a) {
  (void)a;
  int64_t highest = 0;
  for (int i = 0; i < p->programs.n; i++)
    if (p->programs.at[i].transient_bytes > highest) highest = p->programs.at[i].transient_bytes;
  int saver = plan_saver(p);
  p->host_bytes = p->host_persistent_bytes + (saver >= 0 ? p->programs.at[saver].saved_bytes : 0);
  p->arena_bytes = round_up(p->persistent_bytes + highest, p->target->granule_bytes);
  p->peak_bytes = p->arena_bytes + outside_arena(p);
  for (int i = 0; i < p->phases.n; i++) {
    PlanPhase *ph = &p->phases.at[i];
    highest = 0;
    for (int k = 0; k < COUNT_OF(ph->programs); k++)
      if (ph->programs[k] >= 0 && p->programs.at[ph->programs[k]].transient_bytes > highest)
        highest = p->programs.at[ph->programs[k]].transient_bytes;
    ph->peak_bytes =
        round_up(p->persistent_bytes + highest, p->target->granule_bytes) + outside_arena(p);
  }
  p->id = plan_id(p);
}

int plan_saver(const Plan *p) {
  int saver = -1;
  int64_t most = 0;
  for (int i = 0; i < p->programs.n; i++) {
    if (p->programs.at[i].saved_bytes <= most) continue;
    most = p->programs.at[i].saved_bytes;
    saver = i;
  }
  return saver;
}

Ledger plan_ledger(const Plan *p) {
  Ledger l = {.program = -1};
  int64_t highest = -1, sum = 0;
  int saver = plan_saver(p);
  for (int i = 0; i < p->programs.n; i++) {
    if (p->programs.at[i].transient_bytes <= highest) continue;
    highest = p->programs.at[i].transient_bytes;
    l.program = i;
  }
  for (int i = 0; i < p->bufs.n; i++) {
    const PlanBuf *b = &p->bufs.at[i];
    bool live = b->program < 0;
    if (b->space == SPACE_HOST) {
      if (live || b->program == saver) l.host[b->cls] += b->bytes;
      continue;
    }
    if (b->program == l.program && l.program >= 0) {
      int peak = p->programs.at[l.program].peak_step;
      live = b->first <= peak && peak <= b->last;
    }
    if (live) l.bytes[b->cls] += b->bytes;
  }
  for (int c = 0; c < BC_COUNT; c++) sum += l.bytes[c];
  l.gaps = p->arena_bytes - sum;
  return l;
}
