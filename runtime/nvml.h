/* nvml.h - memory of a GPU as the management library tells it, which needs no context: what was taken before we came. */
#ifndef MTC_NVML_H
#define MTC_NVML_H
#include "../ir/base.h"

/* Bytes in use on the GPU, by everybody; -1 when the library is not there or does not say. */
int64_t nvml_used_bytes(int gpu);
#endif
