/* outfile.c - atomic streamed files and the crash hook of the resume tests: see outfile.h. */
#include "outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- crash hook ---- */

/* Units of a point that may still pass before the process must die; `units` more are about to. */
static int64_t crash_left(const char *point, int64_t units) {
  static int64_t passed; /* of the one point that the environment names */
  const char *at = getenv("MTC_CRASH_AT");
  size_t n = strlen(point);
  if (!at || strncmp(at, point, n) != 0 || at[n] != ':') return INT64_MAX;
  int64_t left = strtoll(at + n + 1, NULL, 10) - passed;
  passed += units;
  return left > 0 ? left : 0;
}

static _Noreturn void crash_now(void) {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

void crash_point(const char *point) {
  if (crash_left(point, 1) <= 1) crash_now();
}

/* ---- files ---- */

static bool failed(const OutFile *o, const char *what, Fail *f) {
  return fail_page(f, EXIT_IO, "E0601", "cannot %s %s: %s", what, o->path, strerror(errno));
}

bool out_open(OutFile *o, const char *path, const char *crash, Fail *f) {
  *o = (OutFile){.fd = -1, .crash = crash};
  if (strlen(path) >= sizeof o->path)
    return fail_page(f, EXIT_IO, "E0601", "the path %s is too long", path);
  snprintf(o->path, sizeof o->path, "%s", path);
  snprintf(o->tmp, sizeof o->tmp, "%s.tmp-%ld", path, (long)getpid());
  o->fd = open(o->tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  return o->fd >= 0 || failed(o, "write", f);
}

/* Keeps at most two windows in the cache: the one before is waited for while the last is written.
 * Only advice: what it cannot do, the sync at the end does. */
static void write_behind(OutFile *o) {
  enum { WINDOW = 64 << 20 };
  while (o->bytes - o->behind >= 2 * WINDOW) {
    sync_file_range(o->fd, o->behind + WINDOW, WINDOW, SYNC_FILE_RANGE_WRITE);
    sync_file_range(
        o->fd, o->behind, WINDOW,
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    posix_fadvise(o->fd, o->behind, WINDOW, POSIX_FADV_DONTNEED);
    o->behind += WINDOW;
  }
}

bool out_write(OutFile *o, const void *data, size_t bytes, Fail *f) {
  int64_t left = o->crash ? crash_left(o->crash, (int64_t)bytes) : INT64_MAX;
  size_t want = left < (int64_t)bytes ? (size_t)left : bytes;
  for (size_t done = 0; done < want;) {
    ssize_t n = write(o->fd, (const char *)data + done, want - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return failed(o, "write", f);
    done += (size_t)n;
  }
  if (want < bytes) crash_now();
  o->bytes += (int64_t)bytes;
  write_behind(o);
  return true;
}

bool out_pad(OutFile *o, int64_t align, Fail *f) {
  static const char zeros[512];
  int64_t n = round_up(o->bytes, align) - o->bytes;
  ensure(n <= (int64_t)sizeof zeros, "padding of %lld bytes", (long long)n);
  return out_write(o, zeros, (size_t)n, f);
}

static bool sync_folder(const OutFile *o) {
  char copy[sizeof o->path];
  memcpy(copy, o->path, sizeof copy);
  int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;
  bool ok = fsync(fd) == 0;
  return close(fd) == 0 && ok;
}

bool out_commit(OutFile *o, Fail *f) {
  if (fsync(o->fd) != 0) {
    failed(o, "write", f);
    out_abandon(o);
    return false;
  }
  int rc = close(o->fd);
  o->fd = -1;
  if (o->crash) crash_point("checkpoint-rename");
  if (rc == 0 && rename(o->tmp, o->path) == 0 && sync_folder(o)) return true;
  failed(o, "write", f);
  unlink(o->tmp);
  return false;
}

void out_abandon(OutFile *o) {
  if (o->fd < 0) return;
  close(o->fd);
  unlink(o->tmp);
  o->fd = -1;
}
