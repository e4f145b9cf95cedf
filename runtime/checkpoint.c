/* checkpoint.c - the .mtck file: writing in one pass, verified reading. See checkpoint.h.
 *
 * Layout: magic, tensors at multiples of 64 bytes with zeros between them, a JSON table, and a
 * trailer of 32 bytes that says where the table is and what its checksum is. The table comes last
 * so that nothing needs to be known in advance. */
#include "checkpoint.h"
#include "convert.h"
#include "outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char magic[8] = "MTCKPT01", end_magic[8] = "MTCKEND1";
enum { ALIGN = 64, TRAILER = 32 };

static int64_t entry_bytes(const StEntry *e) {
  int64_t n = dtype_bytes((DType)e->dtype);
  for (int i = 0; i < e->rank; i++) n = mul64(n, e->dim[i]);
  return n;
}

static json_t *hex(uint64_t x) {
  char text[17];
  snprintf(text, sizeof text, "%016llx", (unsigned long long)x);
  return json_string(text);
}

/* ---- writing ---- */

static json_t *entry_json(const StEntry *e, int64_t offset, uint64_t sum) {
  json_t *shape = json_array();
  for (int i = 0; i < e->rank; i++) json_array_append_new(shape, json_integer(e->dim[i]));
  return json_pack("{s:s, s:s, s:o, s:I, s:I, s:o}", "path", e->name, "dtype",
                   dtype_name((DType)e->dtype), "shape", shape, "offset", (json_int_t)offset,
                   "bytes", (json_int_t)entry_bytes(e), "xxh3", hex(sum));
}

static json_t *state_json(const char *model, const TrainState *s) {
  return json_pack("{s:s, s:s, s:s, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "schema",
                   "mtc.checkpoint/1", "mtc", MTC_VERSION, "model", model, "plan", hex(s->plan_id),
                   "seed", hex(s->seed), "step", (json_int_t)s->step, "phase", (json_int_t)s->phase,
                   "phase_step", (json_int_t)s->phase_step, "epoch", (json_int_t)s->data.epoch,
                   "index", (json_int_t)s->data.index, "skipped", (json_int_t)s->skipped,
                   "skipped_in_row", (json_int_t)s->skipped_in_row);
}

static bool write_tensors(OutFile *o, json_t *table, const StEntry *vars, int n, StFetch fetch,
                          void *context, Fail *f) {
  int64_t most = 1;
  for (int i = 0; i < n; i++) most = entry_bytes(&vars[i]) > most ? entry_bytes(&vars[i]) : most;
  void *buffer = malloc((size_t)most);
  if (!buffer) return fail_set(f, EXIT_DEVICE, "no host memory to write %s", o->path);
  bool ok = out_write(o, magic, sizeof magic, f);
  for (int i = 0; i < n && ok; i++) {
    size_t bytes = (size_t)entry_bytes(&vars[i]);
    ok = fetch(context, i, buffer, f) && out_pad(o, ALIGN, f);
    if (!ok) break;
    json_array_append_new(table, entry_json(&vars[i], o->bytes, hash_bytes(buffer, bytes, 0)));
    ok = out_write(o, buffer, bytes, f);
  }
  free(buffer);
  return ok;
}

static void store64(uint8_t *at, uint64_t x) {
  for (int i = 0; i < 8; i++) at[i] = (uint8_t)(x >> 8 * i);
}

static bool write_table(OutFile *o, json_t *root, Fail *f) {
  char *text = json_dumps(root, JSON_COMPACT);
  ensure(text, "out of memory");
  size_t n = strlen(text);
  uint8_t trailer[TRAILER];
  store64(trailer, (uint64_t)o->bytes);
  store64(trailer + 8, n);
  store64(trailer + 16, hash_bytes(text, n, 0));
  memcpy(trailer + 24, end_magic, sizeof end_magic);
  bool ok = out_write(o, text, n, f) && out_write(o, trailer, sizeof trailer, f);
  free(text);
  return ok;
}

bool checkpoint_write(const char *path, const char *model, const TrainState *s, const StEntry *vars,
                      int n, StFetch fetch, void *context, Fail *f) {
  OutFile o;
  if (!out_open(&o, path, "checkpoint-write", f)) return false;
  json_t *root = state_json(model, s), *table = json_array();
  ensure(root, "the state of a run could not be written as JSON");
  json_object_set_new(root, "variables", table);
  bool ok = write_tensors(&o, table, vars, n, fetch, context, f) && out_pad(&o, ALIGN, f) &&
            write_table(&o, root, f);
  json_decref(root);
  if (ok) return out_commit(&o, f);
  out_abandon(&o);
  return false;
}

/* ---- reading ---- */

