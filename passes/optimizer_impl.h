/* optimizer_impl.h - what the parts of the update graph share: the step while it is built.
 *
 *   optimizer.c           variables, and the graph: begin, then one update per parameter
 *   optimizer_step.c      begins a step: norm, clip, the verdict on the gradients, the step count
 *   optimizer_early.c     the updates inside the backward pass, each right after its gradient
 *   optimizer_state.c     formats: how weights and moments are read and stored
 *   optimizer_rules.c     the table of optimizers, and the update of one parameter
 *   optimizer_adafactor.c, optimizer_muon.c   rules that are more than a loop over elements */
#ifndef MTC_OPTIMIZER_IMPL_H
#define MTC_OPTIMIZER_IMPL_H
#include "optimizer.h"

typedef struct {
  const Job *job;
  const TrainPhase *phase;
  int phase_index;
  Graph *g;
  ValueId scale;  /* of gradients by clipping and unscaling; -1 = none */
  ValueId finite; /* bool; -1 = every step counts */
  const ValueId *gradient; /* per variable: of a parameter, in the accumulator's dtype; -1 or NULL = in its accumulator */
  ValueId t;      /* f32: the step count with this step */
  ValueId lr;
  ValueId bc1, root_bc2; /* Adam's corrections */
} Step;

/* New nodes belong to variable `var` (-1 none) and the composition `tag`. */
void step_at(const Step *s, int var, const char *tag);
/* Norm, clip factor, the verdict, the step count: sets scale .. lr. */
void step_begin(Step *s, bool early_squares);
/* Of a step whose updates come one by one with their gradients: the step count, before the first; and when all have left
 * their squares, the norm and whether it is finite. */
void step_begin_early(Step *s);
void step_end_early(Step *s);
/* What the optimizer's updates share: sets the corrections. */
void step_rates(Step *s);
/* The update of a parameter that the phase trains. */
void step_update(Step *s, int param);

/* The variable derived from `param` with this ending of its path (":m"); -1 none. */
int derived_var(const Vars *vars, int param, const char *suffix);
/* The sum over all elements; a scalar itself. */
ValueId sum_all(Graph *g, ValueId x);

/* ---- optimizer_state.c ---- */
/* State that an optimizer keeps of a parameter. */
enum {
  STATE_M = 1,   /* ":m", a number an element */
  STATE_V = 2,   /* ":v", the same, never negative */
  STATE_ROWS = 4 /* ":r" and ":c": factors of a matrix, its last two axes */
};
void state_vars(const Job *job, int param, int states);

/* The update of one parameter while it is built. Values of the parameter's elements have the shape
 * `space`: its own, or blocks of 256 when a moment is kept in 8 bits. */
typedef struct {
  int param;
  Shape space;
  ValueId p, grad, lr; /* lr: scalar, of this parameter */
  double decay;
  int draws; /* of 16 random bits an element */
  int copy;  /* which of several computations of the same values this is: see update_again */
} Update;
Update update_begin(Step *s, int param);
/* The same gradient and state once more, for a kernel that should compute them again rather than have
 * another one store them: nothing made of them is shared with u. */
Update update_again(Step *s, const Update *u);
/* The gradient as it was summed up, in its own shape and dtype. */
ValueId gradient_read(const Step *s, int param);
/* The same, clipped and unscaled, times a scalar; -1 = as it is. */
ValueId gradient(const Step *s, const Update *u, ValueId factor);
/* Moment ":m" or ":v" as f32 in the space of the update, and its new value, kept when the step does
 * not count. */
ValueId state_read(const Step *s, const Update *u, const char *suffix);
void state_store(const Step *s, Update *u, const char *suffix, ValueId x);
/* The parameter's new value. */
void weight_store(const Step *s, Update *u, ValueId p);
/* An f32 variable that is replaced by x when the step counts. */
void store_f32(const Step *s, int var, ValueId x, ValueId old);

/* ---- rules: what is subtracted from the (decayed) weight ---- */
ValueId adafactor(Step *s, Update *u);
ValueId muon(Step *s, Update *u);
bool muon_takes(const Var *v);
/* What an optimizer keeps of a parameter: STATE_ bits. */
int optimizer_states(const Optimizer *o, const Var *v);

#endif
