/* plan.h - from a job and a budget to a Plan: fused clusters in order, storage of every value, buffers with lifetimes
 * and offsets, the byte ledger, the time estimate. Pure: touches no device.
 *
 * Stages (passes.def is the table; plan.c the driver):
 *   train graphs   job_graph -> precision -> chunk -> autodiff -> accumulate -> optimizer     (joint.c ..)
 *   clusters       simplify -> fuse -> order                                                  (fuse.c ..)
 *   storage        views, joins, in-place, variables -> storage units                         (storage.c)
 *   recompute      units + clusters -> RecProblem -> trace                                    (recompute.c)
 *   assembly       trace -> steps with storages, buffers, lifetimes -> offsets -> Plan        (assemble.c, place.c)
 *   check          independent proof                                                          (check.c)
 *   fit            outer choice of micro-batch, chunks and recompute within the budget        (fit.c) */
#ifndef MTC_PLAN_H
#define MTC_PLAN_H
#include "../codegen/target.h"
#include "../frontend/job.h"
#include "../ir/graph.h"

/* ---- clusters: units of execution, one kernel launch each (reductions over rows: two) ---- */
typedef enum {
  CL_LOOP,          /* emitted loop nest over ELEM, REDUCE and index-map nodes */
  CL_GEMM,          /* one OP_DOT [+ cast] [+ accumulate into a variable] */
  CL_ATTENTION,
  CL_ATTENTION_BWD,
  CL_SCATTER        /* one OP_SCATTER_ADD [+ accumulate into a variable] */
} ClusterKind;

/* A LOOP cluster iterates over `space`. Axes 0..outer-1 are rows (parallel), the others columns. Every node inside is of
 * one level, told by node_axes: which axes of the space its own axes are (its k-th axis is space axis axes[k], ascending):
 *   element   any axes of the space
 *   row       rows only: also results of REDUCE over exactly all columns
 *   column    results of SUM over exactly all rows (needs outer < rank or rank == outer for a full reduction), computed in
 *             fixed-order partials [blocks, columns] (workspace) and a second stage; and element-wise nodes of columns
 *             alone that are made of them in that stage: `grad += sum`. Nothing else inside reads them
 * A BROADCAST node inside maps axes only. Other VIEW nodes stand inside only directly on a cluster input (index-mapped
 * loads, when strides cannot express the view). OP_GATHER's table is a cluster input; its ids may be computed inside.
 * An ASSIGN inside stores its operand straight into the variable; the same element may be read before in the cluster. */
typedef struct {
  int8_t axes[MAX_RANK];
} AxisMap;

typedef struct {
  ClusterKind kind;
  int nnodes;
  NodeId *nodes;      /* in graph order; includes ASSIGN nodes */
  AxisMap *node_axes; /* LOOP: per node, of its first result */
  int nin, nout;
  ValueId *in;        /* values read from storage, each once: operands of nodes that are not computed inside */
  ValueId *out;       /* values stored: read outside, results, or assigned */
  int *out_var;       /* per out: variable that it is assigned to, or -1 */
  Shape space;        /* LOOP */
  int outer;
  bool accumulate;    /* GEMM, SCATTER: out[0] = var + product, in place in out_var[0] */
  int layer, chunk, member, tile;
  Phase phase;
  int64_t flops, bytes; /* moved once */
  int64_t ns;           /* by the cost model */
  int64_t workspace;    /* bytes while it runs */
  const char *name;     /* "h.3.mlp.gelu": for reports, kernels and traces */
} Cluster;

typedef struct {
  Graph *g;
  Cluster *at; /* in execution order */
  int n;
} Clusters;

/* fuse.c: partitions the live nodes of g (a verified graph) and orders the clusters (order.c: weight gradients before data
 * gradients, chunks one after another, else as the graph stands, anti-dependencies of variables kept). Nodes that are pure
 * views in storage, leaves (VAR, INPUT) and JOIN belong to no cluster. Cost fields are filled by cost.c. */
Clusters fuse_graph(Graph *g, Arena *a);
/* The same, but a forward value that backward keeps ends its kernel: what follows reads it from storage. So a norm can be
 * rebuilt from the residual stream alone, without the contraction in front of it: a little slower where nothing is
 * rebuilt (GPT-2 124M 0.7 %, Llama-2-7B 0.2 %), faster where much is. The same bits. */
Clusters fuse_graph_apart(Graph *g, Arena *a);
/* The name that the cluster has in a program with whole MLPs: one chunk of several is not told from another. */
const char *cluster_whole_name(const Cluster *c);

