/* test_formats.c - formats of optimizer state in whole sessions on the CPU target: a split master is an f32 master bit for
 * bit; weights without a master drift as f32 ones do, where rounding to nearest would leave them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "tests/support/session.h"

#define GPT2 MTC_SOURCE_DIR "/tests/train/models/gpt2.mt"

/* ---- a split master ---- */

enum { STEPS = 8, SAMPLES = 4, T = 16, V = 96 };
#define SMALL "V=96", "Tmax=16", "D=32", "H=4", "L=2", "T=16", "train.batch=seqs(4)", "precision.compute=bf16"

/* Starting weights that bf16 cannot hold, by path; every third one half-way between two that it holds. */
static void write_weight(Session *s, int var) {
  const ProgramVar *v = &s->program->vars[var];
  int64_t n = tensor_count(&v->at);
  float *x = malloc((size_t)n * 4);
  uint16_t *half = malloc((size_t)n * 2);
  ensure(x && half, "memory");
  uint64_t seed = hash_text(v->path);
  for (int64_t i = 0; i < n; i++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    x[i] = ((float)(seed >> 40) / (1 << 24) - 0.5f) * 0.3f;
    if (i % 3) continue;
    uint32_t bits;
    memcpy(&bits, &x[i], 4);
    bits = (bits & 0xffff0000u) | 0x8000u;
    memcpy(&x[i], &bits, 4);
  }
  convert_halves(DT_BF16, half, DT_F32, x, n);
  session_write(s, v->path, v->at.dtype == DT_F32 ? (void *)x : half);
  for (int i = 0; i < s->program->nvars; i++) {
    const ProgramVar *m = &s->program->vars[i];
    if (m->of != var || m->role != PV_MASTER) continue;
    if (m->at.dtype == DT_U16) convert_halves(DT_U16, half, DT_F32, x, n);
    session_write(s, m->path, m->at.dtype == DT_U16 ? (void *)half : x);
  }
  free(x), free(half);
}

static void train(Session *s, const char *const *settings, float *loss) {
  PlanArgs args = session_plan_args();
  session_open(s, GPT2, NULL, settings, &args, &(DeviceOptions){.poison = true});
  for (int i = 0; i < s->program->nvars; i++)
    if (s->program->vars[i].role == PV_PARAM) write_weight(s, i);
  int32_t tokens[SAMPLES * T], targets[SAMPLES * T];
  for (int step = 0; step < STEPS; step++) {
    session_tokens(tokens, SAMPLES * T, V, 7 + (uint64_t)step);
    session_tokens(targets, SAMPLES * T, V, 1000 + (uint64_t)step);
    session_step(s, tokens, targets, step, 1e-2f, true);
    loss[step] = session_f32(s, "metric.loss");
    assert_true(isfinite(loss[step]));
  }
}

static void same_bytes(Session *a, Session *b, const char *path) {
  int64_t n;
  void *x = session_read(a, path, &n), *y = session_read(b, path, &n);
  size_t bytes = (size_t)(n * dtype_bytes(a->program->vars[session_var(a, path)].at.dtype));
  if (memcmp(x, y, bytes) != 0) fail_msg("`%s` differs", path);
  free(x), free(y);
}

static void split_is_exact(const char *const *whole, const char *const *split) {
  Session a, b;
  float loss_a[STEPS], loss_b[STEPS];
  train(&a, whole, loss_a);
  train(&b, split, loss_b);
  if (memcmp(loss_a, loss_b, sizeof loss_a) != 0) fail_msg("losses differ");
  int masters = 0;
  for (int i = 0; i < a.program->nvars; i++) {
    const ProgramVar *v = &a.program->vars[i];
    if (v->role == PV_PARAM || v->role == PV_MOMENT) same_bytes(&a, &b, v->path);
    if (v->role != PV_MASTER) continue;
    const char *param = a.program->vars[v->of].path;
    int64_t n;
    float *master = session_read(&a, v->path, &n), *joined = malloc((size_t)n * 4);
    uint16_t *high = session_read(&b, param, &n);
    uint16_t *low = session_read(&b, arena_printf(b.arena, "%s:low", param), &n);
    join_halves(joined, high, low, n);
    if (memcmp(master, joined, (size_t)n * 4) != 0) fail_msg("the master of `%s` differs", param);
    free(master), free(joined), free(high), free(low);
    masters++;
  }
  assert_true(masters > 10);
  assert_true(b.fit.plan->persistent_bytes < a.fit.plan->persistent_bytes);
  session_close(&a);
  session_close(&b);
}

