/* print_cuda.h - a Kernel as CUDA C++: one __global__ function per nest, all with the same parameters.
 *
 * Orders of summation are fixed by the shape alone, as kir.h asks, but are not those of the C target:
 *   row     granules of 8 consecutive elements are dealt to the threads of the row in turn; a thread adds its elements in
 *           order, then threads are added by a butterfly of each warp, then warps in order
 *   column  blocks of consecutive rows (cuda_sum_blocks), each dealt to the row groups of a block in turn, then groups in
 *           order, then blocks in order; 32 blocks or more in eight ranges, whose sums are added in order
 *   full    as a row over each of cuda_sum_blocks ranges, which are added as blocks are */
#ifndef MTC_PRINT_CUDA_H
#define MTC_PRINT_CUDA_H
#include "kir.h"

typedef struct {
  const char
      *body; /* "(const float *p0, ..) { .. }" without its name: equal texts are one function */
  int64_t grid;
  int per_sm; /* blocks of an SM that take all work in turn, so that more than fit are no use; 0 =
                 the grid is what it must be */
  int threads, shared; /* shared: bytes of dynamic shared memory */
  int resident; /* blocks that an SM should hold, for __launch_bounds__; 0 = as ptxas likes; 1
                   spills least */
} CudaFunction;

/* Functions in the order of their launches, at most `most`, for compute capability sm. Returns
 * their number, or 0 with a sentence in *why. Choices are fastest first: ptxas may spill registers
 * in one and not in the next. The last has blocks so small that a thread may take all 255
 * registers; it has launches, and with other threads a row orders of summation, of its own. The
 * others give the same bits. */
enum { CUDA_FULL, CUDA_THRIFTY, CUDA_ONE_BLOCK, CUDA_NARROW, CUDA_CHOICES };
int kernel_print_cuda(const Kernel *k, int sm, int choice, Arena *a, CudaFunction *out, int most,
                      const char **why);

/* The function whole, with a name. */
const char *cuda_function_text(const CudaFunction *f, const char *name, Arena *a);

/* Text before the functions of a program. */
const char *cuda_prelude_text(Arena *a);

/* Bytes of partial sums that the functions of k need after the parameters. */
int64_t cuda_workspace(const Kernel *k);
#endif
