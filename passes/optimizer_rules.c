/* optimizer_rules.c - the table of optimizers and the update of one parameter, as a composition over
 * primitives (see optimizer_impl.h).
 *
 * Arithmetic is f32 and follows PyTorch's order, so that weights agree with its optimizers to
 * rounding. */
#include "optimizer_impl.h"
#include "../ir/words.h"

#include <math.h>

/* 1 - beta^t without cancellation: expm1(y) = tanh(y / 2) (exp(y) + 1). */
static ValueId bias_correction(Graph *g, ValueId t, double beta) {
  ValueId y = times(g, t, log(beta));
  ValueId grown = add(g, g_unary(g, OP_EXP, y), number(g, 1));
  return mul(g, g_unary(g, OP_NEG, g_unary(g, OP_TANH, times(g, y, 0.5))), grown);
}

void step_rates(Step *s) {
  const Optimizer *o = &s->phase->opt;
  if (o->kind != OPT_ADAMW && o->kind != OPT_ADAM && o->kind != OPT_MUON) return;
  step_at(s, -1, "step");
  s->bc1 = bias_correction(s->g, s->t, o->beta1);
  s->root_bc2 = g_unary(s->g, OP_SQRT, bias_correction(s->g, s->t, o->beta2));
}

static ValueId adam(Step *s, Update *u) {
  Graph *g = s->g;
  const Optimizer *o = &s->phase->opt;
  ValueId m = state_read(s, u, ":m"), v = state_read(s, u, ":v");
  ValueId m1 = add(g, m, times(g, sub(g, u->grad, m), 1 - o->beta1));
  ValueId v1 = add(g, times(g, v, o->beta2), mul(g, times(g, u->grad, 1 - o->beta2), u->grad));
  ValueId denom = add(g, quot(g, g_unary(g, OP_SQRT, v1), s->root_bc2), number(g, o->eps));
  ValueId step = mul(g, quot(g, m1, denom), quot(g, u->lr, s->bc1));
  state_store(s, u, ":m", m1);
  state_store(s, u, ":v", v1);
  return step;
}

static ValueId lion(Step *s, Update *u) {
  Graph *g = s->g;
  const Optimizer *o = &s->phase->opt;
  ValueId m = state_read(s, u, ":m");
  ValueId c = add(g, times(g, m, o->beta1), times(g, u->grad, 1 - o->beta1));
  ValueId zero = number(g, 0);
  ValueId negative = g_select(g, g_bin(g, OP_LT, c, zero), number(g, -1), zero);
  ValueId sign = g_select(g, g_bin(g, OP_LT, zero, c), number(g, 1), negative);
  state_store(s, u, ":m", add(g, times(g, m, o->beta2), times(g, u->grad, 1 - o->beta2)));
  return mul(g, sign, u->lr);
}

static ValueId sgd(Step *s, Update *u) {
  Graph *g = s->g;
  const Optimizer *o = &s->phase->opt;
  ValueId step = u->grad;
  if (o->momentum != 0) {
    ValueId m1 = add(g, times(g, state_read(s, u, ":m"), o->momentum), u->grad);
    state_store(s, u, ":m", m1);
    step = o->nesterov ? add(g, u->grad, times(g, m1, o->momentum)) : m1;
  }
  return mul(g, step, u->lr);
}

/* ---- the table ---- */

typedef struct {
  const char *tag;
  bool decoupled; /* weight decay shrinks the weight itself; else it is part of the gradient */
  int states;
  ValueId (*update)(Step *s, Update *u);
} Rule;
static const Rule rules[] = {
    [OPT_ADAMW] = {"adamw", true, STATE_M | STATE_V, adam},
    [OPT_ADAM] = {"adam", false, STATE_M | STATE_V, adam},
    [OPT_SGD] = {"sgd", false, STATE_M, sgd},
    [OPT_ADAFACTOR] = {"adafactor", true, STATE_ROWS, adafactor},
    [OPT_LION] = {"lion", true, STATE_M, lion},
    [OPT_MUON] = {"muon", true, STATE_M, muon},
};

/* Muon leaves what is no hidden matrix to AdamW. */
static const Rule *rule_of(const Optimizer *o, const Var *v) {
  return &rules[o->kind == OPT_MUON && !muon_takes(v) ? OPT_ADAMW : o->kind];
}

int optimizer_states(const Optimizer *o, const Var *v) {
  if (o->kind == OPT_SGD && o->momentum == 0) return 0;
  if (o->kind == OPT_ADAFACTOR && v->shape.rank < 2) return STATE_V;
  return rule_of(o, v)->states;
}

void step_update(Step *s, int param) {
  Graph *g = s->g;
  const Rule *r = rule_of(&s->phase->opt, &s->job->vars->all.at[param]);
  step_at(s, param, r->tag);
  Update u = update_begin(s, param);
  ValueId p = u.p;
  if (r->update == adam && s->phase->opt.kind == OPT_MUON)
    u.lr = times(g, u.lr, s->phase->opt.adam_scale);
  if (u.decay != 0 && r->decoupled) p = mul(g, p, sub(g, number(g, 1), times(g, u.lr, u.decay)));
  if (u.decay != 0 && !r->decoupled) u.grad = add(g, u.grad, times(g, p, u.decay));
  weight_store(s, &u, sub(g, p, r->update(s, &u)));
}
