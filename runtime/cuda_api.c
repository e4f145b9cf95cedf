/* cuda_api.c - opens libcuda and libcublasLt and resolves the calls of cuda_api.h. */
#include "cuda_api.h"
#include <dlfcn.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>

CudaApi cu;
CublasLtApi lt;

/* Where libraries of the toolkit are found besides the loader's own path. */
static const char *const library_globs[] = {
    "/usr/local/cuda*/lib64/",
    "/usr/local/cuda*/targets/*/lib/",
    "/usr/lib/python3*/site-packages/nvidia/*/lib/",
    "/usr/local/lib/python3*/*-packages/nvidia/*/lib/",
    MTC_MODELS_DIR "/../.venv/lib/python3*/site-packages/nvidia/*/lib/", /* what ./setup.sh took */
};

static void *open_in_folders(const char *pattern, const char *name) {
  char path[600];
  glob_t g;
  snprintf(path, sizeof path, "%s%s", pattern, name);
  void *lib = NULL;
  if (glob(path, 0, NULL, &g) == 0)
    for (size_t i = g.gl_pathc; i-- > 0 && !lib;) lib = dlopen(g.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
  globfree(&g);
  return lib;
}

void *open_library(const char *const *names, const char *what, Fail *f) {
  const char *extra = getenv("MTC_CUDA_LIBS");
  for (const char *const *n = names; *n; n++) {
    void *lib = dlopen(*n, RTLD_NOW | RTLD_LOCAL);
    char folder[512];
    if (!lib && extra) {
      snprintf(folder, sizeof folder, "%s/", extra);
      lib = open_in_folders(folder, *n);
    }
    for (int i = 0; i < COUNT_OF(library_globs) && !lib; i++)
      lib = open_in_folders(library_globs[i], *n);
    if (lib) return lib;
  }
  fail_set(f, EXIT_DEVICE,
           "%s (%s) is not on this machine: install it, or name its folder in MTC_CUDA_LIBS", what,
           names[0]);
  return NULL;
}

static bool resolve(void *lib, const char *symbol, void *to, const char *what, Fail *f) {
  void *p = dlsym(lib, symbol);
  if (!p) return fail_set(f, EXIT_DEVICE, "%s is too old: it lacks `%s`", what, symbol);
  memcpy(to, &p, sizeof p);
  return true;
}

bool cuda_load(Fail *f) {
  static bool loaded;
  if (loaded) return true;
  void *lib = open_library((const char *const[]){"libcuda.so.1", "libcuda.so", NULL},
                           "the NVIDIA driver's library", f);
  if (!lib) return false;
#define X(name, symbol, args) \
  if (!resolve(lib, symbol, &cu.name, "the NVIDIA driver", f)) return false;
  CUDA_CALLS(X)
#undef X
  if (!cuda_ok(cu.cuInit(0), f, "initialising the NVIDIA driver")) return false;
  return loaded = true;
}

bool cuda_ok(CUresult r, Fail *f, const char *fmt, ...) {
  if (r == CU_SUCCESS) return true;
  const char *name = "unknown error", *text = "";
  cu.cuGetErrorName(r, &name);
  cu.cuGetErrorString(r, &text);
  char what[600];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(what, sizeof what, fmt, ap);
  va_end(ap);
  return fail_set(f, EXIT_DEVICE, "%s: %s (%s)", what, name, text);
}

bool cublaslt_load(Fail *f) {
  static bool loaded;
  if (loaded) return true;
  void *lib = open_library(
      (const char *const[]){"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so", NULL},
      "cuBLASLt", f);
  if (!lib) return false;
#define X(name, args) \
  if (!resolve(lib, #name, &lt.name, "cuBLASLt", f)) return false;
  CUBLASLT_CALLS(X)
#undef X
  if (!resolve(lib, "cublasLtGetVersion", &lt.cublasLtGetVersion, "cuBLASLt", f)) return false;
  return loaded = true;
}
