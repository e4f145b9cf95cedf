/* cpu_device.c - the CPU as a device: executes a program's commands in order, at the plan's
 * offsets, and the copies between its two spaces at either end of the time that the plan gives
 * them.
 *
 * Each arena is one mapping of whole pages. Emitted kernels are a shared object: an image of the
 * program that was compiled for this CPU, or the source compiled here. f32 scratch of emulated
 * products lies outside the arena, is allocated once, and is as large as the largest command needs.
 */
#include <dlfcn.h>
#include <errno.h>
#include <omp.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "copies.h"
#include "cpu_cc.h"
#include "cpu_parts.h"
#include "host_memory.h"
#include "metrics.h"
#include "replay.h"

enum { PAGE = 4096 };
typedef void CpuKernel(void *const *arg);

struct Device {
  Arena *memory;
  const Program *p;
  bool poison;
  CopyTimes copies;
  int threads;
  char *arena, *host; /* the two spaces of the plan: copies between them are real */
  float *scratch;
  void *library;
  int library_fd; /* open as long as the library is: dlopen knows libraries by their path, which has
                     this number */
  CpuKernel **kernels;
  void ***args; /* per program: the pointers of all its kernel commands, one after another */
  int **first;  /* per program and command: index of its first pointer */
};

/* ---- threads ---- */

static void *idle_team(void *ready) {
  int n = 0;
#pragma omp parallel num_threads(omp_get_num_procs()) reduction(+ : n)
  n++;
  sem_post(ready);
  while (n) pause(); /* the team is counted as long as its first thread lives */
  return NULL;
}

/* GNU OpenMP lets waiting threads spin for milliseconds, unless it knows of more threads than there
 * are processors. Where anything else runs on the machine, that spinning takes the time of the
 * thread that it waits for, and a step may take ten times as long. A second team that sleeps for
 * the life of the process keeps the spinning down to microseconds. */
static void shorten_waits(void) {
  pthread_t t;
  sem_t ready;
  if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT")) return; /* the user has decided */
  sem_init(&ready, 0, 0);
  if (!pthread_create(&t, NULL, idle_team, &ready)) {
    pthread_detach(t);
    while (sem_wait(&ready)) continue;
  }
  sem_destroy(&ready);
}

/* ---- kernels ---- */

static const void *fitting_image(const Program *p, size_t *size) {
  for (int i = 0; i < p->nimages; i++)
    if (!strcmp(p->images[i].arch, cpu_arch())) {
      *size = p->images[i].size;
      return p->images[i].data;
    }
  return NULL;
}

/* dlopen wants a path: an anonymous file has one while it is open. The number of a closed file
 * comes again, and dlopen takes an equal name for the library that it has already: slashes make
 * each name its own. */
static bool load_image(Device *d, const void *image, size_t size, Fail *f) {
  int fd = d->library_fd = memfd_create("mtc-kernels", MFD_CLOEXEC);
  if (fd < 0) return fail_set(f, EXIT_DEVICE, "no memory for the kernels: %s", strerror(errno));
  const char *at = image;
  while (size) {
    ssize_t n = write(fd, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return fail_set(f, EXIT_DEVICE, "no memory for the kernels: %s", strerror(errno));
    at += n;
    size -= (size_t)n;
  }
  static int opened;
  int slashes = __atomic_add_fetch(&opened, 1, __ATOMIC_RELAXED) % 512;
  char *path = arena_printf(d->memory, "/proc/self/fd%*s%d", slashes + 1, "/", fd);
  memset(path + sizeof "/proc/self/fd" - 1, '/', (size_t)slashes + 1);
  d->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!d->library)
    return fail_set(f, EXIT_DEVICE, "the compiled kernels do not load: %s", dlerror());
  return true;
}

static bool open_kernels(Device *d, Fail *f) {
  const Program *p = d->p;
  if (!p->nkernels) return true;
  size_t size;
  const void *image = fitting_image(p, &size);
  if (!image && !p->kernel_source)
    return fail_set(f, EXIT_DEVICE, "%s has no kernels for this CPU (%s) and no source of them",
                    p->source ? p->source : "the program", cpu_arch());
  if (!image && !cpu_compile(d->memory, p->kernel_source, &image, &size, NULL, f)) return false;
  if (!load_image(d, image, size, f)) return false;
  d->kernels = arena_array(d->memory, CpuKernel *, p->nkernels);
  for (int i = 0; i < p->nkernels; i++) {
    d->kernels[i] = (CpuKernel *)dlsym(d->library, p->kernel_names[i]);
    if (!d->kernels[i])
      return fail_set(f, EXIT_DEVICE, "the compiled kernels lack `%s`", p->kernel_names[i]);
  }
  return true;
}

