/* train_nonfinite.c - steps whose gradients are not finite: which parameter, which value.
 *
 * Both are found by computing the step's gradients again, with the factor on the loss that they
 * had. Weights and optimizer state are read only; accumulators hold nothing between steps. A model whose micro-steps change
 * variables cannot be asked twice; where they update the weights, each has left the sum of squares of its gradient, which
 * tells the parameter. */
#include "train_parts.h"

#include "convert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- looking for a value ---- */

/* Bits of the exponent, all set in infinities and NaN. */
static uint32_t exponent_of(DType t) {
  return t == DT_F32 ? 0x7f800000u : t == DT_BF16 ? 0x7f80u : 0x7c00u;
}

enum { BLOCK = 4096 };

static bool block_has(DType t, const char *at, int64_t n) {
  uint32_t mask = exponent_of(t), any = 0;
  if (t == DT_F32) {
    const uint32_t *x = (const uint32_t *)(const void *)at;
    for (int64_t i = 0; i < n; i++) any |= (x[i] & mask) == mask;
  } else {
    const uint16_t *x = (const uint16_t *)(const void *)at;
    for (int64_t i = 0; i < n; i++) any |= (x[i] & mask) == mask;
  }
  return any != 0;
}

static float element(DType t, const char *packed, int64_t i) {
  float x;
  convert_elements(DT_F32, &x, t, packed + i * dtype_bytes(t), 1);
  return x;
}

/* Index of the first element that is not finite; -1 when all are. */
static int64_t first_nonfinite(DType t, const char *packed, int64_t n) {
  for (int64_t from = 0; from < n; from += BLOCK) {
    int64_t some = n - from < BLOCK ? n - from : BLOCK;
    if (!block_has(t, packed + from * dtype_bytes(t), some)) continue;
    while (isfinite(element(t, packed, from))) from++;
    return from;
  }
  return -1;
}

static void *read_packed(Train *t, const Tensor *at, Fail *f) {
  void *packed = malloc((size_t)(tensor_count(at) * dtype_bytes(at->dtype)) + 1);
  if (packed && replay_read(&t->replay, at, packed, f)) return packed;
  if (!packed) fail_set(f, EXIT_DEVICE, "no host memory to look at a tensor");
  free(packed);
  return NULL;
}

/* ---- which parameter ---- */

/* The first accumulator with a value that is not finite, as its parameter's path. */
static bool find_parameter(Train *t, const char **path, Fail *f) {
  const Program *p = t->program;
  for (int i = 0; i < p->nvars && !*path; i++) {
    const ProgramVar *v = &p->vars[i];
    if (v->role != PV_ACCUM || !dtype_is_float(v->at.dtype)) continue;
    void *packed = read_packed(t, &v->at, f);
    if (!packed) return false;
    if (first_nonfinite(v->at.dtype, packed, tensor_count(&v->at)) >= 0)
      *path = v->of >= 0 ? p->vars[v->of].path : v->path;
    free(packed);
  }
  return true;
}

/* The first parameter whose gradient left a sum of squares that is not finite. */
static const char *parameter_by_squares(Train *t, Fail *f) {
  static const char ending[] = ":squares";
  const Program *p = t->program;
  for (int i = 0; i < p->nvars; i++) {
    const char *path = p->vars[i].path;
    size_t n = strlen(path), cut = sizeof ending - 1;
    double squares;
    if (p->vars[i].role != PV_METRIC || n <= cut || strcmp(path + n - cut, ending)) continue;
    if (!scalar_read(&t->replay, i, &squares, f)) return NULL;
    if (!isfinite(squares)) return arena_printf(t->arena, "%.*s", (int)(n - cut), path);
  }
  return NULL;
}

const char *train_name_nonfinite(Train *t, const RunPhase *ph, const Batch *b, Fail *f) {
  const char *path = NULL;
  if (ph->setting->update < 0) return parameter_by_squares(t, f);
  if (t->has_state) return NULL;
  double now;
  if (!scalar_read(&t->replay, t->scale, &now, f) || !train_write_scale(t, t->last_scale, f) ||
      !variables_fill(&t->replay, PV_ACCUM, 0, f)) /* those that the phase does not write */
    return NULL;
  for (int64_t m = 0; m < ph->setting->accumulation && !path; m++)
    if (!train_micro(t, ph, b, m, f) || !find_parameter(t, &path, f)) return NULL;
  return train_write_scale(t, now, f) ? path : NULL;
}

