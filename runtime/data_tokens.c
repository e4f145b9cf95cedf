/* data_tokens.c - token files (uint16 or uint32, with or without llm.c's header) and text as bytes.
 *
 * A file is cut into windows of T + 1 tokens, T apart; windows never cross files. */
#include "data_parts.h"

#include <string.h>

enum { HEADER_BYTES = 1024, MAGIC_U16 = 20240520, MAGIC_U32 = 20240801 };

static uint32_t load_token(const Shard *s, int width, int64_t i) {
  const uint8_t *p = s->first + i * width;
  if (width == 1) return p[0];
  if (width == 2) return (uint32_t)p[0] | (uint32_t)p[1] << 8;
  return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* llm.c writes 256 int32: magic, version, token count. Skips it and checks the count against the
 * size. */
static bool skip_header(const DataSet *d, Shard *s, Fail *f) {
  if (s->size < 12) return true;
  uint32_t magic = load_token(s, 4, 0), tokens = load_token(s, 4, 2);
  if (magic != MAGIC_U16 && magic != MAGIC_U32) return true;
  if (s->size < HEADER_BYTES)
    return fail_page(f, EXIT_IO, "E0602",
                     "data `%s`: %s is truncated inside its header of %d bytes", d->name, s->path,
                     HEADER_BYTES);
  size_t body = s->size - HEADER_BYTES;
  int other = d->width == 2 ? 4 : 2;
  if (body == (size_t)tokens * (size_t)other && tokens)
    return fail_page(f, EXIT_IO, "E0602",
                     "data `%s`: %s holds tokens of %d bytes, not %d\n  = write `dtype = u%d`",
                     d->name, s->path, other, d->width, 8 * other);
  if (body != (size_t)tokens * (size_t)d->width)
    return fail_page(f, EXIT_IO, "E0602",
                     "data `%s`: %s is %s: its header announces %u tokens, %zu bytes hold %zu\n"
                     "  = copy or write it again",
                     d->name, s->path,
                     body < (size_t)tokens * (size_t)d->width ? "truncated" : "too long", tokens,
                     body, body / (size_t)d->width);
  s->first = s->map + HEADER_BYTES;
  return true;
}

static bool open_shard(const DataSet *d, Shard *s, Fail *f) {
  s->first = s->map;
  if (d->kind == RD_TOKENS && !skip_header(d, s, f)) return false;
  size_t body = s->size - (size_t)(s->first - s->map);
  if (body % (size_t)d->width)
    return fail_page(f, EXIT_IO, "E0602",
                     "data `%s`: %s is truncated: %zu bytes are no whole number of u%d tokens",
                     d->name, s->path, body, 8 * d->width);
  s->end = (int64_t)(body / (size_t)d->width);
  return true;
}

/* Restricts the shards to tokens [from, to) of all of them together. */
static void keep_range(DataSet *d, int64_t from, int64_t to) {
  int64_t before = 0;
  for (int i = 0; i < d->shards.n; i++) {
    Shard *s = &d->shards.at[i];
    int64_t count = s->end, lo = from - before, hi = to - before;
    s->begin = lo < 0 ? 0 : lo > count ? count : lo;
    s->end = hi < s->begin ? s->begin : hi > count ? count : hi;
    before += count;
  }
}

static uint32_t largest_token(const Shard *s, int width) {
  uint32_t most = 0;
  for (int64_t i = s->begin; i < s->end; i++) {
    uint32_t t = load_token(s, width, i);
    most = t > most ? t : most;
  }
  return most;
}

static bool check_ids(const DataSet *d, const Shard *s, Fail *f) {
  uint32_t bound = d->needs.vocab ? (uint32_t)d->needs.vocab : (uint32_t)INT32_MAX;
  if (s->begin == s->end || largest_token(s, d->width) < bound) return true;
  int64_t i = s->begin;
  while (load_token(s, d->width, i) < bound) i++;
  long long offset = (long long)((s->first - s->map) + i * d->width);
  if (d->kind == RD_TEXT)
    return fail_page(f, EXIT_IO, "E0602",
                     "data `%s`: %s: byte %u at offset %lld, but the vocabulary ends at %u\n"
                     "  = text is read as bytes: the model needs V = 256",
                     d->name, s->path, load_token(s, 1, i), offset, bound);
  return fail_page(f, EXIT_IO, "E0602",
                   "data `%s`: %s: token %lld is %u (offset %lld), but the vocabulary ends at %u\n"
                   "  = was the file made with another tokenizer, or is its `dtype` not u%d?",
                   d->name, s->path, (long long)i, load_token(s, d->width, i), offset, bound,
                   8 * d->width);
}

bool tokens_index(DataSet *d, double keep_from, double keep_to, Fail *f) {
  bool wide = d->setting->dtype && !strcmp(d->setting->dtype, "u32");
  d->width = d->kind == RD_TEXT ? 1 : wide ? 4 : 2;
  int64_t total = 0, T = d->needs.tokens;
  for (int i = 0; i < d->shards.n; i++) {
    if (!open_shard(d, &d->shards.at[i], f)) return false;
    total += d->shards.at[i].end;
  }
  keep_range(d, (int64_t)(keep_from * (double)total), (int64_t)(keep_to * (double)total));
  bool pad = d->needs.whole && d->needs.has_ignore;
  for (int i = 0; i < d->shards.n; i++) {
    Shard *s = &d->shards.at[i];
    if (!check_ids(d, s, f)) return false;
    int64_t targets = s->end - s->begin - 1 > 0 ? s->end - s->begin - 1 : 0;
    s->samples_before = d->samples;
    d->samples += pad ? ceil_div(targets, T) : targets / T;
    d->tokens += pad ? targets : targets / T * T;
  }
  if (d->samples) return true;
  return fail_page(f, EXIT_IO, "E0602",
                   "data `%s`: %lld tokens%s are too few: one sample of T = %lld needs %lld\n"
                   "  = give more data or a smaller T",
                   d->name, (long long)total, d->val ? " (the held-out share)" : "", (long long)T,
                   (long long)T + 1);
}

/* The shard that holds sample i: the last one whose first sample is not above it. */
static const Shard *shard_of(const DataSet *d, int64_t i) {
  int lo = 0, hi = d->shards.n - 1;
  while (lo < hi) {
    int mid = (lo + hi + 1) / 2;
    if (d->shards.at[mid].samples_before <= i)
      lo = mid;
    else
      hi = mid - 1;
  }
  return &d->shards.at[lo];
}

int64_t tokens_sample(const DataSet *d, int64_t i, int32_t *inputs, int32_t *targets,
                      uint8_t *present) {
  const Shard *s = shard_of(d, i);
  int64_t T = d->needs.tokens, at = s->begin + (i - s->samples_before) * T, valid = 0;
  for (int64_t t = 0; t < T; t++, at++) {
    bool here = at + 1 < s->end;
    inputs[t] = here ? (int32_t)load_token(s, d->width, at) : 0;
    targets[t] = here ? (int32_t)load_token(s, d->width, at + 1) : d->needs.ignore;
    present[t] = here;
    valid += here && !(d->needs.has_ignore && targets[t] == d->needs.ignore);
  }
  return valid;
}