/* ---- arena, pointers, scratch ---- */

static bool open_arenas(Device *d, Fail *f) {
  int64_t host = d->p->host_bytes, all = round_up(d->p->arena_bytes, PAGE) + round_up(host, PAGE);
  HostLimits limits = host_limits("");
  if (!host_room(&limits, all, host ? "both arenas take" : "the arena takes",
                 host ? "plan for less with --vram or --host-ram" : "plan for less with --vram", f))
    return false;
  d->arena = host_map(d->p->arena_bytes, false, f);
  if (!d->arena) return false;
  if (host) d->host = host_map(host, true, f);
  return !host || d->host;
}

static void open_pointers(Device *d) {
  const Program *p = d->p;
  d->args = arena_array(d->memory, void **, p->nprograms + 1);
  d->first = arena_array(d->memory, int *, p->nprograms + 1);
  for (int i = 0; i < p->nprograms; i++) {
    const ProgramCode *code = &p->programs[i];
    int n = 0;
    d->first[i] = arena_array(d->memory, int, code->ncmds + 1);
    for (int c = 0; c < code->ncmds; c++) {
      d->first[i][c] = n;
      n += code->cmds[c].ntensors + 1;
    }
    d->args[i] = arena_array(d->memory, void *, n + 1);
    for (int c = 0; c < code->ncmds; c++) {
      const Cmd *cmd = &code->cmds[c];
      void **to = d->args[i] + d->first[i][c];
      for (int t = 0; t < cmd->ntensors; t++) *to++ = d->arena + cmd->tensors[t].offset;
      *to = d->arena + cmd->workspace_offset;
    }
  }
}

static int64_t scratch_of(const Cmd *c, int threads) {
  switch (c->kind) {
    case CMD_GEMM:
      return cpu_gemm_scratch(c, threads);
    case CMD_ATTENTION:
    case CMD_ATTENTION_BWD:
      return cpu_attention_scratch(c, threads);
    case CMD_SCATTER:
      return cpu_scatter_scratch(c, threads);
    default:
      return 0;
  }
}

static bool open_scratch(Device *d, Fail *f) {
  int64_t floats = 16;
  for (int i = 0; i < d->p->nprograms; i++)
    for (int c = 0; c < d->p->programs[i].ncmds; c++) {
      int64_t n = scratch_of(&d->p->programs[i].cmds[c], d->threads);
      if (n > floats) floats = n;
    }
  d->scratch = aligned_alloc(64, (size_t)round_up(floats * (int64_t)sizeof(float), 64));
  if (d->scratch) return true;
  return fail_set(f, EXIT_DEVICE, "cannot get %lld bytes of scratch memory", (long long)floats * 4);
}

static void cpu_close(Device *d) {
  if (!d) return;
  host_unmap(d->arena, d->p->arena_bytes);
  host_unmap(d->host, d->p->host_bytes);
  free(d->scratch);
  if (d->library) dlclose(d->library);
  if (d->library_fd >= 0) close(d->library_fd);
  arena_free(d->memory);
}

static Device *cpu_open(const Program *p, const DeviceOptions *o, Fail *f) {
  Arena *a = arena_new();
  Device *d = arena_new_of(a, Device);
  d->memory = a;
  d->p = p;
  d->poison = o->poison;
  d->copies = o->copies;
  d->library_fd = -1;
  d->threads = o->threads > 0              ? o->threads
               : getenv("OMP_NUM_THREADS") ? omp_get_max_threads()
                                           : omp_get_num_procs();
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (d->threads > 1) pthread_once(&once, shorten_waits);
  if (open_arenas(d, f) && open_scratch(d, f) && open_kernels(d, f)) {
    open_pointers(d);
    return d;
  }
  cpu_close(d);
  return NULL;
}

/* ---- running ---- */

static int64_t extent_bytes(const Tensor *t) {
  int64_t last = 0;
  for (int k = 0; k < t->rank; k++) last += (t->dim[k] - 1) * t->stride[k];
  return (last + 1) * dtype_bytes(t->dtype);
}

