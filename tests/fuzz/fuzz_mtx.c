/* fuzz_mtx.c - the .mtx reader accepts or refuses any bytes; it never crashes. The first byte of an
 * input chooses: bytes as they are or patches of a valid file, with checksums as they come out or
 * made right, so that damage reaches the decoder and the bounds checks behind them. */
#include "tests/runtime/toy.h"

#include <stdlib.h>
#include <unistd.h>

static uint64_t load64(const uint8_t *p) {
  uint64_t x = 0;
  for (int i = 0; i < 8; i++) x |= (uint64_t)p[i] << 8 * i;
  return x;
}
static void store64(uint8_t *p, uint64_t x) {
  for (int i = 0; i < 8; i++) p[i] = (uint8_t)(x >> 8 * i);
}

/* A valid file, made once. */
static const uint8_t *valid_file(size_t *size) {
  static uint8_t *file;
  static size_t bytes;
  if (!file) {
    Arena *a = arena_new(); /* lives as long as the process */
    char path[] = "/tmp/fuzz-mtx-XXXXXX";
    const char *why;
    int fd = mkstemp(path);
    if (fd < 0 || close(fd) != 0 || !mtx_write(toy_full_program(a), path, &why)) abort();
    file = (uint8_t *)read_file(a, path, &bytes);
    unlink(path);
  }
  *size = bytes;
  return file;
}

/* Makes size and checksums of a file right where its tables make sense at all (docs/mtx.md has the
 * offsets). */
static void repair(uint8_t *file, size_t size) {
  size_t all;
  if (size < 40) return;
  memcpy(file, valid_file(&all), 16); /* magic and version */
  store64(file + 24, size);
  uint64_t n = load64(file + 16);
  if (n > 16 || 40 + 64 * n > size) return;
  for (uint64_t i = 0; i < n; i++) {
    uint8_t *e = file + 40 + 64 * i;
    uint64_t at = load64(e + 40), bytes = load64(e + 48);
    if (at <= size && bytes <= size - at) store64(e + 56, hash_bytes(file + at, bytes, 0));
  }
  store64(file + 32, 0);
  store64(file + 32, hash_bytes(file, 40 + 64 * n, 0));
}

/* data: triples of two bytes of offset and one value. */
static uint8_t *patched(const uint8_t *data, size_t n, size_t *size) {
  const uint8_t *valid = valid_file(size);
  uint8_t *file = malloc(*size);
  memcpy(file, valid, *size);
  for (size_t i = 0; i + 2 < n; i += 3)
    file[((size_t)data[i] | (size_t)data[i + 1] << 8) % *size] = data[i + 2];
  return file;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!size) return 0;
  Arena *a = arena_new();
  const char *why = NULL;
  size_t n = size - 1;
  uint8_t *file = data[0] & 2 ? patched(data + 1, n, &n) : memcpy(malloc(n + 1), data + 1, n);
  if (data[0] & 1) repair(file, n);
  Program *p = mtx_read_mem(a, file, n, &why);
  if (!p && !why) abort(); /* a refusal always has a reason */
  free(file);
  arena_free(a);
  return 0;
}
