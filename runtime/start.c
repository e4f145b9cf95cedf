/* start.c - initial values, weights of others, or a checkpoint: see start.h. */
#include "start.h"

#include "variables.h"
#include "weights.h"

#include <stdlib.h>
#include <string.h>

/* Parameters and states from a checkpoint, such as `mtc import` makes: what it holds of them. */
static bool load_checkpoint(Replay *r, const char *file, Fail *f) {
  Checkpoint *c = checkpoint_open(file, f);
  bool ok = c != NULL;
  int loaded = 0;
  for (int i = 0; i < r->program->nvars && ok; i++) {
    const ProgramVar *v = &r->program->vars[i];
    if (v->role != PV_PARAM && v->role != PV_STATE) continue;
    BestCopy best = checkpoint_best(c, v->path);
    const StEntry *e = best.entry;
    void *own = NULL;
    if (!e) continue;
    if (e->rank != v->at.rank || memcmp(e->dim, v->at.dim, sizeof *e->dim * (size_t)e->rank) != 0)
      ok = fail_page(f, EXIT_IO, "E0302", "%s: %s has another shape in this model", file, v->path);
    else {
      const void *values = checkpoint_values(&best, &own, f);
      ok = values && variable_load(r, i, best.dtype, values, f);
    }
    free(own);
    checkpoint_release(c, e);
    loaded++;
  }
  if (ok && !loaded)
    ok = fail_page(f, EXIT_IO, "E0302", "%s holds none of this model's parameters", file);
  checkpoint_close(c);
  return ok;
}

static bool load_slot(Replay *r, const WeightSlot *s, const StEntry *e, Fail *f) {
  if (!s->transposed) return variable_load(r, s->var, (DType)e->dtype, e->data, f);
  void *turned = malloc((size_t)e->bytes + 1);
  if (!turned) return fail_set(f, EXIT_DEVICE, "no host memory for %s", s->path);
  bool ok = weights_import(s, e, (DType)e->dtype, turned, f) &&
            variable_load(r, s->var, (DType)e->dtype, turned, f);
  free(turned);
  return ok;
}

/* Initial weights: a checkpoint by paths, or a safetensors file through the map; relative to the
 * model's file. */
static bool load_weights(Replay *r, Arena *a, const char *path, Fail *f) {
  if (str_starts(path, "hf:"))
    return fail_page(f, EXIT_IO, "E0601",
                     "`init = \"%s\"` names a model of a hub, and nothing is downloaded here\n"
                     "  = download its model.safetensors and write `init = \"model.safetensors\"`",
                     path);
  const char *file = path_beside(a, r->program->source, path);
  if (!str_ends(path, ".safetensors") && !str_ends(path, ".json") && !path_is_folder(file))
    return load_checkpoint(r, file, f);
  SafeTensors *st = st_open(file, f);
  if (!st) return false;
  WeightSlots slots = weights_of_program(a, r->program);
  WeightRules rules = {0};
  weights_take_prefix(a, &slots, st);
  bool ok = weights_match(&slots, st, file, &rules, f);
  for (int i = 0; i < slots.n && ok; i++) {
    const WeightSlot *s = &slots.at[i];
    const StEntry *e = st_find(st, s->key);
    ok = load_slot(r, s, e, f);
    st_release(st, e);
  }
  st_close(st);
  return ok;
}

bool start_values(Replay *r, uint64_t seed, const Checkpoint *from, Fail *f) {
  const Program *p = r->program;
  bool fresh = !from || p->ckpt_only;
  if (!variables_init(r, seed, fresh, f)) return false;
  Arena *a = arena_new();
  bool ok = !fresh || !p->init || load_weights(r, a, p->init, f);
  arena_free(a);
  return ok && (!from || checkpoint_restore(from, r, f));
}
