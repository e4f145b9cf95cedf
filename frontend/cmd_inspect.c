/* cmd_inspect.c - `mtc inspect X`: what is in a model, a program, a checkpoint or a weights file.
 * What X is, its name or its first bytes say. One object is built; --json prints it, else the same
 * is written for people. */
#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "frontend/cli.h"
#include "frontend/cli_diff.h"
#include "runtime/checkpoint.h"
#include "runtime/program.h"

static json_t *dims_json(int rank, const int64_t *dim) {
  json_t *list = json_array();
  for (int k = 0; k < rank; k++) json_array_append_new(list, json_integer(dim[k]));
  return list;
}

static char *dims_text(Arena *a, int rank, const int64_t *dim) {
  Shape s = shape_of(rank, dim);
  return shape_text(a, &s);
}

static void put(json_t *o, const char *key, const char *text) {
  json_object_set_new(o, key, text ? json_string(text) : json_null());
}
static void put_int(json_t *o, const char *key, int64_t v) {
  json_object_set_new(o, key, json_integer(v));
}

static json_t *begin(const char *kind, const char *path) {
  json_t *o = json_object();
  put(o, "schema", "mtc.inspect/1");
  put(o, "kind", kind);
  put(o, "path", path);
  return o;
}

static json_t *tensor_json(const char *name, const char *dtype, int rank, const int64_t *dim) {
  json_t *x = json_object();
  put(x, "path", name);
  put(x, "dtype", dtype);
  json_object_set_new(x, "shape", dims_json(rank, dim));
  return x;
}

static void print_tensor(Cli *c, const char *name, const char *dtype, int rank, const int64_t *dim,
                         const char *remark) {
  printf("  %-40s %-5s %s%s%s\n", name, dtype, dims_text(c->arena, rank, dim), *remark ? "   " : "",
         remark);
}

static int finish(Cli *c, json_t *o) {
  if (c->flag.json) {
    json_dumpf(o, stdout, JSON_INDENT(2));
    putchar('\n');
  }
  json_decref(o);
  return EXIT_OK;
}

/* ---- .mt ---- */

static int inspect_model(Cli *c) {
  Job *j = elaborate(c->arena, c->diags, &c->job);
  if (!j || c->diags->errors > 0) return EXIT_SOURCE;
  json_t *o = begin("model", j->path), *list = json_array();
  put(o, "model", j->model);
  put(o, "preset", j->preset);
  put_int(o, "params", j->params);
  put_int(o, "trainable", j->trainable);
  put_int(o, "layers", j->layers);
  if (!c->flag.json) {
    printf("%s%s%s%s   %s params", j->model, j->preset ? "(" : "", j->preset ? j->preset : "",
           j->preset ? ")" : "", format_count(c->arena, j->params));
    if (j->trainable != j->params) printf("   %s trained", format_count(c->arena, j->trainable));
    printf("   %d layers\n", j->layers);
  }
  for (int i = 0; i < j->vars->all.n; i++) {
    const Var *v = &j->vars->all.at[i];
    if (v->role != VAR_PARAM && v->role != VAR_STATE) continue;
    json_t *x = tensor_json(v->path, dtype_name(v->dtype), v->shape.rank, v->shape.dim);
    json_object_set_new(x, "trainable", json_boolean(v->role == VAR_PARAM && v->trainable));
    json_array_append_new(list, x);
    const char *remark = v->role == VAR_STATE ? "state" : v->trainable ? "" : "frozen";
    if (!c->flag.json)
      printf("  %-40s %s%s%s\n", v->path, shape_text(c->arena, &v->shape), *remark ? "   " : "",
             remark);
  }
  json_object_set_new(o, "parameters", list);
  return finish(c, o);
}

/* ---- .mtx ---- */

static int64_t image_bytes(const Program *p) {
  int64_t n = 0;
  for (int i = 0; i < p->nimages; i++) n += (int64_t)p->images[i].size;
  return n;
}

/* ": 34 moments, 17 master weights": the variables that live on the host, by role. */
static const char *host_roles(Cli *c, const Program *p) {
  static const char *const name[] = {[PV_PARAM] = "weights", [PV_STATE] = "states", [PV_MASTER] = "master weights", [PV_MOMENT] = "moments",
                                     [PV_ACCUM] = "gradients", [PV_SCALAR] = "scalars", [PV_METRIC] = "metrics", [PV_OPT] = "other state"};
  Str s = {.arena = c->arena};
  for (int role = 0; role < COUNT_OF(name); role++) {
    int n = 0;
    for (int i = 0; i < p->nvars; i++) n += p->vars[i].at.host && p->vars[i].role == (ProgramVarRole)role;
    if (n > 0) str_addf(&s, "%s%d %s", s.len ? ", " : "", n, name[role]);
  }
  return s.text ? s.text : "";
}

static void program_text(Cli *c, const Program *p) {
  printf("%s%s%s%s   %s params   plan %08x\n", p->model, p->preset ? "(" : "",
         p->preset ? p->preset : "", p->preset ? ")" : "", format_count(c->arena, p->params),
         (unsigned)(p->plan_id >> 32));
  printf("  source    %s\n  target    %s   needs %s (arena %s)\n", p->source, p->target,
         format_bytes(c->arena, p->peak_bytes), format_bytes(c->arena, p->arena_bytes));
  if (p->host_bytes > 0)
    printf("  host      %s pinned: %s\n", format_bytes(c->arena, p->host_bytes), host_roles(c, p));
  printf("  kernels   %d unique, %s of images for", p->nkernels,
         format_bytes(c->arena, image_bytes(p)));
  for (int i = 0; i < p->nimages; i++) printf("%s %s", i ? "," : "", p->images[i].arch);
  puts(p->nimages ? "" : " no architecture");
  for (int i = 0; i < p->nprograms; i++)
    printf("  program   %-8s %d commands\n", p->programs[i].name, p->programs[i].ncmds);
  for (int i = 0; i < p->nphases; i++)
    printf("  phase     %-8s B=%lld x %lld accumulation\n",
           *p->phases[i].name ? p->phases[i].name : "train", (long long)p->phases[i].micro_batch,
           (long long)p->phases[i].accumulation);
}

