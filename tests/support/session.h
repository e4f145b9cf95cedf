/* session.h - one training session for tests: a .mt file with overrides, planned for the CPU target and opened on the
 * CPU device, its variables and inputs within reach. */
#ifndef TEST_SESSION_H
#define TEST_SESSION_H
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "codegen/program.h"
#include "passes/plan.h"
#include "runtime/convert.h"
#include "runtime/replay.h"
#include "runtime/variables.h"

typedef struct {
  Arena *arena;
  Job *job;
  FitResult fit;
  Program *program;
  Replay replay;
  const ProgramPhase *phase;
} Session;

/* `settings`: "dim=4" (dims) and "section.key=value" (settings), ended by NULL. Exits on any error: a test's own inputs
 * are sound. */
static inline Job *session_job(Arena *a, const char *path, const char *preset,
                               const char *const *settings) {
  Diags *d = diags_new(a);
  JobArgs args = {.path = path, .preset = preset};
  for (; settings && *settings; settings++) {
    const char *eq = strchr(*settings, '=');
    ensure(eq, "a setting without `=`: %s", *settings);
    Override o = {intern_n(*settings, (size_t)(eq - *settings)), intern(eq + 1)};
    if (strchr(o.name, '.'))
      vec_push(a, &args.settings, o);
    else
      vec_push(a, &args.dims, o);
  }
  Job *job = elaborate(a, d, &args);
  if (!job || d->errors) {
    diag_render(d, stderr, false);
    exit(1);
  }
  return job;
}

static inline PlanArgs session_plan_args(void) {
  return (PlanArgs){.target = target_by_name("cpu"), .budget_bytes = INT64_MAX, .recompute = -1, .check = true};
}

static inline void session_open(Session *s, const char *path, const char *preset,
                                const char *const *settings, const PlanArgs *args,
                                const DeviceOptions *options) {
  *s = (Session){.arena = arena_new()};
  s->job = session_job(s->arena, path, preset, settings);
  s->fit = plan_fit(s->job, s->arena, args);
  ensure(s->fit.plan, "%s has no plan in %lld bytes", path, (long long)args->budget_bytes);
  const char *why = NULL;
  s->program = program_build(s->fit.plan, s->arena, &why);
  ensure(s->program, "the program of %s was not built: %s", path, why);
  Fail f = {0};
  DeviceOptions o = *options;
  if (!o.threads) o.threads = 1; /* tests run side by side */
  ensure(replay_open(&s->replay, s->program, &o, &f), "the CPU device: %s", f.text);
  s->phase = &s->program->phases[0];
}

static inline void session_close(Session *s) {
  replay_close(&s->replay);
  arena_free(s->arena);
}

static inline int session_var(const Session *s, const char *path) {
  int v = program_var(s->program, path);
  ensure(v >= 0, "the program has no variable `%s`", path);
  return v;
}

/* The variable's elements, packed, as they are stored; malloc'ed. */
static inline void *session_read(Session *s, const char *path, int64_t *count) {
  const Tensor *t = &s->program->vars[session_var(s, path)].at;
  Fail f = {0};
  *count = tensor_count(t);
  void *p = malloc((size_t)(*count * dtype_bytes(t->dtype)) + 16);
  ensure(p && replay_read(&s->replay, t, p, &f), "reading %s: %s", path, f.text);
  return p;
}

static inline void session_write(Session *s, const char *path, const void *packed) {
  Fail f = {0};
  ensure(replay_write(&s->replay, &s->program->vars[session_var(s, path)].at, packed, &f),
         "writing %s: %s", path, f.text);
}

/* Small starting weights, by path and element, that bf16 holds exactly: a master gets what its weight gets. */
static inline void session_weights(Session *s) {
  for (int v = 0; v < s->program->nvars; v++) {
    const ProgramVar *var = &s->program->vars[v];
    if (var->role != PV_PARAM && var->role != PV_MASTER) continue;
    int64_t n = tensor_count(&var->at);
    float *x = malloc((size_t)n * 4);
    ensure(x, "memory");
    uint64_t seed = hash_text(var->of >= 0 ? s->program->vars[var->of].path : var->path);
    for (int64_t i = 0; i < n; i++) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      uint32_t u;
      x[i] = ((float)(seed >> 40) / (1 << 24) - 0.5f) * 0.3f;
      memcpy(&u, &x[i], 4);
      u &= 0xffff0000u;
      memcpy(&x[i], &u, 4);
      if (var->at.dtype == DT_BF16) ((uint16_t *)x)[i] = (uint16_t)(u >> 16);
    }
    session_write(s, var->path, x);
    free(x);
  }
}