/* ---- which value ---- */

typedef struct {
  Train *t;
  const ProgramCode *code;
  char *found; /* the answer, in the run's arena */
} Search;

static char *index_text(Arena *a, const Tensor *t, int64_t at) {
  Str s = {.arena = a};
  int64_t place[MAX_RANK];
  for (int k = t->rank - 1; k >= 0; k--) place[k] = at % t->dim[k], at /= t->dim[k];
  str_add(&s, "[");
  for (int k = 0; k < t->rank; k++) str_addf(&s, "%s%lld", k ? ", " : "", (long long)place[k]);
  str_add(&s, "]");
  return s.text;
}

/* Largest magnitude among the finite values of a tensor. */
static double largest(DType t, const char *packed, int64_t n) {
  double most = 0;
  for (int64_t i = 0; i < n; i++) {
    double x = fabs((double)element(t, packed, i));
    if (isfinite(x) && x > most) most = x;
  }
  return most;
}

/* The largest finite magnitude in the operands of a command before operand `end`; 0 when they are
 * not there any more. */
static bool largest_read(Train *t, const Cmd *c, int end, double *most, Fail *f) {
  for (int i = 0; i < end; i++) {
    const Tensor *at = &c->tensors[i];
    if (!dtype_is_float(at->dtype) || at->offset == c->tensors[end].offset) continue;
    char *packed = read_packed(t, at, f);
    if (!packed) return false;
    double x = largest(at->dtype, packed, tensor_count(at));
    if (x > *most) *most = x;
    free(packed);
  }
  return true;
}

/* The path of the variable that a tensor is, or NULL. */
static const char *variable_at(const Program *p, const Tensor *at) {
  for (int i = 0; i < p->nvars; i++)
    if (p->vars[i].at.host == at->host && p->vars[i].at.offset == at->offset &&
        p->vars[i].role != PV_ACCUM)
      return p->vars[i].path;
  return NULL;
}

static bool describe(Search *s, const Cmd *c, int operand, int64_t where, double x, Fail *f) {
  Arena *a = s->t->arena;
  const Tensor *at = &c->tensors[operand];
  double most = 0;
  if (!largest_read(s->t, c, operand, &most, f)) return false;
  const char *var = variable_at(s->t->program, at), *line = c->where ? c->where : "",
             *name = c->name ? c->name : "?";
  s->found = arena_printf(a, "%g at %s of %s (%s%s%s)", x, index_text(a, at, where),
                          var ? var : name, dtype_name(at->dtype), *line ? ", " : "", line);
  if (most > 0 && !var)
    s->found = arena_printf(a, "%s; the largest finite number that it read is %g", s->found, most);
  return true;
}

/* What one command read and wrote, in that order: the first value that is not finite. */
static bool look(void *context, int cmd, bool *enough, Fail *f) {
  Search *s = context;
  const Cmd *c = &s->code->cmds[cmd];
  for (int i = 0; i < c->ntensors && !*enough; i++) {
    const Tensor *at = &c->tensors[i];
    if (!dtype_is_float(at->dtype)) continue;
    char *packed = read_packed(s->t, at, f);
    if (!packed) return false;
    int64_t where = first_nonfinite(at->dtype, packed, tensor_count(at));
    double x = where < 0 ? 0 : (double)element(at->dtype, packed, where);
    free(packed);
    *enough = where >= 0;
    if (*enough && !describe(s, c, i, where, x, f)) return false;
  }
  return true;
}

const char *train_name_value(Train *t, const RunPhase *ph, const Batch *b, Fail *f) {
  Search s = {.t = t};
  if (t->has_state || ph->setting->update < 0 || !train_write_scale(t, t->last_scale, f))
    return NULL;
  for (int64_t m = 0; m < ph->setting->accumulation && !s.found; m++) {
    int program = phase_micro(ph->setting, m);
    s.code = &t->program->programs[program];
    if (!train_micro_inputs(t, ph, b, m, f) ||
        !t->replay.api->watch(t->replay.device, program, look, &s, f))
      return NULL;
  }
  return s.found;
}
