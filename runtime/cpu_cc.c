/* cpu_cc.c - runs `cc` on emitted kernels: see cpu_cc.h.
 *
 * -ffp-contract=off keeps every rounding that the graph asks for; no flag lets the compiler assume
 * that NaN or infinity do not occur. */
#include "cpu_cc.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const char *const cc_flags[] = {"-x",
                                       "c",
                                       "-std=gnu17",
                                       "-O3",
                                       "-march=native",
                                       "-fopenmp",
                                       "-ffp-contract=off",
                                       "-fno-math-errno",
                                       "-fno-trapping-math",
                                       "-fwrapv",
                                       "-w",
                                       "-fPIC",
                                       "-shared"};

const char *cpu_arch(void) {
  static const char *arch;
  if (arch) return arch;
  uint64_t hash = 0;
  FILE *info = fopen("/proc/cpuinfo", "r");
  char *text = NULL;
  size_t cap = 0;
  while (info && getline(&text, &cap, info) > 0)
    if (str_starts(text, "flags") || str_starts(text, "Features")) {
      hash = hash_text(text);
      break;
    }
  free(text);
  if (info) fclose(info);
#if defined __x86_64__
  const char *family = "x86-64";
#elif defined __aarch64__
  const char *family = "aarch64";
#else
  const char *family = "cpu";
#endif
  return arch = intern_printf("%s:%08x", family, (unsigned)(hash ^ hash >> 32));
}

static const char *cache_folder(Arena *a) {
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  if (cache && cache[0] == '/') return arena_printf(a, "%s/mtc", cache);
  if (home && home[0] == '/') return arena_printf(a, "%s/.cache/mtc", home);
  return NULL;
}

static uint64_t source_hash(const char *source) {
  uint64_t hash = hash_text(cpu_arch());
  for (int i = 0; i < COUNT_OF(cc_flags); i++)
    hash = hash_bytes(cc_flags[i], strlen(cc_flags[i]), hash);
  return hash_bytes(source, strlen(source), hash);
}

/* The first lines of what the compiler said, for the message. */
static const char *complaint(Arena *a, const char *log) {
  char *text = read_file(a, log, NULL);
  if (!text) return "";
  int lines = 0;
  for (char *p = text; *p; p++)
    if (*p == '\n' && ++lines == 6) *p = 0;
  return strlen(text) > 1200 ? (text[1200] = 0, text) : text;
}

static bool spawn_cc(char *const *argv, const char *log, Fail *f) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  pid_t pid;
  int error = posix_spawnp(&pid, argv[0], &files, NULL, argv, environ), status = 0;
  posix_spawn_file_actions_destroy(&files);
  if (error)
    return fail_set(
        f, EXIT_DEVICE,
        "cannot run the C compiler `%s`: %s\nkernels for the CPU are compiled on this machine; "
        "install a compiler (Debian: apt-get install gcc)",
        argv[0], strerror(error));
  while (waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return fail_set(f, EXIT_DEVICE, "lost the C compiler: %s", strerror(errno));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  Arena *a = arena_new();
  fail_set(f, EXIT_DEVICE, "the C compiler `%s` failed on emitted kernels (status %d)\n%s", argv[0],
           WIFEXITED(status) ? WEXITSTATUS(status) : status, complaint(a, log));
  arena_free(a);
  return false;
}

static bool compile(Arena *a, const char *source, const void **image, size_t *size, Fail *f) {
  const char *tmp = getenv("TMPDIR");
  char *folder = arena_printf(a, "%s/mtc-XXXXXX", tmp && tmp[0] == '/' ? tmp : "/tmp");
  if (!mkdtemp(folder))
    return fail_set(f, EXIT_DEVICE, "cannot make a folder for the C compiler in %s: %s",
                    tmp ? tmp : "/tmp", strerror(errno));
  const char *c = arena_printf(a, "%s/kernels.c", folder),
             *so = arena_printf(a, "%s/kernels.so", folder),
             *log = arena_printf(a, "%s/log", folder);
  const char *argv[COUNT_OF(cc_flags) + 5];
  int n = 0;
  argv[n++] = "cc";
  for (int i = 0; i < COUNT_OF(cc_flags); i++) argv[n++] = cc_flags[i];
  argv[n++] = "-o";
  argv[n++] = so;
  argv[n++] = c;
  argv[n] = NULL;
  bool ok = write_file_atomic(c, source, strlen(source));
  if (!ok) fail_set(f, EXIT_DEVICE, "cannot write %s: %s", c, strerror(errno));
  ok = ok && spawn_cc((char *const *)argv, log, f);
  if (ok) {
    *image = read_file(a, so, size);
    if (!*image) ok = fail_set(f, EXIT_DEVICE, "cannot read %s: %s", so, strerror(errno));
  }
  unlink(c);
  unlink(so);
  unlink(log);
  rmdir(folder);
  return ok;
}

bool cpu_compile(Arena *a, const char *source, const void **image, size_t *size, bool *cached,
                 Fail *f) {
  const char *folder = cache_folder(a), *path = NULL;
  if (cached) *cached = false;
  if (folder) {
    path = arena_printf(a, "%s/%016llx.so", folder, (unsigned long long)source_hash(source));
    *image = path_exists(path) ? read_file(a, path, size) : NULL;
    if (*image && *size > 64) {
      if (cached) *cached = true;
      return true;
    }
  }
  if (!compile(a, source, image, size, f)) return false;
  /* A cache that cannot be written costs time only. */
  if (path && make_dirs(folder)) (void)!write_file_atomic(path, *image, *size);
  return true;
}
