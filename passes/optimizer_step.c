/* optimizer_step.c - begins a step: the gradients' norm, the factor of clipping and unscaling,
 * whether the step counts, and the step count (see optimizer_impl.h). The norm adds the parameters'
 * sums of squares in order of variables; that one pass over the gradients also tells whether they
 * are finite. Steps with early updates end with the norm. */
#include "optimizer_impl.h"
#include "../ir/words.h"
#include "loss_scale.h"
#include "precision.h"

int squares_of(Vars *vars, int param) {
  return metric_var(vars, intern_printf("%s:squares", vars->all.at[param].path));
}

ValueId gradient_squares(Graph *g, ValueId gradient) {
  ValueId x = g_cast(g, gradient, DT_F32);
  return sum_all(g, mul(g, x, x));
}

/* The root of all squares, which were taken before or are taken now. Sets whether it is finite. */
static ValueId whole_norm(Step *s, bool taken) {
  Graph *g = s->g;
  Vars *vars = s->job->vars;
  ValueId total = -1;
  for (int i = 0; i < vars->all.n; i++) {
    if (!trained_in(s->job, s->phase_index, i)) continue;
    step_at(s, i, "grad_norm");
    ValueId squares =
        taken ? g_var(g, squares_of(vars, i)) : gradient_squares(g, gradient_read(s, i));
    step_at(s, -1, "grad_norm");
    total = total < 0 ? squares : add(g, total, squares);
  }
  step_at(s, -1, "grad_norm");
  if (total < 0) total = number(g, 0);
  ValueId norm = g_unary(g, OP_SQRT, total);
  s->finite = g_unary(g, OP_FINITE, norm);
  return norm;
}

/* The step count with this step. */
static ValueId next_count(const Step *s, int var) {
  return g_binary(s->g, OP_ADD, g_var(s->g, var), g_const(s->g, DT_I32, shape_scalar(), 1));
}

static void count_skipped(const Step *s) {
  Graph *g = s->g;
  int skipped = metric_var(s->job->vars, "metric.skipped");
  ValueId count = g_var(g, skipped);
  g_assign(g, skipped, g_select(g, s->finite, count, add(g, count, number(g, 1))));
}

void step_begin(Step *s, bool early_squares) {
  Graph *g = s->g;
  Vars *vars = s->job->vars;
  ValueId norm = whole_norm(s, early_squares), unscale = loss_unscale(s->job, g);
  if (unscale >= 0) norm = mul(g, norm, unscale);
  g_assign(g, metric_var(vars, "metric.grad_norm"), norm);
  step_at(s, -1, "step");
  s->scale = unscale;
  if (s->phase->clip > 0) {
    ValueId ratio = quot(g, number(g, s->phase->clip), add(g, norm, number(g, 1e-6)));
    ValueId clip = g_bin(g, OP_MIN, ratio, number(g, 1));
    s->scale = unscale < 0 ? clip : mul(g, clip, unscale);
  }
  loss_scale_step(s->job, g, s->finite);
  int tv = var_find(vars, "opt.t");
  ValueId t = g_var(g, tv), t1 = next_count(s, tv);
  g_assign(g, tv, g_select(g, s->finite, t1, t));
  count_skipped(s);
  s->lr = g_var(g, var_scalar(vars, SC_LR));
  s->t = g_cast(g, t1, DT_F32);
}

void step_begin_early(Step *s) {
  Graph *g = s->g;
  step_at(s, -1, "step");
  s->scale = s->finite = -1;
  int tv = var_find(s->job->vars, "opt.t");
  ValueId t1 = next_count(s, tv);
  g_assign(g, tv, t1);
  s->lr = g_var(g, var_scalar(s->job->vars, SC_LR));
  s->t = g_cast(g, t1, DT_F32);
}

void step_end_early(Step *s) {
  g_assign(s->g, metric_var(s->job->vars, "metric.grad_norm"), whole_norm(s, true));
  step_at(s, -1, "step");
  count_skipped(s);
}
