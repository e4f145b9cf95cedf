/* cost.h - what a cluster costs on a target: a roofline over arithmetic, bytes moved once and
 * launches.
 *
 * A cost is first taken as counts (KernelCost), which are linear in the micro-batch, then priced.
 * So the costs of a micro-batch that was never built follow from two that were. */
#ifndef MTC_COST_H
#define MTC_COST_H
#include "plan.h"

typedef struct {
  ClusterKind kind;
  DType type; /* of a contraction's operands */
  bool tf32;  /* f32 contractions may round their operands */
  int launches;
  int64_t flops; /* contraction: 2 a multiply-add; LOOP: element operations, weighted */
  int64_t bytes; /* moved once */
  int64_t batch, m, n,
      k; /* GEMM; attention: batch and heads, query length, key length, head size */
  int64_t rows,
      columns; /* sums over rows: rows, columns of all results together. SCATTER: rows = ids */
  bool flat;   /* the sums are over everything */
  bool sums;   /* LOOP: along rows */
} KernelCost;

/* p NULL: f32 products round nothing. */
KernelCost cost_kernel(const Clusters *c, int cluster, const Precision *p);
/* The value at micro-batch `at`, linear through a (at micro-batch at_a) and b (at at_b). */
static inline int64_t linear_between(int64_t a, int64_t at_a, int64_t b, int64_t at_b, int64_t at) {
  return at_a == at_b ? a : a + (b - a) / (at_b - at_a) * (at - at_a);
}

KernelCost cost_between(const KernelCost *a, int64_t at_a, const KernelCost *b, int64_t at_b,
                        int64_t at);

int64_t cost_ns(const KernelCost *k, const Target *t);
/* Nanoseconds of cost_ns that are not launches, at the speed of an uncalibrated class; the class. */
double cost_work_ns(const KernelCost *k, const Target *t);
int cost_class(const KernelCost *k, const Target *t);
int64_t cost_workspace(const KernelCost *k, const Target *t);

/* Fills flops, bytes, ns and workspace of every cluster. */
void cost_clusters(Clusters *c, const Target *t, const Precision *p);

#endif
