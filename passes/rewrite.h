/* rewrite.h - how passes build a new graph from an old one: values of the old graph map to values
 * of the new one, nodes keep the place they came from. Also: nodes as plain data (Proto), and which
 * nodes are live. */
#ifndef MTC_REWRITE_H
#define MTC_REWRITE_H
#include "../ir/graph.h"

/* A node that is not in a graph yet. Pointers are borrowed. */
typedef struct {
  Op op;
  int nin, nints;
  const ValueId *in;
  const int64_t *ints;
  double num[2];
  const char *sym;
} Proto;

typedef struct {
  const Graph *from;
  Graph *to;
  Arena *arena;
  ValueId *map; /* per value of `from`; -1 = not there (yet) */
} Rewrite;

/* The new graph lives in a. */
Rewrite rewrite_begin(const Graph *from, Arena *a);
/* Clones node n with its operands mapped, and maps its results. */
void rewrite_node(Rewrite *r, NodeId n);
/* Maps the results of the old graph, checks the new one in debug builds, and returns it. */
Graph *rewrite_end(Rewrite *r);

/* New nodes of g get the place, path, tag, layer, chunk, member, tile and phase of n. */
void graph_at(Graph *g, const Node *n);
Proto proto_of(const Node *n, const ValueId *in);
ValueId graph_add_proto(Graph *g, const Proto *p);

/* The graph, moved to arena a: nothing of it lies in the arena that it came from. */
Graph *graph_moved(const Graph *g, Arena *a);
/* Nodes that results and assigns depend on. */
bool *graph_live(const Graph *g, Arena *a);
/* The graph without its dead nodes; g itself when there are none. */
Graph *graph_drop_dead(Graph *g, Arena *a);
/* Per node: the assign that VAR node n reads the value of, -1 when it reads the value at the
 * program's start; for an assign: the assign of the same variable before it. Other nodes: -1. */
NodeId *graph_assign_before(const Graph *g, Arena *a);
/* Verifies g and ends with bug() naming the pass when it is broken. */
void graph_must_verify(const Graph *g, Arena *a, const char *pass);

#endif
