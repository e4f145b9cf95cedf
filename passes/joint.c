/* joint.c - the graphs of a training phase: micro-batch (forward, backward, accumulation), update,
 * evaluation, sample.
 *
 * Input: the job's forward graphs in f32. Output: simplified graphs in the job's dtypes over one
 * table of variables, which is the same whatever the choice of micro-batch and chunks. */
#include <string.h>

#include "chunk.h"
#include "group.h"
#include "loss_scale.h"
#include "optimizer.h"
#include "pass_table.h"
#include "plan.h"
#include "precision.h"
#include "remat.h"
#include "rewrite.h"
#include "simplify.h"

/* ---- forward graphs ---- */

/* job_graph builds in f32: parameters have their storage dtype only outside of it. */
static Graph *forward_f32(const Job *job, Arena *a, JobFn fn, int phase, int64_t samples) {
  Vars *vars = job->vars;
  int n = vars->all.n;
  DType *stored = arena_array(a, DType, n + 1);
  for (int i = 0; i < n; i++) {
    stored[i] = vars->all.at[i].dtype;
    if (vars->all.at[i].role == VAR_PARAM) vars->all.at[i].dtype = DT_F32;
  }
  pass_begin();
  Graph *g = job_graph(job, a, fn, phase, samples);
  if (g) pass_done(PASS_FORWARD, g, a);
  for (int i = 0; i < n; i++) vars->all.at[i].dtype = stored[i];
  return g;
}

/* False, with E0490, when the graph holds an operation that has shapes only. */
static bool all_ready(const Job *job, const Graph *g) {
  bool told[OP_COUNT] = {false};
  bool ready = true;
  for (NodeId n = 0; n < g->nodes.n; n++) {
    const Node *x = node_at(g, n);
    if (op_kind(x->op) != NOT_YET) continue;
    ready = false;
    if (!told[x->op])
      diag_error(job->diags, E_NOT_YET, x->loc, "`%s` cannot be planned yet", op_name(x->op));
    told[x->op] = true;
  }
  return ready;
}

/* A forward graph in the dtypes of the job; NULL when it cannot be planned. */
static Graph *forward(const Job *job, Arena *a, JobFn fn, int phase, int64_t samples) {
  Graph *g = forward_f32(job, a, fn, phase, samples);
  if (!g || !all_ready(job, g)) return NULL;
  g = graph_precision(g, job, a);
  pass_done(PASS_PRECISION, g, a);
  return pass_done(PASS_SIMPLIFY, graph_simplify(g, a, true), a);
}

/* ---- accumulation ---- */

static int group_of(const GraphChoice *c) {
  return c->group > 1 ? c->group : 1;
}

typedef struct {
  Rewrite r;
  Uses uses;
  int *parts; /* per value: gradient parts that it is */
} Accumulate;

/* Old value v, which has `readers` readers when only the accumulation reads it, in f32: then
 * without the rounding that its own dtype would cost. */
static ValueId widened(Accumulate *x, ValueId v, int readers) {
  const Graph *from = x->r.from;
  Graph *to = x->r.to;
  const Node *n = node_of(from, v);
  if (val(from, v)->dtype == DT_F32) return x->r.map[v];
  bool only = x->uses.first[v + 1] - x->uses.first[v] == readers && x->parts[v] <= 1 && n->nin > 0;
  ValueId in[2] = {-1, -1};
  Proto p = proto_of(n, in);
  if (only && (n->op == OP_DOT || n->op == OP_SCATTER_ADD)) {
    int64_t *ints = arena_copy(x->r.arena, n->ints, sizeof *ints * (size_t)n->nints);
    ints[n->nints - 1] = DT_F32;
    p.ints = ints;
    for (int k = 0; k < 2; k++) in[k] = x->r.map[n->in[k]];
    return graph_add_proto(to, &p);
  }
  if (only && n->op == OP_SUM) {
    in[0] = g_cast(to, x->r.map[n->in[0]], DT_F32);
    return graph_add_proto(to, &p);
  }
  if (only && n->op == OP_CAST && val(from, n->in[0])->dtype == DT_F32) return x->r.map[n->in[0]];
  if (only && (n->op == OP_RESHAPE || n->op == OP_TRANSPOSE || n->op == OP_PAD)) {
    in[0] = widened(x, n->in[0], 1);
    return graph_add_proto(to, &p);
  }
  return g_cast(to, x->r.map[v], DT_F32);
}

