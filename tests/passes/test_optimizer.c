/* test_optimizer.c - the update graph against the optimizers written out in C (PyTorch's formulas),
 * clipping, groups, non-finite gradients, accumulators left as they are. */
#include "train_case.h"

#include "passes/optimizer.h"
#include "passes/precision.h"
#include "passes/simplify.h"

/* A job of two parameters without elaboration: the optimizer needs nothing else of it. */
static Job *two_params(Arena *a, Optimizer opt, double clip, bool bf16) {
  Job *j = arena_new_of(a, Job);
  j->arena = a;
  j->diags = diags_new(a);
  j->vars = vars_new(a);
  j->precision = (Precision){.compute = bf16 ? DT_BF16 : DT_F32, .frozen = PREC_AUTO};
  static const char *const paths[] = {"a.w", "a.b", "frozen"};
  for (int i = 0; i < 3; i++)
    var_add(j->vars, (Var){.path = paths[i],
                           .role = VAR_PARAM,
                           .dtype = DT_F32,
                           .trainable = i < 2,
                           .shape = i == 1 ? SHAPE(5) : SHAPE(3, 4),
                           .of = -1,
                           .loc = NO_LOC,
                           .layer = -1});
  TrainPhase p = {.name = "", .opt = opt, .clip = clip};
  Group g = {.weight_decay = 0, .lr_scale = 0.5};
  vec_push(a, &g.patterns, "*.b");
  vec_push(a, &p.groups, g);
  vec_push(a, &j->phases, p);
  return j;
}

typedef struct {
  double p[12], m[12], v[12];
} Mirror;

/* One step of AdamW on a mirror, as torch.optim.AdamW does it. */
static void adamw(Mirror *x, const double *grad, int n, const Optimizer *o, double lr, double decay,
                  int t) {
  for (int i = 0; i < n; i++) {
    x->p[i] *= 1 - lr * decay;
    x->m[i] = o->beta1 * x->m[i] + (1 - o->beta1) * grad[i];
    x->v[i] = o->beta2 * x->v[i] + (1 - o->beta2) * grad[i] * grad[i];
    double m = x->m[i] / (1 - pow(o->beta1, t)), v = x->v[i] / (1 - pow(o->beta2, t));
    x->p[i] -= lr * m / (sqrt(v) + o->eps);
  }
}

static Graph *update_of(Job *job, Arena *a) {
  precision_vars(job);
  optimizer_vars(job);
  Graph *g = optimizer_graph(job, a, 0, false);
  assert_non_null(g);
  return graph_simplify(g, a, true);
}

static void fill_grads(const Job *job, double **v, int step, double size) {
  for (int i = 0; i < 2; i++) {
    int acc = accum_of(job->vars, i);
    for (int k = 0; k < shape_count(&job->vars->all.at[i].shape); k++)
      v[acc][k] = size * tiny_random((uint64_t)(step * 2 + i), (uint64_t)k);
  }
}

static void run_update(Arena *a, const Job *job, const Graph *g, double **v, bool exact,
                       double lr) {
  tiny_scalar(job, v, "step.lr", lr);
  graph_interp(g, &(Interp){.arena = a, .exact = exact, .vars = v});
}

static const Optimizer adam = {
    .kind = OPT_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1};

static void adamw_steps(void **state) {
  (void)state;
  Arena *a = arena_new();
  Job *job = two_params(a, adam, 0, false);
  Graph *g = update_of(job, a);
  double **v = tiny_vars(a, job);
  Mirror x[2] = {0};
  int n[] = {12, 5};
  for (int i = 0; i < 2; i++) memcpy(x[i].p, v[i], sizeof(double) * (size_t)n[i]);
  for (int t = 1; t <= 10; t++) {
    double lr = 1e-2 * t;
    fill_grads(job, v, t, 1);
    for (int i = 0; i < 2; i++)
      adamw(&x[i], v[accum_of(job->vars, i)], n[i], &adam, i ? lr / 2 : lr, i ? 0 : 0.1, t);
    run_update(a, job, g, v, true, lr);
    for (int i = 0; i < 2; i++) assert_true(tiny_difference(x[i].p, v[i], n[i]) < 1e-12);
  }
  assert_true(v[var_find(job->vars, "opt.t")][0] == 10);
  arena_free(a);
}

/* In f32 the bias correction of the first steps must not lose digits to 1 - beta. */
static void first_step_f32(void **state) {
  (void)state;
  Arena *a = arena_new();
  Job *job = two_params(a, adam, 0, false);
  Graph *g = update_of(job, a);
  double **v = tiny_vars(a, job), before[12];
  memcpy(before, v[0], sizeof before);
  fill_grads(job, v, 1, 1);
  Mirror x = {0};
  memcpy(x.p, before, sizeof before);
  adamw(&x, v[accum_of(job->vars, 0)], 12, &adam, 1, 0.1, 1);
  run_update(a, job, g, v, false, 1);
  for (int k = 0; k < 12; k++) assert_true(fabs((v[0][k] - x.p[k])) < 4e-7);
  arena_free(a);
}

