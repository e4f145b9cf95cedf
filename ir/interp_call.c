/* interp_call.c - reference semantics of contraction and attention. */
#include <math.h>
#include <string.h>
#include "interp.h"
#include "philox.h"

/* ---- contraction ---- */

/* Operand i of n as a dense array with the axes in this order: batch, then `second`, then `third`.
 */
static double *arranged(Ev *e, const Node *n, int i, int rank, const int64_t *order) {
  const Shape *in = ev_shape(e, n, i);
  int64_t stride[MAX_RANK], from[MAX_RANK], to[MAX_RANK];
  Shape s = {.rank = rank};
  shape_strides(in, stride);
  for (int k = 0; k < rank; k++) {
    s.dim[k] = in->dim[order[k]];
    from[k] = stride[order[k]];
  }
  shape_strides(&s, to);
  double *x = arena_array(e->arena, double, shape_count(&s));
  ev_copy(&s, x, to, ev_in(e, n, i), from);
  return x;
}

/* Appends the axes of 0..rank-1 that the n given ones do not name. */
static int add_free(int rank, int n, int64_t *order) {
  int at = n;
  for (int k = 0; k < rank; k++) {
    bool bound = false;
    for (int i = 0; i < n; i++) bound |= order[i] == k;
    if (!bound) order[at++] = k;
  }
  return at;
}

void ev_dot(Ev *e, const Node *n) {
  const int64_t *batch[2], *con[2];
  double *x[2];
  int64_t size[2]; /* of the free axes */
  int64_t nb = 1, nk = 1;
  for (int i = 0; i < 2; i++) {
    const Shape *s = ev_shape(e, n, i);
    int64_t order[MAX_RANK];
    int b = node_list(n, i ? "batch_b" : "batch_a", &batch[i]);
    int c = node_list(n, i ? "con_b" : "con_a", &con[i]);
    memcpy(order, batch[i], sizeof *order * b);
    memcpy(order + b, con[i], sizeof *order * c);
    nb = nk = 1;
    for (int k = 0; k < b; k++) nb *= s->dim[batch[i][k]];
    for (int k = 0; k < c; k++) nk *= s->dim[con[i][k]];
    size[i] = shape_count(s) / (nb * nk);
    add_free(s->rank, b + c, order);
    x[i] = arranged(e, n, i, s->rank, order); /* [batch, contracted, free] */
  }
  int64_t m = size[0], w = size[1];
  for (int64_t b = 0; b < nb; b++)
    for (int64_t k = 0; k < nk; k++) {
      const double *a = x[0] + (b * nk + k) * m, *c = x[1] + (b * nk + k) * w;
      double *y = e->v[n->out] + b * m * w;
      for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < w; j++) y[i * w + j] += a[i] * c[j];
    }
}

/* ---- attention ---- */

/* One attention node, forward or backward, with its operands by name. */
typedef struct {
  int64_t B, Tq, Tk, H, KV, D;
  const double *q, *k, *v, *mask, *bias;
  bool causal;
  double scale, keep; /* keep = 1 without dropout */
  unsigned seed0, seed1, step;
  int64_t sample0;
  unsigned long long key;
} Att;

static Att att_of(Ev *e, const Node *n, int at) {
  const Shape *q = ev_shape(e, n, 0), *k = ev_shape(e, n, 1);
  Att a = {.B = q->dim[0],
           .Tq = q->dim[1],
           .H = q->dim[2],
           .D = q->dim[3],
           .Tk = k->dim[1],
           .KV = k->dim[2],
           .q = ev_in(e, n, 0),
           .k = ev_in(e, n, 1),
           .v = ev_in(e, n, 2),
           .causal = node_int(n, "causal"),
           .scale = node_num(n, "scale"),
           .keep = 1,
           .key = (unsigned long long)node_int(n, "key")};
  int64_t flags = node_int(n, "flags");
  if (flags & 1) a.mask = ev_in(e, n, at++);
  if (flags & 2) a.bias = ev_in(e, n, at++);
  if (flags & 4) {
    a.keep = (float)(1 - node_num(n, "drop"));
    a.seed0 = (unsigned)ev_in(e, n, at)[0];
    a.seed1 = (unsigned)ev_in(e, n, at)[1];
    a.step = (unsigned)(int64_t)ev_in(e, n, at + 1)[0];
    a.sample0 = (int64_t)ev_in(e, n, at + 2)[0];
  }
  return a;
}

