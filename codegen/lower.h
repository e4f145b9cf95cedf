/* lower.h - from a LOOP cluster and the storages of its operands to a Kernel.
 *
 * lower.c makes instructions of nodes, lower_views.c the indices of loads, lower_nests.c the nests
 * and passes that run them. */
#ifndef MTC_LOWER_H
#define MTC_LOWER_H
#include "../passes/plan.h"
#include "kir.h"

/* The kernel of a LOOP cluster whose operands lie at `in` and `out` (parallel to the cluster's).
 * Only strides and equality of buffers are looked at, so that kernels of equal layers are equal.
 * NULL with a sentence in *why when the cluster is of a form that no kernel can have. */
Kernel *lower_cluster(const Graph *g, const Cluster *c, const Storage *in, const Storage *out,
                      Arena *a, const char **why);

/* ---- between the files of the lowering ---- */
typedef struct {
  const Graph *g;
  const Cluster *c;
  const Storage *in_at, *out_at;
  Arena *arena;
  Kernel *k;
  const char *why;    /* first reason that stops the lowering */
  int axis[MAX_RANK]; /* loop axis of each axis of the space; -1 for axes of one element */
  KReg *reg;          /* per node of the cluster; -1 not yet */
  VEC(KInstr) instrs;
  VEC(KStore) stores; /* element of every output */
  bool *in_place;     /* per store: its buffer is one that the kernel reads */
  bool *main_store;   /* per store: the main nest writes it */
} Lower;

/* Records the reason; returns -1. */
KReg lower_fail(Lower *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The register of i, a new one unless one has the same value. */
KReg lower_add(Lower *l, KInstr i);
/* Position of v's node in the cluster, or -1 when v comes from outside. */
int lower_inside(const Lower *l, ValueId v);
/* The register of v, whose k-th axis is axis map->axes[k] of the space: computed before or loaded.
 */
KReg lower_value(Lower *l, ValueId v, const AxisMap *map);

/* lower_views.c: a load of the cluster input v at the given index of each of its axes. */
KReg lower_load(Lower *l, ValueId v, const KIndex *index, int nguards, const KGuard *guards);
/* A VIEW node: an alias of a computed operand, or a load through the index map. */
KReg lower_view(Lower *l, const Node *n, const AxisMap *map);
KReg lower_gather(Lower *l, const Node *n, const AxisMap *map);

/* lower_nests.c: fills the kernel's nests from instrs and stores. */
void lower_nests(Lower *l);

#endif
