/* cuda_host.c - the arena on the host and the copies between it and the GPU.
 *
 * The arena is one anonymous mapping whose pages all threads make, huge ones where the system has
 * them, and which is then pinned at once: pages that are there are pinned ten times as fast as the
 * driver makes its own. Each direction has a stream: a copy waits by an event for the commands
 * before it, the commands behind a wait for the event of the copy. In a capture these become the
 * edges of the graph, with one node a copy; both streams are joined again at its end.
 *
 * Without copies (COPIES_NEVER) what would come from the host comes from a small buffer on the GPU,
 * which takes a fiftieth of the time: on zeros or NaN the products would draw less power and run
 * faster than they do. */
#include <stdlib.h>

#include "cuda_parts.h"
#include "host_memory.h"

enum { FILLER_BYTES = 16 << 20 };

/* ---- the arena ---- */

bool cuda_host_room(const Program *p, Fail *f) {
  HostLimits limits = host_limits("");
  return host_room(&limits, round_up(p->host_bytes, 4096), "the plan pins",
                   "plan with a smaller --host-ram", f);
}

static bool pin(Device *d, Fail *f) {
  CUresult r = cu.cuMemHostRegister(d->host, (size_t)round_up(d->p->host_bytes, 4096), 0);
  d->pinned = r == CU_SUCCESS;
  if (d->pinned) return true;
  HostLimits l = host_limits("");
  return cuda_ok(r, f,
                 "pinning %s of host memory failed; limits in force: %s; raise them or plan with a "
                 "smaller --host-ram",
                 format_bytes(d->memory, d->p->host_bytes), host_limits_text(d->memory, &l));
}

static bool open_streams(Device *d, Fail *f) {
  for (int way = 0; way < 2; way++)
    if (!cuda_ok(cu.cuStreamCreate(&d->copies[way], CU_STREAM_NONBLOCKING), f, "making a stream"))
      return false;
  return cuda_ok(cu.cuEventCreate(&d->fork, CU_EVENT_NO_TIMING), f, "making an event");
}

/* Numbers between 2^-7 and 2^-6 as bf16 and as f32, so that nothing overflows and square roots
 * exist. */
static bool open_filler(Device *d, Fail *f) {
  uint16_t *x = malloc(FILLER_BYTES);
  if (!x) return fail_set(f, EXIT_DEVICE, "no host memory for numbers");
  uint32_t random = 1;
  for (int i = 0; i < FILLER_BYTES / 2; i++) {
    random = random * 1664525u + 1013904223u;
    x[i] = (uint16_t)(0x3c00u | random >> 25);
  }
  bool ok = cuda_ok(cu.cuMemAlloc(&d->filler, FILLER_BYTES), f, "allocating 16 MiB") &&
            cuda_ok(cu.cuMemcpyHtoD(d->filler, x, FILLER_BYTES), f, "writing numbers");
  free(x);
  return ok;
}

bool cuda_host_open(Device *d, Fail *f) {
  if (!d->p->host_bytes) return true;
  d->host = host_map(d->p->host_bytes, true, f);
  return d->host && pin(d, f) && open_streams(d, f) &&
         (d->options.copies != COPIES_NEVER || open_filler(d, f));
}

void cuda_host_close(Device *d) {
  for (int way = 0; way < 2; way++)
    if (d->copies[way]) cu.cuStreamDestroy(d->copies[way]);
  if (d->fork) cu.cuEventDestroy(d->fork);
  if (d->filler) cu.cuMemFree(d->filler);
  if (d->pinned) cu.cuMemHostUnregister(d->host);
  host_unmap(d->host, d->p->host_bytes);
}

/* ---- copies ---- */

static bool fill_instead(Device *d, const Cmd *c, CUstream stream, Fail *f) {
  const Copy *y = &c->copy;
  for (int64_t at = 0; !y->to_host && at < y->bytes; at += FILLER_BYTES) {
    size_t n = (size_t)(y->bytes - at < FILLER_BYTES ? y->bytes - at : FILLER_BYTES);
    if (!cuda_ok(cu.cuMemcpyDtoDAsync(device_at(d, y->device_offset + at), d->filler, n, stream), f,
                 "filling %s (%s)", c->name, c->where))
      return false;
  }
  return true;
}

static bool transfer(Device *d, const Cmd *c, CUstream stream, Fail *f) {
  const Copy *y = &c->copy;
  if (d->options.copies == COPIES_NEVER) return fill_instead(d, c, stream, f);
  char *host = d->host + y->host_offset;
  CUdeviceptr device = device_at(d, y->device_offset);
  CUresult r = y->to_host ? cu.cuMemcpyDtoHAsync(host, device, (size_t)y->bytes, stream)
                          : cu.cuMemcpyHtoDAsync(device, host, (size_t)y->bytes, stream);
  return cuda_ok(r, f, "copying %s (%s) %s the host", c->name, c->where,
                 y->to_host ? "to" : "from");
}

static bool mark(CUevent e, CUstream s, Fail *f) {
  return !e || cuda_ok(cu.cuEventRecordWithFlags(e, s, CU_EVENT_RECORD_EXTERNAL), f,
                       "recording an event");
}

bool cuda_copy_begin(Device *d, int program, int k, const CUevent *times, Fail *f) {
  const Cmd *c = &d->p->programs[program].cmds[k];
  CUstream stream = d->copies[c->copy.to_host];
  return cuda_ok(cu.cuEventRecord(d->fork, d->stream), f, "recording an event") &&
         cuda_ok(cu.cuStreamWaitEvent(stream, d->fork, 0), f, "ordering a copy") &&
         (!times || mark(times[0], stream, f)) && transfer(d, c, stream, f) &&
         (!times || mark(times[1], stream, f)) &&
         cuda_ok(cu.cuEventRecord(d->cmds[program][k].done, stream), f, "recording an event");
}

static bool await(Device *d, int program, int copy, Fail *f) {
  return cuda_ok(cu.cuStreamWaitEvent(d->stream, d->cmds[program][copy].done, 0), f,
                 "waiting for a copy");
}

bool cuda_copy_wait(Device *d, int program, int k, Fail *f) {
  return await(d, program, d->p->programs[program].cmds[k].copy.awaited, f);
}

bool cuda_copies_join(Device *d, int program, Fail *f) {
  const ProgramCode *code = &d->p->programs[program];
  int last[2] = {-1, -1};
  for (int k = 0; k < code->ncmds; k++)
    if (code->cmds[k].kind == CMD_COPY) last[code->cmds[k].copy.to_host] = k;
  for (int way = 0; way < 2; way++)
    if (last[way] >= 0 && !await(d, program, last[way], f)) return false;
  return true;
}

bool cuda_copy_now(Device *d, int program, int k, Fail *f) {
  const Cmd *c = &d->p->programs[program].cmds[k];
  return transfer(d, c, d->stream, f) &&
         cuda_ok(cu.cuStreamSynchronize(d->stream), f, "copying %s (%s)", c->name, c->where);
}

bool cuda_copy_poison(Device *d, int program, int k, Fail *f) {
  const Copy *y = &d->p->programs[program].cmds[k].copy;
  if (y->to_host)
    host_fill(d->host + y->host_offset, 0xff, y->bytes);
  else
    return cuda_ok(
        cu.cuMemsetD8Async(device_at(d, y->device_offset), 0xff, (size_t)y->bytes, d->stream), f,
        "poisoning what a copy writes");
  return true;
}
