/* run_dir.c - the folder of a run: model.mtx, metrics.jsonl, products.txt, step-N.mtck. Refuses to
 * mix two runs. */
#include "train_parts.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static bool is_ours(const char *name) {
  return !strcmp(name, "metrics.jsonl") || !strcmp(name, "model.mtx") ||
         !strcmp(name, "products.txt") || (str_starts(name, "step-") && strstr(name, ".mtck"));
}

/* Counts files of a run in dir; removes them when asked to. */
static int visit(const char *dir, bool remove_them) {
  Arena *a = arena_new();
  int n = 0;
  DIR *d = opendir(dir);
  for (struct dirent *e; d && (e = readdir(d));) {
    if (!is_ours(e->d_name)) continue;
    n++;
    if (remove_them) unlink(arena_printf(a, "%s/%s", dir, e->d_name));
  }
  if (d) closedir(d);
  arena_free(a);
  return n;
}

bool run_dir_open(const TrainOptions *o, Checkpoint **from, Fail *f) {
  *from = NULL;
  if (!make_dirs(o->dir) || access(o->dir, W_OK) != 0)
    return fail_page(f, EXIT_IO, "E0601", "cannot write to the folder %s: %s", o->dir,
                     strerror(errno));
  if (o->resume) {
    *from = checkpoint_newest(o->dir, f);
    return !f->code;
  }
  if (o->force || !visit(o->dir, false)) return true;
  return fail_set(f, EXIT_USAGE,
                  "%s holds a run already\n  = --resume goes on with it, --force starts over, "
                  "-o names another folder",
                  o->dir);
}

/* Bytes of the run in dir. */
static int64_t held_bytes(Arena *a, const char *dir) {
  int64_t bytes = 0;
  struct stat s;
  DIR *d = opendir(dir);
  for (struct dirent *e; d && (e = readdir(d));)
    if (is_ours(e->d_name) && !stat(arena_printf(a, "%s/%s", dir, e->d_name), &s))
      bytes += (int64_t)s.st_blocks * 512;
  if (d) closedir(d);
  return bytes;
}

bool run_dir_room(const TrainOptions *o, const Program *p, Fail *f) {
  struct statvfs s;
  if (o->no_checkpoint || statvfs(o->dir, &s) != 0 || !s.f_blocks) return true;
  Arena *a = arena_new();
  int64_t need = checkpoint_size(p), have = mul64((int64_t)s.f_bavail, (int64_t)s.f_frsize);
  if (!o->resume) have += held_bytes(a, o->dir);
  bool ok = need <= have;
  if (!ok)
    fail_page(f, EXIT_IO, "E0601",
              "a checkpoint of this model takes %s, and the disk of %s has %s left\n  = -o names "
              "another folder, "
              "--no-checkpoint writes none",
              format_bytes(a, need), o->dir, format_bytes(a, have));
  arena_free(a);
  return ok;
}

bool run_dir_store_program(const TrainOptions *o, const Program *p, Fail *f) {
  char path[1024];
  const char *why;
  if (!o->resume) visit(o->dir, true);
  snprintf(path, sizeof path, "%s/model.mtx", o->dir);
  return mtx_write(p, path, &why) || fail_page(f, EXIT_IO, "E0601", "%s", why);
}
