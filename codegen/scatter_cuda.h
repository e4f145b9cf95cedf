/* scatter_cuda.h - the CUDA source of scatter_add (codegen/cuda/scatter_add.cu) and its launches. */
#ifndef MTC_SCATTER_CUDA_H
#define MTC_SCATTER_CUDA_H
#include "../ir/types.h"

typedef struct {
  int64_t n, rows, columns;  /* ids; rows and columns of the result */
  int64_t row_stride;        /* elements between the rows that are added */
  DType row_dtype, out_dtype; /* f32, bf16 or f16 */
  bool accumulate;
} ScatterProblem;

/* Complete text, with functions scatter_sort (one block of 512 threads) and scatter_sum (256 threads a block). It stands
 * after cuda_prelude_text(). */
const char *scatter_source(const ScatterProblem *p, Arena *a);
int64_t scatter_sum_blocks(const ScatterProblem *p);
int64_t scatter_workspace(int64_t n); /* bytes */
enum { SCATTER_SORT_THREADS = 512, SCATTER_SUM_THREADS = 256 };
#endif
