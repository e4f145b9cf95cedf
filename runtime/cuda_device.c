/* cuda_device.c - the CUDA back end of replay.h: one allocation, each program captured once as a graph, no host
 * synchronisation between runs.
 *
 * Writes of up to a quarter of the ring are copied into pinned memory and ordered by the stream, so that per-step scalars and
 * batches cost no waiting; larger ones (weights) wait for the stream. Reads wait. With `poison` and late copies programs run
 * command by command with a check after each, so that a fault names its command; otherwise as graphs. */
#include <stdlib.h>
#include <string.h>
#include "copies.h"
#include "cuda_parts.h"
#include "host_memory.h"
#include "nvml.h"

enum { RING_BYTES = 8 << 20, RING_HALF = RING_BYTES / 2, RING_ALIGN = 16 };

/* ---- opening ---- */
/* The last name of an image's architecture that runs on compute capability major.minor: "sm_90a" on 9.0. */
static bool arch_fits(const char *arch, int major, int minor) {
  int sm = 0;
  return sscanf(arch, "sm_%d", &sm) == 1 && sm / 10 == major && sm % 10 <= minor;
}

static bool open_context(Device *d, Fail *f) {
  int n = 0;
  d->taken_before = nvml_used_bytes(0);
  if (!cuda_load(f) || !cuda_ok(cu.cuDeviceGetCount(&n), f, "counting GPUs")) return false;
  if (n == 0) return fail_set(f, EXIT_DEVICE, "no GPU is visible to the NVIDIA driver");
  return cuda_ok(cu.cuDeviceGet(&d->ordinal, 0), f, "opening GPU 0") &&
         cuda_ok(cu.cuDevicePrimaryCtxRetain(&d->context, d->ordinal), f, "making a context on GPU 0") &&
         cuda_ok(cu.cuCtxSetCurrent(d->context), f, "taking the context of GPU 0") &&
         cuda_ok(cu.cuCtxSetLimit(CU_LIMIT_PRINTF, 4096), f, "bounding the print buffer") &&
         cuda_ok(cu.cuStreamCreate(&d->stream, CU_STREAM_NONBLOCKING), f, "making a stream");
}

static bool open_modules(Device *d, Fail *f) {
  const Program *p = d->p;
  int major = 0, minor = 0;
  cu.cuDeviceGetAttribute(&major, CU_ATTR_MAJOR, d->ordinal);
  cu.cuDeviceGetAttribute(&minor, CU_ATTR_MINOR, d->ordinal);
  d->modules = arena_array(d->memory, CUmodule, p->nimages + 1);
  d->functions = arena_array(d->memory, CUfunction, p->nkernels + 1);
  for (int i = 0; i < p->nimages; i++)
    if (arch_fits(p->images[i].arch, major, minor)) {
      if (!cuda_ok(cu.cuModuleLoadData(&d->modules[d->nmodules], p->images[i].data), f,
                   "loading kernels for %s", p->images[i].arch))
        return false;
      size_t bytes;
      CUdeviceptr schedules;
      if (cu.cuModuleGetGlobal(&schedules, &bytes, d->modules[d->nmodules], "mt_schedules") == CU_SUCCESS)
        d->schedules = schedules;
      d->nmodules++;
    }
  for (int k = 0; k < p->nkernels; k++) {
    for (int m = 0; m < d->nmodules && !d->functions[k]; m++)
      if (cu.cuModuleGetFunction(&d->functions[k], d->modules[m], p->kernel_names[k]) != CU_SUCCESS)
        d->functions[k] = NULL;
    if (!d->functions[k])
      return fail_set(f, EXIT_DEVICE,
                      "the program has no kernels for this GPU (compute capability %d.%d): compile it with "
                      "--target of this card",
                      major, minor);
  }
  return true;
}

static bool clear_arena(Device *d, Fail *f) {
  return cuda_ok(cu.cuMemsetD8Async(d->arena, 0, (size_t)d->p->arena_bytes, d->stream), f, "clearing the arena") &&
         cuda_ok(cu.cuStreamSynchronize(d->stream), f, "clearing the arena");
}

static bool open_arena(Device *d, Fail *f) {
  size_t unused = 0, total = 0;
  if (!cuda_ok(cu.cuMemGetInfo(&unused, &total), f, "asking for free memory")) return false;
  int64_t need = d->p->arena_bytes;
  if ((int64_t)unused < need)
    return fail_set(f, EXIT_DEVICE,
                    "the plan needs %.1f MiB on the GPU and %.1f of %.1f MiB are free: end what else runs there "
                    "(`nvidia-smi` lists it), or plan with a smaller --vram",
                    (double)need / (1 << 20), (double)unused / (1 << 20), (double)total / (1 << 20));
  return cuda_ok(cu.cuMemAlloc(&d->arena, (size_t)(need ? need : 1)), f, "allocating %.1f MiB",
                 (double)need / (1 << 20)) &&
         clear_arena(d, f);
}

