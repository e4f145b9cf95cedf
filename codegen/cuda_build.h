/* cuda_build.h - collects the CUDA functions of a program: commands go in, launches, images and
 * names come out.
 *
 * Input: commands whose tensors and flags are set, kernels of their loop nests. Output:
 * Cmd.launches of each, and in the program kernel_names, kernel_source and one set of cubins for
 * the target's architecture. Equal functions are one; small ones share NVRTC programs, attention
 * kernels have their own and are tried variant by variant until none spills. Schedules of
 * persistent kernels are the global `mt_schedules` of the first image: Launch.table_offset counts
 * from it. */
#ifndef MTC_CUDA_BUILD_H
#define MTC_CUDA_BUILD_H
#include "../runtime/fail.h"
#include "../runtime/program.h"
#include "kir.h"
#include "target.h"

typedef struct CudaBuild CudaBuild;

/* Functions for target t; source names the program in messages ("models/gpt2.mt"). */
CudaBuild *cuda_build_new(Arena *a, const Target *t, const char *source);

/* From here on attention uses mma.sync even where wgmma exists: measurements compare the two. */
void cuda_build_no_wgmma(CudaBuild *b, bool without);

/* From here on loop nests start with this choice of print_cuda.h instead of the first. */
void cuda_build_choice(CudaBuild *b, int choice);

/* Adds the functions of one command and fills its launches. The command must stay where it is until
 * cuda_build_finish. False with a sentence in *why when CUDA has no kernel for it. */
bool cuda_build_kernel(CudaBuild *b, Cmd *c, const Kernel *k, const char **why);
/* The same in two steps, the first of which takes most of the time and may run in any thread. */
typedef struct CudaPrinted CudaPrinted;
CudaPrinted *cuda_print_kernel(const CudaBuild *b, const Kernel *k, Arena *a);
bool cuda_build_printed(CudaBuild *b, Cmd *c, const Kernel *k, const CudaPrinted *printed, const char **why);
bool cuda_build_attention(CudaBuild *b, Cmd *c, const char **why);
bool cuda_build_scatter(CudaBuild *b, Cmd *c, const char **why);

/* Compiles all functions; fills the program's kernels and images and completes the launches. */
bool cuda_build_finish(CudaBuild *b, Program *p, Fail *f);

/* All of cuda_build_finish but compiling, and so without images: kernels in their first choices. */
void cuda_build_text(CudaBuild *b, Program *p);

/* Bytes of workspace that the command's kernels need. */
int64_t cuda_attention_bytes(const Cmd *c);
int64_t cuda_scatter_bytes(const Cmd *c);
#endif
