/* cmd_check.c - `mtc check F.mt ..`: parse, elaborate and check every shape; one line a model when
 * all is well. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "frontend/cli.h"

static double seconds_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void print_line(Cli *c, const Job *j) {
  printf("%s: %s%s%s%s, %s parameters", j->path, j->model, j->preset ? "(" : "",
         j->preset ? j->preset : "", j->preset ? ")" : "", format_count(c->arena, j->params));
  if (j->trainable != j->params)
    printf(", %s of them trained", format_count(c->arena, j->trainable));
  if (j->layers > 0) printf(", %d layers", j->layers);
  putchar('\n');
}

/* Blocks of a file without a model: shapes of a block are known only where it is used. -1: it has a
 * model, or cannot be parsed. */
static int library_blocks(const char *path) {
  Arena *a = arena_new();
  Diags *d = diags_new(a);
  const File *f = mt_parse_file(a, d, path);
  int blocks = 0;
  for (int i = 0; f && i < f->items.n && blocks >= 0; i++) {
    ItemKind kind = f->items.at[i]->kind;
    if (kind == IT_BLOCK) blocks++;
    if (kind == IT_MODEL || kind == IT_DERIVE || kind == IT_SECTION) blocks = -1;
  }
  bool ok = f && d->errors == 0 && blocks > 0;
  arena_free(a);
  return ok ? blocks : -1;
}

static json_t *file_object(const char *path, const Job *j) {
  json_t *o = json_pack("{s:s, s:b}", "path", path, "ok", j != NULL);
  if (!j) return o;
  json_object_set_new(o, "model", json_string(j->model));
  json_object_set_new(o, "preset", j->preset ? json_string(j->preset) : json_null());
  json_object_set_new(o, "params", json_integer(j->params));
  json_object_set_new(o, "trainable", json_integer(j->trainable));
  json_object_set_new(o, "layers", json_integer(j->layers));
  return o;
}

/* The renderer writes one object a line. */
static json_t *diagnostics_array(const Diags *d) {
  char *text = NULL;
  size_t size = 0;
  FILE *f = open_memstream(&text, &size);
  ensure(f, "out of memory");
  diag_render_json(d, f);
  fclose(f);
  json_t *list = json_array();
  for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
    json_t *one = line[0] ? json_loads(line, 0, NULL) : NULL;
    if (one) json_array_append_new(list, one);
  }
  free(text);
  return list;
}

static void print_json(const Diags *d, json_t *files) {
  json_t *o = json_pack("{s:s, s:b, s:o, s:o}", "schema", "mtc.check/1", "ok", d->errors == 0,
                        "files", files, "diagnostics", diagnostics_array(d));
  ensure(o, "json");
  json_dumpf(o, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII);
  putchar('\n');
  json_decref(o);
}

static void check_library(Cli *c, const char *path, int blocks, json_t *files) {
  if (c->flag.json)
    json_array_append_new(files,
                          json_pack("{s:s, s:b, s:i}", "path", path, "ok", 1, "blocks", blocks));
  else if (!c->flag.quiet)
    printf("%s: %d block%s, no model: shapes are checked where they are used\n", path, blocks,
           blocks == 1 ? "" : "s");
}

static void check_model(Cli *c, const char *path, json_t *files) {
  JobArgs args = c->job;
  args.path = path;
  int before = c->diags->errors;
  Job *j = elaborate(c->arena, c->diags, &args);
  if (c->diags->errors > before) j = NULL;
  if (c->flag.json)
    json_array_append_new(files, file_object(path, j));
  else if (j && !c->flag.quiet)
    print_line(c, j);
}

int cmd_check(Cli *c) {
  json_t *files = json_array();
  for (int i = 0; i < c->args.n && !diag_full(c->diags); i++) {
    const char *path = c->args.at[i];
    double start = seconds_now();
    int blocks = library_blocks(path);
    if (blocks > 0)
      check_library(c, path, blocks, files);
    else
      check_model(c, path, files);
    if (c->flag.time)
      fprintf(stderr, "time  %-12s %8.2f ms  %s\n", "check", (seconds_now() - start) * 1e3, path);
  }
  bool ok = c->diags->errors == 0;
  if (c->flag.json) {
    print_json(c->diags, files);
  } else {
    json_decref(files);
  }
  if (c->flag.json && !ok) return EXIT_SOURCE;
  if (ok && !c->flag.json) cli_next(c, "mtc plan %s --vram 24G", c->args.at[0]);
  return EXIT_OK;
}
