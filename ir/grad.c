/* grad.c - gradient rules of element-wise ops, index maps, reductions and rows by index. See
 * grad.h. */
#include <math.h>
#include "grad.h"

/* ---- shorthands: d is the cotangent of the only result, y the result ---- */

static ValueId add(Ad *ad, ValueId a, ValueId b) {
  return g_binary(ad_graph(ad), OP_ADD, a, b);
}
static ValueId mul(Ad *ad, ValueId a, ValueId b) {
  return g_binary(ad_graph(ad), OP_MUL, a, b);
}
static ValueId quot(Ad *ad, ValueId a, ValueId b) {
  return g_binary(ad_graph(ad), OP_DIV, a, b);
}
static ValueId neg(Ad *ad, ValueId a) {
  return g_unary(ad_graph(ad), OP_NEG, a);
}
static ValueId number(Ad *ad, ValueId like, double x) {
  return g_like(ad_graph(ad), like, x);
}
static ValueId times(Ad *ad, ValueId a, double x) {
  return mul(ad, a, number(ad, a, x));
}
static ValueId choose(Ad *ad, ValueId c, ValueId a, ValueId b) {
  return g_select(ad_graph(ad), c, a, b);
}
static const Shape *shape_in(Ad *ad, const Node *n, int i) {
  return &val(ad_graph(ad), n->in[i])->shape;
}

/* ---- no gradient ---- */

void gr_none(Ad *ad, const Node *n) {
  ad_refuse(ad, n, E_NO_GRADIENT);
}
void gr_not_yet(Ad *ad, const Node *n) {
  ad_refuse(ad, n, E_NOT_YET);
}

/* Ends of the walk: cotangents stop here. */
void gr_leaf(Ad *ad, const Node *n) {
  (void)ad, (void)n;
}
void gr_zero(Ad *ad, const Node *n) {
  (void)ad, (void)n;
}

/* ---- one operand ---- */

void gr_neg(Ad *ad, const Node *n) {
  ad_give(ad, n->in[0], neg(ad, ad_cot(ad, n, 0)));
}

void gr_abs(Ad *ad, const Node *n) {
  Graph *g = ad_graph(ad);
  ValueId x = n->in[0], d = ad_cot(ad, n, 0), zero = number(ad, x, 0);
  ValueId below = choose(ad, g_binary(g, OP_LT, x, zero), neg(ad, d), zero);
  ad_give(ad, x, choose(ad, g_binary(g, OP_LT, zero, x), d, below));
}

void gr_exp(Ad *ad, const Node *n) {
  ad_give(ad, n->in[0], mul(ad, ad_cot(ad, n, 0), n->out));
}
void gr_log(Ad *ad, const Node *n) {
  ad_give(ad, n->in[0], quot(ad, ad_cot(ad, n, 0), n->in[0]));
}

void gr_sqrt(Ad *ad, const Node *n) {
  ad_give(ad, n->in[0], quot(ad, times(ad, ad_cot(ad, n, 0), 0.5), n->out));
}

void gr_rsqrt(Ad *ad, const Node *n) {
  ValueId cube = mul(ad, mul(ad, n->out, n->out), n->out);
  ad_give(ad, n->in[0], mul(ad, times(ad, ad_cot(ad, n, 0), -0.5), cube));
}

void gr_tanh(Ad *ad, const Node *n) {
  ValueId one = number(ad, n->out, 1);
  ValueId slope = g_binary(ad_graph(ad), OP_SUB, one, mul(ad, n->out, n->out));
  ad_give(ad, n->in[0], mul(ad, ad_cot(ad, n, 0), slope));
}

void gr_erf(Ad *ad, const Node *n) {
  ValueId x = n->in[0];
  ValueId bell = g_unary(ad_graph(ad), OP_EXP, neg(ad, mul(ad, x, x)));
  ad_give(ad, x, mul(ad, ad_cot(ad, n, 0), times(ad, bell, M_2_SQRTPI)));
}

void gr_sin(Ad *ad, const Node *n) {
  ad_give(ad, n->in[0], mul(ad, ad_cot(ad, n, 0), g_unary(ad_graph(ad), OP_COS, n->in[0])));
}

void gr_cos(Ad *ad, const Node *n) {
  ValueId slope = neg(ad, g_unary(ad_graph(ad), OP_SIN, n->in[0]));
  ad_give(ad, n->in[0], mul(ad, ad_cot(ad, n, 0), slope));
}

