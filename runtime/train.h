/* train.h - runs a program: from its initial weights or a checkpoint through all phases, with
 * evaluation, checkpoints and metrics. What mtrun and `mtc train` call. */
#ifndef MTC_TRAIN_H
#define MTC_TRAIN_H
#include "fail.h"
#include "program.h"

typedef struct {
  const char *dir; /* the run's folder; NULL with dry_run */
  bool resume, force;
  bool quiet, json;
  int threads; /* 0: MTC_THREADS, else all cores */
  bool poison;        /* and copies as late as the plan allows */
  bool no_checkpoint; /* write none, neither on the way nor at the end */
  bool no_copies;     /* leave out the copies between host and device, to measure them; with dry_run only */
  int64_t
      steps; /* stop after this step of the run, -1 = its end; the schedule stays the program's */
  int64_t dry_run; /* > 0: run so many steps and write nothing */
  int64_t seed;    /* -1 = the program's */
  const char *profile; /* file for a Chrome trace of the run's second step, or NULL */
} TrainOptions;

/* Returns the exit code; failures are printed. Before step 0 all data is checked. */
int train_run(const Program *p, const TrainOptions *o);

#endif
