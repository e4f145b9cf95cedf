/* maxflow.h - minimum cuts of directed graphs with capacities (Dinic). */
#ifndef MTC_MAXFLOW_H
#define MTC_MAXFLOW_H
#include "../ir/base.h"

#define FLOW_INFINITE (INT64_MAX / 8)

typedef struct Flow Flow;
Flow *flow_new(Arena *a, int vertices);
void flow_edge(Flow *f, int from, int to, int64_t capacity);
/* Value of a minimum cut. sink_side[v]: v lies on the sink's side of the minimum cut nearest to the
 * sink. */
int64_t flow_min_cut(Flow *f, int source, int sink, bool *sink_side);

#endif
