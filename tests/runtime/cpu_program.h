/* cpu_program.h - one command on the CPU device, for tests: tensors with any strides in an arena,
 * filled and read as f64. */
#ifndef CPU_PROGRAM_H
#define CPU_PROGRAM_H
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "ir/graph.h"
#include "runtime/convert.h"
#include "runtime/replay.h"

enum { MAX_TENSORS = 20 };
typedef struct {
  Arena *a;
  Program program;
  ProgramCode code;
  Cmd cmd;
  Tensor tensors[MAX_TENSORS];
  Replay replay;
} OneCommand;

static uint64_t rnd_state = 0x9E3779B97F4A7C15ull;
static double rnd(double lo, double hi) {
  rnd_state ^= rnd_state << 13;
  rnd_state ^= rnd_state >> 7;
  rnd_state ^= rnd_state << 17;
  return lo + (hi - lo) * (double)(rnd_state >> 11) * 0x1p-53;
}

static double as_dtype(DType t, double x) {
  if (t == DT_BF16) return bf16_to_f32(f32_to_bf16((float)x));
  if (t == DT_F16) return f16_to_f32(f32_to_f16((float)x));
  return t == DT_F32 ? (float)x : floor(x);
}

static inline double *random_values(Arena *a, DType t, int64_t n, double lo, double hi) {
  double *x = arena_array(a, double, n);
  for (int64_t i = 0; i < n; i++) x[i] = as_dtype(t, rnd(lo, hi));
  return x;
}

static void one_new(OneCommand *c, Arena *a, CmdKind kind) {
  *c = (OneCommand){.a = a};
  c->cmd = (Cmd){.kind = kind, .name = "test", .where = "", .tensors = c->tensors};
}

/* Adds a tensor whose innermost axis has `gap` unused elements after it; NULL strides = row-major.
 * Returns its number. */
static int one_tensor(OneCommand *c, DType t, Shape s, int64_t gap) {
  Tensor x = {.offset = c->program.arena_bytes, .dtype = t, .rank = s.rank};
  int64_t step = 1;
  for (int k = s.rank - 1; k >= 0; k--) {
    x.dim[k] = s.dim[k];
    x.stride[k] = step;
    step *= s.dim[k];
    if (k == s.rank - 1) step += gap;
  }
  c->program.arena_bytes += round_up((step + gap) * dtype_bytes(t), 512);
  c->tensors[c->cmd.ntensors] = x;
  return c->cmd.ntensors++;
}

static void one_open(OneCommand *c, int threads) {
  Fail f = {0};
  c->code = (ProgramCode){.name = "test", .ncmds = 1, .cmds = &c->cmd};
  c->program.nprograms = 1;
  c->program.programs = &c->code;
  DeviceOptions o = {.threads = threads};
  if (!replay_open(&c->replay, &c->program, &o, &f)) fail_msg("%s", f.text);
}

static void one_put(OneCommand *c, int tensor, const double *x) {
  const Tensor *t = &c->tensors[tensor];
  int64_t n = tensor_count(t);
  char *packed = arena_alloc(c->a, (size_t)(n * 4));
  for (int64_t i = 0; i < n; i++) {
    float f = (float)x[i];
    if (t->dtype == DT_F32)
      memcpy(packed + 4 * i, &f, 4);
    else if (t->dtype == DT_BF16)
      memcpy(packed + 2 * i, &(uint16_t){f32_to_bf16(f)}, 2);
    else if (t->dtype == DT_F16)
      memcpy(packed + 2 * i, &(uint16_t){f32_to_f16(f)}, 2);
    else if (t->dtype == DT_BOOL)
      packed[i] = x[i] != 0;
    else
      memcpy(packed + 4 * i, &(uint32_t){(uint32_t)(int64_t)x[i]}, 4);
  }
  Fail f = {0};
  assert_true(replay_write(&c->replay, t, packed, &f));
}

static double *one_get(OneCommand *c, int tensor) {
  const Tensor *t = &c->tensors[tensor];
  int64_t n = tensor_count(t);
  char *packed = arena_alloc(c->a, (size_t)(n * 4));
  double *x = arena_array(c->a, double, n);
  Fail f = {0};
  assert_true(replay_read(&c->replay, t, packed, &f));
  for (int64_t i = 0; i < n; i++) {
    uint16_t h;
    float v;
    memcpy(&h, packed + 2 * i, 2);
    if (t->dtype == DT_F32)
      memcpy(&v, packed + 4 * i, 4);
    else
      v = t->dtype == DT_BF16 ? bf16_to_f32(h) : f16_to_f32(h);
    x[i] = v;
  }
  return x;
}

static void one_run(OneCommand *c) {
  Fail f = {0};
  assert_true(replay_run(&c->replay, 0, &f));
}

/* Equal but for rounding: units of the dtype, relative to the largest of both. */
static inline void check_near(const char *what, DType t, int64_t n, const double *got, const double *want,
                       double f32_bound) {
  double unit = t == DT_BF16 ? 0x1p-7 : t == DT_F16 ? 0x1p-10 : f32_bound, scale = 0;
  for (int64_t i = 0; i < n; i++) scale = fmax(scale, fabs(want[i]));
  for (int64_t i = 0; i < n; i++) {
    double bound =
        unit * fmax(fabs(want[i]), 0.1 * scale) + (t == DT_F32 ? f32_bound * scale : 1e-5 * scale);
    if (!(fabs(got[i] - want[i]) <= bound))
      fail_msg("%s: element %lld is %.9g, should be %.9g", what, (long long)i, got[i], want[i]);
  }
}

#endif
