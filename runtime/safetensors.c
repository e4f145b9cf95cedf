/* safetensors.c - reader: header checks, sharded index, folders. See safetensors.h. */
#include "safetensors.h"
#include "filemap.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* Every dtype of the format with its bytes; ours or -1. */
static const struct {
  const char *text;
  int bytes, dtype;
} st_dtypes[] = {
    {"F32", 4, DT_F32}, {"BF16", 2, DT_BF16}, {"F16", 2, DT_F16},   {"I32", 4, DT_I32},
    {"U32", 4, DT_U32}, {"I8", 1, DT_I8},     {"BOOL", 1, DT_BOOL}, {"F64", 8, -1},
    {"I64", 8, -1},     {"U64", 8, -1},       {"I16", 2, -1},       {"U16", 2, DT_U16},
    {"U8", 1, DT_U8},   {"F8_E4M3", 1, -1},   {"F8_E5M2", 1, -1},
};

struct SafeTensors {
  Arena *arena;
  VEC(StEntry) entries; /* sorted by name */
  FileMap *maps;
  int nmaps;
};

static int by_name(const void *a, const void *b) {
  return strcmp(((const StEntry *)a)->name, ((const StEntry *)b)->name);
}
static int by_data(const void *a, const void *b) {
  const StEntry *x = *(const StEntry *const *)a, *y = *(const StEntry *const *)b;
  if (x->data != y->data) return x->data < y->data ? -1 : 1;
  return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

__attribute__((format(printf, 3, 4))) static bool bad(Fail *f, const char *file, const char *fmt,
                                                      ...) {
  char why[600];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(why, sizeof why, fmt, ap);
  va_end(ap);
  return fail_page(f, EXIT_IO, "E0601", "%s: %s", file, why);
}

static bool read_offsets(const json_t *v, int64_t *from, int64_t *to) {
  const json_t *offsets = json_object_get(v, "data_offsets");
  if (json_array_size(offsets) != 2 || !json_is_integer(json_array_get(offsets, 0)) ||
      !json_is_integer(json_array_get(offsets, 1)))
    return false;
  *from = json_integer_value(json_array_get(offsets, 0));
  *to = json_integer_value(json_array_get(offsets, 1));
  return *from >= 0 && *to >= *from;
}

/* Shape and dtype of one entry; its bytes must be their product. */
static bool read_type(const json_t *v, StEntry *e, int64_t *want) {
  const char *dtype = json_string_value(json_object_get(v, "dtype"));
  const json_t *shape = json_object_get(v, "shape");
  if (!dtype || !json_is_array(shape) || json_array_size(shape) > MAX_RANK) return false;
  *want = -1;
  for (int i = 0; i < COUNT_OF(st_dtypes); i++) {
    if (strcmp(dtype, st_dtypes[i].text) != 0) continue;
    e->dtype_text = st_dtypes[i].text;
    e->dtype = st_dtypes[i].dtype;
    *want = st_dtypes[i].bytes;
  }
  e->rank = (int)json_array_size(shape);
  for (int i = 0; i < e->rank; i++) {
    const json_t *n = json_array_get(shape, (size_t)i);
    e->dim[i] = json_integer_value(n);
    if (!json_is_integer(n) || e->dim[i] < 0 || *want < 0 ||
        __builtin_mul_overflow(*want, e->dim[i], want))
      return false;
  }
  return *want >= 0;
}

/* All entries of one file's header; `body` is where offsets count from. */
static bool read_entries(SafeTensors *s, const json_t *head, const char *file, const char *body,
                         int64_t room, Fail *f) {
  const char *name;
  json_t *v;
  json_object_foreach((json_t *)(uintptr_t)head, name, v) {
    if (!strcmp(name, "__metadata__")) {
      if (!json_is_object(v)) return bad(f, file, "its metadata is not an object");
      continue;
    }
    StEntry e = {.name = arena_printf(s->arena, "%s", name), .file = file};
    int64_t from, to, want;
    if (!read_offsets(v, &from, &to))
      return bad(f, file, "`%.200s` has no valid data_offsets", name);
    if (!read_type(v, &e, &want))
      return bad(f, file, "`%.200s` has no valid dtype and shape", name);
    if (to > room)
      return bad(f, file, "`%.200s` ends at byte %lld of %lld: the file is truncated", name,
                 (long long)to, (long long)room);
    e.data = body + from, e.bytes = to - from;
    if (e.bytes != want)
      return bad(f, file, "`%.200s` has %lld bytes, but its shape needs %lld", name,
                 (long long)e.bytes, (long long)want);
    vec_push(s->arena, &s->entries, e);
  }
  return true;
}

/* Entries first.. must tile the body: no overlap, no hole. */
static bool check_tiling(SafeTensors *s, int first, const char *file, const char *body,
                         int64_t room, Fail *f) {
  int n = s->entries.n - first;
  const StEntry **order = arena_array(s->arena, const StEntry *, n + 1);
  for (int i = 0; i < n; i++) order[i] = &s->entries.at[first + i];
  qsort(order, (size_t)n, sizeof *order, by_data);
  const char *end = body;
  for (int i = 0; i < n; i++) {
    const char *at = order[i]->data;
    if (at < end) return bad(f, file, "`%.200s` overlaps another tensor", order[i]->name);
    if (at > end) return bad(f, file, "bytes before `%.200s` belong to no tensor", order[i]->name);
    end = at + order[i]->bytes;
  }
  if (end != body + room) return bad(f, file, "bytes at its end belong to no tensor");
  return true;
}

static bool add_file(SafeTensors *s, const void *data, size_t size, const char *file, Fail *f) {
  const uint8_t *p = data;
  uint64_t head = 0;
  if (size < 8) return bad(f, file, "%zu bytes are no safetensors file", size);
  for (int i = 0; i < 8; i++) head |= (uint64_t)p[i] << 8 * i;
  if (head > size - 8)
    return bad(f, file,
               "its header of %llu bytes does not fit into %zu: truncated, or no safetensors file",
               (unsigned long long)head, size);
  if (head > 100000000) return bad(f, file, "its header is larger than the format allows");
  json_error_t e;
  json_t *j = json_loadb((const char *)p + 8, (size_t)head, JSON_REJECT_DUPLICATES, &e);
  if (!json_is_object(j)) {
    json_decref(j);
    return bad(f, file, "its header is not a JSON object: %s", j ? "something else" : e.text);
  }
  int first = s->entries.n;
  const char *body = (const char *)p + 8 + head;
  int64_t room = (int64_t)(size - 8 - head);
  bool ok = read_entries(s, j, file, body, room, f) && check_tiling(s, first, file, body, room, f);
  json_decref(j);
  return ok;
}

static SafeTensors *st_new(int files) {
  Arena *a = arena_new();
  SafeTensors *s = arena_new_of(a, SafeTensors);
  s->arena = a;
  s->maps = arena_alloc(a, sizeof *s->maps * (size_t)(files + 1));
  return s;
}

/* Sorts by name; the same key in two files is refused. */
static SafeTensors *finish(SafeTensors *s, bool ok, Fail *f) {
  if (ok && s->entries.n)
    qsort(s->entries.at, (size_t)s->entries.n, sizeof *s->entries.at, by_name);
  for (int i = 1; ok && i < s->entries.n; i++)
    if (!strcmp(s->entries.at[i - 1].name, s->entries.at[i].name))
      ok = bad(f, s->entries.at[i].file, "`%.200s` is in another file as well",
               s->entries.at[i].name);
  if (ok) return s;
  st_close(s);
  return NULL;
}

SafeTensors *st_open_mem(const void *data, size_t size, const char *name, Fail *f) {
  SafeTensors *s = st_new(0);
  return finish(s, add_file(s, data, size, name, f), f);
}

static bool map_file(SafeTensors *s, const char *path, Fail *f) {
  FileMap *m = &s->maps[s->nmaps];
  const char *wrong = filemap_open(m, path);
  if (wrong) return bad(f, path, "cannot be read: %s", wrong);
  s->nmaps++;
  return add_file(s, m->at, m->size, arena_printf(s->arena, "%s", path), f);
}

/* {"weight_map": {"key": "model-00001-of-00002.safetensors", ..}}: opens each file once and checks
 * that keys are where the map says. */
static SafeTensors *open_index(const char *path, Fail *f) {
  json_error_t e;
  json_t *j = json_load_file(path, JSON_REJECT_DUPLICATES, &e);
  json_t *map = json_object_get(j, "weight_map");
  if (!json_is_object(map) || !json_object_size(map)) {
    bad(f, path, "has no weight_map: %s", j ? "not an index of safetensors files" : e.text);
    json_decref(j);
    return NULL;
  }
  SafeTensors *s = st_new((int)json_object_size(map));
  bool ok = true;
  const char *key;
  json_t *v;
  json_t *seen = json_object();
  json_object_foreach(map, key, v) {
    const char *file = json_string_value(v);
    if (!file || strchr(file, '/')) {
      ok = bad(f, path, "`%.200s` has no file of the same folder", key);
      break;
    }
    if (json_object_get(seen, file)) continue;
    json_object_set_new(seen, file, json_true());
    if (!(ok = map_file(s, path_beside(s->arena, path, file), f))) break;
  }
  s = finish(s, ok, f);
  if (s) json_object_foreach(map, key, v) {
      const StEntry *at = st_find(s, key);
      if (at && str_ends(at->file, json_string_value(v))) continue;
      bad(f, path, "`%.200s` is not in %s", key, json_string_value(v));
      st_close(s);
      s = NULL;
      break;
    }
  json_decref(seen);
  json_decref(j);
  return s;
}

/* The file to open for a folder, as Transformers chooses; NULL when it holds none. */
static const char *of_folder(Arena *a, const char *folder) {
  static const char *const names[] = {"model.safetensors", "model.safetensors.index.json"};
  for (int i = 0; i < COUNT_OF(names); i++) {
    const char *path = arena_printf(a, "%s/%s", folder, names[i]);
    if (path_exists(path)) return path;
  }
  return NULL;
}

SafeTensors *st_open(const char *path, Fail *f) {
  if (path_is_folder(path)) {
    Arena *a = arena_new();
    const char *file = of_folder(a, path);
    SafeTensors *s = file ? st_open(file, f) : NULL;
    if (!file) bad(f, path, "holds neither model.safetensors nor model.safetensors.index.json");
    arena_free(a);
    return s;
  }
  if (str_ends(path, ".json")) return open_index(path, f);
  SafeTensors *s = st_new(1);
  return finish(s, map_file(s, path, f), f);
}

void st_release(const SafeTensors *s, const StEntry *e) {
  for (int i = 0; i < s->nmaps; i++) filemap_release(&s->maps[i], e->data, e->bytes);
}

void st_close(SafeTensors *s) {
  if (!s) return;
  for (int i = 0; i < s->nmaps; i++) filemap_close(&s->maps[i]);
  arena_free(s->arena);
}

int st_count(const SafeTensors *s) {
  return s->entries.n;
}
const StEntry *st_at(const SafeTensors *s, int i) {
  return &s->entries.at[i];
}

const StEntry *st_find(const SafeTensors *s, const char *name) {
  StEntry want = {.name = name};
  if (!s->entries.n) return NULL;
  return bsearch(&want, s->entries.at, (size_t)s->entries.n, sizeof want, by_name);
}