/* ---- training graphs (joint.c) ---- */
typedef struct {
  int phase;          /* index in Job.phases */
  int64_t micro_batch;
  int chunks;         /* of the loss head; 1 = whole */
  int mlp_chunks;     /* of each MLP; 0, 1 = whole */
  int group;          /* equal parts of the micro-batch that go through each layer one after another (group.h); 0, 1 = whole */
  bool micro_only, update_only, eval_only; /* the other graphs are not wanted */
  /* The norm's sum of squares of each gradient is taken in the micro-batch, where the gradient has just been added to (the last
   * one's stands): the update then reads no gradient for it. What accumulators on the host would have to be copied for. */
  bool early_squares;
  /* Each parameter is updated right after its gradient, inside the backward pass of the step's only micro-batch (optimizer.h:
   * early_update_graph). Gradients of one part - of parameters that are used once - have no accumulators. */
  bool early_update;
} GraphChoice;
typedef struct {
  Graph *micro;   /* forward, backward, accumulate: once per micro-batch. Metric "loss" +=. The first of a step runs it with
                     accumulators that count as zero: see first.h */
  Graph *update;  /* norm, clip, optimizer, non-finite handling: once per step; reads the accumulators. NULL with early updates:
                     they are in micro, which is called "step" then */
  Graph *eval;    /* forward without training, metrics += ; NULL when the job has no eval */
  Graph *sample;  /* logits f32[V] of position SC_POSITION of one sequence; NULL when forward's shape is not [B,T,V] */
} TrainGraphs;
/* Adds masters, moments, accumulators, metrics ("metric.loss", "metric.grad_norm", "metric.skipped", "metric.eval",
 * ..) to job->vars on first use; the same variables for every choice. */
TrainGraphs train_graphs(const Job *job, Arena *a, const GraphChoice *c);

/* precision.c: may the f32 product n round its operands to TF32? */
bool precision_tf32(const Precision *p, const Node *n);

/* ---- the plan ---- */
/*               id             text            json */
#define BUF_CLASSES(X)                                                                             \
  X(BC_WEIGHTS,     "weights",        "weights")                                                   \
  X(BC_MASTER,      "master weights", "master")                                                    \
  X(BC_MOMENTS,     "moments",        "moments")                                                   \
  X(BC_GRADIENTS,   "gradients",      "gradients")                                                 \
  X(BC_STATES,      "states",         "states")                                                    \
  X(BC_SCALARS,     "scalars",        "scalars")                                                   \
  X(BC_INPUTS,      "inputs",         "inputs")                                                    \
  X(BC_ACTIVATION,  "activations",    "activations")                                               \
  X(BC_RECOMPUTED,  "recomputed",     "recomputed")                                                \
  X(BC_LOGITS,      "logits",         "logits")                                                    \
  X(BC_TRANSIENT,   "transient",      "transient")                                                 \
  X(BC_WORKSPACE,   "workspace",      "workspace")                                                 \
  X(BC_STAGES,      "staging",        "staging")                                                   \
  X(BC_SAVED,       "saved values",   "saved")
typedef enum {
#define X(id, text, json) id,
  BUF_CLASSES(X)
#undef X
  BC_COUNT
} BufClass;
const char *buf_class_text(BufClass c);
const char *buf_class_json(BufClass c);

typedef enum { SPACE_DEVICE, SPACE_HOST } Space;

typedef struct {
  const char *name;     /* model path of the value */
  BufClass cls;
  Space space;
  int64_t bytes;        /* multiple of PLAN_ALIGN */
  int64_t offset;       /* in the arena of its space */
  int program;          /* index in Plan.programs; -1 persistent (variables). Inputs live through all of their program. On the
                           host: where saved values of the program wait */
  int first, last;      /* steps of that program between which it is live, inclusive */
  int var;              /* variable it holds, or -1 */
  ValueId value;        /* value it was made for, or -1 */
  Loc loc;
} PlanBuf;
enum { PLAN_ALIGN = 512 };

/* Where a value lies: element (i0, i1, ..) at byte offset + sum(ik * stride[k]) * dtype size of buffer buf. */
typedef struct {
  int buf;
  int64_t offset;           /* bytes from the start of the buffer */
  int64_t stride[MAX_RANK]; /* elements */
} Storage;

/* A copy between a buffer on the host - a variable, or the place where a saved value waits - and its stage on the device.
 * It begins when all steps before `begin` have run, and is over before step `end` runs (nsteps: before the program ends);
 * between the two it runs beside the steps. Copies of one direction run one after another in their order in the program.
 * At one step, copies to the host stand first; one that ends where it begins is over before the next begins. A stage is a
 * device buffer of the variable or value of its host buffer, live from the begin of its copy in (or its first writer) to
 * the end of its copy out (or its last reader). */