static inline float session_f32(Session *s, const char *path) {
  int64_t n;
  float *p = session_read(s, path, &n), x = p[0];
  free(p);
  return x;
}

/* Hash of every parameter, master and moment. */
static inline uint64_t session_state(Session *s) {
  uint64_t state = 0;
  for (int v = 0; v < s->program->nvars; v++) {
    const ProgramVar *x = &s->program->vars[v];
    if (x->role != PV_PARAM && x->role != PV_MASTER && x->role != PV_MOMENT) continue;
    int64_t n;
    void *p = session_read(s, x->path, &n);
    state = hash_bytes(p, (size_t)(n * dtype_bytes(x->at.dtype)), state);
    free(p);
  }
  return state;
}

/* Bit r: some variable of role r lives on the host. */
static inline unsigned session_host_roles(const Session *s) {
  unsigned roles = 0;
  for (int v = 0; v < s->program->nvars; v++)
    if (s->program->vars[v].at.host) roles |= 1u << s->program->vars[v].role;
  return roles;
}

/* Writes a per-step scalar; the ones a program does not use are not there. */
static inline void session_scalar(Session *s, const char *path, const void *value) {
  if (program_var(s->program, path) >= 0) session_write(s, path, value);
}

static inline void session_run(Session *s, int program) {
  Fail f = {0};
  ensure(replay_run(&s->replay, program, &f) && s->replay.api->wait(s->replay.device, &f), "run: %s",
         f.text);
}

/* One optimizer step over `samples` samples of T tokens: tokens and targets are [samples, T]. In front of it every byte of the
 * accumulators is `accums`. */
static inline void session_step_from(Session *s, const int32_t *tokens, const int32_t *targets, int step,
                                     float lr, bool update, int accums) {
  const ProgramPhase *ph = s->phase;
  int64_t samples = ph->micro_batch * ph->accumulation, t = ph->tokens_per_sample, valid = 0;
  for (int64_t i = 0; i < samples * t; i++) valid += targets[i] != (int32_t)s->program->ignore;
  const uint32_t seed[2] = {1337, 0};
  const float inv_count = 1.0f / (float)valid, inv_accum = 1.0f / (float)ph->accumulation, zero = 0;
  const int32_t step32 = step;
  session_scalar(s, "step.seed", seed);
  session_scalar(s, "step.step", &step32);
  session_scalar(s, "step.inv_count", &inv_count);
  session_scalar(s, "step.inv_accum", &inv_accum);
  session_scalar(s, "step.lr", &lr);
  session_scalar(s, "metric.loss", &zero);
  Fail f = {0};
  ensure(variables_fill(&s->replay, PV_ACCUM, accums, &f), "accumulators: %s", f.text);
  for (int64_t k = 0; k < ph->accumulation; k++) {
    int micro = phase_micro(ph, k);
    const int32_t sample0 = (int32_t)(k * ph->micro_batch);
    const int64_t at = k * ph->micro_batch * t;
    session_scalar(s, "step.sample0", &sample0);
    ensure(replay_write(&s->replay, program_input(s->program, micro, "tokens"), tokens + at, &f) &&
               replay_write(&s->replay, program_input(s->program, micro, "targets"), targets + at, &f),
           "inputs: %s", f.text);
    session_run(s, micro);
  }
  if (update && ph->update >= 0) session_run(s, ph->update); /* else the micro-batch has updated */
}

/* The same of NaN: a step overwrites its accumulators. */
static inline void session_step(Session *s, const int32_t *tokens, const int32_t *targets, int step,
                                float lr, bool update) {
  session_step_from(s, tokens, targets, step, lr, update, 0xff);
}

/* Fills n words below `limit` from a fixed stream. */
static inline void session_tokens(int32_t *to, int64_t n, int limit, uint64_t seed) {
  for (int64_t i = 0; i < n; i++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    to[i] = (int32_t)((seed >> 33) % (uint64_t)limit);
  }
}

#endif
