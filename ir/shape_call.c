/* shape_call.c - shape rules of rows by index, contraction, attention, convolution and pooling. */
#include <string.h>
#include "infer.h"

static const char *text_of(const Infer *f, const Shape *s) {
  return shape_text(f->arena, s);
}

/* ---- rows by index ---- */

bool sh_gather(Infer *f) {
  const Value *table = infer_in(f, 0), *ids = infer_in(f, 1);
  if (ids->dtype != DT_I32)
    return infer_fail(f, E_TYPE, "`gather` takes i32 indices, not %s", dtype_name(ids->dtype));
  if (table->shape.rank < 1) return infer_fail(f, E_RANK, "`gather` from a scalar");
  Shape s = ids->shape;
  for (int k = 1; k < table->shape.rank; k++, s.rank++) {
    if (s.rank == MAX_RANK)
      return infer_fail(f, E_RANK, "`gather` of %s by %s has too many axes",
                        text_of(f, &table->shape), text_of(f, &ids->shape));
    s.dim[s.rank] = table->shape.dim[k];
    s.axis[s.rank] = table->shape.axis[k];
  }
  return infer_out(f, table->dtype, &s);
}

bool sh_scatter(Infer *f) {
  const Value *ids = infer_in(f, 0), *rows = infer_in(f, 1);
  DType t = (DType)infer_int(f, "dtype");
  if (ids->dtype != DT_I32)
    return infer_fail(f, E_TYPE, "`scatter_add` takes i32 indices, not %s", dtype_name(ids->dtype));
  if (!dtype_is_float(t) || !dtype_is_float(rows->dtype))
    return infer_fail(f, E_TYPE, "`scatter_add` adds floats");
  bool fits = ids->shape.rank <= rows->shape.rank;
  for (int k = 0; fits && k < ids->shape.rank; k++) fits = ids->shape.dim[k] == rows->shape.dim[k];
  if (!fits)
    return infer_fail(f, E_SHAPE, "`scatter_add` of rows %s by indices %s",
                      text_of(f, &rows->shape), text_of(f, &ids->shape));
  Shape s = {.rank = 1, .dim = {infer_int(f, "rows")}};
  for (int k = ids->shape.rank; k < rows->shape.rank; k++, s.rank++) {
    if (s.rank == MAX_RANK) return infer_fail(f, E_RANK, "`scatter_add` has too many axes");
    s.dim[s.rank] = rows->shape.dim[k];
    s.axis[s.rank] = rows->shape.axis[k];
  }
  return infer_out(f, t, &s);
}

/* ---- contraction ---- */

/* Marks the axes of one operand that its batch and contraction lists name. */
static bool mark_axes(Infer *f, const Shape *s, int n, const int64_t *axes, unsigned *seen) {
  for (int i = 0; i < n; i++) {
    if (axes[i] < 0 || axes[i] >= s->rank || *seen >> axes[i] & 1)
      return infer_fail(f, E_AXIS, "`@` names an axis of %s that it lacks, or one twice",
                        text_of(f, s));
    *seen |= 1u << axes[i];
  }
  return true;
}

static bool pair_axes(Infer *f, const Shape *a, const Shape *b, int n, const int64_t *in_a,
                      const int64_t *in_b, const char *what) {
  for (int i = 0; i < n; i++) {
    if (a->dim[in_a[i]] == b->dim[in_b[i]]) continue;
    infer_fail(f, E_MATMUL, "%s dimensions of `@` differ: %lld and %lld", what,
               (long long)a->dim[in_a[i]], (long long)b->dim[in_b[i]]);
    infer_note(f, "%s @ %s", text_of(f, a), text_of(f, b));
    return false;
  }
  return true;
}

static bool add_free(Infer *f, Shape *s, const Shape *of, unsigned seen) {
  for (int k = 0; k < of->rank; k++) {
    if (seen >> k & 1) continue;
    if (s->rank == MAX_RANK) return infer_fail(f, E_RANK, "the result of `@` has too many axes");
    s->dim[s->rank] = of->dim[k];
    s->axis[s->rank++] = of->axis[k];
  }
  return true;
}

