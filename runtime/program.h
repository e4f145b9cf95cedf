/* program.h - the executable program: flat, pointer-free, what a .mtx file holds and the runtime replays.
 *
 * codegen/ builds it from a Plan; mtx.c writes and reads it; the runtime never sees a graph. Offsets are bytes from the
 * start of the one arena. */
#ifndef MTC_PROGRAM_H
#define MTC_PROGRAM_H
#include "../ir/types.h"

typedef struct {
  int64_t offset;            /* bytes in the arena */
  bool host;                 /* of the host: a variable that lives there. Operands of commands lie on the device */
  DType dtype;
  int rank;
  int64_t dim[MAX_RANK];
  int64_t stride[MAX_RANK];  /* elements */
} Tensor;

/* Commands and their arguments:
 *   CMD_KERNEL         emitted function `kernel` (index in kernels); tensors: its pointers in order; workspace last if any
 *   CMD_GEMM           a, b, c: c[M,N] (+)= a[M,K] b[K,N] for each of `batch` strided matrices: see Gemm
 *   CMD_ATTENTION      q, k, v, [mask], [bias], [seed, step, sample0], o, lse
 *   CMD_ATTENTION_BWD  q, k, v, o, lse, do, [mask], [bias], [seed, step, sample0], dq, dk, dv, [dbias]
 *   CMD_SCATTER        ids, rows, out (+)= when accumulate
 *   CMD_FILL           out: filled with zero bytes
 *   CMD_COPY           no tensors: `copy` begins once every command before it has finished, and runs beside those after it; copies of
 *                      one direction run in order. What it reads and writes is left alone until a CMD_WAIT for it
 *   CMD_WAIT           no tensors: commands after it run once command copy.awaited of this program, a CMD_COPY, has finished
 * A program has ended when its commands and its copies have. */
typedef enum {
  CMD_KERNEL, CMD_GEMM, CMD_ATTENTION, CMD_ATTENTION_BWD, CMD_SCATTER, CMD_FILL, CMD_COPY, CMD_WAIT
} CmdKind;

/* Between the arena on the device and the arena on the host (pinned on CUDA). */
typedef struct {
  bool to_host;
  int64_t device_offset, host_offset, bytes;
  int awaited;                   /* CMD_WAIT: index of the copy in cmds */
} Copy;

typedef struct {
  int64_t batch, m, n, k;
  bool trans_a, trans_b;         /* a is stored [K,M], b [N,K] */
  int64_t lda, ldb, ldc;         /* elements between rows as stored */
  int64_t step_a, step_b, step_c; /* elements between matrices of the batch */
  bool accumulate;               /* c += */
  DType product;                 /* what the product is rounded to before it is added or stored */
  bool tf32;                     /* CUDA: f32 operands are rounded to TF32 */
} Gemm;
typedef struct {
  bool causal, has_mask, has_bias, has_drop;
  bool wgmma;                    /* CUDA: family of its kernels */
  double scale, drop;
  uint64_t key;
} Attention;

/* One launch of an emitted CUDA function. A CMD_KERNEL has one per nest, all with the same arguments; attention has one
 * per kernel of attention_cuda.h. */
typedef struct {
  int kernel;                    /* in kernel_names */
  int grid[3], threads, shared;  /* bytes of dynamic shared memory */
  int role;                      /* attention: AttKernel of attention_cuda.h */
  int rows, cols,
      store_rows; /* wgmma: boxes of the tensor maps. mma.sync: rows and cols are the two shifts of the order of
                                  * tiles. Loops: rows is the number of keys of random numbers */
  int64_t table_offset;          /* of its schedule, or of those keys, in bytes from the image's global mt_schedules */
} Launch;
enum { MAX_LAUNCHES = 8 };

typedef struct {
  CmdKind kind;
  int kernel;                    /* CPU: the function in kernel_names */
  int nlaunches;                 /* CUDA; 0 on the CPU */
  Launch launches[MAX_LAUNCHES];
  int ntensors;
  Tensor *tensors;
  Gemm gemm;
  Attention attention;
  Copy copy;
  bool accumulate;
  int64_t workspace_offset, workspace_bytes; /* bytes 0 = none */
  const char *name;  /* "h.3.attn.q" */
  const char *where; /* "models/gpt2.mt:17:20" */
} Cmd;

