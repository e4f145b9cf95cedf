/* filemap.c - files mapped for reading: see filemap.h. */
#include "filemap.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

const char *filemap_open(FileMap *m, const char *path) {
  *m = (FileMap){0};
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  struct stat st;
  if (fd < 0 || fstat(fd, &st) != 0) {
    int saved = errno;
    if (fd >= 0) close(fd);
    return strerror(saved);
  }
  bool can = S_ISREG(st.st_mode) && st.st_size;
  void *at = can ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
  int saved = errno;
  close(fd);
  if (at == MAP_FAILED) return can ? strerror(saved) : "it is empty or no file";
  *m = (FileMap){at, (size_t)st.st_size};
  return NULL;
}

void filemap_close(FileMap *m) {
  if (m->at) munmap(m->at, m->size);
  *m = (FileMap){0};
}

void filemap_release(const FileMap *m, const void *data, int64_t bytes) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), base = (uintptr_t)m->at;
  uintptr_t from = (uintptr_t)data, to = from + (uintptr_t)bytes;
  if (!m->at || from < base || to > base + m->size || bytes <= 0) return;
  from -= from % page;
  madvise((void *)from, to - from, MADV_DONTNEED); /* a hint: what fails costs memory alone */
}
