/* simplify_views.c - rules of index maps and joins: identities, compositions, and maps moved in
 * front of widening casts (so that they meet storage, where they cost nothing). */
#include <string.h>

#include "simplify_rules.h"

static bool widening_cast(const Simplify *s, const Node *n) {
  if (n->op != OP_CAST) return false;
  DType from = val(s->g, n->in[0])->dtype, to = val(s->g, n->out)->dtype;
  return dtype_bytes(from) < dtype_bytes(to);
}

/* The view of p on the operand of the cast that p's operand is, cast afterwards. */
static ValueId before_cast(Simplify *s, const Proto *p, const Node *cast) {
  DType t = val(s->g, cast->out)->dtype;
  ValueId inner = cast->in[0];
  Proto q = *p;
  q.in = &inner;
  return sm_cast(s, simplified(s, &q), t);
}

/* ---- reshape ---- */

/* Splits two shapes of equal counts into the shortest runs of axes of equal products. False at the
 * end. */
static bool next_run(const Shape *from, const Shape *to, int *i, int *j, int *i0, int *j0) {
  if (*i >= from->rank && *j >= to->rank) return false;
  *i0 = *i;
  *j0 = *j;
  int64_t a = *i < from->rank ? from->dim[(*i)++] : 1, b = *j < to->rank ? to->dim[(*j)++] : 1;
  while (a != b) {
    if (a < b)
      a *= from->dim[(*i)++];
    else
      b *= to->dim[(*j)++];
  }
  return true;
}

/* reshape(broadcast(x)) as broadcast(reshape(x)), when each run of axes is repeated or kept as a
 * whole. */
static ValueId reshape_broadcast(Simplify *s, const Shape *to, const Node *d) {
  const int64_t *axes;
  int n = node_list(d, "axes", &axes);
  const Shape *from = &val(s->g, d->out)->shape;
  bool kept[MAX_RANK] = {false};
  for (int k = 0; k < n; k++) kept[axes[k]] = true;
  Shape small = {0};
  int64_t where[MAX_RANK];
  int i = 0, j = 0, i0, j0;
  while (next_run(from, to, &i, &j, &i0, &j0)) {
    int count = 0;
    for (int k = i0; k < i; k++) count += kept[k];
    if (count && count != i - i0) return -1;
    if (!count && i > i0) continue;
    for (int k = j0; k < j && i > i0; k++) {
      where[small.rank] = k;
      small.dim[small.rank++] = to->dim[k];
    }
  }
  ValueId x = d->in[0];
  Shape big = *to;
  return sm_broadcast(s, sm_reshape(s, x, &small), &big, where);
}

static ValueId simplify_reshape(Simplify *s, const Proto *p, const Node *d) {
  Shape to = shape_of((int)p->ints[0], p->ints + 1);
  if (shape_equal(&val(s->g, p->in[0])->shape, &to)) return p->in[0];
  if (d->op == OP_RESHAPE) return sm_reshape(s, d->in[0], &to);
  if (d->op == OP_CONST) return sm_const(s, val(s->g, d->out)->dtype, &to, d->num[0]);
  if (d->op == OP_BROADCAST) return reshape_broadcast(s, &to, d);
  return widening_cast(s, d) ? before_cast(s, p, d) : -1;
}

/* ---- transpose ---- */

/* transpose(dot(a, b)) as dot(b, a) when it exchanges the free axes of a and b. */
static ValueId transpose_dot(Simplify *s, const int64_t *perm, const Node *d) {
  const int64_t *batch_a, *batch_b, *con_a, *con_b;
  int nbatch = node_list(d, "batch_a", &batch_a), ncon = node_list(d, "con_a", &con_a);
  node_list(d, "batch_b", &batch_b);
  node_list(d, "con_b", &con_b);
  int fa = val(s->g, d->in[0])->shape.rank - nbatch - ncon;
  int fb = val(s->g, d->in[1])->shape.rank - nbatch - ncon;
  for (int k = 0; k < nbatch; k++)
    if (perm[k] != k) return -1;
  for (int k = 0; k < fa + fb; k++)
    if (perm[nbatch + k] != nbatch + (k < fb ? fa + k : k - fb)) return -1;
  int64_t ints[4 * (MAX_RANK + 1) + 1];
  int at = 0;
  const int64_t *lists[] = {batch_b, batch_a, con_b, con_a};
  for (int i = 0; i < 4; i++) {
    int n = i < 2 ? nbatch : ncon;
    ints[at++] = n;
    for (int k = 0; k < n; k++) ints[at++] = lists[i][k];
  }
  ints[at++] = val(s->g, d->out)->dtype;
  ValueId in[] = {d->in[1], d->in[0]};
  return simplified(s, &(Proto){.op = OP_DOT, .nin = 2, .in = in, .nints = at, .ints = ints});
}