static int by_offset(const void *a, const void *b) {
  int64_t x = (*(const Tensor *const *)a)->offset, y = (*(const Tensor *const *)b)->offset;
  return (x > y) - (x < y);
}

/* Everything transient but the inputs, which the host has just written. */
static void poison_start(const Device *d, const ProgramCode *code) {
  Arena *a = arena_new();
  const Tensor **in = arena_array(a, const Tensor *, code->ninputs + 1);
  for (int i = 0; i < code->ninputs; i++) in[i] = &code->inputs[i].at;
  qsort(in, (size_t)code->ninputs, sizeof *in, by_offset);
  int64_t at = d->p->persistent_bytes;
  for (int i = 0; i < code->ninputs; i++) {
    if (in[i]->offset > at) memset(d->arena + at, 0xff, (size_t)(in[i]->offset - at));
    int64_t end = in[i]->offset + extent_bytes(in[i]);
    if (end > at) at = end;
  }
  if (d->p->arena_bytes > at) memset(d->arena + at, 0xff, (size_t)(d->p->arena_bytes - at));
  arena_free(a);
}

static void fill_zero(const CpuRun *r, const Tensor *t) {
  memset(cpu_at(r, t), 0, (size_t)extent_bytes(t));
}

static void run_command(const Device *d, const CpuRun *r, int program, int i) {
  const Cmd *c = &d->p->programs[program].cmds[i];
  switch (c->kind) {
    case CMD_KERNEL:
      d->kernels[c->kernel](d->args[program] + d->first[program][i]);
      break;
    case CMD_GEMM:
      cpu_gemm(r, c);
      break;
    case CMD_ATTENTION:
      cpu_attention(r, c);
      break;
    case CMD_ATTENTION_BWD:
      cpu_attention_bwd(r, c);
      break;
    case CMD_SCATTER:
      cpu_scatter(r, c);
      break;
    case CMD_FILL:
      fill_zero(r, &c->tensors[0]);
      break;
    case CMD_COPY: /* the caller's: see copies.h */
    case CMD_WAIT:
      break;
  }
}

/* ---- copies ---- */

typedef struct {
  Device *d;
  const ProgramCode *code;
  double begin, *time; /* as DeviceApi.time's copy, or NULL */
} CpuCopies;

static bool perform_copy(void *context, int i, Fail *f) {
  (void)f;
  const CpuCopies *x = context;
  const Copy *y = &x->code->cmds[i].copy;
  char *device = x->d->arena + y->device_offset, *host = x->d->host + y->host_offset;
  if (x->time) x->time[2 * i] = clock_seconds() - x->begin;
  host_copy(y->to_host ? host : device, y->to_host ? device : host, y->bytes);
  if (x->time) x->time[2 * i + 1] = clock_seconds() - x->begin;
  return true;
}

static CopyRun copy_run(const Device *d, CpuCopies *x) {
  return (CopyRun){.code = x->code, .times = d->copies, .perform = perform_copy, .context = x};
}

/* Nobody may read what a copy writes before it is awaited. */
static void poison_target(const Device *d, const Cmd *c) {
  if (d->copies == COPIES_LATE && c->kind == CMD_COPY)
    host_fill(c->copy.to_host ? d->host + c->copy.host_offset : d->arena + c->copy.device_offset,
              0xff, c->copy.bytes);
}

static bool cpu_run(Device *d, int program, Fail *f) {
  const ProgramCode *code = &d->p->programs[program];
  CpuRun r = {.arena = d->arena, .scratch = d->scratch, .threads = d->threads};
  CpuCopies copies = {.d = d, .code = code};
  CopyRun run = copy_run(d, &copies);
  omp_set_num_threads(d->threads);
  if (d->poison) poison_start(d, code);
  int death = 0;
  for (int i = 0; i < code->ncmds; i++) {
    if (d->poison) poison_target(d, &code->cmds[i]);
    run_command(d, &r, program, i);
    if (!copies_at(&run, i, f) || (i == code->ncmds - 1 && !copies_end(&run, f))) return false;
    for (; d->poison && death < code->ndeaths && code->deaths[death].cmd == i; death++)
      memset(d->arena + code->deaths[death].offset, 0xff, (size_t)code->deaths[death].bytes);
  }
  return true;
}

