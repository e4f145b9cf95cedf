/* Any bytes through the parser; what parses without errors also through the formatter, which must
 * keep the tree and be idempotent. Run with models/ as the corpus. */
#include <stdlib.h>
#include <string.h>
#include "frontend/ast.h"

static void check_format(Arena *a, Diags *d, const File *f, const char *text) {
  Str once = {.arena = a}, twice = {.arena = a}, tree = {.arena = a}, new_tree = {.arena = a};
  mt_format(f, text, &once);
  File *again = mt_parse_text(a, d, "formatted", once.text, once.len);
  if (d->errors) abort();
  mt_format(again, once.text, &twice);
  mt_dump(f, &tree);
  mt_dump(again, &new_tree);
  if (strcmp(once.text, twice.text) || strcmp(tree.text, new_tree.text)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Arena *a = arena_new();
  Diags *d = diags_new(a);
  char *text = arena_alloc(a, size + 1);
  memcpy(text, data, size);
  File *f = mt_parse_text(a, d, "fuzz.mt", text, size);
  if (!f) abort();
  if (d->errors == 0) {
    check_format(a, d, f, text);
  } else {
    static FILE *nowhere;
    if (!nowhere) nowhere = fopen("/dev/null", "w");
    if (nowhere) diag_render(d, nowhere, false);
  }
  arena_free(a);
  return 0;
}
