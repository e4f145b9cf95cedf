/* cmd_fmt.c - `mtc fmt [--check] F.mt ..`: canonical layout, in place and atomically.
 *
 * Before anything is written the result is parsed again: a layout that changed the meaning would be
 * a bug and never reaches the disk. */
#include <errno.h>
#include <string.h>
#include "frontend/ast.h"
#include "frontend/cli.h"

/* The formatted text, or NULL with diagnostics added. */
static const char *format(Cli *c, const char *path, const char *text, size_t size,
                          size_t *out_size) {
  int before = c->diags->errors;
  File *f = mt_parse_text(c->arena, c->diags, path, text, size);
  if (c->diags->errors > before) return NULL;
  Str out = {.arena = c->arena}, old_tree = {.arena = c->arena}, new_tree = {.arena = c->arena};
  mt_format(f, text, &out);
  File *again = mt_parse_text(c->arena, c->diags, path, out.text, out.len);
  mt_dump(f, &old_tree);
  mt_dump(again, &new_tree);
  ensure(c->diags->errors == before && !strcmp(old_tree.text, new_tree.text),
         "fmt changed the meaning of %s", path);
  *out_size = out.len;
  return out.text;
}

static int write_result(Cli *c, const char *path, const char *text, size_t size) {
  if (!strcmp(path, "-")) {
    fwrite(text, 1, size, stdout);
    return EXIT_OK;
  }
  if (write_file_atomic(path, text, size)) return EXIT_OK;
  return cli_fail(c, EXIT_IO, "cannot write `%s`: %s", path, strerror(errno));
}

static int one_file(Cli *c, const char *path, bool *changed) {
  size_t size = 0, new_size = 0;
  const char *text = read_file(c->arena, path, &size);
  if (!text) {
    diag_error(c->diags, E_FILE, NO_LOC, "cannot read `%s`: %s", path, strerror(errno));
    return EXIT_SOURCE;
  }
  const char *out = format(c, path, text, size, &new_size);
  if (!out) return EXIT_SOURCE;
  bool same = new_size == size && !memcmp(out, text, size);
  if (c->flag.check) {
    if (!same) printf("%s\n", path);
    *changed |= !same;
    return EXIT_OK;
  }
  if (c->flag.output) return write_result(c, c->flag.output, out, new_size);
  if (same) return EXIT_OK;
  if (c->flag.verbose) fprintf(stderr, "formatted %s\n", path);
  return write_result(c, path, out, new_size);
}

int cmd_fmt(Cli *c) {
  if (c->flag.output && c->args.n > 1) return cli_usage(c, "-o takes the result of one file");
  if (c->flag.output && c->flag.check) return cli_usage(c, "--check writes nothing: leave out -o");
  bool changed = false;
  int code = EXIT_OK;
  for (int i = 0; i < c->args.n; i++) {
    int one = one_file(c, c->args.at[i], &changed);
    if (one != EXIT_OK) code = one;
  }
  return code != EXIT_OK ? code : changed ? EXIT_SOURCE : EXIT_OK;
}