static int inspect_program(Cli *c, const char *path) {
  const char *why = NULL;
  Program *p = mtx_read(c->arena, path, &why);
  if (!p) return cli_fail(c, EXIT_IO, "%s", why);
  json_t *o = begin("program", path), *list = json_array();
  put(o, "model", p->model);
  put(o, "preset", p->preset);
  put(o, "source", p->source);
  put(o, "target", p->target);
  put(o, "plan", arena_printf(c->arena, "%08x", (unsigned)(p->plan_id >> 32)));
  put_int(o, "params", p->params);
  put_int(o, "peak_bytes", p->peak_bytes);
  put_int(o, "arena_bytes", p->arena_bytes);
  put_int(o, "host_bytes", p->host_bytes);
  put_int(o, "budget_bytes", p->budget_bytes);
  put_int(o, "kernels", p->nkernels);
  put_int(o, "image_bytes", image_bytes(p));
  for (int i = 0; i < p->nprograms; i++) {
    json_t *x = json_object();
    put(x, "name", p->programs[i].name);
    put_int(x, "commands", p->programs[i].ncmds);
    json_array_append_new(list, x);
  }
  json_object_set_new(o, "programs", list);
  list = json_array();
  for (int i = 0; i < p->nvars; i++)
    json_array_append_new(list, tensor_json(p->vars[i].path, dtype_name(p->vars[i].at.dtype),
                                            p->vars[i].at.rank, p->vars[i].at.dim));
  json_object_set_new(o, "variables", list);
  if (!c->flag.json) program_text(c, p);
  return finish(c, o);
}

/* ---- checkpoints and weights ---- */

static int failed(Cli *c, const Fail *f) {
  return cli_fail(c, f->code ? f->code : EXIT_IO, "%s", f->text);
}

static int inspect_checkpoint(Cli *c, const char *path) {
  Fail f = {0};
  Checkpoint *k = checkpoint_open(path, &f);
  if (!k) return failed(c, &f);
  json_t *o = begin("checkpoint", path), *list = json_array();
  put(o, "model", k->model);
  put_int(o, "step", k->state.step);
  put_int(o, "phase", k->state.phase);
  put_int(o, "seed", (int64_t)k->state.seed);
  put_int(o, "skipped", k->state.skipped);
  put(o, "plan", arena_printf(c->arena, "%08x", (unsigned)(k->state.plan_id >> 32)));
  if (!c->flag.json)
    printf("%s   step %lld   plan %08x   %d variables, %s\n", k->model, (long long)k->state.step,
           (unsigned)(k->state.plan_id >> 32), k->nvars, format_bytes(c->arena, (int64_t)k->size));
  for (int i = 0; i < k->nvars; i++) {
    const StEntry *v = &k->vars[i];
    json_array_append_new(list, tensor_json(v->name, v->dtype_text, v->rank, v->dim));
    if (!c->flag.json) print_tensor(c, v->name, v->dtype_text, v->rank, v->dim, "");
  }
  json_object_set_new(o, "variables", list);
  checkpoint_close(k);
  return finish(c, o);
}

static int inspect_weights(Cli *c, const char *path) {
  Fail f = {0};
  SafeTensors *s = st_open(path, &f);
  if (!s) return failed(c, &f);
  json_t *o = begin("weights", path), *list = json_array();
  int64_t count = 0;
  for (int i = 0; i < st_count(s); i++) {
    const StEntry *v = st_at(s, i);
    Shape shape = shape_of(v->rank, v->dim);
    count += shape_count(&shape);
    json_array_append_new(list, tensor_json(v->name, v->dtype_text, v->rank, v->dim));
  }
  put_int(o, "params", count);
  json_object_set_new(o, "tensors", list);
  if (!c->flag.json) {
    printf("%d tensors, %s elements\n", st_count(s), format_count(c->arena, count));
    for (int i = 0; i < st_count(s); i++)
      print_tensor(c, st_at(s, i)->name, st_at(s, i)->dtype_text, st_at(s, i)->rank,
                   st_at(s, i)->dim, "");
  }
  st_close(s);
  return finish(c, o);
}

int cmd_inspect(Cli *c) {
  if (c->flag.diff) return cli_diff(c);
  if (c->args.n > 1) return cli_usage(c, "`mtc inspect` takes one file, or two with --diff");
  const char *path = c->args.at[0];
  if (str_ends(path, ".mt")) return inspect_model(c);
  if (!path_exists(path)) return cli_fail(c, EXIT_IO, "%s: %s", path, strerror(ENOENT));
  if (str_ends(path, ".mtx")) return inspect_program(c, path);
  if (str_ends(path, ".mtck")) return inspect_checkpoint(c, path);
  if (str_ends(path, ".safetensors") || str_ends(path, ".json") || path_is_folder(path))
    return inspect_weights(c, path);
  return cli_usage(c, "`%s` is none of .mt, .mtx, .mtck and .safetensors", path);
}
