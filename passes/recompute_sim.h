/* recompute_sim.h - inside of the simulator, shared by full runs and trials. */
#ifndef MTC_RECOMPUTE_SIM_H
#define MTC_RECOMPUTE_SIM_H
#include "recompute_impl.h"

typedef struct {
  int64_t bytes;
  uint32_t step; /* of a trial or its base, in which it was touched last */
  /* marks of chains */
  uint32_t need; /* that it must survive */
  uint32_t made; /* that makes it, because it was not there */
  uint32_t read; /* that has counted its readers */
  int readers;   /* in that chain, still to come */
  bool resident;
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
  int *touched;  /* values whose residency a step of a trial or its base read or changed */
  int ntouched;
  int *chain, *stack;
  int *window_in, *window_out; /* values of the window: from outside, made inside */
  int nwindow_in, nwindow_out;
  uint32_t *op_mark, mark;
  bool has_eager;  /* the decision has an EAGER gap */
  SimTrace *trace; /* execution order is written here when set */
  Arena *trace_arena;
  SimBase *base;  /* during trials: residency comes from it */
  SimBase *bases; /* storage of the base, made on first use */
  int64_t work;
};

/* Evaluates op k; next is the op after it or -1. Reads and changes cur and residency, and tells which values it
 * touched. False when infeasible. */
bool sim_step_touching(RecSim *s, int k, int next, RecStep *out);
/* Residency before the first op, for the decision in force. */
void sim_start(RecSim *s);
/* Residency of v before the step under evaluation, in the trial. */
bool sim_base_resident(const RecSim *s, int v);

#endif
