/* train_step.c - one optimizer step: micro-batches, update, metrics. See train_parts.h.
 *
 * The loss of a step is the sum over its valid targets divided by their number, however it is
 * split: each micro-batch adds its share, weighted by a scalar that holds for the whole step. */
#include "train_parts.h"

#include "convert.h"
#include "outfile.h"
#include "schedule.h"

static bool write_step_scalars(Train *t, const RunPhase *ph, const Batch *b, double lr, Fail *f) {
  Replay *r = &t->replay;
  const Scalars *s = &t->scalars;
  double inv_count = b->valid > 0 ? 1.0 / (double)b->valid : 0;
  return scalar_write_seed(r, s, t->seed, f) && scalar_write_i32(r, s, SC_STEP, t->state.step, f) &&
         scalar_write_f32(r, s, SC_INV_COUNT, inv_count, f) &&
         scalar_write_f32(r, s, SC_INV_ACCUM, 1.0 / (double)ph->setting->accumulation, f) &&
         scalar_write_f32(r, s, SC_LR, lr, f);
}

static bool run_program(Train *t, int program, Fail *f) {
  return t->profile ? profile_run(t->profile, &t->replay, program, f)
                    : replay_run(&t->replay, program, f);
}

static int64_t feed_bytes(const Feed *feed) {
  int64_t bytes = 0;
  for (int i = 0; i < feed->n; i++)
    bytes += tensor_count(feed->inputs[i].at) * dtype_bytes(feed->inputs[i].at->dtype);
  return bytes;
}

/* Inputs of the program of a micro-batch. */
static const Feed *micro_feed(const RunPhase *ph, int64_t micro) {
  return phase_micro(ph->setting, micro) == ph->setting->micro ? &ph->micro : &ph->first;
}

bool train_micro_inputs(Train *t, const RunPhase *ph, const Batch *b, int64_t micro, Fail *f) {
  int64_t first = micro * ph->setting->micro_batch;
  return scalar_write_i32(&t->replay, &t->scalars, SC_SAMPLE0, first, f) &&
         feed_write(&t->replay, micro_feed(ph, micro), b, first, f);
}

bool train_micro(Train *t, const RunPhase *ph, const Batch *b, int64_t micro, Fail *f) {
  double begun = t->profile ? profile_begin(t->profile, &t->replay, f) : 0;
  if (!train_micro_inputs(t, ph, b, micro, f)) return false;
  if (t->profile)
    profile_copy(t->profile, "batch to device", feed_bytes(micro_feed(ph, micro)), begun);
  return run_program(t, phase_micro(ph->setting, micro), f);
}

static bool read_metrics(Train *t, StepReport *r, double *skipped, Fail *f) {
  double begun = t->profile ? profile_begin(t->profile, &t->replay, f) : 0;
  if (!scalar_read(&t->replay, t->loss, &r->loss, f) ||
      !scalar_read(&t->replay, t->grad_norm, &r->grad_norm, f) ||
      !scalar_read(&t->replay, t->skipped, skipped, f) ||
      !scalar_read(&t->replay, t->scale, &t->next_scale, f))
    return false;
  if (t->profile) profile_copy(t->profile, "metrics to host", 0, begun);
  return true;
}

/* Metrics begin at zero; the first micro-batch overwrites the accumulators, whatever they hold. */
static bool begin_step(Train *t, Fail *f) {
  return variables_fill(&t->replay, PV_METRIC, 0, f) &&
         (!t->options->poison || variables_fill(&t->replay, PV_ACCUM, 0xff, f));
}

StepResult train_step(Train *t, const RunPhase *ph, const Batch *b, StepReport *r, Fail *f) {
  const ProgramPhase *set = ph->setting;
  r->lr = schedule_lr(set, ph->steps, t->state.phase_step);
  if (!begin_step(t, f) || !write_step_scalars(t, ph, b, r->lr, f)) return STEP_FAILED;
  for (int64_t m = 0; m < set->accumulation; m++) {
    if (!train_micro(t, ph, b, m, f)) return STEP_FAILED;
    crash_point("micro-step");
    if (train_interrupted && !t->has_state && set->update >= 0) return STEP_ABANDONED;
  }
  double skipped;
  t->last_scale = t->next_scale;
  if (set->update >= 0 && !run_program(t, set->update, f)) return STEP_FAILED;
  if (!read_metrics(t, r, &skipped, f)) return STEP_FAILED;
  r->skipped = skipped > 0;
  r->loss_scale = t->last_scale;
  return STEP_DONE;
}

bool train_write_scale(Train *t, double scale, Fail *f) {
  float x = (float)scale;
  return t->scale < 0 || replay_write(&t->replay, &t->program->vars[t->scale].at, &x, f);
}