bool sh_dot(Infer *f) {
  const Value *a = infer_in(f, 0), *b = infer_in(f, 1);
  const int64_t *batch_a, *batch_b, *con_a, *con_b;
  int nbatch = infer_list(f, "batch_a", &batch_a), ncon = infer_list(f, "con_a", &con_a);
  if (infer_list(f, "batch_b", &batch_b) != nbatch || infer_list(f, "con_b", &con_b) != ncon)
    return infer_fail(f, E_AXIS, "`@` pairs lists of different lengths");
  DType t = (DType)infer_int(f, "dtype");
  if (a->dtype != b->dtype || !dtype_is_float(a->dtype) || !dtype_is_float(t))
    return infer_fail(f, E_TYPE, "`@` of %s and %s; both sides are floats of one dtype",
                      dtype_name(a->dtype), dtype_name(b->dtype));
  unsigned seen_a = 0, seen_b = 0;
  if (!mark_axes(f, &a->shape, nbatch, batch_a, &seen_a) ||
      !mark_axes(f, &b->shape, nbatch, batch_b, &seen_b))
    return false;
  Shape s = {0};
  for (int i = 0; i < nbatch; i++, s.rank++) {
    s.dim[i] = a->shape.dim[batch_a[i]];
    s.axis[i] = a->shape.axis[batch_a[i]];
    if (!s.axis[i]) s.axis[i] = b->shape.axis[batch_b[i]];
  }
  if (!mark_axes(f, &a->shape, ncon, con_a, &seen_a) ||
      !mark_axes(f, &b->shape, ncon, con_b, &seen_b))
    return false;
  return pair_axes(f, &a->shape, &b->shape, nbatch, batch_a, batch_b, "batch") &&
         pair_axes(f, &a->shape, &b->shape, ncon, con_a, con_b, "inner") &&
         add_free(f, &s, &a->shape, seen_a) && add_free(f, &s, &b->shape, seen_b) &&
         infer_out(f, t, &s);
}

/* ---- attention ---- */

/* Operand i is of dtype t and has these sizes. */
static bool expect(Infer *f, int i, const char *what, DType t, Shape want) {
  const Value *x = infer_in(f, i);
  if (x->dtype == t && shape_equal(&x->shape, &want)) return true;
  return infer_fail(f, E_SHAPE, "%s of `attention` is %s%s, not %s%s", what, dtype_name(t),
                    text_of(f, &want), dtype_name(x->dtype), text_of(f, &x->shape));
}

/* Checks q, k, v and the operands from `at` on that flags announce. */
static bool attention_operands(Infer *f, int at) {
  if (f->nin < 3) return infer_fail(f, E_ARGUMENT, "`attention` takes q, k and v");
  const Value *q = infer_in(f, 0), *k = infer_in(f, 1), *v = infer_in(f, 2);
  int64_t flags = infer_int(f, "flags"), causal = infer_int(f, "causal");
  if (flags < 0 || flags > 7 || causal < 0 || causal > 1)
    return infer_fail(f, E_VALUE, "`attention` has unknown flags");
  int want = at + !!(flags & 1) + !!(flags & 2) + (flags & 4 ? 3 : 0);
  if (f->nin != want)
    return infer_fail(f, E_ARGUMENT, "`%s` takes %d operands here, got %d", op_name(f->op), want,
                      f->nin);
  if (q->shape.rank != 4 || k->shape.rank != 4 || !dtype_is_float(q->dtype))
    return infer_fail(f, E_RANK, "`attention` takes floats [batch, time, heads, width], not %s, %s",
                      text_of(f, &q->shape), text_of(f, &k->shape));
  const int64_t *qd = q->shape.dim, *kd = k->shape.dim;
  if (qd[0] != kd[0] || qd[3] != kd[3] || qd[2] % kd[2] || !shape_equal(&k->shape, &v->shape)) {
    infer_fail(f, E_SHAPE, "`attention` of q %s, k %s and v %s", text_of(f, &q->shape),
               text_of(f, &k->shape), text_of(f, &v->shape));
    infer_note(f, "q is [B, Tq, H, Dh], k and v [B, Tk, KV, Dh]; KV divides H");
    return false;
  }
  if (k->dtype != q->dtype || v->dtype != q->dtype)
    return infer_fail(f, E_TYPE, "q, k and v of `attention` have one dtype");
  if (causal && qd[1] != kd[1])
    return infer_fail(f, E_SHAPE, "causal `attention` of %lld queries and %lld keys",
                      (long long)qd[1], (long long)kd[1]);
  double drop = f->num[1];
  if (!(drop >= 0 && drop < 1) || (drop > 0) != !!(flags & 4))
    return infer_fail(f, E_VALUE, "the dropout rate of `attention` is %g", drop);
  if (flags & 1 && !expect(f, at++, "the mask", DT_BOOL, SHAPE(qd[0], kd[1]))) return false;
  if (flags & 2) {
    DType t = infer_in(f, at)->dtype;
    if (!dtype_is_float(t)) t = q->dtype;
    if (!expect(f, at++, "the bias", t, SHAPE(qd[2], qd[1], kd[1]))) return false;
  }
  return !(flags & 4) || (expect(f, at, "the seed", DT_U32, SHAPE(2)) &&
                          expect(f, at + 1, "the step", DT_I32, shape_scalar()) &&
                          expect(f, at + 2, "the sample", DT_I32, shape_scalar()));
}

/* f32 [B, H, Tq]. */
static Shape lse_shape(const Shape *q) {
  Shape s = {.rank = 3, .dim = {q->dim[0], q->dim[2], q->dim[1]}};
  s.axis[0] = q->axis[0];
  s.axis[1] = q->axis[2];
  s.axis[2] = q->axis[1];
  return s;
}

