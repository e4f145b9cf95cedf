/* test_formats.c - formats as a part of the plan: over many budgets the cost never rises and the choice is the best of all
 * combinations; what the model does not leave open stays as it is; reasons are told. */
#include "train_case.h"

#include "passes/formats.h"

enum { BUDGETS = 50 };

typedef struct {
  Arena *a, *scratch;
  JobArgs *again; /* the job keeps it */
  Job *job;
  PlanArgs args;
  FormatsPool *pool;
} Case;

/* `settings` ends with NULL: "precision.moments=auto". */
static Case of_settings(const char *const *settings, const char *target) {
  Case c = {.a = arena_new(), .scratch = arena_new()};
  c.again = arena_new_of(c.a, JobArgs);
  static const Override dims[] = {{"L", "1"},  {"D", "64"},    {"H", "2"},
                                  {"V", "64"}, {"Tmax", "16"}, {"T", "16"}};
  c.again->path = MTC_SOURCE_DIR "/models/gpt2.mt";
  for (int i = 0; i < COUNT_OF(dims); i++) vec_push(c.a, &c.again->dims, dims[i]);
  vec_push(c.a, &c.again->settings, ((Override){"train.batch", "seqs(4)"}));
  for (; *settings; settings++) {
    const char *eq = strchr(*settings, '=');
    Override o = {intern_n(*settings, (size_t)(eq - *settings)), intern(eq + 1)};
    vec_push(c.a, &c.again->settings, o);
  }
  c.job = elaborate(c.a, diags_new(c.a), c.again);
  assert_non_null(c.job);
  c.args = (PlanArgs){.target = target_by_name(target), .budget_bytes = INT64_MAX, .recompute = -1};
  c.pool = formats_pool(c.job, c.again, c.a, c.scratch, &c.args);
  return c;
}

static void done(Case *c) {
  arena_free(c->scratch);
  arena_free(c->a);
}

static const char *const all_open[] = {"precision.compute=bf16", "precision.master=auto", "precision.moments=auto",
                                       "precision.accum=auto", NULL};

/* The least cost of all combinations that fit, each planned on its own. */
static double best_of_all(const Case *c, int64_t budget) {
  static const FormatSetting open[] = {FMT_MASTER, FMT_MOMENTS, FMT_ACCUM};
  double best = INFINITY;
  const char *const *words[COUNT_OF(open)];
  int n[COUNT_OF(open)];
  for (int i = 0; i < COUNT_OF(open); i++) n[i] = format_choices(open[i], &words[i]);
  for (int k = 0; k < n[0] * n[1] * n[2]; k++) {
    Arena *a = arena_new();
    JobArgs args = *c->again;
    args.settings.at = NULL, args.settings.n = args.settings.cap = 0;
    vec_push(a, &args.settings, ((Override){"train.batch", "seqs(4)"}));
    int which[] = {k % n[0], k / n[0] % n[1], k / n[0] / n[1]};
    for (int i = 0; i < COUNT_OF(open); i++) {
      Override o = {intern_printf("precision.%s", format_setting_name(open[i])), words[i][which[i]]};
      vec_push(a, &args.settings, o);
    }
    Job *job = elaborate(a, diags_new(a), &args);
    assert_non_null(job);
    PlanArgs p = c->args;
    p.budget_bytes = budget;
    FitResult r = plan_fit(job, a, &p);
    for (int i = 0; i < COUNT_OF(open); i++) job->precision.choice[open[i]].open = true;
    if (r.plan) best = fmin(best, formats_cost(&r));
    arena_free(a);
  }
  return best;
}

