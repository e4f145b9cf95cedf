/* host_memory.c - limits from /proc and the control groups, mappings, copies: see host_memory.h. */
#include "host_memory.h"

#include <errno.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum {
  PAGE = 4096,
  HUGE_PAGE = 2 << 20,
  MAKE_BYTES = 64 << 20, /* pages that a thread makes at a time */
  COPY_BYTES = 1 << 20,  /* below that one thread copies */
  MOST_THREADS = 32
};

/* ---- limits ---- */

/* The number after `key` in a file of lines "key 123"; with key NULL the file's only number. -1
 * when there is none. */
static int64_t number_of(const char *path, const char *key) {
  FILE *f = fopen(path, "r");
  char line[256];
  long long v = -1;
  size_t n = key ? strlen(key) : 0;
  while (f && v < 0 && fgets(line, sizeof line, f))
    if (!key || (!strncmp(line, key, n) && (line[n] == ' ' || line[n] == ':')))
      if (sscanf(line + n + (key && line[n] == ':'), "%lld", &v) != 1 || v < 0) v = -1;
  if (f) fclose(f);
  return v;
}

/* One version of the control groups. */
typedef struct {
  const char *mount, *limit, *usage;
  const char *cache[2]; /* of memory.stat */
} GroupFiles;
static const GroupFiles group_files[] = {
    {"/sys/fs/cgroup", "memory.max", "memory.current", {"inactive_file", "active_file"}},
    {"/sys/fs/cgroup/memory",
     "memory.limit_in_bytes",
     "memory.usage_in_bytes",
     {"total_inactive_file", "total_active_file"}},
};

static void look_at_group(HostLimits *l, const char *root, const GroupFiles *g, const char *group) {
  char path[1400];
#define IN_GROUP(file) (snprintf(path, sizeof path, "%s%s%s/%s", root, g->mount, group, file), path)
  int64_t bound = number_of(IN_GROUP(g->limit), NULL), used = number_of(IN_GROUP(g->usage), NULL);
  if (bound < 0 || used < 0 || bound > INT64_MAX / 2) return; /* version 1: no limit is large */
  for (int i = 0; i < COUNT_OF(g->cache); i++) {
    int64_t cache = number_of(IN_GROUP("memory.stat"), g->cache[i]);
    if (cache > 0) used -= cache;
  }
#undef IN_GROUP
  if (used < 0) used = 0;
  int64_t left = bound > used ? bound - used : 0;
  if (left < l->container) l->container = left, l->bound = bound;
}

/* The group of /proc/self/cgroup and all above it; in a container of its own name space that is the
 * root alone. */
static void look_at_groups(HostLimits *l, const char *root) {
  char path[600], line[1024];
  snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
  FILE *f = fopen(path, "r");
  while (f && fgets(line, sizeof line, f)) {
    char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;
    if (!group) continue;
    *group++ = 0;
    group[strcspn(group, "\n")] = 0;
    if (names[1] && strcmp(names + 1, "memory") != 0) continue;
    const GroupFiles *g = &group_files[names[1] != 0];
    for (;;) {
      look_at_group(l, root, g, strcmp(group, "/") ? group : "");
      char *slash = strrchr(group, '/');
      if (!slash || !*group) break;
      *slash = 0;
    }
  }
  if (f) fclose(f);
}

/* Whether the process may lock any amount of memory. */
static bool may_lock_all(const char *root) {
  enum { CAP_IPC_LOCK = 14 };
  char path[600], line[256];
  unsigned long long caps = 0;
  snprintf(path, sizeof path, "%s/proc/self/status", root);
  FILE *f = fopen(path, "r");
  while (f && fgets(line, sizeof line, f))
    if (sscanf(line, "CapEff: %llx", &caps) == 1) break;
  if (f) fclose(f);
  return caps >> CAP_IPC_LOCK & 1;
}

HostLimits host_limits(const char *root) {
  HostLimits l = {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, may_lock_all(root)};
  char path[600];
  snprintf(path, sizeof path, "%s/proc/meminfo", root);
  int64_t kib = number_of(path, "MemAvailable");
  if (kib >= 0) l.available = kib * 1024;
  look_at_groups(&l, root);
  struct rlimit lock;
  if (!getrlimit(RLIMIT_MEMLOCK, &lock) && lock.rlim_cur != RLIM_INFINITY)
    l.locked = (int64_t)lock.rlim_cur;
  return l;
}

