/* profile.c - records one step and writes it as a Chrome trace (see profile.h). Input: times of
 * commands and copies from the device, deaths of buffers from the program. Output: process 1 with
 * the threads compute, batches, and the two directions of the program's copies, and the counter of
 * bytes alive in the arena. Times are microseconds on the host's clock, from the first event. */
#include "profile.h"

#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "metrics.h"

enum { COMPUTE = 1, BATCHES, TO_DEVICE, TO_HOST };

struct Profile {
  Arena *arena;
  const Program *program;
  const char *path;
  json_t *events;
  double zero;     /* host clock of the first event; 0 = none yet */
  int *runs;       /* of each program so far */
  int64_t **alive; /* per program and command: bytes; NULL until its first run */
};

Profile *profile_open(const char *path, Replay *r, const ProgramPhase *phase, Fail *f) {
  const Program *p = r->program;
  if (!r->api->time(r->device, phase->micro, NULL, NULL, f) ||
      (phase->first >= 0 && !r->api->time(r->device, phase->first, NULL, NULL, f)) ||
      (phase->update >= 0 && !r->api->time(r->device, phase->update, NULL, NULL, f)))
    return NULL;
  Arena *a = arena_new();
  Profile *x = arena_new_of(a, Profile);
  *x = (Profile){
      .arena = a, .program = p, .path = arena_printf(a, "%s", path), .events = json_array()};
  x->runs = arena_array(a, int, p->nprograms + 1);
  x->alive = arena_array(a, int64_t *, p->nprograms + 1);
  return x;
}

static double since_zero(Profile *x, double clock) {
  if (x->zero == 0) x->zero = clock;
  return 1e6 * (clock - x->zero);
}

/* ---- bytes alive ---- */

static int64_t extent(const Tensor *t) {
  int64_t last = 0;
  for (int k = 0; k < t->rank; k++) last += (t->dim[k] - 1) * t->stride[k];
  return (last + 1) * dtype_bytes(t->dtype);
}

static bool touches(const Cmd *c, int64_t offset, int64_t bytes) {
  if (c->kind == CMD_COPY && c->copy.device_offset >= offset &&
      c->copy.device_offset < offset + bytes)
    return true;
  for (int i = 0; i < c->ntensors; i++)
    if (c->tensors[i].offset >= offset && c->tensors[i].offset < offset + bytes) return true;
  return c->workspace_bytes > 0 && c->workspace_offset >= offset &&
         c->workspace_offset < offset + bytes;
}

/* A buffer is born with the first command that touches it after the last death in its place. */
static int birth_of(const ProgramCode *code, int death) {
  int64_t offset = code->deaths[death].offset, end = offset + code->deaths[death].bytes;
  int from = 0, last = code->deaths[death].cmd;
  for (int d = 0; d < death; d++)
    if (code->deaths[d].cmd < last && code->deaths[d].offset < end &&
        code->deaths[d].offset + code->deaths[d].bytes > offset && code->deaths[d].cmd + 1 > from)
      from = code->deaths[d].cmd + 1;
  while (from < last && !touches(&code->cmds[from], offset, end - offset)) from++;
  return from;
}

/* Variables and inputs are always alive. */
static int64_t *alive_of(Profile *x, int program) {
  const ProgramCode *code = &x->program->programs[program];
  if (x->alive[program]) return x->alive[program];
  int64_t *at = x->alive[program] = arena_array(x->arena, int64_t, code->ncmds + 1);
  int64_t always = x->program->persistent_bytes;
  for (int i = 0; i < code->ninputs; i++) always += extent(&code->inputs[i].at);
  for (int c = 0; c < code->ncmds; c++) at[c] = always;
  for (int d = 0; d < code->ndeaths; d++)
    for (int c = birth_of(code, d); c <= code->deaths[d].cmd; c++) at[c] += code->deaths[d].bytes;
  return at;
}

/* ---- events ---- */

static void add(Profile *x, json_t *event) {
  json_array_append_new(x->events, event);
}

static const char *kind_text(CmdKind k) {
  static const char *const text[] = {"loop",    "gemm", "attention", "attention backward",
                                     "scatter", "fill", "copy",      "wait"};
  return text[k];
}

/* "h.3" of "h.3.attn.q"; the first word of a name without a number; "" of a name of one word. */
static const char *layer_of(Arena *a, const char *name) {
  const char *first = strchr(name, '.');
  for (const char *p = first; p; p = strchr(p + 1, '.')) {
    size_t digits = strspn(p + 1, "0123456789");
    if (digits && (p[1 + digits] == '.' || !p[1 + digits]))
      return arena_printf(a, "%.*s", (int)(p + 1 + digits - name), name);
  }
  return first ? arena_printf(a, "%.*s", (int)(first - name), name) : "";
}

static const char *kernel_of(const Program *p, const Cmd *c) {
  if (c->kind != CMD_KERNEL && !c->nlaunches) return "";
  return p->kernel_names[c->nlaunches ? c->launches[0].kernel : c->kernel];
}

static const char *title_of(Arena *a, const Cmd *c) {
  if (!*c->name) return kind_text(c->kind);
  return c->kind == CMD_WAIT ? arena_printf(a, "wait for %s", c->name) : c->name;
}

