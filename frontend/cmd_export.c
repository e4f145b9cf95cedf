/* cmd_export.c - `mtc export RUN|FILE.mtck [--map F.mt] -o OUT.safetensors|FOLDER`: a checkpoint
 * under the keys and in the layout of a `weights` map, in shards when it is large. The most precise
 * copy of each parameter is taken: its master where there is one. */
#include "cli_weights.h"

#include "../runtime/checkpoint.h"
#include "../runtime/convert.h"
#include "../runtime/program.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  const Checkpoint *checkpoint;
  const WeightSlots *slots;
  const BestCopy *from; /* per slot: in the checkpoint */
  const StEntry *to;    /* per slot: as it is written */
} ExportSource;

static bool fetch(void *context, int i, void *to, Fail *f) {
  const ExportSource *s = context;
  const BestCopy *from = &s->from[i];
  void *own;
  const void *values = checkpoint_values(from, &own, f);
  bool ok =
      values && weights_export(&s->slots->at[i], from->dtype, values, (DType)s->to[i].dtype, to, f);
  free(own);
  checkpoint_release(s->checkpoint, from->entry);
  if (from->low) checkpoint_release(s->checkpoint, from->low);
  return ok;
}

/* By --map, else by the program beside the checkpoint. */
static bool find_slots(Cli *c, const char *run, WeightSlots *slots, Fail *f) {
  if (c->flag.map) {
    Job *job = cli_map_job(c, c->flag.map);
    if (job) *slots = cli_job_slots(c, job);
    return job != NULL;
  }
  const char *path = path_is_folder(run) ? arena_printf(c->arena, "%s/model.mtx", run)
                                         : path_beside(c->arena, run, "model.mtx");
  const char *why;
  Program *p = mtx_read(c->arena, path, &why);
  if (!p)
    return fail_page(f, EXIT_IO, "E0601", "%s\n  = --map FILE.mt names the model instead", why);
  *slots = weights_of_program(c->arena, p);
  return true;
}

/* What is missing or has another shape in the checkpoint, together. */
static bool match(Cli *c, const Checkpoint *from, const WeightSlots *slots, BestCopy *found,
                  Fail *f) {
  Str lines = {.arena = c->arena};
  int wrong = 0;
  for (int i = 0; i < slots->n; i++) {
    const WeightSlot *s = &slots->at[i];
    found[i] = checkpoint_best(from, s->path);
    const StEntry *e = found[i].entry;
    bool fits =
        e && e->rank == s->rank && !memcmp(e->dim, s->dim, sizeof *s->dim * (size_t)s->rank);
    if (fits || wrong++ >= 20) continue;
    str_addf(&lines, "\n  %s  %s for %s", e ? "mis-shaped" : "missing   ", s->path, s->key);
  }
  return !wrong || fail_page(f, EXIT_IO, "E0302", "%s does not fit the map: %d of its variables%s",
                             from->path, wrong, lines.text);
}

/* Returns the number of files, 0 on failure. */
static int export_to(Cli *c, const Checkpoint *from, const WeightSlots *slots, const char *path,
                     Fail *f) {
  BestCopy *found = arena_array(c->arena, BestCopy, slots->n + 1);
  StEntry *to = arena_array(c->arena, StEntry, slots->n + 1);
  if (!match(c, from, slots, found, f)) return 0;
  for (int i = 0; i < slots->n; i++) {
    const WeightSlot *s = &slots->at[i];
    to[i] = (StEntry){.name = s->key, .dtype = (int)found[i].dtype, .rank = s->rank};
    if (c->flag.dtype && dtype_is_float((DType)to[i].dtype))
      to[i].dtype = dtype_by_name(c->flag.dtype);
    weights_file_dims(s, to[i].dim);
  }
  ExportSource source = {from, slots, found, to};
  return st_write_shards(path, to, slots->n, c->flag.max_shard.bytes, fetch, &source, f);
}

/* OUT.safetensors; of a folder, which is made when it ends in `/`: its model.safetensors. NULL after
 * a failure. */
static const char *output_path(Cli *c, Fail *f) {
  const char *path = c->flag.output;
  bool slash = str_ends(path, "/");
  if (slash && !make_dirs(path)) {
    fail_page(f, EXIT_IO, "E0601", "cannot make the folder %s: %s", path, strerror(errno));
    return NULL;
  }
  if (!path_is_folder(path)) return path;
  return arena_printf(c->arena, "%s%smodel.safetensors", path, slash ? "" : "/");
}

static const char *existing(Cli *c, const char *path) {
  if (path_exists(path)) return path;
  const char *index = st_index_path(c->arena, path);
  return path_exists(index) ? index : NULL;
}

static void say_written(Cli *c, const Checkpoint *from, int tensors, int files, const char *path) {
  printf("%d tensors of step %lld written to ", tensors, (long long)from->state.step);
  if (files == 1)
    printf("%s\n", path);
  else
    printf("%d files and %s\n", files, st_index_path(c->arena, path));
}

int cmd_export(Cli *c) {
  const char *run = c->args.at[0];
  if (!c->flag.output) return cli_usage(c, "export needs -o FILE.safetensors or -o FOLDER");
  if (c->flag.max_shard.bytes < 1)
    return cli_usage(c, "--max-shard is a number of bytes, such as 5GB, not `%s`",
                     c->flag.max_shard.text);
  Fail f = {0};
  const char *path = output_path(c, &f);
  if (!path) return cli_failed(c, &f);
  const char *old = existing(c, path);
  if (old && !c->flag.force) return cli_usage(c, "%s exists; --force overwrites it", old);
  WeightSlots slots = {0};
  if (!find_slots(c, run, &slots, &f)) return f.code ? cli_failed(c, &f) : EXIT_SOURCE;
  Checkpoint *from = path_is_folder(run) ? checkpoint_newest(run, &f) : checkpoint_open(run, &f);
  if (!from && !f.code) fail_page(&f, EXIT_IO, "E0601", "%s has no checkpoint", run);
  int files = from ? export_to(c, from, &slots, path, &f) : 0;
  if (files) say_written(c, from, slots.n, files, path);
  checkpoint_close(from);
  return files ? EXIT_OK : cli_failed(c, &f);
}
