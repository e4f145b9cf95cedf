/* optimizer_early.c - the updates inside the backward pass (see optimizer.h, optimizer_impl.h).
 *
 * Input: the graph of a step's only micro-batch, simplified and with its free recompute, so that every read of a weight is where it
 * stays. Output: the same with the updates. What updates share stands before the first of them, the norm after the last; the
 * squares of a gradient are taken where it is used, so that nothing keeps it. */
#include "optimizer_impl.h"
#include "precision.h"
#include "rewrite.h"
#include "simplify.h"

#include <string.h>

int early_update_obstacles(const Job *job, int phase) {
  const TrainPhase *p = &job->phases.at[phase];
  return (p->clip > 0 ? EARLY_CLIP : 0) | (p->nonfinite != NONFINITE_STOP ? EARLY_SKIP : 0) |
         (job->precision.scale.on ? EARLY_SCALE : 0);
}

bool early_update_possible(const Job *job) {
  for (int i = 0; i < job->phases.n; i++)
    if (early_update_obstacles(job, i)) return false;
  return job->phases.n > 0;
}

/* Per variable: the last node that reads or assigns it, through what a kernel may compute again from it: views, joins, casts. */
static NodeId *last_uses(const Graph *g, Arena *a) {
  NodeId *of_var = arena_array(a, NodeId, g->vars->all.n + 1),
         *of_value = arena_array(a, NodeId, g->values.n + 1);
  for (int i = 0; i < g->vars->all.n; i++) of_var[i] = -1;
  for (int i = 0; i < g->values.n; i++) of_value[i] = -1;
  for (NodeId n = g->nodes.n - 1; n >= 0; n--) {
    const Node *x = node_at(g, n);
    NodeId at = n;
    bool through = op_kind(x->op) == VIEW || op_kind(x->op) == JOIN || x->op == OP_CAST;
    if ((through || x->op == OP_VAR) && of_value[x->out] > n) at = of_value[x->out];
    bool variable = x->op == OP_VAR || x->op == OP_ASSIGN;
    if (variable && of_var[x->ints[0]] < at) of_var[x->ints[0]] = at;
    for (int k = 0; k < x->nin; k++)
      if (of_value[x->in[k]] < at) of_value[x->in[k]] = at;
  }
  return of_var;
}

/* The parameter whose accumulator has this name. */
static int param_of(const Vars *vars, const char *accum) {
  return vars->all.at[var_find(vars, accum)].of;
}

/* ---- the updates as a graph of their own ---- */

/* Simplified by itself: in the whole graph, what backward computes again would be found to be there already. Inputs are the
 * gradients that are results of g. */
static Graph *update_rules(const Job *job, const Graph *g, Arena *a, int phase) {
  Vars *vars = job->vars;
  ValueId *gradient = arena_array(a, ValueId, vars->all.n + 1);
  Step s = {.job = job,
            .phase = &job->phases.at[phase],
            .phase_index = phase,
            .g = graph_new(a, "update", vars),
            .gradient = gradient};
  for (int i = 0; i < vars->all.n; i++) gradient[i] = -1;
  for (int i = 0; i < g->results.n; i++) {
    const Value *v = val(g, g->results.at[i]);
    gradient[param_of(vars, g->result_names.at[i])] =
        g_input(s.g, g->result_names.at[i], v->dtype, v->shape);
  }
  step_begin_early(&s);
  step_rates(&s);
  for (int i = 0; i < vars->all.n; i++) {
    if (!trained_in(job, phase, i)) continue;
    step_at(&s, i, "grad_norm");
    g_assign(s.g, squares_of(vars, i), gradient_squares(s.g, gradient_read(&s, i)));
    step_update(&s, i);
  }
  step_end_early(&s);
  return graph_simplify(s.g, a, true);
}

/* ---- the two as one ---- */

typedef struct {
  const Job *job;
  int phase;
  Rewrite r;       /* of forward and backward */
  ValueId *result; /* per parameter: its gradient in the old graph, or -1 */
  const Graph *rules;
  ValueId *map;      /* per value of the rules: in the new graph, or -1 */
  int *first, *next; /* parameters by the node behind which they are updated; first: per node */
  NodeId **assign;   /* per parameter: the assigns of its update, in order */
  int *nassign;
} Early;

/* The parameter that an assign of the rules belongs to, or -1. */
static int owner_of(const Vars *vars, int var) {
  static const char ending[] = ":squares";
  const Var *v = &vars->all.at[var];
  if (v->role == VAR_PARAM || v->of >= 0) return v->of >= 0 ? v->of : var;
  if (v->role != VAR_METRIC || !str_ends(v->path, ending)) return -1;
  return var_find(vars, intern_printf("%.*s", (int)(strlen(v->path) - strlen(ending)), v->path));
}

