/* simplify_elem.c - rules of element-wise ops, reductions and contractions: constants, identities,
 * casts, transposes absorbed by contractions. Each gives the same bits as what it replaces. */
#include <math.h>
#include <string.h>

#include "simplify_rules.h"

double round_to(double x, DType t) {
  static const struct {
    int mantissa, min_exp;
    double top;
  } format[DT_COUNT] = {[DT_F32] = {23, -126, 0x1.fffffep127},
                        [DT_BF16] = {7, -126, 0x1.fep127},
                        [DT_F16] = {10, -14, 65504}};
  if (!dtype_is_float(t) || x == 0 || !isfinite(x)) return x;
  int e = ilogb(x);
  if (e < format[t].min_exp) e = format[t].min_exp;
  double unit = ldexp(1, e - format[t].mantissa);
  double r = nearbyint(x / unit) * unit;
  return fabs(r) > format[t].top ? copysign(INFINITY, x) : r;
}

/* a op b as compiled code computes it on f32; false when it is not exactly defined. */
static bool fold_float(Op op, double x, double y, double *r) {
  float a = (float)x, b = (float)y;
  switch (op) {
    case OP_NEG:
      *r = -a;
      return true;
    case OP_ABS:
      *r = fabsf(a);
      return true;
    case OP_SQRT:
      *r = sqrtf(a);
      return true;
    case OP_FLOOR:
      *r = floorf(a);
      return true;
    case OP_ADD:
      *r = a + b;
      return true;
    case OP_SUB:
      *r = a - b;
      return true;
    case OP_MUL:
      *r = a * b;
      return true;
    case OP_DIV:
      *r = a / b;
      return true;
    default:
      return false;
  }
}

static bool fold_int(Op op, double x, double y, double *r) {
  double limit = 1 << 30;
  switch (op) {
    case OP_ADD:
      *r = x + y;
      break;
    case OP_SUB:
      *r = x - y;
      break;
    case OP_MUL:
      *r = x * y;
      break;
    default:
      return false;
  }
  return fabs(*r) < limit && fabs(x) < limit && fabs(y) < limit;
}

static ValueId fold(Simplify *s, const Proto *p) {
  double x[3] = {0};
  if (p->nin < 1 || p->nin > 2) return -1;
  for (int k = 0; k < p->nin; k++)
    if (!sm_is_const(s, p->in[k], &x[k])) return -1;
  const Value v = *val(s->g, p->in[0]);
  if (!dtype_is_float(v.dtype) && v.dtype != DT_I32 && v.dtype != DT_BOOL) return -1;
  double r;
  switch (p->op) {
    case OP_LT:
      return sm_const(s, DT_BOOL, &v.shape, x[0] < x[1]);
    case OP_LE:
      return sm_const(s, DT_BOOL, &v.shape, x[0] <= x[1]);
    case OP_EQ:
      return sm_const(s, DT_BOOL, &v.shape, x[0] == x[1]);
    case OP_NOT:
      return sm_const(s, DT_BOOL, &v.shape, x[0] == 0);
    case OP_AND:
      return sm_const(s, DT_BOOL, &v.shape, x[0] != 0 && x[1] != 0);
    case OP_OR:
      return sm_const(s, DT_BOOL, &v.shape, x[0] != 0 || x[1] != 0);
    default:
      break;
  }
  if (v.dtype == DT_BOOL) return -1;
  bool is_float = dtype_is_float(v.dtype);
  if (!(is_float ? fold_float(p->op, x[0], x[1], &r) : fold_int(p->op, x[0], x[1], &r))) return -1;
  return sm_const(s, v.dtype, &v.shape, round_to(r, v.dtype));
}

/* Every value of `from` is a value of `to`. */
static bool widens(DType from, DType to) {
  return from == to || (to == DT_F32 && (from == DT_BF16 || from == DT_F16));
}

