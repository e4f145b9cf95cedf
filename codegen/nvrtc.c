/* nvrtc.c - compiles CUDA sources, reads ptxas's resource report. See nvrtc.h. */
#include "nvrtc.h"
#include <ctype.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../runtime/cuda_api.h"
#include "nvrtc_cache.h"

typedef struct NvrtcProgram *NvProgram;

#define NVRTC_CALLS(X)                                                               \
  X(nvrtcVersion, (int *major, int *minor))                                          \
  X(nvrtcCreateProgram, (NvProgram * p, const char *source, const char *name, int n, \
                         const char *const *headers, const char *const *names))      \
  X(nvrtcDestroyProgram, (NvProgram * p))                                            \
  X(nvrtcCompileProgram, (NvProgram p, int n, const char *const *options))           \
  X(nvrtcGetCUBINSize, (NvProgram p, size_t * n))                                    \
  X(nvrtcGetCUBIN, (NvProgram p, char *to))                                          \
  X(nvrtcGetProgramLogSize, (NvProgram p, size_t * n))                               \
  X(nvrtcGetProgramLog, (NvProgram p, char *to))

static struct {
#define X(name, args) int(*name) args;
  NVRTC_CALLS(X)
#undef X
  int version; /* 1300 for 13.0 */
} nv;

