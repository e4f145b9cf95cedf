/* emulate.h - emitted CUDA programs on the processor, for tests without a GPU: the text is made C++
 * of the host and compiled with the compiler that is there; each thread of a block is a fiber.
 *
 * Input: a Program with kernel_source and kernel_names (cuda_build_text), without attention and
 * products. Output: a DeviceApi over host memory; one device at a time. What the GPU leaves open is
 * drawn from a fixed seed: which thread runs next wherever threads wait for each other.
 * Asynchronous copies arrive as early or as late as they may. Blocks run one after another. A
 * launch fails where threads wait for ever, where a copy is misaligned and where shared memory is
 * written past its end. */
#ifndef EMULATE_H
#define EMULATE_H
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include "runtime/convert.h"
#include "runtime/cuda_parts.h"
#include "../runtime/folder.h"

/* ---- the text as C++ ---- */
/* Appends the operands of an asm statement, "=r"(x) : "f"(y) .. , up to its closing parenthesis as
 * arguments. What has no parenthesis after it is a clobber. Returns the place after the statement's
 * parenthesis. */
static const char *emulate_operands(Str *s, const char *t) {
  for (int n = 0; *t != ')'; t++) {
    if (*t != '"') continue;
    t = strchr(t + 1, '"');
    if (t[1] != '(') continue;
    const char *from = ++t + 1;
    for (int depth = 0; depth += (*t == '(') - (*t == ')'), depth; t++) continue;
    str_addf(s, "%s%.*s", n++ ? ", " : "", (int)(t - from), from);
  }
  return t + 1;
}

/* asm [volatile]("NAME .." : .. : ..) -> ptx_NAME(..); declarations of dynamic shared memory go. */
static const char *emulate_text(Arena *a, const char *t, size_t len) {
  static const char *const starts[] = {"asm(", "asm volatile(", "extern __shared__"};
  Str s = {.arena = a};
  str_add(&s, "#include \"" MTC_SOURCE_DIR "/tests/codegen/emulated_cuda.h\"\n");
  for (const char *end = t + len; t < end;) {
    int kind = 0;
    while (kind < COUNT_OF(starts) && !str_starts(t, starts[kind])) kind++;
    if (kind == COUNT_OF(starts)) {
      str_add_n(&s, t++, 1);
    } else if (kind == 2) {
      t = strchr(t, ';') + 1;
    } else {
      t += strlen(starts[kind]) + 1;
      str_add(&s, "ptx_");
      for (; *t != ' ' && *t != ';' && *t != '"'; t++) str_add_n(&s, *t == '.' ? "_" : t, 1);
      str_add(&s, "(");
      t = emulate_operands(&s, strchr(t, '"') + 1);
      str_add(&s, ")");
    }
  }
  return s.text;
}

/* A function of C for each kernel that takes its arguments from an array. */
static const char *emulate_entries(Arena *a, const Program *p, const int *narguments) {
  Str s = {.arena = a};
  for (int k = 0; k < p->nkernels; k++) {
    str_addf(&s, "extern \"C\" void %s(", p->kernel_names[k]);
    for (int i = 0; i < narguments[k]; i++) str_add(&s, i ? ", void *" : "void *");
    str_addf(&s, ");\nextern \"C\" void call_%s(void *const *a) { %s(", p->kernel_names[k],
             p->kernel_names[k]);
    for (int i = 0; i < narguments[k]; i++) str_addf(&s, "%sa[%d]", i ? ", " : "", i);
    str_add(&s, "); }\n");
  }
  return s.text;
}

static const char *emulate_compiler(void) {
  static const char *const names[] = {"c++", "g++", "clang++"};
  for (int i = 0; i < COUNT_OF(names); i++)
    if (!system(intern_printf("command -v %s >/dev/null", names[i]))) return names[i];
  return NULL;
}

