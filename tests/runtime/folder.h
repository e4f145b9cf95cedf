/* folder.h - a scratch folder for tests that need files. */
#ifndef MTC_TESTS_FOLDER_H
#define MTC_TESTS_FOLDER_H
#include "ir/base.h"

#include <ftw.h>
#include <stdlib.h>
#include <unistd.h>

static inline const char *folder_new(Arena *a) {
  const char *dir = getenv("TMPDIR");
  char *path = arena_printf(a, "%s/mtc-test-XXXXXX", dir ? dir : "/tmp");
  ensure(mkdtemp(path), "no scratch folder");
  return path;
}

static inline int folder_remove_one(const char *path, const struct stat *st, int type,
                                    struct FTW *at) {
  (void)st, (void)type, (void)at;
  return remove(path);
}
static inline void folder_remove(const char *path) {
  nftw(path, folder_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Writes DIR/NAME and returns its path. */
static inline const char *folder_file(Arena *a, const char *dir, const char *name, const void *data,
                                      size_t size) {
  const char *path = arena_printf(a, "%s/%s", dir, name);
  FILE *f = fopen(path, "wb");
  ensure(f && fwrite(data, 1, size, f) == size && fclose(f) == 0, "cannot write %s", path);
  return path;
}

/* A cmocka fixture: an arena and a scratch folder for each test. */
typedef struct {
  Arena *a;
  const char *dir, *source; /* source: a .mt in the folder, which the paths of settings are relative to */
} Place;

static inline int set_up(void **state) {
  Arena *a = arena_new();
  Place *p = arena_new_of(a, Place);
  p->a = a, p->dir = folder_new(a);
  p->source = arena_printf(a, "%s/model.mt", p->dir);
  *state = p;
  return 0;
}
static inline int tear_down(void **state) {
  Place *p = *state;
  folder_remove(p->dir);
  arena_free(p->a);
  return 0;
}

#endif