typedef struct {
  int host, stage;   /* buffers */
  bool to_host;
  int begin, end;    /* steps */
  int64_t from_ns, to_ns; /* by the cost model: when it runs */
} PlanCopy;

typedef struct {
  int cluster;       /* in PlanProgram.clusters */
  bool recomputed;   /* a rebuild */
  Storage *in, *out; /* parallel to the cluster's in and out */
  int workspace;     /* buffer or -1 */
} PlanStep;

typedef struct {
  const char *name; /* "micro", "first", "update", "eval", "sample"; "step": a micro with early updates */
  Clusters clusters;
  int nsteps;
  PlanStep *steps;
  int ncopies;
  PlanCopy *copies;        /* by rising begin */
  int peak_step;
  int64_t transient_bytes; /* height of its transient region */
  int64_t liveness_bytes;  /* lower bound of it */
  int64_t saved_bytes;     /* of the host's arena, above the variables: values that wait there between forward and backward */
  int64_t ns;              /* copies included, as far as they do not hide */
  int64_t in_ns, out_ns;   /* of copies to the device and to the host */
  int64_t exposed_ns;      /* of them, that steps wait for */
  const int64_t *begin_ns; /* per step: when it begins, where there are copies; else NULL */
  int ninputs;             /* OP_INPUT nodes */
  struct {
    const char *name;
    ValueId value;
    Storage at;
  } *inputs;
  int nresults;            /* graph results (sample: logits) */
  struct {
    const char *name;
    ValueId value;
    Storage at;
  } *results;
} PlanProgram;

/* The programs of a phase. The first micro-batch of a step overwrites the accumulators of gradients (first.h), the others
 * add to them; the one micro-batch of a step without others is called micro and is a first one. */
enum { PROG_MICRO, PROG_FIRST, PROG_UPDATE, PROG_EVAL, PROG_SAMPLE, PHASE_PROGRAMS };

typedef struct {
  int phase;              /* training phase */
  int64_t micro_batch, accumulation;
  int chunks;
  int mlp_chunks;         /* as in GraphChoice */
  int group;              /* equal parts of the micro-batch that go through each layer one after another; 1 = whole */
  RecomputeMode recompute;
  int programs[PHASE_PROGRAMS]; /* index in Plan.programs or -1. Without an update, micro has it (early_update) */
  int64_t peak_bytes;     /* of the phase */
  int64_t step_ns;
  int64_t recompute_ns;   /* of it, in one micro-batch */
} PlanPhase;
/* The program of the first micro-batch of a step. */
static inline int phase_first(const PlanPhase *ph) {
  return ph->programs[ph->programs[PROG_FIRST] >= 0 ? PROG_FIRST : PROG_MICRO];
}

/* Its one micro-batch updates each parameter right after its gradient. */
static inline bool phase_updates_early(const PlanPhase *ph) {
  return ph->programs[PROG_UPDATE] < 0;
}

typedef struct Plan {
  const Job *job;
  const Target *target;
  uint64_t id;            /* hash of all that matters; printed as 8 hex digits */
  int64_t budget_bytes;   /* as asked for, capped to the card */
  int64_t overhead_bytes; /* context, modules, streams: not ours but counted */
  int64_t reserve_bytes;
  VEC(PlanBuf) bufs;
  int *var_buf;           /* per variable; -1: no program uses it */
  VEC(PlanProgram) programs;
  VEC(PlanPhase) phases;
  int64_t persistent_bytes; /* on the device */
  int64_t host_persistent_bytes; /* of variables on the host */
  int64_t host_bytes;     /* pinned host arena: they and the saved values of the program that saves the most;
                             <= host_budget_bytes */
  int64_t host_budget_bytes; /* --host-ram */
  int64_t arena_bytes;    /* persistent + the largest transient region */
  int64_t peak_bytes;     /* arena + overhead + reserve; <= budget */
  int64_t floor_bytes;    /* smallest budget that has a plan */
} Plan;

typedef struct {
  const Target *target;
  int64_t budget_bytes;    /* INT64_MAX = the whole card */
  int64_t reserve_bytes;
  int64_t host_bytes;      /* most that may be pinned on the host; 0 = none */
  int recompute;           /* RecomputeMode, or -1 = as the model says */
  int64_t micro_batch;     /* 0 = the planner chooses */
  int chunks;              /* 0 = the planner chooses */
  int mlp_chunks;          /* 0 = the planner chooses */
  int group;               /* as in GraphChoice; 0 = 1 */
  bool check;              /* run check.c on the result */
  bool only_if_it_can;     /* give up without a floor when variables and beside_bytes exceed the budget */
  int64_t beside_bytes;    /* what a plan is known to need beside its variables; 0 = not known */
} PlanArgs;

