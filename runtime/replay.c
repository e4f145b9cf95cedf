/* replay.c - choice of the device, and whole tensors to and from it: see replay.h. */
#include "replay.h"

#include <stdlib.h>
#include <string.h>

#include "convert.h"

const DeviceApi *device_for(const Program *p, Fail *f) {
  (void)f;
  return p->cuda ? &device_cuda : &device_cpu;
}

bool replay_open(Replay *r, const Program *p, const DeviceOptions *o, Fail *f) {
  *r = (Replay){.program = p, .api = device_for(p, f)};
  if (!r->api) return false;
  r->device = r->api->open(p, o, f);
  return r->device != NULL;
}

void replay_close(Replay *r) {
  if (r->device) r->api->close(r->device);
  r->device = NULL;
}

bool replay_run(Replay *r, int program, Fail *f) {
  return r->api->run(r->device, program, f);
}

/* A tensor with gaps goes through a copy of all the memory that it spans. */
static bool spread(Replay *r, const Tensor *t, const void *from, void *to, Fail *f) {
  int64_t bytes = tensor_extent(t) * dtype_bytes(t->dtype);
  char *span = malloc((size_t)bytes);
  if (!span)
    return fail_set(f, EXIT_DEVICE, "no memory for a tensor of %lld bytes", (long long)bytes);
  bool ok = r->api->read(r->device, t->host, t->offset, span, bytes, f);
  if (ok && to) tensor_pack(t, span, to);
  if (ok && from) {
    tensor_unpack(t, span, from);
    ok = r->api->write(r->device, t->host, t->offset, span, bytes, f);
  }
  free(span);
  return ok;
}

bool replay_read(Replay *r, const Tensor *t, void *packed, Fail *f) {
  if (!r->api->wait(r->device, f)) return false;
  if (!tensor_contiguous(t)) return spread(r, t, NULL, packed, f);
  return r->api->read(r->device, t->host, t->offset, packed,
                      tensor_count(t) * dtype_bytes(t->dtype), f);
}

bool replay_write(Replay *r, const Tensor *t, const void *packed, Fail *f) {
  if (!tensor_contiguous(t)) return r->api->wait(r->device, f) && spread(r, t, packed, NULL, f);
  return replay_write_part(r, t, 0, packed, tensor_count(t), f);
}

bool replay_write_part(Replay *r, const Tensor *t, int64_t first, const void *packed, int64_t n,
                       Fail *f) {
  int64_t size = dtype_bytes(t->dtype);
  return r->api->write(r->device, t->host, t->offset + first * size, packed, n * size, f);
}

bool replay_reach(Replay *r, const Tensor *t, void **at, Fail *f) {
  char *arena = tensor_contiguous(t) ? r->api->reach(r->device, t->host) : NULL;
  *at = arena ? arena + t->offset : NULL;
  return !arena || r->api->wait(r->device, f);
}

const Tensor *program_input(const Program *p, int program, const char *name) {
  const ProgramCode *code = &p->programs[program];
  for (int i = 0; i < code->ninputs; i++)
    if (!strcmp(code->inputs[i].name, name)) return &code->inputs[i].at;
  return NULL;
}

const Tensor *program_result(const Program *p, int program, const char *name) {
  const ProgramCode *code = &p->programs[program];
  for (int i = 0; i < code->nresults; i++)
    if (!strcmp(code->results[i].name, name)) return &code->results[i].at;
  return NULL;
}

int program_var(const Program *p, const char *path) {
  for (int i = 0; i < p->nvars; i++)
    if (!strcmp(p->vars[i].path, path)) return i;
  return -1;
}
