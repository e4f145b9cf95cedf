/* safetensors_write.c - writer: header first, then one tensor after another, each fetched when its
 * turn comes; shards and their index. */
#include "safetensors.h"
#include "outfile.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *dtype_text(int dtype) {
  static const char *const text[DT_COUNT] = {
      [DT_F32] = "F32", [DT_BF16] = "BF16", [DT_F16] = "F16", [DT_I32] = "I32", [DT_U32] = "U32",
      [DT_I8] = "I8",   [DT_BOOL] = "BOOL", [DT_U16] = "U16", [DT_U8] = "U8"};
  return text[dtype];
}

static int64_t entry_bytes(const StEntry *e) {
  int64_t n = dtype_bytes((DType)e->dtype);
  for (int i = 0; i < e->rank; i++) n = mul64(n, e->dim[i]);
  return n;
}

/* Wide elements first, so that every tensor is aligned to its element; else the order given. */
static void order_entries(const StEntry *e, int n, int *order) {
  int at = 0;
  for (int bytes = 8; bytes >= 1; bytes /= 2)
    for (int i = 0; i < n; i++)
      if (dtype_bytes((DType)e[i].dtype) == bytes) order[at++] = i;
  ensure(at == n, "an element type of odd size");
}

static char *header_text(const StEntry *entries, const int *order, int n) {
  json_t *head = json_object();
  json_object_set_new(head, "__metadata__", json_pack("{s:s}", "format", "pt"));
  int64_t offset = 0;
  for (int k = 0; k < n; k++) {
    const StEntry *e = &entries[order[k]];
    json_t *shape = json_array();
    for (int i = 0; i < e->rank; i++) json_array_append_new(shape, json_integer(e->dim[i]));
    int64_t end = offset + entry_bytes(e);
    json_object_set_new(head, e->name,
                        json_pack("{s:s, s:o, s:[I,I]}", "dtype", dtype_text(e->dtype), "shape",
                                  shape, "data_offsets", (json_int_t)offset, (json_int_t)end));
    offset = end;
  }
  char *text = json_dumps(head, JSON_COMPACT | JSON_PRESERVE_ORDER);
  json_decref(head);
  ensure(text, "out of memory");
  return text;
}

static bool write_header(OutFile *o, const StEntry *entries, const int *order, int n, Fail *f) {
  char *text = header_text(entries, order, n);
  size_t len = strlen(text), padded = (size_t)round_up((int64_t)len, 8);
  uint8_t size[8];
  for (int i = 0; i < 8; i++) size[i] = (uint8_t)((uint64_t)padded >> 8 * i);
  bool ok = out_write(o, size, sizeof size, f) && out_write(o, text, len, f) &&
            out_write(o, "       ", padded - len, f);
  free(text);
  return ok;
}

bool st_write(const char *path, const StEntry *entries, int n, StFetch fetch, void *context,
              Fail *f) {
  OutFile o;
  if (!out_open(&o, path, NULL, f)) return false;
  int *order = malloc(sizeof *order * (size_t)(n + 1));
  int64_t most = 1;
  for (int i = 0; i < n; i++)
    most = entry_bytes(&entries[i]) > most ? entry_bytes(&entries[i]) : most;
  void *buffer = malloc((size_t)most);
  bool ok = order && buffer;
  if (!ok) fail_set(f, EXIT_DEVICE, "no host memory to write %s", path);
  if (ok) {
    order_entries(entries, n, order);
    ok = write_header(&o, entries, order, n, f);
  }
  for (int k = 0; k < n && ok; k++)
    ok = fetch(context, order[k], buffer, f) &&
         out_write(&o, buffer, (size_t)entry_bytes(&entries[order[k]]), f);
  free(buffer);
  free(order);
  if (ok) return out_commit(&o, f);
  out_abandon(&o);
  return false;
}

/* ---- shards ---- */

typedef struct {
  StFetch fetch;
  void *context;
  int first; /* entry of the shard's entry 0 */
} ShardSource;