static ValueId simplify_cast(Simplify *s, const Proto *p) {
  DType t = (DType)p->ints[0];
  ValueId v = p->in[0];
  const Value x = *val(s->g, v);
  const Node d = *node_of(s->g, v);
  if (x.dtype == t) return v;
  bool narrows = dtype_is_float(t) && dtype_bytes(t) < dtype_bytes(x.dtype);
  switch (d.op) {
    case OP_CONST:
      if (dtype_is_float(t))
        return sm_const(s, t, &x.shape, round_to(round_to(d.num[0], DT_F32), t));
      if (t == DT_BOOL || !dtype_is_float(x.dtype)) return -1;
      return fabs(d.num[0]) < (1 << 30) ? sm_const(s, t, &x.shape, trunc(d.num[0])) : -1;
    case OP_CAST: {
      DType inner = val(s->g, d.in[0])->dtype;
      return widens(inner, x.dtype) ? sm_cast(s, d.in[0], t) : -1;
    }
    case OP_BROADCAST: {
      const int64_t *axes;
      node_list(&d, "axes", &axes);
      return sm_broadcast(s, sm_cast(s, d.in[0], t), &x.shape, axes);
    }
    case OP_PAD: {
      const int64_t *before, *after;
      if (!narrows) return -1;
      node_list(&d, "before", &before);
      node_list(&d, "after", &after);
      return sm_pad(s, sm_cast(s, d.in[0], t), before, after);
    }
    case OP_CONCAT: {
      if (!narrows || !s->single) return -1;
      ValueId *in = arena_array(s->arena, ValueId, d.nin);
      for (int k = 0; k < d.nin; k++) in[k] = sm_cast(s, d.in[k], t);
      return sm_concat(s, d.nin, in, (int)d.ints[0]);
    }
    default:
      return -1;
  }
}

static ValueId binary(Simplify *s, Op op, ValueId a, ValueId b) {
  ValueId in[] = {a, b};
  return simplified(s, &(Proto){.op = op, .nin = 2, .in = in});
}

/* The only axis that a pad touches, or -1. */
static int pad_axis(const Node *n, int64_t *before, int64_t *after) {
  const int64_t *b, *e;
  int rank = node_list(n, "before", &b), axis = -1;
  node_list(n, "after", &e);
  for (int k = 0; k < rank; k++) {
    if (!b[k] && !e[k]) continue;
    if (axis >= 0) return -1;
    axis = k;
    *before = b[k];
    *after = e[k];
  }
  return axis;
}

/* Pads of neighbouring parts of one axis: their sum is the pad of both joined. */
static ValueId add_pads(Simplify *s, ValueId a, ValueId b) {
  const Node x = *node_of(s->g, a), y = *node_of(s->g, b);
  int64_t xb = 0, xe = 0, yb = 0, ye = 0;
  if (x.op != OP_PAD || y.op != OP_PAD) return -1;
  int axis = pad_axis(&x, &xb, &xe);
  if (axis < 0 || pad_axis(&y, &yb, &ye) != axis) return -1;
  const Shape all = val(s->g, a)->shape;
  bool x_first = all.dim[axis] - xe == yb;
  if (!x_first && all.dim[axis] - ye != xb) return -1;
  ValueId parts[] = {x_first ? x.in[0] : y.in[0], x_first ? y.in[0] : x.in[0]};
  int64_t before[MAX_RANK] = {0}, after[MAX_RANK] = {0};
  before[axis] = x_first ? xb : yb;
  after[axis] = x_first ? ye : xe;
  return sm_pad(s, sm_concat(s, 2, parts, axis), before, after);
}

static ValueId simplify_sum_of_two(Simplify *s, const Proto *p) {
  ValueId a = p->in[0], b = p->in[1];
  const Node x = *node_of(s->g, a), y = *node_of(s->g, b);
  bool is_float = dtype_is_float(val(s->g, a)->dtype);
  double c;
  if (sm_is_const(s, b, &c) && c == 0) return a;
  if (sm_is_const(s, a, &c) && c == 0) return b;
  if (is_float && y.op == OP_NEG) return binary(s, OP_SUB, a, y.in[0]);
  if (is_float && x.op == OP_NEG) return binary(s, OP_SUB, b, x.in[0]);
  return add_pads(s, a, b);
}

static ValueId simplify_select(Simplify *s, const Proto *p) {
  double c;
  if (sm_is_const(s, p->in[0], &c)) return c != 0 ? p->in[1] : p->in[2];
  return p->in[1] == p->in[2] ? p->in[1] : -1;
}

/* ---- contractions ---- */

/* Axes of an operand in a dot's lists, renamed through the transpose that made it. False when free
 * axes change order. */