const char *host_limits_text(Arena *a, const HostLimits *l) {
  const char *locked = l->locked == INT64_MAX ? "unlimited" : format_bytes(a, l->locked);
  const char *group = l->bound == INT64_MAX ? "none" : format_bytes(a, l->bound);
  const char *binds = l->unbound && l->locked != INT64_MAX
                          ? " (it does not bind this process, which has CAP_IPC_LOCK)"
                          : "";
  return arena_printf(a, "`ulimit -l` %s%s, memory of the container or control group %s", locked,
                      binds, group);
}

bool host_room(const HostLimits *l, int64_t bytes, const char *what, const char *remedy, Fail *f) {
  bool group = l->container < l->available;
  int64_t have = group ? l->container : l->available;
  if (bytes <= have) return true;
  Arena *a = arena_new();
  const char *limit = "MemAvailable of /proc/meminfo";
  if (group)
    limit = arena_printf(a, "the memory limit of this container or control group, %s",
                         format_bytes(a, l->bound));
  fail_set(f, EXIT_DEVICE,
           "%s %s, and only %s of this machine's memory are free (%s): %s bytes are missing; %s",
           what, format_bytes(a, bytes), format_bytes(a, have), limit,
           format_count(a, bytes - have), remedy);
  arena_free(a);
  return false;
}

/* ---- mappings ---- */

static int threads_for(int64_t pieces) {
  int n = omp_get_num_procs();
  if (n > MOST_THREADS) n = MOST_THREADS;
  return pieces < n ? (int)pieces : n;
}

void *host_map(int64_t bytes, bool huge, Fail *f) {
  int64_t size = round_up(bytes > 0 ? bytes : 1, PAGE), lead = huge ? HUGE_PAGE : 0;
  char *at = mmap(NULL, (size_t)(size + lead), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) {
    fail_set(f, EXIT_DEVICE, "cannot get %lld bytes of memory: %s", (long long)size,
             strerror(errno));
    return NULL;
  }
  if (huge) { /* begins at a huge page; what is before and behind goes back */
    int64_t before = (int64_t)(-(uintptr_t)at & (HUGE_PAGE - 1));
    if (before) munmap(at, (size_t)before);
    if (lead - before) munmap(at + before + size, (size_t)(lead - before));
    at += before;
    madvise(at, (size_t)size, MADV_HUGEPAGE); /* without it, small ones */
  }
  int64_t pieces = ceil_div(size, MAKE_BYTES);
#pragma omp parallel for schedule(dynamic) num_threads(threads_for(pieces))
  for (int64_t i = 0; i < pieces; i++) {
    int64_t end = (i + 1) * MAKE_BYTES < size ? (i + 1) * MAKE_BYTES : size;
    for (int64_t k = i * MAKE_BYTES; k < end; k += PAGE) ((volatile char *)at)[k] = 0;
  }
  return at;
}

void host_unmap(void *at, int64_t bytes) {
  if (at) munmap(at, (size_t)round_up(bytes > 0 ? bytes : 1, PAGE));
}

/* ---- copies ---- */

/* from NULL: fills. */
static void in_pieces(char *to, const char *from, int byte, int64_t bytes) {
  int64_t pieces = ceil_div(bytes, COPY_BYTES);
#pragma omp parallel for schedule(static) num_threads(threads_for(pieces)) if (pieces > 1)
  for (int64_t i = 0; i < pieces; i++) {
    int64_t at = i * COPY_BYTES, n = bytes - at < COPY_BYTES ? bytes - at : COPY_BYTES;
    if (from)
      memcpy(to + at, from + at, (size_t)n);
    else
      memset(to + at, byte, (size_t)n);
  }
}

void host_copy(void *to, const void *from, int64_t bytes) {
  if (bytes > 0) in_pieces(to, from, 0, bytes);
}

void host_fill(void *to, int byte, int64_t bytes) {
  if (bytes > 0) in_pieces(to, NULL, byte, bytes);
}
