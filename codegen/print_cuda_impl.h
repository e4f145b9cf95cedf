/* print_cuda_impl.h - between the files of the CUDA printer: print_cuda.c (text, vectors, indices,
 * maps, the functions), print_cuda_rows.c (nests with rows), print_cuda_ring.c (rows loaded ahead),
 * print_cuda_sums.c (sums over rows) and print_cuda_codes.c (tables of 8-bit codes). */
#ifndef MTC_PRINT_CUDA_IMPL_H
#define MTC_PRINT_CUDA_IMPL_H
#include "print_cuda.h"

enum {
  GRANULE = 8, /* columns that a thread takes at a time */
  MAP_THREADS = 256,
  NARROW_THREADS = 256, /* of a block whose threads may have 255 registers each */
  VECTOR_BYTES = 16     /* of one transaction */
};

/* Where the vectors of a load wait for their use: each pass loads them again, or they stay, or they
 * came ahead of their row. */
typedef enum { CACHE_NONE, CACHE_REGISTERS, CACHE_SHARED, CACHE_RING } Cache;

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
  bool tail;           /* the granule that does comes after the others */
  int64_t slices;      /* blocks that share the columns of a row */
  bool thrifty;        /* few registers: fewer granules of long rows in flight */
  bool narrow;         /* as many registers a thread as there can be: NARROW_THREADS a block */
  bool at_use;         /* vectors that nothing keeps are loaded granule by granule */
  bool loop;           /* a group works on one row after another */
  int stages;          /* rows of a group that its ring in shared memory holds; 0 = no ring */
  bool refills;        /* the last pass starts the copies of a later row, granule by granule */
  bool *held;          /* registers and vectors that an earlier pass left */
  uint8_t *cache;      /* Cache of each load */
  int64_t *ring;       /* where a load's part of the ring starts, in bytes */
  bool codes;          /* tables of 8-bit codes are in scope */
} Printer;

/* What a group does one after another: rows first + group, + step, .. below end, and of each the
 * columns from..to. */
typedef struct {
  const char *first, *end, *step, *from, *to;
} RowLoop;

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
/* Element `at` of the vector `name`, as the register that memory of this dtype becomes. */
const char *pr_vector_element(Printer *p, DType t, const char *name, const char *at);
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
 * NULL. whole: says whether all threads of the warp are here, with granules beside each other; NULL = not so. */
void pr_store_vectors(Printer *p, const KPass *pass, const char *end, const char *whole);
void pr_store_scalars(Printer *p, const KPass *pass);
bool pr_scalar_stores(const Printer *p, const KPass *pass);
/* "i1 == 0 && ..": values that lack some of the rows' axes are stored by one row. NULL when all
 * rows have their own. */
const char *pr_store_guard(Printer *p, uint32_t mask);
/* Indices of the groups from..to-1 out of a flat one; the last counts in steps of `step` as h<axis>
 * when step > 1. */
void pr_split(Printer *p, const char *flat, int from, int to, int64_t step);

/* ---- print_cuda_rows.c ---- */
/* Threads and granules of rows of so many columns, without partial sums. */
void pr_row_shape(Printer *p, int64_t cols);
/* Of the vectors of all loads at one granule. */
int pr_granule_registers(const Printer *p);
/* Columns that a thread takes at once: GRANULE, or 1 where rows are not long runs of memory. */
int pr_row_width(const Printer *p);
/* Rows that are too long for the registers get a block that fills an SM and a ring of two rows;
 * false when that is too much for shared memory. */
bool pr_long_rows(Printer *p, CudaFunction *f);
/* Loads outside the ring that several passes use stay in that many registers, or of long rows in
 * shared memory after the bytes that f has, as far as there is room. */
void pr_choose_caches(Printer *p, CudaFunction *f, int registers);
/* The granules of a row's threads: what is true of them once threads and items are set. */
void pr_granules(Printer *p, int64_t cols);
/* Indices of the columns from the flat one. */
void pr_columns(Printer *p, const char *flat);
/* Granules `it` of this thread that are in flight together, below limit; c is the first column. */
void pr_granules_open(Printer *p, const char *from, const char *limit);
void pr_granules_close(Printer *p);
/* All passes of the row whose indices are in scope, and stores of its row values. */
void pr_row_body(Printer *p, const char *from, const char *to);
void pr_row_index(Printer *p, const char *row);
/* Whether the passes compute r for each element, or the rows once a row. */
bool pr_in_passes(const Printer *p, KReg r, bool row_level);
void pr_row_nest(Printer *p, CudaFunction *f);

/* ---- print_cuda_ring.c: rows that are loaded ahead ---- */
/* Loads whose vectors can come ahead of their row, in bytes a granule; 0 when there are none. */
int pr_ring_bytes(const Printer *p);
/* Gives them a ring when at least two rows fit `most` bytes and about `flight` bytes are on their
 * way; returns its size. */
int64_t pr_ring_choose(Printer *p, int64_t most, int64_t flight);
/* The rows of a loop, each with `row` in scope; `after` is printed at the end of each. */
void pr_row_loop(Printer *p, const RowLoop *l, void (*after)(Printer *p));
/* Row values that were loaded ahead; false for others. */
bool pr_scalar_ahead(const Printer *p, KReg r);
void pr_next_scalars(Printer *p);
const char *pr_ring_value(Printer *p, KReg r);
/* Starts the copies that replace granule c, which the last pass has used. */
void pr_refill(Printer *p);

/* ---- print_cuda_codes.c: 8-bit codes by tables in shared memory ---- */
/* Whether the passes encode or decode elements. */
bool pr_any_codes(const Printer *p);
/* The tables, filled by the block. */
void pr_code_tables(Printer *p);
/* The code or entry that r computes, or NULL where it is something else or no tables are there. */
const char *pr_code_value(Printer *p, KReg r);

/* ---- print_cuda_sums.c: sums over rows ---- */
void pr_sum_nest(Printer *p, CudaFunction *f);
/* Sums over all elements of one row: a block for each range. */
void pr_flat_nest(Printer *p, CudaFunction *f);
/* A sum over all elements, kept by each thread as one number. */
static inline bool pr_lane_sum(const Printer *p, KReg r) {
  return p->k->flat_sums && pr_instr(p, r)->kind == KI_SUM;
}
/* The partial sums that the pass of the nest makes. */
int pr_count_sums(const KNest *n);
/* C type that a sum or maximum is folded in: "float". */
const char *pr_fold_type(const Printer *p, KReg r);
#endif