static bool load(Fail *f) {
  if (nv.version) return true;
  void *lib =
      open_library((const char *const[]){"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", NULL},
                   "NVRTC, the CUDA runtime compiler", f);
  if (!lib) return false;
#define X(name, args)                                                                  \
  {                                                                                    \
    void *p = dlsym(lib, #name);                                                       \
    if (!p) return fail_set(f, EXIT_DEVICE, "NVRTC is too old: it lacks `%s`", #name); \
    memcpy(&nv.name, &p, sizeof p);                                                    \
  }
  NVRTC_CALLS(X)
#undef X
  int major, minor;
  nv.nvrtcVersion(&major, &minor);
  nv.version = major * 100 + minor;
  return true;
}

static const char *loaded_path(void) {
  Dl_info info;
  void *symbol;
  memcpy(&symbol, &nv.nvrtcVersion, sizeof symbol);
  return dladdr(symbol, &info) && info.dli_fname ? intern(info.dli_fname) : "";
}

bool nvrtc_find(int *version, const char **path, Fail *f) {
  if (!load(f)) return false;
  *version = nv.version;
  *path = loaded_path();
  return true;
}

const CudaArch cuda_archs[] = {{80, "sm_80"},  {86, "sm_86"},    {89, "sm_89"},
                               {90, "sm_90a"}, {100, "sm_100a"}, {120, "sm_120a"}};
const int cuda_arch_count = COUNT_OF(cuda_archs);

const char *cuda_arch(int sm) {
  for (int i = 0; i < cuda_arch_count; i++)
    if (cuda_archs[i].sm == sm) return cuda_archs[i].name;
  bug("compute capability %d is not in the list", sm);
}

const KernelUse *image_spills(const CudaImage *image) {
  for (int i = 0; i < image->use.n; i++) {
    ensure(image->use.at[i].known, "ptxas said nothing of `%s`", image->use.at[i].name);
    if (image->use.at[i].stack_bytes || image->use.at[i].spill_bytes) return &image->use.at[i];
  }
  return NULL;
}

/* ---- ptxas's report ---- */
/* The number that stands before `p` in `text`, or -1. */
static int number_before(const char *text, const char *p) {
  while (p > text && p[-1] == ' ') p--;
  const char *end = p;
  while (p > text && isdigit((unsigned char)p[-1])) p--;
  return p < end ? atoi(p) : -1;
}

/* "ptxas info    : Function properties for NAME" / "ptxas         .     0 bytes stack frame, 0
 * bytes spill stores, 0 bytes spill loads" / "ptxas info    : Used 32 registers, ..." */
static void read_log(Arena *a, CudaImage *m) {
  static const char function[] = "Function properties for ", used[] = "Used ";
  KernelUse *now = NULL;
  m->serialized = strstr(m->log, "wgmma.mma_async instructions are serialized") != NULL;
  for (const char *line = m->log; *line;) {
    const char *end = strchrnul(line, '\n');
    char text[1024];
    snprintf(text, sizeof text, "%.*s", (int)(end - line), line);
    char *p;
    if ((p = strstr(text, function))) {
      vec_push(a, &m->use, ((KernelUse){.name = intern(p + sizeof function - 1)}));
      now = &vec_last(&m->use);
    } else if (now && (p = strstr(text, "bytes stack frame"))) {
      const char *stores = strstr(text, "bytes spill stores"),
                 *loads = strstr(text, "bytes spill loads");
      ensure(stores && loads, "ptxas reports resource use in a new form: %s", text);
      now->stack_bytes = number_before(text, p);
      now->spill_bytes = number_before(text, stores) + number_before(text, loads);
      now->known = now->stack_bytes >= 0;
    } else if (now && (p = strstr(text, used)) && isdigit((unsigned char)p[sizeof used - 1])) {
      now->registers = atoi(p + sizeof used - 1);
    }
    line = *end ? end + 1 : end;
  }
}

/* ---- compiling ---- */
enum { OPTIONS = 8 };

static void options_of(Arena *a, const CudaSource *s, const char *options[OPTIONS]) {
  const char *const list[OPTIONS] = {
      arena_printf(a, "-arch=%s", cuda_arch(s->sm)),
      "-std=c++17",
      "--ptxas-options=-v",
      "-default-device",
      "--diag-suppress=177", /* functions of the prelude that no kernel calls */
      s->fma ? "-fmad=true" : "-fmad=false",
      s->fma ? "-prec-div=true" : "-prec-div=false", /* to 2 units in the last place */
      s->fma ? "-prec-sqrt=true" : "-prec-sqrt=false"};
  memcpy(options, list, sizeof list);
}

static uint64_t key_of(Arena *a, const CudaSource *s, int version) {
  const char *options[OPTIONS];
  options_of(a, s, options);
  uint64_t key = hash_text(s->source);
  for (int i = 0; i < OPTIONS; i++) key = hash_bytes(options[i], strlen(options[i]), key);
  return hash_bytes(&version, sizeof version, key);
}

static void compile(Arena *a, const CudaSource *s, CudaImage *m) {
  const char *options[OPTIONS];
  options_of(a, s, options);
  NvProgram p;
  ensure(nv.nvrtcCreateProgram(&p, s->source, "kernels.cu", 0, NULL, NULL) == 0,
         "NVRTC took no program");
  int bad = nv.nvrtcCompileProgram(p, OPTIONS, options);
  size_t n;
  nv.nvrtcGetProgramLogSize(p, &n);
  char *log = arena_alloc(a, n + 1);
  nv.nvrtcGetProgramLog(p, log);
  m->log = log;
  if (bad) bug("%s do not compile for %s:\n%s", s->name, cuda_arch(s->sm), log);
  ensure(nv.nvrtcGetCUBINSize(p, &m->size) == 0 && m->size, "NVRTC made no cubin of %s", s->name);
  m->cubin = arena_alloc(a, m->size);
  nv.nvrtcGetCUBIN(p, m->cubin);
  nv.nvrtcDestroyProgram(&p);
  cache_write(a, key_of(a, s, nv.version), m);
}

/* Fills the images that were compiled before. Returns how many others there are, and lists them. */
static int from_cache(Arena *a, int n, const CudaSource *sources, int version, CudaImage *images,
                      int *missing) {
  int left = 0;
  for (int i = 0; i < n; i++)
    if (!cache_read(a, key_of(a, &sources[i], version), &images[i])) missing[left++] = i;
  return left;
}

/* The same without opening NVRTC, as long as the library is the one that made the others; -1 when it has to be opened. */
static int known_from_cache(Arena *a, int n, const CudaSource *sources, CudaImage *images, int *missing) {
  int version = nv.version ? nv.version : cache_nvrtc_version(a);
  int left = version ? from_cache(a, n, sources, version, images, missing) : -1;
  return left && !nv.version ? -1 : left;
}

typedef struct {
  int n, *next;
  const int *list; /* of sources to compile */
  const CudaSource *sources;
  CudaImage *images;
  Arena *arena; /* of this thread */
} Worker;

static void *work(void *arg) {
  Worker *w = arg;
  for (int i; (i = __atomic_fetch_add(w->next, 1, __ATOMIC_RELAXED)) < w->n;)
    compile(w->arena, &w->sources[w->list[i]], &w->images[w->list[i]]);
  return NULL;
}

enum { MOST_WORKERS = 8 };

static void compile_all(Arena *a, int n, const int *list, const CudaSource *sources, CudaImage *images) {
  int next = 0;
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  int workers = cores < 1 ? 1 : cores > MOST_WORKERS ? MOST_WORKERS : (int)cores;
  if (workers > n) workers = n;
  Worker worker[MOST_WORKERS];
  pthread_t thread[MOST_WORKERS];
  for (int i = 0; i < workers; i++) {
    worker[i] = (Worker){n, &next, list, sources, images, arena_new()};
    if (pthread_create(&thread[i], NULL, work, &worker[i]) != 0) bug("no thread could be started");
  }
  for (int i = 0; i < workers; i++) pthread_join(thread[i], NULL);
  for (int i = 0; i < n; i++) { /* results leave the threads' arenas */
    CudaImage *m = &images[list[i]];
    m->log = arena_printf(a, "%s", m->log);
    m->cubin = arena_copy(a, m->cubin, m->size);
  }
  for (int i = 0; i < workers; i++) arena_free(worker[i].arena);
}

bool nvrtc_compile(Arena *a, int n, const CudaSource *sources, CudaImage *images, Fail *f) {
  memset(images, 0, sizeof *images * (size_t)n);
  int *missing = arena_array(a, int, n + 1), left = known_from_cache(a, n, sources, images, missing);
  if (left < 0) {
    if (!load(f)) return false;
    cache_keep_version(a, nv.version, loaded_path());
    left = from_cache(a, n, sources, nv.version, images, missing);
  }
  if (left) compile_all(a, left, missing, sources, images);
  for (int i = 0; i < n; i++) read_log(a, &images[i]);
  return true;
}
