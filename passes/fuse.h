/* fuse.h - what the files of fuse share: where values will lie, the graph made legal for kernels,
 * groups of nodes.
 *
 * fuse_graph: fuse_legal.c (copies and clones) -> fuse_group.c (who runs with whom) -> fuse.c
 * (clusters) -> order.c. Beyond plan.h: a LOOP cluster without reductions has outer == rank (every
 * axis is parallel); the ADD and ASSIGN of an accumulating GEMM or SCATTER follow it in its nodes.
 */
#ifndef MTC_FUSE_H
#define MTC_FUSE_H
#include "plan.h"
#include "storage.h"

/* ---- fuse_layout.c ---- */
typedef struct {
  ValuePlace *place; /* per value, as if it were stored; unit = the value whose buffer it lies in */
  bool *mapped;      /* per value: a view that strides cannot express: a loop computes it */
  int *first;        /* per node: index of its first operand in copy */
  bool
      *copy; /* per operand: must be read from a copy, in the operand's canonical order for a dot */
} Layout;
Layout graph_layout(const Graph *g, Arena *a);
/* Axes of operand `which` of a dot: batch, free, contracted, in that order. Returns the rank. */
typedef struct {
  int nbatch, nfree, ncon;
  int64_t axis[MAX_RANK];
} DotSide;
DotSide dot_side(const Graph *g, const Node *n, int which);

/* ---- fuse_legal.c ---- */
/* The live graph with copies (OP_HOLD) where storage needs them, cheap values cloned for each
 * reader, reductions over trailing or leading axes only, and each assigned value behind an OP_HOLD
 * of its own unless a GEMM or SCATTER accumulates into the variable. */
Graph *fuse_legal(const Graph *g, Arena *a);
/* Nodes that loops compute, of which each cluster may have its own copy at no cost: narrower to
 * read than to store. */
bool fuse_cheap(const Graph *g, const Layout *l, const Node *n);
/* Operand k of n must be read from storage even when a loop could compute it. */
bool fuse_needs_storage(const Graph *g, const Layout *l, const Node *n, int k);
/* The product that an ASSIGN accumulates: its ASSIGN(ADD(VAR, product)) is done by the product's
 * own kernel. -1: none. */
NodeId fuse_accumulates(const Graph *g, const Uses *u, const NodeId *assign_before, NodeId assign);

/* ---- fuse_group.c ---- */
enum { GROUP_NONE = -1 };
typedef struct {
  int ngroups;
  int *of;       /* per node: its group, GROUP_NONE for nodes that run nowhere */
  AxisMap *axes; /* per node of a LOOP: axes of its first result in the space */
  struct FuseGroup {
    ClusterKind kind;
    Shape space;
    int outer;
  } * group;
  NodeId **after; /* per node: nodes that it must wait for besides its operands' (variables) */
  int *nafter;
} Groups;
/* apart: a forward value that backward keeps ends its group. */
Groups fuse_groups(const Graph *g, const Layout *l, Arena *a, bool apart);
/* The order of variable accesses: for an ASSIGN the readers of the value that it overwrites and the
 * ASSIGN before, for a VAR the ASSIGN whose value it reads. */
void fuse_var_order(const Graph *g, const Layout *l, Arena *a, NodeId ***after, int **nafter);
static inline bool fuse_is_loop(const Layout *l, const Node *n) {
  OpKind k = op_kind(n->op);
  return k == ELEM || k == REDUCE || n->op == OP_BROADCAST || (k == VIEW && l->mapped[n->out]);
}

/* ---- fuse_verify.c ---- */
/* NULL when the clusters cover each live node once and keep what plan.h says of them, else a
 * sentence. */
const char *fuse_verify(const Clusters *c, Arena *a);

#endif
