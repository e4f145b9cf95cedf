/* feed.c - batches and step scalars into a program's inputs: see feed.h. */
#include "feed.h"

#include <math.h>
#include <string.h>

static const struct {
  const char *name;
  FeedField field;
} fields[] = {
    {"tokens", FIELD_INPUTS}, {"ids", FIELD_INPUTS},      {"input_ids", FIELD_INPUTS},
    {"inputs", FIELD_INPUTS}, {"targets", FIELD_TARGETS}, {"labels", FIELD_TARGETS},
    {"mask", FIELD_PRESENT},
};

static int field_of(const Program *p, const char *name) {
  if (p->target_input && !strcmp(name, p->target_input)) return FIELD_TARGETS;
  for (int i = 0; i < COUNT_OF(fields); i++)
    if (!strcmp(fields[i].name, name)) return (int)fields[i].field;
  return -1;
}

static bool fits(const Tensor *t, FeedField field, int64_t samples, int64_t tokens) {
  bool type =
      field == FIELD_PRESENT ? t->dtype == DT_BOOL : t->dtype == DT_I32 || t->dtype == DT_U32;
  return type && t->rank == 2 && t->dim[0] == samples && t->dim[1] == tokens;
}

bool feed_resolve(Arena *a, const Program *p, int code, int64_t samples, int64_t tokens, Feed *feed,
                  Fail *f) {
  const ProgramCode *c = &p->programs[code];
  feed->inputs = arena_alloc(a, sizeof *feed->inputs * (size_t)(c->ninputs + 1));
  feed->n = 0;
  for (int i = 0; i < c->ninputs; i++) {
    const Tensor *t = &c->inputs[i].at;
    int field = field_of(p, c->inputs[i].name);
    if (field < 0)
      return fail_page(f, EXIT_IO, "E0602",
                       "the data has no field `%s`, which the model takes\n"
                       "  = tokens, text and jsonl data give `tokens`, `targets` and `mask`",
                       c->inputs[i].name);
    Shape s = shape_of(t->rank, t->dim);
    if (!fits(t, (FeedField)field, samples, tokens))
      return fail_page(
          f, EXIT_IO, "E0602", "the model takes `%s` as %s%s, but the data gives %s[%lld, %lld]",
          c->inputs[i].name, dtype_name(t->dtype), shape_text(a, &s),
          field == FIELD_PRESENT ? "bool" : "i32", (long long)samples, (long long)tokens);
    feed->inputs[feed->n].field = (FeedField)field;
    feed->inputs[feed->n++].at = t;
  }
  return true;
}

bool feed_write(Replay *r, const Feed *feed, const Batch *b, int64_t first_row, Fail *f) {
  int64_t at = first_row * b->tokens;
  const void *source[] = {[FIELD_INPUTS] = b->inputs + at,
                          [FIELD_TARGETS] = b->targets + at,
                          [FIELD_PRESENT] = b->present + at};
  for (int i = 0; i < feed->n; i++)
    if (!replay_write(r, feed->inputs[i].at, source[feed->inputs[i].field], f)) return false;
  return true;
}

Scalars scalars_of(const Program *p) {
  static const char *const paths[] = {
#define X(id, path, dtype, n, doc) [id] = path,
      STEP_SCALARS(X)
#undef X
  };
  Scalars s;
  for (int i = 0; i < SC_COUNT; i++) s.var[i] = program_var(p, paths[i]);
  return s;
}

static bool write_scalar(Replay *r, const Scalars *s, StepScalar which, DType type, int64_t count,
                         const void *value, Fail *f) {
  if (s->var[which] < 0) return true;
  const ProgramVar *v = &r->program->vars[s->var[which]];
  int64_t n = 1;
  for (int i = 0; i < v->at.rank; i++) n *= v->at.dim[i];
  if (v->at.dtype != type || n != count)
    return fail_set(f, EXIT_IO, "the program's scalar %s has another type than the runtime's",
                    v->path);
  return replay_write(r, &v->at, value, f);
}

bool scalar_write_f32(Replay *r, const Scalars *s, StepScalar which, double value, Fail *f) {
  float x = (float)value;
  return write_scalar(r, s, which, DT_F32, 1, &x, f);
}

bool scalar_write_i32(Replay *r, const Scalars *s, StepScalar which, int64_t value, Fail *f) {
  int32_t x = (int32_t)value;
  return write_scalar(r, s, which, DT_I32, 1, &x, f);
}

bool scalar_write_seed(Replay *r, const Scalars *s, uint64_t seed, Fail *f) {
  uint32_t words[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
  return write_scalar(r, s, SC_SEED, DT_U32, 2, words, f);
}

bool scalar_read(Replay *r, int var, double *value, Fail *f) {
  *value = NAN;
  if (var < 0) return true;
  const Tensor *t = &r->program->vars[var].at;
  uint32_t bits = 0;
  if (t->rank && !(t->rank == 1 && t->dim[0] == 1))
    return fail_set(f, EXIT_IO, "%s is no scalar", r->program->vars[var].path);
  if (!replay_read(r, t, &bits, f)) return false;
  float x;
  int32_t i;
  memcpy(&x, &bits, sizeof x);
  memcpy(&i, &bits, sizeof i);
  *value = t->dtype == DT_F32 ? (double)x : t->dtype == DT_I32 ? (double)i : (double)(bits & 0xff);
  return true;
}
