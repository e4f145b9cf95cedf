/* test_exact.c - choices of the planner that are exact give bitwise the same losses and weights, reassociating ones the
 * same up to rounding (micro-batches, chunks of MLPs), groups of micro-batches the bits of one after another: GPT-2 and Llama shapes at L=4, D=64, T=32 on
 * the CPU target, every dying buffer poisoned. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "tests/support/session.h"

enum { STEPS = 3, SAMPLES = 8, T = 32, V = 128, BUDGETS = 6 };

static const char *const f32[] = {NULL};
static const char *const dropout[] = {"drop=0.2", NULL};
static const char *const bf16[] = {"precision.compute=bf16", NULL};
static const char *const all_random[] = {"precision.compute=bf16", "precision.master=bf16",
                                         "precision.moments=bf16", "precision.accum=bf16", NULL};

#define GPT2  MTC_SOURCE_DIR "/tests/train/models/gpt2.mt"
#define LLAMA MTC_SOURCE_DIR "/tests/train/models/llama.mt"

typedef struct {
  float loss[STEPS];
  uint64_t weights; /* hash of every parameter and optimizer state */
  int64_t transient, recompute_ns;
} Outcome;

static void batch(int32_t *tokens, int32_t *targets, int step) {
  session_tokens(tokens, SAMPLES * T, V, 7 + (uint64_t)step);
  session_tokens(targets, SAMPLES * T, V, 1000 + (uint64_t)step);
  for (int i = 0; i < SAMPLES; i++) /* unequal numbers of valid tokens */
    for (int t = T - 3 * i; t < T; t++) targets[i * T + t] = -1;
}

static Outcome train(const char *model, const char *const *settings, const PlanArgs *args) {
  Session s;
  session_open(&s, model, NULL, settings, args, &(DeviceOptions){.poison = true});
  session_weights(&s);
  Outcome o = {.recompute_ns = s.fit.plan->phases.at[0].recompute_ns,
               .transient = s.fit.plan->arena_bytes - s.fit.plan->persistent_bytes};
  int32_t tokens[SAMPLES * T], targets[SAMPLES * T];
  for (int step = 0; step < STEPS; step++) {
    batch(tokens, targets, step);
    session_step(&s, tokens, targets, step, 1e-2f, true);
    o.loss[step] = session_f32(&s, "metric.loss");
    assert_true(isfinite(o.loss[step]));
  }
  o.weights = session_state(&s);
  session_close(&s);
  return o;
}

static void expect_same(const Outcome *a, const Outcome *b, const char *what) {
  for (int i = 0; i < STEPS; i++)
    if (memcmp(&a->loss[i], &b->loss[i], sizeof a->loss[i]) != 0)
      fail_msg("%s: loss of step %d is %.9g, not %.9g", what, i, b->loss[i], a->loss[i]);
  if (a->weights != b->weights) fail_msg("%s: weights differ", what);
}

/* none, auto at several budgets, full: one result. */
static void recompute_is_exact(const char *model, const char *const *settings) {
  PlanArgs args = session_plan_args();
  args.micro_batch = 4;
  args.chunks = args.mlp_chunks = 1;
  args.recompute = RC_NONE;
  Outcome none = train(model, settings, &args);
  args.recompute = RC_FULL;
  Outcome full = train(model, settings, &args);
  expect_same(&none, &full, "full recompute");
  assert_true(full.transient < none.transient);
  assert_true(full.recompute_ns > 0);

  Arena *a = arena_new();
  Job *job = session_job(a, model, NULL, settings);
  args.recompute = RC_AUTO;
  FitResult r = plan_fit(job, a, &args);
  int64_t most = r.plan->peak_bytes, floor = r.floor_bytes;
  arena_free(a);
  int smaller = 0;
  for (int i = 0; i < BUDGETS; i++) {
    args.budget_bytes = floor + (most - floor) * i / BUDGETS;
    Outcome some = train(model, settings, &args);
    expect_same(&none, &some, "recompute auto");
    smaller += some.transient < none.transient;
  }
  assert_true(smaller > 0);
}

