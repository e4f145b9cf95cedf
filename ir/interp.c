/* interp.c - reference semantics: runs a graph on the host in f64; leaves, element-wise ops,
 * effects.
 *
 * Written to be plainly right, not fast: it is what compiled programs are tested against. */
#include "formats.h"
#include "interp.h"
#include <math.h>
#include <string.h>
#include "philox.h"

static EvalRule *const rules[OP_COUNT] = {
#define OP(id, text, nin, nout, attrs, shape, grad, eval, kind, doc) [id] = eval,
#include "ops.def"
};

/* ---- rounding ---- */

/* To `bits` bits of significand with least normal exponent `emin`; over `max` becomes infinite. */
static double round_float(double x, int bits, int emin, double max) {
  if (x == 0 || !isfinite(x)) return x;
  int e;
  frexp(x, &e); /* |x| in [2^(e-1), 2^e) */
  if (e - 1 < emin) e = emin + 1;
  double quantum = ldexp(1, e - bits), r = rint(x / quantum) * quantum;
  return fabs(r) > max ? copysign(INFINITY, x) : r;
}

double ev_round(DType t, double x) {
  switch (t) {
    case DT_F32:
      return (float)x;
    case DT_BF16:
      return round_float((float)x, 8, -126, 0x1.fep127);
    case DT_F16:
      return round_float((float)x, 11, -14, 65504);
    case DT_I32:
      return (int32_t)(uint32_t)(int64_t)x;
    case DT_U32:
      return (uint32_t)(int64_t)x;
    case DT_I8:
      return (int8_t)(uint8_t)(int64_t)x;
    case DT_BOOL:
      return x != 0;
    case DT_U16:
      return (uint16_t)(int64_t)x;
    case DT_U8:
      return (uint8_t)(int64_t)x;
    case DT_COUNT:
      break;
  }
  bug("no dtype %d", (int)t);
}

/* ---- leaves ---- */

void ev_input(Ev *e, const Node *n) {
  for (int i = 0; i < e->run->ninputs; i++) {
    if (strcmp(e->run->inputs[i].name, n->sym)) continue;
    size_t bytes = sizeof(double) * shape_count(&ev_out(e, n)->shape);
    memcpy(e->v[n->out], e->run->inputs[i].data, bytes);
    return;
  }
  bug("graph `%s` has input `%s`, which the interpreter was not given", e->g->name, n->sym);
}

void ev_var(Ev *e, const Node *n) {
  double **var = &e->run->vars[n->ints[0]];
  size_t bytes = sizeof(double) * shape_count(&ev_out(e, n)->shape);
  if (!*var) *var = arena_alloc(e->arena, bytes);
  memcpy(e->v[n->out], *var, bytes);
}

void ev_assign(Ev *e, const Node *n) {
  size_t bytes = sizeof(double) * shape_count(ev_shape(e, n, 0));
  e->run->vars[n->ints[0]] = arena_copy(e->arena, ev_in(e, n, 0), bytes);
}

void ev_const(Ev *e, const Node *n) {
  int64_t count = shape_count(&ev_out(e, n)->shape);
  for (int64_t i = 0; i < count; i++) e->v[n->out][i] = n->num[0];
}

void ev_iota(Ev *e, const Node *n) {
  const Shape *s = &ev_out(e, n)->shape;
  int64_t stride[MAX_RANK], axis = node_int(n, "axis"), count = shape_count(s);
  shape_strides(s, stride);
  for (int64_t i = 0; i < count; i++) e->v[n->out][i] = (double)(i / stride[axis] % s->dim[axis]);
}

void ev_random(Ev *e, const Node *n) {
  const Value *out = ev_out(e, n);
  int64_t stride[MAX_RANK], batch = node_int(n, "batch"), count = shape_count(&out->shape);
  shape_strides(&out->shape, stride);
  unsigned long long key = (unsigned long long)node_int(n, "key");
  const double *seed = ev_in(e, n, 0);
  unsigned step = (unsigned)(int64_t)ev_in(e, n, 1)[0];
  int64_t sample0 = (int64_t)ev_in(e, n, 2)[0];
  for (int64_t i = 0; i < count; i++) {
    int64_t element = i, sample = batch == RANDOM_MICRO ? sample0 : 0;
    if (batch >= 0) {
      int64_t below = stride[batch], dim = out->shape.dim[batch];
      element = i / (below * dim) * below + i % below;
      sample = sample0 + i / below % dim;
    }
    unsigned bits = philox_bits((unsigned)seed[0], (unsigned)seed[1], key, step, (unsigned)sample,
                                (unsigned long long)element);
    e->v[n->out][i] = out->dtype == DT_U32 ? (double)bits : (double)philox_uniform(bits);
  }
}

/* ---- element-wise ---- */

static double float_unary(Op op, double a) {
  switch (op) {
    case OP_NEG:
      return -a;
    case OP_ABS:
      return fabs(a);
    case OP_EXP:
      return exp(a);
    case OP_LOG:
      return log(a);
    case OP_SQRT:
      return sqrt(a);
    case OP_RSQRT:
      return 1 / sqrt(a);
    case OP_TANH:
      return tanh(a);
    case OP_ERF:
      return erf(a);
    case OP_SIN:
      return sin(a);
    case OP_COS:
      return cos(a);
    case OP_FLOOR:
      return floor(a);
    case OP_NOT:
      return a == 0;
    case OP_FINITE:
      return isfinite(a);
    case OP_HOLD:
      return a;
    default:
      bug("`%s` is not a function of one number", op_name(op));
  }
}