/* x, f32, as a bf16 accumulator takes it: rounded at random, by bits that depend on the
 * micro-batch's samples (how many: of one member of a group) and not on when it runs. */
static ValueId round_into(Graph *g, int var, ValueId x, int64_t samples) {
  Vars *vars = g->vars;
  ValueId in[] = {g_var(g, var_scalar(vars, SC_SEED)), g_var(g, var_scalar(vars, SC_STEP)),
                  group_sample0(g, g->here.member, samples)};
  int64_t key = (int64_t)hash_text(vars->all.at[var].path);
  ValueId bits = g_random(g, DT_U32, val(g, x)->shape, key, RANDOM_MICRO, in);
  return g_binary(g, OP_STOCHASTIC, x, bits);
}

/* x, f32, as variable `var` takes it. */
static ValueId as_stored(Graph *g, int var, ValueId x, int64_t samples) {
  DType t = g->vars->all.at[var].dtype;
  return t == DT_BF16 ? round_into(g, var, x, samples) : g_cast(g, x, t);
}

static void add_to(Graph *g, int var, ValueId x, int64_t samples) {
  ValueId sum = g_binary(g, OP_ADD, g_cast(g, g_var(g, var), DT_F32), g_cast(g, x, DT_F32));
  g_assign(g, var, as_stored(g, var, sum, samples));
}

/* metric.NAME += the value, right after it. */
static void count_metric(Rewrite *r, ValueId old, int var) {
  Graph *g = r->to;
  graph_at(g, node_of(r->from, old));
  g->here.tag = intern("metric");
  g->here.tag_id = 0;
  add_to(g, var, r->map[old], 0);
}

/* The sum of squares of a gradient that has all its parts: see GraphChoice. */
static void take_squares(const Job *job, Graph *g, int param) {
  g->here.tag = intern("grad_norm");
  g->here.tag_id = 0;
  ValueId sum = gradient_squares(g, g_var(g, accum_of(job->vars, param)));
  g_assign(g, squares_of(job->vars, param), sum);
}

/* The loss does not depend on the parameter. The update reads what the micro-batches leave. */
static void no_gradient(const Job *job, Graph *g, int param) {
  int accum = accum_of(job->vars, param);
  const Var *v = &job->vars->all.at[accum];
  g->here.loc = v->loc;
  g->here.path = v->path;
  g->here.layer = v->layer;
  g->here.phase = PH_BACKWARD;
  g->here.tag = intern("no_gradient");
  g->here.tag_id = 0;
  g_assign(g, accum, g_const(g, v->dtype, v->shape, 0));
}

/* A gradient of one part needs no accumulator where the step is one micro-batch: it becomes a result. */
static void keep_gradient(Graph *g, int accum, ValueId x, int64_t samples) {
  graph_result(g, g->vars->all.at[accum].path, as_stored(g, accum, g_cast(g, x, DT_F32), samples));
}

