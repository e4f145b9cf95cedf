/* shape.c - shape rules of leaves, element-wise ops, index maps and reductions. See infer.h for the
 * contract.
 *
 * Axis names: element-wise results take the first name that an operand has; slices and pads keep a
 * name while the size stays; reduced axes vanish; attributes hold sizes only, so that the typed
 * builders add the names of a given shape afterwards. */
#include <string.h>
#include "infer.h"

static ShapeRule *const rules[OP_COUNT] = {
#define OP(id, text, nin, nout, attrs, shape, grad, eval, kind, doc) [id] = shape,
#include "ops.def"
};

/* ---- helpers of all rules ---- */

bool infer_fail(Infer *f, ErrId id, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  f->err = id;
  f->message = arena_vprintf(f->arena, fmt, ap);
  va_end(ap);
  return false;
}

void infer_note(Infer *f, const char *fmt, ...) {
  if (f->nnotes == MAX_NOTES) return;
  va_list ap;
  va_start(ap, fmt);
  f->notes[f->nnotes++] = arena_vprintf(f->arena, fmt, ap);
  va_end(ap);
}

const char *op_symbol(Op op) {
  switch (op) {
    case OP_ADD:
      return "+";
    case OP_SUB:
      return "-";
    case OP_NEG:
      return "-";
    case OP_MUL:
      return "*";
    case OP_DIV:
      return "/";
    case OP_MOD:
      return "%";
    case OP_POW:
      return "**";
    case OP_LT:
      return "<";
    case OP_LE:
      return "<=";
    case OP_EQ:
      return "==";
    case OP_DOT:
      return "@";
    default:
      return op_name(op);
  }
}

const Value *infer_in(const Infer *f, int i) {
  return val(f->g, f->in[i]);
}

static Attr attr_of(const Infer *f, const char *name) {
  return attr_find(f->op, f->nints, f->ints, name);
}

int64_t infer_int(const Infer *f, const char *name) {
  return f->ints[attr_of(f, name).at];
}

int infer_list(const Infer *f, const char *name, const int64_t **items) {
  Attr a = attr_of(f, name);
  *items = f->ints + a.at;
  return a.len;
}

/* Far above any tensor, and low enough that sizes in bytes cannot overflow. */
#define MAX_ELEMENTS ((int64_t)1 << 58)

bool infer_shape_ok(Infer *f, const Shape *s) {
  int64_t n = 1;
  if (s->rank > MAX_RANK)
    return infer_fail(f, E_RANK, "`%s` gives %d axes; %d are the most there can be",
                      op_symbol(f->op), s->rank, MAX_RANK);
  for (int i = 0; i < s->rank; i++) {
    if (s->dim[i] < 1)
      return infer_fail(f, E_SHAPE, "`%s` gives axis %d the size %lld; sizes are at least 1",
                        op_symbol(f->op), i, (long long)s->dim[i]);
    if (__builtin_mul_overflow(n, s->dim[i], &n) || n > MAX_ELEMENTS)
      return infer_fail(f, E_SHAPE, "`%s` gives a value of more elements than can be counted",
                        op_symbol(f->op));
  }
  return true;
}

bool infer_out(Infer *f, DType t, const Shape *s) {
  if (!infer_shape_ok(f, s)) return false;
  f->nout = 1;
  f->out[0] = (Type){t, *s};
  return true;
}

bool infer(Infer *f) {
  int nin = op_operands(f->op);
  if (nin >= 0 ? f->nin != nin : f->nin < 1)
    return infer_fail(f, E_ARGUMENT, "`%s` takes %d operands, got %d", op_symbol(f->op),
                      nin < 0 ? 1 : nin, f->nin);
  Attr all[MAX_ATTRS];
  int n = attr_layout(f->op, f->nints, f->ints, MAX_ATTRS, all);
  if (n < 0) return infer_fail(f, E_ARGUMENT, "`%s` has malformed attributes", op_name(f->op));
  for (int i = 0; i < n; i++) {
    if (all[i].kind == 's' && (!f->sym || !*f->sym))
      return infer_fail(f, E_ARGUMENT, "`%s` needs a %s", op_name(f->op), all[i].name);
    if (all[i].kind == 'd' && (f->ints[all[i].at] < 0 || f->ints[all[i].at] >= DT_COUNT))
      return infer_fail(f, E_TYPE, "`%s` has no such dtype: %lld", op_name(f->op),
                        (long long)f->ints[all[i].at]);
  }
  return rules[f->op](f);
}

