/* cpu_cc.h - the C compiler of the machine, for emitted kernels: text in, shared object out, cached
 * by hash. */
#ifndef MTC_CPU_CC_H
#define MTC_CPU_CC_H
#include "fail.h"

/* "x86-64:9f3c21aa": what an image was compiled for, from the features that the kernel reports for
 * the CPU. Interned. */
const char *cpu_arch(void);

/* The shared object of a C source for this machine. Looked up in $XDG_CACHE_HOME/mtc (~/.cache/mtc)
 * by the hash of source, flags and CPU; else compiled with `cc` and put there. `cached` (may be
 * NULL) tells which. A compiler that is missing or fails is EXIT_DEVICE. */
bool cpu_compile(Arena *a, const char *source, const void **image, size_t *size, bool *cached,
                 Fail *f);

#endif
