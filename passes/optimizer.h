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
/* The sum of squares of an accumulator, as f32. */
ValueId gradient_squares(Graph *g, int accum);
/* A scalar f32 metric, added on first use. */
int metric_var(Vars *vars, const char *path);

/* One optimizer step of a phase: reads the accumulators. Steps whose gradient is
 * not finite leave weights, moments and opt.t as they are and count in metric.skipped. early_squares
 * is GraphChoice's. */
Graph *optimizer_graph(const Job *job, Arena *a, int phase, bool early_squares);

#endif