static bool fetch_of_shard(void *context, int i, void *to, Fail *f) {
  const ShardSource *s = context;
  return s->fetch(s->context, s->first + i, to, f);
}

/* end[k]: one past the last entry of shard k. Returns how many there are. */
static int split_entries(const StEntry *entries, int n, int64_t most, int *end) {
  int shards = 0;
  int64_t held = 0;
  for (int i = 0; i < n; i++) {
    int64_t bytes = entry_bytes(&entries[i]);
    if (!shards || bytes > most - held) {
      shards++;
      held = 0;
    }
    held += bytes;
    end[shards - 1] = i + 1;
  }
  return shards;
}

/* "D/model.safetensors" -> "D/model" */
static char *stem_of(Arena *a, const char *path) {
  static const char suffix[] = ".safetensors";
  size_t n = strlen(path);
  return arena_printf(a, "%.*s", (int)(str_ends(path, suffix) ? n - strlen(suffix) : n), path);
}

static char *shard_path(Arena *a, const char *path, int k, int shards) {
  return arena_printf(a, "%s-%05d-of-%05d.safetensors", stem_of(a, path), k + 1, shards);
}

char *st_index_path(Arena *a, const char *path) {
  return arena_printf(a, "%s.safetensors.index.json", stem_of(a, path));
}

static const char *file_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

static bool write_index(Arena *a, const char *path, const StEntry *entries, const int *end,
                        int shards, Fail *f) {
  json_t *map = json_object();
  int64_t total = 0;
  for (int k = 0, i = 0; k < shards; k++)
    for (const char *file = file_name(shard_path(a, path, k, shards)); i < end[k]; i++) {
      json_object_set_new(map, entries[i].name, json_string(file));
      total += entry_bytes(&entries[i]);
    }
  json_t *index =
      json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
  char *text = json_dumps(index, JSON_INDENT(2) | JSON_SORT_KEYS);
  json_decref(index);
  ensure(text, "out of memory");
  const char *to = st_index_path(a, path);
  bool ok = write_file_atomic(to, text, strlen(text));
  if (!ok) fail_page(f, EXIT_IO, "E0601", "cannot write %s: %s", to, strerror(errno));
  free(text);
  return ok;
}

/* Shards of another number, and the form that was not written. */
static void remove_earlier(Arena *a, const char *path, int shards) {
  static const char shard[] = "-[0-9][0-9][0-9][0-9][0-9]-of-[0-9][0-9][0-9][0-9][0-9].safetensors";
  const char *stem = stem_of(a, path), *name = file_name(stem);
  const char *folder = name == stem ? "." : arena_printf(a, "%.*s", (int)(name - stem), stem);
  const char *mine = arena_printf(a, "-of-%05d.safetensors", shards > 1 ? shards : 0);
  DIR *d = opendir(folder);
  for (struct dirent *e; d && (e = readdir(d));)
    if (str_starts(e->d_name, name) && !fnmatch(shard, e->d_name + strlen(name), 0) &&
        !str_ends(e->d_name, mine))
      unlink(arena_printf(a, "%s/%s", folder, e->d_name));
  if (d) closedir(d);
  unlink(shards > 1 ? path : st_index_path(a, path));
}

int st_write_shards(const char *path, const StEntry *entries, int n, int64_t most, StFetch fetch,
                    void *context, Fail *f) {
  Arena *a = arena_new();
  int *end = arena_array(a, int, n + 1);
  int shards = split_entries(entries, n, most, end);
  bool ok = shards > 1 || st_write(path, entries, n, fetch, context, f);
  if (shards > 1) unlink(st_index_path(a, path)); /* an index never names files of two exports */
  for (int k = 0, first = 0; shards > 1 && k < shards && ok; first = end[k++]) {
    ShardSource source = {fetch, context, first};
    ok = st_write(shard_path(a, path, k, shards), entries + first, end[k] - first, fetch_of_shard,
                  &source, f);
  }
  if (ok && shards > 1) ok = write_index(a, path, entries, end, shards, f);
  if (ok) remove_earlier(a, path, shards);
  arena_free(a);
  return !ok ? 0 : shards ? shards : 1;
}
