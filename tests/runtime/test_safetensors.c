/* test_safetensors.c - weights files: round trip, strict header, shards, map with transposes and
 * conversions, E0302. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "folder.h"
#include "runtime/convert.h"
#include "runtime/weights.h"

/* A file of a header and a body of `body` bytes. */
static char *file_of(Arena *a, const char *header, size_t body, size_t *size) {
  size_t n = strlen(header);
  *size = 8 + n + body;
  char *bytes = arena_alloc(a, *size);
  for (int i = 0; i < 8; i++) bytes[i] = (char)(n >> 8 * i);
  memcpy(bytes + 8, header, n);
  for (size_t i = 0; i < body; i++) bytes[8 + n + i] = (char)i;
  return bytes;
}

static void refused(Arena *a, const char *header, size_t body, const char *why) {
  Fail f = {0};
  size_t n;
  char *bytes = file_of(a, header, body, &n);
  SafeTensors *s = st_open_mem(bytes, n, "x.safetensors", &f);
  if (s) fail_msg("accepted %s", header);
  assert_int_equal(f.code, EXIT_IO);
  if (!strstr(f.text, why)) fail_msg("got `%s`, expected `%s`", f.text, why);
}

static void strict_header(void **state) {
  Place *p = *state;
#define ENTRY(dtype, shape, from, to) \
  "\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]"
  refused(p->a, "{\"w\":{" ENTRY("F32", "[2]", "0", "8") "}}", 4, "truncated");
  refused(p->a, "{\"w\":{" ENTRY("F32", "[3]", "0", "8") "}}", 8, "its shape needs 12");
  refused(p->a, "{\"w\":{" ENTRY("F99", "[2]", "0", "8") "}}", 8, "no valid dtype");
  refused(p->a, "{\"w\":{" ENTRY("F32", "[-2]", "0", "8") "}}", 8, "no valid dtype");
  refused(p->a, "{\"w\":{" ENTRY("F32", "[4611686018427387904,4]", "0", "8") "}}", 8,
          "no valid dtype");
  refused(p->a, "{\"w\":{" ENTRY("F32", "[2]", "8", "0") "}}", 8, "no valid data_offsets");
  refused(p->a,
          "{\"w\":{" ENTRY("F32", "[2]", "0", "8") "},\"v\":{" ENTRY("F32", "[2]", "4", "12") "}}",
          12, "overlaps");
  refused(p->a,
          "{\"w\":{" ENTRY("F32", "[1]", "0", "4") "},\"v\":{" ENTRY("F32", "[1]", "8", "12") "}}",
          12, "belong to no tensor");
  refused(p->a, "{\"w\":{" ENTRY("F32", "[1]", "0", "4") "}}", 8, "at its end belong to no tensor");
  refused(p->a,
          "{\"w\":{" ENTRY("F32", "[1]", "0", "4") "},\"w\":{" ENTRY("F32", "[1]", "0", "4") "}}",
          4, "not a JSON object");
  refused(p->a, "[1]", 0, "not a JSON object");
  refused(p->a, "{\"w\"", 0, "not a JSON object");
  Fail f = {0};
  assert_null(st_open_mem("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10, "x", &f));
  assert_non_null(strstr(f.text, "does not fit"));
  size_t n;
  f = (Fail){0};
  char *ok = file_of(
      p->a, "{\"__metadata__\":{\"a\":\"b\"},\"z\":{" ENTRY("F32", "[]", "0", "4") "}}", 4, &n);
  SafeTensors *s = st_open_mem(ok, n, "x", &f);
  assert_non_null(s);
  assert_int_equal(st_count(s), 1);
  assert_int_equal(st_find(s, "z")->rank, 0);
  assert_null(st_find(s, "y"));
  st_close(s);
}

static bool fetch_bytes(void *context, int i, void *to, Fail *f) {
  (void)f;
  const StEntry *e = (const StEntry *)context + i;
  memcpy(to, e->data, (size_t)e->bytes);
  return true;
}

static void write_file(const char *path, const StEntry *e, int n) {
  Fail f = {0};
  if (!st_write(path, e, n, fetch_bytes, (void *)(uintptr_t)e, &f)) fail_msg("%s", f.text);
}

static const float six[] = {1, 2, 3, 4, 5, 6};
static const uint16_t three[] = {0x3f80, 0x4000, 0xc000}; /* bf16: 1, 2, -2 */

static void round_trip(void **state) {
  Place *p = *state;
  const char *path = arena_printf(p->a, "%s/m.safetensors", p->dir);
  StEntry e[] = {
      {.name = "b", .dtype = DT_BF16, .rank = 1, .dim = {3}, .data = three, .bytes = 6},
      {.name = "w", .dtype = DT_F32, .rank = 2, .dim = {2, 3}, .data = six, .bytes = 24},
  };
  write_file(path, e, 2);
  Fail f = {0};
  SafeTensors *s = st_open(path, &f);
  if (!s) fail_msg("%s", f.text);
  const StEntry *w = st_find(s, "w");
  assert_string_equal(w->dtype_text, "F32");
  assert_memory_equal(w->data, six, sizeof six);
  assert_int_equal((uintptr_t)w->data % 4, 0); /* wide tensors come first */
  assert_memory_equal(st_find(s, "b")->data, three, sizeof three);
  st_close(s);
}

static void sharded(void **state) {
  Place *p = *state;
  StEntry w = {.name = "w", .dtype = DT_F32, .rank = 2, .dim = {2, 3}, .data = six, .bytes = 24};
  StEntry b = {.name = "b", .dtype = DT_BF16, .rank = 1, .dim = {3}, .data = three, .bytes = 6};
  write_file(arena_printf(p->a, "%s/m-1.safetensors", p->dir), &w, 1);
  write_file(arena_printf(p->a, "%s/m-2.safetensors", p->dir), &b, 1);
  static const struct {
    const char *map, *why;
  } cases[] = {
      {"{\"w\":\"m-1.safetensors\",\"b\":\"m-2.safetensors\"}", NULL},
      {"{\"w\":\"m-2.safetensors\",\"b\":\"m-2.safetensors\"}", "`w` is not in m-2.safetensors"},
      {"{\"w\":\"m-3.safetensors\"}", "m-3.safetensors: cannot be read"},
      {"{\"w\":\"../m-1.safetensors\"}", "no file of the same folder"},
      {"{}", "no weight_map"},
  };
  for (int i = 0; i < COUNT_OF(cases); i++) {
    Fail f = {0};
    char *text = arena_printf(p->a, "{\"metadata\":{},\"weight_map\":%s}", cases[i].map);
    const char *path = folder_file(p->a, p->dir, "m.safetensors.index.json", text, strlen(text));
    SafeTensors *s = st_open(path, &f);
    if (cases[i].why) {
      assert_null(s);
      if (!strstr(f.text, cases[i].why)) fail_msg("got `%s`", f.text);
    } else {
      if (!s) fail_msg("%s", f.text);
      assert_int_equal(st_count(s), 2);
    }
    st_close(s);
  }
}

/* What Transformers writes for these sizes: in order, a new file when the next tensor does not fit, a large one alone. */
static void shards_are_split_as_transformers_does(void **state) {
  Place *p = *state;
  static const char data[64];
  StEntry e[] = {{.name = "d", .dim = {8}},  {.name = "c", .dim = {8}},  {.name = "b", .dim = {1}},
                 {.name = "a", .dim = {40}}, {.name = "e", .dim = {15}}, {.name = "f", .dim = {2}}};
  for (int i = 0; i < COUNT_OF(e); i++)
    e[i].dtype = DT_BOOL, e[i].rank = 1, e[i].data = data, e[i].bytes = e[i].dim[0];
  const char *path = arena_printf(p->a, "%s/m.safetensors", p->dir);
  Fail f = {0};
  assert_int_equal(st_write_shards(path, e, 6, 1000, fetch_bytes, e, &f), 1);
  assert_true(path_exists(path));
  assert_int_equal(st_write_shards(path, e, 6, 16, fetch_bytes, e, &f), 5);
  assert_false(path_exists(path));
  static const struct {
    const char *key;
    int file;
  } where[] = {{"d", 1}, {"c", 1}, {"b", 2}, {"a", 3}, {"e", 4}, {"f", 5}};
  SafeTensors *s = st_open(st_index_path(p->a, path), &f);
  if (!s) fail_msg("%s", f.text);
  assert_int_equal(st_count(s), 6);
  for (int i = 0; i < COUNT_OF(where); i++) {
    const StEntry *at = st_find(s, where[i].key);
    assert_true(
        str_ends(at->file, arena_printf(p->a, "/m-%05d-of-00005.safetensors", where[i].file)));
  }
  st_close(s);
  size_t size;
  const char *index = read_file(p->a, st_index_path(p->a, path), &size);
  assert_non_null(strstr(index, "\"total_size\": 74"));
  /* other numbers of files replace them, and leave files of others alone */
  const char *other = folder_file(p->a, p->dir, "m-x-of-00005.safetensors", "", 0);
  assert_int_equal(st_write_shards(path, e, 6, 60, fetch_bytes, e, &f), 2);
  assert_false(path_exists(arena_printf(p->a, "%s/m-00001-of-00005.safetensors", p->dir)));
  assert_true(path_exists(arena_printf(p->a, "%s/m-00002-of-00002.safetensors", p->dir)));
  assert_true(path_exists(other));
  assert_int_equal(st_write_shards(path, e, 6, 74, fetch_bytes, e, &f), 1);
  assert_false(path_exists(st_index_path(p->a, path)));
  assert_false(path_exists(arena_printf(p->a, "%s/m-00002-of-00002.safetensors", p->dir)));
}

static void folders_hold_one_file_or_an_index(void **state) {
  Place *p = *state;
  Fail f = {0};
  assert_null(st_open(p->dir, &f));
  assert_non_null(strstr(f.text, "holds neither model.safetensors nor"));
  StEntry e[] = {{.name = "w", .dtype = DT_F32, .rank = 2, .dim = {2, 3}, .data = six, .bytes = 24},
                 {.name = "b", .dtype = DT_BF16, .rank = 1, .dim = {3}, .data = three, .bytes = 6}};
  const char *path = arena_printf(p->a, "%s/model.safetensors", p->dir);
  for (int files = 1; files <= 2; files++) {
    f = (Fail){0};
    assert_int_equal(st_write_shards(path, e, 2, files == 1 ? 100 : 24, fetch_bytes, e, &f), files);
    SafeTensors *s = st_open(p->dir, &f);
    if (!s) fail_msg("%s", f.text);
    assert_memory_equal(st_find(s, "w")->data, six, sizeof six);
    st_close(s);
  }
}

/* Kilobytes of files in the memory of this process. */
static long file_pages(void) {
  char line[200];
  long kb = -1;
  FILE *f = fopen("/proc/self/status", "r");
  while (f && fgets(line, sizeof line, f)) sscanf(line, "RssFile: %ld", &kb);
  if (f) fclose(f);
  return kb;
}

static void one_tensor_at_a_time_is_in_memory(void **state) {
  Place *p = *state;
  enum { N = 16, BYTES = 4 << 20 };
  char *data = arena_alloc(p->a, BYTES);
  StEntry e[N];
  for (int i = 0; i < N; i++)
    e[i] = (StEntry){.name = arena_printf(p->a, "t%02d", i),
                     .dtype = DT_BOOL,
                     .rank = 1,
                     .dim = {BYTES},
                     .data = data,
                     .bytes = BYTES};
  for (int i = 0; i < BYTES; i++) data[i] = (char)(i % 251);
  Fail f = {0};
  const char *path = arena_printf(p->a, "%s/m.safetensors", p->dir);
  assert_int_equal(st_write_shards(path, e, N, 5 * BYTES, fetch_bytes, e, &f), 4);
  SafeTensors *s = st_open(st_index_path(p->a, path), &f);
  if (!s) fail_msg("%s", f.text);
  long before = file_pages(), most = 0;
  if (before < 0) skip();
  for (int i = 0; i < N; i++) {
    const StEntry *t = st_find(s, e[i].name);
    assert_memory_equal(t->data, data, BYTES);
    long now = file_pages();
    most = now > most ? now : most;
    st_release(s, t);
  }
  if (most - before > 2 * BYTES / 1024) fail_msg("%ld KiB of files in memory", most - before);
  /* what was released can be read again */
  assert_memory_equal(st_find(s, "t00")->data, data, BYTES);
  st_close(s);
}

static void transposes_and_converts(void **state) {
  Place *p = *state;
  (void)p;
  Fail f = {0};
  WeightSlot s = {
      .key = "w", .path = "l.w", .transposed = true, .dtype = DT_BF16, .rank = 2, .dim = {3, 2}};
  StEntry e = {.name = "w", .dtype = DT_F32, .rank = 2, .dim = {2, 3}, .data = six, .bytes = 24};
  uint16_t bf16[6];
  float wide[6], back[6];
  assert_true(weights_import(&s, &e, DT_BF16, bf16, &f));
  convert_elements(DT_F32, wide, DT_BF16, bf16, 6);
  const float want[] = {1, 4, 2, 5, 3, 6};
  assert_memory_equal(wide, want, sizeof want);
  assert_true(weights_export(&s, DT_BF16, bf16, DT_F32, back, &f));
  assert_memory_equal(back, six, sizeof six);
  uint16_t half[6];
  assert_true(weights_import(&s, &e, DT_F16, half, &f));
  assert_int_equal(half[1], 0x4400);
}

/* Every width, sizes that no tile divides, from an odd address; more elements than one thread does. */
static void transposes_of_any_size(void **state) {
  Place *p = *state;
  static const int64_t sizes[][2] = {{1, 1}, {1, 70}, {33, 32}, {45, 70}, {301, 300}};
  for (int i = 0; i < COUNT_OF(sizes); i++)
    for (int bytes = 1; bytes <= 4; bytes *= 2) {
      int64_t rows = sizes[i][0], cols = sizes[i][1], n = rows * cols * bytes;
      uint8_t *from = (uint8_t *)arena_alloc(p->a, (size_t)n + 1) + 1;
      uint8_t *to = arena_alloc(p->a, (size_t)n);
      for (int64_t k = 0; k < n; k++) from[k] = (uint8_t)(k * 31 + k / 251);
      transpose_elements(to, from, rows, cols, bytes);
      for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
          if (memcmp(to + (c * rows + r) * bytes, from + (r * cols + c) * bytes, (size_t)bytes) !=
              0)
            fail_msg("%lld x %lld of %d bytes at %lld, %lld", (long long)rows, (long long)cols,
                     bytes, (long long)r, (long long)c);
    }
}

static void misfits_are_reported_together(void **state) {
  Place *p = *state;
  size_t n;
  Fail f = {0};
  char *bytes =
      file_of(p->a,
              "{\"a\":{" ENTRY("F32", "[2,3]", "0", "24") "},\"extra\":{" ENTRY(
                  "I64", "[1]", "24",
                  "32") "},\"h.0.attn.bias\":{" ENTRY("U8", "[1,1,2,2]", "32",
                                                      "36") "},\"t\":{" ENTRY("F32", "[1]", "36",
                                                                              "40") "}}",
              40, &n);
  SafeTensors *s = st_open_mem(bytes, n, "x", &f);
  if (!s) fail_msg("%s", f.text);
  WeightSlot slot[] = {
      {.key = "a", .path = "a.w", .dtype = DT_F32, .rank = 2, .dim = {3, 2}},
      {.key = "b", .path = "b.w", .dtype = DT_F32, .rank = 1, .dim = {4}},
      {.key = "t", .path = "t.w", .dtype = DT_F32, .rank = 1, .dim = {1}},
  };
  WeightSlots slots = {slot, 3};
  WeightRules rules = {0};
  assert_false(weights_match(&slots, s, "x.safetensors", &rules, &f));
  assert_string_equal(f.page, "E0302");
  assert_string_equal(
      f.text,
      "weights do not fit the map: 1 missing, 1 unexpected, 1 mis-shaped in x.safetensors\n"
      "  mis-shaped  a: [2, 3] in the file, [3, 2] for a.w\n"
      "  missing     b: [4] for b.w\n"
      "  unexpected  extra: I64 [1]");
  assert_int_equal(rules.ignored, 1); /* the causal mask */
  slot[0].transposed = true;
  slots.at = slot, slots.n = 1;
  const char *ignore[] = {"ex*", "t"};
  rules = (WeightRules){ignore, 2, 0};
  f = (Fail){0};
  if (!weights_match(&slots, s, "x.safetensors", &rules, &f)) fail_msg("%s", f.text);
  assert_int_equal(rules.ignored, 3);
  st_close(s);
}

static void parts_of_larger_models(void **state) {
  Place *p = *state;
  size_t n;
  Fail f = {0};
  char *bytes = file_of(p->a,
                        "{\"head\":{" ENTRY("F32", "[1]", "0", "4") "},\"body.h.w\":{" ENTRY(
                            "F32", "[2]", "4", "12") "},\"body.v\":{" ENTRY("F32", "[1]", "12", "16") "}}",
                        16, &n);
  SafeTensors *s = st_open_mem(bytes, n, "x", &f);
  if (!s) fail_msg("%s", f.text);
  WeightSlot slot[] = {{.key = "head", .path = "head"}, {.key = "h.w", .path = "h.w"}, {.key = "v", .path = "v"}};
  WeightSlots slots = {slot, 3};
  weights_take_prefix(p->a, &slots, s);
  assert_string_equal(slot[0].key, "head");
  assert_string_equal(slot[1].key, "body.h.w");
  assert_string_equal(slot[2].key, "body.v");
  WeightSlot other[] = {{.key = "w", .path = "w"}, {.key = "u", .path = "u"}}; /* "body.h." is not before u */
  slots = (WeightSlots){other, 2};
  weights_take_prefix(p->a, &slots, s);
  assert_string_equal(other[0].key, "w");
  assert_string_equal(other[1].key, "u");
  st_close(s);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(strict_header),
      TEST(round_trip),
      TEST(sharded),
      TEST(shards_are_split_as_transformers_does),
      TEST(folders_hold_one_file_or_an_index),
      TEST(one_tensor_at_a_time_is_in_memory),
      TEST(transposes_and_converts),
      TEST(transposes_of_any_size),
      TEST(misfits_are_reported_together),
      TEST(parts_of_larger_models),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
