/* scatter_cuda.h - the CUDA source of scatter_add (codegen/cuda/scatter_add.cu) and its launches.
 */
#ifndef MTC_SCATTER_CUDA_H
#define MTC_SCATTER_CUDA_H
#include "../ir/types.h"

typedef struct {
  int64_t n, rows, columns; /* ids; rows and columns of the result */
  int64_t row_stride;       /* elements between the rows that are added */
  int align; /* bytes that divide the addresses of the rows and of the result, up to 16 */
  DType row_dtype, out_dtype; /* f32, bf16 or f16 */
  bool accumulate;
} ScatterProblem;

/* Complete text with the functions of scatter_launches. It stands after cuda_prelude_text(). */
const char *scatter_source(const ScatterProblem *p, Arena *a);

typedef struct {
  const char *entry;
  int64_t grid;
  int threads;
} ScatterLaunch;
enum { SCATTER_LAUNCHES = 8 };
/* In their order; returns their number. */
int scatter_launches(const ScatterProblem *p, Arena *a, ScatterLaunch out[SCATTER_LAUNCHES]);

int64_t scatter_workspace(int64_t n); /* bytes */
#endif
