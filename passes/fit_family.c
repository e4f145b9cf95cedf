/* fit_family.c - programs built at two micro-batches, priced at any, and the traces that rebuild
 * values (see fit.h). */
#include "fit.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "../ir/parallel.h"
#include "pass_table.h"
#include "rewrite.h"

static Built build_of(const FitContext *x, Clusters clusters, Arena *a) {
  Built b = {.clusters = clusters};
  cost_clusters(&b.clusters, x->target, &x->job->precision);
  /* The map keeps the address of the clusters: they must not move. */
  Clusters *kept = arena_copy(a, &b.clusters, sizeof b.clusters);
  b.map = storage_map(kept, a);
  b.cost = arena_array(a, KernelCost, kept->n + 1);
  for (int i = 0; i < kept->n; i++) b.cost[i] = cost_kernel(kept, i, &x->job->precision);
  for (int u = 0; u < b.map.nunits; u++)
    if (b.map.unit[u].input >= 0) b.inputs_bytes += round_up(b.map.unit[u].bytes, PLAN_ALIGN);
  return b;
}

/* Leaves g as it is. */
static Built build(const FitContext *x, const Graph *g, bool apart, Arena *a) {
  Graph *own = arena_copy(a, g, sizeof *g); /* fusion replaces it */
  return build_of(x, apart ? fuse_graph_apart(own, a) : fuse_graph(own, a), a);
}

static Clusters clusters_copied(const Clusters *from, Arena *a) {
  Clusters c = {.g = graph_moved(from->g, a), .n = from->n};
  c.at = arena_copy(a, from->at, sizeof *c.at * (size_t)c.n);
  for (int i = 0; i < c.n; i++) {
    Cluster *k = &c.at[i];
    k->nodes = arena_copy(a, k->nodes, sizeof *k->nodes * (size_t)k->nnodes);
    if (k->node_axes) k->node_axes = arena_copy(a, k->node_axes, sizeof *k->node_axes * (size_t)k->nnodes);
    k->in = arena_copy(a, k->in, sizeof *k->in * (size_t)k->nin);
    k->out = arena_copy(a, k->out, sizeof *k->out * (size_t)k->nout);
    k->out_var = arena_copy(a, k->out_var, sizeof *k->out_var * (size_t)k->nout);
    if (k->name) k->name = arena_printf(a, "%s", k->name);
  }
  return c;
}

typedef struct {
  const FitContext *x;
  FitBuild *list;
  Arena **arena; /* per build */
} Builders;

static Built build_asked(const FitContext *x, const FitBuild *b, Arena *a) {
  Built built = b->like ? build_of(x, clusters_copied(&b->like->clusters, a), a) : build(x, b->graph, b->apart, a);
  if (!b->micro) return built;
  Built *first = arena_new_of(a, Built);
  *first = build_of(x, first_clusters(&built.clusters, a), a);
  built.first = first;
  return built;
}

static void build_one(void *arg, int i) {
  const Builders *w = arg;
  FitBuild *b = &w->list[i];
  if (!b->graph && !b->like) return;
  Arena *a = w->arena[i] = arena_new();
  Built *built = arena_new_of(a, Built);
  *built = build_asked(w->x, b, a);
  b->built = built;
}

void fit_build_all(const FitContext *x, int n, FitBuild *list, Arena *a) {
  Builders w = {.x = x, .list = list, .arena = arena_array(a, Arena *, n + 1)};
  if (pass_dumps()) { /* in order */
    for (int i = 0; i < n; i++) build_one(&w, i);
  } else {
    in_parallel(n, build_one, &w);
  }
  for (int i = 0; i < n; i++)
    if (w.arena[i]) arena_adopt(a, w.arena[i]);
}

