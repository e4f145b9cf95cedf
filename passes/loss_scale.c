/* loss_scale.c - see loss_scale.h. */
#include "loss_scale.h"

#include "../ir/words.h"
#include "rewrite.h"

static const char scale_path[] = "opt.scale", good_path[] = "opt.good", skips_path[] = "opt.skips";

/* Gradients that are all zero never overflow: without an end the factor would. */
static const double most_scale = 0x1p40;

static void add_scalar(Vars *vars, const char *path, DType t, Init init) {
  if (var_find(vars, path) >= 0) return;
  var_add(vars, (Var){.path = intern(path),
                      .role = VAR_OPT,
                      .dtype = t,
                      .init = init,
                      .of = -1,
                      .loc = NO_LOC,
                      .layer = -1});
}

void loss_scale_vars(const Job *job) {
  const LossScale *s = &job->precision.scale;
  if (!s->on) return;
  add_scalar(job->vars, scale_path, DT_F32, (Init){.kind = INIT_CONST, .a = s->init});
  if (!s->dynamic) return;
  add_scalar(job->vars, good_path, DT_I32, (Init){.kind = INIT_ZEROS});
  add_scalar(job->vars, skips_path, DT_I32, (Init){.kind = INIT_ZEROS});
}

static ValueId read(const Job *job, Graph *g, const char *path) {
  return g_var(g, var_find(job->vars, path));
}

ValueId loss_scaled(const Job *job, Graph *g, ValueId loss) {
  if (!job->precision.scale.on) return loss;
  graph_at(g, node_of(g, loss));
  g->here.tag = intern("loss_scale");
  g->here.tag_id = 0;
  return mul(g, g_cast(g, loss, DT_F32), read(job, g, scale_path));
}

ValueId loss_unscale(const Job *job, Graph *g) {
  if (!job->precision.scale.on) return -1;
  return quot(g, number(g, 1), read(job, g, scale_path));
}

void loss_scale_step(const Job *job, Graph *g, ValueId finite) {
  const LossScale *s = &job->precision.scale;
  if (!s->on || !s->dynamic) return;
  ValueId zero = g_const(g, DT_I32, shape_scalar(), 0), one = g_const(g, DT_I32, shape_scalar(), 1);
  ValueId scale = read(job, g, scale_path), skips = read(job, g, skips_path);
  ValueId good = g_binary(g, OP_ADD, read(job, g, good_path), one);
  ValueId interval = g_const(g, DT_I32, shape_scalar(), (double)s->interval);
  ValueId due = g_bin(g, OP_LE, interval, good);
  ValueId grown =
      g_select(g, due, g_bin(g, OP_MIN, times(g, scale, 2), number(g, most_scale)), scale);
  ValueId shrunk = g_bin(g, OP_MAX, times(g, scale, 0.5), number(g, 1));
  g_assign(g, var_find(job->vars, scale_path), g_select(g, finite, grown, shrunk));
  g_assign(g, var_find(job->vars, good_path),
           g_select(g, finite, g_select(g, due, zero, good), zero));
  g_assign(g, var_find(job->vars, skips_path),
           g_select(g, finite, skips, g_binary(g, OP_ADD, skips, one)));
}
