/* print_cuda_impl.h - between the files of the CUDA printer: print_cuda.c (text, vectors, indices,
 * maps, the functions) and print_cuda_rows.c (nests with rows and sums). */
#ifndef MTC_PRINT_CUDA_IMPL_H
#define MTC_PRINT_CUDA_IMPL_H
#include "print_cuda.h"

enum {
  GRANULE = 8, /* columns that a thread takes at a time */
  MAP_THREADS = 256,
  VECTOR_BYTES = 16 /* of one transaction */
};

/* Where loads that several passes use wait for the next one. */
typedef enum { CACHE_NONE, CACHE_REGISTERS, CACHE_SHARED } Cache;

typedef struct {
  const Kernel *k;
  const KNest *n;
  Str out;
  int depth;
  const char *why;
  const char *index;   /* type of index variables: int or int64_t */
  int width;           /* elements a thread takes at a time */
  int64_t shared_most; /* bytes of shared memory that a block may have */
  /* rows */
  int threads, groups; /* of a row, and rows of a block */
  int64_t items;       /* granules of a thread in a row */
  int unroll;          /* of them, those in flight together */
  bool exact;          /* every thread has just `items` granules */
  bool whole;          /* no granule crosses the end of a row */
  int64_t slices;      /* blocks that share the columns of a row */
  bool ahead;          /* vectors of a thread's next row are loaded while it works on one */
  bool thrifty;        /* few registers: fewer granules of long rows in flight */
  bool
      lockstep; /* rows of a block share barriers: those past the end take part as `live` = false */
  bool *held;   /* registers and vectors that an earlier pass left */
  uint8_t *cache; /* Cache of each load */
} Printer;

void pr_line(Printer *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void pr_open(Printer *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void pr_close(Printer *p);
const char *pr_text(Printer *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static inline const KInstr *pr_instr(const Printer *p, KReg r) {
  return &p->k->instrs[r];
}
static inline const KGroup *pr_inner(const Printer *p) {
  return &p->n->group[p->n->nrows + p->n->ncols - 1];
}

/* "const float v3 = ..;" */
void pr_define(Printer *p, KReg r);
void pr_uniform(Printer *p); /* keys of random numbers, then what is computed once */
/* Ranges of rows (or of elements, when the sums are over everything) that have partial sums of
 * their own. */
KRanges pr_sum_ranges(const Kernel *k);

/* A load or store that moves p->width consecutive elements at once. */
bool pr_vector_load(const Printer *p, KReg r);
bool pr_vector_store(const Printer *p, const KStore *s);
/* "MtVector<uint16_t, 8>" of the load's memory. */
const char *pr_vector_type(Printer *p, int param);
/* "mt_vector<..>(p3 + ..)" */
const char *pr_vector_value(Printer *p, KReg r);
void pr_declare_stores(Printer *p, const KPass *pass);
/* Registers of element j of the vectors r<reg>, in order; kept ones by item when rows; stores go to
 * o<param>.x[j]. */
void pr_element(Printer *p, const KPass *pass, bool rows);
/* Vectors of the stores; `end` is where the row ends, for rows that end inside a granule, else
 * NULL. */
void pr_store_vectors(Printer *p, const KPass *pass, const char *end);
void pr_store_scalars(Printer *p, const KPass *pass);
bool pr_scalar_stores(const Printer *p, const KPass *pass);
/* "i1 == 0 && ..": values that lack some of the rows' axes are stored by one row. NULL when all
 * rows have their own. */
const char *pr_store_guard(Printer *p, uint32_t mask);
/* Indices of the groups from..to-1 out of a flat one; the last counts in steps of `step` as h<axis>
 * when step > 1. */
void pr_split(Printer *p, const char *flat, int from, int to, int64_t step);

void pr_row_nest(Printer *p, CudaFunction *f);
/* Sums over all elements of one row: a block for each range. */
void pr_flat_nest(Printer *p, CudaFunction *f);
/* The partial sums that the pass of the nest makes. */
int pr_count_sums(const KNest *n);
/* C type that a sum or maximum is folded in: "float". */
const char *pr_fold_type(const Printer *p, KReg r);
#endif