bool fit_same_structure(const Built *a, const Built *b) {
  if (a->clusters.n != b->clusters.n || a->map.nunits != b->map.nunits) return false;
  for (int u = 0; u < a->map.nunits; u++) {
    const Unit *p = &a->map.unit[u], *q = &b->map.unit[u];
    if (p->var != q->var || (p->input >= 0) != (q->input >= 0) || p->maker != q->maker ||
        p->last != q->last || p->result != q->result)
      return false;
  }
  for (int i = 0; i < a->clusters.n; i++) {
    const Cluster *p = &a->clusters.at[i], *q = &b->clusters.at[i];
    if (p->kind != q->kind || p->nin != q->nin || p->nout != q->nout || p->phase != q->phase)
      return false;
    for (int k = 0; k < p->nin; k++)
      if (a->map.place[p->in[k]].unit != b->map.place[q->in[k]].unit) return false;
    for (int k = 0; k < p->nout; k++)
      if (a->map.out[i][k].unit != b->map.out[i][k].unit || a->map.over[i][k] != b->map.over[i][k])
        return false;
  }
  return true;
}

/* ---- prices ---- */

Priced fit_price(const FitContext *x, const Built *const b[2], int64_t at_a, int64_t at_b,
                 int64_t at) {
  const StorageMap *m = &b[0]->map;
  int n = b[0]->clusters.n;
  Priced p = {.unit_bytes = arena_array(x->arena, int64_t, m->nunits + 1),
              .workspace = arena_array(x->arena, int64_t, n + 1),
              .ns = arena_array(x->arena, int64_t, n + 1)};
  for (int u = 0; u < m->nunits; u++) {
    if (m->unit[u].var >= 0) continue;
    p.unit_bytes[u] = round_up(
        linear_between(m->unit[u].bytes, at_a, b[1]->map.unit[u].bytes, at_b, at), PLAN_ALIGN);
    if (m->unit[u].input >= 0) p.inputs_bytes += p.unit_bytes[u];
  }
  bool first = b[0]->first && b[1]->first;
  if (first) p.first_ns = arena_array(x->arena, int64_t, n + 1);
  for (int i = 0; i < n; i++) {
    KernelCost k = cost_between(&b[0]->cost[i], at_a, &b[1]->cost[i], at_b, at);
    p.ns[i] = cost_ns(&k, x->target);
    p.workspace[i] = round_up(cost_workspace(&k, x->target), PLAN_ALIGN);
    if (!first) continue;
    bool same = b[0]->clusters.at[i].nin == b[0]->first->clusters.at[i].nin;
    if (!same) k = cost_between(&b[0]->first->cost[i], at_a, &b[1]->first->cost[i], at_b, at);
    p.first_ns[i] = same ? p.ns[i] : cost_ns(&k, x->target);
  }
  return p;
}

int64_t fit_height(const Priced *p, const Trace *t, int64_t *scratch) {
  return p->inputs_bytes + timeline_peak(&t->time, p->unit_bytes, p->workspace, scratch, NULL);
}

/* ---- families ---- */

static Trace as_it_stands(const Built *b, Arena *a) {
  Trace t = {.n = b->clusters.n};
  int *order = arena_array(a, int, t.n + 1);
  for (int i = 0; i < t.n; i++) order[i] = i;
  t.order = order;
  t.time = timeline_run(&b->map, a, t.n, order, false);
  return t;
}

/* Graphs of one phase and cut, each made once, and their clusters, joined and apart. */
typedef struct {
  int64_t at;
  const Graph *graph;
  const Built *built[2];
} KnownGraph;

enum { MOST_KNOWN = 4, PAIR = 2 };

struct FitGraphs {
  const FitContext *x;
  int phase;
  Cut cut;
  const int64_t *batch;
  int n;
  KnownGraph known[MOST_KNOWN];
  int nknown;
};

static KnownGraph *known_at(FitGraphs *b, int64_t at) {
  for (int i = 0; i < b->nknown; i++)
    if (b->known[i].at == at) return &b->known[i];
  return NULL;
}