static void gpt2_recompute(void **state) {
  (void)state;
  recompute_is_exact(GPT2, f32);
}
static void gpt2_recompute_with_dropout(void **state) {
  (void)state;
  recompute_is_exact(GPT2, dropout);
}
static void gpt2_recompute_in_bf16(void **state) {
  (void)state;
  recompute_is_exact(GPT2, bf16);
}
static void gpt2_recompute_with_random_rounding(void **state) {
  (void)state;
  recompute_is_exact(GPT2, all_random);
}
static void llama_recompute(void **state) {
  (void)state;
  recompute_is_exact(LLAMA, f32);
}
static void llama_recompute_in_bf16(void **state) {
  (void)state;
  recompute_is_exact(LLAMA, bf16);
}

/* ---- micro-batch splits: up to rounding ---- */
typedef struct {
  double loss;
  int ngrads;
  float **grad;
  int64_t *n;
  float **weight; /* after ten steps */
  int nweights;
  int64_t *wn;
} Split;

static int collect(Session *s, ProgramVarRole role, float ***to, int64_t **n) {
  int count = 0;
  *to = calloc((size_t)s->program->nvars, sizeof **to);
  *n = calloc((size_t)s->program->nvars, sizeof **n);
  for (int v = 0; v < s->program->nvars; v++)
    if (s->program->vars[v].role == role) {
      (*to)[count] = session_read(s, s->program->vars[v].path, &(*n)[count]);
      count++;
    }
  return count;
}

static Split split_as(const char *model, const char *const *settings, const PlanArgs *args) {
  Session s;
  session_open(&s, model, NULL, settings, args, &(DeviceOptions){.poison = true});
  assert_int_equal(s.phase->micro_batch, args->micro_batch);
  assert_int_equal(s.fit.plan->phases.at[0].group, args->group);
  assert_int_equal(s.fit.plan->phases.at[0].mlp_chunks, args->mlp_chunks);
  session_weights(&s);
  Split r = {0};
  int32_t tokens[SAMPLES * T], targets[SAMPLES * T];
  for (int step = 0; step < 10; step++) {
    batch(tokens, targets, step);
    session_step(&s, tokens, targets, step, 1e-2f, false);
    if (step == 0) {
      r.loss = session_f32(&s, "metric.loss");
      r.ngrads = collect(&s, PV_ACCUM, &r.grad, &r.n);
    }
    session_run(&s, s.phase->update);
  }
  r.nweights = collect(&s, PV_PARAM, &r.weight, &r.wn);
  session_close(&s);
  return r;
}

static Split split(const char *model, const char *const *settings, int64_t micro_batch, int group) {
  PlanArgs args = session_plan_args();
  args.micro_batch = micro_batch;
  args.chunks = args.mlp_chunks = 1;
  args.group = group;
  return split_as(model, settings, &args);
}

static void free_split(Split *r) {
  for (int i = 0; i < r->ngrads; i++) free(r->grad[i]);
  for (int i = 0; i < r->nweights; i++) free(r->weight[i]);
  free(r->grad), free(r->weight), free(r->n), free(r->wn);
}

static double distance(const float *a, const float *b, int64_t n) {
  double d = 0;
  for (int64_t i = 0; i < n; i++) d += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
  return sqrt(d);
}

static double length(const float *a, int64_t n) {
  double d = 0;
  for (int64_t i = 0; i < n; i++) d += (double)a[i] * a[i];
  return sqrt(d);
}

/* Loss and gradients of the first step, weights after ten. */
static void expect_near(const Split *part, const Split *whole, const char *what, int n) {
  double global = 0;
  for (int i = 0; i < whole->ngrads; i++) {
    double x = length(whole->grad[i], whole->n[i]);
    global += x * x;
  }
  global = sqrt(global);
  if (fabs(part->loss - whole->loss) > 1e-6 * whole->loss)
    fail_msg("loss with %s %d is %.9g, not %.9g", what, n, part->loss, whole->loss);
  for (int i = 0; i < whole->ngrads; i++) {
    double d = distance(part->grad[i], whole->grad[i], whole->n[i]);
    if (d > 1e-5 * length(whole->grad[i], whole->n[i]) + 1e-6 * global)
      fail_msg("gradient %d with %s %d is off by %.3g", i, what, n, d);
  }
  for (int i = 0; i < whole->nweights; i++) {
    double d = distance(part->weight[i], whole->weight[i], whole->wn[i]);
    if (d > 1e-5 * length(whole->weight[i], whole->wn[i]))
      fail_msg("weight %d with %s %d is off by %.3g", i, what, n, d);
  }
}

