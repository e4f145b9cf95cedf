/* replay.c - a program on its device: opening, running, tensors by name. See replay.h. */
#include "replay.h"
#include <stdlib.h>
#include <string.h>
#include "convert.h"

extern const DeviceApi device_cuda; /* cuda_device.c */

const DeviceApi *device_for(const Program *p, Fail *f) {
  (void)f;
  return p->cuda ? &device_cuda : &device_cpu;
}

bool replay_open(Replay *r, const Program *p, const DeviceOptions *o, Fail *f) {
  *r = (Replay){.program = p, .api = device_for(p, f)};
  r->device = r->api ? r->api->open(p, o, f) : NULL;
  return r->device != NULL;
}

void replay_close(Replay *r) {
  if (r->api) r->api->close(r->device);
  *r = (Replay){0};
}

bool replay_run(Replay *r, int program, Fail *f) { return r->api->run(r->device, program, f); }

/* Whole tensors whose storage has gaps go through a copy of their extent, gaps included. */
bool replay_read(Replay *r, const Tensor *t, void *packed, Fail *f) {
  int64_t extent = tensor_extent(t) * dtype_bytes(t->dtype);
  if (tensor_contiguous(t)) return r->api->read(r->device, t->offset, packed, extent, f);
  void *copy = malloc((size_t)extent);
  if (!copy) return fail_set(f, EXIT_DEVICE, "no host memory for a copy of %lld bytes", (long long)extent);
  bool ok = r->api->read(r->device, t->offset, copy, extent, f);
  if (ok) tensor_pack(t, copy, packed);
  free(copy);
  return ok;
}

bool replay_write(Replay *r, const Tensor *t, const void *packed, Fail *f) {
  int64_t extent = tensor_extent(t) * dtype_bytes(t->dtype);
  if (tensor_contiguous(t)) return r->api->write(r->device, t->offset, packed, extent, f);
  void *copy = malloc((size_t)extent);
  if (!copy) return fail_set(f, EXIT_DEVICE, "no host memory for a copy of %lld bytes", (long long)extent);
  bool ok = r->api->read(r->device, t->offset, copy, extent, f);
  if (ok) tensor_unpack(t, copy, packed);
  ok = ok && r->api->write(r->device, t->offset, copy, extent, f);
  free(copy);
  return ok;
}

const Tensor *program_input(const Program *p, int program, const char *name) {
  const ProgramCode *c = &p->programs[program];
  for (int i = 0; i < c->ninputs; i++)
    if (!strcmp(c->inputs[i].name, name)) return &c->inputs[i].at;
  return NULL;
}

const Tensor *program_result(const Program *p, int program, const char *name) {
  const ProgramCode *c = &p->programs[program];
  for (int i = 0; i < c->nresults; i++)
    if (!strcmp(c->results[i].name, name)) return &c->results[i].at;
  return NULL;
}

int program_var(const Program *p, const char *path) {
  for (int i = 0; i < p->nvars; i++)
    if (!strcmp(p->vars[i].path, path)) return i;
  return -1;
}