/* One library of all programs of the text, each a file of its own. */
static void *emulate_compile(Arena *a, const Program *p, const int *narguments, Fail *f) {
  static const char mark[] = "// ==== program ";
  const char *dir = folder_new(a), *lib = arena_printf(a, "%s/kernels.so", dir), *why = NULL;
  Str line = {.arena = a};
  str_addf(&line, "%s -std=c++17 -O1 -w -ffp-contract=off -fno-strict-aliasing -shared -fPIC -o %s",
           emulate_compiler(), lib);
  int n = 0;
  for (const char *s = strstr(p->kernel_source, mark), *next; s; s = next) {
    next = strstr(s + 1, mark);
    const char *text = emulate_text(a, s, next ? (size_t)(next - s) : strlen(s));
    str_addf(&line, " %s", folder_file(a, dir, arena_printf(a, "%d.cc", n++), text, strlen(text)));
  }
  const char *entries = emulate_entries(a, p, narguments);
  str_addf(&line, " %s", folder_file(a, dir, "entries.cc", entries, strlen(entries)));
  void *library = NULL;
  if (system(line.text))
    why = "the C++ compiler refuses the text";
  else if (!(library = dlopen(lib, RTLD_NOW | RTLD_LOCAL)))
    why = dlerror();
  if (why) fail_set(f, EXIT_DEVICE, "%s: %s", line.text, why);
  folder_remove(dir);
  return library;
}

/* ---- the threads of a block ---- */
enum {
  EMULATE_THREADS = 1024,
  EMULATE_STACK = 96 << 10,
  EMULATE_SHARED = 228 << 10, /* bytes of an SM */
  EMULATE_GUARD = 1 << 10,    /* bytes past a block's own */
  EMULATE_COPIES = 64,        /* of a thread on their way */
  LANES = 32,
  LANE_BYTES = 8,
  BLOCK_BARRIER = 0, /* 1 .. 15: of the rows of a block; then one a warp */
  WARP_BARRIER = 16,
  NO_BARRIER = -1
};

typedef struct {
  uint32_t to;
  int bytes, group;
  const void *from;
} EmulatedCopy;

typedef struct {
  ucontext_t context;
  bool done;
  int waits_at; /* a barrier */
  int turn;     /* which of the warp's two rounds of slots is next */
  int group, ncopies;
  EmulatedCopy copies[EMULATE_COPIES];
} EmulatedThread;

typedef void EmulatedCall(void *const *arguments);

static struct {
  bool late; /* copies arrive when they are waited for, not at once */
  uint32_t random;
  ucontext_t scheduler;
  char *stacks;
  int nthreads, current;
  EmulatedThread threads[EMULATE_THREADS];
  int arrived[WARP_BARRIER + EMULATE_THREADS / LANES];
  char slots[EMULATE_THREADS / LANES][2][LANES][LANE_BYTES];
  EmulatedCall *call;
  void **arguments;
  const char *fault; /* what ended the launch */
} emulator;

/* The names that emulated_cuda.h knows: the library finds them here. */
#define EXPORTED __attribute__((visibility("default")))
typedef struct {
  unsigned x, y, z;
} EmulatedIndex;
EXPORTED EmulatedIndex threadIdx, blockIdx, gridDim, blockDim;
EXPORTED _Alignas(1024) char mt_shared[EMULATE_SHARED + EMULATE_GUARD];

static uint32_t emulate_random(void) {
  emulator.random = emulator.random * 1664525u + 1013904223u;
  return emulator.random >> 8;
}

static EmulatedThread *emulate_self(void) {
  return &emulator.threads[emulator.current];
}

static void emulate_yield(void) {
  swapcontext(&emulate_self()->context, &emulator.scheduler);
}

/* The thread goes no further. */
static void emulate_fault(const char *why) {
  emulator.fault = why;
  emulate_yield();
}

EXPORTED void emulated_barrier(int id, int threads) {
  emulate_self()->waits_at = id;
  if (++emulator.arrived[id] == threads) {
    emulator.arrived[id] = 0;
    for (int t = 0; t < emulator.nthreads; t++)
      if (emulator.threads[t].waits_at == id) emulator.threads[t].waits_at = NO_BARRIER;
  }
  emulate_yield();
}
EXPORTED void emulated_block_barrier(void) {
  emulated_barrier(BLOCK_BARRIER, emulator.nthreads);
}

EXPORTED void emulated_exchange(const void *mine, int bytes, char all[LANES][LANE_BYTES]) {
  int warp = emulator.current / LANES, turn = emulate_self()->turn;
  emulate_self()->turn ^= 1;
  memcpy(emulator.slots[warp][turn][emulator.current % LANES], mine, (size_t)bytes);
  emulated_barrier(WARP_BARRIER + warp, LANES);
  memcpy(all, emulator.slots[warp][turn], sizeof emulator.slots[warp][turn]);
}