static void split_masters(void **state) {
  (void)state;
  split_is_exact((const char *const[]){SMALL, NULL}, (const char *const[]){SMALL, "precision.master=split", NULL});
}
static void split_masters_with_blocks(void **state) {
  (void)state;
  split_is_exact((const char *const[]){SMALL, "precision.moments=i8", "precision.accum=bf16", NULL},
                 (const char *const[]){SMALL, "precision.moments=i8", "precision.accum=bf16",
                                       "precision.master=split", NULL});
}

/* ---- drift ---- */

enum { N = 65536, DRIFT_STEPS = 100 };
#define MATRIX "h.0.c_fc.w"
static const float start = 1.5f, rate = 6e-4f;

/* A constant gradient at a constant rate: Adam's steps are `rate` each. */
static void *drifted(const char *master) {
  const char *settings[] = {"V=96", "Tmax=16", "D=128", "H=4", "L=1", "T=16", "train.batch=seqs(1)",
                            "precision.compute=bf16", master,
                            "train.optimizer=adamw(lr=6e-4, weight_decay=0)", NULL};
  Session s;
  PlanArgs args = session_plan_args();
  session_open(&s, GPT2, NULL, settings, &args, &(DeviceOptions){0});
  Fail f = {0};
  for (int i = 0; i < s.program->nvars; i++) {
    const ProgramVar *v = &s.program->vars[i];
    int64_t n = tensor_count(&v->at);
    float *x = calloc((size_t)n, 4), *packed = calloc((size_t)n, 4);
    bool weight = v->role == PV_PARAM || v->role == PV_MASTER;
    for (int64_t k = 0; k < n && weight; k++) x[k] = start;
    if (weight) convert_elements(v->at.dtype, packed, DT_F32, x, n);
    ensure(replay_write(&s.replay, &v->at, packed, &f), "%s", f.text);
    free(x), free(packed);
  }
  float *ones = malloc(N * 4);
  for (int k = 0; k < N; k++) ones[k] = 1;
  const uint32_t seed[2] = {5, 0};
  session_scalar(&s, "step.seed", seed);
  session_scalar(&s, "step.lr", &rate);
  for (int32_t step = 0; step < DRIFT_STEPS; step++) {
    session_scalar(&s, "step.step", &step);
    session_write(&s, MATRIX ":grad", ones);
    session_run(&s, s.phase->update);
  }
  free(ones);
  int64_t n;
  void *w = session_read(&s, strstr(master, "f32") ? MATRIX ":master" : MATRIX, &n);
  assert_int_equal(n, N);
  session_close(&s);
  return w;
}

static void random_rounding_drifts_as_f32(void **state) {
  (void)state;
  float *whole = drifted("precision.master=f32");
  uint16_t *none = drifted("precision.master=bf16"), *again = drifted("precision.master=bf16");
  assert_memory_equal(none, again, N * 2);
  double want = 0, got = 0;
  int levels = 0;
  for (int k = 0; k < N; k++) {
    want += start - whole[k];
    got += start - bf16_to_f32(none[k]);
    levels += none[k] != none[0];
  }
  want /= N, got /= N;
  assert_true(want > 0.9 * rate * DRIFT_STEPS);
  if (!(fabs(got - want) <= 0.02 * want)) fail_msg("drifts by %g, f32 by %g", got, want);
  assert_true(levels > N / 4); /* each weight has bits of its own */
  float nearest = start;
  for (int step = 0; step < DRIFT_STEPS; step++) nearest = bf16_to_f32(f32_to_bf16(nearest - rate));
  assert_true(nearest == start);
  free(whole), free(none), free(again);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(split_masters),
      cmocka_unit_test(split_masters_with_blocks),
      cmocka_unit_test(random_rounding_drifts_as_f32),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
