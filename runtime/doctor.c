/* doctor.c - the host and the CPU target: memory and its limits, cores, disk, compiler (see
 * doctor.h). Input: /proc, the control group, a file of its own that is removed again. */
#include "doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "cblas.h"
#include "cpu_cc.h"
#include "host_memory.h"
#include "metrics.h"

/* ---- memory ---- */

static int64_t meminfo(const char *key) {
  FILE *f = fopen("/proc/meminfo", "r");
  char line[160];
  long long kib = -1;
  size_t n = strlen(key);
  while (f && kib < 0 && fgets(line, sizeof line, f))
    if (!strncmp(line, key, n) && line[n] == ':') sscanf(line + n + 1, "%lld", &kib);
  if (f) fclose(f);
  return kib < 0 ? -1 : kib * 1024;
}

static bool file_says(Arena *a, const char *path, const char *word) {
  size_t size;
  const char *text = read_file(a, path, &size);
  return text && strcasestr(text, word);
}

/* ---- disk ---- */

enum { DISK_BYTES = 128 << 20, DISK_CHUNK = 4 << 20 };

static bool write_all(int fd, const char *block) {
  for (int64_t at = 0; at < DISK_BYTES;) {
    ssize_t n = write(fd, block, DISK_CHUNK);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
  }
  return fsync(fd) == 0;
}

/* Pages of the file that the cache holds. */
static bool is_cached(int fd) {
  long page = sysconf(_SC_PAGESIZE);
  size_t pages = (size_t)(DISK_BYTES / page), in = 0;
  unsigned char *map = malloc(pages);
  void *at = mmap(NULL, DISK_BYTES, PROT_READ, MAP_SHARED, fd, 0);
  if (map && at != MAP_FAILED && !mincore(at, DISK_BYTES, map))
    for (size_t i = 0; i < pages; i++) in += map[i] & 1;
  if (at != MAP_FAILED) munmap(at, DISK_BYTES);
  free(map);
  return in > pages / 10;
}

static double read_rate(int fd, char *block) {
  double begin = clock_seconds();
  int64_t at = 0;
  for (ssize_t n; (n = pread(fd, block, DISK_CHUNK, at)) > 0; at += n) continue;
  return at == DISK_BYTES ? (double)at / (clock_seconds() - begin) : 0;
}

static void measure_disk(DoctorHost *h, const char *folder) {
  enum { TMPFS = 0x01021994, RAMFS = 0x858458f6 };
  char path[600];
  snprintf(path, sizeof path, "%s/.mtc-doctor-XXXXXX", folder);
  int fd = mkostemp(path, O_CLOEXEC);
  if (fd < 0) return;
  unlink(path); /* the file lives as long as it is open */
  char *block = aligned_alloc(4096, DISK_CHUNK);
  struct statfs s;
  if (block) {
    memset(block, 0x5A, DISK_CHUNK);
    if (write_all(fd, block)) {
      posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
      h->disk_in_memory =
          fstatfs(fd, &s) == 0 && ((unsigned)s.f_type == TMPFS || (unsigned)s.f_type == RAMFS);
      h->disk_in_memory = h->disk_in_memory || is_cached(fd);
      h->disk_read = read_rate(fd, block);
      h->disk_folder = folder;
    }
  }
  free(block);
  close(fd);
}

void doctor_host(Arena *a, DoctorHost *h) {
  HostLimits l = host_limits("");
  *h = (DoctorHost){.ram = meminfo("MemTotal"), .disk_folder = "."};
  h->free_ram = l.available < l.container ? l.available : l.container;
  if (h->free_ram == INT64_MAX) h->free_ram = -1;
  h->container = l.bound < h->ram ? l.bound : -1;
  h->in_container =
      h->container >= 0 || path_exists("/.dockerenv") || path_exists("/run/.containerenv");
  h->wsl = file_says(a, "/proc/version", "microsoft");
  h->locked = l.locked == INT64_MAX ? -1 : l.locked;
  h->cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
  cpu_set_t set;
  h->usable_cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : h->cores;
  const char *tmp = getenv("TMPDIR");
  measure_disk(h, ".");
  if (!(h->disk_read > 0)) measure_disk(h, tmp && *tmp ? arena_printf(a, "%s", tmp) : "/tmp");
}

/* ---- the CPU target ---- */

static const char *compiler_version(Arena *a) {
  FILE *f = popen("cc --version 2>/dev/null", "r");
  char line[200] = "";
  if (f && fgets(line, sizeof line, f)) line[strcspn(line, "\n")] = 0;
  if (f) pclose(f);
  return arena_printf(a, "%s", line);
}

void doctor_cpu(Arena *a, DoctorCpu *c) {
  Fail f = {0};
  const void *image;
  size_t size;
  *c = (DoctorCpu){.compiler = compiler_version(a),
                   .blas = arena_printf(a, "%s", openblas_get_config()),
                   .blas_threads = openblas_get_num_threads(),
                   .why = ""};
  c->works = cpu_compile(a, "int mt_doctor(int x) { return x + 1; }\n", &image, &size, NULL, &f);
  if (!c->works) c->why = arena_printf(a, "%s", f.text);
}
