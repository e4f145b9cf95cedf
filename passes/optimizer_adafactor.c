/* optimizer_adafactor.c - Adafactor (Shazeer and Stern, 2018) as torch.optim.Adafactor has it: second
 * moments of matrices as means of rows and columns, a step relative to the weight's size, updates
 * clipped by their root mean square (see optimizer_impl.h).
 *
 * The update is computed twice, once for its size and once to be applied, so that no value of the
 * parameter's size is stored between the two. */
#include "optimizer_impl.h"
#include "../ir/words.h"

static ValueId at_least(Graph *g, ValueId x, double least) {
  return g_bin(g, OP_MAX, x, number(g, least));
}

static ValueId mean_axis(Graph *g, ValueId x, int axis) {
  double n = (double)val(g, x)->shape.dim[axis];
  return times(g, g_reduce(g, OP_SUM, x, 1, (int64_t[]){axis}), 1 / n);
}

/* The root of the mean of squares over all elements. */
static ValueId rms(Graph *g, ValueId x) {
  double n = (double)shape_count(&val(g, x)->shape);
  return g_unary(g, OP_SQRT, times(g, sum_all(g, mul(g, x, x)), 1 / n));
}

/* old + share (x - old), kept. */
static ValueId blend(Step *s, ValueId old, ValueId x, ValueId share) {
  return add(s->g, old, mul(s->g, sub(s->g, x, old), share));
}

/* A vector of a matrix's last two axes but `gone`, as a value of every element. */
static ValueId spread(Graph *g, ValueId x, const Shape *to, int gone) {
  int64_t axes[MAX_RANK];
  int n = 0;
  for (int k = 0; k < to->rank; k++)
    if (k != gone) axes[n++] = k;
  return g_broadcast(g, x, *to, axes);
}

typedef struct {
  ValueId rows, columns, mean; /* of a matrix: the new factors, and the mean over the rows */
  ValueId v;                   /* of a vector: the new second moments */
} Moments;

static Moments new_moments(Step *s, Update *u, ValueId share) {
  Graph *g = s->g;
  const Vars *vars = s->job->vars;
  ValueId squares = mul(g, u->grad, u->grad);
  if (u->space.rank < 2 || derived_var(vars, u->param, ":r") < 0) {
    Moments m = {.rows = -1, .columns = -1, .v = blend(s, state_read(s, u, ":v"), squares, share)};
    state_store(s, u, ":v", m.v);
    return m;
  }
  int row = derived_var(vars, u->param, ":r"), column = derived_var(vars, u->param, ":c");
  int last = u->space.rank - 1;
  ValueId r = g_unary(g, OP_HOLD, g_var(g, row)), c = g_unary(g, OP_HOLD, g_var(g, column));
  Moments m = {.rows = -1, .columns = -1, .v = -1};
  m.rows = blend(s, r, mean_axis(g, squares, last), share);
  m.columns = blend(s, c, mean_axis(g, squares, last - 1), share);
  store_f32(s, row, m.rows, r);
  store_f32(s, column, m.columns, c);
  m.mean = at_least(g, mean_axis(g, m.rows, last - 1), s->phase->opt.eps);
  return m;
}

/* The gradient over the root of its second moment. */
static ValueId normalised(const Step *s, const Update *u, const Moments *m) {
  Graph *g = s->g;
  ValueId v = m->v;
  if (v < 0) {
    int last = u->space.rank - 1;
    ValueId r = spread(g, m->rows, &u->space, last), c = spread(g, m->columns, &u->space, last - 1);
    Shape lead = u->space;
    lead.rank = last - 1;
    ValueId mean =
        lead.rank ? g_broadcast(g, m->mean, u->space, (int64_t[]){0, 1, 2, 3, 4, 5, 6}) : m->mean;
    v = quot(g, mul(g, r, c), mean);
  }
  double eps = s->phase->opt.eps;
  return mul(g, g_unary(g, OP_RSQRT, at_least(g, v, eps * eps)), u->grad);
}

ValueId adafactor(Step *s, Update *u) {
  Graph *g = s->g;
  const Optimizer *o = &s->phase->opt;
  ValueId share = g_bin(g, OP_POW, s->t, number(g, -o->decay));
  ValueId rate = u->lr;
  if (o->relative) rate = g_bin(g, OP_MIN, rate, g_unary(g, OP_RSQRT, s->t));
  ValueId size = at_least(g, rms(g, u->p), o->floor);
  Moments m = new_moments(s, u, share);
  Update first = update_again(s, u);
  Moments again = m; /* the two computations share no value of the parameter's size */
  ValueId *made[] = {&again.rows, &again.columns, &again.v};
  for (int i = 0; i < COUNT_OF(made); i++)
    if (*made[i] >= 0) *made[i] = g_unary(g, OP_HOLD, *made[i]);
  ValueId update = normalised(s, &first, &again);
  ValueId over = at_least(g, times(g, rms(g, update), 1 / o->threshold), 1);
  ValueId alpha = quot(g, mul(g, size, rate), over);
  Update last = *u;
  last.grad = gradient(s, u, alpha);
  return normalised(s, &last, &m);
}