static void sort_assigns(Early *e, Arena *a) {
  const Vars *vars = e->job->vars;
  int n = vars->all.n;
  e->assign = arena_array(a, NodeId *, n + 1);
  e->nassign = arena_array(a, int, n + 1);
  for (int pass = 0; pass < 2; pass++) {
    for (int i = 0; i < n && pass; i++) e->assign[i] = arena_array(a, NodeId, e->nassign[i] + 1);
    for (int i = 0; i < n && pass; i++) e->nassign[i] = 0;
    for (NodeId k = 0; k < e->rules->nodes.n; k++) {
      const Node *x = node_at(e->rules, k);
      int owner = x->op == OP_ASSIGN ? owner_of(vars, (int)x->ints[0]) : -1;
      if (owner < 0) continue;
      if (pass) e->assign[owner][e->nassign[owner]] = k;
      e->nassign[owner]++;
    }
  }
}

/* Value v of the rules in the new graph, with all that it is made of and that is not there yet. */
static ValueId brought(Early *e, ValueId v) {
  const Node *x = node_of(e->rules, v);
  if (x->op == OP_INPUT) return e->r.map[e->result[param_of(e->job->vars, x->sym)]];
  if (e->map[v] >= 0) return e->map[v];
  NodeId id = val(e->rules, v)->def;
  ValueId *in = arena_array(e->r.arena, ValueId, x->nin + 1);
  for (int k = 0; k < x->nin; k++) in[k] = brought(e, x->in[k]);
  ValueId out = graph_clone_node(e->r.to, e->rules, id, in);
  for (int k = 0; k < x->nout; k++) e->map[x->out + k] = out + k;
  return e->map[v];
}

static void bring_assign(Early *e, NodeId id) {
  ValueId in = brought(e, node_at(e->rules, id)->in[0]);
  graph_clone_node(e->r.to, e->rules, id, &in);
}

/* Everything is read before anything is assigned. */
static void bring_update(Early *e, int param) {
  for (int i = 0; i < e->nassign[param]; i++)
    brought(e, node_at(e->rules, e->assign[param][i])->in[0]);
  for (int i = 0; i < e->nassign[param]; i++) bring_assign(e, e->assign[param][i]);
}

/* What belongs to no parameter: the step count, the norm, the verdict. */
static void bring_rest(Early *e) {
  for (NodeId k = 0; k < e->rules->nodes.n; k++) {
    const Node *x = node_at(e->rules, k);
    if (x->op == OP_ASSIGN && owner_of(e->job->vars, (int)x->ints[0]) < 0) bring_assign(e, k);
  }
}

/* Sorts the phase's parameters by the node behind which each is updated: when its gradient is final and the parameter is not
 * read any more. */
static void find_places(Early *e, const Graph *g, Arena *a) {
  const Vars *vars = g->vars;
  NodeId *last = last_uses(g, a);
  e->first = arena_array(a, int, g->nodes.n + 1);
  e->next = arena_array(a, int, vars->all.n + 1);
  for (NodeId n = 0; n < g->nodes.n; n++) e->first[n] = -1;
  for (int i = vars->all.n - 1; i >= 0; i--) {
    if (!trained_in(e->job, e->phase, i)) continue;
    NodeId at = e->result[i] >= 0 ? val(g, e->result[i])->def : last[accum_of(vars, i)];
    if (last[i] > at) at = last[i];
    if (at < 0) at = g->nodes.n - 1; /* not used by the loss: its gradient is zero */
    e->next[i] = e->first[at];
    e->first[at] = i;
  }
}

Graph *early_update_graph(const Job *job, Graph *g, Arena *a, int phase) {
  Early e = {.job = job, .phase = phase};
  for (int i = 0; i < job->vars->all.n; i++)
    if (trained_in(job, phase, i)) squares_of(job->vars, i);
  e.rules = update_rules(job, g, a, phase);
  e.r = rewrite_begin(g, a);
  e.result = arena_array(a, ValueId, job->vars->all.n + 1);
  e.map = arena_array(a, ValueId, e.rules->values.n + 1);
  for (int i = 0; i < job->vars->all.n; i++) e.result[i] = -1;
  for (int i = 0; i < e.rules->values.n; i++) e.map[i] = -1;
  for (int i = 0; i < g->results.n; i++)
    e.result[param_of(job->vars, g->result_names.at[i])] = g->results.at[i];
  find_places(&e, g, a);
  sort_assigns(&e, a);
  for (NodeId n = 0; n < g->nodes.n; n++) {
    rewrite_node(&e.r, n);
    for (int i = e.first[n]; i >= 0; i = e.next[i]) bring_update(&e, i);
  }
  bring_rest(&e);
  return e.r.to;
}
