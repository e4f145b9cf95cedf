/* job.h - what a .mt file and the command line say, elaborated: the variables of the model, its settings, and a
 * way to build the typed forward graph of each of its functions for a given micro-batch.
 *
 * elaborate() checks everything once (shapes included, at the dims in force and B = 1 where B is auto); the
 * planner then calls job_graph() for each candidate micro-batch. */
#ifndef MTC_JOB_H
#define MTC_JOB_H
#include "../ir/graph.h"
#include "ast.h"

typedef struct {
  const char *name; /* "L" or "train.batch" */
  const char *value;
} Override;

typedef struct {
  const char *path;
  const char *preset;        /* NULL = defaults */
  VEC(Override) dims;        /* -D L=24: model formals and `dims` */
  VEC(Override) settings;    /* --set train.batch=... */
} JobArgs;

/* PREC_SPLIT, of `master`: the bf16 weight and the 16 bits that complete it to f32. */
typedef enum { PREC_AUTO = -1, PREC_SPLIT = DT_U16 } PrecAuto;

/* precision { }: dtypes (DType or PREC_AUTO), then rules in order, later ones win. */
typedef struct {
  const char *pattern; /* path glob or "op:NAME" */
  int dtype;
  Loc loc;
  bool tf32; /* f32, in products that may round their operands to TF32 */
} PrecRule;
/* Settings that may say `auto`: then the planner chooses the format (passes/formats.h). */
typedef enum { FMT_COMPUTE, FMT_MASTER, FMT_MOMENTS, FMT_ACCUM, FMT_COUNT } FormatSetting;
typedef struct {
  bool open;       /* said auto */
  const char *why; /* the reason of what stands there now; NULL = nobody has chosen yet */
} FormatChoice;
/* Factor on the loss, so that gradients in f16 do not vanish; always a power of two. */
typedef struct {
  bool on, dynamic;
  double init;      /* the first factor, or the only one */
  int64_t interval; /* dynamic: good steps in a row after which it doubles */
} LossScale;
typedef struct {
  int compute; /* DT_F32, DT_BF16, DT_F16 or PREC_AUTO */
  bool tf32;
  int master, moments, accum, frozen; /* default f32 (frozen: compute) */
  FormatChoice choice[FMT_COUNT];
  LossScale scale; /* dynamic unless given where something is f16 */
  VEC(PrecRule) rules;
} Precision;

typedef enum { RC_NONE, RC_AUTO, RC_FULL } RecomputeMode;
typedef struct {
  RecomputeMode recompute; /* default auto */
  int optimizer;           /* 0 device, 1 host, -1 auto */
} Memory;

typedef enum { DATA_TOKENS, DATA_TEXT, DATA_JSONL, DATA_TSV, DATA_IMAGES, DATA_SPAN } DataKind;
typedef enum { TOO_LONG_ERROR, TOO_LONG_TRUNCATE, TOO_LONG_SPLIT } TooLong;
typedef struct {
  const char *name;          /* "fineweb" */
  DataKind kind;
  Loc loc;
  const char *train, *val;   /* as written: path or glob, relative to the .mt; NULL = absent */
  const char *dtype;         /* tokens: "u16" | "u32" */
  double holdout;            /* share of `train` kept for val, from its end, when val is NULL; 0 none */
  const char *tokenizer;
  bool prompt_loss;
  TooLong too_long;
  bool shuffle;              /* default true */
} Data;

/* A use of data: fineweb.train */
typedef struct {
  int data; /* index in Job.data; -1 none */
  bool val;
} DataRef;

typedef enum { OPT_ADAMW, OPT_ADAM, OPT_SGD, OPT_ADAFACTOR, OPT_LION, OPT_MUON } OptKind;
typedef struct {
  OptKind kind;
  double lr, beta1, beta2, eps, weight_decay, momentum, decay;
  double floor, threshold; /* adafactor: least size of a weight; size of an update that is clipped */
  double adam_scale;       /* muon: learning rate of AdamW's parameters, as a share of lr */
  bool nesterov, relative, match_rms;
  Loc loc;
} Optimizer;

typedef enum { SCHED_CONSTANT, SCHED_LINEAR, SCHED_COSINE, SCHED_WSD, SCHED_RSQRT } SchedKind;
typedef struct {
  SchedKind kind;
  double warmup; /* < 1: a share of the phase's steps; else steps */
  double final;  /* share of lr at the end, or an absolute rate when final_is_lr */
  bool final_is_lr;
  double decay;  /* wsd: share of the phase that decays */
  double cycles;
} Schedule;

typedef enum { BATCH_TOKENS, BATCH_SEQS, BATCH_IMAGES } BatchUnit;
typedef struct {
  VEC(const char *) patterns;
  Loc loc;
  double weight_decay, lr_scale; /* NaN = not set */
} Group;

typedef struct {
  Name name;
  int64_t value; /* -1 = auto */
} DimSetting;