typedef struct {
  const char *name; /* "micro", "first", "update", "eval", "sample"; "step": a micro that updates */
  int ncmds;
  Cmd *cmds;
  int ninputs;
  struct {
    const char *name;
    Tensor at;
  } *inputs;
  int nresults;
  struct {
    const char *name;
    Tensor at;
  } *results;
  /* Buffers of the transient region with their last command, for --poison. */
  int ndeaths;
  struct {
    int cmd;          /* dies after it */
    int64_t offset, bytes;
  } *deaths;
} ProgramCode;

typedef enum { /* as VarRole of the graph */
  PV_PARAM, PV_STATE, PV_MASTER, PV_MOMENT, PV_ACCUM, PV_SCALAR, PV_METRIC, PV_OPT
} ProgramVarRole;
typedef struct {
  const char *path;
  ProgramVarRole role;
  Tensor at;
  bool trainable;
  int of;               /* -1 */
  int init_kind;        /* InitKind of the graph */
  double init_a, init_b;
  int init_from;
} ProgramVar;

typedef struct {
  const char *key;      /* name in a safetensors file */
  int var;
  bool transposed;
} ProgramWeight;

/* One training phase, complete: what the loop needs to know. */
typedef struct {
  const char *name;
  int micro, update, eval, sample;      /* index in programs, -1 none. Without an update, micro is a
                                           whole step and updates each parameter where its gradient is final */
  int first;                            /* the first micro-batch of a step, which overwrites accumulators; -1 when a
                                           step has one: then micro does */
  int64_t micro_batch, accumulation;    /* samples; micro-batches a step */
  int64_t tokens_per_sample;
  int64_t steps;                        /* 0: epochs */
  double epochs;
  double lr;
  int sched_kind;                       /* SchedKind of the job */
  double warmup, final, decay, cycles;
  bool final_is_lr;
  int data;                             /* index in data, -1 */
  bool data_val;
  double est_step_seconds;
} ProgramPhase;
/* The program of a step's micro-batch. */
static inline int phase_micro(const ProgramPhase *p, int64_t micro) {
  return micro == 0 && p->first >= 0 ? p->first : p->micro;
}

typedef struct {
  const char *name;
  int kind;             /* DataKind of the job */
  const char *train, *val, *dtype, *tokenizer;
  double holdout;
  bool prompt_loss, shuffle;
  int too_long;
} ProgramData;

typedef struct Program {
  Arena *arena;
  const char *source;        /* "models/char.mt"; data paths are relative to its folder */
  const char *model, *preset;
  const char *target;        /* name of the target table's row */
  bool cuda;
  uint64_t plan_id;
  uint64_t seed;
  int64_t params;
  int64_t vocab;             /* bound of token ids, 0 unknown */
  int64_t host_bytes;        /* of the host arena; 0 = none */
  int64_t arena_bytes, persistent_bytes, peak_bytes, budget_bytes, overhead_bytes, reserve_bytes;
  int nvars;
  ProgramVar *vars;
  int nprograms;
  ProgramCode *programs;
  int nphases;
  ProgramPhase *phases;
  int ndata;
  ProgramData *data;
  int nweights;
  ProgramWeight *weights;
  const char *weights_name;
  const char *init;          /* initial weights or NULL */
  int eval_data;             /* -1 none */
  bool eval_val;
  int64_t eval_every, eval_batches;
  const char *eval_metric;   /* NULL: the loss */
  int64_t ckpt_every, ckpt_keep;
  const char *ckpt_only;
  const char *target_input;  /* input whose ids are compared with ignore to count valid tokens; NULL: samples count */
  int64_t ignore;
  int64_t nonfinite_limit;
  bool nonfinite_stop;
  int nkernels;
  const char **kernel_names;
  const char *kernel_source; /* C (CPU) or CUDA C++; one translation unit */
  /* Compiled images. C: one per "x86-64:HASH of the CPU's features". CUDA: cubins, several per architecture ("sm_90a"),
   * which together have all kernels. */
  int nimages;
  struct {
    const char *arch;
    const void *data;
    size_t size;
  } *images;
} Program;

/* mtx.c: the file. Layout, checksums and versioning are documented in docs/mtx.md. */
bool mtx_write(const Program *p, const char *path, const char **why);
/* NULL with a sentence in *why: truncated, not an .mtx, checksum of section X, version, offset out of range. All
 * offsets and indices are checked against their bounds, so that a program that was read can be replayed. */
Program *mtx_read(Arena *a, const char *path, const char **why);
Program *mtx_read_mem(Arena *a, const void *data, size_t size, const char **why);
#endif