void gr_cast(Ad *ad, const Node *n) {
  Graph *g = ad_graph(ad);
  ad_give(ad, n->in[0], g_cast(g, ad_cot(ad, n, 0), val(g, n->in[0])->dtype));
}

/* ---- two and three operands ---- */

void gr_add(Ad *ad, const Node *n) {
  ad_give(ad, n->in[0], ad_cot(ad, n, 0));
  ad_give(ad, n->in[1], ad_cot(ad, n, 0));
}

void gr_sub(Ad *ad, const Node *n) {
  ad_give(ad, n->in[0], ad_cot(ad, n, 0));
  if (ad_needs(ad, n->in[1])) ad_give(ad, n->in[1], neg(ad, ad_cot(ad, n, 0)));
}

void gr_mul(Ad *ad, const Node *n) {
  ValueId d = ad_cot(ad, n, 0);
  if (ad_needs(ad, n->in[1])) ad_give(ad, n->in[1], mul(ad, d, n->in[0]));
  if (ad_needs(ad, n->in[0])) ad_give(ad, n->in[0], mul(ad, d, n->in[1]));
}

void gr_div(Ad *ad, const Node *n) {
  ValueId da = quot(ad, ad_cot(ad, n, 0), n->in[1]);
  if (ad_needs(ad, n->in[1])) ad_give(ad, n->in[1], neg(ad, mul(ad, da, n->out)));
  ad_give(ad, n->in[0], da);
}

/* a ** b: d b a^(b-1) for a; d y log(a) for b, 0 where a <= 0. */
void gr_pow(Ad *ad, const Node *n) {
  Graph *g = ad_graph(ad);
  ValueId a = n->in[0], b = n->in[1], d = ad_cot(ad, n, 0);
  if (ad_needs(ad, a)) {
    const Node *e = node_of(g, b);
    double p = e->op == OP_CONST ? e->num[0] : NAN;
    ValueId less = p == 2 ? a : g_binary(g, OP_POW, a, add(ad, b, number(ad, b, -1)));
    ad_give(ad, a, mul(ad, mul(ad, d, b), less));
  }
  if (ad_needs(ad, b)) {
    ValueId zero = number(ad, a, 0);
    ValueId slope = mul(ad, mul(ad, d, n->out), g_unary(g, OP_LOG, a));
    ad_give(ad, b, choose(ad, g_binary(g, OP_LT, zero, a), slope, zero));
  }
}

/* d goes to the first operand where `first` holds, else to the second. */
static void give_either(Ad *ad, const Node *n, ValueId first, ValueId a, ValueId b) {
  ValueId d = ad_cot(ad, n, 0), zero = number(ad, d, 0);
  if (ad_needs(ad, a)) ad_give(ad, a, choose(ad, first, d, zero));
  if (ad_needs(ad, b)) ad_give(ad, b, choose(ad, first, zero, d));
}

void gr_max(Ad *ad, const Node *n) {
  ValueId first = g_binary(ad_graph(ad), OP_LE, n->in[1], n->in[0]);
  give_either(ad, n, first, n->in[0], n->in[1]);
}

void gr_min(Ad *ad, const Node *n) {
  ValueId first = g_binary(ad_graph(ad), OP_LE, n->in[0], n->in[1]);
  give_either(ad, n, first, n->in[0], n->in[1]);
}

void gr_select(Ad *ad, const Node *n) {
  give_either(ad, n, n->in[0], n->in[1], n->in[2]);
}

/* ---- index maps ---- */

/* Sums d over the axes of its shape that `axes` does not list. */
static ValueId sum_others(Ad *ad, ValueId d, int n, const int64_t *axes) {
  int rank = val(ad_graph(ad), d)->shape.rank, count = 0;
  int64_t others[MAX_RANK];
  for (int k = 0, i = 0; k < rank; k++) {
    if (i < n && axes[i] == k)
      i++;
    else
      others[count++] = k;
  }
  return count ? g_reduce(ad_graph(ad), OP_SUM, d, count, others) : d;
}

void gr_broadcast(Ad *ad, const Node *n) {
  const int64_t *axes;
  int count = node_list(n, "axes", &axes);
  ad_give(ad, n->in[0], sum_others(ad, ad_cot(ad, n, 0), count, axes));
}