static bool absorb(const Graph *g, ValueId *operand, int64_t *batch, int nbatch, int64_t *con,
                   int ncon) {
  const Node *t = node_of(g, *operand);
  if (t->op != OP_TRANSPOSE) return false;
  const int64_t *perm = t->ints + 1;
  int rank = val(g, *operand)->shape.rank;
  bool bound[MAX_RANK] = {false};
  for (int k = 0; k < nbatch; k++) bound[batch[k]] = true;
  for (int k = 0; k < ncon; k++) bound[con[k]] = true;
  int64_t last = -1;
  for (int k = 0; k < rank; k++) {
    if (bound[k]) continue;
    if (perm[k] < last) return false;
    last = perm[k];
  }
  for (int k = 0; k < nbatch; k++) batch[k] = perm[batch[k]];
  for (int k = 0; k < ncon; k++) con[k] = perm[con[k]];
  *operand = t->in[0];
  return true;
}

static ValueId simplify_dot(Simplify *s, const Proto *p) {
  int64_t ints[4 * (MAX_RANK + 1) + 1];
  memcpy(ints, p->ints, sizeof *ints * (size_t)p->nints);
  int nbatch = (int)ints[0];
  int64_t *batch_a = ints + 1, *batch_b = batch_a + nbatch + 1, *con_a = batch_b + nbatch + 1;
  int ncon = (int)con_a[-1];
  int64_t *con_b = con_a + ncon + 1;
  ValueId in[] = {p->in[0], p->in[1]};
  bool changed = absorb(s->g, &in[0], batch_a, nbatch, con_a, ncon);
  changed |= absorb(s->g, &in[1], batch_b, nbatch, con_b, ncon);
  if (!changed) return -1;
  return simplified(s, &(Proto){.op = OP_DOT, .nin = 2, .in = in, .nints = p->nints, .ints = ints});
}

static ValueId simplify_gather(Simplify *s, const Proto *p) {
  const Node ids = *node_of(s->g, p->in[1]);
  const Shape shape = val(s->g, p->in[1])->shape, table = val(s->g, p->in[0])->shape;
  if (ids.op != OP_IOTA || shape.rank != 1 || shape.dim[0] > table.dim[0]) return -1;
  int64_t start[MAX_RANK] = {0}, stop[MAX_RANK];
  memcpy(stop, table.dim, sizeof stop);
  stop[0] = shape.dim[0];
  return sm_slice(s, p->in[0], start, stop);
}

static ValueId simplify_reduce(Simplify *s, const Proto *p) {
  if (p->op == OP_ARGMAX) return -1;
  const Shape from = val(s->g, p->in[0])->shape;
  Shape to = {0};
  int64_t summed = 1;
  for (int k = 0, i = 1; k < from.rank; k++) {
    if (i < p->nints && p->ints[i] == k) {
      summed *= from.dim[k];
      i++;
    } else {
      to.axis[to.rank] = from.axis[k];
      to.dim[to.rank++] = from.dim[k];
    }
  }
  return summed == 1 ? sm_reshape(s, p->in[0], &to) : -1;
}

ValueId simplify_elem(Simplify *s, const Proto *p) {
  double c;
  ValueId folded = fold(s, p);
  if (folded >= 0) return folded;
  switch (p->op) {
    case OP_CAST:
      return simplify_cast(s, p);
    case OP_HOLD:
      return s->with_holds ? -1 : p->in[0];
    case OP_NEG:
      return node_of(s->g, p->in[0])->op == OP_NEG ? node_of(s->g, p->in[0])->in[0] : -1;
    case OP_NOT:
      return node_of(s->g, p->in[0])->op == OP_NOT ? node_of(s->g, p->in[0])->in[0] : -1;
    case OP_ADD:
      return simplify_sum_of_two(s, p);
    case OP_SUB:
      return sm_is_const(s, p->in[1], &c) && c == 0 ? p->in[0] : -1;
    case OP_MUL:
      if (sm_is_const(s, p->in[0], &c) && c == 1) return p->in[1];
      return sm_is_const(s, p->in[1], &c) && c == 1 ? p->in[0] : -1;
    case OP_DIV:
      return sm_is_const(s, p->in[1], &c) && c == 1 ? p->in[0] : -1;
    case OP_SELECT:
      return simplify_select(s, p);
    case OP_DOT:
      return simplify_dot(s, p);
    case OP_GATHER:
      return simplify_gather(s, p);
    case OP_SUM:
    case OP_AMAX:
      return simplify_reduce(s, p);
    default:
      return -1;
  }
}