__attribute__((format(printf, 3, 4))) static bool bad(const Checkpoint *c, Fail *f, const char *fmt,
                                                      ...) {
  char why[600];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(why, sizeof why, fmt, ap);
  va_end(ap);
  return fail_page(f, EXIT_IO, "E0601", "%s: %s", c->path, why);
}

static uint64_t load64(const uint8_t *p) {
  uint64_t x = 0;
  for (int i = 0; i < 8; i++) x |= (uint64_t)p[i] << 8 * i;
  return x;
}

static bool get_hex(const json_t *j, const char *key, uint64_t *x) {
  const char *text = json_string_value(json_object_get(j, key));
  char *end;
  if (!text || strlen(text) != 16) return false;
  *x = strtoull(text, &end, 16);
  return !*end;
}

static bool get_count(const json_t *j, const char *key, int64_t *x) {
  const json_t *v = json_object_get(j, key);
  *x = json_integer_value(v);
  return json_is_integer(v) && *x >= 0;
}

static bool read_entry(const Checkpoint *c, const json_t *j, StEntry *e, Fail *f) {
  const char *path = json_string_value(json_object_get(j, "path"));
  const char *dtype = json_string_value(json_object_get(j, "dtype"));
  const json_t *shape = json_object_get(j, "shape");
  int64_t offset, bytes, want;
  uint64_t sum;
  int t = dtype ? dtype_by_name(dtype) : -1;
  if (!path || t < 0 || !json_is_array(shape) || json_array_size(shape) > MAX_RANK ||
      !get_count(j, "offset", &offset) || !get_count(j, "bytes", &bytes) ||
      !get_hex(j, "xxh3", &sum))
    return bad(c, f, "its table is damaged");
  *e = (StEntry){
      .name = arena_printf(c->arena, "%s", path), .dtype = t, .dtype_text = dtype_name((DType)t)};
  e->file = c->path;
  e->rank = (int)json_array_size(shape);
  want = dtype_bytes((DType)t);
  for (int i = 0; i < e->rank; i++) {
    e->dim[i] = json_integer_value(json_array_get(shape, (size_t)i));
    if (e->dim[i] < 0 || __builtin_mul_overflow(want, e->dim[i], &want))
      return bad(c, f, "the shape of %.200s is damaged", path);
  }
  if (bytes != want || offset > (int64_t)c->size || bytes > (int64_t)c->size - offset)
    return bad(c, f, "the place of %.200s is damaged", path);
  e->data = (const char *)c->bytes + offset, e->bytes = bytes;
  bool whole = hash_bytes(e->data, (size_t)bytes, 0) == sum;
  checkpoint_release(c, e);
  if (!whole)
    return bad(c, f, "checksum of %.200s does not match: the file is damaged", path);
  return true;
}

static bool read_state(Checkpoint *c, const json_t *j, Fail *f) {
  TrainState *s = &c->state;
  const char *model = json_string_value(json_object_get(j, "model"));
  const char *schema = json_string_value(json_object_get(j, "schema"));
  if (!schema || strcmp(schema, "mtc.checkpoint/1") != 0)
    return bad(c, f, "another version of the format");
  if (!model || !get_hex(j, "plan", &s->plan_id) || !get_hex(j, "seed", &s->seed) ||
      !get_count(j, "step", &s->step) || !get_count(j, "phase", &s->phase) ||
      !get_count(j, "phase_step", &s->phase_step) || !get_count(j, "epoch", &s->data.epoch) ||
      !get_count(j, "index", &s->data.index) || !get_count(j, "skipped", &s->skipped) ||
      !get_count(j, "skipped_in_row", &s->skipped_in_row))
    return bad(c, f, "its table is damaged");
  c->model = arena_printf(c->arena, "%s", model);
  return true;
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const StEntry *)a)->name, ((const StEntry *)b)->name);
}
static int by_data(const void *a, const void *b) {
  const char *x = ((const StEntry *)a)->data, *y = ((const StEntry *)b)->data;
  return x < y ? -1 : x > y;
}

/* Bytes that no tensor covers must be zero. */
static bool check_gaps(const Checkpoint *c, StEntry *vars, size_t end, Fail *f) {
  const char *at = (const char *)c->bytes + sizeof magic, *stop = (const char *)c->bytes + end;
  qsort(vars, (size_t)c->nvars, sizeof *vars, by_data);
  for (int i = 0; i <= c->nvars; i++) {
    const char *next = i < c->nvars ? vars[i].data : stop;
    if (next < at) return bad(c, f, "tensors overlap");
    for (; at < next; at++)
      if (*at) return bad(c, f, "bytes between tensors are damaged");
    if (i < c->nvars) at = next + vars[i].bytes;
  }
  return true;
}

