/* train_step.c - one optimizer step: micro-batches, update, metrics. See train_parts.h.
 *
 * The loss of a step is the sum over its valid targets divided by their number, however it is
 * split: each micro-batch adds its share, weighted by a scalar that holds for the whole step. */
#include "train_parts.h"

#include "convert.h"
#include "outfile.h"
#include "schedule.h"

#include <math.h>
#include <stdlib.h>

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
  return t->profile ? profile_run(t->profile, &t->replay, program, f) : replay_run(&t->replay, program, f);
}

static int64_t feed_bytes(const Feed *feed) {
  int64_t bytes = 0;
  for (int i = 0; i < feed->n; i++)
    bytes += tensor_count(feed->inputs[i].at) * dtype_bytes(feed->inputs[i].at->dtype);
  return bytes;
}

static bool run_micro(Train *t, const RunPhase *ph, const Batch *b, int64_t micro, Fail *f) {
  int64_t first = micro * ph->setting->micro_batch;
  double begun = t->profile ? profile_begin(t->profile, &t->replay, f) : 0;
  if (!scalar_write_i32(&t->replay, &t->scalars, SC_SAMPLE0, first, f) ||
      !feed_write(&t->replay, &ph->micro, b, first, f))
    return false;
  if (t->profile) profile_copy(t->profile, "batch to device", feed_bytes(&ph->micro), begun);
  return run_program(t, ph->setting->micro, f);
}

static bool read_metrics(Train *t, StepReport *r, double *skipped, Fail *f) {
  double begun = t->profile ? profile_begin(t->profile, &t->replay, f) : 0;
  if (!scalar_read(&t->replay, t->loss, &r->loss, f) ||
      !scalar_read(&t->replay, t->grad_norm, &r->grad_norm, f) ||
      !scalar_read(&t->replay, t->skipped, skipped, f))
    return false;
  if (t->profile) profile_copy(t->profile, "metrics to host", 0, begun);
  return true;
}

StepResult train_step(Train *t, const RunPhase *ph, const Batch *b, StepReport *r, Fail *f) {
  const ProgramPhase *set = ph->setting;
  r->lr = schedule_lr(set, ph->steps, t->state.phase_step);
  if (!variables_zero(&t->replay, PV_METRIC, f) || !write_step_scalars(t, ph, b, r->lr, f))
    return STEP_FAILED;
  for (int64_t m = 0; m < set->accumulation; m++) {
    if (!run_micro(t, ph, b, m, f)) return STEP_FAILED;
    crash_point("micro-step");
    if (train_interrupted && !t->has_state) return STEP_ABANDONED;
  }
  double skipped;
  if (!run_program(t, set->update, f) || !read_metrics(t, r, &skipped, f)) return STEP_FAILED;
  r->skipped = skipped > 0;
  return STEP_DONE;
}

static bool all_finite(const ProgramVar *v, const void *packed) {
  int64_t n = tensor_count(&v->at);
  for (int64_t i = 0; i < n; i++) {
    float x;
    convert_elements(DT_F32, &x, v->at.dtype, (const char *)packed + i * dtype_bytes(v->at.dtype),
                     1);
    if (!isfinite(x)) return false;
  }
  return true;
}

/* The first accumulator with a value that is not finite, as its parameter's path. */
static bool find_nonfinite(Train *t, const char **path, Fail *f) {
  const Program *p = t->program;
  for (int i = 0; i < p->nvars && !*path; i++) {
    const ProgramVar *v = &p->vars[i];
    if (v->role != PV_ACCUM || !dtype_is_float(v->at.dtype)) continue;
    void *packed = variable_buffer(v, f);
    if (!packed) return false;
    bool ok = replay_read(&t->replay, &v->at, packed, f);
    if (ok && !all_finite(v, packed)) *path = v->of >= 0 ? p->vars[v->of].path : v->path;
    free(packed);
    if (!ok) return false;
  }
  return true;
}

const char *train_name_nonfinite(Train *t, const RunPhase *ph, const Batch *b, Fail *f) {
  const char *path = NULL;
  if (t->has_state) return NULL;
  for (int64_t m = 0; m < ph->setting->accumulation && !path; m++)
    if (!run_micro(t, ph, b, m, f) || !find_nonfinite(t, &path, f)) return NULL;
  return variables_zero(&t->replay, PV_ACCUM, f) ? path : NULL;
}
