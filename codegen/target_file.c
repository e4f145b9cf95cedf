/* target_file.c - reads and writes calibrated targets (see target_file.h). Input: a file, or a
 * target. Output: a target in the arena, or the file, in a fixed order of keys. */
#include "target_file.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SCHEMA "mtc.target/1"

/* The numbers of a target by key: where they lie and the range that is believed. */
typedef struct {
  const char *key;
  size_t offset;
  double least, most;
} Number;
static const Number numbers[] = {
    {"copy_gbs", offsetof(Target, copy_gbs), 1e-3, 1e6},
    {"h2d_gbs", offsetof(Target, h2d_gbs), 1e-3, 1e6},
    {"d2h_gbs", offsetof(Target, d2h_gbs), 1e-3, 1e6},
    {"launch_us", offsetof(Target, launch_us), 0, 1e6},
    {"f32_tflops", offsetof(Target, tflops[DT_F32]), 1e-6, 1e6},
    {"tf32_tflops", offsetof(Target, tf32_tflops), 1e-6, 1e6},
    {"bf16_tflops", offsetof(Target, tflops[DT_BF16]), 1e-6, 1e6},
    {"f16_tflops", offsetof(Target, tflops[DT_F16]), 1e-6, 1e6},
};
static const Number efficiencies[] = {
#define EFFICIENCY(field, cuda, cpu, doc) {#field, offsetof(Target, field), 0, 1e6},
#include "targets.def"
};
enum { LEAST_SPEED_INV = 10000, MOST_SPEED = 10000 };

typedef struct {
  Arena *arena;
  const char *path;
  Target *target;
  const char *why;
} Reader;

static bool refuse(Reader *r, const char *key, const char *what) {
  r->why = arena_printf(r->arena, "%s: %s%s%s%s", r->path, key ? "`" : "", key ? key : "",
                        key ? "` " : "", what);
  return false;
}

static double *number_in(Target *t, const Number *n) {
  return (double *)((char *)t + n->offset);
}

static const Number *find(const Number *list, int n, const char *key) {
  for (int i = 0; i < n; i++)
    if (!strcmp(list[i].key, key)) return &list[i];
  return NULL;
}

static bool read_number(Reader *r, const Number *n, const json_t *v) {
  double x = json_number_value(v);
  if (!json_is_number(v) || !isfinite(x) || x < n->least || x > n->most)
    return refuse(r, n->key,
                  arena_printf(r->arena, "is a number from %g to %g", n->least, n->most));
  *number_in(r->target, n) = x;
  return true;
}

static bool read_bytes(Reader *r, const char *key, const json_t *v, int64_t *to) {
  if (!json_is_integer(v) || json_integer_value(v) < 0)
    return refuse(r, key, "is a whole number of bytes");
  *to = json_integer_value(v);
  return true;
}

static bool read_efficiency(Reader *r, json_t *o) {
  const char *key;
  json_t *v;
  if (!json_is_object(o)) return refuse(r, "efficiency", "is an object of numbers");
  json_object_foreach(o, key, v) {
    const Number *n = find(efficiencies, COUNT_OF(efficiencies), key);
    if (!n) return refuse(r, key, "is no efficiency of the cost model");
    if (!read_number(r, n, v)) return false;
  }
  return true;
}

static bool read_speeds(Reader *r, json_t *o) {
  const char *key;
  json_t *v;
  if (!json_is_object(o)) return refuse(r, "speed", "is an object of numbers");
  json_object_foreach(o, key, v) {
    int c = 0;
    while (c < KC_COUNT && strcmp(kernel_class_name(c), key) != 0) c++;
    if (c == KC_COUNT) return refuse(r, key, "is no class of kernels");
    double x = json_number_value(v);
    if (!json_is_number(v) || !(x >= 1.0 / LEAST_SPEED_INV && x <= MOST_SPEED))
      return refuse(r, key, "is a number from 0.0001 to 10000");
    r->target->speed[c] = x;
  }
  return true;
}