/* False when the graph cannot be planned. */
static bool make_graph(FitGraphs *b, int64_t at) {
  if (known_at(b, at)) return true;
  GraphChoice c = cut_choice(b->phase, at, b->cut);
  c.micro_only = true;
  TrainGraphs g = train_graphs(b->x->job, b->x->arena, &c);
  if (!g.micro) return false;
  if (b->nknown == MOST_KNOWN) b->known[--b->nknown - 1] = b->known[MOST_KNOWN - 1]; /* the last two may be a pair */
  b->known[b->nknown++] = (KnownGraph){.at = at, .graph = g.micro};
  return true;
}

/* Programs at the n micro-batches, at most a pair, up to the first that cannot be planned. Returns their number. */
static int build_at(FitGraphs *b, int n, const int64_t *at, bool apart, const Built **out) {
  FitBuild list[PAIR] = {{0}};
  for (int i = 0; i < n; i++)
    if (!make_graph(b, at[i])) n = i;
  for (int i = 0; i < n; i++) {
    const KnownGraph *k = known_at(b, at[i]);
    if (!k->built[apart]) list[i] = (FitBuild){.graph = k->graph, .micro = true, .apart = apart};
  }
  fit_build_all(b->x, n, list, b->x->arena);
  for (int i = 0; i < n; i++) {
    KnownGraph *k = known_at(b, at[i]);
    if (!k->built[apart]) k->built[apart] = list[i].built;
    out[i] = k->built[apart];
  }
  return n;
}

/* Micro-batch 1 may fold axes away that others keep, so the pair (1, 2) is tried first, then 1
 * alone with (2, 4). */
static bool add_families(FitGraphs *b, bool apart, PhasePool *out) {
  const int64_t *batch = b->batch;
  for (int i = 0; i < b->n; i++) {
    Family f = {.phase = b->phase,
                .cut = b->cut,
                .apart = apart,
                .at_a = batch[i],
                .at_b = batch[i],
                .least = batch[i],
                .most = batch[i]};
    f.staged = arena_new_of(b->x->arena, StagedCache);
    f.staged->arena = b->x->arena;
    int n = build_at(b, i + 1 < b->n ? PAIR : 1, (const int64_t[]){batch[i], 2 * batch[i]}, apart, f.micro);
    if (!n) return false;
    if (n == PAIR && fit_same_structure(f.micro[0], f.micro[1])) {
      f.at_b = 2 * batch[i];
      f.most = batch[b->n - 1];
    } else {
      f.micro[1] = f.micro[0];
    }
    vec_push(b->x->arena, &f.traces, as_it_stands(f.micro[0], b->x->arena));
    vec_push(b->x->arena, &out->families, f);
    if (f.most == batch[b->n - 1]) break;
  }
  return true;
}

FitGraphs *fit_graphs(const FitContext *x, int phase, Cut cut, const int64_t *all, int nall,
                      const Graph *first) {
  FitGraphs *b = arena_new_of(x->arena, FitGraphs);
  *b = (FitGraphs){.x = x, .phase = phase, .cut = cut};
  int64_t *batch = arena_array(x->arena, int64_t, nall + 1);
  for (int i = 0; i < nall; i++)
    if (all[i] % cut.group == 0) batch[b->n++] = all[i];
  b->batch = batch;
  if (first) b->known[b->nknown++] = (KnownGraph){.at = batch[0], .graph = first};
  return b;
}

bool fit_add_fused(FitGraphs *b, bool apart, PhasePool *out) {
  bool rebuilds = b->x->recompute != RC_NONE;
  bool wanted = apart ? rebuilds : b->cut.group == 1 || !rebuilds; /* where there are groups memory is short */
  return !wanted || add_families(b, apart, out);
}

bool fit_families(const FitContext *x, Cut cut, const int64_t *all, int nall, PhasePool *out) {
  FitGraphs *b = fit_graphs(x, out->phase, cut, all, nall, NULL);
  return fit_add_fused(b, false, out) && fit_add_fused(b, true, out);
}

/* ---- recompute ---- */

typedef struct {
  VEC(int) ids;
} Ids;

