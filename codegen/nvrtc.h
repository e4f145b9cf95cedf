/* nvrtc.h - CUDA C++ text to a cubin, by NVRTC opened with dlopen; no GPU and no NVIDIA header
 * needed.
 *
 * Images are cached by the hash of source, options, architecture and NVRTC version
 * (nvrtc_cache.h). The log of ptxas is read: a kernel with a stack frame or spills is a fault of
 * the emitter, since the driver reserves stack for every resident thread (264 MiB for the first KiB
 * on an H200). */
#ifndef MTC_NVRTC_H
#define MTC_NVRTC_H
#include "../runtime/fail.h"

typedef struct {
  const char *name; /* of the kernel, mangled as written (extern "C") */
  int registers, stack_bytes, spill_bytes;
  bool known; /* ptxas reported it */
} KernelUse;

typedef struct {
  void *cubin;
  size_t size;
  const char *log;
  VEC(KernelUse) use; /* one per kernel */
  bool serialized;    /* ptxas gave up overlapping wgmma (C7510..C7518): as bad as a spill */
  bool cached;
} CudaImage;

typedef struct {
  const char *source;
  const char *name; /* for messages: "kernels of gpt2.mt" */
  int sm;           /* one of cuda_archs */
  bool fma; /* attention: contraction allowed. Else -fmad=false, and divisions and roots to 2 units
             * in the last place */
} CudaSource;

/* The compute capabilities that kernels are emitted for, and what NVRTC calls them. */
typedef struct {
  int sm;
  const char *name; /* "sm_90a" */
} CudaArch;
extern const CudaArch cuda_archs[];
extern const int cuda_arch_count;
/* The name of a listed capability; bug() for another. */
const char *cuda_arch(int sm);

/* Compiles all sources, as many at a time as there are cores. images[i] is filled for sources[i]. False with EXIT_DEVICE
 * when NVRTC is missing; a source that does not compile is a bug of the emitter and ends the
 * process with NVRTC's log. */
bool nvrtc_compile(Arena *a, int n, const CudaSource *sources, CudaImage *images, Fail *f);

/* Opens NVRTC: its version (1300 for 13.0) and the library's file, interned. False with EXIT_DEVICE
 * and the remedy. */
bool nvrtc_find(int *version, const char **path, Fail *f);

/* First kernel of the image with a stack frame or spills, or NULL. */
const KernelUse *image_spills(const CudaImage *image);
#endif
