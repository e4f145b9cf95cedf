/* nvml.h - what NVML, the driver's management library, tells about a GPU; opened with dlopen, and all of it optional.
 * It needs no context, so that it can say what was taken before we came. */
#ifndef MTC_NVML_H
#define MTC_NVML_H
#include "../ir/base.h"

typedef struct {
  int pid;
  int64_t bytes; /* -1 = the driver does not say, as in containers */
  char name[64]; /* "" = of another namespace */
} GpuUser;

enum { MOST_GPU_USERS = 32 };
typedef struct {
  char driver[80];          /* "560.35.03" */
  int64_t total, used;      /* bytes of the card; in use by everybody; without what the driver keeps */
  int64_t ecc_errors;       /* uncorrected since the driver was loaded; -1 unknown */
  int display;              /* 1 a display is attached, 0 none, -1 unknown */
  int pcie_gen, pcie_lanes; /* 0 unknown */
  int nusers;
  GpuUser user[MOST_GPU_USERS];
} NvmlState;

/* bus: "0000:65:00.0", NULL = the first GPU. False when there is no NVML or no such GPU. */
bool nvml_read(const char *bus, NvmlState *s);

/* Bytes in use on the GPU, by everybody; -1 when the library is not there or does not say. */
int64_t nvml_used_bytes(int gpu);
#endif
