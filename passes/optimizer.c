/* optimizer.c - the update graph as a composition over primitives (see optimizer.h).
 *
 * Input: accumulators holding the gradient of the step's loss. Arithmetic is f32 and follows
 * PyTorch's order, so that weights agree with its optimizers to rounding. The norm adds the
 * parameters' sums of squares in order of variables. */
#include "optimizer.h"
#include "../ir/words.h"

#include <math.h>

#include "precision.h"
#include "rewrite.h"

/* ---- variables ---- */

typedef struct {
  bool m, v;
} Moments;

static Moments moments_of(const Optimizer *o) {
  switch (o->kind) {
    case OPT_ADAMW:
    case OPT_ADAM:
      return (Moments){true, true};
    case OPT_SGD:
      return (Moments){o->momentum != 0, false};
    case OPT_LION:
      return (Moments){true, false};
    default:
      return (Moments){false, false};
  }
}

int metric_var(Vars *vars, const char *path) {
  int v = var_find(vars, path);
  if (v >= 0) return v;
  return var_add(
      vars,
      (Var){
          .path = path, .role = VAR_METRIC, .dtype = DT_F32, .of = -1, .loc = NO_LOC, .layer = -1});
}

static int derived(const Vars *vars, int param, const char *suffix) {
  for (int i = param + 1; i < vars->all.n; i++)
    if (vars->all.at[i].of == param && str_ends(vars->all.at[i].path, suffix)) return i;
  return -1;
}

int accum_of(const Vars *vars, int param) {
  return derived(vars, param, ":grad");
}

static void add_derived(Vars *vars, int param, const char *suffix, VarRole role, DType t) {
  if (derived(vars, param, suffix) >= 0) return;
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
  Moments need = {false, false};
  for (int i = 0; i < job->phases.n; i++) {
    Moments m = moments_of(&job->phases.at[i].opt);
    need.m |= m.m;
    need.v |= m.v;
  }
  int n = vars->all.n;
  for (int i = 0; i < n; i++) {
    if (vars->all.at[i].role != VAR_PARAM || !trained_ever(job, i)) continue;
    add_derived(vars, i, ":grad", VAR_ACCUM, or_f32(job->precision.accum));
    if (need.m) add_derived(vars, i, ":m", VAR_MOMENT, or_f32(job->precision.moments));
    if (need.v) add_derived(vars, i, ":v", VAR_MOMENT, or_f32(job->precision.moments));
  }
  if (var_find(vars, "opt.t") < 0)
    var_add(vars, (Var){.path = "opt.t",
                        .role = VAR_OPT,
                        .dtype = DT_I32,
                        .of = -1,
                        .loc = NO_LOC,
                        .layer = -1});
  metric_var(vars, "metric.loss");
  metric_var(vars, "metric.grad_norm");
  metric_var(vars, "metric.skipped");
}

/* ---- variables as f32 ---- */
static ValueId read_f32(Graph *g, int var) {
  return g_cast(g, g_var(g, var), DT_F32);
}

static ValueId sum_all(Graph *g, ValueId x) {
  int rank = val(g, x)->shape.rank;
  int64_t axes[MAX_RANK];
  for (int k = 0; k < rank; k++) axes[k] = k;
  return rank ? g_reduce(g, OP_SUM, x, rank, axes) : x;
}

/* 1 - beta^t without cancellation: expm1(y) = tanh(y / 2) (exp(y) + 1). */
static ValueId bias_correction(Graph *g, ValueId t, double beta) {
  ValueId y = times(g, t, log(beta));
  ValueId grown = add(g, g_unary(g, OP_EXP, y), number(g, 1));
  return mul(g, g_unary(g, OP_NEG, g_unary(g, OP_TANH, times(g, y, 0.5))), grown);
}

/* ---- the step ---- */

typedef struct {
  const Job *job;
  const TrainPhase *phase;
  Graph *g;
  ValueId scale;  /* of gradients by clipping; -1 = none */
  ValueId finite; /* bool */
  ValueId lr;
  ValueId bc1, root_bc2; /* Adam's corrections */
} Step;

