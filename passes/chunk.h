/* chunk.h - splits the loss head along tokens, so that the logits of one chunk only are alive at a
 * time.
 *
 * The head is found by structure: the last contraction that the loss depends on through row-wise
 * values alone, up to sums over all tokens. Its rows (tokens) are cut into chunks: slice -> dot ->
 * .. -> partial sum; partial sums are added. Nodes of chunk i carry Node.chunk = i, and so do their
 * gradients. */
#ifndef MTC_CHUNK_H
#define MTC_CHUNK_H
#include "../ir/graph.h"

/* The most chunks that the forward graph's head allows: 1 when it has no such head. */
int chunk_limit(const Graph *g);
/* The graph with its head in `chunks` chunks (at most chunk_limit); g itself when that is 1. */
Graph *graph_chunk(Graph *g, Arena *a, int chunks);

#endif