bool sh_attention(Infer *f) {
  if (!attention_operands(f, 3)) return false;
  const Value *q = infer_in(f, 0);
  f->nout = 2;
  f->out[0] = (Type){q->dtype, q->shape};
  f->out[1] = (Type){DT_F32, lse_shape(&q->shape)};
  return true;
}

bool sh_attention_bwd(Infer *f) {
  if (!attention_operands(f, 6)) return false;
  const Value *q = infer_in(f, 0);
  if (!expect(f, 3, "the result", q->dtype, q->shape) ||
      !expect(f, 4, "the log-sum-exp", DT_F32, lse_shape(&q->shape)) ||
      !expect(f, 5, "the cotangent", q->dtype, q->shape))
    return false;
  int64_t flags = infer_int(f, "flags");
  f->nout = flags & 2 ? 4 : 3;
  for (int i = 0; i < 3; i++) f->out[i] = (Type){q->dtype, infer_in(f, i)->shape};
  if (flags & 2) {
    const Value *bias = infer_in(f, 6 + (flags & 1));
    f->out[3] = (Type){bias->dtype, bias->shape};
  }
  return true;
}

/* ---- convolution and pooling ---- */

/* Output size of windows over one axis of size n; 0 when none fits. */
static int64_t windows(int64_t n, int64_t kernel, int64_t stride, int64_t pad) {
  int64_t room = n + 2 * pad - kernel;
  return room < 0 ? 0 : room / stride + 1;
}

enum { MAX_WINDOW = 1 << 20 }; /* keeps sums of sizes inside int64 */

static bool window_ok(Infer *f, const Shape *x, int64_t kernel) {
  int64_t stride = infer_int(f, "stride"), pad = infer_int(f, "pad");
  if (x->rank != 4)
    return infer_fail(f, E_RANK, "`%s` takes [N, C, H, W], not %s", op_name(f->op), text_of(f, x));
  if (stride < 1 || stride > MAX_WINDOW || pad < 0 || pad > MAX_WINDOW || kernel < 1)
    return infer_fail(f, E_VALUE, "`%s` with kernel %lld, stride %lld and padding %lld",
                      op_name(f->op), (long long)kernel, (long long)stride, (long long)pad);
  if (windows(x->dim[2], kernel, stride, pad) && windows(x->dim[3], kernel, stride, pad))
    return true;
  return infer_fail(f, E_SHAPE, "a window of %lld does not fit into %s", (long long)kernel,
                    text_of(f, x));
}

/* [N, channels, windows down, windows across] */
static bool window_out(Infer *f, const Value *x, int64_t channels, const char *name,
                       int64_t kernel) {
  int64_t stride = infer_int(f, "stride"), pad = infer_int(f, "pad");
  Shape s = {.rank = 4, .dim = {x->shape.dim[0], channels}};
  s.axis[0] = x->shape.axis[0];
  s.axis[1] = name;
  for (int k = 2; k < 4; k++) {
    s.dim[k] = windows(x->shape.dim[k], kernel, stride, pad);
    if (s.dim[k] == x->shape.dim[k]) s.axis[k] = x->shape.axis[k];
  }
  return infer_out(f, x->dtype, &s);
}

bool sh_conv2d(Infer *f) {
  const Value *x = infer_in(f, 0), *w = infer_in(f, 1);
  int64_t groups = infer_int(f, "groups");
  if (w->shape.rank != 4 || w->shape.dim[2] != w->shape.dim[3])
    return infer_fail(f, E_RANK, "`conv2d` takes weights [O, C / groups, K, K], not %s",
                      text_of(f, &w->shape));
  if (x->dtype != w->dtype || !dtype_is_float(x->dtype))
    return infer_fail(f, E_TYPE, "`conv2d` of %s and %s", dtype_name(x->dtype),
                      dtype_name(w->dtype));
  if (!window_ok(f, &x->shape, w->shape.dim[2])) return false;
  if (groups < 1 || w->shape.dim[0] % groups || x->shape.dim[1] % groups ||
      w->shape.dim[1] != x->shape.dim[1] / groups)
    return infer_fail(f, E_SHAPE, "`conv2d` of %s by %s in %lld groups", text_of(f, &x->shape),
                      text_of(f, &w->shape), (long long)groups);
  return window_out(f, x, w->shape.dim[0], w->shape.axis[0], w->shape.dim[2]);
}

bool sh_pool(Infer *f) {
  const Value *x = infer_in(f, 0);
  int64_t kernel = infer_int(f, "kernel"), pad = infer_int(f, "pad");
  if (!dtype_is_float(x->dtype)) return infer_fail(f, E_TYPE, "pooling takes floats");
  if (!window_ok(f, &x->shape, kernel)) return false;
  if (2 * pad > kernel)
    return infer_fail(f, E_VALUE, "pooling pads at most half a window, not %lld of %lld",
                      (long long)pad, (long long)kernel);
  return window_out(f, x, x->shape.dim[1], x->shape.axis[1], kernel);
}
