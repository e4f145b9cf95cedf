/* optimizer_impl.h - what the parts of the update graph share: the step while it is built.
 *
 *   optimizer.c        variables, and the graph: begin, then one update per parameter
 *   optimizer_step.c   begins a step: norm, clip, the verdict on the gradients, the step count
 *   optimizer_rules.c  the update of one parameter, by optimizer */
#ifndef MTC_OPTIMIZER_IMPL_H
#define MTC_OPTIMIZER_IMPL_H
#include "optimizer.h"

typedef struct {
  const Job *job;
  const TrainPhase *phase;
  int phase_index;
  Graph *g;
  ValueId scale;  /* of gradients: clipping, and what undoes the loss's factor; -1 = none */
  ValueId finite; /* bool */
  ValueId t;      /* f32: the step count with this step */
  ValueId lr;
  ValueId bc1, root_bc2; /* Adam's corrections */
} Step;

/* New nodes belong to variable `var` (-1 none) and the composition `tag`. */
void step_at(const Step *s, int var, const char *tag);
/* Norm, clip factor, the verdict, the step count: sets scale .. lr. */
void step_begin(Step *s, bool early_squares);
/* What the optimizer's updates share: sets the corrections. */
void step_rates(Step *s);
/* The update of a parameter that the phase trains. */
void step_update(Step *s, int param);

/* The variable derived from `param` with this ending of its path (":m"); -1 none. */
int derived_var(const Vars *vars, int param, const char *suffix);
/* The variable's value as f32. */
ValueId read_f32(Graph *g, int var);
/* The sum over all elements; a scalar itself. */
ValueId sum_all(Graph *g, ValueId x);

#endif