/* Stores x, or keeps `old` when the step is skipped. */
static void store(Step *s, int var, ValueId x, ValueId old) {
  ValueId kept = g_select(s->g, s->finite, x, old);
  g_assign(s->g, var, g_cast(s->g, kept, s->job->vars->all.at[var].dtype));
}

typedef struct {
  ValueId p, grad, lr; /* lr: scalar, of this parameter */
  double decay;
  int m, v; /* variables */
} Update;

static ValueId adam(Step *s, const Update *u) {
  Graph *g = s->g;
  const Optimizer *o = &s->phase->opt;
  ValueId m = read_f32(g, u->m), v = read_f32(g, u->v);
  ValueId m1 = add(g, m, times(g, sub(g, u->grad, m), 1 - o->beta1));
  ValueId v1 = add(g, times(g, v, o->beta2), mul(g, times(g, u->grad, 1 - o->beta2), u->grad));
  ValueId denom = add(g, quot(g, g_unary(g, OP_SQRT, v1), s->root_bc2), number(g, o->eps));
  ValueId step = mul(g, quot(g, m1, denom), quot(g, u->lr, s->bc1));
  store(s, u->m, m1, m);
  store(s, u->v, v1, v);
  return step;
}

static ValueId lion(Step *s, const Update *u) {
  Graph *g = s->g;
  const Optimizer *o = &s->phase->opt;
  ValueId m = read_f32(g, u->m);
  ValueId c = add(g, times(g, m, o->beta1), times(g, u->grad, 1 - o->beta1));
  ValueId zero = number(g, 0);
  ValueId negative = g_select(g, g_bin(g, OP_LT, c, zero), number(g, -1), zero);
  ValueId sign = g_select(g, g_bin(g, OP_LT, zero, c), number(g, 1), negative);
  store(s, u->m, add(g, times(g, m, o->beta2), times(g, u->grad, 1 - o->beta2)), m);
  return mul(g, sign, u->lr);
}

static ValueId sgd(Step *s, const Update *u) {
  Graph *g = s->g;
  const Optimizer *o = &s->phase->opt;
  ValueId step = u->grad;
  if (o->momentum != 0) {
    ValueId m = read_f32(g, u->m);
    ValueId m1 = add(g, times(g, m, o->momentum), u->grad);
    store(s, u->m, m1, m);
    step = o->nesterov ? add(g, u->grad, times(g, m1, o->momentum)) : m1;
  }
  return mul(g, step, u->lr);
}

static void update_param(Step *s, int param) {
  Graph *g = s->g;
  Vars *vars = s->job->vars;
  int acc = accum_of(vars, param), home = master_of(vars, param);
  int phase = (int)(s->phase - s->job->phases.at);
  double lr_scale = job_lr_scale(s->job, phase, param);
  Update u = {.m = derived(vars, param, ":m"),
              .v = derived(vars, param, ":v"),
              .decay = job_weight_decay(s->job, phase, param)};
  u.lr = lr_scale == 1 ? s->lr : times(g, s->lr, lr_scale);
  u.p = read_f32(g, home);
  u.grad = read_f32(g, acc);
  if (s->scale >= 0) u.grad = mul(g, u.grad, s->scale);
  bool decoupled = s->phase->opt.kind == OPT_ADAMW || s->phase->opt.kind == OPT_LION;
  ValueId p = u.p;
  if (u.decay != 0 && decoupled) p = mul(g, p, sub(g, number(g, 1), times(g, u.lr, u.decay)));
  if (u.decay != 0 && !decoupled) u.grad = add(g, u.grad, times(g, p, u.decay));
  ValueId step;
  switch (s->phase->opt.kind) {
    case OPT_SGD:
      step = sgd(s, &u);
      break;
    case OPT_LION:
      step = lion(s, &u);
      break;
    default:
      step = adam(s, &u);
  }
  ValueId p1 = g_select(g, s->finite, sub(g, p, step), u.p);
  ValueId kept = g_cast(g, p1, vars->all.at[home].dtype);
  g_assign(g, home, kept);
  if (home != param) g_assign(g, param, g_cast(g, kept, vars->all.at[param].dtype));
  const Var *v = &vars->all.at[acc];
  g_assign(g, acc, g_const(g, v->dtype, v->shape, 0));
}