static const char *text_of(const Infer *f, const Shape *s) {
  return shape_text(f->arena, s);
}

/* "T=1024" or "1024". */
static const char *dim_text(const Infer *f, const Shape *s, int axis) {
  return s->axis[axis] ? arena_printf(f->arena, "%s=%lld", s->axis[axis], (long long)s->dim[axis])
                       : arena_printf(f->arena, "%lld", (long long)s->dim[axis]);
}

/* The list attribute `name` as a shape without names; the rank is checked, the sizes are not. */
static bool shape_attr(Infer *f, const char *name, Shape *s) {
  const int64_t *dim;
  int rank = infer_list(f, name, &dim);
  if (rank > MAX_RANK)
    return infer_fail(f, E_RANK, "`%s` gets %d axes; %d are the most there can be",
                      op_symbol(f->op), rank, MAX_RANK);
  *s = shape_of(rank, dim);
  return true;
}

/* Axis lists: ascending, without repeats, inside rank. */
static bool axes_ok(Infer *f, int n, const int64_t *axes, int rank) {
  for (int i = 0; i < n; i++) {
    if (axes[i] < 0 || axes[i] >= rank)
      return infer_fail(f, E_AXIS, "`%s` names axis %lld of a value with %d axes", op_symbol(f->op),
                        (long long)axes[i], rank);
    if (i && axes[i] <= axes[i - 1])
      return infer_fail(f, E_AXIS, "the axes of `%s` must ascend", op_symbol(f->op));
  }
  return true;
}

/* ---- leaves ---- */

bool sh_leaf(Infer *f) {
  Shape s;
  if (!shape_attr(f, "shape", &s)) return false;
  DType t = (DType)infer_int(f, "dtype");
  if (f->op == OP_IOTA) {
    int64_t axis = infer_int(f, "axis");
    if (axis < 0 || axis >= s.rank)
      return infer_fail(f, E_AXIS, "`iota` along axis %lld of %s", (long long)axis, text_of(f, &s));
    if (t == DT_BOOL) return infer_fail(f, E_TYPE, "`iota` gives numbers, not bool");
  }
  return infer_out(f, t, &s);
}

/* The variable that attribute `var` names, or NULL after recording the mistake. */
static const Var *var_of(Infer *f) {
  int64_t var = infer_int(f, "var");
  if (f->g->vars && var >= 0 && var < f->g->vars->all.n) return &f->g->vars->all.at[var];
  infer_fail(f, E_UNKNOWN_NAME, "`%s` of variable %lld, which does not exist", op_name(f->op),
             (long long)var);
  return NULL;
}

bool sh_var(Infer *f) {
  const Var *v = var_of(f);
  return v && infer_out(f, v->dtype, &v->shape);
}

bool sh_assign(Infer *f) {
  const Var *v = var_of(f);
  if (!v) return false;
  const Value *x = infer_in(f, 0);
  f->nout = 0;
  if (x->dtype == v->dtype && shape_count(&x->shape) == shape_count(&v->shape)) return true;
  return infer_fail(f, E_SHAPE, "`%s` is %s%s and cannot become %s%s", v->path,
                    dtype_name(v->dtype), v->shape.rank ? text_of(f, &v->shape) : "",
                    dtype_name(x->dtype), x->shape.rank ? text_of(f, &x->shape) : "");
}

bool sh_random(Infer *f) {
  Shape s;
  if (!shape_attr(f, "shape", &s)) return false;
  DType t = (DType)infer_int(f, "dtype");
  int64_t batch = infer_int(f, "batch");
  if (t != DT_U32 && t != DT_F32)
    return infer_fail(f, E_TYPE, "`random` gives u32 or f32, not %s", dtype_name(t));
  if (batch < RANDOM_MICRO || batch >= s.rank)
    return infer_fail(f, E_AXIS, "`random` has no batch axis %lld", (long long)batch);
  const Value *seed = infer_in(f, 0);
  if (seed->dtype != DT_U32 || seed->shape.rank != 1 || seed->shape.dim[0] != 2)
    return infer_fail(f, E_TYPE, "the seed of `random` is u32[2]");
  for (int i = 1; i < 3; i++)
    if (infer_in(f, i)->dtype != DT_I32 || infer_in(f, i)->shape.rank)
      return infer_fail(f, E_TYPE, "step and sample of `random` are i32 scalars");
  return infer_out(f, t, &s);
}

