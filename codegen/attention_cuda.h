/* attention_cuda.h - the CUDA sources of attention and how they are launched.
 *
 * Three families: SIMT (any float in and out, fp32 inside), and for bf16 and f16 in and out with
 * fp32 inside mma.sync (sm_80 and up; any head size up to 128 that is a multiple of 8) and wgmma
 * with TMA (sm_90a; without masks, biases and dropout).
 * Forward is one kernel; backward is prep, dkdv, dq and for a bias dbias (SIMT, mma.sync) or dq,
 * dkdv (wgmma), deterministic and without workspace beyond W (attention_workspace). The kernels
 * stand in codegen/cuda/; a variant is one of them with its macros. */
#ifndef MTC_ATTENTION_CUDA_H
#define MTC_ATTENTION_CUDA_H
#include "../ir/types.h"

typedef enum { ATT_FWD, ATT_PREP, ATT_DKDV, ATT_DQ, ATT_DBIAS, ATT_KERNELS } AttKernel;
enum { ATT_MAX_LAUNCHES = 4 };

typedef struct {
  int sm;                                       /* compute capability: 80, 86, 89, 90, .. */
  int64_t batch, tq, tk, heads, kv_heads, head; /* head: elements */
  bool causal, mask, bias, drop;
  DType dtype;      /* of q, k, v, o: f32, bf16 or f16 */
  DType bias_dtype; /* with bias */
  bool bias_pairs;  /* its rows start at a multiple of two elements */
  int sms;          /* multiprocessors of the target: size of a persistent grid */
  bool no_wgmma;    /* mma.sync even where wgmma exists, to compare them */
} AttProblem;

/* One kernel as it will be launched. */
typedef struct {
  AttKernel kernel;
  bool wgmma;
  const char *entry;   /* function name in the source */
  int threads, shared; /* per block; bytes of dynamic shared memory */
  int rows, cols;      /* tile: rows a block owns, rows it streams (boxes of the TMA maps) */
  int store_rows;      /* wgmma: rows of the box that outputs are stored with */
  const char *source;  /* complete CUDA C++ text */
} AttVariant;

/* Why the problem has no kernel here ("head size 160 is over 128"), or NULL. */
const char *attention_unsupported(const AttProblem *p);

/* Kernels of the forward (backward = false) or backward in the order of their launch:
 * kernels[0..n). */
int attention_kernels(const AttProblem *p, bool backward, AttKernel kernels[ATT_MAX_LAUNCHES]);

/* The choice-th variant of one kernel, best first; false when there is none more. ptxas may spill
 * registers in one and not in the next: the first without a stack frame is the one to take. */
bool attention_variant(const AttProblem *p, AttKernel k, int choice, Arena *a, AttVariant *v);

/* Grid of a kernel that is not persistent, and for those of mma.sync the order of its tiles (attention_order.cu). */
typedef struct {
  unsigned size[3];
  int log_more, log_parts;
} AttGrid;
AttGrid attention_grid(const AttProblem *p, const AttVariant *v);

/* The tile order of a persistent (wgmma) kernel: table[round * blocks + block] = head | tile << 16,
 * -1 after the last. */
typedef struct {
  int blocks, rounds;
  int32_t *table; /* rounds * blocks entries, the last round all -1 */
} AttSchedule;
AttSchedule attention_schedule(const AttProblem *p, const AttVariant *v, Arena *a);

/* Elements that rows of q, k, v and o start at a multiple of, and heads are a multiple of. */
int attention_granule(const AttProblem *p);

/* Row length of W in elements, and the bytes of W. */
int64_t attention_padded(int64_t tq);
int64_t attention_workspace(const AttProblem *p);
#endif
