/* nvml.c - see nvml.h. Structures and calls are those of NVML's version-2 interface. */
#include "nvml.h"
#include <dlfcn.h>

typedef struct {
  unsigned long long total, unused, used;
} Memory;

int64_t nvml_used_bytes(int gpu) {
  void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!lib) return -1;
  int (*init)(void), (*handle)(unsigned, void **), (*info)(void *, Memory *), (*shutdown)(void);
  *(void **)&init = dlsym(lib, "nvmlInit_v2");
  *(void **)&handle = dlsym(lib, "nvmlDeviceGetHandleByIndex_v2");
  *(void **)&info = dlsym(lib, "nvmlDeviceGetMemoryInfo");
  *(void **)&shutdown = dlsym(lib, "nvmlShutdown");
  int64_t used = -1;
  if (init && handle && info && shutdown && init() == 0) {
    void *device;
    Memory m;
    if (handle((unsigned)gpu, &device) == 0 && info(device, &m) == 0) used = (int64_t)m.used;
    shutdown();
  }
  dlclose(lib);
  return used;
}