/* ---- element-wise ---- */

/* Operands from..nin-1 have one shape; *s gets it, with the first name that an axis has. */
static bool one_shape(Infer *f, int from, Shape *s) {
  *s = infer_in(f, from)->shape;
  for (int i = from + 1; i < f->nin; i++) {
    const Shape *o = &infer_in(f, i)->shape;
    if (!shape_equal(s, o)) {
      infer_fail(f, E_BROADCAST, "`%s` of %s and %s", op_symbol(f->op), text_of(f, s),
                 text_of(f, o));
      if (s->rank != o->rank)
        infer_note(f, "%d axes and %d", s->rank, o->rank);
      else
        for (int k = 0; k < s->rank; k++)
          if (s->dim[k] != o->dim[k])
            infer_note(f, "axis %d: %s and %s", k, dim_text(f, s, k), dim_text(f, o, k));
      return false;
    }
    for (int k = 0; k < s->rank; k++)
      if (!s->axis[k]) s->axis[k] = o->axis[k];
  }
  return true;
}

static bool one_dtype(Infer *f, int from) {
  for (int i = from + 1; i < f->nin; i++) {
    DType a = infer_in(f, from)->dtype, b = infer_in(f, i)->dtype;
    if (a == b) continue;
    infer_fail(f, E_TYPE, "`%s` of %s and %s", op_symbol(f->op), dtype_name(a), dtype_name(b));
    infer_note(f, "operands of `%s` have one dtype", op_symbol(f->op));
    return false;
  }
  return true;
}

typedef enum { WANT_ANY, WANT_NUMBER, WANT_FLOAT, WANT_INT, WANT_BOOL } Want;

static bool is_wanted(DType t, Want want) {
  switch (want) {
    case WANT_ANY:
      return true;
    case WANT_NUMBER:
      return t != DT_BOOL;
    case WANT_FLOAT:
      return dtype_is_float(t);
    case WANT_INT:
      return !dtype_is_float(t) && t != DT_BOOL;
    case WANT_BOOL:
      return t == DT_BOOL;
  }
  return false;
}

/* Checks equal shapes and dtypes of a wanted family; result dtype t, or the operands' when t is
 * DT_COUNT. */
static bool elementwise(Infer *f, Want want, DType t) {
  static const char *const family[] = {"anything", "numbers", "floats", "integers", "bool"};
  Shape s;
  if (!one_shape(f, 0, &s) || !one_dtype(f, 0)) return false;
  DType in = infer_in(f, 0)->dtype;
  if (!is_wanted(in, want))
    return infer_fail(f, E_TYPE, "`%s` takes %s, not %s", op_symbol(f->op), family[want],
                      dtype_name(in));
  return infer_out(f, t == DT_COUNT ? in : t, &s);
}

bool sh_same(Infer *f) {
  return elementwise(f, f->op == OP_HOLD ? WANT_ANY : WANT_NUMBER, DT_COUNT);
}
bool sh_float(Infer *f) {
  return elementwise(f, WANT_FLOAT, DT_COUNT);
}
bool sh_int(Infer *f) {
  return elementwise(f, WANT_INT, DT_COUNT);
}
bool sh_bool1(Infer *f) {
  return elementwise(f, WANT_BOOL, DT_COUNT);
}
bool sh_bool2(Infer *f) {
  return elementwise(f, WANT_BOOL, DT_COUNT);
}
bool sh_pred1(Infer *f) {
  return elementwise(f, WANT_FLOAT, DT_BOOL);
}
bool sh_pred2(Infer *f) {
  return elementwise(f, f->op == OP_EQ ? WANT_ANY : WANT_NUMBER, DT_BOOL);
}
bool sh_cast(Infer *f) {
  return elementwise(f, WANT_ANY, (DType)infer_int(f, "dtype"));
}

