/* fuzz_safetensors.c - the safetensors reader accepts or refuses any bytes; what it accepts lies
 * inside the file. The first byte of an input chooses: a header as it is, or one made of entries
 * whose every part the input names. */
#include "runtime/safetensors.h"

#include <stdlib.h>
#include <string.h>

/* One entry from six bytes: name, dtype, rank, a dimension, and where its data lies. */
static void add_entry(Str *s, const uint8_t *b) {
  static const char *const dtypes[] = {"F32", "BF16", "F64", "I8", "BOOL", "X"};
  str_addf(s, "%s\"%c\":{\"dtype\":\"%s\",\"shape\":[", s->len > 1 ? "," : "", 'a' + b[0] % 20,
           dtypes[b[1] % 6]);
  for (int i = 0; i < b[2] % 10; i++) str_addf(s, "%s%d", i ? "," : "", (int8_t)b[3] + i % 2);
  str_addf(s, "],\"data_offsets\":[%d,%d]}", (int8_t)b[4], b[4] + (int8_t)b[5]);
}

/* A file whose header has the entries that data names and whose body is zero. */
static uint8_t *structured(Arena *a, const uint8_t *data, size_t n, size_t *size) {
  Str s = {.arena = a};
  str_add(&s, "{");
  for (size_t i = 1; i + 5 < n; i += 6) add_entry(&s, data + i);
  str_add(&s, "}");
  *size = 8 + s.len + (n ? data[0] : 0);
  uint8_t *file = calloc(*size, 1);
  for (int i = 0; i < 8; i++) file[i] = (uint8_t)(s.len >> 8 * i);
  memcpy(file + 8, s.text, s.len);
  return file;
}

static uint8_t *raw(const uint8_t *data, size_t n, size_t *size) {
  *size = n < 2 ? n : n + 6;
  uint8_t *file = calloc(*size + 1, 1);
  memcpy(file, data, n < 2 ? n : 2);
  if (n > 2) memcpy(file + 8, data + 2, n - 2);
  return file;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!size) return 0;
  Arena *a = arena_new();
  size_t total;
  uint8_t *file =
      data[0] & 1 ? structured(a, data + 1, size - 1, &total) : raw(data + 1, size - 1, &total);
  Fail f = {0};
  SafeTensors *s = st_open_mem(file, total, "fuzz", &f);
  if (!s && !f.code) abort(); /* a refusal always has a reason */
  for (int i = 0; s && i < st_count(s); i++) {
    const StEntry *e = st_at(s, i);
    const uint8_t *at = e->data;
    if (at < file || e->bytes < 0 || (size_t)(at - file) + (size_t)e->bytes > total) abort();
  }
  st_close(s);
  free(file);
  arena_free(a);
  return 0;
}