/* Comparisons and logic serve integers as well: all their values are exact in f64. */
static double float_binary(Op op, double a, double b) {
  switch (op) {
    case OP_ADD:
      return a + b;
    case OP_SUB:
      return a - b;
    case OP_MUL:
      return a * b;
    case OP_DIV:
      return a / b;
    case OP_POW:
      return pow(a, b);
    case OP_MAX:
      return isnan(a) || a >= b ? a : b;
    case OP_MIN:
      return isnan(a) || a <= b ? a : b;
    case OP_LT:
      return a < b;
    case OP_LE:
      return a <= b;
    case OP_EQ:
      return a == b;
    case OP_AND:
      return a != 0 && b != 0;
    case OP_OR:
      return a != 0 || b != 0;
    default:
      bug("`%s` is not a function of two numbers", op_name(op));
  }
}

/* Exact in 64 bits, or right modulo 2^64, of which the dtype keeps the low bits. Division by zero
 * gives 0. */
static double int_binary(Op op, DType t, double x, double y) {
  int64_t a = (int64_t)x, b = (int64_t)y, r = 0;
  switch (op) {
    case OP_ADD:
      r = a + b;
      break;
    case OP_SUB:
      r = a - b;
      break;
    case OP_MUL:
      r = (int64_t)((uint64_t)a * (uint64_t)b);
      break;
    case OP_DIV:
      r = b ? a / b : 0;
      break;
    case OP_MOD:
      r = b ? a % b : 0;
      break;
    default:
      return float_binary(op, x, y);
  }
  return ev_round(t, (double)(int64_t)(uint32_t)r);
}

/* Float to integer cuts towards zero and stops at the ends of the range; integers wrap. */
static double cast(DType from, DType to, double x) {
  if (dtype_is_float(to)) return x;
  if (to == DT_BOOL) return x != 0;
  if (dtype_is_float(from)) {
    if (isnan(x)) return 0;
    double lo = to == DT_I32 ? INT32_MIN : to == DT_I8 ? INT8_MIN : 0;
    double hi = ldexp(1, 8 * dtype_bytes(to) - (lo < 0)) - 1;
    return trunc(x < lo ? lo : x > hi ? hi : x);
  }
  return ev_round(to, x);
}

void ev_elem(Ev *e, const Node *n) {
  const Value *first = val(e->g, n->in[0]);
  int64_t count = shape_count(&first->shape);
  const double *a = ev_in(e, n, 0), *b = n->nin > 1 ? ev_in(e, n, 1) : NULL;
  double *y = e->v[n->out];
  bool floats = dtype_is_float(first->dtype);
  if (n->op == OP_SELECT) {
    const double *c = ev_in(e, n, 2);
    for (int64_t i = 0; i < count; i++) y[i] = a[i] != 0 ? b[i] : c[i];
  } else if (n->op == OP_CAST) {
    DType to = ev_out(e, n)->dtype;
    for (int64_t i = 0; i < count; i++) y[i] = cast(first->dtype, to, a[i]);
  } else if (n->nin == 1) {
    for (int64_t i = 0; i < count; i++) y[i] = float_unary(n->op, a[i]);
    DType t = ev_out(e, n)->dtype; /* -x and |x| of the least integer wrap */
    for (int64_t i = 0; i < count && !dtype_is_float(t); i++) y[i] = ev_round(t, y[i]);
  } else {
    for (int64_t i = 0; i < count; i++)
      y[i] = floats ? float_binary(n->op, a[i], b[i]) : int_binary(n->op, first->dtype, a[i], b[i]);
  }
}

/* The f32 functions of formats.h, whatever the precision of the run. */
void ev_format(Ev *e, const Node *n) {
  int64_t count = shape_count(ev_shape(e, n, 0));
  const double *a = ev_in(e, n, 0), *b = n->nin > 1 ? ev_in(e, n, 1) : a;
  for (int64_t i = 0; i < count; i++) {
    double *y = &e->v[n->out][i];
    float x = (float)a[i];
    switch (n->op) {
      case OP_HIGH: *y = format_high(x); break;
      case OP_LOW: *y = format_low(x); break;
      case OP_JOIN: *y = format_join(x, (unsigned)b[i]); break;
      case OP_STOCHASTIC: *y = format_stochastic(x, (unsigned)b[i]); break;
      case OP_QUANT8: *y = format_quant8(x); break;
      case OP_QUANT8U: *y = format_quant8u(x); break;
      case OP_DEQUANT8: *y = format_dequant8((unsigned)a[i]); break;
      default: *y = format_dequant8u((unsigned)a[i]);
    }
  }
}

void ev_not_yet(Ev *e, const Node *n) {
  (void)e;
  bug("the interpreter does not have `%s` yet", op_name(n->op));
}

/* ---- the driver ---- */

static void round_results(const Ev *e, const Node *n) {
  for (int k = 0; k < n->nout; k++) {
    const Value *v = &e->g->values.at[n->out + k];
    if (!dtype_is_float(v->dtype)) continue;
    int64_t count = shape_count(&v->shape);
    for (int64_t i = 0; i < count; i++)
      e->v[n->out + k][i] = ev_round(v->dtype, e->v[n->out + k][i]);
  }
}

double **graph_interp(const Graph *g, const Interp *in) {
  Ev e = {.g = g, .run = in, .arena = in->arena};
  e.v = arena_array(in->arena, double *, g->values.n + 1);
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *n = &g->nodes.at[i];
    for (int k = 0; k < n->nout; k++)
      e.v[n->out + k] =
          arena_array(in->arena, double, shape_count(&g->values.at[n->out + k].shape));
    rules[n->op](&e, n);
    if (!in->exact) round_results(&e, n);
  }
  return e.v;
}
