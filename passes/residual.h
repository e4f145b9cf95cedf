/* residual.h - which values of a forward graph are the residual stream: what grows from layer to
 * layer and overflows f16 first. */
#ifndef MTC_RESIDUAL_H
#define MTC_RESIDUAL_H
#include "../ir/graph.h"

/* Per value of g: true for a sum of two activations that no composition made, and for what flows
 * into one element by element: branches with their biases and dropout, back to the contraction that
 * made them (T5's feed-forward output), and embeddings. Operands of that contraction, and what
 * norms and activations declare, are not. */
bool *residual_stream(const Graph *g, Arena *a);

#endif