static bool read_table(Checkpoint *c, const json_t *j, size_t end, Fail *f) {
  const json_t *list = json_object_get(j, "variables");
  if (!read_state(c, j, f)) return false;
  if (!json_is_array(list)) return bad(c, f, "its table is damaged");
  c->nvars = (int)json_array_size(list);
  StEntry *vars = arena_array(c->arena, StEntry, c->nvars + 1);
  for (int i = 0; i < c->nvars; i++)
    if (!read_entry(c, json_array_get(list, (size_t)i), &vars[i], f)) return false;
  if (!check_gaps(c, vars, end, f)) return false;
  qsort(vars, (size_t)c->nvars, sizeof *vars, by_name);
  c->vars = vars;
  return true;
}

static bool read_all(Checkpoint *c, Fail *f) {
  const uint8_t *p = c->bytes;
  if (c->size < sizeof magic || memcmp(p, magic, sizeof magic) != 0)
    return bad(c, f, "not a checkpoint");
  if (c->size < sizeof magic + TRAILER || memcmp(p + c->size - 8, end_magic, sizeof end_magic) != 0)
    return bad(c, f, "truncated");
  const uint8_t *trailer = p + c->size - TRAILER;
  uint64_t at = load64(trailer), n = load64(trailer + 8), body = c->size - TRAILER;
  if (at < sizeof magic || at > body || n != body - at) return bad(c, f, "its trailer is damaged");
  if (hash_bytes(p + at, (size_t)n, 0) != load64(trailer + 16))
    return bad(c, f, "checksum of its table does not match: the file is damaged");
  json_error_t e;
  json_t *j = json_loadb((const char *)p + at, (size_t)n, 0, &e);
  bool ok = json_is_object(j) ? read_table(c, j, (size_t)at, f) : bad(c, f, "its table is damaged");
  json_decref(j);
  return ok;
}

static Checkpoint *open_bytes(const void *data, size_t size, FileMap file, const char *name,
                              Fail *f) {
  Arena *a = arena_new();
  Checkpoint *c = arena_new_of(a, Checkpoint);
  *c = (Checkpoint){.arena = a, .path = arena_printf(a, "%s", name), .file = file};
  c->bytes = data, c->size = size;
  if (read_all(c, f)) return c;
  checkpoint_close(c);
  return NULL;
}

Checkpoint *checkpoint_open_mem(const void *data, size_t size, const char *name, Fail *f) {
  return open_bytes(data, size, (FileMap){0}, name, f);
}

Checkpoint *checkpoint_open(const char *path, Fail *f) {
  FileMap m;
  const char *wrong = filemap_open(&m, path);
  if (!wrong) return open_bytes(m.at, m.size, m, path, f);
  fail_page(f, EXIT_IO, "E0601", "cannot read %s: %s", path, wrong);
  return NULL;
}

void checkpoint_close(Checkpoint *c) {
  if (!c) return;
  filemap_close(&c->file);
  arena_free(c->arena);
}

void checkpoint_release(const Checkpoint *c, const StEntry *e) {
  filemap_release(&c->file, e->data, e->bytes);
}

const StEntry *checkpoint_find(const Checkpoint *c, const char *path) {
  StEntry want = {.name = path};
  if (!c->nvars) return NULL;
  return bsearch(&want, c->vars, (size_t)c->nvars, sizeof want, by_name);
}

static const StEntry *find_suffixed(const Checkpoint *c, const char *path, const char *suffix) {
  Arena *a = arena_new();
  const StEntry *e = checkpoint_find(c, arena_printf(a, "%s:%s", path, suffix));
  arena_free(a);
  return e;
}

BestCopy checkpoint_best(const Checkpoint *c, const char *path) {
  const StEntry *e = checkpoint_find(c, path), *master = find_suffixed(c, path, "master");
  const StEntry *low = find_suffixed(c, path, "low");
  if (master || !e) low = NULL;
  if (master) e = master;
  bool halves = low && low->dtype == DT_U16 && e->dtype == DT_BF16 && low->bytes == e->bytes;
  return (BestCopy){e, halves ? low : NULL, halves ? DT_F32 : e ? (DType)e->dtype : DT_F32};
}

const void *checkpoint_values(const BestCopy *b, void **own, Fail *f) {
  *own = NULL;
  if (!b->low) return b->entry->data;
  *own = malloc((size_t)b->entry->bytes * 2 + 1);
  if (!*own) {
    fail_set(f, EXIT_DEVICE, "no host memory for %s", b->entry->name);
    return NULL;
  }
  join_halves(*own, b->entry->data, b->low->data, b->entry->bytes / 2);
  return *own;
}