/* One candidate of the outer search, kept for "not chosen" and "more budget". */
typedef struct {
  int64_t micro_batch;
  int chunks, mlp_chunks, group;
  int front;               /* index in that graph's recompute front */
  bool early_update;
  int64_t peak_bytes, step_ns;
  int64_t host_bytes;      /* pinned */
} Candidate;
/* A change that was really planned and fits, for E0501. */
typedef struct {
  const char *change;      /* "--set precision.accum=bf16" */
  const char *effect;      /* "changes numerics" */
  int64_t floor_bytes;
  int64_t micro_batch, step_ns;
} Remedy;

/* A format that the planner chose because the model says `auto`. */
typedef struct {
  const char *setting;     /* "moments" */
  const char *format;      /* "bf16" */
  const char *why;         /* what it buys */
} FormatNote;

typedef struct {
  const Job *job;
  PlanArgs args;
  Plan *plan;              /* NULL = infeasible, or the job cannot be planned yet: then job->diags has errors */
  int64_t budget_bytes;    /* as asked for, capped to the card */
  int64_t floor_bytes;     /* with its parts: */
  int64_t floor_persistent, floor_transient; /* the rest is overhead and reserve */
  int64_t floor_host;      /* pinned host memory of that plan, of it by class: */
  int64_t floor_host_class[BC_COUNT];
  int64_t host_needed;     /* > 0: memory.optimizer = host alone takes that much pinned memory, more than there may be */
  int64_t class_bytes[BC_COUNT];             /* of the variables of the floor's plan */
  int64_t early_floor_bytes; /* infeasible: about the floor if updates were early, were they allowed; INT64_MAX: cannot be */
  VEC(Candidate) frontier; /* by rising peak and falling time, budget-independent */
  VEC(Candidate) passed;   /* that fit as well and were slower, for "not chosen" */
  int phase;               /* the training phase that frontier, passed and the floor's parts speak of */
  VEC(Remedy) remedies;    /* filled in by the command, which can elaborate again */
  VEC(FormatNote) formats; /* filled in by formats.c */
} FitResult;
FitResult plan_fit(const Job *job, Arena *a, const PlanArgs *args);
/* The same in two parts, for many budgets: what there is to choose from, and a choice. The pool lives in the arena that it
 * was made in; plans do not need it. */
typedef struct FitPool FitPool;
FitPool *fit_pool(const Job *job, Arena *a, const PlanArgs *args);
/* The same for a job that may differ from that of `like` in the formats of masters and moments alone: where it does, its
 * micro-batches are not built and solved again. What `like` lies in must live as long as the pool. */
FitPool *fit_pool_like(const FitPool *like, const Job *job, Arena *a, const PlanArgs *args);
/* How many programs of micro-batches a pool has to share; 0 when it has no plan. */
int fit_families_known(const FitPool *pool);
FitResult fit_within(FitPool *pool, Arena *a, int64_t budget_bytes);
/* Everything that was weighed for a phase, fastest first; how many. Peaks are by liveness where none was placed yet. */
int fit_candidates(const FitPool *pool, int phase, Arena *a, Candidate **out);

/* check.c: proves the plan from its steps, storages and offsets alone: no two live buffers overlap, every read sees the
 * last write of the value it wants, everything lies inside the arena, peak <= budget. NULL when sound, else a sentence. */
const char *plan_check(const Plan *p, Arena *a);

/* report.c */
void plan_report(const FitResult *r, FILE *to, int columns, bool unicode);   /* feasible: the ledger; else all of E0501 */
/* The two halves of E0501, so that the verdict need not wait for the remedies: the floor and its parts; what fits. */
void plan_verdict(const FitResult *r, FILE *to, int columns);
void plan_ways_out(const FitResult *r, FILE *to, int columns);
void plan_report_json(const FitResult *r, FILE *to);
bool plan_why(const FitResult *r, const char *path, FILE *to);               /* false: no such path */

void plan_modules(const FitResult *r, FILE *to); /* report_modules.c: memory at the peak and time by part of the model */

/* plan_text.c: the plan as text, one line a buffer and a step; one program's buffers as minimalloc's CSV. */
void plan_print(const Plan *p, FILE *to);
void plan_print_csv(const Plan *p, int program, FILE *to);
#endif
