/* group.h - layer-major accumulation: a group of micro-batches goes through the forward of one
 * layer, and later through its backward, before the next layer's.
 *
 * Each member runs the very nodes of a micro-batch of its own, on its samples; only their order
 * differs from one micro-batch after another. Variables are read and assigned member by member, so
 * that a weight whose gradient has one part is accumulated by the same additions in the same order:
 * the same bits. A weight with several uses (tied) gets its parts use by use.
 *
 * What it is for: the transients of a layer are those of one member, its weights and accumulators
 * are at hand once for the whole group. What passes between layers is kept for all members. */
#ifndef MTC_GROUP_H
#define MTC_GROUP_H
#include "../ir/graph.h"

/* g is a program of one member, whose inputs have samples as their first axis; results and parts of
 * gradients (NULL: none) are given for each member, member by member. g itself when members is 1.
 * Nodes of member i have Node.member = i, from 1. */
Graph *graph_group(const Graph *g, Arena *a, int members, int64_t samples, Grads *parts);
/* Index of a member's first sample, given that of the group's. */
ValueId group_sample0(Graph *g, int member, int64_t samples);

#endif
