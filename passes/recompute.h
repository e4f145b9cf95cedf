/* recompute.h - which values to drop and rebuild so that a fixed sequence of ops stays within a
 * byte budget at least added time. Knows nothing of graphs: plan.c makes the problem from a
 * schedule and `mtc plan --problem` from a file.
 *
 * Every op is: allocate outputs -> run with its workspace -> free what nobody reads any more. */
#ifndef MTC_RECOMPUTE_H
#define MTC_RECOMPUTE_H
#include "../ir/base.h"

typedef struct {
  int64_t ns; /* time */
  int64_t ws; /* workspace bytes while it runs */
  int nin, nout;
  const int *in;  /* value ids read, no repeats */
  const int *out; /* value ids made */
  int alias;      /* input whose storage out[0] takes over (in place), -1 none */
  int layer;      /* groups ops of one model layer; >= 0 */
  bool bwd;       /* backward or later: never run twice */
  bool redo;      /* may run again */
  const char *name;
} RecOp;

typedef struct {
  int nop;
  const RecOp *op;
  int nval;
  const int64_t
      *bytes; /* per value; values that no op makes are resident outside the budget and have 0 */
  const bool *keep; /* per value: never dropped, live to the end; NULL = none */
} RecProblem;

typedef struct {
  int64_t peak; /* bytes, exact */
  int64_t ns;   /* total time of the trace */
  int ntrace;
  int *trace;  /* op ids in execution order; an id that stands again is a rebuild. NULL until asked
                  for */
  void *state; /* the decision vector, for recompute_trace */
} RecPlan;

/* Plans no other plan dominates, by falling peak and rising time; at[0] takes no more time than
 * dropping nothing. Depends on the problem and effort only, never on a budget: a budget selects. */
typedef struct {
  RecPlan *at;
  int n;
  int64_t floor; /* smallest peak found */
} RecFront;

/* How segments of layers that were solved can be run, for problems that share layers: each is solved once, by whichever
 * thread asks first; the others wait for it. What is found is the same with and without. */
typedef struct RecSegments RecSegments;
RecSegments *rec_segments_new(void);
void rec_segments_free(RecSegments *all); /* once no solver uses it; NULL is fine */

typedef struct {
  /* 1 = about half a second on GPT-2 124M; 0 = layered programme, baselines and floor only */
  double effort;
  bool no_floor; /* the smallest peak is of no interest */
  RecSegments *segments; /* or NULL */
} RecOptions;

RecFront recompute_front(Arena *a, const RecProblem *p, const RecOptions *opt);
/* The usual checkpoints: what is made within a layer is dropped and rebuilt once, what passes
 * between layers stays. With its trace; its peak may be above what the trace needs. False when
 * there are no layers. */
bool recompute_full(Arena *a, const RecProblem *p, RecPlan *plan);
/* Fills plan->trace. In a trace a read takes the newest instance of a value; an instance lives from
 * its op to its last reader (to the end for the newest one of a value that is kept), an in-place
 * output lies in its input's storage: with these lifetimes the peak is plan->peak. */
void recompute_trace(Arena *a, const RecProblem *p, RecPlan *plan);
void recompute_traces(Arena *a, const RecProblem *p, int n, RecPlan *const *plan);
/* Exact replay of a trace by other means than the search (each op's inputs present, peak, time).
 * False with *why. */
bool recompute_check(const RecProblem *p, const RecPlan *plan, Arena *a, const char **why);
#endif