static void add_id(Arena *a, Ids *list, int id) {
  for (int i = 0; i < list->ids.n; i++)
    if (list->ids.at[i] == id) return;
  vec_push(a, &list->ids, id);
}

/* Layer numbers for the solver: what stands before the first layer belongs to it, what stands
 * between the last layer and its gradient is a layer of its own. */
static void solver_layers(const Clusters *c, RecOp *op) {
  int last = -1, now = 0;
  for (int i = c->n - 1; i >= 0; i--) {
    if (c->at[i].layer > last) last = c->at[i].layer;
    if (c->at[i].layer >= 0) now = c->at[i].layer; /* ends as the first one's */
  }
  bool begun = false;
  for (int i = 0; i < c->n; i++) {
    if (c->at[i].layer >= 0) {
      now = c->at[i].layer;
      begun = true;
    } else if (c->at[i].phase == PH_FORWARD && begun && now == last) {
      now = last + 1;
    }
    op[i].layer = now;
  }
}

/* Can run again: its inputs do not change under way and it changes nothing but its own outputs. */
static bool can_redo(const StorageMap *m, int cluster) {
  const Cluster *c = &m->clusters->at[cluster];
  if (c->phase != PH_FORWARD) return false;
  for (int k = 0; k < c->nout; k++)
    if (m->unit[m->out[cluster][k].unit].var >= 0 || m->unit[m->out[cluster][k].unit].nmakers > 1)
      return false;
  for (int k = 0; k < c->nin; k++) {
    int var = m->unit[m->place[c->in[k]].unit].var;
    if (var >= 0 && m->overwritten[var]) return false;
  }
  return true;
}

static void fill_op(const FitContext *x, const StorageMap *m, int i, const int *value_of,
                    RecOp *op) {
  const Cluster *c = &m->clusters->at[i];
  Ids in = {0}, out = {0};
  op->alias = -1;
  for (int k = 0; k < c->nout; k++) {
    int unit = m->out[i][k].unit, over = m->over[i][k];
    if (!is_made(&m->unit[unit])) continue;
    if (m->unit[unit].maker != i) {
      add_id(x->arena, &in, value_of[unit]); /* a later part of a concat */
      continue;
    }
    add_id(x->arena, &out, value_of[unit]);
    if (over < 0 || op->alias >= 0 || m->unit[m->place[c->in[over]].unit].last != i) continue;
    op->alias = value_of[m->place[c->in[over]].unit];
    int first = out.ids.at[0];
    out.ids.at[0] = value_of[unit];
    for (int j = 1; j < out.ids.n; j++)
      if (out.ids.at[j] == value_of[unit]) out.ids.at[j] = first;
  }
  for (int k = 0; k < c->nin; k++) {
    int unit = m->place[c->in[k]].unit;
    if (is_made(&m->unit[unit])) add_id(x->arena, &in, value_of[unit]);
  }
  op->nin = in.ids.n;
  op->in = in.ids.at;
  op->nout = out.ids.n;
  op->out = out.ids.at;
  op->bwd = c->phase != PH_FORWARD;
  op->redo = can_redo(m, i);
  op->name = c->name;
}

static RecProblem problem_of(const FitContext *x, const Built *b, const Priced *p) {
  const StorageMap *m = &b->map;
  Arena *a = x->arena;
  int *value_of = arena_array(a, int, m->nunits + 1), nval = 0;
  int64_t *bytes = arena_array(a, int64_t, m->nunits + 1);
  bool *keep = arena_array(a, bool, m->nunits + 1);
  for (int u = 0; u < m->nunits; u++) {
    value_of[u] = -1;
    if (!is_made(&m->unit[u])) continue;
    bytes[nval] = p->unit_bytes[u];
    keep[nval] = m->unit[u].result;
    value_of[u] = nval++;
  }
  RecOp *op = arena_array(a, RecOp, b->clusters.n + 1);
  for (int i = 0; i < b->clusters.n; i++) {
    fill_op(x, m, i, value_of, &op[i]);
    op[i].ns = p->ns[i];
    op[i].ws = p->workspace[i];
  }
  solver_layers(&b->clusters, op);
  return (RecProblem){.nop = b->clusters.n, .op = op, .nval = nval, .bytes = bytes, .keep = keep};
}