void gr_reshape(Ad *ad, const Node *n) {
  ad_give(ad, n->in[0], g_reshape(ad_graph(ad), ad_cot(ad, n, 0), *shape_in(ad, n, 0)));
}

void gr_transpose(Ad *ad, const Node *n) {
  const int64_t *perm;
  int64_t inverse[MAX_RANK];
  int rank = node_list(n, "perm", &perm);
  for (int k = 0; k < rank; k++) inverse[perm[k]] = k;
  ad_give(ad, n->in[0], g_transpose(ad_graph(ad), ad_cot(ad, n, 0), inverse));
}

void gr_slice(Ad *ad, const Node *n) {
  const Shape s = *shape_in(ad, n, 0);
  const int64_t *start, *stop;
  int64_t after[MAX_RANK];
  int cut = 0, axis = 0;
  node_list(n, "start", &start);
  node_list(n, "stop", &stop);
  for (int k = 0; k < s.rank; k++) {
    after[k] = s.dim[k] - stop[k];
    if (!start[k] && !after[k]) continue;
    cut++;
    axis = k;
  }
  ValueId d = ad_cot(ad, n, 0);
  if (!cut)
    ad_give(ad, n->in[0], d);
  else if (cut == 1)
    ad_give_slice(ad, n->in[0], axis, start[axis], d);
  else
    ad_give(ad, n->in[0], g_pad(ad_graph(ad), d, start, after));
}

void gr_pad(Ad *ad, const Node *n) {
  const Shape s = *shape_in(ad, n, 0);
  const int64_t *before;
  node_list(n, "before", &before);
  ValueId d = ad_cot(ad, n, 0);
  for (int k = 0; k < s.rank; k++)
    if (val(ad_graph(ad), d)->shape.dim[k] != s.dim[k])
      d = g_slice(ad_graph(ad), d, k, before[k], before[k] + s.dim[k]);
  ad_give(ad, n->in[0], d);
}

void gr_concat(Ad *ad, const Node *n) {
  int axis = (int)node_int(n, "axis");
  int64_t at = 0;
  for (int i = 0; i < n->nin; i++) {
    int64_t len = shape_in(ad, n, i)->dim[axis];
    if (ad_needs(ad, n->in[i]))
      ad_give(ad, n->in[i], g_slice(ad_graph(ad), ad_cot(ad, n, 0), axis, at, at + len));
    at += len;
  }
}

/* ---- reductions ---- */

/* r, with the reduced axes of n dropped, in the shape of its operand again. */
static ValueId spread(Ad *ad, const Node *n, ValueId r) {
  const Shape to = *shape_in(ad, n, 0);
  const Node *d = node_of(ad_graph(ad), r);
  if (d->op == OP_CONST) return number(ad, n->in[0], d->num[0]);
  const int64_t *axes;
  int64_t kept[MAX_RANK];
  int count = node_list(n, "axes", &axes);
  for (int k = 0, i = 0, at = 0; k < to.rank; k++) {
    if (i < count && axes[i] == k)
      i++;
    else
      kept[at++] = k;
  }
  return g_broadcast(ad_graph(ad), r, to, kept);
}

void gr_sum(Ad *ad, const Node *n) {
  ad_give(ad, n->in[0], spread(ad, n, ad_cot(ad, n, 0)));
}

/* The gradient goes to the elements equal to the maximum, in equal shares. */
void gr_amax(Ad *ad, const Node *n) {
  Graph *g = ad_graph(ad);
  ValueId x = n->in[0];
  const int64_t *axes;
  int count = node_list(n, "axes", &axes);
  ValueId top = g_binary(g, OP_EQ, x, spread(ad, n, n->out));
  ValueId ties = g_reduce(g, OP_SUM, g_cast(g, top, val(g, x)->dtype), count, axes);
  ValueId share = spread(ad, n, quot(ad, ad_cot(ad, n, 0), ties));
  ad_give(ad, x, choose(ad, top, share, number(ad, x, 0)));
}

/* ---- rows by index ---- */

void gr_gather(Ad *ad, const Node *n) {
  const Value table = *val(ad_graph(ad), n->in[0]);
  ad_give(ad, n->in[0],
          g_scatter_add(ad_graph(ad), n->in[1], ad_cot(ad, n, 0), table.shape.dim[0], table.dtype));
}
