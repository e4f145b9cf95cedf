/* types.c - element types and shapes. See types.h. */
#include "types.h"
#include <string.h>

static const struct {
  const char *name;
  int bytes;
  bool is_float;
} dtypes[DT_COUNT] = {
#define X(id, text, bytes, is_float) [id] = {text, bytes, is_float},
    DTYPES(X)
#undef X
};

const char *dtype_name(DType t) { return dtypes[t].name; }
int dtype_bytes(DType t) { return dtypes[t].bytes; }
bool dtype_is_float(DType t) { return dtypes[t].is_float; }

int dtype_by_name(const char *s) {
  for (int t = 0; t < DT_COUNT; t++)
    if (!strcmp(dtypes[t].name, s)) return t;
  return -1;
}

const char *dtype_of_others(const char *s) {
  static const char *const names[][2] = {
      {"float32", "f32"}, {"fp32", "f32"},      {"float", "f32"},  {"single", "f32"},
      {"float16", "f16"}, {"fp16", "f16"},      {"half", "f16"},   {"bfloat16", "bf16"},
      {"bfloat", "bf16"}, {"tfloat32", "tf32"}, {"int8", "i8"},    {"8bit", "i8"},
      {"int32", "i32"},   {"int", "i32"},       {"uint32", "u32"}, {"uint16", "u16"},
      {"uint8", "u8"}};
  for (int i = 0; i < COUNT_OF(names); i++)
    if (!strcmp(names[i][0], s)) return names[i][1];
  return NULL;
}

int64_t shape_count(const Shape *s) {
  int64_t n = 1;
  for (int i = 0; i < s->rank; i++) n = mul64(n, s->dim[i]);
  return n;
}

int64_t shape_bytes(const Shape *s, DType t) { return mul64(shape_count(s), dtype_bytes(t)); }

bool shape_equal(const Shape *a, const Shape *b) {
  if (a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; i++)
    if (a->dim[i] != b->dim[i]) return false;
  return true;
}

void shape_strides(const Shape *s, int64_t *stride) {
  int64_t step = 1;
  for (int i = s->rank - 1; i >= 0; i--) {
    stride[i] = step;
    step = mul64(step, s->dim[i]);
  }
}

char *shape_text(Arena *a, const Shape *s) {
  if (!s->rank) return arena_printf(a, "scalar");
  Str t = {.arena = a};
  for (int i = 0; i < s->rank; i++) {
    str_add(&t, i ? ", " : "[");
    if (s->axis[i]) str_addf(&t, "%s=", s->axis[i]);
    str_addf(&t, "%lld", (long long)s->dim[i]);
  }
  str_add(&t, "]");
  return t.text;
}

Shape shape_of(int rank, const int64_t *dim) {
  ensure(rank <= MAX_RANK, "a shape of %d axes (limit is %d)", rank, MAX_RANK);
  Shape s = {.rank = rank};
  for (int i = 0; i < rank; i++) s.dim[i] = dim[i];
  return s;
}
