/* test_parity.c - losses, every gradient and the weights after ten AdamW steps against what PyTorch computed in float64
 * (tests/reference/gen_torch.py): within 1e-5 relative, with a floor of 1e-6 of the global norm for gradients that are
 * zero but for noise (a key's bias). The files also exercise the `weights` maps of the models. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "runtime/safetensors.h"
#include "tests/support/session.h"

enum { STEPS = 10, SAMPLES = 4, T = 16 };

typedef struct {
  const char *model, *reference;
  const char *settings[16];
} Case;

static const Case gpt2 = {
    MTC_SOURCE_DIR "/tests/train/models/gpt2.mt",
    MTC_SOURCE_DIR "/tests/reference/gpt2_tiny.safetensors",
    {"V=96", "Tmax=16", "D=32", "H=4", "L=2", "T=16", "train.batch=seqs(4)", NULL}};

static const Case llama = {
    MTC_SOURCE_DIR "/tests/train/models/llama.mt",
    MTC_SOURCE_DIR "/tests/reference/llama_tiny.safetensors",
    {"V=96", "D=32", "H=4", "KV=2", "L=2", "F=80", "T=16", "train.batch=seqs(4)", NULL}};

/* The entry PREFIX.KEY as f32, transposed to the variable's layout when the map says so; malloc'ed. */
static float *reference(const SafeTensors *f, const char *prefix, const WeightMap *m, const Shape *shape) {
  char key[256];
  snprintf(key, sizeof key, "%s.%s", prefix, m->key);
  const StEntry *t = st_find(f, key);
  ensure(t, "the reference has no `%s`", key);
  int64_t n = shape_count(shape);
  ensure(t->dtype == DT_F32 && t->bytes == n * 4, "`%s` has another size", key);
  const float *from = t->data;
  float *to = malloc((size_t)n * 4);
  ensure(to, "memory");
  if (!m->transposed) return memcpy(to, from, (size_t)n * 4);
  int64_t rows = shape->dim[0], cols = shape->dim[1];
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) to[i * cols + j] = from[j * rows + i];
  return to;
}

static double norm(const float *x, int64_t n) {
  double s = 0;
  for (int64_t i = 0; i < n; i++) s += (double)x[i] * x[i];
  return sqrt(s);
}

/* |a - b| <= 1e-5 |b| + floor, as norms. */
static void expect_close(const char *what, const char *path, const float *a, const float *b, int64_t n,
                         double floor) {
  double d = 0;
  for (int64_t i = 0; i < n; i++) d += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
  double limit = 1e-5 * norm(b, n) + floor;
  if (!(sqrt(d) <= limit)) fail_msg("%s of %s is off by %.3g (limit %.3g)", what, path, sqrt(d), limit);
}

static double global_norm(const Session *s, const SafeTensors *f, const char *prefix) {
  double sum = 0;
  for (int i = 0; i < s->job->weights.n; i++) {
    const WeightMap *m = &s->job->weights.at[i];
    const Shape *shape = &s->job->vars->all.at[m->var].shape;
    float *r = reference(f, prefix, m, shape);
    double x = norm(r, shape_count(shape));
    sum += x * x;
    free(r);
  }
  return sqrt(sum);
}

static void compare_all(Session *s, const SafeTensors *f, const char *prefix, const char *suffix,
                        double floor) {
  for (int i = 0; i < s->job->weights.n; i++) {
    const WeightMap *m = &s->job->weights.at[i];
    const Var *v = &s->job->vars->all.at[m->var];
    float *r = reference(f, prefix, m, &v->shape);
    char path[256];
    snprintf(path, sizeof path, "%s%s", v->path, suffix);
    int64_t n;
    float *x = session_read(s, path, &n);
    expect_close(prefix, path, x, r, n, floor);
    free(x);
    free(r);
  }
}

static void check(const Case *c, int64_t micro_batch) {
  Session s;
  PlanArgs args = session_plan_args();
  args.micro_batch = micro_batch;
  session_open(&s, c->model, NULL, c->settings, &args, &(DeviceOptions){.poison = true});
  Fail fail = {0};
  SafeTensors *f = st_open(c->reference, &fail);
  ensure(f, "%s", fail.text);
  for (int i = 0; i < s.job->weights.n; i++) {
    const WeightMap *m = &s.job->weights.at[i];
    const Var *v = &s.job->vars->all.at[m->var];
    float *init = reference(f, "init", m, &v->shape);
    session_write(&s, v->path, init);
    free(init);
  }
  const int32_t *tokens = st_find(f, "tokens")->data;
  const int32_t *targets = st_find(f, "targets")->data;
  const float *losses = st_find(f, "losses")->data;
  for (int step = 0; step < STEPS; step++) {
    const int32_t *x = tokens + step * SAMPLES * T, *y = targets + step * SAMPLES * T;
    session_step(&s, x, y, step, 1e-2f, false);
    double loss = session_f32(&s, "metric.loss");
    if (fabs(loss - losses[step]) > 1e-5 * losses[step])
      fail_msg("loss of step %d is %.8g, not %.8g", step, loss, losses[step]);
    if (step == 0) compare_all(&s, f, "grad", ":grad", 1e-6 * global_norm(&s, f, "grad"));
    session_run(&s, s.phase->update);
  }
  compare_all(&s, f, "after", "", 0);
  st_close(f);
  session_close(&s);
}

static void gpt2_agrees_with_pytorch(void **state) {
  (void)state;
  check(&gpt2, 4);
}
static void gpt2_agrees_when_split_into_micro_batches(void **state) {
  (void)state;
  check(&gpt2, 1);
}
static void llama_agrees_with_pytorch(void **state) {
  (void)state;
  check(&llama, 4);
}
static void llama_agrees_when_split_into_micro_batches(void **state) {
  (void)state;
  check(&llama, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gpt2_agrees_with_pytorch),
      cmocka_unit_test(gpt2_agrees_when_split_into_micro_batches),
      cmocka_unit_test(llama_agrees_with_pytorch),
      cmocka_unit_test(llama_agrees_when_split_into_micro_batches),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
