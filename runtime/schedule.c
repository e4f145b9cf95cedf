/* schedule.c - learning-rate schedules: see schedule.h. */
#include "schedule.h"

#include <math.h>

int64_t schedule_warmup(const ProgramPhase *p, int64_t steps) {
  double w = p->warmup < 1 ? p->warmup * (double)steps : p->warmup;
  return w > 0 ? (int64_t)llround(w) : 0;
}

int64_t schedule_steps(const ProgramPhase *p, int64_t samples) {
  if (p->steps > 0) return p->steps;
  double wanted = p->epochs * (double)samples,
         per_step = (double)(p->micro_batch * p->accumulation);
  int64_t steps = (int64_t)ceil(wanted / per_step - 1e-9);
  return steps < 1 ? 1 : steps;
}

/* Share of the way from the full rate (1) to the final rate (0) at `progress` in [0, 1). */
static double shape_at(const ProgramPhase *p, double progress) {
  switch (p->sched_kind) {
    case RS_LINEAR:
      return 1 - progress;
    case RS_COSINE: {
      double cycles = p->cycles > 0 ? p->cycles : 1, turn = progress * cycles;
      return 0.5 * (1 + cos(M_PI * (turn - floor(turn))));
    }
    default:
      return 1;
  }
}

/* Warm-up, a plateau, and a linear fall over the last `decay` share of the phase. */
static double wsd_share(const ProgramPhase *p, int64_t steps, int64_t step) {
  int64_t fall = llround(p->decay * (double)steps), start = steps - fall;
  if (step < start || fall <= 0) return 1;
  return 1 - (double)(step - start) / (double)fall;
}

double schedule_lr(const ProgramPhase *p, int64_t steps, int64_t step) {
  int64_t warmup = schedule_warmup(p, steps);
  if (p->sched_kind == RS_RSQRT) {
    double n = (double)(step + 1 > warmup ? step + 1 : warmup);
    return p->lr * sqrt((double)(warmup > 0 ? warmup : 1) / n);
  }
  if (step < warmup) return p->lr * (double)(step + 1) / (double)warmup;
  if (p->sched_kind == RS_CONSTANT) return p->lr;
  int64_t span = steps - warmup > 0 ? steps - warmup : 1;
  double progress = (double)(step - warmup) / (double)span;
  double share = p->sched_kind == RS_WSD ? wsd_share(p, steps, step) : shape_at(p, progress);
  double end = p->final_is_lr ? p->final : p->final * p->lr;
  return end + (p->lr - end) * share;
}
