/* recompute_file.c - reads a recompute problem: one JSON object a line, one op each, in order of
 * execution.
 *
 * In: text. Out: a RecProblem whose values are numbered in order of first mention, or a sentence
 * with the line at fault. An alias whose input is read again later is a view: both ids name one
 * value. Any other alias is in place. */
#include "recompute_file.h"

#include <jansson.h>
#include <string.h>

typedef struct {
  int64_t id;
  int value; /* its value; views share one */
} IdSlot;

typedef VEC(int) Ints;

typedef struct {
  Arena *a;
  const char **why;
  int line;
  VEC(RecOp) ops;
  VEC(int) op_line;
  VEC(int64_t) bytes;
  VEC(int64_t) ids;
  VEC(int) maker;     /* per value: op that makes it, -1 none */
  VEC(int) last_read; /* per value: last op that reads it */
  VEC(bool) freed;
  bool frees;   /* some op has a `free` list */
  IdSlot *slot; /* open hash of ids, -1 value: empty */
  int nslot;
} Reader;

static bool fail(Reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool fail(Reader *r, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  *r->why = arena_printf(r->a, "line %d: %s", r->line, arena_vprintf(r->a, fmt, ap));
  va_end(ap);
  return false;
}

static IdSlot *find_slot(Reader *r, int64_t id) {
  uint64_t h = hash_bytes(&id, sizeof id, 0);
  for (uint64_t i = h;; i++) {
    IdSlot *s = &r->slot[i & (uint64_t)(r->nslot - 1)];
    if (s->value < 0 || s->id == id) return s;
  }
}

static void grow_slots(Reader *r) {
  IdSlot *old = r->slot;
  int n = r->nslot;
  r->nslot = n ? 2 * n : 1024;
  r->slot = arena_array(r->a, IdSlot, r->nslot);
  for (int i = 0; i < r->nslot; i++) r->slot[i].value = -1;
  for (int i = 0; i < n; i++)
    if (old[i].value >= 0) *find_slot(r, old[i].id) = old[i];
}

/* Value of an id, made on first mention. */
static int value_of(Reader *r, int64_t id) {
  if (2 * r->ids.n >= r->nslot) grow_slots(r);
  IdSlot *s = find_slot(r, id);
  if (s->value >= 0) return s->value;
  *s = (IdSlot){.id = id, .value = r->ids.n};
  vec_push(r->a, &r->ids, id);
  vec_push(r->a, &r->bytes, 0);
  vec_push(r->a, &r->maker, -1);
  vec_push(r->a, &r->last_read, -1);
  vec_push(r->a, &r->freed, false);
  return s->value;
}

static bool get_count(Reader *r, const json_t *o, const char *key, int64_t *out) {
  const json_t *x = json_object_get(o, key);
  if (!x) return true;
  double real = json_number_value(x);
  if (!json_is_number(x) || real < 0 || real > 9e18)
    return fail(r, "\"%s\" is not a number >= 0", key);
  *out = json_is_integer(x) ? json_integer_value(x) : (int64_t)(real + 0.5);
  return true;
}

static bool get_bool(Reader *r, const json_t *o, const char *key, bool *out) {
  const json_t *x = json_object_get(o, key);
  if (!x) return true;
  if (!json_is_boolean(x)) return fail(r, "\"%s\" is not true or false", key);
  *out = json_is_true(x);
  return true;
}

static bool get_ids(Reader *r, const json_t *o, const char *key, Ints *out) {
  const json_t *list = json_object_get(o, key), *x;
  size_t i;
  if (!list) return true;
  if (!json_is_array(list)) return fail(r, "\"%s\" is not a list of ids", key);
  json_array_foreach(list, i, x) {
    if (!json_is_integer(x)) return fail(r, "\"%s\" holds something that is not an id", key);
    int v = value_of(r, json_integer_value(x));
    bool twice = false;
    for (int k = 0; k < out->n; k++) twice |= out->at[k] == v;
    if (!twice) vec_push(r->a, out, v);
  }
  return true;
}

static int position(const int *list, int n, int v) {
  for (int i = 0; i < n; i++)
    if (list[i] == v) return i;
  return -1;
}

static bool get_outputs(Reader *r, const json_t *o, const Ints *in, Ints *out) {
  const json_t *list = json_object_get(o, "out"), *x;
  size_t i;
  if (!list) return true;
  if (!json_is_array(list)) return fail(r, "\"out\" is not a list of {\"id\", \"bytes\"}");
  json_array_foreach(list, i, x) {
    const json_t *id = json_object_get(x, "id");
    if (!json_is_integer(id)) return fail(r, "an output has no \"id\"");
    int v = value_of(r, json_integer_value(id));
    int64_t bytes = 0;
    if (!get_count(r, x, "bytes", &bytes)) return false;
    if (position(in->at, in->n, v) >= 0)
      return fail(r, "value %lld is read by the op that makes it",
                  (long long)json_integer_value(id));
    if (r->maker.at[v] >= 0)
      return fail(r, "value %lld is made twice", (long long)json_integer_value(id));
    if (r->last_read.at[v] >= 0)
      return fail(r, "value %lld is made after line %d read it", (long long)json_integer_value(id),
                  r->op_line.at[r->last_read.at[v]]);
    r->maker.at[v] = r->ops.n;
    r->bytes.at[v] = bytes;
    vec_push(r->a, out, v);
  }
  return true;
}

/* First pass over an op: everything but aliases, which need to know who reads later. */
static bool read_op(Reader *r, const json_t *o) {
  Ints in = {0}, out = {0}, freed = {0};
  RecOp op = {.alias = -1, .redo = true};
  int64_t layer = 0;
  bool pure = true, nograd = false;
  const json_t *name = json_object_get(o, "op");
  if (!json_is_object(o)) return fail(r, "not a JSON object");
  op.name = json_is_string(name) ? intern(json_string_value(name)) : "op";
  if (!get_count(r, o, "ns", &op.ns) || !get_count(r, o, "ws", &op.ws)) return false;
  if (!get_count(r, o, "layer", &layer)) return false;
  if (layer > 1000000) return fail(r, "\"layer\" is over 1,000,000");
  if (!get_bool(r, o, "bwd", &op.bwd) || !get_bool(r, o, "nograd", &nograd)) return false;
  if (!get_bool(r, o, "pure", &pure)) return false;
  if (!get_ids(r, o, "in", &in) || !get_outputs(r, o, &in, &out)) return false;
  if (!get_ids(r, o, "free", &freed)) return false;
  for (int i = 0; i < in.n; i++) r->last_read.at[in.at[i]] = r->ops.n;
  for (int i = 0; i < freed.n; i++) r->freed.at[freed.at[i]] = true;
  r->frees |= json_object_get(o, "free") != NULL;
  op.layer = (int)layer;
  op.bwd |= nograd;
  op.redo = pure && !op.bwd;
  op.nin = in.n;
  op.in = in.at;
  op.nout = out.n;
  op.out = out.at;
  vec_push(r->a, &r->ops, op);
  vec_push(r->a, &r->op_line, r->line);
  return true;
}

/* Second pass: in place when nobody reads the input later; else a view, which stands for the input
 * from here on. */
static bool read_alias(Reader *r, const json_t *o, int k, int *stands_for) {
  RecOp *op = &r->ops.at[k];
  json_t *alias = json_object_get(o, "alias"), *x;
  const char *key;
  json_object_foreach(alias, key, x) {
    char *end;
    long long id = strtoll(key, &end, 10);
    if (*end || !json_is_integer(x)) return fail(r, "\"alias\" is not {\"out\": in}");
    int to = value_of(r, id), from = value_of(r, json_integer_value(x));
    int out = position(op->out, op->nout, to), in = position(op->in, op->nin, from);
    if (out < 0) return fail(r, "\"alias\" names %lld, which is no output here", id);
    if (in < 0) return fail(r, "\"alias\" takes over a value that is no input here");
    while (stands_for[from] != from) from = stands_for[from];
    if (r->last_read.at[from] > k || op->alias >= 0) {
      stands_for[to] = from;
      if (r->last_read.at[to] > r->last_read.at[from]) r->last_read.at[from] = r->last_read.at[to];
    } else {
      int *outs = (int *)op->out;
      outs[out] = outs[0];
      outs[0] = to;
      op->alias = from;
    }
  }
  return true;
}

/* Replaces views by what they stand for; the op that makes a view has no such output. */
static void fold_views(Reader *r, const int *stands_for) {
  for (int k = 0; k < r->ops.n; k++) {
    RecOp *op = &r->ops.at[k];
    int *in = (int *)op->in, *out = (int *)op->out, nin = 0, nout = 0;
    for (int i = 0; i < op->nin; i++) {
      int v = in[i];
      while (stands_for[v] != v) v = stands_for[v];
      if (position(in, nin, v) < 0) in[nin++] = v;
    }
    for (int i = 0; i < op->nout; i++)
      if (stands_for[out[i]] == out[i]) out[nout++] = out[i];
    op->nin = nin;
    op->nout = nout;
  }
}

typedef bool (*LineFn)(Reader *r, const json_t *o, void *to);

/* Calls fn for each line that is not blank. */
static bool each_line(Reader *r, const char *text, size_t size, LineFn fn, void *to) {
  r->line = 0;
  for (size_t at = 0; at < size;) {
    size_t end = at;
    while (end < size && text[end] != '\n') end++;
    r->line++;
    if (end > at + strspn(text + at, " \t\r")) {
      json_error_t e;
      json_t *o = json_loadb(text + at, end - at, 0, &e);
      bool ok = o ? fn(r, o, to) : fail(r, "%s", e.text);
      json_decref(o);
      if (!ok) return false;
    }
    at = end + 1;
  }
  return true;
}

static bool first_pass(Reader *r, const json_t *o, void *to) {
  (void)to;
  return read_op(r, o);
}

typedef struct {
  int op;
  int *stands_for;
} AliasPass;

static bool second_pass(Reader *r, const json_t *o, void *to) {
  AliasPass *pass = to;
  return read_alias(r, o, pass->op++, pass->stands_for);
}

/* Sums of what runs and lives, however often, must fit 64 bits. */
static bool check_sums(Reader *r) {
  const int64_t most_bytes = (int64_t)1 << 60, most_ns = (int64_t)1 << 50;
  int64_t bytes = 0, ns = 0;
  for (int v = 0; v < r->bytes.n; v++) {
    if (r->bytes.at[v] > most_bytes - bytes) return fail(r, "the values add up to over 2^60 bytes");
    bytes += r->bytes.at[v];
  }
  for (int k = 0; k < r->ops.n; k++) {
    const RecOp *op = &r->ops.at[k];
    if (op->ws > most_bytes) return fail(r, "a workspace of over 2^60 bytes");
    if (op->ns > most_ns - ns) return fail(r, "the times add up to over 2^50 ns");
    ns += op->ns;
  }
  return true;
}

RecFile *recompute_read(Arena *a, const char *text, size_t size, const char **why) {
  Reader r = {.a = a, .why = why};
  if (!each_line(&r, text, size, first_pass, NULL)) return NULL;
  if (!r.ops.n) {
    r.line = 1;
    fail(&r, "no op");
    return NULL;
  }
  if (!check_sums(&r)) return NULL;
  int nval = r.ids.n;
  AliasPass pass = {.stands_for = arena_array(a, int, nval)};
  for (int v = 0; v < nval; v++) pass.stands_for[v] = v;
  if (!each_line(&r, text, size, second_pass, &pass)) return NULL;
  fold_views(&r, pass.stands_for);
  bool *keep = arena_array(a, bool, nval);
  for (int v = 0; v < nval; v++) {
    int s = v;
    while (pass.stands_for[s] != s) s = pass.stands_for[s];
    keep[s] |= r.frees && r.maker.at[v] >= 0 && !r.freed.at[v];
  }
  for (int k = 0; k < r.ops.n; k++)
    if (r.ops.at[k].alias >= 0) keep[r.ops.at[k].alias] = false;
  RecFile *f = arena_new_of(a, RecFile);
  f->problem =
      (RecProblem){.nop = r.ops.n, .op = r.ops.at, .nval = nval, .bytes = r.bytes.at, .keep = keep};
  f->id = r.ids.at;
  return f;
}