/* From below the floor to more than everything. */
static void cost_never_rises(void **state) {
  (void)state;
  Case c = of_settings(all_open, "cpu");
  FitResult most = formats_within(c.pool, c.a, INT64_MAX), least = formats_within(c.pool, c.a, 1);
  assert_non_null(most.plan);
  assert_null(least.plan);
  assert_int_equal(least.formats.n, 3);
  int64_t from = least.floor_bytes - (least.floor_bytes >> 6), to = most.plan->peak_bytes;
  to += (to - from) / 8;
  double before = INFINITY;
  int lossy = 0, exact = 0;
  for (int i = 0; i < BUDGETS; i++) {
    int64_t budget = from + (to - from) / (BUDGETS - 1) * i;
    Arena *a = arena_new();
    FitResult r = formats_within(c.pool, a, budget);
    assert_int_equal(r.plan != NULL, budget >= least.floor_bytes);
    if (r.plan) {
      double cost = formats_cost(&r);
      assert_true(r.plan->peak_bytes <= budget);
      assert_null(plan_check(r.plan, a));
      if (!(cost <= before)) fail_msg("%lld bytes cost %.9g, less cost %.9g", (long long)budget, cost, before);
      before = cost;
      assert_int_equal(r.formats.n, 3);
      bool precise = true;
      for (int k = 0; k < r.formats.n; k++) precise &= strcmp(r.formats.at[k].format, "bf16") != 0;
      lossy += !precise, exact += precise;
      if (i == 20) {
        double best = best_of_all(&c, budget);
        if (fabs(cost - best) > 1e-9 * best) fail_msg("%lld bytes: cost %.9g, best %.9g", (long long)budget, cost, best);
      }
    }
    arena_free(a);
  }
  assert_true(lossy > 3 && exact > 3);
  done(&c);
}

/* A setting that is not `auto` keeps its format at every budget, and is not spoken of. */
static void closed_settings_stay(void **state) {
  (void)state;
  static const char *const one_open[] = {"precision.compute=bf16", "precision.moments=auto", NULL};
  Case c = of_settings(one_open, "cpu");
  int64_t floor = formats_within(c.pool, c.a, 1).floor_bytes;
  FitResult most = formats_within(c.pool, c.a, INT64_MAX);
  for (int i = 0; i < BUDGETS; i++) {
    Arena *a = arena_new();
    FitResult r = formats_within(c.pool, a, floor + (most.plan->peak_bytes - floor) / BUDGETS * i);
    assert_non_null(r.plan);
    const Precision *p = &r.job->precision;
    assert_int_equal(p->compute, DT_BF16);
    assert_int_equal(p->master, DT_F32);
    assert_int_equal(p->accum, DT_F32);
    assert_int_equal(r.formats.n, 1);
    assert_string_equal(r.formats.at[0].setting, "moments");
    for (int v = 0; v < r.job->vars->all.n; v++) {
      const Var *x = &r.job->vars->all.at[v];
      if (x->role == VAR_MASTER || x->role == VAR_ACCUM) assert_int_equal(x->dtype, DT_F32);
      if (x->role == VAR_MOMENT && !strcmp(r.formats.at[0].format, "f32")) assert_int_equal(x->dtype, DT_F32);
    }
    arena_free(a);
  }
  done(&c);
  static const char *const none[] = {"precision.compute=bf16", NULL};
  Case closed = of_settings(none, "cpu");
  assert_false(formats_open(closed.job));
  FitResult r = formats_fit(closed.job, closed.again, closed.a, &closed.args);
  assert_int_equal(r.formats.n, 0);
  done(&closed);
}

/* With room for everything the most precise formats are kept, and little is planned to know it. */
static void room_keeps_precision(void **state) {
  (void)state;
  Case c = of_settings(all_open, "h200");
  FitResult r = formats_within(c.pool, c.a, INT64_MAX);
  assert_non_null(r.plan);
  for (int i = 0; i < r.formats.n; i++)
    if (strcmp(r.formats.at[i].setting, "master") != 0) assert_string_equal(r.formats.at[i].format, "f32");
  assert_string_not_equal(r.job->precision.choice[FMT_MASTER].why, "");
  assert_true(formats_planned(c.pool) <= 4);
  done(&c);
}

/* Products on the CPU are f32 whatever the format: bf16 buys nothing there. */
static void compute_by_target(void **state) {
  (void)state;
  static const char *const open[] = {"precision.compute=auto", NULL};
  Case cpu = of_settings(open, "cpu");
  FitResult r = formats_within(cpu.pool, cpu.a, INT64_MAX);
  assert_int_equal(r.job->precision.compute, DT_F32);
  Case gpu = of_settings(open, "h200");
  r = formats_within(gpu.pool, gpu.a, INT64_MAX);
  for (int v = 0; v < r.job->vars->all.n; v++) {
    const Var *x = &r.job->vars->all.at[v];
    if (x->role == VAR_PARAM) assert_int_equal(x->dtype, r.job->precision.compute);
  }
  assert_non_null(strstr(r.formats.at[0].why, r.job->precision.compute == DT_BF16 ? "faster than with tf32" : "would have to be"));
  char *text = NULL;
  size_t size = 0;
  FILE *to = open_memstream(&text, &size);
  assert_true(plan_why(&r, "h.0.c_fc", to));
  fclose(to);
  assert_non_null(strstr(text, "compute = auto"));
  free(text);
  done(&cpu);
  done(&gpu);
}

