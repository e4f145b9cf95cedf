/* cmd_import.c - `mtc import FILE.safetensors|INDEX.json|FOLDER --map F.mt -o OUT.mtck`: published
 * weights as a checkpoint of step 0, under the model's own paths. `init = "OUT.mtck"` starts
 * training from it. Streams: one tensor at a time. */
#include "cli_weights.h"

#include "../runtime/checkpoint.h"

#include <errno.h>
#include <string.h>

typedef struct {
  const WeightSlots *slots;
  const SafeTensors *file;
} ImportSource;

/* Floats stay in the file's dtype, so that nothing is lost; loading rounds them to what the plan
 * wants. */
static DType stored_dtype(const WeightSlot *s, const StEntry *e) {
  return dtype_is_float(s->dtype) ? (DType)e->dtype : s->dtype;
}

static bool fetch(void *context, int i, void *to, Fail *f) {
  const ImportSource *source = context;
  const WeightSlot *s = &source->slots->at[i];
  const StEntry *e = st_find(source->file, s->key);
  bool ok = weights_import(s, e, stored_dtype(s, e), to, f);
  st_release(source->file, e);
  return ok;
}

static bool write_checkpoint(Cli *c, const Job *job, const WeightSlots *slots,
                             const SafeTensors *file, Fail *f) {
  StEntry *e = arena_array(c->arena, StEntry, slots->n + 1);
  for (int i = 0; i < slots->n; i++) {
    const WeightSlot *s = &slots->at[i];
    e[i] = (StEntry){.name = s->path, .rank = s->rank};
    e[i].dtype = (int)stored_dtype(s, st_find(file, s->key));
    memcpy(e[i].dim, s->dim, sizeof e[i].dim);
  }
  TrainState state = {.seed = job->seed};
  ImportSource source = {slots, file};
  return checkpoint_write(c->flag.output, job->model, &state, e, slots->n, fetch, &source, f);
}

int cmd_import(Cli *c) {
  const char *path = c->args.at[0];
  if (!c->flag.map)
    return cli_usage(c, "import needs --map FILE.mt, the model whose weights these are");
  if (!c->flag.output) return cli_usage(c, "import needs -o FILE, the checkpoint to write");
  if (str_starts(path, "hf:") || strstr(path, "://"))
    return cli_usage(c, "`%s`: nothing is downloaded; fetch model.safetensors and import that",
                     path);
  if (path_exists(c->flag.output) && !c->flag.force)
    return cli_usage(c, "%s exists; --force overwrites it", c->flag.output);
  Job *job = cli_map_job(c, c->flag.map);
  if (!job) return EXIT_SOURCE;
  Fail f = {0};
  SafeTensors *file = st_open(path, &f);
  WeightSlots slots = cli_job_slots(c, job);
  WeightRules rules = {c->flag.ignore.at, c->flag.ignore.n, 0};
  if (file) weights_take_prefix(c->arena, &slots, file);
  bool ok = file && weights_match(&slots, file, path, &rules, &f) &&
            write_checkpoint(c, job, &slots, file, &f);
  st_close(file);
  if (!ok) return cli_failed(c, &f);
  printf("%d tensors mapped, %d ignored, 0 missing, 0 shape mismatches\n", slots.n, rules.ignored);
  return EXIT_OK;
}