static bool open_ring(Device *d, Fail *f) {
  void *ring = NULL;
  if (!cuda_ok(cu.cuMemHostAlloc(&ring, RING_BYTES, 0), f, "pinning %d MiB of host memory", RING_BYTES >> 20))
    return false;
  d->ring = ring;
  return cuda_ok(cu.cuEventCreate(&d->ring_events[0], CU_EVENT_NO_TIMING), f, "making an event") &&
         cuda_ok(cu.cuEventCreate(&d->ring_events[1], CU_EVENT_NO_TIMING), f, "making an event");
}

static bool ready_commands(Device *d, Fail *f) {
  const Program *p = d->p;
  d->cmds = arena_array(d->memory, CudaCmd *, p->nprograms + 1);
  d->graphs = arena_array(d->memory, CUgraphExec, p->nprograms + 1);
  for (int i = 0; i < p->nprograms; i++) {
    const ProgramCode *code = &p->programs[i];
    d->cmds[i] = arena_array(d->memory, CudaCmd, code->ncmds + 1);
    for (int k = 0; k < code->ncmds; k++) {
      const Cmd *c = &code->cmds[k];
      CudaCmd *r = &d->cmds[i][k];
      if (c->kind == CMD_GEMM) {
        if (!d->lt && !cuda_gemm_open(d, f)) return false;
        r->gemm = arena_new_of(d->memory, CudaGemm);
        if (!cuda_gemm_ready(d, c, r->gemm, f)) return false;
      } else if (c->nlaunches) {
        r->launch = arena_alloc(d->memory, sizeof *r->launch * (size_t)c->nlaunches);
        if (!cuda_launches_ready(d, c, r->launch, f)) return false;
      } else if (c->kind == CMD_COPY) {
        if (!cuda_ok(cu.cuEventCreate(&r->done, CU_EVENT_NO_TIMING), f, "making an event")) return false;
      }
    }
  }
  return true;
}

/* ---- running ---- */
bool cuda_run_command(Device *d, int program, int k, Fail *f) {
  const Cmd *c = &d->p->programs[program].cmds[k];
  CudaCmd *r = &d->cmds[program][k];
  if (c->kind == CMD_GEMM) return cuda_gemm_run(d, c, r->gemm, f);
  if (c->kind == CMD_COPY) return cuda_copy_begin(d, program, k, NULL, f);
  if (c->kind == CMD_WAIT) return cuda_copy_wait(d, program, k, f);
  if (c->kind == CMD_FILL) {
    int64_t bytes = dtype_bytes(c->tensors[0].dtype);
    for (int i = 0; i < c->tensors[0].rank; i++) bytes *= c->tensors[0].dim[i];
    return cuda_ok(cu.cuMemsetD8Async(device_at(d, c->tensors[0].offset), 0, (size_t)bytes, d->stream), f,
                   "clearing %s (%s)", c->name, c->where);
  }
  return cuda_launch(d, c, r->launch, f);
}

static bool is_transfer(const Cmd *c) {
  return c->kind == CMD_COPY || c->kind == CMD_WAIT;
}

/* ---- command by command ---- */
static bool checked(const Device *d) {
  return d->options.poison || d->options.copies == COPIES_LATE;
}

typedef struct {
  Device *d;
  int program;
} Checked;

static bool perform_copy(void *context, int i, Fail *f) {
  const Checked *x = context;
  return cuda_copy_now(x->d, x->program, i, f);
}

static bool run_checked(Device *d, int program, Fail *f) {
  const ProgramCode *code = &d->p->programs[program];
  Checked context = {d, program};
  CopyRun copies = {.code = code, .times = d->options.copies, .perform = perform_copy, .context = &context};
  bool poison = d->options.poison, late = d->options.copies == COPIES_LATE;
  for (int k = 0, death = 0; k < code->ncmds; k++) {
    const Cmd *c = &code->cmds[k];
    if (poison && late && c->kind == CMD_COPY && !cuda_copy_poison(d, program, k, f)) return false;
    if (!is_transfer(c) && !cuda_run_command(d, program, k, f)) return false;
    if (!copies_at(&copies, k, f) || (k == code->ncmds - 1 && !copies_end(&copies, f))) return false;
    for (; poison && death < code->ndeaths && code->deaths[death].cmd <= k; death++)
      if (!cuda_ok(cu.cuMemsetD8Async(device_at(d, code->deaths[death].offset), 0xFF,
                                      (size_t)code->deaths[death].bytes, d->stream),
                   f, "poisoning after %s", c->name))
        return false;
    if (!cuda_ok(cu.cuStreamSynchronize(d->stream), f, "running %s (%s), command %d of `%s`", c->name, c->where, k,
                 code->name))
      return false;
  }
  return true;
}