/* Each part is added as soon as it stands: a gradient lives as short as it can. */
static Graph *accumulate(const Job *job, Graph *g, Arena *a, const Grads *parts,
                         const GraphChoice *c) {
  Accumulate x = {.r = rewrite_begin(g, a), .uses = graph_uses(g, a)};
  int64_t samples = c->micro_batch / group_of(c);
  x.parts = arena_array(a, int, g->values.n + 1);
  int *first = arena_array(a, int, g->nodes.n + 1), *next = arena_array(a, int, parts->n + 1);
  int nvars = job->vars->all.n;
  int *missing = arena_array(a, int, nvars + 1); /* parts of each gradient */
  bool *has = arena_array(a, bool, nvars + 1);
  bool *single = arena_array(a, bool, nvars + 1);
  for (NodeId n = 0; n < g->nodes.n; n++) first[n] = -1;
  for (int i = parts->n - 1; i >= 0; i--) {
    if (!trained_in(job, c->phase, parts->at[i].var)) continue;
    missing[parts->at[i].var]++;
    NodeId def = val(g, parts->at[i].grad)->def;
    x.parts[parts->at[i].grad]++;
    next[i] = first[def];
    first[def] = i;
  }
  for (int i = 0; i < nvars; i++) single[i] = missing[i] == 1;
  for (NodeId n = 0; n < g->nodes.n; n++) {
    rewrite_node(&x.r, n);
    for (int i = first[n]; i >= 0; i = next[i]) {
      graph_at(x.r.to, node_at(g, n));
      int param = parts->at[i].var;
      has[param] = true;
      ValueId part = widened(&x, parts->at[i].grad, 0);
      bool value = c->early_update && single[param];
      (value ? keep_gradient : add_to)(x.r.to, accum_of(job->vars, param), part, samples);
      if (--missing[param] == 0 && c->early_squares) take_squares(job, x.r.to, param);
    }
    for (int i = 0; i < g->results.n; i++)
      if (n == val(g, g->results.at[i])->def)
        count_metric(&x.r, g->results.at[i], metric_var(job->vars, "metric.loss"));
  }
  for (int i = 0; i < job->vars->all.n; i++)
    if (trained_in(job, c->phase, i) && !has[i]) no_gradient(job, x.r.to, i);
  return x.r.to;
}

static Graph *finish(Graph *g, const char *name) {
  g->results.n = g->result_names.n = 0;
  g->name = intern(name);
  return g;
}

/* The forward graph in the chunks that were chosen. */
static Graph *chunked(Graph *g, Arena *a, const GraphChoice *c) {
  return pass_done(PASS_CHUNK, graph_chunk_mlps(graph_chunk(g, a, c->chunks), a, c->mlp_chunks), a);
}

static Graph *micro_graph(const Job *job, Arena *a, const GraphChoice *c) {
  int group = group_of(c);
  int64_t samples = c->micro_batch / group;
  Graph *g = forward(job, a, FN_LOSS, c->phase, samples);
  if (!g) return NULL;
  int errors = job->diags->errors;
  g = chunked(g, a, c);
  Diags *diags = g->diags;
  g->diags = job->diags;
  Grads parts = graph_autodiff(g, loss_scaled(job, g, g->results.at[0]));
  g->diags = diags;
  if (job->diags->errors > errors) return NULL;
  pass_done(PASS_AUTODIFF, g, a);
  g = pass_done(PASS_GROUP, graph_group(g, a, group, samples, &parts), a);
  g = accumulate(job, g, a, &parts, c);
  g->name = intern("micro");
  pass_done(PASS_ACCUMULATE, g, a);
  g = pass_done(PASS_SIMPLIFY, graph_simplify(g, a, false), a);
  g = pass_done(PASS_REMAT, graph_remat(graph_part_tiles(g, a), a), a);
  if (!c->early_update) return g;
  return pass_done(PASS_OPTIMIZER, finish(early_update_graph(job, g, a, c->phase), "step"), a);
}

/* ---- evaluation and sampling ---- */

/* The nodes of `more` after those of g; returns its first result. */
static ValueId append(Graph *g, const Graph *more, Arena *a) {
  ValueId *map = arena_array(a, ValueId, more->values.n + 1);
  for (NodeId n = 0; n < more->nodes.n; n++) {
    const Node *x = node_at(more, n);
    ValueId *in = arena_array(a, ValueId, x->nin + 1);
    for (int k = 0; k < x->nin; k++) in[k] = map[x->in[k]];
    ValueId out = graph_clone_node(g, more, n, in);
    for (int k = 0; k < x->nout; k++) map[x->out + k] = out + k;
  }
  return map[more->results.at[0]];
}

