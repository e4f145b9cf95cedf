/* recompute_sim.h - inside of the simulator, shared by full runs and trials. */
#ifndef MTC_RECOMPUTE_SIM_H
#define MTC_RECOMPUTE_SIM_H
#include "recompute_impl.h"

typedef struct {
  int64_t bytes;
  uint32_t step; /* in which it was touched last */
  uint32_t need; /* mark of the chain that it must survive */
  int readers;   /* in the chain, still to come */
  bool resident, rebuilt;
} SimValue;

typedef struct {
  int64_t peak, ns;
  int twins;
} RecStep;

typedef VEC(int) SimTrace;
typedef struct SimBase SimBase;

struct RecSim {
  const RecModel *m;
  Arena *arena;
  uint8_t *d; /* decision in force */
  SimValue *v;
  int64_t cur;   /* bytes live now */
  uint32_t step; /* counts evaluations */
  int *touched;  /* values whose residency the step read or changed */
  int ntouched;
  int *chain, *stack;
  uint32_t *op_mark, mark;
  bool has_eager;  /* the decision has an EAGER gap */
  SimTrace *trace; /* execution order is written here when set */
  Arena *trace_arena;
  SimBase *base;  /* during trials: residency comes from it */
  SimBase *bases; /* storage of the base, made on first use */
  int64_t work;
};

/* Evaluates op k; next is the op after it or -1. Reads and changes cur and residency. False when
 * infeasible. */
bool sim_step(RecSim *s, int k, int next, RecStep *out);
/* Residency before the first op, for the decision in force. */
void sim_start(RecSim *s);
/* Residency of v before the step under evaluation, in the trial. */
bool sim_base_resident(const RecSim *s, int v);

#endif