typedef enum { NONFINITE_SKIP, NONFINITE_STOP } NonFinite;

/* One phase of training, settings of `train` with the phase's own laid over them. A job has at least one. */
typedef struct {
  const char *name; /* "" when `train` has no phases */
  Loc loc;
  DataRef data;
  VEC(DimSetting) dims;    /* T, B, ... in force in this phase */
  const char *batch_dim;   /* the dim that is the micro-batch ("B", "N"): the one that is auto, else the
                              first axis of the loss function's first input */
  BatchUnit unit;
  int64_t batch;           /* in unit; samples a step = batch / T for tokens */
  Loc batch_loc;
  int64_t steps;           /* 0: epochs decide */
  double epochs;
  Optimizer opt;
  Schedule sched;
  double clip;             /* 0 = none */
  NonFinite nonfinite;
  int64_t nonfinite_limit; /* consecutive skipped steps that end the run */
  VEC(Group) groups;
  VEC(int) frozen;         /* variables frozen in this phase */
} TrainPhase;

typedef struct {
  DataRef data;
  int64_t every, batches; /* batches 0 = all of the data */
  const char *metric;     /* a function of the model besides the loss, or NULL */
} EvalSetting;
typedef struct {
  int64_t every, keep;
  const char *only;
} CheckpointSetting;

typedef struct {
  const char *key;  /* "model.layers.3.self_attn.q_proj.weight", indices filled in */
  int var;
  bool transposed;  /* the file holds the transpose of a matrix */
  Loc loc;
} WeightMap;

typedef enum { FN_LOSS, FN_EVAL_LOSS, FN_METRIC, FN_FORWARD } JobFn;

typedef struct Elab Elab; /* elaborator's own state: the model instance, for job_graph */

typedef struct {
  Arena *arena;
  Diags *diags;
  const char *path;        /* main file */
  const char *model;       /* "GPT2" */
  const char *preset;      /* or NULL */
  Vars *vars;              /* VAR_PARAM and VAR_STATE, in order of declaration along the model path */
  int64_t params;          /* elements of all parameters: what the model card says */
  int64_t trainable;
  int layers;              /* length of the longest layer array on the path of forward */
  Precision precision;
  Memory memory;
  VEC(Data) data;
  VEC(TrainPhase) phases;
  uint64_t seed;
  EvalSetting eval;        /* every = 0: none */
  CheckpointSetting checkpoint;
  const char *init;        /* "x.safetensors", "hf:..", or NULL */
  const char *weights_name;
  VEC(WeightMap) weights;
  VEC(const char *) overrides; /* as echoed in reports */
  Elab *elab;
} Job;

/* NULL or errors in d when anything is wrong. warnings may remain in d. */
Job *elaborate(Arena *a, Diags *d, const JobArgs *args);

/* The forward graph of a function for phase `phase` with `samples` samples in the micro-batch, in f32 throughout
 * (the precision pass comes later), one result:
 *   FN_LOSS       loss(...) with training = true. Result "loss": the micro-batch's share of the step's mean (cross
 *                 entropy is weighted by SC_INV_COUNT; other means by SC_INV_ACCUM), so that shares add up.
 *   FN_EVAL_LOSS  the same with training = false
 *   FN_METRIC     eval's metric function, as it is: a mean over the micro-batch
 *   FN_FORWARD    forward(...) with training = false: the logits (for sampling); NULL when the model has no `forward`
 *                 with one tensor as its result
 * Inputs are g_input nodes named as the function's arguments. State updates (`:=`) are assigns. */
Graph *job_graph(const Job *j, Arena *a, JobFn fn, int phase, int64_t samples);

/* Samples in one optimizer step of the phase, and tokens (samples x T; samples for images). */
int64_t phase_samples(const Job *j, int phase);
int64_t phase_tokens(const Job *j, int phase);
int64_t phase_dim(const Job *j, int phase, const char *name); /* -1 unknown or auto */

/* The ignore value of cross_entropy's targets (input name), so that data can count valid tokens. False if none. */
bool job_target_input(const Job *j, const char **input, int64_t *ignore);

/* Everything in the job that this version can neither plan nor train ("optimizer `sgd` and operation `conv2d`") and
 * the place of the first, for E0490; NULL when it can do all. */
const char *job_not_yet(const Job *j, Loc *at);

/* Settings of one variable in a phase, groups applied. */
double job_weight_decay(const Job *j, int phase, int var);
double job_lr_scale(const Job *j, int phase, int var);

/* glob.c: does a selector match a model path (rules of language.md 2.4: `*` any characters, `[*]` any index, {a,b},
 * `op:NAME` matches tag)? */
bool selector_match(const char *pattern, const char *path, const char *tag);
/* The same for the path or any layer that holds it: "enc" covers enc.3.attn.q.w. */
bool selector_covers(const char *pattern, const char *path, const char *tag);

#endif
