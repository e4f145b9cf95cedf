/* order.h - the order in which clusters run. */
#ifndef MTC_ORDER_H
#define MTC_ORDER_H
#include "fuse.h"

/* Sorts c->at: each cluster after those that it waits for, and as the graph stands otherwise; the
 * chunks of the loss head one after another, backward of a chunk right after its forward. Ends with
 * bug() when clusters wait for each other. q: of what cluster each node is, and what variables make
 * it wait for. */
void order_clusters(Clusters *c, const Groups *q, Arena *scratch);

#endif