/* Index of the trace in the family, which takes it when it is new. */
int fit_add_trace(const FitContext *x, Family *f, int n, const int *order) {
  for (int i = 0; i < f->traces.n; i++)
    if (f->traces.at[i].n == n && !memcmp(f->traces.at[i].order, order, sizeof *order * (size_t)n))
      return i;
  Trace t = {.n = n, .order = order};
  t.time = timeline_run(&f->micro[0]->map, x->arena, n, order, false);
  vec_push(x->arena, &f->traces, t);
  return f->traces.n - 1;
}

/* Of one front a trace is kept when it saves this part of the span, or when the next would take
 * this much more time than the last that was kept. */
enum { MOST_TRACES = 64 };
#define STEEP 1.02

/* One call of the solver. What it shares with other threads is not written. */
typedef struct FitSolve {
  RecProblem problem;
  RecOptions options;
  bool layers, all; /* there are layers; more than their full rebuilding is wanted */
  Arena *arena;     /* of what the thread finds */
  RecPlan full;
  VEC(RecPlan *) kept; /* of the front, with traces */
  pthread_t thread;
  bool threaded;
} FitSolve;

static void keep_of_front(FitSolve *s, const RecFront *front) {
  int64_t span = front->at[0].peak - front->at[front->n - 1].peak, last = front->at[0].peak;
  int64_t last_ns = front->at[0].ns;
  for (int i = 1; i < front->n; i++) {
    RecPlan *plan = &front->at[i];
    bool end = i == front->n - 1;
    bool steep = !end && (double)front->at[i + 1].ns > STEEP * (double)last_ns;
    if (!end && !steep && last - plan->peak < span / MOST_TRACES) continue;
    last = plan->peak;
    last_ns = plan->ns;
    vec_push(s->arena, &s->kept, plan);
  }
  recompute_traces(s->arena, &s->problem, s->kept.n, s->kept.at);
}

static void *solve(void *arg) {
  FitSolve *s = arg;
  s->layers = recompute_full(s->arena, &s->problem, &s->full);
  if (s->all || !s->layers) {
    RecFront front = recompute_front(s->arena, &s->problem, &s->options);
    keep_of_front(s, &front);
  }
  return NULL;
}

void fit_solve_begin(const FitContext *x, Family *f) {
  if (x->recompute == RC_NONE) return;
  Priced p = fit_price(x, f->micro, f->at_a, f->at_b, f->least);
  FitSolve *s = arena_new_of(x->arena, FitSolve);
  *s = (FitSolve){.problem = problem_of(x, f->micro[0], &p),
                  .options = {.no_floor = !f->apart, .segments = x->segments},
                  .all = x->recompute != RC_FULL,
                  .arena = arena_new()};
  s->threaded = pthread_create(&s->thread, NULL, solve, s) == 0;
  if (!s->threaded) solve(s);
  f->solve = s;
}

static int add_solved(const FitContext *x, Family *f, const RecPlan *plan) {
  size_t size = sizeof *plan->trace * (size_t)plan->ntrace;
  return fit_add_trace(x, f, plan->ntrace, arena_copy(x->arena, plan->trace, size));
}

void fit_solve_end(const FitContext *x, Family *f) {
  FitSolve *s = f->solve;
  if (!s) return;
  if (s->threaded) pthread_join(s->thread, NULL);
  f->solve = NULL;
  if (s->layers) f->full = add_solved(x, f, &s->full);
  for (int i = 0; i < s->kept.n; i++) add_solved(x, f, s->kept.at[i]);
  if (!s->layers && !s->all) f->full = f->traces.n - 1; /* all that can be */
  arena_free(s->arena);
}