static bool cuda_wait(Device *d, Fail *f) {
  return cuda_ok(cu.cuStreamSynchronize(d->stream), f, "running the program");
}

static bool cuda_watch(Device *d, int program, CommandSeen *seen, void *context, Fail *f) {
  const ProgramCode *code = &d->p->programs[program];
  Checked from = {d, program};
  CopyRun copies = {.code = code, .times = d->options.copies, .perform = perform_copy, .context = &from};
  bool enough = false;
  for (int k = 0; k < code->ncmds && !enough; k++) {
    if (!is_transfer(&code->cmds[k]) && !cuda_run_command(d, program, k, f)) return false;
    if (!copies_at(&copies, k, f) || !cuda_wait(d, f) || !seen(context, k, &enough, f)) return false;
  }
  return copies_end(&copies, f);
}

/* ---- as graphs ---- */
static bool capture(Device *d, int program, Fail *f) {
  CUgraph graph = NULL;
  if (!cuda_ok(cu.cuStreamBeginCapture(d->stream, CU_CAPTURE_THREAD), f, "capturing a graph")) return false;
  bool ok = true;
  for (int k = 0; ok && k < d->p->programs[program].ncmds; k++) ok = cuda_run_command(d, program, k, f);
  ok = ok && cuda_copies_join(d, program, f);
  CUresult end = cu.cuStreamEndCapture(d->stream, &graph);
  ok = ok && cuda_ok(end, f, "capturing `%s`", d->p->programs[program].name) &&
       cuda_ok(cu.cuGraphInstantiate(&d->graphs[program], graph, 0), f, "making the graph of `%s`",
               d->p->programs[program].name) &&
       cuda_ok(cu.cuGraphUpload(d->graphs[program], d->stream), f, "uploading the graph of `%s`",
               d->p->programs[program].name);
  if (graph) cu.cuGraphDestroy(graph);
  return ok;
}

static bool cuda_run(Device *d, int program, Fail *f) {
  if (checked(d)) return run_checked(d, program, f);
  return cuda_ok(cu.cuGraphLaunch(d->graphs[program], d->stream), f, "running `%s`",
                 d->p->programs[program].name);
}

/* Loads every kernel by running each program once on the cleared arena, then clears it again: what is loaded later would take
 * memory after the first step. Copies need none of that, and the arena on the host stays zero. */
static bool warm_up(Device *d, Fail *f) {
  for (int i = 0; i < d->p->nprograms; i++)
    for (int k = 0; k < d->p->programs[i].ncmds; k++)
      if (!is_transfer(&d->p->programs[i].cmds[k]) && !cuda_run_command(d, i, k, f)) return false;
  if (!cuda_wait(d, f)) return false;
  if (!checked(d))
    for (int i = 0; i < d->p->nprograms; i++)
      if (!capture(d, i, f)) return false;
  if (!clear_arena(d, f)) return false;
  int64_t transient = d->p->arena_bytes - d->p->persistent_bytes;
  return !d->options.poison || !transient ||
         cuda_ok(cu.cuMemsetD8Async(device_at(d, d->p->persistent_bytes), 0xFF, (size_t)transient, d->stream), f,
                 "poisoning the arena");
}

/* ---- reading and writing ---- */
static bool cuda_read(Device *d, bool host, int64_t offset, void *to, int64_t bytes, Fail *f) {
  if (!cuda_wait(d, f)) return false;
  if (host) host_copy(to, d->host + offset, bytes);
  return host || cuda_ok(cu.cuMemcpyDtoH(to, device_at(d, offset), (size_t)bytes), f, "reading %lld bytes",
                         (long long)bytes);
}

