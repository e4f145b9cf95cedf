/* test_optimizer_reference.c - ten steps of each optimizer in f32 against what PyTorch computed in float64
 * (tests/reference/gen_optimizers.py): every parameter within 1e-5 relative. */
#include "train_case.h"

#include "passes/optimizer.h"
#include "passes/precision.h"
#include "passes/simplify.h"
#include "runtime/safetensors.h"

enum { STEPS = 10, PARAMS = 4 };
static const char *const names[PARAMS] = {"w", "tall", "e", "b"};

static SafeTensors *file;

static const float *entry(const char *name, Shape *shape) {
  const StEntry *e = st_find(file, name);
  ensure(e && e->dtype == DT_F32, "the reference has no `%s`", name);
  if (shape) *shape = shape_of(e->rank, e->dim);
  return e->data;
}

static Job *job_of(Arena *a, Optimizer opt) {
  Job *j = arena_new_of(a, Job);
  j->arena = a;
  j->diags = diags_new(a);
  j->vars = vars_new(a);
  j->precision = (Precision){.compute = DT_F32, .frozen = PREC_AUTO};
  for (int i = 0; i < PARAMS; i++) {
    Var v = {.path = intern(names[i]),
             .role = VAR_PARAM,
             .dtype = DT_F32,
             .trainable = true,
             .lookup = i == 2,
             .of = -1,
             .loc = NO_LOC,
             .layer = -1};
    entry(intern_printf("init.%s", names[i]), &v.shape);
    var_add(j->vars, v);
  }
  vec_push(a, &j->phases, ((TrainPhase){.name = "", .opt = opt}));
  return j;
}

static void copy(double *to, const float *from, int64_t n) {
  for (int64_t i = 0; i < n; i++) to[i] = from[i];
}

static void agrees(const char *what, Optimizer opt) {
  Arena *a = arena_new();
  Job *job = job_of(a, opt);
  precision_vars(job);
  optimizer_vars(job);
  Graph *g = graph_simplify(optimizer_graph(job, a, 0, false), a, true);
  double **v = tiny_vars(a, job);
  const float *share = entry("lr", NULL);
  for (int t = 0; t < STEPS; t++) {
    for (int i = 0; i < PARAMS; i++) {
      int64_t n = shape_count(&job->vars->all.at[i].shape);
      if (!t) copy(v[i], entry(intern_printf("init.%s", names[i]), NULL), n);
      copy(v[accum_of(job->vars, i)], entry(intern_printf("grad.%s", names[i]), NULL) + t * n, n);
    }
    tiny_scalar(job, v, "step.lr", (float)(opt.lr * share[t]));
    graph_interp(g, &(Interp){.arena = a, .vars = v});
  }
  for (int i = 0; i < PARAMS; i++) {
    const float *want = entry(intern_printf("after.%s.%s", what, names[i]), NULL);
    double off = 0, size = 0;
    for (int64_t k = 0; k < shape_count(&job->vars->all.at[i].shape); k++) {
      off += (v[i][k] - want[k]) * (v[i][k] - want[k]);
      size += (double)want[k] * want[k];
    }
    if (!(sqrt(off) <= 1e-5 * sqrt(size)))
      fail_msg("%s: `%s` is off by %.2g", what, names[i], sqrt(off / size));
  }
  arena_free(a);
}

static void sgd(void **state) {
  (void)state;
  agrees("sgd", (Optimizer){.kind = OPT_SGD, .lr = 0.05});
  Optimizer o = {.kind = OPT_SGD, .lr = 0.05, .momentum = 0.9, .weight_decay = 0.01};
  agrees("momentum", o);
  o.nesterov = true;
  agrees("nesterov", o);
}

static void adam(void **state) {
  (void)state;
  Optimizer o = {
      .kind = OPT_ADAM, .lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.01};
  agrees("adam", o);
  o.kind = OPT_ADAMW, o.weight_decay = 0.1;
  agrees("adamw", o);
}

static void lion(void **state) {
  (void)state;
  agrees(
      "lion",
      (Optimizer){.kind = OPT_LION, .lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1});
}

static void adafactor(void **state) {
  (void)state;
  agrees("adafactor", (Optimizer){.kind = OPT_ADAFACTOR,
                                  .lr = 0.3,
                                  .decay = 0.8,
                                  .eps = 0x1p-23,
                                  .floor = 1e-3,
                                  .threshold = 1,
                                  .relative = true,
                                  .weight_decay = 0.05});
}

static void muon(void **state) {
  (void)state;
  Optimizer o = {.kind = OPT_MUON,
                 .lr = 0.02,
                 .momentum = 0.95,
                 .nesterov = true,
                 .beta1 = 0.9,
                 .beta2 = 0.95,
                 .eps = 1e-8,
                 .adam_scale = 1,
                 .weight_decay = 0.1};
  agrees("muon", o);
  o.lr = 0.01, o.momentum = 0.9, o.nesterov = false, o.match_rms = true, o.weight_decay = 0;
  agrees("muon_rms", o);
}

static int open_file(void **state) {
  (void)state;
  Fail f = {0};
  file = st_open(MTC_SOURCE_DIR "/tests/reference/optimizers.safetensors", &f);
  return file ? 0 : 1;
}
static int close_file(void **state) {
  (void)state;
  st_close(file);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(sgd), cmocka_unit_test(adam),
                                     cmocka_unit_test(lion), cmocka_unit_test(adafactor),
                                     cmocka_unit_test(muon)};
  return cmocka_run_group_tests(tests, open_file, close_file);
}