EXPORTED uint16_t emulated_to_bf16(float x) {
  return f32_to_bf16(x);
}
EXPORTED uint16_t emulated_to_f16(float x) {
  return f32_to_f16(x);
}
EXPORTED float emulated_from_f16(uint16_t x) {
  return f16_to_f32(x);
}

static void emulate_arrival(const EmulatedCopy *c) {
  memcpy(mt_shared + c->to, c->from, (size_t)c->bytes);
}
EXPORTED void emulated_copy(uint32_t to, const void *from, int bytes) {
  EmulatedThread *t = emulate_self();
  EmulatedCopy c = {to, bytes, t->group, from};
  if ((uintptr_t)from % (unsigned)bytes || to % (unsigned)bytes)
    emulate_fault("an asynchronous copy is misaligned");
  if (to + (unsigned)bytes > sizeof mt_shared) emulate_fault("a copy to where no shared memory is");
  if (!emulator.late) {
    emulate_arrival(&c);
    return;
  }
  if (t->ncopies == EMULATE_COPIES) emulate_fault("more copies are on their way than are emulated");
  memset(mt_shared + to, 0xff, (size_t)bytes); /* undefined until it arrives */
  t->copies[t->ncopies++] = c;
}
EXPORTED void emulated_copy_commit(void) {
  emulate_self()->group++;
}
/* All but the last `groups` groups have arrived. */
EXPORTED void emulated_copy_wait(int groups) {
  EmulatedThread *t = emulate_self();
  int left = 0;
  for (int i = 0; i < t->ncopies; i++) {
    if (t->copies[i].group < t->group - groups)
      emulate_arrival(&t->copies[i]);
    else
      t->copies[left++] = t->copies[i];
  }
  t->ncopies = left;
}

static void emulate_thread(void) {
  emulator.call(emulator.arguments);
  emulate_self()->done = true;
  emulate_yield();
}

static void emulate_start(int t) {
  EmulatedThread *x = &emulator.threads[t];
  x->done = false;
  x->waits_at = NO_BARRIER;
  x->turn = x->group = x->ncopies = 0;
  getcontext(&x->context);
  x->context.uc_stack.ss_sp = emulator.stacks + (size_t)t * EMULATE_STACK;
  x->context.uc_stack.ss_size = EMULATE_STACK;
  makecontext(&x->context, emulate_thread, 0);
}

/* Threads that wait for nothing, each until it waits, from a drawn one on, up or down. Returns how
 * many have ended, -1 when none could go on. */
static int emulate_round(void) {
  enum { CUT = 97 }; /* one in so many ends the round, so that the next begins elsewhere */
  int n = emulator.nthreads, ended = 0;
  int step = emulate_random() & 1 ? 1 : n - 1, t = (int)(emulate_random() % (unsigned)n);
  bool moved = false;
  for (int i = 0; i < n && !emulator.fault; i++, t = (t + step) % n) {
    EmulatedThread *x = &emulator.threads[t];
    if (x->done || x->waits_at != NO_BARRIER) continue;
    moved = true;
    emulator.current = t;
    threadIdx.x = (unsigned)t;
    swapcontext(&emulator.scheduler, &x->context);
    ended += x->done;
    if (emulate_random() % CUT == 0) break;
  }
  return moved ? ended : -1;
}

static void emulate_block(int threads, int shared) {
  emulator.nthreads = threads;
  memset(mt_shared, 0xff, (size_t)shared + EMULATE_GUARD);
  memset(emulator.arrived, 0, sizeof emulator.arrived);
  for (int t = 0; t < threads; t++) emulate_start(t);
  for (int left = threads; left && !emulator.fault;) {
    int ended = emulate_round();
    if (ended < 0) emulator.fault = "threads wait for each other for ever";
    left -= ended;
  }
  for (int i = shared; i < shared + EMULATE_GUARD; i++)
    if (mt_shared[i] != (char)0xff) emulator.fault = "shared memory is written past its end";
}

/* ---- the device ---- */
/* Words of a launch: tensors, keys of random numbers, workspace. Returns how many. */
static int emulate_arguments(const Device *d, const Cmd *c, const Launch *l, void **to) {
  int n = 0;
  for (int i = 0; i < c->ntensors; i++)
    to[n++] = (void *)(uintptr_t)device_at(d, c->tensors[i].offset);
  if (l->rows) to[n++] = (void *)(uintptr_t)(d->schedules + (CUdeviceptr)l->table_offset);
  if (c->workspace_bytes) to[n++] = (void *)(uintptr_t)device_at(d, c->workspace_offset);
  return n;
}
static void **emulate_argument_room(Arena *a, const Cmd *c) {
  return arena_array(a, void *, c->ntensors + 2);
}

