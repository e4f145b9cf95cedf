/* doctor_gpu.c - the GPU: what is installed, who holds its memory, what a context takes, how fast
 * memory is copied (see doctor.h). Everything that is taken here is given back, but for the
 * driver's library. */
#include <dlfcn.h>
#include <string.h>

#include "cuda_api.h"
#include "doctor.h"
#include "metrics.h"

bool doctor_cublaslt(Arena *a, DoctorGpu *g, Fail *f) {
  void *symbol;
  Dl_info info;
  if (!cublaslt_load(f)) return false;
  memcpy(&symbol, &lt.cublasLtGetVersion, sizeof symbol);
  g->lt_version = lt.cublasLtGetVersion();
  g->lt_path = dladdr(symbol, &info) && info.dli_fname ? arena_printf(a, "%s", info.dli_fname) : "";
  return true;
}

bool doctor_gpu_open(DoctorGpu *g, Fail *f) {
  g->overhead = g->ecc = -1;
  CUdevice d;
  size_t total = 0;
  if (!cuda_load(f)) {
    g->has_nvml = nvml_read(NULL, &g->before);
    return false;
  }
  cu.cuDriverGetVersion(&g->driver_cuda);
  if (!cuda_ok(cu.cuDeviceGetCount(&g->gpus), f, "counting GPUs")) return false;
  if (g->gpus == 0)
    return fail_set(f, EXIT_DEVICE,
                    "the NVIDIA driver sees no GPU (is CUDA_VISIBLE_DEVICES empty?)");
  if (!cuda_ok(cu.cuDeviceGet(&d, 0), f, "opening GPU 0")) return false;
  cu.cuDeviceGetName(g->name, sizeof g->name, d);
  cu.cuDeviceGetAttribute(&g->major, CU_ATTR_MAJOR, d);
  cu.cuDeviceGetAttribute(&g->minor, CU_ATTR_MINOR, d);
  cu.cuDeviceGetAttribute(&g->units, CU_ATTR_SM_COUNT, d);
  cu.cuDeviceGetAttribute(&g->ecc, CU_ATTR_ECC, d);
  int watchdog = 0;
  cu.cuDeviceGetAttribute(&watchdog, CU_ATTR_KERNEL_TIMEOUT, d);
  g->watchdog = watchdog != 0;
  if (cu.cuDeviceTotalMem(&total, d) == CU_SUCCESS) g->total = (int64_t)total;
  if (cu.cuDeviceGetPCIBusId(g->bus, sizeof g->bus, d) != CU_SUCCESS) g->bus[0] = 0;
  g->has_nvml = nvml_read(g->bus[0] ? g->bus : NULL, &g->before);
  return true;
}

/* ---- copies ---- */

enum { CHUNK = 64 << 20, CHUNKS = 12 };

typedef struct {
  void *host[2];
  CUdeviceptr device[2];
  CUstream stream[2]; /* to the device, from it */
} Copies;

static bool copy_chunk(const Copies *c, int way, Fail *f) {
  CUresult r = way == 0 ? cu.cuMemcpyHtoDAsync(c->device[0], c->host[0], CHUNK, c->stream[0])
                        : cu.cuMemcpyDtoHAsync(c->host[1], c->device[1], CHUNK, c->stream[1]);
  return cuda_ok(r, f, "copying %s", way == 0 ? "to the GPU" : "from the GPU");
}

/* Bytes a second of one way (bit 0: to the device, bit 1: from it), or of each when both run: until
 * the first of them is done, and then some, which weighs little. */
static bool copy_rate(const Copies *c, int ways, double rate[2], Fail *f) {
  double begin = 0;
  for (int i = -1; i < CHUNKS; i++) { /* the first is not counted */
    for (int way = 0; way < 2; way++)
      if (ways >> way & 1 && !copy_chunk(c, way, f)) return false;
    if (i >= 0) continue;
    for (int way = 0; way < 2; way++)
      if (!cuda_ok(cu.cuStreamSynchronize(c->stream[way]), f, "copying")) return false;
    begin = clock_seconds();
  }
  for (int left = ways; left;)
    for (int way = 0; way < 2; way++) {
      if (!(left >> way & 1)) continue;
      CUresult r = cu.cuStreamQuery(c->stream[way]);
      if (r == CU_ERROR_NOT_READY) continue;
      if (!cuda_ok(r, f, "copying")) return false;
      rate[way] = (double)CHUNK * CHUNKS / (clock_seconds() - begin);
      left &= ~(1 << way);
    }
  return true;
}

