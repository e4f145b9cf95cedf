/* precision.h - from a forward graph in f32 to the dtypes that the job's `precision` section asks
 * for.
 *
 * Inside one instance of a composition (a norm, softmax, loss, activation) values are f32; what an
 * instance declares, and everything outside of one, has the compute dtype or that of the last rule
 * that matches its path or "op:NAME". Scalars (losses, metrics, step.*), model states and inputs
 * stay as they are. */
#ifndef MTC_PRECISION_H
#define MTC_PRECISION_H
#include "../frontend/job.h"

/* Sets the storage dtype of every parameter and adds "PATH:master" where it differs from the master
 * dtype. Does nothing the second time. */
void precision_vars(const Job *job);
/* The master copy of a parameter, or the parameter itself when it has none. */
int master_of(const Vars *vars, int param);

/* The rule that decides for a path and the tag of a composition or the name of an operation; NULL
 * when none matches. */
const PrecRule *precision_rule(const Precision *p, const char *path, const char *tag);
/* A hash of what products round to TF32; 0 when none does. */
uint64_t precision_rounding(const Precision *p);
/* Why a value has its dtype, in words: the rule with its place, the setting, or the class of the
 * value. NULL for what is no float. */
const char *precision_why(const Job *job, const Node *n, const Value *v, Arena *a);
/* Why a parameter is stored in its dtype. */
const char *precision_why_stored(const Job *job, int var, Arena *a);

/* Parameters of the forward graph must have been f32 when it was built, and precision_vars called
 * since. */
Graph *graph_precision(const Graph *g, const Job *job, Arena *a);

/* True when phase `phase` trains the parameter; any_phase: when one does. */
bool trained_in(const Job *job, int phase, int var);
bool trained_ever(const Job *job, int var);

#endif
