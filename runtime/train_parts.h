/* train_parts.h - what the files of the training loop share: train.c (driver), train_step.c,
 * train_eval.c and run_dir.c. Nobody else includes it. */
#ifndef MTC_TRAIN_PARTS_H
#define MTC_TRAIN_PARTS_H
#include "checkpoint.h"
#include "feed.h"
#include "loader.h"
#include "metrics.h"
#include "profile.h"
#include "replay.h"
#include "train.h"
#include "variables.h"

/* One training phase with its data opened and checked. */
typedef struct {
  const ProgramPhase *setting;
  DataSet *data;
  Feed micro, first, eval; /* first: where the first micro-batch of a step has a program of its own */
  int64_t steps, samples; /* of the phase; of a step */
  bool follows;           /* goes on where the phase before stopped in the data */
} RunPhase;

typedef struct {
  const Program *program;
  const TrainOptions *options;
  Arena *arena;
  uint64_t seed;
  Replay replay;
  Metrics metrics;
  Scalars scalars;
  int loss, grad_norm, skipped, eval, eval_metric; /* variables of metrics, -1 none */
  int scale; /* variable of the factor on the loss, -1 none */
  double last_scale, next_scale; /* that factor in the last step and in the one to come */
  bool has_state; /* micro-steps change variables: a step cannot be given up half-way */
  RunPhase *phases;
  DataSet **eval_data; /* per phase, NULL when there is no evaluation */
  Batch eval_batch;
  TrainState state;
  int64_t total;         /* steps of all phases */
  int64_t saved_step;    /* of the last checkpoint, -1 none */
  bool measured;         /* the memory line was printed */
  const char *nonfinite; /* parameter that the row of skipped steps began with, or NULL */
  double started;
  int64_t steps_run; /* by this process, when it profiles */
  Profile *profile; /* while its step runs, else NULL */
} Train;

/* ---- train_step.c ---- */
typedef enum { STEP_DONE, STEP_ABANDONED, STEP_FAILED } StepResult;
/* One optimizer step on a batch; fills loss, grad_norm, lr and skipped of the report. Abandoned
 * when the user interrupts it before the update and nothing has changed yet. */
StepResult train_step(Train *t, const RunPhase *ph, const Batch *b, StepReport *r, Fail *f);
/* The inputs of one micro-batch of the step whose scalars are written; and its run. */
bool train_micro_inputs(Train *t, const RunPhase *ph, const Batch *b, int64_t micro, Fail *f);
bool train_micro(Train *t, const RunPhase *ph, const Batch *b, int64_t micro, Fail *f);
/* Sets the factor on the loss; nothing when there is none. */
bool train_write_scale(Train *t, double scale, Fail *f);

/* ---- train_nonfinite.c ---- */
/* After a skipped step: path of the first parameter whose gradient is not finite, found by
 * computing the step's gradients again, or by the squares that early updates leave; NULL when there is none or it cannot be told. */
const char *train_name_nonfinite(Train *t, const RunPhase *ph, const Batch *b, Fail *f);
/* When a skipped step ends the run: the first value that is not finite, in words, with the
 * operation that made it and its place in the model: "inf at [0, 5] of h.3.mlp.wo (f16,
 * t5.mt:24:40); ..". NULL when it cannot be told. */
const char *train_name_value(Train *t, const RunPhase *ph, const Batch *b, Fail *f);

/* ---- train_eval.c ---- */
bool eval_open(Train *t, Fail *f);
/* Loss, and the metric when there is one, over the held-out data, by the evaluation program of a
 * phase. Nothing when there is none, or when the user interrupts it. */
bool eval_run(Train *t, int phase, StepReport *r, Fail *f);
void eval_close(Train *t);

/* ---- run_dir.c ---- */
/* Makes the folder ready and finds the checkpoint to go on from (NULL: from the start). */
bool run_dir_open(const TrainOptions *o, Checkpoint **from, Fail *f);
/* Refuses a folder whose disk has no room for one checkpoint, when checkpoints are written. What --force removes counts as
 * room. */
bool run_dir_room(const TrainOptions *o, const Program *p, Fail *f);
/* Nothing can be refused any more: removes the run that --force replaces and stores the program. */
bool run_dir_store_program(const TrainOptions *o, const Program *p, Fail *f);

/* Set by the handler of SIGINT and SIGTERM. */
extern volatile int train_interrupted;

#endif
