/* test_data.c - data sets: formats, refusals before step 0, order of samples, the preparing thread.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "folder.h"
#include "runtime/loader.h"

static DataNeeds needs(int64_t T, int64_t vocab) {
  return (DataNeeds){.tokens = T, .vocab = vocab, .has_ignore = true, .ignore = -1};
}

static ProgramData setting(int kind, const char *train) {
  return (ProgramData){.name = "d", .kind = kind, .train = train, .shuffle = true};
}

/* Opening must fail with a message that holds `part`. */
static void refused(Place *p, ProgramData d, DataNeeds n, bool val, const char *part) {
  Fail f = {0};
  DataSet *set = data_open(&d, p->source, val, &n, &f);
  if (set) fail_msg("accepted; expected: %s", part);
  assert_int_equal(f.code, EXIT_IO);
  if (!strstr(f.text, part)) fail_msg("got `%s`, expected `%s`", f.text, part);
}

static DataSet *opened(Place *p, ProgramData d, DataNeeds n, bool val) {
  Fail f = {0};
  ProgramData *kept = arena_copy(p->a, &d, sizeof d);
  DataSet *set = data_open(kept, p->source, val, &n, &f);
  if (!set) fail_msg("%s", f.text);
  return set;
}

static void tokens_u16(Place *p, const char *name, int n, int first, bool header,
                       uint32_t announced) {
  uint8_t *bytes = arena_alloc(p->a, 1024 + 2 * (size_t)n);
  uint8_t *body = bytes + (header ? 1024 : 0);
  uint32_t head[3] = {20240520, 1, announced};
  if (header) memcpy(bytes, head, sizeof head);
  for (int i = 0; i < n; i++)
    body[2 * i] = (uint8_t)(first + i), body[2 * i + 1] = (uint8_t)((first + i) >> 8);
  folder_file(p->a, p->dir, name, bytes, (size_t)(body - bytes) + 2 * (size_t)n);
}

static void windows_of_tokens(void **state) {
  Place *p = *state;
  tokens_u16(p, "a_2.bin", 11, 100, true, 11);
  tokens_u16(p, "a_1.bin", 9, 300, false, 0);
  DataSet *d = opened(p, setting(RD_TOKENS, "a_*.bin"), needs(4, 512), false);
  int32_t in[4], out[4];
  uint8_t here[4];
  /* a_1 sorts first: 8 targets are 2 windows; a_2: 10 targets are 2 windows and a rest */
  assert_int_equal(data_samples(d), 4);
  assert_int_equal(data_sample(d, 1, in, out, here), 4);
  assert_int_equal(in[0], 304);
  assert_int_equal(out[3], 308);
  assert_int_equal(data_sample(d, 3, in, out, here), 4);
  assert_int_equal(in[0], 104);
  assert_int_equal(out[0], 105);
  data_close(d);
  DataNeeds whole = needs(4, 512);
  whole.whole = true;
  d = opened(p, setting(RD_TOKENS, "a_*.bin"), whole, false);
  assert_int_equal(data_samples(d), 5);
  assert_int_equal(data_all_tokens(d), 18);
  assert_int_equal(data_sample(d, 4, in, out, here), 2);
  assert_int_equal(in[0], 108);
  assert_int_equal(out[1], 110);
  assert_int_equal(out[2], -1);
  assert_int_equal(here[1] + here[2], 1);
  data_close(d);
}

static void wide_tokens(void **state) {
  Place *p = *state;
  uint32_t ids[] = {70000, 1, 2, 3, 4};
  folder_file(p->a, p->dir, "w.bin", ids, sizeof ids);
  ProgramData s = setting(RD_TOKENS, "w.bin");
  s.dtype = "u32";
  DataSet *d = opened(p, s, needs(4, 0), false);
  int32_t in[4], out[4];
  uint8_t here[4];
  data_sample(d, 0, in, out, here);
  assert_int_equal(in[0], 70000);
  data_close(d);
  refused(p, s, needs(4, 50257), false,
          "token 0 is 70000 (offset 0), but the vocabulary ends at 50257");
}

static void token_files_that_are_wrong(void **state) {
  Place *p = *state;
  tokens_u16(p, "short.bin", 100, 0, true, 120);
  refused(p, setting(RD_TOKENS, "short.bin"), needs(4, 512), false,
          "truncated: its header announces 120");
  tokens_u16(p, "long.bin", 100, 0, true, 90);
  refused(p, setting(RD_TOKENS, "long.bin"), needs(4, 512), false, "too long");
  tokens_u16(p, "other.bin", 100, 0, true, 50);
  refused(p, setting(RD_TOKENS, "other.bin"), needs(4, 512), false, "write `dtype = u32`");
  folder_file(p->a, p->dir, "odd.bin", "abc", 3);
  refused(p, setting(RD_TOKENS, "odd.bin"), needs(1, 512), false, "no whole number of u16 tokens");
  folder_file(p->a, p->dir, "empty.bin", "", 0);
  refused(p, setting(RD_TOKENS, "empty.bin"), needs(1, 512), false, "is empty");
  refused(p, setting(RD_TOKENS, "none_*.bin"), needs(1, 512), false, "no file matches");
  tokens_u16(p, "few.bin", 4, 0, false, 0);
  refused(p, setting(RD_TOKENS, "few.bin"), needs(4, 512), false, "one sample of T = 4 needs 5");
  tokens_u16(p, "big.bin", 20, 500, true, 20);
  refused(p, setting(RD_TOKENS, "big.bin"), needs(4, 512), false,
          "token 12 is 512 (offset 1048), but the vocabulary ends at 512");
  refused(p, setting(RD_TOKENS, "few.bin"), needs(2, 512), true, "nothing to evaluate on");
  refused(p, setting(3, "few.bin"), needs(2, 512), false, "cannot be read yet");
}