static int *emulate_counts(const Device *d) {
  const Program *p = d->p;
  int *n = arena_array(d->memory, int, p->nkernels + 1);
  for (int i = 0; i < p->nprograms; i++)
    for (int k = 0; k < p->programs[i].ncmds; k++) {
      const Cmd *c = &p->programs[i].cmds[k];
      for (int l = 0; l < c->nlaunches; l++)
        n[c->launches[l].kernel] =
            emulate_arguments(d, c, &c->launches[l], emulate_argument_room(d->memory, c));
    }
  return n;
}

static void *emulate_pages(int64_t bytes) {
  void *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ensure(p != MAP_FAILED, "no memory for an emulated device");
  return p;
}

static Device *emulate_open(const Program *p, const DeviceOptions *o, Fail *f) {
  (void)o;
  Device *d = arena_new_of(p->arena, Device);
  d->p = p;
  d->memory = p->arena;
  void *library = emulate_compile(p->arena, p, emulate_counts(d), f);
  if (!library) return NULL;
  d->modules = arena_array(p->arena, CUmodule, 1);
  d->modules[0] = library;
  d->functions = arena_array(p->arena, CUfunction, p->nkernels + 1);
  for (int k = 0; k < p->nkernels; k++)
    d->functions[k] = dlsym(library, arena_printf(p->arena, "call_%s", p->kernel_names[k]));
  d->schedules = (CUdeviceptr)(uintptr_t)dlsym(library, "mt_schedules");
  d->arena = (CUdeviceptr)(uintptr_t)emulate_pages(p->arena_bytes + 1);
  emulator.stacks = emulate_pages((int64_t)EMULATE_THREADS * EMULATE_STACK);
  emulator.random = 1;
  return d;
}

static void emulate_close(Device *d) {
  munmap((void *)(uintptr_t)d->arena, (size_t)d->p->arena_bytes + 1);
  munmap(emulator.stacks, (size_t)EMULATE_THREADS * EMULATE_STACK);
  dlclose(d->modules[0]);
}

static bool emulate_launch(Device *d, const Cmd *c, const Launch *l, Fail *f) {
  emulator.fault = NULL;
  emulator.call = (EmulatedCall *)d->functions[l->kernel];
  emulator.arguments = emulate_argument_room(d->memory, c);
  emulate_arguments(d, c, l, emulator.arguments);
  gridDim.x = (unsigned)l->grid[0];
  blockDim.x = (unsigned)l->threads;
  for (int b = 0; b < l->grid[0] && !emulator.fault; b++) {
    blockIdx.x = (unsigned)b;
    emulate_block(l->threads, l->shared);
  }
  return !emulator.fault ||
         fail_set(f, EXIT_DEVICE, "%s: %s", d->p->kernel_names[l->kernel], emulator.fault);
}

static bool emulate_run(Device *d, int program, Fail *f) {
  const ProgramCode *p = &d->p->programs[program];
  for (int k = 0; k < p->ncmds; k++)
    for (int l = 0; l < p->cmds[k].nlaunches; l++)
      if (!emulate_launch(d, &p->cmds[k], &p->cmds[k].launches[l], f)) return false;
  return true;
}
static bool emulate_wait(Device *d, Fail *f) {
  (void)d, (void)f;
  return true;
}
static bool emulate_read(Device *d, bool host, int64_t at, void *to, int64_t n, Fail *f) {
  (void)host, (void)f;
  memcpy(to, (void *)(uintptr_t)device_at(d, at), (size_t)n);
  return true;
}
static bool emulate_write(Device *d, bool host, int64_t at, const void *from, int64_t n, Fail *f) {
  (void)host, (void)f;
  memcpy((void *)(uintptr_t)device_at(d, at), from, (size_t)n);
  return true;
}

static const DeviceApi emulated_cuda = {.open = emulate_open,
                                        .run = emulate_run,
                                        .wait = emulate_wait,
                                        .read = emulate_read,
                                        .write = emulate_write,
                                        .close = emulate_close};

#endif