/* ---- formats: operands have the dtypes in[], the result has dtype out ---- */
static bool format_op(Infer *f, const DType *in, DType out) {
  Shape s;
  for (int i = 0; i < f->nin; i++)
    if (infer_in(f, i)->dtype != in[i])
      return infer_fail(f, E_TYPE, "operand %d of `%s` is %s, not %s", i, op_name(f->op),
                        dtype_name(in[i]), dtype_name(infer_in(f, i)->dtype));
  return one_shape(f, 0, &s) && infer_out(f, out, &s);
}
#define FORMAT(name, out, ...)                             \
  bool sh_##name(Infer *f) {                               \
    return format_op(f, (const DType[]){__VA_ARGS__}, out); \
  }
FORMAT(high, DT_BF16, DT_F32)
FORMAT(low, DT_U16, DT_F32)
FORMAT(join, DT_F32, DT_BF16, DT_U16)
FORMAT(stochastic, DT_BF16, DT_F32, DT_U32)
FORMAT(quant8, DT_U8, DT_F32)
FORMAT(dequant8, DT_F32, DT_U8)
#undef FORMAT

bool sh_select(Infer *f) {
  Shape s;
  if (infer_in(f, 0)->dtype != DT_BOOL)
    return infer_fail(f, E_TYPE, "the condition of `select` is bool, not %s",
                      dtype_name(infer_in(f, 0)->dtype));
  return one_shape(f, 0, &s) && one_dtype(f, 1) && infer_out(f, infer_in(f, 1)->dtype, &s);
}

/* ---- index maps ---- */

bool sh_broadcast(Infer *f) {
  const Value *x = infer_in(f, 0);
  const int64_t *axes;
  Shape s;
  int n = infer_list(f, "axes", &axes);
  if (!shape_attr(f, "shape", &s) || !axes_ok(f, n, axes, s.rank)) return false;
  if (n != x->shape.rank)
    return infer_fail(f, E_RANK, "`broadcast` maps %d axes of %s", n, text_of(f, &x->shape));
  for (int k = 0; k < n; k++) {
    if (x->shape.dim[k] != s.dim[axes[k]]) {
      infer_fail(f, E_BROADCAST, "%s does not broadcast to %s", text_of(f, &x->shape),
                 text_of(f, &s));
      infer_note(f, "axis %d is %s, axis %lld of the result is %lld", k, dim_text(f, &x->shape, k),
                 (long long)axes[k], (long long)s.dim[axes[k]]);
      return false;
    }
    s.axis[axes[k]] = x->shape.axis[k];
  }
  return infer_out(f, x->dtype, &s);
}

bool sh_reshape(Infer *f) {
  const Value *x = infer_in(f, 0);
  Shape s;
  if (!shape_attr(f, "shape", &s) || !infer_shape_ok(f, &s)) return false;
  int64_t from = shape_count(&x->shape), to = shape_count(&s);
  if (from != to) {
    infer_fail(f, E_RESHAPE, "`as` must keep the element count: %lld in, %lld out", (long long)from,
               (long long)to);
    infer_note(f, "from %s to %s", text_of(f, &x->shape), text_of(f, &s));
    return false;
  }
  if (shape_equal(&s, &x->shape)) s = x->shape;
  return infer_out(f, x->dtype, &s);
}

bool sh_transpose(Infer *f) {
  const Value *x = infer_in(f, 0);
  const int64_t *perm;
  int n = infer_list(f, "perm", &perm);
  if (n != x->shape.rank)
    return infer_fail(f, E_RANK, "`transpose` permutes %d axes, %s has %d", n,
                      text_of(f, &x->shape), x->shape.rank);
  Shape s = {.rank = n};
  unsigned seen = 0;
  for (int k = 0; k < n; k++) {
    if (perm[k] < 0 || perm[k] >= n || seen >> perm[k] & 1)
      return infer_fail(f, E_AXIS, "the axes of `transpose` are no permutation of 0..%d", n - 1);
    seen |= 1u << perm[k];
    s.dim[k] = x->shape.dim[perm[k]];
    s.axis[k] = x->shape.axis[perm[k]];
  }
  return infer_out(f, x->dtype, &s);
}

