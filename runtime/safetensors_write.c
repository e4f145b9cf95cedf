/* safetensors_write.c - writer: header first, then one tensor after another, each fetched when its
 * turn comes. */
#include "safetensors.h"
#include "outfile.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char *dtype_text(int dtype) {
  static const char *const text[DT_COUNT] = {
      [DT_F32] = "F32", [DT_BF16] = "BF16", [DT_F16] = "F16",  [DT_I32] = "I32",
      [DT_U32] = "U32", [DT_I8] = "I8",     [DT_BOOL] = "BOOL", [DT_U16] = "U16", [DT_U8] = "U8"};
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