static Graph *eval_graph(const Job *job, Arena *a, const GraphChoice *c) {
  int group = group_of(c);
  int64_t samples = c->micro_batch / group;
  Graph *g = forward(job, a, FN_EVAL_LOSS, c->phase, samples);
  if (!g) return NULL;
  g = chunked(g, a, c);
  if (job->eval.metric) {
    Graph *more = forward(job, a, FN_METRIC, c->phase, samples);
    if (!more) return NULL;
    ValueId m = g_cast(g, append(g, more, a), DT_F32);
    ValueId share = g_var(g, var_scalar(job->vars, SC_INV_ACCUM));
    graph_result(g, "metric", g_binary(g, OP_MUL, m, share));
  }
  g = pass_done(PASS_GROUP, graph_group(g, a, group, samples, NULL), a);
  for (int i = 0; i < g->results.n; i++) {
    ValueId v = g->results.at[i];
    bool metric = !strcmp(g->result_names.at[i], "metric");
    graph_at(g, node_of(g, v));
    g->here.tag = intern("metric");
    g->here.tag_id = 0;
    const char *name = metric ? intern_printf("metric.%s", job->eval.metric) : "metric.eval";
    add_to(g, metric_var(job->vars, name), v, 0);
  }
  return pass_done(PASS_SIMPLIFY, graph_simplify(finish(g, "eval"), a, false), a);
}

static Graph *sample_graph(const Job *job, Arena *a, const GraphChoice *c) {
  Graph *g = forward(job, a, FN_FORWARD, c->phase, 1);
  if (!g) return NULL;
  const Shape *s = &val(g, g->results.at[0])->shape;
  if (s->rank != 3 || s->dim[0] != 1 || !dtype_is_float(val(g, g->results.at[0])->dtype))
    return NULL;
  Shape row = {.rank = 1, .dim = {s->dim[2]}, .axis = {s->axis[2]}};
  g->result_names.at[0] = intern("logits");
  ValueId position = g_var(g, var_scalar(job->vars, SC_POSITION));
  g = graph_one_row(g, a, "logits", 1, position);
  graph_at(g, node_of(g, g->results.at[0]));
  g->results.at[0] = g_cast(g, g_reshape(g, g->results.at[0], row), DT_F32);
  g->name = intern("sample");
  return pass_done(PASS_SIMPLIFY, graph_simplify(g, a, false), a);
}

static Graph *update_graph(const Job *job, Arena *a, const GraphChoice *c) {
  pass_begin();
  Graph *g = optimizer_graph(job, a, c->phase, c->early_squares);
  pass_done(PASS_OPTIMIZER, g, a);
  return pass_done(PASS_SIMPLIFY, graph_simplify(g, a, true), a);
}

/* All graphs asked for, in a scratch arena. */
static TrainGraphs build_graphs(const Job *job, Arena *scratch, const GraphChoice *c) {
  bool eval = job->eval.every > 0;
  if (c->eval_only) return (TrainGraphs){.eval = eval ? eval_graph(job, scratch, c) : NULL};
  if (c->update_only) return (TrainGraphs){.update = update_graph(job, scratch, c)};
  TrainGraphs t = {.micro = micro_graph(job, scratch, c)};
  if (!t.micro || c->micro_only) return t;
  if (!c->early_update) t.update = update_graph(job, scratch, c);
  if (eval) t.eval = eval_graph(job, scratch, c);
  t.sample = sample_graph(job, scratch, c);
  return t;
}

TrainGraphs train_graphs(const Job *job, Arena *a, const GraphChoice *c) {
  precision_vars(job);
  optimizer_vars(job);
  if (job->eval.every) metric_var(job->vars, "metric.eval");
  Arena *scratch = arena_new();
  TrainGraphs t = build_graphs(job, scratch, c);
  Graph **all[] = {&t.micro, &t.update, &t.eval, &t.sample};
  for (int i = 0; i < COUNT_OF(all); i++)
    if (*all[i]) *all[i] = graph_moved(*all[i], a);
  arena_free(scratch);
  return t;
}
