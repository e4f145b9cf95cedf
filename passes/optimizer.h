/* optimizer.h - variables of the optimizer and the update graph: norm, clip, step, non-finite
 * handling. */
#ifndef MTC_OPTIMIZER_H
#define MTC_OPTIMIZER_H
#include "../frontend/job.h"

/* Adds "PATH:grad" for every parameter that some phase trains, its state (":m", ":m:scale", ":v", ..)
 * as the optimizers of these phases need it, "opt.t" and the metrics of a step. Does nothing the second time. */
void optimizer_vars(const Job *job);
/* The accumulator of a parameter; -1 when it has none. */
int accum_of(const Vars *vars, int param);
/* The scalar that holds the sum of squares of a parameter's gradient, added on first use. */
int squares_of(Vars *vars, int param);
/* The sum of squares of a gradient, as f32. */
ValueId gradient_squares(Graph *g, ValueId gradient);
/* A scalar f32 metric, added on first use. */
int metric_var(Vars *vars, const char *path);

/* One optimizer step of a phase: reads the accumulators. Steps whose gradient is
 * not finite leave weights, moments and opt.t as they are and count in metric.skipped. early_squares
 * is GraphChoice's. */
Graph *optimizer_graph(const Job *job, Arena *a, int phase, bool early_squares);

/* ---- optimizer_early.c: the update of each parameter right after its gradient ---- */
/* Why a phase cannot do that, as bits; 0 when it can. An update cannot be undone: it may not wait for anything that is only
 * known once all gradients are. */
enum { EARLY_CLIP = 1, EARLY_SKIP = 2, EARLY_SCALE = 4 };
int early_update_obstacles(const Job *job, int phase);
/* All phases can. */
bool early_update_possible(const Job *job);
/* g: forward and backward of a step that is one micro-batch. Its results are gradients, named as their accumulators, in the
 * accumulators' dtypes; the gradients of the other parameters are in their accumulators when it ends. Returns the same with
 * the updates: each stands behind the last read of its parameter. Leaves "PARAMETER:squares", by which a gradient that is
 * not finite can be named. */
Graph *early_update_graph(const Job *job, Graph *g, Arena *a, int phase);

#endif