bool sh_slice(Infer *f) {
  const Value *x = infer_in(f, 0);
  const int64_t *start, *stop;
  Shape s = x->shape;
  if (infer_list(f, "start", &start) != s.rank || infer_list(f, "stop", &stop) != s.rank)
    return infer_fail(f, E_RANK, "a slice of %s needs %d ranges", text_of(f, &s), s.rank);
  for (int k = 0; k < s.rank; k++) {
    if (start[k] < 0 || stop[k] > s.dim[k] || start[k] >= stop[k]) {
      infer_fail(f, E_AXIS, "slice %lld..%lld is outside axis %d of %s", (long long)start[k],
                 (long long)stop[k], k, text_of(f, &x->shape));
      infer_note(f, "indices of that axis run from 0 to %lld", (long long)x->shape.dim[k] - 1);
      return false;
    }
    if (stop[k] - start[k] != s.dim[k]) s.axis[k] = NULL;
    s.dim[k] = stop[k] - start[k];
  }
  return infer_out(f, x->dtype, &s);
}

bool sh_pad(Infer *f) {
  const Value *x = infer_in(f, 0);
  const int64_t *before, *after;
  Shape s = x->shape;
  if (infer_list(f, "before", &before) != s.rank || infer_list(f, "after", &after) != s.rank)
    return infer_fail(f, E_RANK, "padding of %s needs %d widths", text_of(f, &s), s.rank);
  for (int k = 0; k < s.rank; k++) {
    if (before[k] < 0 || after[k] < 0 || before[k] > MAX_ELEMENTS || after[k] > MAX_ELEMENTS)
      return infer_fail(f, E_VALUE, "padding of axis %d is negative or too large", k);
    if (before[k] + after[k]) s.axis[k] = NULL;
    s.dim[k] += before[k] + after[k];
  }
  return infer_out(f, x->dtype, &s);
}

bool sh_concat(Infer *f) {
  int64_t axis = infer_int(f, "axis");
  Shape s = infer_in(f, 0)->shape;
  if (axis < 0 || axis >= s.rank)
    return infer_fail(f, E_AXIS, "`concat` along axis %lld of %s", (long long)axis, text_of(f, &s));
  if (!one_dtype(f, 0)) return false;
  for (int i = 1; i < f->nin; i++) {
    const Shape *o = &infer_in(f, i)->shape;
    Shape as = *o;
    if (as.rank == s.rank) as.dim[axis] = s.dim[axis];
    if (!shape_equal(&as, &s)) {
      infer_fail(f, E_SHAPE, "`concat` along axis %lld of %s and %s", (long long)axis,
                 text_of(f, &infer_in(f, 0)->shape), text_of(f, o));
      infer_note(f, "all other axes must be equal");
      return false;
    }
    if (__builtin_add_overflow(s.dim[axis], o->dim[axis], &s.dim[axis])) s.dim[axis] = INT64_MAX;
    s.axis[axis] = NULL;
    for (int k = 0; k < s.rank; k++)
      if (!s.axis[k] && k != axis) s.axis[k] = o->axis[k];
  }
  return infer_out(f, infer_in(f, 0)->dtype, &s);
}

/* ---- reductions ---- */

static bool reduce(Infer *f, DType t) {
  const Value *x = infer_in(f, 0);
  const int64_t *axes;
  int n = infer_list(f, "axes", &axes);
  if (!axes_ok(f, n, axes, x->shape.rank)) return false;
  if (!n) return infer_fail(f, E_AXIS, "`%s` over no axis", op_name(f->op));
  if (x->dtype == DT_BOOL)
    return infer_fail(f, E_TYPE, "`%s` takes numbers, not bool", op_name(f->op));
  Shape s = {0};
  for (int k = 0, i = 0; k < x->shape.rank; k++) {
    if (i < n && axes[i] == k) {
      i++;
      continue;
    }
    s.dim[s.rank] = x->shape.dim[k];
    s.axis[s.rank++] = x->shape.axis[k];
  }
  return infer_out(f, t, &s);
}

bool sh_reduce(Infer *f) {
  return reduce(f, infer_in(f, 0)->dtype);
}

bool sh_argmax(Infer *f) {
  const int64_t *axes;
  if (infer_list(f, "axes", &axes) != 1) return infer_fail(f, E_AXIS, "`argmax` is over one axis");
  return reduce(f, DT_I32);
}
