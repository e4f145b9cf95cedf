/* gemm_table.c - see gemm_table.h. Input and output: lines of
 * "KEY ALGO x 8 WORKSPACE US RULE_US WHAT", numbers in hexadecimal but for the times, after a first
 * line that names the format and the machine. Choices keep the order in which they came. */
#include "gemm_table.h"

#include <stdlib.h>
#include <string.h>

static const char format[] = "mtc.products/1 ";

GemmTable gemm_table_new(Arena *a, const char *machine) {
  return (GemmTable){.arena = a, .machine = machine};
}

char *gemm_table_path(Arena *a, const char *machine) {
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  unsigned long long id = (unsigned long long)hash_text(machine);
  return cache && *cache ? arena_printf(a, "%s/mtc/products-%016llx.txt", cache, id)
                         : arena_printf(a, "%s/.cache/mtc/products-%016llx.txt",
                                        home && *home ? home : "/tmp", id);
}

/* ---- lookup ---- */
static int index_of(const GemmTable *t, uint64_t key) {
  for (int i = 0; i < t->all.n; i++)
    if (t->all.at[i].key == key) return i;
  return -1;
}

const GemmChoice *gemm_table_find(const GemmTable *t, uint64_t key) {
  int i = index_of(t, key);
  return i < 0 ? NULL : &t->all.at[i];
}

void gemm_table_put(GemmTable *t, GemmChoice c) {
  int i = index_of(t, c.key);
  if (i >= 0)
    t->all.at[i] = c;
  else
    vec_push(t->arena, &t->all, c);
}

void gemm_table_drop(GemmTable *t, uint64_t key) {
  int i = index_of(t, key);
  if (i < 0) return;
  t->all.n--;
  for (; i < t->all.n; i++) t->all.at[i] = t->all.at[i + 1];
}

/* ---- files ---- */
static bool read_hex(char **at, uint64_t *to) {
  char *end;
  *to = strtoull(*at, &end, 16);
  bool ok = end > *at && *end == ' ';
  *at = end + ok;
  return ok;
}

static bool read_line(char *line, GemmChoice *c) {
  bool ok = read_hex(&line, &c->key);
  for (int i = 0; ok && i < COUNT_OF(c->algo); i++) ok = read_hex(&line, &c->algo[i]);
  ok = ok && read_hex(&line, &c->workspace);
  if (!ok) return false;
  char *end;
  c->us = strtod(line, &end);
  if (end == line) return false;
  c->rule_us = strtod(line = end, &end);
  if (end == line || *end != ' ') return false;
  c->what = end + 1;
  return true;
}

bool gemm_table_read(GemmTable *t, const char *path) {
  size_t size;
  char *text = read_file(t->arena, path, &size), *line;
  if (!text || strlen(text) != size) return false;
  line = strsep(&text, "\n");
  if (!str_starts(line, format) || strcmp(line + sizeof format - 1, t->machine) != 0) return false;
  VEC(GemmChoice) all = {0};
  while ((line = strsep(&text, "\n"))) {
    GemmChoice c = {0};
    if (!*line) continue;
    if (!read_line(line, &c)) return false;
    vec_push(t->arena, &all, c);
  }
  for (int i = 0; i < all.n; i++) gemm_table_put(t, all.at[i]);
  return true;
}

bool gemm_table_write(const GemmTable *t, const char *path) {
  Str s = {.arena = t->arena};
  str_addf(&s, "%s%s\n", format, t->machine);
  for (int i = 0; i < t->all.n; i++) {
    const GemmChoice *c = &t->all.at[i];
    str_addf(&s, "%016llx", (unsigned long long)c->key);
    for (int k = 0; k < COUNT_OF(c->algo); k++)
      str_addf(&s, " %llx", (unsigned long long)c->algo[k]);
    str_addf(&s, " %llx %.1f %.1f %s\n", (unsigned long long)c->workspace, c->us, c->rule_us,
             c->what);
  }
  char *folder = arena_printf(t->arena, "%s", path), *slash = strrchr(folder, '/');
  if (slash && slash > folder) {
    *slash = 0;
    if (!make_dirs(folder)) return false;
  }
  return write_file_atomic(path, s.text, s.len);
}
