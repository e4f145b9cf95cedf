/* nvrtc_cache.h - what is kept between runs in $XDG_CACHE_HOME/mtc or ~/.cache/mtc: images, and the version of the NVRTC that
 * is on this machine, so that it need not be opened (it is a hundred megabytes) when all images are there. A cache that cannot
 * be written costs time only. */
#ifndef MTC_NVRTC_CACHE_H
#define MTC_NVRTC_CACHE_H
#include "nvrtc.h"

/* Log and cubin of an image, in the arena; false when it is not there or not whole. */
bool cache_read(Arena *a, uint64_t key, CudaImage *m);
void cache_write(Arena *a, uint64_t key, const CudaImage *m);

/* Version of NVRTC as long as its file and what the search for it depends on are what they were; else 0. */
int cache_nvrtc_version(Arena *a);
void cache_keep_version(Arena *a, int version, const char *path);
#endif
