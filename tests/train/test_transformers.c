/* test_transformers.c - tiny models of each family from files that Transformers wrote (tests/reference/hf_models.py):
 * loaded through `init` and the `weights` maps, they must give its logits within 1e-4 of the largest and its gradients
 * within 1e-3 of each tensor's norm, in fp32 as it computed them. Llama 3's file is in shards.
 *
 * usage: t_train_transformers [FOLDER [TARGET]]
 *   FOLDER  one folder a family; tests/reference/transformers
 *   TARGET  cpu; another runs on the GPU of this machine, where the repository may be the current folder */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "runtime/safetensors.h"
#include "runtime/start.h"
#include "tests/support/session.h"

enum { SAMPLES = 2, T = 16 };

static const char *source = MTC_SOURCE_DIR, *target = "cpu";
static char *folder;

/* Worst difference from the reference: of all logits, and of one gradient. */
typedef struct {
  double logits, gradient;
} Worst;

static const void *expected(const SafeTensors *f, const char *key, int64_t bytes) {
  const StEntry *e = st_find(f, key);
  ensure(e && e->bytes == bytes, "the reference has no `%s` of %lld bytes", key, (long long)bytes);
  return e->data;
}

static void open_family(Session *s, const char *family, int64_t micro_batch) {
  Arena *a = arena_new();
  const char *dir = arena_printf(a, "%s/%s", folder, family);
  const char *file = arena_printf(a, "%s/model.safetensors.index.json", dir);
  if (!path_exists(file)) file = arena_printf(a, "%s/model.safetensors", dir);
  const char *settings[] = {arena_printf(a, "train.init=\"%s\"", file), NULL};
  PlanArgs args = session_plan_args();
  args.target = target_by_name(target);
  ensure(args.target, "no target `%s`", target);
  args.micro_batch = micro_batch;
  session_open(s, arena_printf(a, "%s/tests/train/models/hf_%s.mt", source, family), NULL, settings, &args,
               &(DeviceOptions){.poison = true});
  Fail f = {0};
  if (!start_values(&s->replay, 1, NULL, &f)) fail_msg("%s: %s", family, f.text);
  arena_free(a);
}

/* The sample program gives the logits of one position; all are asked for in turn. */
static double logits_off(Session *s, const int32_t *tokens, const float *want) {
  const Tensor *row = program_result(s->program, s->phase->sample, "logits");
  const Tensor *in = program_input(s->program, s->phase->sample, "tokens");
  ensure(row && in && row->dtype == DT_F32 && tensor_count(in) == T, "another sample program");
  int64_t v = tensor_count(row);
  float *got = malloc((size_t)v * 4);
  double off = 0, most = 0;
  Fail f = {0};
  for (int sample = 0; sample < SAMPLES; sample++) {
    ensure(got && replay_write(&s->replay, in, tokens + sample * T, &f), "inputs: %s", f.text);
    for (int32_t t = 0; t < T; t++) {
      session_scalar(s, "step.position", &t);
      session_run(s, s->phase->sample);
      ensure(replay_read(&s->replay, row, got, &f), "logits: %s", f.text);
      const float *at = want + (sample * T + t) * v;
      for (int64_t i = 0; i < v; i++) {
        off = fmax(off, fabs((double)got[i] - at[i]));
        most = fmax(most, fabs((double)at[i]));
      }
    }
  }
  free(got);
  return off / most;
}

/* Norm of the difference over the norm, of one parameter's gradient. */
static double gradient_off(Session *s, const SafeTensors *f, const WeightMap *m) {
  const Var *v = &s->job->vars->all.at[m->var];
  char name[300];
  int64_t n, rows = 1, cols = 1;
  snprintf(name, sizeof name, "%s:grad", v->path);
  float *got = session_read(s, name, &n);
  snprintf(name, sizeof name, "grad.%s", m->key);
  const float *want = expected(f, name, n * 4);
  if (m->transposed) rows = v->shape.dim[0], cols = v->shape.dim[1];
  double off = 0, norm = 0;
  for (int64_t i = 0; i < n; i++) {
    double w = want[m->transposed ? i % cols * rows + i / cols : i];
    off += (got[i] - w) * (got[i] - w);
    norm += w * w;
  }
  free(got);
  return sqrt(off / norm);
}

static Worst compare(const char *family, int64_t micro_batch) {
  Session s;
  open_family(&s, family, micro_batch);
  char path[1200];
  snprintf(path, sizeof path, "%s/%s/expected.safetensors", folder, family);
  Fail fail = {0};
  SafeTensors *f = st_open(path, &fail);
  ensure(f, "%s", fail.text);
  const int32_t *tokens = expected(f, "tokens", SAMPLES * T * 4);
  int64_t v = tensor_count(program_result(s.program, s.phase->sample, "logits"));
  Worst w = {logits_off(&s, tokens, expected(f, "logits", SAMPLES * T * v * 4)), 0};
  session_step(&s, tokens, expected(f, "targets", SAMPLES * T * 4), 0, 0, false);
  double loss = session_f32(&s, "metric.loss"), want = *(const float *)expected(f, "loss", 4);
  if (!(fabs(loss - want) <= 1e-5 * want)) fail_msg("%s: loss %.8g, not %.8g", family, loss, want);
  for (int i = 0; i < s.job->weights.n; i++) {
    double off = gradient_off(&s, f, &s.job->weights.at[i]);
    if (!(off <= 1e-3)) fail_msg("%s: the gradient of %s is off by %.3g", family, s.job->weights.at[i].key, off);
    w.gradient = fmax(w.gradient, off);
  }
  if (!(w.logits <= 1e-4)) fail_msg("%s: logits are off by %.3g", family, w.logits);
  st_close(f);
  session_close(&s);
  return w;
}

static void check(const char *family) {
  Worst w = compare(family, SAMPLES);
  print_message("%s: logits within %.1e, gradients within %.1e\n", family, w.logits, w.gradient);
}

static void llama2(void **state) {
  (void)state;
  check("llama2");
}
static void llama3_with_scaled_positions_from_shards(void **state) {
  (void)state;
  check("llama3");
  compare("llama3", 1); /* split into micro-batches */
}
static void qwen2_with_one_table(void **state) {
  (void)state;
  check("qwen2");
}
static void qwen2_with_a_head_of_its_own(void **state) {
  (void)state;
  check("qwen2_untied");
}
static void gpt2(void **state) {
  (void)state;
  check("gpt2");
}

int main(int argc, char **argv) {
  if (!path_exists(source)) source = ".";
  char reference[1200];
  snprintf(reference, sizeof reference, "%s/tests/reference/transformers", source);
  folder = realpath(argc > 1 ? argv[1] : reference, NULL); /* `init` is relative to the model's file */
  ensure(folder, "no folder %s", argc > 1 ? argv[1] : reference);
  if (argc > 2) target = argv[2];
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(llama2),
      cmocka_unit_test(llama3_with_scaled_positions_from_shards),
      cmocka_unit_test(qwen2_with_one_table),
      cmocka_unit_test(qwen2_with_a_head_of_its_own),
      cmocka_unit_test(gpt2),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  free(folder);
  return failed;
}
