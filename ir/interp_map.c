/* interp_map.c - reference semantics of index maps, reductions and rows by index. */
#include <math.h>
#include <string.h>
#include "interp.h"

void ev_copy(const Shape *s, double *dst, const int64_t *dst_stride, const double *src,
             const int64_t *src_stride) {
  int64_t index[MAX_RANK] = {0}, d = 0, o = 0;
  int last = s->rank - 1;
  if (last < 0) {
    *dst = *src;
    return;
  }
  for (;;) {
    for (int64_t i = 0; i < s->dim[last]; i++)
      dst[d + i * dst_stride[last]] = src[o + i * src_stride[last]];
    int k = last - 1;
    for (; k >= 0; k--) { /* next row */
      d += dst_stride[k];
      o += src_stride[k];
      if (++index[k] < s->dim[k]) break;
      d -= s->dim[k] * dst_stride[k];
      o -= s->dim[k] * src_stride[k];
      index[k] = 0;
    }
    if (k < 0) return;
  }
}

/* ---- index maps ---- */

static void concat(Ev *e, const Node *n) {
  int axis = (int)node_int(n, "axis");
  int64_t in_stride[MAX_RANK], out_stride[MAX_RANK], at = 0;
  shape_strides(&ev_out(e, n)->shape, out_stride);
  for (int i = 0; i < n->nin; i++) {
    const Shape *in = ev_shape(e, n, i);
    shape_strides(in, in_stride);
    ev_copy(in, e->v[n->out] + at * out_stride[axis], out_stride, ev_in(e, n, i), in_stride);
    at += in->dim[axis];
  }
}

void ev_map(Ev *e, const Node *n) {
  const Shape *in = ev_shape(e, n, 0), *out = &ev_out(e, n)->shape;
  int64_t in_stride[MAX_RANK], out_stride[MAX_RANK], from[MAX_RANK] = {0};
  const double *src = ev_in(e, n, 0);
  double *dst = e->v[n->out];
  const int64_t *list;
  shape_strides(in, in_stride);
  shape_strides(out, out_stride);
  switch (n->op) {
    case OP_CONCAT:
      concat(e, n);
      return;
    case OP_RESHAPE:
      memcpy(dst, src, sizeof *src * shape_count(in));
      return;
    case OP_BROADCAST:
      node_list(n, "axes", &list);
      for (int k = 0; k < in->rank; k++) from[list[k]] = in_stride[k];
      break;
    case OP_TRANSPOSE:
      node_list(n, "perm", &list);
      for (int k = 0; k < in->rank; k++) from[k] = in_stride[list[k]];
      break;
    case OP_SLICE:
      node_list(n, "start", &list);
      for (int k = 0; k < in->rank; k++) src += list[k] * in_stride[k];
      memcpy(from, in_stride, sizeof from);
      break;
    case OP_PAD:
      node_list(n, "before", &list);
      for (int k = 0; k < in->rank; k++) dst += list[k] * out_stride[k];
      ev_copy(in, dst, out_stride, src, in_stride);
      return;
    default:
      bug("`%s` is no index map", op_name(n->op));
  }
  ev_copy(out, dst, out_stride, src, from);
}

/* ---- reductions ---- */

/* Brings the reduced axes last: x becomes [outer, inner] with the results' order outside. */
static double *reduced_last(Ev *e, const Node *n, int64_t *outer, int64_t *inner) {
  const Shape *in = ev_shape(e, n, 0);
  const int64_t *axes;
  int count = node_list(n, "axes", &axes);
  int64_t stride[MAX_RANK], from[MAX_RANK], to[MAX_RANK];
  Shape s = {.rank = in->rank};
  shape_strides(in, stride);
  for (int k = 0, i = 0, kept = 0; k < in->rank; k++) {
    bool reduced = i < count && axes[i] == k;
    int at = reduced ? in->rank - count + i++ : kept++;
    s.dim[at] = in->dim[k];
    from[at] = stride[k];
  }
  shape_strides(&s, to);
  *outer = shape_count(&ev_out(e, n)->shape);
  *inner = shape_count(in) / *outer;
  double *x = arena_array(e->arena, double, shape_count(in));
  ev_copy(&s, x, to, ev_in(e, n, 0), from);
  return x;
}

void ev_reduce(Ev *e, const Node *n) {
  int64_t outer, inner;
  const double *x = reduced_last(e, n, &outer, &inner);
  bool floats = dtype_is_float(val(e->g, n->in[0])->dtype);
  for (int64_t o = 0; o < outer; o++, x += inner) {
    double sum = 0;
    int64_t best = 0;
    for (int64_t i = 0; i < inner; i++) {
      sum += x[i];
      if (!isnan(x[best]) && (x[i] > x[best] || isnan(x[i]))) best = i;
    }
    if (n->op == OP_SUM && !floats) sum = ev_round(ev_out(e, n)->dtype, sum);
    e->v[n->out][o] = n->op == OP_SUM ? sum : n->op == OP_AMAX ? x[best] : (double)best;
  }
}

/* ---- rows by index ---- */

/* The row that element i of ids names; outside the table is a broken program. */
static int64_t row_of(const double *ids, int64_t i, int64_t rows, const Node *n) {
  int64_t row = (int64_t)ids[i];
  ensure(row >= 0 && row < rows, "`%s` reads row %lld of %lld", op_name(n->op), (long long)row,
         (long long)rows);
  return row;
}

void ev_gather(Ev *e, const Node *n) {
  const double *table = ev_in(e, n, 0), *ids = ev_in(e, n, 1);
  int64_t rows = ev_shape(e, n, 0)->dim[0], count = shape_count(ev_shape(e, n, 1));
  int64_t width = shape_count(ev_shape(e, n, 0)) / rows;
  for (int64_t i = 0; i < count; i++)
    memcpy(e->v[n->out] + i * width, table + row_of(ids, i, rows, n) * width,
           sizeof(double) * width);
}

void ev_scatter(Ev *e, const Node *n) {
  const double *ids = ev_in(e, n, 0), *x = ev_in(e, n, 1);
  int64_t rows = ev_out(e, n)->shape.dim[0], count = shape_count(ev_shape(e, n, 0));
  int64_t width = shape_count(ev_shape(e, n, 1)) / count;
  for (int64_t i = 0; i < count; i++) {
    double *row = e->v[n->out] + row_of(ids, i, rows, n) * width;
    for (int64_t k = 0; k < width; k++) row[k] += x[i * width + k];
  }
}