/* What a format buys is what it says: bytes of variables, and a time that was planned. */
static void reasons(void **state) {
  (void)state;
  Case c = of_settings(all_open, "cpu");
  int64_t floor = formats_within(c.pool, c.a, 1).floor_bytes;
  FitResult r = formats_within(c.pool, c.a, floor);
  assert_non_null(r.plan);
  for (int i = 0; i < r.formats.n; i++) {
    assert_string_not_equal(r.formats.at[i].format, "f32");
    const char *why = r.formats.at[i].why;
    assert_true(strstr(why, "f32") && (strstr(why, "budget") || strstr(why, "faster")));
  }
  done(&c);
}

static Job *job_with(const Case *c, Arena *a, const char *master, const char *moments,
                     const char *accum) {
  JobArgs *args = arena_copy(a, c->again, sizeof *args);
  args->settings.at = NULL, args->settings.n = args->settings.cap = 0;
  const Override of[] = {{"train.batch", "seqs(4)"},
                         {"precision.compute", "bf16"},
                         {"precision.master", master},
                         {"precision.moments", moments},
                         {"precision.accum", accum}};
  for (int i = 0; i < COUNT_OF(of); i++) vec_push(a, &args->settings, of[i]);
  Job *job = elaborate(a, diags_new(a), args);
  assert_non_null(job);
  return job;
}

static void same_pool(const Job *job, const FitPool *x, const FitPool *y, Arena *a) {
  for (int phase = 0; phase < job->phases.n; phase++) {
    Candidate *p, *q;
    int n = fit_candidates(x, phase, a, &p);
    assert_true(n > 0);
    assert_int_equal(fit_candidates(y, phase, a, &q), n);
    for (int i = 0; i < n; i++) {
      assert_int_equal(p[i].micro_batch, q[i].micro_batch);
      assert_int_equal(p[i].chunks, q[i].chunks);
      assert_int_equal(p[i].front, q[i].front);
      assert_int_equal(p[i].peak_bytes, q[i].peak_bytes);
      assert_int_equal(p[i].step_ns, q[i].step_ns);
      assert_int_equal(p[i].host_bytes, q[i].host_bytes);
    }
  }
}

/* A pool that takes over the micro-batches of another job has the very candidates and plans of one that builds its own,
 * with host memory for a part of the state, for all of the largest job and beyond. */
static void shared_pools_are_the_same(void **state) {
  (void)state;
  static const struct {
    const char *master, *moments, *accum;
  } to[] = {{"bf16", "bf16", "f32"},
            {"split", "i8", "f32"},
            {"split", "f32", "bf16"},
            {"f32", "bf16", "f32"}};
  static const int64_t host[] = {0, 300000, 1 << 30};
  Case c = of_settings(all_open, "h200");
  for (int h = 0; h < COUNT_OF(host); h++) {
    Arena *a = arena_new();
    PlanArgs args = c.args;
    args.host_bytes = host[h];
    FitPool *base = fit_pool(job_with(&c, a, "f32", "f32", "f32"), a, &args);
    for (int i = 0; i < COUNT_OF(to); i++) {
      Job *one = job_with(&c, a, to[i].master, to[i].moments, to[i].accum);
      Job *two = job_with(&c, a, to[i].master, to[i].moments, to[i].accum);
      FitPool *own = fit_pool(one, a, &args), *shared = fit_pool_like(base, two, a, &args);
      same_pool(one, own, shared, a);
      FitResult r = fit_within(own, a, INT64_MAX), s = fit_within(shared, a, INT64_MAX);
      assert_int_equal(s.floor_bytes, r.floor_bytes);
      assert_int_equal(s.plan->peak_bytes, r.plan->peak_bytes);
      assert_null(plan_check(s.plan, a));
      FitResult least = fit_within(shared, a, s.floor_bytes);
      assert_non_null(least.plan);
      assert_null(plan_check(least.plan, a));
    }
    arena_free(a);
  }
  done(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(cost_never_rises),
                                     cmocka_unit_test(closed_settings_stay),
                                     cmocka_unit_test(room_keeps_precision),
                                     cmocka_unit_test(compute_by_target),
                                     cmocka_unit_test(reasons),
                                     cmocka_unit_test(shared_pools_are_the_same)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