static ValueId simplify_transpose(Simplify *s, const Proto *p, const Node *d) {
  int rank = (int)p->ints[0];
  const int64_t *perm = p->ints + 1;
  bool same = true;
  for (int k = 0; k < rank; k++) same &= perm[k] == k;
  if (same) return p->in[0];
  if (d->op == OP_TRANSPOSE) {
    int64_t both[MAX_RANK];
    for (int k = 0; k < rank; k++) both[k] = d->ints[1 + perm[k]];
    return sm_transpose(s, d->in[0], both);
  }
  if (d->op == OP_CONST) {
    Shape to = {.rank = rank};
    for (int k = 0; k < rank; k++) to.dim[k] = val(s->g, d->out)->shape.dim[perm[k]];
    return sm_const(s, val(s->g, d->out)->dtype, &to, d->num[0]);
  }
  if (d->op == OP_DOT && s->single) return transpose_dot(s, perm, d);
  return widening_cast(s, d) ? before_cast(s, p, d) : -1;
}

/* ---- slice and pad ---- */

static ValueId slice_concat(Simplify *s, const Node *d, const int64_t *start, const int64_t *stop) {
  const Shape *all = &val(s->g, d->out)->shape;
  int axis = (int)d->ints[0];
  int64_t at = 0;
  for (int k = 0; k < d->nin; k++) {
    int64_t size = val(s->g, d->in[k])->shape.dim[axis];
    if (start[axis] >= at && stop[axis] <= at + size) {
      int64_t from[MAX_RANK], to[MAX_RANK];
      memcpy(from, start, sizeof *from * (size_t)all->rank);
      memcpy(to, stop, sizeof *to * (size_t)all->rank);
      from[axis] -= at;
      to[axis] -= at;
      return sm_slice(s, d->in[k], from, to);
    }
    at += size;
  }
  return -1;
}

static ValueId slice_pad(Simplify *s, const Node *d, const int64_t *start, const int64_t *stop) {
  const int64_t *before;
  int rank = node_list(d, "before", &before);
  const Shape *x = &val(s->g, d->in[0])->shape;
  int64_t from[MAX_RANK], to[MAX_RANK];
  for (int k = 0; k < rank; k++) {
    from[k] = start[k] - before[k];
    to[k] = stop[k] - before[k];
    if (from[k] < 0 || to[k] > x->dim[k]) return -1;
  }
  return sm_slice(s, d->in[0], from, to);
}

static ValueId slice_broadcast(Simplify *s, const Node *d, const int64_t *start,
                               const int64_t *stop) {
  const int64_t *axes;
  int n = node_list(d, "axes", &axes);
  Shape to = val(s->g, d->out)->shape;
  int64_t from_x[MAX_RANK], to_x[MAX_RANK];
  for (int k = 0; k < to.rank; k++) to.dim[k] = stop[k] - start[k];
  for (int k = 0; k < n; k++) {
    from_x[k] = start[axes[k]];
    to_x[k] = stop[axes[k]];
  }
  return sm_broadcast(s, sm_slice(s, d->in[0], from_x, to_x), &to, axes);
}

static ValueId simplify_slice(Simplify *s, const Proto *p, const Node *d) {
  int rank = (int)p->ints[0];
  const int64_t *start = p->ints + 1, *stop = start + rank + 1;
  const Shape x = val(s->g, p->in[0])->shape;
  Shape to = {.rank = rank};
  bool whole = true;
  for (int k = 0; k < rank; k++) {
    to.dim[k] = stop[k] - start[k];
    whole &= start[k] == 0 && stop[k] == x.dim[k];
  }
  if (whole) return p->in[0];
  switch (d->op) {
    case OP_CONST:
      return sm_const(s, val(s->g, d->out)->dtype, &to, d->num[0]);
    case OP_CONCAT:
      return slice_concat(s, d, start, stop);
    case OP_PAD:
      return slice_pad(s, d, start, stop);
    case OP_BROADCAST:
      return slice_broadcast(s, d, start, stop);
    case OP_SLICE: {
      int64_t from[MAX_RANK], till[MAX_RANK];
      for (int k = 0; k < rank; k++) {
        from[k] = d->ints[1 + k] + start[k];
        till[k] = d->ints[1 + k] + stop[k];
      }
      return sm_slice(s, d->in[0], from, till);
    }
    default:
      return widening_cast(s, d) ? before_cast(s, p, d) : -1;
  }
}

