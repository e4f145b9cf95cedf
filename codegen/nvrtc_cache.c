/* nvrtc_cache.c - see nvrtc_cache.h. */
#include "nvrtc_cache.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *cache_path(Arena *a, const char *name) {
  const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  char *dir = base && *base ? arena_printf(a, "%s/mtc", base)
                            : arena_printf(a, "%s/.cache/mtc", home && *home ? home : "/tmp");
  return make_dirs(dir) ? arena_printf(a, "%s/%s", dir, name) : NULL;
}

/* The file holds the log's length, a checksum, the log, the cubin. */
static const char *image_path(Arena *a, uint64_t key) {
  return cache_path(a, arena_printf(a, "%016llx.cubin", (unsigned long long)key));
}

bool cache_read(Arena *a, uint64_t key, CudaImage *m) {
  const char *path = image_path(a, key);
  size_t size;
  char *p = path ? read_file(a, path, &size) : NULL;
  uint64_t head[2]; /* length of the log, checksum of what follows */
  if (!p || size < sizeof head) return false;
  memcpy(head, p, sizeof head);
  if (head[0] > size - sizeof head || hash_bytes(p + sizeof head, size - sizeof head, 0) != head[1])
    return false;
  m->log = arena_printf(a, "%.*s", (int)head[0], p + sizeof head);
  m->size = size - sizeof head - head[0];
  m->cubin = arena_copy(a, p + sizeof head + head[0], m->size);
  return m->cached = true;
}

void cache_write(Arena *a, uint64_t key, const CudaImage *m) {
  const char *path = image_path(a, key);
  if (!path) return;
  Str s = {.arena = a};
  uint64_t head[2] = {strlen(m->log), 0};
  str_add_n(&s, (const char *)head, sizeof head);
  str_add(&s, m->log);
  str_add_n(&s, m->cubin, m->size);
  head[1] = hash_bytes(s.text + sizeof head, s.len - sizeof head, 0);
  memcpy(s.text, head, sizeof head);
  write_file_atomic(path, s.text, s.len);
}

/* ---- the version of NVRTC ---- */
static const char *variable(const char *name) {
  const char *s = getenv(name);
  return s ? s : "";
}

/* Changes when the library, or what decides which one is opened, does; NULL when there is no such file. */
static const char *identity(Arena *a, const char *path) {
  struct stat lib, list;
  if (stat(path, &lib) != 0) return NULL;
  if (stat("/etc/ld.so.cache", &list) != 0) memset(&list, 0, sizeof list);
  return arena_printf(a, "%s\n%lld bytes, %lld.%09ld\n%lld.%09ld\n%s\n%s\n", path, (long long)lib.st_size,
                      (long long)lib.st_mtim.tv_sec, lib.st_mtim.tv_nsec, (long long)list.st_mtim.tv_sec,
                      list.st_mtim.tv_nsec, variable("LD_LIBRARY_PATH"), variable("MTC_CUDA_LIBS"));
}

/* The file holds the version and the identity, which begins with the path. */
static const char *version_path(Arena *a) {
  return cache_path(a, "nvrtc");
}

int cache_nvrtc_version(Arena *a) {
  const char *file = version_path(a);
  char *text = file ? read_file(a, file, NULL) : NULL, *rest = text ? strchr(text, '\n') : NULL;
  if (!rest++ || !strchr(rest, '\n')) return 0;
  const char *path = arena_printf(a, "%.*s", (int)(strchr(rest, '\n') - rest), rest), *now = identity(a, path);
  return now && !strcmp(now, rest) ? atoi(text) : 0;
}

void cache_keep_version(Arena *a, int version, const char *path) {
  const char *file = version_path(a), *now = identity(a, path);
  if (!file || !now) return;
  const char *text = arena_printf(a, "%d\n%s", version, now);
  write_file_atomic(file, text, strlen(text));
}
