/* optimizer_rules.c - the update of one parameter as a composition over primitives, by optimizer
 * (see optimizer_impl.h).
 *
 * Arithmetic is f32 and follows PyTorch's order, so that weights agree with its optimizers to
 * rounding. */
#include "optimizer_impl.h"
#include "../ir/words.h"

#include <math.h>

#include "precision.h"

/* 1 - beta^t without cancellation: expm1(y) = tanh(y / 2) (exp(y) + 1). */
static ValueId bias_correction(Graph *g, ValueId t, double beta) {
  ValueId y = times(g, t, log(beta));
  ValueId grown = add(g, g_unary(g, OP_EXP, y), number(g, 1));
  return mul(g, g_unary(g, OP_NEG, g_unary(g, OP_TANH, times(g, y, 0.5))), grown);
}

void step_rates(Step *s) {
  const Optimizer *o = &s->phase->opt;
  if (o->kind != OPT_ADAMW && o->kind != OPT_ADAM) return;
  step_at(s, -1, "step");
  s->bc1 = bias_correction(s->g, s->t, o->beta1);
  s->root_bc2 = g_unary(s->g, OP_SQRT, bias_correction(s->g, s->t, o->beta2));
}

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

static const char *const tags[] = {
    [OPT_ADAMW] = "adamw", [OPT_ADAM] = "adam", [OPT_SGD] = "sgd", [OPT_LION] = "lion"};

void step_update(Step *s, int param) {
  Graph *g = s->g;
  step_at(s, param, tags[s->phase->opt.kind]);
  Vars *vars = s->job->vars;
  int acc = accum_of(vars, param), home = master_of(vars, param);
  double lr_scale = job_lr_scale(s->job, s->phase_index, param);
  Update u = {.m = derived_var(vars, param, ":m"),
              .v = derived_var(vars, param, ":v"),
              .decay = job_weight_decay(s->job, s->phase_index, param)};
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