static void text_with_holdout(void **state) {
  Place *p = *state;
  const char *text = "0123456789abcdefghij"; /* 20 bytes, of which the last 3 are held out */
  folder_file(p->a, p->dir, "t.txt", text, 20);
  ProgramData s = setting(RD_TEXT, "t.txt");
  s.holdout = 0.15;
  int32_t in[4], out[4];
  uint8_t here[4];
  DataSet *d = opened(p, s, needs(4, 256), false);
  assert_int_equal(data_samples(d), 4); /* 17 bytes: 16 targets */
  data_sample(d, 3, in, out, here);
  assert_int_equal(out[3], 'g');
  data_close(d);
  DataNeeds whole = needs(4, 256);
  whole.whole = true;
  d = opened(p, s, whole, true);
  assert_int_equal(data_samples(d), 1);
  assert_int_equal(data_sample(d, 0, in, out, here), 2);
  assert_int_equal(in[0], 'h');
  assert_int_equal(out[1], 'j');
  data_close(d);
  refused(p, s, needs(4, 100), false, "the model needs V = 256");
}

static void jsonl_samples(void **state) {
  Place *p = *state;
  const char *text =
      "{\"tokens\": [1, 2, 3, 4, 5], \"mask\": [0, 0, 1, 1, 1]}\n"
      "\n"
      "{\"ids\": [7, 8, 9], \"loss_mask\": [true, false, true]}\n"
      "{\"ids\": [10, 11]}";
  folder_file(p->a, p->dir, "s.jsonl", text, strlen(text));
  int32_t in[4], out[4];
  uint8_t here[4];
  DataSet *d = opened(p, setting(RD_JSONL, "s.jsonl"), needs(4, 100), false);
  assert_int_equal(data_samples(d), 3);
  assert_int_equal(data_sample(d, 0, in, out, here), 3);
  int32_t want0[] = {-1, 3, 4, 5};
  assert_memory_equal(out, want0, sizeof out);
  assert_int_equal(data_sample(d, 1, in, out, here), 1);
  int32_t want1[] = {-1, 9, -1, -1}, want_in[] = {7, 8, 0, 0};
  assert_memory_equal(out, want1, sizeof out);
  assert_memory_equal(in, want_in, sizeof in);
  assert_int_equal(data_sample(d, 2, in, out, here), 1);
  data_close(d);
  ProgramData all = setting(RD_JSONL, "s.jsonl");
  all.prompt_loss = true;
  d = opened(p, all, needs(4, 100), false);
  assert_int_equal(data_sample(d, 0, in, out, here), 4);
  data_close(d);
}

static void jsonl_that_is_too_long(void **state) {
  Place *p = *state;
  const char *text = "{\"ids\": [1, 2]}\n{\"ids\": [1, 2, 3, 4, 5, 6, 7]}\n";
  folder_file(p->a, p->dir, "l.jsonl", text, strlen(text));
  ProgramData s = setting(RD_JSONL, "l.jsonl");
  refused(p, s, needs(4, 100), false, "l.jsonl:2: 7 tokens, but a sample of T = 4 holds 5");
  int32_t in[4], out[4];
  uint8_t here[4];
  s.too_long = RT_TRUNCATE;
  DataSet *d = opened(p, s, needs(4, 100), false);
  assert_int_equal(data_samples(d), 2);
  assert_int_equal(data_sample(d, 1, in, out, here), 4);
  assert_int_equal(out[3], 5);
  data_close(d);
  s.too_long = RT_SPLIT;
  d = opened(p, s, needs(4, 100), false);
  assert_int_equal(data_samples(d), 3);
  assert_int_equal(data_sample(d, 2, in, out, here), 2);
  assert_int_equal(in[0], 5);
  data_close(d);
}