/* New nodes belong to variable `var`. */
static void at_var(Graph *g, const Vars *vars, int var, const char *tag) {
  const Var *v = var < 0 ? NULL : &vars->all.at[var];
  g->here.loc = v ? v->loc : NO_LOC;
  g->here.path = v ? v->path : "";
  g->here.layer = v ? v->layer : -1;
  g->here.tag = intern(tag);
  g->here.phase = PH_UPDATE;
}

/* Norm, clip factor, the verdict, the step count and what depends on it. */
static void begin_step(Step *s) {
  Graph *g = s->g;
  Vars *vars = s->job->vars;
  ValueId total = -1;
  for (int i = 0; i < vars->all.n; i++) {
    if (!trained_in(s->job, (int)(s->phase - s->job->phases.at), i)) continue;
    at_var(g, vars, i, "grad_norm");
    ValueId x = read_f32(g, accum_of(vars, i));
    ValueId squares = sum_all(g, mul(g, x, x));
    at_var(g, vars, -1, "grad_norm");
    total = total < 0 ? squares : add(g, total, squares);
  }
  at_var(g, vars, -1, "grad_norm");
  if (total < 0) total = number(g, 0);
  ValueId norm = g_unary(g, OP_SQRT, total);
  s->finite = g_unary(g, OP_FINITE, norm);
  g_assign(g, metric_var(vars, "metric.grad_norm"), norm);
  at_var(g, vars, -1, "step");
  s->scale = -1;
  if (s->phase->clip > 0) {
    ValueId ratio = quot(g, number(g, s->phase->clip), add(g, norm, number(g, 1e-6)));
    s->scale = g_bin(g, OP_MIN, ratio, number(g, 1));
  }
  int tv = var_find(vars, "opt.t"), skipped = metric_var(vars, "metric.skipped");
  ValueId t = g_var(g, tv);
  ValueId t1 = g_binary(g, OP_ADD, t, g_const(g, DT_I32, shape_scalar(), 1));
  g_assign(g, tv, g_select(g, s->finite, t1, t));
  ValueId count = g_var(g, skipped);
  g_assign(g, skipped, g_select(g, s->finite, count, add(g, count, number(g, 1))));
  s->lr = g_var(g, var_scalar(vars, SC_LR));
  Moments m = moments_of(&s->phase->opt);
  if (!m.v) return;
  ValueId tf = g_cast(g, t1, DT_F32);
  s->bc1 = bias_correction(g, tf, s->phase->opt.beta1);
  s->root_bc2 = g_unary(g, OP_SQRT, bias_correction(g, tf, s->phase->opt.beta2));
}

Graph *optimizer_graph(const Job *job, Arena *a, int phase) {
  const TrainPhase *p = &job->phases.at[phase];
  if (p->opt.kind == OPT_ADAFACTOR || p->opt.kind == OPT_MUON) {
    diag_error(job->diags, E_NOT_YET, p->opt.loc, "optimizer `%s` cannot train yet",
               p->opt.kind == OPT_MUON ? "muon" : "adafactor");
    return NULL;
  }
  Step s = {.job = job, .phase = p, .g = graph_new(a, "update", job->vars)};
  begin_step(&s);
  static const char *const tags[] = {
      [OPT_ADAMW] = "adamw", [OPT_ADAM] = "adam", [OPT_SGD] = "sgd", [OPT_LION] = "lion"};
  for (int i = 0; i < job->vars->all.n; i++) {
    if (!trained_in(job, phase, i)) continue;
    at_var(s.g, job->vars, i, tags[p->opt.kind]);
    update_param(&s, i);
  }
  return s.g;
}
