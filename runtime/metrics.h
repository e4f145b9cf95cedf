/* metrics.h - what a run tells about itself: metrics.jsonl, the table on standard output, the
 * status line on a terminal.
 *
 * metrics.jsonl gets one object a step and is the record; the table is for eyes: one row for the
 * first and the last step, for each evaluation, and every ten seconds. */
#ifndef MTC_METRICS_H
#define MTC_METRICS_H
#include "fail.h"

/* One step. NaN means: was not measured, and is left out; infinities and NaN losses print as null.
 */
typedef struct {
  int64_t step;      /* from 1 */
  int64_t total;     /* of the run */
  const char *phase; /* "" when there is one */
  double epoch;
  double loss, lr, grad_norm;
  int64_t tokens; /* valid targets of the step */
  double tokens_per_second, step_seconds;
  double loss_scale; /* factor on the loss in this step; NaN when there is none */
  bool skipped;
  const char *nonfinite; /* path of a parameter whose gradient is not finite, or NULL */
  bool evaluated;
  double eval_loss, eval_metric;
  const char *metric; /* name of eval_metric or NULL */
  double est_seconds; /* of a step, by the plan; 0 unknown */
} StepReport;

typedef struct {
  FILE *file;               /* metrics.jsonl, or NULL */
  bool table, json, status; /* rows on stdout; objects on stdout; status line on stderr */
  bool status_shown, head_shown;
  double last_row, last_status;
  double step_seconds; /* recent average, for the time left */
} Metrics;

/* dir NULL: no file. With keep_steps >= 0 an existing file is cut behind the line of that step,
 * else it starts anew. */
bool metrics_open(Metrics *m, const char *dir, int64_t keep_steps, bool quiet, bool json, Fail *f);
bool metrics_step(Metrics *m, const StepReport *r, bool force_row, Fail *f);
/* A line beside the table, on stdout; not with json or quiet. */
void metrics_note(Metrics *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void metrics_close(Metrics *m);

double clock_seconds(void); /* monotonic */
/* "7d 01h", "3h 12m", "4m 05s", "12s" */
void format_duration(char *out, size_t room, double seconds);

#endif
