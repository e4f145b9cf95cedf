/* data.c - opens the files of a data set and hands out samples by kind: see data.h. */
#include "data_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static bool map_file(DataSet *d, const char *path, Fail *f) {
  Shard s = {.path = arena_printf(d->arena, "%s", path)};
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  struct stat st;
  if (fd < 0 || fstat(fd, &st) != 0) {
    fail_page(f, EXIT_IO, "E0601", "data `%s`: cannot read %s: %s", d->name, path, strerror(errno));
    if (fd >= 0) close(fd);
    return false;
  }
  s.size = (size_t)st.st_size;
  if (!S_ISREG(st.st_mode)) {
    fail_page(f, EXIT_IO, "E0601", "data `%s`: %s is not a file", d->name, path);
  } else if (!s.size) {
    fail_page(f, EXIT_IO, "E0602", "data `%s`: %s is empty\n  = remove it or write it again",
              d->name, path);
  } else {
    void *map = mmap(NULL, s.size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED)
      fail_page(f, EXIT_IO, "E0601", "data `%s`: cannot map %s: %s", d->name, path,
                strerror(errno));
    else
      s.map = map;
  }
  close(fd);
  if (!s.map) return false;
  s.first = s.map;
  vec_push(d->arena, &d->shards, s);
  return true;
}

/* The files of a path or glob, in the order of their names. */
static bool map_files(DataSet *d, const char *source, const char *pattern, Fail *f) {
  const char *path = path_beside(d->arena, source, pattern);
  glob_t found;
  if (path_exists(path)) return map_file(d, path, f); /* its name may look like a pattern */
  int rc = glob(path, GLOB_ERR | GLOB_BRACE, NULL, &found);
  if (rc) {
    globfree(&found);
    return fail_page(f, EXIT_IO, "E0601",
                     "data `%s`: no file matches %s\n  = `%s` in %s is relative to that file",
                     d->name, path, pattern, source);
  }
  bool ok = true;
  for (size_t i = 0; i < found.gl_pathc && ok; i++) ok = map_file(d, found.gl_pathv[i], f);
  globfree(&found);
  return ok;
}

/* Picks files and the share of them: a val of its own, or the holdout at the end of train. */
static bool open_files(DataSet *d, const char *source, double *from, double *to, Fail *f) {
  const ProgramData *s = d->setting;
  *from = 0, *to = 1;
  if (d->val && s->val) return map_files(d, source, s->val, f);
  if (d->val && s->holdout <= 0)
    return fail_page(
        f, EXIT_IO, "E0602",
        "data `%s` has nothing to evaluate on\n  = give it `val = \"..\"` or `holdout = 0.1`",
        d->name);
  if (!s->train) return fail_page(f, EXIT_IO, "E0602", "data `%s` has no `train` files", d->name);
  double cut = s->val ? 1 : 1 - s->holdout;
  if (d->val)
    *from = cut;
  else
    *to = cut;
  return map_files(d, source, s->train, f);
}

DataSet *data_open(const ProgramData *setting, const char *source, bool val, const DataNeeds *needs,
                   Fail *f) {
  Arena *a = arena_new();
  DataSet *d = arena_new_of(a, DataSet);
  *d =
      (DataSet){.arena = a, .setting = setting, .needs = *needs, .val = val, .kind = setting->kind};
  d->name = setting->name ? setting->name : "data";
  double from, to;
  bool ok = open_files(d, source, &from, &to, f);
  if (ok && d->kind == RD_JSONL)
    ok = jsonl_index(d, from, to, f);
  else if (ok && (d->kind == RD_TOKENS || d->kind == RD_TEXT))
    ok = tokens_index(d, from, to, f);
  else if (ok)
    ok = fail_page(f, EXIT_IO, "E0490", "data `%s`: this format cannot be read yet", d->name);
  if (ok) return d;
  data_close(d);
  return NULL;
}

void data_close(DataSet *d) {
  if (!d) return;
  for (int i = 0; i < d->shards.n; i++)
    munmap((void *)(uintptr_t)d->shards.at[i].map, d->shards.at[i].size);
  arena_free(d->arena);
}

int64_t data_samples(const DataSet *d) {
  return d->samples;
}
int64_t data_all_tokens(const DataSet *d) {
  return d->tokens;
}

int64_t data_sample(const DataSet *d, int64_t i, int32_t *inputs, int32_t *targets,
                    uint8_t *present) {
  ensure(i >= 0 && i < d->samples, "sample %lld of %lld", (long long)i, (long long)d->samples);
  return d->kind == RD_JSONL ? jsonl_sample(d, i, inputs, targets, present)
                             : tokens_sample(d, i, inputs, targets, present);
}
