/* cuda_time.c - when the commands of a program run on the GPU, and how fast it copies.
 *
 * A program is captured a second time with an event before each command as nodes of the graph, so
 * that no launch from the host comes between. An event costs its neighbours about a microsecond.
 * Both graph and events are made on first use. */
#include "cuda_parts.h"

static bool record(Device *d, CUevent *e, Fail *f) {
  return cuda_ok(cu.cuEventCreate(e, CU_EVENT_TIMING), f, "making an event") &&
         cuda_ok(cu.cuEventRecordWithFlags(*e, d->stream, CU_EVENT_RECORD_EXTERNAL), f,
                 "recording an event");
}

static bool copy_timed(Device *d, int program, int k, CUevent times[2], Fail *f) {
  return cuda_ok(cu.cuEventCreate(&times[0], CU_EVENT_TIMING), f, "making an event") &&
         cuda_ok(cu.cuEventCreate(&times[1], CU_EVENT_TIMING), f, "making an event") &&
         cuda_copy_begin(d, program, k, times, f);
}

static bool capture_timed(Device *d, int program, CudaTimed *t, Fail *f) {
  const ProgramCode *code = &d->p->programs[program];
  CUgraph graph = NULL;
  t->event = arena_array(d->memory, CUevent, code->ncmds + 1);
  t->copy = arena_alloc(d->memory, sizeof *t->copy * (size_t)(code->ncmds + 1));
  if (!cuda_ok(cu.cuStreamBeginCapture(d->stream, CU_CAPTURE_THREAD), f, "capturing a graph"))
    return false;
  bool ok = true;
  for (int k = 0; ok && k < code->ncmds; k++)
    ok = record(d, &t->event[k], f) && (code->cmds[k].kind == CMD_COPY ? copy_timed(d, program, k, t->copy[k], f)
                                                                        : cuda_run_command(d, program, k, f));
  ok = ok && cuda_copies_join(d, program, f) && record(d, &t->event[code->ncmds], f);
  CUresult end = cu.cuStreamEndCapture(d->stream, &graph);
  ok = ok && cuda_ok(end, f, "capturing `%s`", code->name) &&
       cuda_ok(cu.cuGraphInstantiate(&t->graph, graph, 0), f, "making the timed graph of `%s`",
               code->name) &&
       cuda_ok(cu.cuGraphUpload(t->graph, d->stream), f, "uploading the timed graph of `%s`",
               code->name);
  if (graph) cu.cuGraphDestroy(graph);
  return ok;
}

static bool read_time(const CudaTimed *t, CUevent at, double *seconds, Fail *f) {
  float ms = 0;
  if (!cuda_ok(cu.cuEventElapsedTime(&ms, t->event[0], at), f, "reading the time of a command")) return false;
  *seconds = 1e-3 * (double)ms;
  return true;
}

bool cuda_time(Device *d, int program, double *start, double *copy, Fail *f) {
  const ProgramCode *code = &d->p->programs[program];
  if (!d->timed) d->timed = arena_array(d->memory, CudaTimed, d->p->nprograms + 1);
  CudaTimed *t = &d->timed[program];
  if (!t->event && !capture_timed(d, program, t, f)) return false;
  if (!start) return true;
  if (!cuda_ok(cu.cuGraphLaunch(t->graph, d->stream), f, "running `%s`", code->name) ||
      !cuda_ok(cu.cuStreamSynchronize(d->stream), f, "running `%s`", code->name))
    return false;
  for (int k = 0; k <= code->ncmds; k++)
    if (!read_time(t, t->event[k], &start[k], f)) return false;
  for (int k = 0; copy && k < code->ncmds; k++)
    for (int end = 0; end < 2; end++) {
      copy[2 * k + end] = start[k];
      if (code->cmds[k].kind == CMD_COPY && !read_time(t, t->copy[k][end], &copy[2 * k + end], f)) return false;
    }
  return true;
}

void cuda_time_drop(Device *d) {
  for (int i = 0; d->timed && i < d->p->nprograms; i++) {
    CudaTimed *t = &d->timed[i];
    if (t->graph) cu.cuGraphExecDestroy(t->graph);
    for (int k = 0; t->event && k <= d->p->programs[i].ncmds; k++)
      if (t->event[k]) cu.cuEventDestroy(t->event[k]);
    for (int k = 0; t->copy && k < d->p->programs[i].ncmds; k++)
      for (int end = 0; end < 2; end++)
        if (t->copy[k][end]) cu.cuEventDestroy(t->copy[k][end]);
  }
}

/* Copies of `bytes` within a fresh allocation, which the caches cannot hold. */
static bool time_copies(Device *d, CUdeviceptr from, CUdeviceptr to, size_t bytes, CUevent event[2],
                        double *rate, Fail *f) {
  enum { TIMES = 8 };
  float best = 0;
  for (int i = 0; i < TIMES; i++) {
    float ms = 0;
    if (!cuda_ok(cu.cuEventRecord(event[0], d->stream), f, "recording an event") ||
        !cuda_ok(cu.cuMemcpyDtoDAsync(to, from, bytes, d->stream), f, "copying on the GPU") ||
        !cuda_ok(cu.cuEventRecord(event[1], d->stream), f, "recording an event") ||
        !cuda_ok(cu.cuStreamSynchronize(d->stream), f, "copying on the GPU") ||
        !cuda_ok(cu.cuEventElapsedTime(&ms, event[0], event[1]), f, "timing a copy"))
      return false;
    if (i > 0 && (best == 0 || ms < best)) best = ms;
  }
  *rate = 2e3 * (double)bytes / (double)best;
  return true;
}

bool cuda_copy_rate(Device *d, double *rate, Fail *f) {
  size_t bytes = (size_t)512 << 20, unused = 0, total = 0;
  CUdeviceptr at = 0;
  CUevent event[2] = {NULL, NULL};
  *rate = 0;
  if (cu.cuMemGetInfo(&unused, &total) != CU_SUCCESS || unused < 3 * bytes) return true;
  if (cu.cuMemAlloc(&at, 2 * bytes) != CU_SUCCESS) return true;
  bool ok = cuda_ok(cu.cuMemsetD8Async(at, 0x5A, 2 * bytes, d->stream), f, "filling a buffer") &&
            cuda_ok(cu.cuEventCreate(&event[0], CU_EVENT_TIMING), f, "making an event") &&
            cuda_ok(cu.cuEventCreate(&event[1], CU_EVENT_TIMING), f, "making an event") &&
            time_copies(d, at, at + bytes, bytes, event, rate, f);
  for (int i = 0; i < 2; i++)
    if (event[i]) cu.cuEventDestroy(event[i]);
  cu.cuMemFree(at);
  return ok;
}
