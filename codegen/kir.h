/* kir.h - the kernel IR: one loop nest program over typed scalars, with a printer per target
 * (print_c.c).
 *
 * Input: lower.c makes a Kernel from a cluster and the storages of its operands. Everything that
 * decides a value - evaluation order, rounding, the order of a reduction - is settled here, so that
 * printers differ in syntax and in how loops are spread over threads only.
 *
 * A Kernel runs its nests one after another. A nest loops over rows x columns; a row is a sequence
 * of passes over the columns, split where a value needs a reduction of the whole row. Registers are
 * SSA: each is computed by one instruction at one level, and registers of the element level may be
 * computed again in each pass that needs them. */
#ifndef MTC_KIR_H
#define MTC_KIR_H
#include "../ir/graph.h"

typedef int32_t KReg; /* index in Kernel.instrs; -1 none */

/* An integer of the loop indices: constant + sum coef[k] * i_k + sum coef * ((of / div) % mod). mod
 * 0 = no modulus. */
typedef struct KIndex KIndex;
typedef struct {
  int64_t coef, div, mod;
  const KIndex *of;
} KSub;
struct KIndex {
  int64_t constant;
  int64_t coef[MAX_RANK];
  int nsubs;
  const KSub *subs;
};
/* 0 <= at < limit, else the load gives zero. */
typedef struct {
  KIndex at;
  int64_t limit;
} KGuard;

/* Orders of summation, fixed by the shape of the operand and the axes summed over alone:
 *   row      elements in order, dealt to KIR_LANES lanes, lanes added by a fixed tree; rows of more
 * than KIR_BLOCK elements in blocks of that many, whose sums are added the same way column
 * column_blocks(rows) blocks of consecutive rows, each in order from zero, then the blocks in order
 *   full     when the result is one number: as many blocks of consecutive elements, each as a row,
 * then as a row */
enum { KIR_LANES = 16, KIR_BLOCK = 4096 };

typedef enum {
  KI_CONST,  /* value */
  KI_LOAD,   /* param[at + in[0] * gather]; zero outside the guards */
  KI_IOTA,   /* at */
  KI_RANDOM, /* bits of (in[0..1] = seed, in[2] = step, key, in[3] + at = sample, element) */
  KI_OP,     /* element-wise op of in[] */
  KI_REDUCE, /* op over the columns */
  KI_SUM     /* sum over the rows; available in the nests after the main one */
} KKind;

typedef enum { LV_UNIFORM, LV_ROW, LV_ELEM } KLevel;

typedef struct {
  KKind kind;
  Op op;
  DType dtype; /* semantic: floats live in f32 registers and are rounded to this when computed */
  int nin;
  KReg in[4];
  double value; /* KI_CONST, rounded to dtype */
  int param;    /* KI_LOAD */
  KIndex at;
  int nguards;
  const KGuard *guards;
  int64_t gather; /* elements between indexed rows, and their number */
  int64_t gather_rows;
  uint64_t key; /* KI_RANDOM; the same as Kernel.keys[key_slot] */
  int key_slot;
  KIndex element; /* KI_RANDOM: within the sample */
  bool rounds;    /* the op can leave dtype's values, so that the result is rounded */
  bool near_one;  /* a tanh whose users add it to 1 or take its square from 1: small ones may be off
                     by a rounding of 1 */
  uint32_t mask;  /* loop axes it depends on */
  int stage;      /* KI_REDUCEs in a row that it waits for: the first pass that can compute it */
  bool late;      /* depends on a KI_SUM */
  bool full;      /* KI_REDUCE, KI_SUM: the result is one number, summed in full order */
  int64_t slot;   /* KI_SUM: where its partials start in the workspace, in words */
  KIndex column;  /* KI_SUM: its column as an index */
  int64_t columns;
  bool kept; /* element value that a row buffer keeps between passes */
} KInstr;

typedef struct {
  KReg value;
  int param;
  KIndex at;
  uint32_t mask;
} KStore;

typedef struct {
  DType dtype;
  Shape shape;
  bool out;
  int align; /* bytes that divide the address of its first element: a power of two, up to 16 */
} KParam;

/* Adjacent loop axes that run as one loop. */
typedef struct {
  int first, last; /* axes; index i_last counts through all, the others do not exist */
  int64_t dim;
} KGroup;

typedef struct {
  int nrow_regs; /* computed once a row, before the pass */
  KReg *row_regs;
  int nregs; /* computed for each element, in order */
  KReg *regs;
  int nreduces; /* KI_REDUCEs finished by this pass */
  KReg *reduces;
  int nsums; /* KI_SUMs whose element operand this pass has */
  KReg *sums;
  int nstores;
  KStore *stores;
} KPass;

typedef struct {
  bool late;         /* second stage: reads the folded partials of KI_SUMs */
  bool side;         /* for outputs that lack axes of the main nest */
  bool map;          /* no reductions: rows and columns are whatever the loops are */
  bool row_level;    /* rows have values of their own */
  uint32_t axes;     /* looped over */
  uint32_t col_axes; /* of them: the inner ones */
  int nrows, ncols;  /* groups: rows first */
  KGroup group[MAX_RANK];
  int64_t rows, cols;
  int npasses;
  KPass *passes;
  int nrow_sums; /* KI_SUMs of row values */
  KReg *row_sums;
  int nrow_stores;
  KStore *row_stores;
  int64_t work; /* about operations, to decide whether threads pay */
} KNest;

typedef struct {
  Arena *arena;
  const char *name;  /* what it computes: "h.3.mlp.gelu" */
  const char *where; /* "models/gpt2.mt:24:29" */
  int nparams;
  KParam *params;
  bool has_workspace; /* the pointer after the params */
  int64_t workspace_bytes;
  int naxes, outer; /* axes 0..outer-1 are rows */
  int64_t dim[MAX_RANK];
  int64_t rows, cols;
  int ninstrs;
  KInstr *instrs;
  int nuniform; /* computed once, first */
  KReg *uniform;
  int nnests;
  KNest *nests;
  int nkeys; /* of random numbers: each layer has its own, so that C functions take them as
                arguments */
  uint64_t *keys;
  int64_t blocks; /* of rows, when there are sums over rows; else 0 */
  bool flat_sums; /* one row: sums over rows run over its elements */
} Kernel;

/* ---- kir.c ---- */
KIndex kindex_zero(void);
KIndex kindex_axis(int axis, int64_t coef);
/* a += coef * b */
void kindex_add(Arena *a, KIndex *to, const KIndex *b, int64_t coef);
/* (i / div) % mod; mod 0 = none. Folds what it can. */
KIndex kindex_divmod(Arena *a, const KIndex *i, int64_t div, int64_t mod);
uint32_t kindex_mask(const KIndex *i);
KLevel kreg_level(const KNest *n, const KInstr *i);
/* Operations that are worth keeping rather than computing twice. */
bool kir_expensive(const KInstr *i);
/* Splits the axes of a nest into as few loops as the indices used in it allow. A nest without
 * reductions forgets which axes are rows: its innermost loop is as long as possible. */
void kir_group(const Kernel *k, KNest *n);
/* Fixed ranges of a sum in full order over n elements: `blocks` ranges of `size` (the last may be
 * short). */
typedef struct {
  int64_t blocks, size;
} KRanges;
KRanges kir_ranges(int64_t n);

/* ---- print_c.c ---- */
/* The kernel as the text of a C function `void NAME(void *const *arg, uint64_t key0, ..)`, from the
 * parameters on: equal texts are one kernel. */
const char *kernel_print_c(const Kernel *k, Arena *a);

#endif