/* Where head h of position t of sample b starts in q, or in k and v. */
static int64_t q_at(const Att *a, int64_t b, int64_t t, int64_t h) {
  return ((b * a->Tq + t) * a->H + h) * a->D;
}
static int64_t k_at(const Att *a, int64_t b, int64_t t, int64_t h) {
  return ((b * a->Tk + t) * a->KV + h / (a->H / a->KV)) * a->D;
}

static bool is_open(const Att *a, int64_t b, int64_t i, int64_t j) {
  return (!a->causal || j <= i) && (!a->mask || a->mask[b * a->Tk + j] != 0);
}

static double inner(const double *x, const double *y, int64_t n) {
  double s = 0;
  for (int64_t i = 0; i < n; i++) s += x[i] * y[i];
  return s;
}

static double score(const Att *a, int64_t b, int64_t h, int64_t i, int64_t j) {
  double s = a->scale * inner(a->q + q_at(a, b, i, h), a->k + k_at(a, b, j, h), a->D);
  return a->bias ? s + a->bias[(h * a->Tq + i) * a->Tk + j] : s;
}

/* What dropout multiplies a probability with: 0 or 1 / keep. */
static double kept(const Att *a, int64_t b, int64_t h, int64_t i, int64_t j) {
  if (a->keep == 1) return 1;
  unsigned bits = philox_bits(a->seed0, a->seed1, a->key, a->step, (unsigned)(a->sample0 + b),
                              (unsigned long long)((h * a->Tq + i) * a->Tk + j));
  return philox_uniform(bits) < a->keep ? 1 / a->keep : 0;
}

void ev_attention(Ev *e, const Node *n) {
  Att a = att_of(e, n, 3);
  double *o = e->v[n->out], *lse = e->v[n->out + 1];
  double *s = arena_array(e->arena, double, a.Tk);
  for (int64_t b = 0; b < a.B; b++)
    for (int64_t h = 0; h < a.H; h++)
      for (int64_t i = 0; i < a.Tq; i++) {
        double top = -INFINITY, sum = 0;
        for (int64_t j = 0; j < a.Tk; j++) {
          s[j] = is_open(&a, b, i, j) ? score(&a, b, h, i, j) : -INFINITY;
          top = fmax(top, s[j]);
        }
        if (top == -INFINITY) continue;
        for (int64_t j = 0; j < a.Tk; j++) sum += exp(s[j] - top);
        lse[(b * a.H + h) * a.Tq + i] = top + log(sum);
        for (int64_t j = 0; j < a.Tk; j++) {
          if (s[j] == -INFINITY) continue;
          double p = exp(s[j] - top) / sum * kept(&a, b, h, i, j);
          for (int64_t d = 0; d < a.D; d++)
            o[q_at(&a, b, i, h) + d] += p * a.v[k_at(&a, b, j, h) + d];
        }
      }
}

void ev_attention_bwd(Ev *e, const Node *n) {
  Att a = att_of(e, n, 6);
  const double *o = ev_in(e, n, 3), *lse = ev_in(e, n, 4), *d_o = ev_in(e, n, 5);
  double *dq = e->v[n->out], *dk = e->v[n->out + 1], *dv = e->v[n->out + 2];
  double *dbias = a.bias ? e->v[n->out + 3] : NULL;
  for (int64_t b = 0; b < a.B; b++)
    for (int64_t h = 0; h < a.H; h++)
      for (int64_t i = 0; i < a.Tq; i++) {
        int64_t qi = q_at(&a, b, i, h);
        double mean = inner(d_o + qi, o + qi, a.D);
        for (int64_t j = 0; j < a.Tk; j++) {
          if (!is_open(&a, b, i, j)) continue;
          int64_t kj = k_at(&a, b, j, h);
          double p = exp(score(&a, b, h, i, j) - lse[(b * a.H + h) * a.Tq + i]);
          double keep = kept(&a, b, h, i, j);
          double ds = p * (keep * inner(d_o + qi, a.v + kj, a.D) - mean);
          if (dbias) dbias[(h * a.Tq + i) * a.Tk + j] += ds;
          for (int64_t d = 0; d < a.D; d++) {
            dq[qi + d] += a.scale * ds * a.k[kj + d];
            dk[kj + d] += a.scale * ds * a.q[qi + d];
            dv[kj + d] += p * keep * d_o[qi + d];
          }
        }
      }
}