static bool cpu_watch(Device *d, int program, CommandSeen *seen, void *context, Fail *f) {
  const ProgramCode *code = &d->p->programs[program];
  CpuRun r = {.arena = d->arena, .scratch = d->scratch, .threads = d->threads};
  CpuCopies copies = {.d = d, .code = code};
  CopyRun run = copy_run(d, &copies);
  omp_set_num_threads(d->threads);
  bool enough = false;
  for (int i = 0; i < code->ncmds && !enough; i++) {
    run_command(d, &r, program, i);
    if (!copies_at(&run, i, f) || !seen(context, i, &enough, f)) return false;
  }
  return copies_end(&run, f);
}

static bool cpu_time(Device *d, int program, double *start, double *copy, Fail *f) {
  if (!start) return true;
  const ProgramCode *code = &d->p->programs[program];
  CpuRun r = {.arena = d->arena, .scratch = d->scratch, .threads = d->threads};
  omp_set_num_threads(d->threads);
  double begin = clock_seconds();
  CpuCopies copies = {d, code, begin, copy};
  CopyRun run = copy_run(d, &copies);
  for (int i = 0; i < code->ncmds; i++) {
    start[i] = clock_seconds() - begin;
    run_command(d, &r, program, i);
    if (!copies_at(&run, i, f)) return false;
  }
  if (!copies_end(&run, f)) return false;
  start[code->ncmds] = clock_seconds() - begin;
  return true;
}

/* The best of a few copies by all threads between buffers that no cache holds. */
static bool cpu_copy_rate(Device *d, double *rate, Fail *f) {
  (void)f;
  enum { BYTES = 128 << 20, TIMES = 6 };
  char *from = malloc(BYTES), *to = malloc(BYTES);
  *rate = 0;
  for (int i = 0; from && to && i < TIMES; i++) {
    if (i == 0) memset(from, 1, BYTES); /* pages that were never written are one page of zeros */
    double begin = clock_seconds();
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (int part = 0; part < d->threads; part++) {
      size_t first = (size_t)BYTES * (size_t)part / (size_t)d->threads;
      size_t end = (size_t)BYTES * ((size_t)part + 1) / (size_t)d->threads;
      memcpy(to + first, from + first, end - first);
    }
    double now = 2.0 * BYTES / (clock_seconds() - begin);
    if (now > *rate) *rate = now;
  }
  free(from);
  free(to);
  return true;
}

static bool cpu_wait(Device *d, Fail *f) {
  (void)d;
  (void)f;
  return true;
}

static bool cpu_read(Device *d, bool host, int64_t offset, void *to, int64_t bytes, Fail *f) {
  (void)f;
  memcpy(to, (host ? d->host : d->arena) + offset, (size_t)bytes);
  return true;
}

static bool cpu_write(Device *d, bool host, int64_t offset, const void *from, int64_t bytes,
                      Fail *f) {
  (void)f;
  memcpy((host ? d->host : d->arena) + offset, from, (size_t)bytes);
  return true;
}

static void *cpu_reach(Device *d, bool host) {
  return host ? d->host : d->arena;
}

/* Pages of a mapping that are in memory. */
static int64_t resident_bytes(char *at, int64_t size) {
  size_t pages = (size_t)ceil_div(size, PAGE);
  unsigned char *in = malloc(pages + 1);
  int64_t bytes = 0;
  if (in && at && !mincore(at, pages * PAGE, in))
    for (size_t i = 0; i < pages; i++) bytes += in[i] & 1 ? PAGE : 0;
  free(in);
  return bytes;
}

static int64_t cpu_measured(Device *d) {
  return resident_bytes(d->arena, d->p->arena_bytes > 0 ? d->p->arena_bytes : 1);
}

static int64_t cpu_measured_host(Device *d) {
  return d->host ? resident_bytes(d->host, d->p->host_bytes) : 0;
}

const DeviceApi device_cpu = {
    .name = "cpu",
    .open = cpu_open,
    .run = cpu_run,
    .wait = cpu_wait,
    .read = cpu_read,
    .write = cpu_write,
    .reach = cpu_reach,
    .measured = cpu_measured,
    .measured_host = cpu_measured_host,
    .time = cpu_time,
    .watch = cpu_watch,
    .copy_rate = cpu_copy_rate,
    .close = cpu_close,
};