static ValueId simplify_pad(Simplify *s, const Proto *p, const Node *d) {
  int rank = (int)p->ints[0];
  const int64_t *before = p->ints + 1, *after = before + rank + 1;
  bool none = true;
  for (int k = 0; k < rank; k++) none &= !before[k] && !after[k];
  if (none) return p->in[0];
  if (d->op == OP_PAD) {
    int64_t b[MAX_RANK], e[MAX_RANK];
    for (int k = 0; k < rank; k++) {
      b[k] = before[k] + d->ints[1 + k];
      e[k] = after[k] + d->ints[2 + rank + k];
    }
    return sm_pad(s, d->in[0], b, e);
  }
  return widening_cast(s, d) ? before_cast(s, p, d) : -1;
}

/* ---- broadcast and concat ---- */

static ValueId simplify_broadcast(Simplify *s, const Proto *p, const Node *d) {
  Shape to = shape_of((int)p->ints[0], p->ints + 1);
  const int64_t *axes = p->ints + 2 + to.rank;
  const Shape x = val(s->g, p->in[0])->shape;
  if (shape_equal(&x, &to)) return p->in[0];
  if (d->op == OP_CONST) return sm_const(s, val(s->g, d->out)->dtype, &to, d->num[0]);
  if (d->op != OP_BROADCAST) return -1;
  const int64_t *inner;
  int64_t both[MAX_RANK];
  int n = node_list(d, "axes", &inner);
  for (int k = 0; k < n; k++) both[k] = axes[inner[k]];
  return sm_broadcast(s, d->in[0], &to, both);
}

/* The value that slices in[0..n-1] tile along `axis` in order, or -1. */
static ValueId rejoined(const Simplify *s, int n, const ValueId *in, int axis) {
  ValueId whole = -1;
  int64_t at = 0;
  for (int k = 0; k < n; k++) {
    const Node *d = node_of(s->g, in[k]);
    if (d->op != OP_SLICE || (k && d->in[0] != whole)) return -1;
    whole = d->in[0];
    const Shape *x = &val(s->g, whole)->shape, *part = &val(s->g, in[k])->shape;
    for (int i = 0; i < x->rank; i++)
      if (i == axis ? d->ints[1 + i] != at : part->dim[i] != x->dim[i]) return -1;
    at += part->dim[axis];
  }
  return at == val(s->g, whole)->shape.dim[axis] ? whole : -1;
}

static ValueId simplify_concat(Simplify *s, const Proto *p) {
  int axis = (int)p->ints[0], n = 0;
  if (p->nin == 1) return p->in[0];
  bool nested = false;
  for (int k = 0; k < p->nin; k++) {
    const Node *d = node_of(s->g, p->in[k]);
    bool flat = d->op == OP_CONCAT && (int)d->ints[0] == axis;
    nested |= flat;
    n += flat ? d->nin : 1;
  }
  if (!nested) return rejoined(s, p->nin, p->in, axis);
  ValueId *in = arena_array(s->arena, ValueId, n);
  n = 0;
  for (int k = 0; k < p->nin; k++) {
    const Node *d = node_of(s->g, p->in[k]);
    bool flat = d->op == OP_CONCAT && (int)d->ints[0] == axis;
    for (int i = 0; i < (flat ? d->nin : 1); i++) in[n++] = flat ? d->in[i] : p->in[k];
  }
  return sm_concat(s, n, in, axis);
}

ValueId simplify_view(Simplify *s, const Proto *p) {
  if (p->op == OP_CONCAT) return simplify_concat(s, p);
  const Node d = *node_of(s->g, p->in[0]);
  ValueId v = -1;
  switch (p->op) {
    case OP_RESHAPE:
      v = simplify_reshape(s, p, &d);
      break;
    case OP_TRANSPOSE:
      v = simplify_transpose(s, p, &d);
      break;
    case OP_SLICE:
      v = simplify_slice(s, p, &d);
      break;
    case OP_PAD:
      v = simplify_pad(s, p, &d);
      break;
    default:
      v = simplify_broadcast(s, p, &d);
  }
  return v;
}