static bool measure_copies(DoctorGpu *g, Fail *f) {
  Copies c = {0};
  bool ok = true;
  double in[2] = {0}, out[2] = {0};
  for (int i = 0; ok && i < 2; i++)
    ok = cuda_ok(cu.cuMemHostAlloc(&c.host[i], CHUNK, 0), f, "pinning 64 MiB of host memory") &&
         cuda_ok(cu.cuMemAlloc(&c.device[i], CHUNK), f, "allocating 64 MiB on the GPU") &&
         cuda_ok(cu.cuStreamCreate(&c.stream[i], CU_STREAM_NONBLOCKING), f, "making a stream");
  if (ok) memset(c.host[0], 0x5A, CHUNK);
  ok = ok && copy_rate(&c, 1, in, f) && copy_rate(&c, 2, out, f) && copy_rate(&c, 3, g->both, f);
  g->h2d = in[0], g->d2h = out[1];
  for (int i = 0; i < 2; i++) {
    if (c.stream[i]) cu.cuStreamDestroy(c.stream[i]);
    if (c.device[i]) cu.cuMemFree(c.device[i]);
    if (c.host[i]) cu.cuMemFreeHost(c.host[i]);
  }
  return ok;
}

/* ---- what a context takes ---- */

static bool run_kernel(const void *cubin, const char *kernel, CUmodule *m, CUstream s, Fail *f) {
  CUfunction fn = NULL;
  return cuda_ok(cu.cuModuleLoadData(m, cubin), f, "loading a kernel") &&
         cuda_ok(cu.cuModuleGetFunction(&fn, *m, kernel), f, "finding `%s`", kernel) &&
         cuda_ok(cu.cuLaunchKernel(fn, 1, 1, 1, 32, 1, 1, 0, s, NULL, NULL), f,
                 "running a kernel") &&
         cuda_ok(cu.cuStreamSynchronize(s), f, "running a kernel");
}

static bool take_all(DoctorGpu *g, const void *cubin, const char *kernel, Fail *f) {
  CUmodule m = NULL;
  CUstream s = NULL;
  LtHandle handle = NULL;
  NvmlState after;
  size_t unused = 0, total = 0;
  bool ok = cuda_ok(cu.cuStreamCreate(&s, CU_STREAM_NONBLOCKING), f, "making a stream") &&
            (!cubin || run_kernel(cubin, kernel, &m, s, f));
  if (ok && lt.cublasLtCreate && lt.cublasLtCreate(&handle) != 0)
    ok = fail_set(f, EXIT_DEVICE, "cuBLASLt cannot be started");
  ok = ok && cuda_ok(cu.cuMemGetInfo(&unused, &total), f, "asking for free memory");
  g->unused = (int64_t)unused;
  if (ok && g->has_nvml && nvml_read(g->bus[0] ? g->bus : NULL, &after))
    g->overhead = after.used - g->before.used;
  ok = ok && measure_copies(g, f);
  if (handle) lt.cublasLtDestroy(handle);
  if (m) cu.cuModuleUnload(m);
  if (s) cu.cuStreamDestroy(s);
  return ok;
}

bool doctor_gpu_measure(DoctorGpu *g, const void *cubin, const char *kernel, Fail *f) {
  CUdevice d;
  CUcontext context;
  if (!cuda_ok(cu.cuDeviceGet(&d, 0), f, "opening GPU 0") ||
      !cuda_ok(cu.cuDevicePrimaryCtxRetain(&context, d), f, "making a context on GPU 0"))
    return false;
  bool ok = cuda_ok(cu.cuCtxSetCurrent(context), f, "taking the context of GPU 0") &&
            take_all(g, cubin, kernel, f);
  cu.cuDevicePrimaryCtxRelease(d);
  return ok;
}