static void splits_agree(const char *model, const char *const *settings) {
  Split whole = split(model, settings, 8, 1);
  for (int b = 1; b < 8; b *= 2) {
    Split part = split(model, settings, b, 1);
    expect_near(&part, &whole, "micro-batch", b);
    free_split(&part);
  }
  free_split(&whole);
}

static void gpt2_splits(void **state) {
  (void)state;
  splits_agree(GPT2, f32);
}
static void llama_splits(void **state) {
  (void)state;
  splits_agree(LLAMA, f32);
}

/* ---- MLPs in chunks: up to rounding; at every way of rebuilding them, in chunks of unequal length ---- */

static void mlp_chunks_agree(const char *model) {
  Split whole = split(model, f32, 4, 1);
  PlanArgs args = session_plan_args();
  args.micro_batch = 4;
  args.chunks = args.group = 1;
  for (int n = 2; n <= 5; n += 3)
    for (int mode = RC_NONE; mode <= RC_FULL; mode++) {
      args.mlp_chunks = n;
      args.recompute = mode;
      Split part = split_as(model, f32, &args);
      expect_near(&part, &whole, "MLP chunks", n);
      free_split(&part);
    }
  free_split(&whole);
}

static void gpt2_mlp_chunks(void **state) {
  (void)state;
  mlp_chunks_agree(GPT2);
}
static void llama_mlp_chunks(void **state) {
  (void)state;
  mlp_chunks_agree(LLAMA);
}

/* ---- groups of micro-batches: the same bits as one after another, but for tied weights ---- */

/* ntied: gradients with several parts, whose order differs. */
static void groups_agree(const char *model, const char *const *settings, int ntied) {
  for (int group = 2; group <= 4; group *= 2) {
    Split one = split(model, settings, 8 / group, 1), all = split(model, settings, 8, group);
    assert_memory_equal(&one.loss, &all.loss, sizeof one.loss);
    assert_int_equal(one.ngrads, all.ngrads);
    assert_true(one.ngrads > 10);
    int others = 0;
    for (int i = 0; i < one.ngrads; i++) {
      others += memcmp(one.grad[i], all.grad[i], sizeof(float) * (size_t)one.n[i]) != 0;
      double d = distance(one.grad[i], all.grad[i], one.n[i]);
      assert_true(d <= 1e-6 * length(one.grad[i], one.n[i]));
    }
    assert_in_range(others, 0, ntied);
    for (int i = 0; i < one.nweights; i++) {
      if (ntied == 0)
        assert_memory_equal(one.weight[i], all.weight[i], sizeof(float) * (size_t)one.wn[i]);
      assert_true(distance(one.weight[i], all.weight[i], one.wn[i]) <=
                  1e-5 * length(one.weight[i], one.wn[i]));
    }
    free_split(&one), free_split(&all);
  }
}

static void gpt2_groups(void **state) {
  (void)state;
  groups_agree(GPT2, f32, 1);
  groups_agree(GPT2, dropout, 1);
}
static void llama_groups(void **state) {
  (void)state;
  groups_agree(LLAMA, f32, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gpt2_recompute),
      cmocka_unit_test(gpt2_recompute_with_dropout),
      cmocka_unit_test(gpt2_recompute_in_bf16),
      cmocka_unit_test(gpt2_recompute_with_random_rounding),
      cmocka_unit_test(llama_recompute),
      cmocka_unit_test(llama_recompute_in_bf16),
      cmocka_unit_test(gpt2_splits),
      cmocka_unit_test(llama_splits),
      cmocka_unit_test(gpt2_groups),
      cmocka_unit_test(llama_groups),
      cmocka_unit_test(gpt2_mlp_chunks),
      cmocka_unit_test(llama_mlp_chunks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
