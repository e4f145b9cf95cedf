/* data_jsonl.c - jsonl data: one object a line with token ids and, if it likes, a loss mask.
 *
 * Every line is parsed once when the set is opened, so that what is wrong is reported with file and
 * line; later a sample is parsed again from its line. Target t is token t + 1; it counts when that
 * token's mask is 1. */
#include "data_parts.h"

#include <jansson.h>
#include <string.h>

typedef struct {
  json_t *object, *ids, *mask;
} Record;

static void release(Record *r) {
  json_decref(r->object);
}

static json_t *either(json_t *object, const char *a, const char *b, const char *c) {
  json_t *v = json_object_get(object, a);
  if (!v) v = json_object_get(object, b);
  return v ? v : json_object_get(object, c);
}

/* False with a sentence in why. */
static bool parse_line(const char *text, size_t n, Record *r, char *why, size_t room) {
  json_error_t e;
  r->object = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
  if (!r->object) {
    snprintf(why, room, "not JSON: %s (column %d)", e.text, e.column);
    return false;
  }
  r->ids = either(r->object, "tokens", "ids", "input_ids");
  r->mask = either(r->object, "mask", "loss_mask", "loss_mask");
  why[0] = 0;
  if (!json_is_object(r->object))
    snprintf(why, room, "not an object");
  else if (!r->ids)
    snprintf(why, room, "no `tokens` or `ids`%s",
             json_object_get(r->object, "text") ? "; text becomes ids with models/convert_tokens.py"
                                                : "");
  else if (!json_is_array(r->ids))
    snprintf(why, room, "its ids are not an array");
  else if (json_array_size(r->ids) < 2)
    snprintf(why, room, "%zu tokens: a sample needs at least two", json_array_size(r->ids));
  else if (r->mask &&
           (!json_is_array(r->mask) || json_array_size(r->mask) != json_array_size(r->ids)))
    snprintf(why, room, "its mask is not an array of %zu flags", json_array_size(r->ids));
  if (!why[0]) return true;
  release(r);
  return false;
}

static int flag_of(const json_t *v) {
  if (json_is_boolean(v)) return json_is_true(v);
  if (json_is_integer(v) && (json_integer_value(v) == 0 || json_integer_value(v) == 1))
    return (int)json_integer_value(v);
  return -1;
}

static bool check_values(const DataSet *d, const Record *r, char *why, size_t room) {
  int64_t bound = d->needs.vocab ? d->needs.vocab : INT32_MAX;
  size_t n = json_array_size(r->ids);
  for (size_t i = 0; i < n; i++) {
    const json_t *v = json_array_get(r->ids, i);
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= bound) {
      char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
      snprintf(why, room, "token %zu is %.40s, but ids are 0 to %lld", i, text ? text : "?",
               (long long)bound - 1);
      free(text);
      return false;
    }
    if (r->mask && flag_of(json_array_get(r->mask, i)) < 0) {
      snprintf(why, room, "mask %zu is neither 0 nor 1", i);
      return false;
    }
  }
  return true;
}

/* Adds the samples of one line, or says what is wrong with it. */
static bool index_line(DataSet *d, Line line, char *why, size_t room) {
  const Shard *s = &d->shards.at[line.shard];
  Record r;
  if (!parse_line((const char *)s->map + line.offset, (size_t)line.bytes, &r, why, room))
    return false;
  bool ok = check_values(d, &r, why, room);
  int64_t T = d->needs.tokens, targets = (int64_t)json_array_size(r.ids) - 1;
  bool needs_ignore = targets % T || (r.mask && !d->setting->prompt_loss);
  release(&r);
  if (!ok) return false;
  if (targets > T && d->setting->too_long == RT_ERROR) {
    snprintf(why, room,
             "%lld tokens, but a sample of T = %lld holds %lld\n"
             "  = `too_long = truncate` or `too_long = split` in the data section, or a larger T",
             (long long)targets + 1, (long long)T, (long long)T + 1);
    return false;
  }
  if (targets > T && d->setting->too_long == RT_TRUNCATE) targets = T;
  if (needs_ignore && !d->needs.has_ignore) {
    snprintf(why, room,
             "padding and masks need targets that do not count\n"
             "  = give the model's cross_entropy an `ignore` value");
    return false;
  }
  for (line.part = 0; line.part * T < targets; line.part++) vec_push(d->arena, &d->lines, line);
  d->tokens += targets;
  return true;
}

static bool blank(const char *p, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (p[i] != ' ' && p[i] != '\t' && p[i] != '\r') return false;
  return true;
}

static bool index_shard(DataSet *d, int shard, Fail *f) {
  const Shard *s = &d->shards.at[shard];
  const char *text = (const char *)s->map;
  char why[500];
  long number = 1;
  for (size_t at = 0; at < s->size; number++) {
    const char *end = memchr(text + at, '\n', s->size - at);
    size_t n = end ? (size_t)(end - (text + at)) : s->size - at;
    Line line = {.shard = shard, .offset = (int64_t)at, .bytes = (int64_t)n};
    if (!blank(text + at, n) && !index_line(d, line, why, sizeof why))
      return fail_page(f, EXIT_IO, "E0602", "data `%s`: %s:%ld: %s", d->name, s->path, number, why);
    at += n + 1;
  }
  return true;
}

bool jsonl_index(DataSet *d, double keep_from, double keep_to, Fail *f) {
  for (int i = 0; i < d->shards.n; i++)
    if (!index_shard(d, i, f)) return false;
  int64_t all = d->lines.n, from = (int64_t)(keep_from * (double)all);
  int64_t to = (int64_t)(keep_to * (double)all);
  d->lines.at += from;
  d->lines.n = (int)(to - from);
  d->samples = d->lines.n;
  d->tokens = all ? d->tokens * d->samples / all : 0;
  if (d->samples) return true;
  return fail_page(f, EXIT_IO, "E0602", "data `%s`: no samples%s", d->name,
                   d->val ? " in the held-out share" : "");
}

int64_t jsonl_sample(const DataSet *d, int64_t i, int32_t *inputs, int32_t *targets,
                     uint8_t *present) {
  const Line *line = &d->lines.at[i];
  Record r;
  char why[500];
  const char *text = (const char *)d->shards.at[line->shard].map + line->offset;
  if (!parse_line(text, (size_t)line->bytes, &r, why, sizeof why)) return -1;
  int64_t T = d->needs.tokens, n = (int64_t)json_array_size(r.ids), at = line->part * T, valid = 0;
  bool masked = r.mask && !d->setting->prompt_loss;
  for (int64_t t = 0; t < T; t++, at++) {
    bool here = at + 1 < n;
    bool counts = here && (!masked || flag_of(json_array_get(r.mask, (size_t)at + 1)) == 1);
    inputs[t] = here ? (int32_t)json_integer_value(json_array_get(r.ids, (size_t)at)) : 0;
    targets[t] = counts ? (int32_t)json_integer_value(json_array_get(r.ids, (size_t)at + 1))
                        : d->needs.ignore;
    present[t] = here;
    valid += counts && !(d->needs.has_ignore && targets[t] == d->needs.ignore);
  }
  release(&r);
  return valid;
}