static bool read_member(Reader *r, const char *key, json_t *v) {
  const Number *n = find(numbers, COUNT_OF(numbers), key);
  if (n) return read_number(r, n, v);
  if (!strcmp(key, "usable_bytes")) return read_bytes(r, key, v, &r->target->usable_bytes);
  if (!strcmp(key, "overhead_bytes")) return read_bytes(r, key, v, &r->target->overhead_bytes);
  if (!strcmp(key, "efficiency")) return read_efficiency(r, v);
  if (!strcmp(key, "speed")) return read_speeds(r, v);
  static const char *const others[] = {"schema", "base", "device", "measured"};
  for (int i = 0; i < COUNT_OF(others); i++)
    if (!strcmp(key, others[i])) return true;
  return refuse(r, key, "is not known here");
}

static bool read_all(Reader *r, json_t *o) {
  const char *schema = json_string_value(json_object_get(o, "schema"));
  const char *base = json_string_value(json_object_get(o, "base"));
  if (!schema || strcmp(schema, SCHEMA) != 0)
    return refuse(r, NULL,
                  "this is no target file: its \"schema\" is not \"" SCHEMA
                  "\" (`mtc bench -o` writes one)");
  const Target *row = base ? target_by_name(base) : NULL;
  if (!row) return refuse(r, "base", "names no target of the table");
  *r->target = *row;
  r->target->file = r->path;
  const char *key;
  json_t *v;
  json_object_foreach(o, key, v) if (!read_member(r, key, v)) return false;
  return true;
}

const Target *target_read(Arena *a, const char *path, const char **why) {
  Reader r = {.arena = a, .path = arena_printf(a, "%s", path), .target = arena_new_of(a, Target)};
  json_error_t error;
  json_t *o = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
  bool ok = false;
  if (!o && error.line < 0)
    refuse(&r, NULL, "cannot be read");
  else if (!o)
    refuse(&r, NULL, arena_printf(a, "line %d: %s", error.line, error.text));
  else
    ok = read_all(&r, o);
  json_decref(o);
  *why = r.why;
  return ok ? r.target : NULL;
}

/* ---- writing ---- */

static void put(json_t *o, const char *key, double v) {
  json_object_set_new(o, key, json_real(v));
}

static json_t *speeds(const Target *t) {
  json_t *o = json_object();
  for (int c = 0; c < KC_COUNT; c++)
    if (t->speed[c] > 0) put(o, kernel_class_name(c), t->speed[c]);
  return o;
}

static json_t *measures(const TargetMeasure *m, int n) {
  json_t *list = json_array();
  for (int i = 0; i < n; i++) {
    json_t *o = json_object();
    json_object_set_new(o, "class", json_string(kernel_class_name(m[i].cls)));
    json_object_set_new(o, "commands", json_integer(m[i].commands));
    put(o, "seconds", m[i].seconds);
    if (m[i].gbs > 0) put(o, "gbs", m[i].gbs);
    if (m[i].tflops > 0) put(o, "tflops", m[i].tflops);
    json_array_append_new(list, o);
  }
  return list;
}

bool target_write(const Target *t, const char *device, const TargetMeasure *m, int n,
                  const char *path) {
  json_t *o = json_object();
  json_object_set_new(o, "schema", json_string(SCHEMA));
  json_object_set_new(o, "base", json_string(t->name));
  if (device) json_object_set_new(o, "device", json_string(device));
  if (t->usable_bytes < INT64_MAX)
    json_object_set_new(o, "usable_bytes", json_integer(t->usable_bytes));
  json_object_set_new(o, "overhead_bytes", json_integer(t->overhead_bytes));
  Target copy = *t;
  for (int i = 0; i < COUNT_OF(numbers); i++)
    put(o, numbers[i].key, *number_in(&copy, &numbers[i]));
  json_t *e = json_object();
  for (int i = 0; i < COUNT_OF(efficiencies); i++)
    put(e, efficiencies[i].key, *number_in(&copy, &efficiencies[i]));
  json_object_set_new(o, "efficiency", e);
  json_object_set_new(o, "speed", speeds(t));
  json_object_set_new(o, "measured", measures(m, n));
  char *text = json_dumps(o, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
  json_decref(o);
  ensure(text != NULL, "a target that is no JSON");
  size_t length = strlen(text);
  text[length] = '\n'; /* files end with one; the terminator is not written */
  bool ok = write_file_atomic(path, text, length + 1);
  free(text);
  return ok;
}
