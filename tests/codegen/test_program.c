/* test_program.c - whole compiled programs against the interpreter: forward, backward,
 * accumulation, clipping and update of small GPT-2 and Llama models, in f32, bf16 and f16, with
 * dropout and recompute. All variables are compared. Takes a few seconds when the kernels are not
 * cached: each model is a run of the C compiler. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/support/session.h"

static double draw(uint64_t *state, double lo, double hi) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return lo + (hi - lo) * (double)(*state >> 11) * 0x1p-53;
}

static double element(const void *p, DType t, int64_t i) {
  switch (t) {
    case DT_F32:
      return ((const float *)p)[i];
    case DT_BF16:
      return bf16_to_f32(((const uint16_t *)p)[i]);
    case DT_F16:
      return f16_to_f32(((const uint16_t *)p)[i]);
    case DT_I32:
      return ((const int32_t *)p)[i];
    case DT_U32:
      return ((const uint32_t *)p)[i];
    case DT_I8:
      return ((const int8_t *)p)[i];
    case DT_U16:
      return ((const uint16_t *)p)[i];
    default:
      return ((const uint8_t *)p)[i];
  }
}

static double *values_of(Session *s, int var) {
  const ProgramVar *v = &s->program->vars[var];
  int64_t n;
  void *p = session_read(s, v->path, &n);
  double *x = arena_array(s->arena, double, n);
  for (int64_t i = 0; i < n; i++) x[i] = element(p, v->at.dtype, i);
  free(p);
  return x;
}

/* Numbers in which every kind of variable makes a difference. */
static void fill_variables(Session *s) {
  uint64_t state = 0x1234567;
  for (int i = 0; i < s->program->nvars; i++) {
    const ProgramVar *v = &s->program->vars[i];
    if (v->role == PV_OPT && v->at.dtype == DT_F32) session_write(s, v->path, &(float){1});
    if (v->role == PV_SCALAR || v->role == PV_METRIC || v->role == PV_OPT || v->role == PV_MASTER)
      continue;
    bool scale =
        str_ends(v->path, "ln_1.w") || str_ends(v->path, "ln_2.w") || str_ends(v->path, "norm1.w");
    double lo = v->role == PV_MOMENT ? 1e-3
                : scale              ? 0.7
                                     : -0.3,
           hi = v->role == PV_MOMENT ? 2e-3
                : scale              ? 1.3
                                     : 0.3;
    if (v->role == PV_ACCUM) lo = -1e-3, hi = 1e-3;
    int64_t n = tensor_count(&v->at);
    float *x = malloc(sizeof(float) * (size_t)n);
    void *packed = malloc(sizeof(float) * (size_t)n);
    for (int64_t e = 0; e < n; e++) x[e] = (float)draw(&state, lo, hi);
    convert_elements(v->at.dtype, packed, DT_F32, x, n);
    session_write(s, v->path, packed);
    for (int m = 0; m < s->program->nvars; m++) /* a master copy is the parameter, more exactly */
      if (s->program->vars[m].role == PV_MASTER && s->program->vars[m].of == i) {
        convert_elements(DT_F32, x, v->at.dtype, packed, n);
        session_write(s, s->program->vars[m].path, x);
      }
    free(x);
    free(packed);
  }
}

static double **snapshot(Session *s) {
  double **vars = arena_array(s->arena, double *, s->program->nvars + 1);
  for (int i = 0; i < s->program->nvars; i++) vars[i] = values_of(s, i);
  return vars;
}

static void compare(Session *s, double *const *want, double *const *before, const char *what,
                    double bound) {
  for (int i = 0; i < s->program->nvars; i++) {
    const ProgramVar *v = &s->program->vars[i];
    double *got = values_of(s, i), scale = 1e-7, moved = 0;
    int64_t n = tensor_count(&v->at);
    for (int64_t e = 0; e < n; e++) scale = fmax(scale, fabs(want[i][e]));
    for (int64_t e = 0; e < n; e++) moved = fmax(moved, fabs(want[i][e] - before[i][e]));
    for (int64_t e = 0; e < n; e++)
      if (!(fabs(got[e] - want[i][e]) <= bound * scale))
        fail_msg("%s: %s[%lld] is %.9g, should be %.9g (largest %.3g, moved %.3g)", what, v->path,
                 (long long)e, got[e], want[i][e], scale, moved);
  }
}

/* Runs one program of the phase here and in the interpreter. */
static void check_program(Session *s, int program, const char *what, double bound) {
  const PlanProgram *from = &s->fit.plan->programs.at[program];
  double **before = snapshot(s), **vars = snapshot(s);
  Interp run = {.arena = s->arena, .vars = vars};
  InterpInput *in = arena_array(s->arena, InterpInput, from->ninputs + 1);
  for (int i = 0; i < from->ninputs; i++) {
    const Tensor *t = program_input(s->program, program, from->inputs[i].name);
    int64_t n = tensor_count(t);
    int32_t *ids = arena_array(s->arena, int32_t, n);
    double *x = arena_array(s->arena, double, n);
    session_tokens(ids, n, 40, (uint64_t)i + 3);
    if (!strcmp(from->inputs[i].name, "targets")) ids[1] = (int32_t)s->program->ignore;
    for (int64_t e = 0; e < n; e++) x[e] = ids[e];
    in[i] = (InterpInput){from->inputs[i].name, x};
    Fail f = {0};
    assert_true(replay_write(&s->replay, t, ids, &f));
  }
  run.inputs = in;
  run.ninputs = from->ninputs;
  session_run(s, program);
  graph_interp(from->clusters.g, &run);
  compare(s, run.vars, before, what, bound);
}

