/* first.h - the micro program as the first micro-batch of a step runs it: gradients overwrite their accumulators.
 *
 * Between the update and the next step accumulators hold nothing that anyone needs. What an accumulator has before its
 * first assign is the constant 0 here, so that no kernel reads it: products and scatters store instead of adding, loops
 * add to the constant, which gives the same bits as an accumulator of zeros (but for the sign of a zero). Clusters, their
 * order, their outputs and places are those of the micro program: every trace of one is a trace of the other, with the
 * same transient buffers. Only inputs are fewer. */
#ifndef MTC_FIRST_H
#define MTC_FIRST_H
#include "plan.h"

/* The clusters of the first micro-batch, of a graph of their own; times and bytes are those of the micro program until
 * cost_clusters counts again. What micro does not change is shared with it. */
Clusters first_clusters(const Clusters *micro, Arena *a);

#endif