static void command_event(Profile *x, int program, int i, double ts, double duration) {
  const ProgramCode *code = &x->program->programs[program];
  const Cmd *c = &code->cmds[i];
  json_t *args =
      json_pack("{s:s,s:i,s:s,s:s,s:s}", "program", code->name, "command", i, "layer",
                layer_of(x->arena, c->name), "kernel", kernel_of(x->program, c), "line", c->where);
  add(x, json_pack("{s:s,s:s,s:s,s:f,s:f,s:i,s:i,s:o}", "name", title_of(x->arena, c), "cat",
                   kind_text(c->kind), "ph", "X", "ts", ts, "dur", duration, "pid", 1, "tid",
                   COMPUTE, "args", args));
}

/* On the row of its direction: when it ran, and how fast. The command that begins it takes no time.
 */
static void copy_event(Profile *x, int program, int i, double ts, double duration) {
  const ProgramCode *code = &x->program->programs[program];
  const Cmd *c = &code->cmds[i];
  double gbs = duration > 0 ? 1e-3 * (double)c->copy.bytes / duration : 0;
  json_t *args = json_pack("{s:s,s:i,s:s,s:I,s:f,s:s}", "program", code->name, "command", i,
                           "layer", layer_of(x->arena, c->name), "bytes", (json_int_t)c->copy.bytes,
                           "GB/s", gbs, "line", c->where);
  add(x, json_pack("{s:s,s:s,s:s,s:f,s:f,s:i,s:i,s:o}", "name", c->name, "cat", "copy", "ph", "X",
                   "ts", ts, "dur", duration, "pid", 1, "tid",
                   c->copy.to_host ? TO_HOST : TO_DEVICE, "args", args));
}

static void alive_event(Profile *x, int64_t bytes, double ts) {
  add(x, json_pack("{s:s,s:s,s:f,s:i,s:{s:I}}", "name", "bytes alive", "ph", "C", "ts", ts, "pid",
                   1, "args", "arena", (json_int_t)bytes));
}

bool profile_run(Profile *x, Replay *r, int program, Fail *f) {
  const ProgramCode *code = &x->program->programs[program];
  double *start = arena_array(x->arena, double, code->ncmds + 1),
         *copy = arena_array(x->arena, double, 2 * code->ncmds + 1);
  if (!r->api->wait(r->device, f)) return false;
  double begun = since_zero(x, clock_seconds());
  if (!r->api->time(r->device, program, start, copy, f)) return false;
  const int64_t *alive = alive_of(x, program);
  for (int i = 0; i < code->ncmds; i++) {
    alive_event(x, alive[i], begun + 1e6 * start[i]);
    if (code->cmds[i].kind == CMD_COPY)
      copy_event(x, program, i, begun + 1e6 * copy[2 * i], 1e6 * (copy[2 * i + 1] - copy[2 * i]));
    else
      command_event(x, program, i, begun + 1e6 * start[i], 1e6 * (start[i + 1] - start[i]));
  }
  double end = begun + 1e6 * start[code->ncmds];
  alive_event(x, x->program->persistent_bytes, end);
  add(x, json_pack("{s:o,s:s,s:s,s:f,s:f,s:i,s:i}", "name",
                   json_sprintf("%s %d", code->name, ++x->runs[program]), "cat", "program", "ph",
                   "X", "ts", begun, "dur", end - begun, "pid", 1, "tid", COMPUTE));
  return true;
}

double profile_begin(Profile *x, Replay *r, Fail *f) {
  (void)x;
  return r->api->wait(r->device, f) ? clock_seconds() : 0;
}

void profile_copy(Profile *x, const char *name, int64_t bytes, double begun) {
  double end = clock_seconds(), ts = since_zero(x, begun);
  json_t *args = bytes > 0 ? json_pack("{s:I}", "bytes", (json_int_t)bytes) : json_object();
  add(x, json_pack("{s:s,s:s,s:s,s:f,s:f,s:i,s:i,s:o}", "name", name, "cat", "copy", "ph", "X",
                   "ts", ts, "dur", 1e6 * (end - begun), "pid", 1, "tid", BATCHES, "args", args));
}

/* ---- the file ---- */

static void name_thread(Profile *x, int tid, const char *name) {
  add(x, json_pack("{s:s,s:s,s:i,s:i,s:{s:s}}", "name", "thread_name", "ph", "M", "pid", 1, "tid",
                   tid, "args", "name", name));
}

bool profile_close(Profile *x, Fail *f) {
  if (!x) return true;
  const Program *p = x->program;
  char id[16];
  snprintf(id, sizeof id, "%08x", (unsigned)(p->plan_id >> 32));
  add(x, json_pack(
             "{s:s,s:s,s:i,s:{s:o}}", "name", "process_name", "ph", "M", "pid", 1, "args", "name",
             json_sprintf("%s on %s", p->model ? p->model : "model", p->cuda ? "cuda" : "cpu")));
  name_thread(x, COMPUTE, "compute");
  name_thread(x, BATCHES, "batches and metrics");
  if (p->host_bytes)
    name_thread(x, TO_DEVICE, "copies to the device"),
        name_thread(x, TO_HOST, "copies to the host");
  json_t *o = json_pack("{s:s,s:{s:s,s:I,s:I},s:O}", "displayTimeUnit", "ms", "otherData", "plan",
                        id, "peak_bytes", (json_int_t)p->peak_bytes, "host_bytes",
                        (json_int_t)p->host_bytes, "traceEvents", x->events);
  char *text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(12));
  bool ok = text && write_file_atomic(x->path, text, strlen(text));
  if (!ok) fail_set(f, EXIT_IO, "cannot write the profile %s", x->path);
  free(text);
  json_decref(o);
  json_decref(x->events);
  arena_free(x->arena);
  return ok;
}