static void jsonl_that_is_wrong(void **state) {
  Place *p = *state;
  static const struct {
    const char *text, *why;
  } cases[] = {
      {"{\"ids\": [1, 2]}\n{\"ids\": [1, 2\n", "w.jsonl:2: not JSON"},
      {"[1, 2]\n", "w.jsonl:1: not an object"},
      {"{\"text\": \"x\"}\n", "models/convert_tokens.py"},
      {"{\"ids\": [1]}\n", "needs at least two"},
      {"{\"ids\": [1, 100]}\n", "token 1 is 100, but ids are 0 to 99"},
      {"{\"ids\": [1, -1]}\n", "token 1 is -1"},
      {"{\"ids\": [1, 2.5]}\n", "token 1 is 2.5"},
      {"{\"ids\": [1, 2], \"mask\": [1]}\n", "not an array of 2 flags"},
      {"{\"ids\": [1, 2], \"mask\": [1, 2]}\n", "mask 1 is neither 0 nor 1"},
      {"\n\n", "no samples"},
  };
  for (int i = 0; i < COUNT_OF(cases); i++) {
    folder_file(p->a, p->dir, "w.jsonl", cases[i].text, strlen(cases[i].text));
    refused(p, setting(RD_JSONL, "w.jsonl"), needs(4, 100), false, cases[i].why);
  }
  folder_file(p->a, p->dir, "w.jsonl", "{\"ids\": [1, 2]}\n", 16);
  DataNeeds no_ignore = {.tokens = 4, .vocab = 100};
  refused(p, setting(RD_JSONL, "w.jsonl"), no_ignore, false, "`ignore` value");
}

static void shuffles_are_permutations(void **state) {
  (void)state;
  static const int64_t sizes[] = {1, 2, 3, 5, 16, 17, 100, 1000, 4097};
  static int seen[4097];
  for (int k = 0; k < COUNT_OF(sizes); k++) {
    int64_t n = sizes[k], moved = 0, same = 0;
    memset(seen, 0, sizeof seen);
    for (int64_t i = 0; i < n; i++) {
      int64_t x = shuffle_at(7, 3, i, n);
      assert_in_range(x, 0, n - 1);
      assert_int_equal(seen[x]++, 0);
      moved += x != i;
      same += x == shuffle_at(7, 4, i, n);
    }
    if (n >= 100) {
      assert_true(moved > n * 9 / 10);
      assert_true(same < n / 10);
    }
  }
}

/* The whole stream of a loader, for `steps` steps from a position. */
static int64_t stream(const DataSet *d, int64_t samples, int steps, DataPosition *at,
                      int32_t *ids) {
  Fail f = {0};
  Loader *l = loader_open(d, 4, samples, 99, true, *at, &f);
  int64_t n = 0;
  for (int s = 0; s < steps; s++) {
    const Batch *b = loader_next(l, &f);
    assert_non_null(b);
    assert_int_equal(b->valid, 4 * samples);
    for (int64_t i = 0; i < samples; i++) ids[n++] = b->inputs[4 * i];
    *at = b->after;
  }
  loader_close(l);
  return n;
}

static void positions_resume_exactly(void **state) {
  Place *p = *state;
  tokens_u16(p, "r.bin", 4 * 50 + 1, 0, false, 0);
  DataSet *d = opened(p, setting(RD_TOKENS, "r.bin"), needs(4, 512), false);
  assert_int_equal(data_samples(d), 50);
  int32_t whole[140], parts[140], other[140];
  DataPosition at = {0, 0}, cut = {0, 0}, split = {0, 0};
  stream(d, 7, 20, &at, whole);
  assert_int_equal(at.epoch, 2);
  assert_int_equal(at.index, 40);
  int64_t n = stream(d, 7, 9, &cut, parts);
  stream(d, 7, 11, &cut, parts + n);
  assert_memory_equal(whole, parts, sizeof whole);
  stream(d, 14, 10, &split, other); /* another number of samples a step: the same stream */
  assert_memory_equal(whole, other, sizeof whole);
  int seen[50] = {0};
  for (int i = 0; i < 50; i++)
    assert_int_equal(seen[whole[i] / 4]++, 0); /* an epoch shows each sample once */
  data_close(d);
}

static void last_batch_is_padded(void **state) {
  Place *p = *state;
  tokens_u16(p, "e.bin", 4 * 5 + 1, 0, false, 0);
  DataSet *d = opened(p, setting(RD_TOKENS, "e.bin"), needs(4, 512), false);
  Batch b;
  Fail f = {0};
  assert_true(batch_alloc(&b, 4, 3, &f));
  assert_int_equal(batch_fill(&b, d, 3, -1), 2);
  assert_int_equal(b.valid, 8);
  assert_int_equal(b.targets[8], -1);
  assert_int_equal(b.inputs[8], 0);
  batch_free(&b);
  data_close(d);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(windows_of_tokens),
      TEST(wide_tokens),
      TEST(token_files_that_are_wrong),
      TEST(text_with_holdout),
      TEST(jsonl_samples),
      TEST(jsonl_that_is_too_long),
      TEST(jsonl_that_is_wrong),
      cmocka_unit_test(shuffles_are_permutations),
      TEST(positions_resume_exactly),
      TEST(last_batch_is_padded),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
