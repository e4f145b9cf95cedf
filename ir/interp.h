/* interp.h - internal to ir/: what the evaluation rules share. A rule fills the arrays of its
 * node's results, which are allocated and zero, from its operands' arrays; or replaces the pointer
 * when a result equals an operand. */
#ifndef MTC_INTERP_H
#define MTC_INTERP_H
#include "graph.h"

typedef struct {
  const Graph *g;
  const Interp *run;
  Arena *arena;
  double **v; /* per value, row-major */
} Ev;

typedef void EvalRule(Ev *e, const Node *n);
#define OP(id, text, nin, nout, attrs, shape, grad, eval, kind, doc) EvalRule eval;
#include "ops.def"

static inline const double *ev_in(const Ev *e, const Node *n, int i) {
  return e->v[n->in[i]];
}
static inline const Shape *ev_shape(const Ev *e, const Node *n, int i) {
  return &e->g->values.at[n->in[i]].shape;
}
static inline const Value *ev_out(const Ev *e, const Node *n) {
  return &e->g->values.at[n->out];
}

/* dst[i . dst_stride] = src[i . src_stride] for each index i of the shape. */
void ev_copy(const Shape *s, double *dst, const int64_t *dst_stride, const double *src,
             const int64_t *src_stride);

/* x rounded to nearest even in t; integers wrap. */
double ev_round(DType t, double x);

#endif
