/* remat.h - free recompute: forward values that backward kernels can compute again from values that
 * are stored anyway are not kept for them.
 *
 * A minimum cut over the element-wise values between forward and backward chooses what is saved:
 * the fewest bytes, never by running a reduction, contraction or attention again. The chosen values
 * are cloned (PH_BACKWARD) for each backward instance that reads them. Exact: the same operations
 * on the same values. */
#ifndef MTC_REMAT_H
#define MTC_REMAT_H
#include "../ir/graph.h"

Graph *graph_remat(Graph *g, Arena *a);
/* Per node: a forward node that no contraction, attention or other CALL of the forward pass depends
 * on: the end of the loss. Backward follows at once, so that nothing is gained by separating the
 * two. */
bool *graph_tail(const Graph *g, Arena *a);

#endif
