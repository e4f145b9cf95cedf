/* nvml.c - opens libnvidia-ml once and asks it (see nvml.h). Structures and calls are those of the NVML manual. */
#include "nvml.h"

#include <dlfcn.h>
#include <string.h>

typedef struct NvmlDevice *NvmlHandle;
typedef struct {
  unsigned long long total, unused, used; /* used: with what the driver keeps for itself */
} NvmlMemory;
typedef struct {
  unsigned version;
  unsigned long long total, reserved, unused, used; /* used: without what it keeps */
} NvmlMemory2;
typedef struct {
  unsigned pid;
  unsigned long long bytes;
  unsigned instance, compute_instance;
} NvmlProcess;

enum { NVML_OK = 0, NVML_UNCORRECTED = 1, NVML_VOLATILE = 0 };

#define NVML_CALLS(X)                                                                    \
  X(init, "nvmlInit_v2", (void))                                                         \
  X(driver, "nvmlSystemGetDriverVersion", (char *text, unsigned room))                   \
  X(by_index, "nvmlDeviceGetHandleByIndex_v2", (unsigned i, NvmlHandle *h))              \
  X(by_bus, "nvmlDeviceGetHandleByPciBusId_v2", (const char *bus, NvmlHandle *h))        \
  X(memory, "nvmlDeviceGetMemoryInfo", (NvmlHandle h, NvmlMemory *m))

/* What older libraries lack. */
#define NVML_EXTRAS(X)                                                                   \
  X(memory2, "nvmlDeviceGetMemoryInfo_v2", (NvmlHandle h, NvmlMemory2 *m))               \
  X(ecc_errors, "nvmlDeviceGetTotalEccErrors",                                           \
    (NvmlHandle h, int type, int counter, unsigned long long *n))                        \
  X(display, "nvmlDeviceGetDisplayActive", (NvmlHandle h, int *on))                      \
  X(pcie_gen, "nvmlDeviceGetMaxPcieLinkGeneration", (NvmlHandle h, unsigned *gen))       \
  X(pcie_lanes, "nvmlDeviceGetMaxPcieLinkWidth", (NvmlHandle h, unsigned *lanes))        \
  X(compute_users, "nvmlDeviceGetComputeRunningProcesses_v3",                            \
    (NvmlHandle h, unsigned *n, NvmlProcess *p))                                         \
  X(graphics_users, "nvmlDeviceGetGraphicsRunningProcesses_v3",                          \
    (NvmlHandle h, unsigned *n, NvmlProcess *p))

typedef struct {
#define X(name, symbol, args) int(*name) args;
  NVML_CALLS(X)
  NVML_EXTRAS(X)
#undef X
} Nvml;

static void *find(void *lib, const char *symbol, void *to) {
  void *p = dlsym(lib, symbol);
  memcpy(to, &p, sizeof p);
  return p;
}

/* NULL when it is not there. It stays open as long as the process. */
static const Nvml *open_nvml(void) {
  static Nvml calls;
  static bool tried, ok;
  if (tried) return ok ? &calls : NULL;
  tried = true;
  void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!lib) return NULL;
#define X(name, symbol, args) \
  if (!find(lib, symbol, &calls.name)) return NULL;
  NVML_CALLS(X)
#undef X
#define X(name, symbol, args) find(lib, symbol, &calls.name);
  NVML_EXTRAS(X)
#undef X
  ok = calls.init() == NVML_OK;
  return ok ? &calls : NULL;
}

/* ---- processes ---- */

static void process_name(GpuUser *u) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/comm", u->pid);
  FILE *f = fopen(path, "r");
  if (f && fgets(u->name, sizeof u->name, f)) u->name[strcspn(u->name, "\n")] = 0;
  if (f) fclose(f);
}

static void add_users(NvmlState *s, const NvmlProcess *p, unsigned n) {
  for (unsigned i = 0; i < n && s->nusers < MOST_GPU_USERS; i++) {
    bool known = false;
    for (int k = 0; k < s->nusers; k++) known = known || s->user[k].pid == (int)p[i].pid;
    if (known) continue;
    GpuUser *u = &s->user[s->nusers++];
    *u = (GpuUser){.pid = (int)p[i].pid, .bytes = p[i].bytes == ~0ull ? -1 : (int64_t)p[i].bytes};
    process_name(u);
  }
}

/* ---- state ---- */

static void read_extras(const Nvml *n, NvmlHandle h, NvmlState *s) {
  unsigned long long errors;
  unsigned number, count = MOST_GPU_USERS;
  int on;
  NvmlProcess p[MOST_GPU_USERS];
  if (n->ecc_errors && n->ecc_errors(h, NVML_UNCORRECTED, NVML_VOLATILE, &errors) == NVML_OK)
    s->ecc_errors = (int64_t)errors;
  if (n->display && n->display(h, &on) == NVML_OK) s->display = on;
  if (n->pcie_gen && n->pcie_gen(h, &number) == NVML_OK) s->pcie_gen = (int)number;
  if (n->pcie_lanes && n->pcie_lanes(h, &number) == NVML_OK) s->pcie_lanes = (int)number;
  if (n->compute_users && n->compute_users(h, &count, p) == NVML_OK) add_users(s, p, count);
  count = MOST_GPU_USERS;
  if (n->graphics_users && n->graphics_users(h, &count, p) == NVML_OK) add_users(s, p, count);
}

/* Total and in use, as processes see them where the library can tell: no process gets what the driver keeps (600 MiB of
 * an H200). */
static bool read_memory(const Nvml *n, NvmlHandle h, int64_t *total, int64_t *used) {
  NvmlMemory2 m2 = {.version = (unsigned)sizeof m2 | 2u << 24};
  NvmlMemory m;
  if (n->memory2 && n->memory2(h, &m2) == NVML_OK) {
    *total = (int64_t)(m2.total - m2.reserved);
    *used = (int64_t)m2.used;
    return true;
  }
  if (n->memory(h, &m) != NVML_OK) return false;
  *total = (int64_t)m.total;
  *used = (int64_t)m.used;
  return true;
}

bool nvml_read(const char *bus, NvmlState *s) {
  *s = (NvmlState){.ecc_errors = -1, .display = -1};
  const Nvml *n = open_nvml();
  NvmlHandle h;
  if (!n || (bus ? n->by_bus(bus, &h) : n->by_index(0, &h)) != NVML_OK) return false;
  if (!read_memory(n, h, &s->total, &s->used)) return false;
  if (n->driver(s->driver, sizeof s->driver) != NVML_OK) s->driver[0] = 0;
  read_extras(n, h, s);
  return true;
}

int64_t nvml_used_bytes(int gpu) {
  const Nvml *n = open_nvml();
  NvmlHandle h;
  int64_t total, used;
  bool ok = n && n->by_index((unsigned)gpu, &h) == NVML_OK && read_memory(n, h, &total, &used);
  return ok ? used : -1;
}
