/* chunk.h - splits along tokens what makes many numbers a token out of few, so that those of one
 * chunk only are alive at a time.
 *
 * The loss head is found by structure: the last contraction that the loss depends on through
 * row-wise values alone, up to sums over all tokens. Its rows (tokens) are cut into chunks: slice ->
 * dot -> .. -> partial sum; partial sums are added. Nodes of chunk i carry Node.chunk = i, and so do
 * their gradients: forward and backward of a chunk run one after the other.
 *
 * An MLP, too: contractions of one value to more numbers, row-wise nodes, one contraction to fewer.
 * Each chunk makes its rows of the result; nodes of chunk i carry Node.tile = i. Where the numbers
 * inside are rebuilt, forward and backward hold those of one chunk (as in Bekman et al. 2025, "Arctic
 * Long Sequence Training"). Weight gradients are summed over chunks: the same up to
 * rounding. */
#ifndef MTC_CHUNK_H
#define MTC_CHUNK_H
#include "../ir/graph.h"

enum { MAX_MLP_CHUNKS = 512 };

/* The most chunks that the forward graph's head allows: 1 when it has no such head. */
int chunk_limit(const Graph *g);
/* The graph with its head in `chunks` chunks (at most chunk_limit); g itself when that is 1. */
Graph *graph_chunk(Graph *g, Arena *a, int chunks);
/* The graph with each MLP in `chunks` chunks (at most its rows); g itself when that is 1 or there is none. */
Graph *graph_chunk_mlps(Graph *g, Arena *a, int chunks);
/* The last step: where chunks of an MLP are joined in forward, each reader reads them as they are, so that a chunk can be rebuilt
 * without the others. g itself when there are none. */
Graph *graph_part_tiles(Graph *g, Arena *a);

#endif