static void clips_by_norm(void **state) {
  (void)state;
  Arena *a = arena_new();
  Optimizer sgd = {.kind = OPT_SGD};
  Job *job = two_params(a, sgd, 0.5, false);
  Graph *g = update_of(job, a);
  double **v = tiny_vars(a, job), before[12], grad[12], sum = 0;
  fill_grads(job, v, 1, 3);
  for (int i = 0; i < 2; i++)
    for (int k = 0; k < (i ? 5 : 12); k++)
      sum += v[accum_of(job->vars, i)][k] * v[accum_of(job->vars, i)][k];
  double norm = sqrt(sum);
  memcpy(before, v[0], sizeof before);
  memcpy(grad, v[accum_of(job->vars, 0)], sizeof grad);
  run_update(a, job, g, v, true, 1);
  assert_true(fabs(v[var_find(job->vars, "metric.grad_norm")][0] - norm) < 1e-12);
  for (int k = 0; k < 12; k++)
    assert_true(fabs(before[k] - grad[k] * 0.5 / (norm + 1e-6) - v[0][k]) < 1e-12);
  fill_grads(job, v, 2, 1e-3); /* below the limit: as it is */
  memcpy(before, v[0], sizeof before);
  memcpy(grad, v[accum_of(job->vars, 0)], sizeof grad);
  run_update(a, job, g, v, true, 1);
  for (int k = 0; k < 12; k++) assert_true(fabs(before[k] - grad[k] - v[0][k]) < 1e-15);
  arena_free(a);
}

static void sgd_momentum(void **state) {
  (void)state;
  Arena *a = arena_new();
  Optimizer o = {.kind = OPT_SGD, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01};
  Job *job = two_params(a, o, 0, false);
  Graph *g = update_of(job, a);
  double **v = tiny_vars(a, job), p[12], m[12] = {0};
  memcpy(p, v[0], sizeof p);
  for (int t = 1; t <= 4; t++) {
    fill_grads(job, v, t, 1);
    for (int k = 0; k < 12; k++) {
      double d = v[accum_of(job->vars, 0)][k] + 0.01 * p[k];
      m[k] = 0.9 * m[k] + d;
      p[k] -= 0.1 * (d + 0.9 * m[k]);
    }
    run_update(a, job, g, v, true, 0.1);
  }
  assert_true(tiny_difference(p, v[0], 12) < 1e-13);
  arena_free(a);
}

/* Infinity or NaN in one gradient: weights, moments and the step count keep every bit; the skip is
 * counted. */
static void non_finite(void **state) {
  (void)state;
  Arena *a = arena_new();
  Job *job = two_params(a, adam, 1, true);
  Graph *g = update_of(job, a);
  double **v = tiny_vars(a, job), **old = arena_array(a, double *, job->vars->all.n);
  fill_grads(job, v, 1, 1);
  run_update(a, job, g, v, false, 1e-2);
  static const double bad[] = {INFINITY, -INFINITY, NAN};
  for (int i = 0; i < 3; i++) {
    fill_grads(job, v, 2, 1);
    v[accum_of(job->vars, 1)][3] = bad[i];
    for (int k = 0; k < job->vars->all.n; k++)
      old[k] =
          arena_copy(a, v[k], sizeof(double) * (size_t)shape_count(&job->vars->all.at[k].shape));
    run_update(a, job, g, v, false, 1e-2);
    unsigned kept =
        1 << VAR_PARAM | 1 << VAR_MASTER | 1 << VAR_MOMENT | 1 << VAR_OPT | 1 << VAR_ACCUM;
    assert_vars(job, old, v, kept, 0);
    assert_true(v[var_find(job->vars, "metric.skipped")][0] == i + 1);
  }
  arena_free(a);
}

static void master_copies(void **state) {
  (void)state;
  Arena *a = arena_new();
  Job *job = two_params(a, adam, 0, true);
  Graph *g = update_of(job, a);
  assert_int_equal(job->vars->all.at[0].dtype, DT_BF16);
  assert_true(master_of(job->vars, 0) != 0);
  assert_int_equal(master_of(job->vars, 2), 2); /* frozen: none */
  assert_int_equal(accum_of(job->vars, 2), -1);
  double **v = tiny_vars(a, job);
  fill_grads(job, v, 1, 1);
  run_update(a, job, g, v, false, 1e-3);
  bool between = false; /* the master holds more than the weight */
  for (int k = 0; k < 12; k++) {
    double m = v[master_of(job->vars, 0)][k];
    assert_true(v[0][k] == round_to(m, DT_BF16));
    between |= m != v[0][k];
  }
  assert_true(between);
  arena_free(a);
}

/* One kernel a parameter and one reduction a parameter, besides the scalars' kernels. */
static void kernels(void **state) {
  (void)state;
  Arena *a = arena_new();
  Job *job = two_params(a, adam, 1, true);
  Graph *g = update_of(job, a);
  Clusters c = fuse_graph(g, a);
  assert_null(fuse_verify(&c, a));
  int with_moment = 0, large = 0;
  for (int i = 0; i < c.n; i++) {
    int assigns = 0;
    for (int k = 0; k < c.at[i].nout; k++)
      assigns += c.at[i].out_var[k] >= 0 && c.g->vars->all.at[c.at[i].out_var[k]].shape.rank > 0;
    if (assigns) assert_int_equal(assigns, 4); /* weight, master, m, v */
    with_moment += assigns > 0;
    large += c.at[i].space.rank > 0;
  }
  assert_int_equal(with_moment, 2);
  assert_int_equal(large, 4);
  arena_free(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(adamw_steps),   cmocka_unit_test(first_step_f32),
      cmocka_unit_test(clips_by_norm), cmocka_unit_test(sgd_momentum),
      cmocka_unit_test(non_finite),    cmocka_unit_test(master_copies),
      cmocka_unit_test(kernels),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
