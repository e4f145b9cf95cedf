/* optimizer_muon.c - Muon (Jordan et al., 2024) as torch.optim.Muon has it: the momentum of a hidden
 * matrix, made orthogonal by five Newton-Schulz steps in the compute format (see optimizer_impl.h).
 * What is no hidden matrix - embeddings, the output layer, norms, biases - takes AdamW.
 *
 * The momentum and the products are values of their own, which the plan shows. */
#include "optimizer_impl.h"
#include "../ir/words.h"

#include <math.h>

static const double quintic[] = {3.4445, -4.7750, 2.0315};

bool muon_takes(const Var *v) {
  return v->shape.rank == 2 && !v->lookup && !v->head;
}

/* a[i, k] b[j, k], or a[i, k] b[k, j]. */
static ValueId product(Graph *g, ValueId a, ValueId b, bool transposed) {
  int64_t ka = 1, kb = transposed;
  return g_dot(g, a, b, 0, NULL, NULL, 1, &ka, &kb, val(g, a)->dtype);
}

/* x a + y, rounded as x is. */
static ValueId mixed(Graph *g, ValueId x, double a, ValueId y, double b) {
  DType t = val(g, x)->dtype;
  ValueId sum = add(g, times(g, g_cast(g, x, DT_F32), a), times(g, g_cast(g, y, DT_F32), b));
  return g_cast(g, sum, t);
}

static ValueId orthogonal(Step *s, ValueId x, ValueId norm, int rounds) {
  static const int64_t turned[] = {1, 0};
  Graph *g = s->g;
  Shape shape = val(g, x)->shape;
  bool tall = shape.dim[0] > shape.dim[1];
  int compute = s->job->precision.compute;
  DType t = compute == PREC_AUTO || compute == DT_F16 ? DT_BF16 : (DType)compute;
  ValueId y = g_cast(g, quot(g, x, g_bin(g, OP_MAX, norm, number(g, 1e-7))), t);
  if (tall) y = g_transpose(g, y, turned);
  for (int i = 0; i < rounds; i++) {
    ValueId gram = product(g, y, y, true);
    ValueId poly = mixed(g, gram, quintic[1], product(g, gram, gram, false), quintic[2]);
    y = mixed(g, y, quintic[0], product(g, poly, y, false), 1);
  }
  if (tall) y = g_transpose(g, y, turned);
  return g_cast(g, y, DT_F32);
}

/* What is made orthogonal, and the new momentum. */
static ValueId velocity(Step *s, const Update *u, ValueId *m1) {
  Graph *g = s->g;
  const Optimizer *o = &s->phase->opt;
  ValueId m = state_read(s, u, ":m");
  *m1 = add(g, m, times(g, sub(g, u->grad, m), 1 - o->momentum));
  return o->nesterov ? add(g, u->grad, times(g, sub(g, *m1, u->grad), o->momentum)) : *m1;
}

ValueId muon(Step *s, Update *u) {
  enum { ROUNDS = 5 };
  Graph *g = s->g;
  const Optimizer *o = &s->phase->opt;
  const Shape *shape = &s->job->vars->all.at[u->param].shape;
  Update again = update_again(s, u);
  ValueId m1, ignored, x = velocity(s, u, &m1), same = velocity(s, &again, &ignored);
  ValueId norm = g_unary(g, OP_SQRT, sum_all(g, mul(g, same, same)));
  state_store(s, u, ":m", m1);
  double rows = (double)shape->dim[0], cols = (double)shape->dim[1];
  double ratio = o->match_rms ? 0.2 * sqrt(fmax(rows, cols)) : sqrt(fmax(1, rows / cols));
  ValueId step = orthogonal(s, g_reshape(g, x, *shape), norm, ROUNDS);
  return mul(g, g_reshape(g, step, u->space), times(g, u->lr, ratio));
}
