/* host_memory.h - memory of the host in large pieces: what may be had now and which limit says so,
 * mappings whose pages all threads make, copies by all threads.
 *
 * Mappings are anonymous: however the process ends, nothing is left behind. */
#ifndef MTC_HOST_MEMORY_H
#define MTC_HOST_MEMORY_H
#include "fail.h"

/* Bytes; INT64_MAX = no limit, or none that this system tells. */
typedef struct {
  int64_t available; /* that the machine could hand out now */
  int64_t container; /* that the tightest memory control group of this process has left; caches
                        that can be dropped count as left */
  int64_t bound;     /* limit of that group */
  int64_t locked;    /* ulimit -l */
  bool unbound;      /* ulimit -l does not bind this process: it has CAP_IPC_LOCK, as root has */
} HostLimits;

/* `root` comes before /proc and /sys; "" but in tests. */
HostLimits host_limits(const char *root);

/* The limits on pinned memory that are in force, for a message: "`ulimit -l` 8 MiB, memory of the
 * container or control group none". */
const char *host_limits_text(Arena *a, const HostLimits *l);

/* Refuses with EXIT_DEVICE what is not to be had now: the limit in force, the missing bytes, and
 * `remedy`. `what` is the subject: "the arena takes". Linux would promise the memory, and end the
 * process when it is used. */
bool host_room(const HostLimits *l, int64_t bytes, const char *what, const char *remedy, Fail *f);

/* Zeroed pages, all in memory, made by several threads; huge pages where the system has them and
 * `huge` asks for them. Whole pages are mapped. NULL with the failure set. */
void *host_map(int64_t bytes, bool huge, Fail *f);
void host_unmap(void *at, int64_t bytes); /* NULL is fine */

/* memcpy and memset by as many threads as the size is worth. */
void host_copy(void *to, const void *from, int64_t bytes);
void host_fill(void *to, int byte, int64_t bytes);

#endif
