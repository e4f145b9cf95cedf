/* optimizer.c - the update graph as a composition over primitives (see optimizer.h).
 *
 * Input: accumulators holding the gradient of the step's loss. */
#include "optimizer_impl.h"
#include "loss_scale.h"
#include "precision.h"

/* ---- variables ---- */

int metric_var(Vars *vars, const char *path) {
  int v = var_find(vars, path);
  if (v >= 0) return v;
  return var_add(
      vars,
      (Var){
          .path = path, .role = VAR_METRIC, .dtype = DT_F32, .of = -1, .loc = NO_LOC, .layer = -1});
}

int derived_var(const Vars *vars, int param, const char *suffix) {
  for (int i = param + 1; i < vars->all.n; i++)
    if (vars->all.at[i].of == param && str_ends(vars->all.at[i].path, suffix)) return i;
  return -1;
}

int accum_of(const Vars *vars, int param) {
  return derived_var(vars, param, ":grad");
}

static void add_derived(Vars *vars, int param, const char *suffix, VarRole role, DType t) {
  if (derived_var(vars, param, suffix) >= 0) return;
  Var v = vars->all.at[param];
  v.path = intern_printf("%s%s", v.path, suffix);
  v.role = role;
  v.dtype = t;
  v.init = (Init){.kind = INIT_ZEROS};
  v.of = param;
  var_add(vars, v);
}

static DType or_f32(int t) {
  return t == PREC_AUTO ? DT_F32 : (DType)t;
}

void optimizer_vars(const Job *job) {
  Vars *vars = job->vars;
  int n = vars->all.n;
  for (int i = 0; i < n; i++) {
    if (vars->all.at[i].role != VAR_PARAM || !trained_ever(job, i)) continue;
    add_derived(vars, i, ":grad", VAR_ACCUM, or_f32(job->precision.accum));
    int states = 0;
    for (int p = 0; p < job->phases.n; p++)
      if (trained_in(job, p, i))
        states |= optimizer_states(&job->phases.at[p].opt, &vars->all.at[i]);
    state_vars(job, i, states);
  }
  if (var_find(vars, "opt.t") < 0)
    var_add(vars, (Var){.path = "opt.t",
                        .role = VAR_OPT,
                        .dtype = DT_I32,
                        .of = -1,
                        .loc = NO_LOC,
                        .layer = -1});
  loss_scale_vars(job);
  metric_var(vars, "metric.loss");
  metric_var(vars, "metric.grad_norm");
  metric_var(vars, "metric.skipped");
}

/* ---- the graph ---- */

ValueId sum_all(Graph *g, ValueId x) {
  int rank = val(g, x)->shape.rank;
  int64_t axes[MAX_RANK];
  for (int k = 0; k < rank; k++) axes[k] = k;
  return rank ? g_reduce(g, OP_SUM, x, rank, axes) : x;
}

void step_at(const Step *s, int var, const char *tag) {
  Graph *g = s->g;
  const Var *v = var < 0 ? NULL : &s->job->vars->all.at[var];
  g->here.loc = v ? v->loc : NO_LOC;
  g->here.path = v ? v->path : "";
  g->here.layer = v ? v->layer : -1;
  g->here.tag = intern(tag);
  g->here.tag_id = 0;
  g->here.chunk = 0;
  g->here.tile = 0;
  g->here.phase = PH_UPDATE;
}

Graph *optimizer_graph(const Job *job, Arena *a, int phase, bool early_squares) {
  const TrainPhase *p = &job->phases.at[phase];
  Step s = {.job = job, .phase = p, .phase_index = phase, .g = graph_new(a, "update", job->vars)};
  step_begin(&s, early_squares);
  step_rates(&s);
  for (int i = 0; i < job->vars->all.n; i++)
    if (trained_in(job, phase, i)) step_update(&s, i);
  return s.g;
}