/* Reserves bytes of the ring; waits only when the device has not read what lay there a whole turn ago. */
static char *ring_take(Device *d, int64_t bytes, Fail *f) {
  int64_t at = round_up(d->ring_at, RING_ALIGN);
  int half = at < RING_HALF ? 0 : 1;
  if (at + bytes > (half + 1) * (int64_t)RING_HALF) { /* this half is full */
    if (!cuda_ok(cu.cuEventRecord(d->ring_events[half], d->stream), f, "recording an event")) return NULL;
    d->ring_used[half] = true;
    half = 1 - half;
    at = half * (int64_t)RING_HALF;
    if (d->ring_used[half] && !cuda_ok(cu.cuEventSynchronize(d->ring_events[half]), f, "waiting for a copy"))
      return NULL;
  }
  d->ring_at = at + bytes;
  return d->ring + at;
}

static bool cuda_write(Device *d, bool host, int64_t offset, const void *from, int64_t bytes, Fail *f) {
  if (host) {
    if (!cuda_wait(d, f)) return false;
    host_copy(d->host + offset, from, bytes);
    return true;
  }
  if (bytes > RING_HALF / 2)
    return cuda_wait(d, f) && cuda_ok(cu.cuMemcpyHtoD(device_at(d, offset), from, (size_t)bytes), f,
                                      "writing %lld bytes", (long long)bytes);
  char *staged = ring_take(d, bytes, f);
  if (!staged) return false;
  memcpy(staged, from, (size_t)bytes);
  return cuda_ok(cu.cuMemcpyHtoDAsync(device_at(d, offset), staged, (size_t)bytes, d->stream), f,
                 "writing %lld bytes", (long long)bytes);
}

static void *cuda_reach(Device *d, bool host) {
  return host ? d->host : NULL;
}

/* What is taken on the GPU now and was not before we came; where nobody tells what was, all that is taken. */
static int64_t cuda_measured(Device *d) {
  size_t unused = 0, total = 0;
  if (cu.cuMemGetInfo(&unused, &total) != CU_SUCCESS) return -1;
  return (int64_t)(total - unused) - (d->taken_before > 0 ? d->taken_before : 0);
}

static int64_t cuda_measured_host(Device *d) {
  return d->pinned ? round_up(d->p->host_bytes, 4096) : 0;
}

void cuda_close(Device *d) {
  if (!d) return;
  if (d->stream) cu.cuStreamSynchronize(d->stream);
  for (int i = 0; d->graphs && i < d->p->nprograms; i++)
    if (d->graphs[i]) cu.cuGraphExecDestroy(d->graphs[i]);
  for (int i = 0; d->cmds && i < d->p->nprograms; i++)
    for (int k = 0; d->cmds[i] && k < d->p->programs[i].ncmds; k++) {
      if (d->cmds[i][k].gemm) cuda_gemm_drop(d->cmds[i][k].gemm);
      if (d->cmds[i][k].done) cu.cuEventDestroy(d->cmds[i][k].done);
    }
  cuda_time_drop(d);
  cuda_host_close(d);
  if (d->lt) lt.cublasLtDestroy(d->lt);
  for (int i = 0; i < 2; i++)
    if (d->ring_events[i]) cu.cuEventDestroy(d->ring_events[i]);
  if (d->ring) cu.cuMemFreeHost(d->ring);
  if (d->arena) cu.cuMemFree(d->arena);
  for (int i = 0; i < d->nmodules; i++) cu.cuModuleUnload(d->modules[i]);
  if (d->stream) cu.cuStreamDestroy(d->stream);
  if (d->context) cu.cuDevicePrimaryCtxRelease(d->ordinal);
  arena_free(d->memory);
}

Device *cuda_open_cold(const Program *p, const DeviceOptions *o, Fail *f) {
  Arena *a = arena_new();
  Device *d = arena_new_of(a, Device);
  d->p = p;
  d->memory = a;
  d->options = *o;
  if ((!p->host_bytes || cuda_host_room(p, f)) && open_context(d, f) && open_modules(d, f) && open_arena(d, f) &&
      cuda_host_open(d, f) && open_ring(d, f) && ready_commands(d, f))
    return d;
  cuda_close(d);
  return NULL;
}

static Device *cuda_open(const Program *p, const DeviceOptions *o, Fail *f) {
  Device *d = cuda_open_cold(p, o, f);
  if (!d || warm_up(d, f)) return d;
  cuda_close(d);
  return NULL;
}

const DeviceApi device_cuda = {
    .name = "cuda",
    .open = cuda_open,
    .run = cuda_run,
    .wait = cuda_wait,
    .read = cuda_read,
    .write = cuda_write,
    .reach = cuda_reach,
    .measured = cuda_measured,
    .measured_host = cuda_measured_host,
    .time = cuda_time,
    .watch = cuda_watch,
    .copy_rate = cuda_copy_rate,
    .tune = cuda_tune,
    .record = cuda_record,
    .close = cuda_close,
};
