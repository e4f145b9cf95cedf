/* loss_scale.h - the factor on the loss that keeps gradients in f16 from vanishing: its variables,
 * its place in the micro-batch's graph, and how it moves from step to step.
 *
 * The factor is "opt.scale" (f32, a power of two); "opt.good" counts the steps in a row without
 * overflow and "opt.skips" those with one (i32). All three persist, so that a resumed run goes on
 * with the same factor. After `interval` good steps the factor doubles, after a skipped one it is
 * halved, down to 1. Gradients carry the factor from the loss to the accumulators; the update
 * divides it out. A fixed factor never moves. */
#ifndef MTC_LOSS_SCALE_H
#define MTC_LOSS_SCALE_H
#include "../frontend/job.h"

/* Adds the variables; none when the job does not scale. Does nothing the second time. */
void loss_scale_vars(const Job *job);
/* The loss times the factor, for autodiff to begin at; `loss` itself when nothing is scaled. */
ValueId loss_scaled(const Job *job, Graph *g, ValueId loss);
/* In the update: 1 / the factor that this step's gradients carry; -1 when there is none. */
ValueId loss_unscale(const Job *job, Graph *g);
/* In the update: the factor of the next step. finite: bool, the verdict on the gradients. */
void loss_scale_step(const Job *job, Graph *g, ValueId finite);

#endif