typedef struct {
  const char *file;
  double bound; /* relative to the largest element of a variable */
  const char *target;
  int recompute, chunks;
} Model;

/* As session_open, but on the CPU whatever the target is. */
static void open_on_cpu(Session *s, const Model *m, const char *const *settings) {
  const char *path = intern_printf("%s/models/%s", MTC_SOURCE_DIR, m->file), *why = NULL;
  PlanArgs args = session_plan_args();
  args.recompute = m->recompute;
  args.chunks = m->chunks;
  if (m->target) args.target = target_by_name(m->target);
  *s = (Session){.arena = arena_new()};
  s->job = session_job(s->arena, path, NULL, settings);
  s->fit = plan_fit(s->job, s->arena, &args);
  assert_non_null(s->fit.plan);
  s->program = program_build_on(s->fit.plan, DEV_CPU, s->arena, &why);
  if (!s->program) fail_msg("%s", why);
  DeviceOptions o = {.threads = 2, .poison = true};
  Fail f = {0};
  if (!replay_open(&s->replay, s->program, &o, &f)) fail_msg("%s", f.text);
  s->phase = &s->program->phases[0];
}

static void check_model(const Model *m, const char *const *settings) {
  Session s;
  open_on_cpu(&s, m, settings);
  fill_variables(&s);
  const uint32_t seed[2] = {1337, 42};
  const int32_t step = 7, sample0 = 2;
  const float inv_count = 1.0f / 60, inv_accum = 0.5f, lr = 0.01f;
  session_scalar(&s, "step.seed", seed);
  session_scalar(&s, "step.step", &step);
  session_scalar(&s, "step.sample0", &sample0);
  session_scalar(&s, "step.inv_count", &inv_count);
  session_scalar(&s, "step.inv_accum", &inv_accum);
  session_scalar(&s, "step.lr", &lr);
  check_program(&s, s.phase->micro, arena_printf(s.arena, "%s, micro", m->file), m->bound);
  check_program(&s, s.phase->update, arena_printf(s.arena, "%s, update", m->file), m->bound);
  session_close(&s);
}

#define GPT2_SMALL                                                        \
  "V=50", "Tmax=16", "D=24", "H=3", "L=2", "train.batch=seqs(2)", "T=16", \
      "train.optimizer=adamw(lr=1e-2, eps=1e-4)"

#define CHECK(model, ...) check_model(&(Model)model, (const char *const[]){__VA_ARGS__, NULL})
#define MODEL(...) \
  { __VA_ARGS__ }

static void gpt2_f32(void **state) {
  (void)state;
  CHECK(MODEL("gpt2.mt", 2e-5, .recompute = RC_NONE), GPT2_SMALL, "precision.compute=f32");
  CHECK(MODEL("gpt2.mt", 2e-5, .recompute = RC_FULL, .chunks = 2), GPT2_SMALL,
        "precision.compute=f32");
}
static void gpt2_dropout(void **state) {
  (void)state;
  CHECK(MODEL("gpt2.mt", 2e-5, .recompute = RC_FULL), GPT2_SMALL, "drop=0.2",
        "precision.compute=f32");
}
static void gpt2_bf16(void **state) {
  (void)state;
  CHECK(MODEL("gpt2.mt", 0.04, .recompute = RC_FULL), GPT2_SMALL, "precision.compute=bf16");
}
static void gpt2_f16(void **state) {
  (void)state;
  CHECK(MODEL("gpt2.mt", 0.01, .recompute = RC_FULL), GPT2_SMALL, "precision.compute=f16");
}
static void gpt2_planned_for_a_gpu(void **state) {
  (void)state;
  CHECK(MODEL("gpt2.mt", 0.04, .target = "h100", .recompute = RC_FULL), GPT2_SMALL,
        "precision.compute=bf16");
}
static void llama_f32(void **state) {
  (void)state;
  CHECK(MODEL("llama.mt", 2e-5, .recompute = RC_FULL), "V=50", "D=32", "H=4", "KV=2", "L=2", "F=40",
        "train.batch=seqs(2)", "T=16", "precision.compute=f32");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gpt2_f32),
                                     cmocka_unit_test(gpt2_dropout),
                                     cmocka_unit_test(gpt2_bf16),
                                     cmocka_unit_test(gpt2_f16),
                                     cmocka_unit_test(gpt2_planned_for_a_gpu),
                                     cmocka_unit_test(llama_f32)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
