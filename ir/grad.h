/* grad.h - internal to ir/: what the gradient rules of grad.c and the engine in autodiff.c say to
 * each other.
 *
 * A rule reads its node's operands, results and result cotangents, appends nodes, and gives each
 * operand that needs one its cotangent: same shape and dtype as the operand. Cotangents that are
 * not given are zero. */
#ifndef MTC_GRAD_H
#define MTC_GRAD_H
#include "graph.h"

typedef struct Ad Ad;
typedef void GradRule(Ad *ad, const Node *n);
#define OP(id, text, nin, nout, attrs, shape, grad, eval, kind, doc) GradRule grad;
#include "ops.def"

Graph *ad_graph(Ad *ad);
/* Whether the loss reaches a wanted value through v: other values get no cotangent. */
bool ad_needs(const Ad *ad, ValueId v);
/* Whether v is a trained parameter itself, or a cast, reshape or transpose of one. */
bool ad_is_weight(const Ad *ad, ValueId v);
/* The summed cotangent of result i of n; -1 = zero. */
ValueId ad_cot(Ad *ad, const Node *n, int i);
/* Adds ct to the cotangent of v; nothing happens when v needs none or ct is -1. */
void ad_give(Ad *ad, ValueId v, ValueId ct);
/* The same for a cotangent of elements start.. of one axis: kept apart, so that slices that tile an
 * axis become one concat instead of a sum of padded values. */
void ad_give_slice(Ad *ad, ValueId v, int axis, int64_t start, ValueId ct);
/* Reports that the op has no gradient (yet). */
void ad_refuse(Ad *ad, const Node *n, ErrId why);

#endif
