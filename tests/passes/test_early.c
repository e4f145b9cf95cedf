/* test_early.c - updates inside the backward pass: the graph gives the bits of the two graphs that it stands for, whatever the
 * optimizer and the formats; accumulators and weights are gone or overwritten only when nobody needs them; plans without accumulators are
 * proven, need less, and are offered only where an update need not be undone. */
#include <stdio.h>
#include "train_case.h"
#include "passes/first.h"
#include "passes/optimizer.h"

enum { MOST = 8, SAMPLES = 4 };

typedef struct {
  const char *model, *set[MOST][2];
  const char *frozen; /* parameters under this path are not trained */
} Case;

static const Case cases[] = {
    {.model = "gpt2", .set = {{"precision.compute", "f32"}}},
    {.model = "llama", .set = {{"precision.compute", "f32"}}},
    {.model = "llama", .set = {{"precision.compute", "bf16"}, {"precision.master", "split"}}},
    {.model = "gpt2",
     .set = {{"precision.compute", "bf16"},
             {"precision.master", "bf16"},
             {"precision.moments", "bf16"},
             {"precision.accum", "bf16"}}},
    {.model = "llama",
     .set = {{"D", "64"}, {"F", "128"}, {"V", "256"}, {"precision.moments", "i8"}}},
    {.model = "gpt2",
     .set = {{"train.optimizer", "sgd(lr = 1e-2, momentum = 0.9, nesterov = true)"}}},
    {.model = "llama", .set = {{"train.optimizer", "sgd(lr = 1e-2)"}}},
    {.model = "gpt2", .set = {{"train.optimizer", "adafactor(lr = 1e-2)"}}},
    {.model = "llama", .set = {{"train.optimizer", "muon(lr = 1e-2)"}}},
    {.model = "gpt2", .set = {{"train.optimizer", "lion(lr = 1e-2)"}}},
    {.model = "llama", .set = {{"train.optimizer", "adam(lr = 1e-2, weight_decay = 0.1)"}}},
    {.model = "gpt2", .set = {{"drop", "0.2"}}},
    {.model = "llama", .set = {{"precision.compute", "f32"}}, .frozen = "h.0."},
    {.model = "gpt2", .set = {{"precision.compute", "f32"}}, .frozen = "wte."}, /* the tied one */
};

/* A job that may update early. */
static Job *early_job(Arena *a, const Case *c) {
  Override set[MOST + 3];
  int n = 0;
  while (n < MOST && c->set[n][0]) set[n] = (Override){c->set[n][0], c->set[n][1]}, n++;
  set[n++] = (Override){"train.clip", "0"};
  set[n++] = (Override){"train.nonfinite", "stop"};
  set[n++] = (Override){"train.batch", "seqs(4)"};
  Job *job = tiny_job(a, c->model, n, set);
  for (int i = 0; c->frozen && i < job->vars->all.n; i++)
    if (str_starts(job->vars->all.at[i].path, c->frozen)) vec_push(a, &job->phases.at[0].frozen, i);
  return job;
}

static const char *name_of(const Case *c) {
  return c->set[0][1] ? c->set[0][1] : c->model;
}

/* ---- the graph ---- */

/* Between steps accumulators hold nothing: `with` what nobody may depend on. */
static void fill_accumulators(const Job *job, double **v, double with) {
  for (int i = 0; i < job->vars->all.n; i++)
    for (int64_t k = 0;
         job->vars->all.at[i].role == VAR_ACCUM && k < shape_count(&job->vars->all.at[i].shape);
         k++)
      v[i][k] = with;
}

/* Two steps. The clusters of the graph, in their order, give the same again, as a step's first micro-batch. */
static void check_bits(const Case *c) {
  Arena *a = arena_new();
  Job *job = early_job(a, c);
  GraphChoice choice = {.micro_batch = SAMPLES, .chunks = 1}, early = choice;
  early.early_update = true;
  assert_int_equal(early_update_obstacles(job, 0), 0);
  TrainGraphs two = train_graphs(job, a, &choice), one = train_graphs(job, a, &early);
  assert_non_null(one.micro);
  assert_null(one.update);
  Graph *fused = arena_copy(a, one.micro, sizeof *fused);
  Clusters k = fuse_graph(fused, a);
  assert_null(fuse_verify(&k, a));
  Clusters first = first_clusters(&k, a);
  const Graph *ordered = in_cluster_order(&first, a);
  double **x = tiny_vars(a, job), **y = tiny_vars(a, job), **z = tiny_vars(a, job);
  for (int step = 0; step < 2; step++) {
    fill_accumulators(job, x, 0);
    fill_accumulators(job, y, 0);
    fill_accumulators(job, z, NAN);
    tiny_run(a, job, two.micro, x, true, 0, SAMPLES, SAMPLES);
    tiny_run(a, job, two.update, x, true, 0, SAMPLES, SAMPLES);
    tiny_run(a, job, one.micro, y, true, 0, SAMPLES, SAMPLES);
    tiny_run(a, job, ordered, z, true, 0, SAMPLES, SAMPLES);
  }
  for (int i = 0; i < job->vars->all.n; i++) /* what the two graphs have no use for */
    if (str_ends(job->vars->all.at[i].path, ":squares")) x[i] = NULL;
  print_message("%s, %s\n", c->model, name_of(c));
  const unsigned kept = ALL_KEPT & ~(1u << VAR_ACCUM);
  assert_vars(job, x, y, kept, 0);
  assert_vars(job, y, z, kept, 0);
  arena_free(a);
}

static void bits_are_the_same(void **state) {
  (void)state;
  for (int i = 0; i < COUNT_OF(cases); i++) check_bits(&cases[i]);
}

static bool uses_var(const Graph *g, int var) {
  for (NodeId n = 0; n < g->nodes.n; n++) {
    const Node *x = node_at(g, n);
    if ((x->op == OP_VAR || x->op == OP_ASSIGN) && x->ints[0] == var) return true;
  }
  return false;
}

/* Only what is used more than once has an accumulator; no weight is copied for readers behind its update. */
static void check_storage(const Case *c, const char *accumulated) {
  Arena *a = arena_new();
  Job *job = early_job(a, c);
  TrainGraphs t = train_graphs(
      job, a, &(GraphChoice){.micro_batch = SAMPLES, .chunks = 1, .early_update = true});
  const Vars *vars = job->vars;
  for (int i = 0; i < vars->all.n; i++) {
    const Var *v = &vars->all.at[i];
    if (v->role != VAR_ACCUM) continue;
    assert_int_equal(uses_var(t.micro, i),
                     accumulated && !strcmp(vars->all.at[v->of].path, accumulated));
  }
  Clusters k = fuse_graph(t.micro, a);
  for (NodeId n = 0; n < k.g->nodes.n; n++) {
    const Node *x = node_at(k.g, n);
    const Node *from = x->nin ? node_of(k.g, x->in[0]) : x;
    if (x->op == OP_HOLD && from->op == OP_VAR && vars->all.at[from->ints[0]].role == VAR_PARAM)
      fail_msg("%s is copied", vars->all.at[from->ints[0]].path);
  }
  arena_free(a);
}

static void accumulators_are_gone(void **state) {
  (void)state;
  check_storage(&cases[0], "wte.w");
  check_storage(&cases[1], NULL);
}

/* ---- plans ---- */

static PlanArgs on_cpu(int64_t budget) {
  return (PlanArgs){.target = target_by_name("cpu"),
                    .budget_bytes = budget,
                    .recompute = -1,
                    .chunks = 1,
                    .check = true};
}

static FitResult fit(Arena *a, const char *key, const char *value, int64_t budget,
                     int64_t micro_batch) {
  Override set[] = {
      {"train.clip", "0"}, {"train.nonfinite", "stop"}, {"train.batch", "seqs(4)"}, {key, value}};
  PlanArgs args = on_cpu(budget);
  args.micro_batch = micro_batch;
  return plan_fit(tiny_job(a, "llama", COUNT_OF(set), set), a, &args);
}

static int64_t gradients(const FitResult *r) {
  return r->class_bytes[BC_GRADIENTS];
}

static void only_where_nothing_is_undone(void **state) {
  (void)state;
  Arena *a = arena_new();
  FitResult may = fit(a, "train.seed", "1", 1, 0);
  assert_int_equal(gradients(&may), 0);
  const char *const forbids[][2] = {
      {"train.clip", "1.0"}, {"train.nonfinite", "skip"}, {"precision.compute", "f16"}};
  for (int i = 0; i < COUNT_OF(forbids); i++) {
    FitResult r = fit(a, forbids[i][0], forbids[i][1], 1, 0);
    assert_true(gradients(&r) > 0);
    assert_true(early_update_obstacles(r.job, 0) != 0);
  }
  FitResult split = fit(a, "train.seed", "1", 1, 2); /* two micro-batches */
  assert_true(gradients(&split) > 0);
  FitResult early = fit(a, "train.seed", "1", 1, 4),
            after = fit(a, "train.nonfinite", "skip", 1, 4);
  assert_true(early.floor_bytes < after.floor_bytes);
  arena_free(a);
}

/* Where a whole step needs far more than accumulators and one sample, no programs with early updates are built, unless what is
 * more may wait on the host. */
static void only_where_it_opens_budgets(void **state) {
  (void)state;
  Arena *a = arena_new();
  for (int i = 0; i < 3; i++) {
    bool large = i > 0, host = i > 1;
    Override set[] = {{"train.clip", "0"},
                      {"train.nonfinite", "stop"},
                      {"train.batch", large ? "seqs(4096)" : "seqs(4)"}};
    PlanArgs args = on_cpu(1);
    if (host) args.host_bytes = (int64_t)1 << 40;
    FitPool *f = fit_pool(tiny_job(a, "gpt2", COUNT_OF(set), set), a, &args);
    Candidate *all;
    int n = fit_candidates(f, 0, a, &all), early = 0;
    for (int k = 0; k < n; k++) early += all[k].early_update;
    assert_int_equal(early > 0, !large || host);
  }
  arena_free(a);
}

/* What the floor would be if they were allowed is known before they are planned. */
static void the_remedy_is_foreseen(void **state) {
  (void)state;
  Arena *a = arena_new();
  FitResult late = fit(a, "train.nonfinite", "skip", 1, 0), early = fit(a, "train.seed", "1", 1, 0);
  assert_true(early.early_floor_bytes == INT64_MAX && late.early_floor_bytes < late.floor_bytes);
  assert_in_range(late.early_floor_bytes, early.floor_bytes * 3 / 4, early.floor_bytes);
  FitResult split = fit(a, "train.nonfinite", "skip", 1, 2); /* two micro-batches */
  assert_true(split.early_floor_bytes == INT64_MAX);
  arena_free(a);
}

/* Every budget down to the floor has a proven plan, and more is never slower. */
static void every_budget_has_a_plan(void **state) {
  (void)state;
  enum { BUDGETS = 16 };
  Arena *a = arena_new();
  FitResult all = fit(a, "train.seed", "1", INT64_MAX, 0);
  int64_t most = all.plan->peak_bytes, least = all.floor_bytes, before = INT64_MAX;
  int early = 0;
  for (int i = 0; i <= BUDGETS; i++) {
    FitResult r = fit(a, "train.seed", "1", least + (most - least) * i / BUDGETS, 0);
    assert_non_null(r.plan);
    assert_int_equal(r.floor_bytes, least);
    const PlanPhase *ph = &r.plan->phases.at[0];
    assert_true(ph->step_ns <= before);
    before = ph->step_ns;
    early += ph->programs[PROG_UPDATE] < 0;
    if (ph->programs[PROG_UPDATE] < 0)
      assert_string_equal(r.plan->programs.at[ph->programs[PROG_MICRO]].name, "step");
  }
  assert_true(early > 0);
  assert_null(fit(a, "train.seed", "1", least - 1, 0).plan);
  arena_free(a);
}

/* The embedding once more at the end, as if it were rebuilt there: its table has been updated. */
static void a_late_read_is_found(void **state) {
  (void)state;
  Arena *a = arena_new();
  FitResult r = fit(a, "train.seed", "1", 1, 0);
  r = fit(a, "train.seed", "1", r.floor_bytes, 0);
  assert_non_null(r.plan);
  assert_true(r.plan->phases.at[0].programs[PROG_UPDATE] < 0);
  PlanProgram *p = &r.plan->programs.at[r.plan->phases.at[0].programs[PROG_MICRO]];
  PlanStep *more = arena_array(a, PlanStep, p->nsteps + 1);
  memcpy(more, p->steps, sizeof *more * (size_t)p->nsteps);
  int gather = 0;
  while (r.job->vars->all.at[0].role != VAR_PARAM || p->steps[gather].cluster != 0) gather++;
  const Cluster *c = &p->clusters.at[p->steps[gather].cluster];
  bool table = false;
  for (int k = 0; k < c->nin; k++) table |= node_of(p->clusters.g, c->in[k])->op == OP_VAR;
  assert_true(table);
  more[p->nsteps] = p->steps[gather];
  p->steps = more;
  p->nsteps++;
  const char *why = plan_check(r.plan, a);
  assert_non_null(why);
  if (!strstr(why, "is read after 1 assigns, wanted after 0")) fail_msg("found `%s`", why);
  arena_free(a);
}

/* All phases share their variables: one that clips keeps the accumulators of both. */
static void phases_agree(void **state) {
  (void)state;
  for (int clips = 0; clips < 2; clips++) {
    Arena *a = arena_new();
    Override set[] = {{"train.clip", "0"}, {"train.nonfinite", "stop"}, {"train.batch", "seqs(4)"}};
    Job *job = tiny_job(a, "llama", COUNT_OF(set), set);
    if (job->phases.n < 2) vec_push(a, &job->phases, job->phases.at[0]);
    for (int i = 0; i < job->phases.n; i++) job->phases.at[i].clip = clips && i == 0 ? 1 : 0;
    PlanArgs args = on_cpu(1);
    FitResult r = plan_fit(job, a, &args);
    assert_int_equal(gradients(&r) > 0, clips);
    arena_free(a);
  }
}

/* GPT-2 1.5B with f32 master weights and moments inside 24 GiB: only without accumulators. */
static void gpt2_xl_fits_in_24_gib(void **state) {
  (void)state;
  const int64_t gib = (int64_t)1 << 30;
  int64_t floor[2], foreseen = 0;
  for (int early = 0; early < 2; early++) {
    Arena *a = arena_new();
    JobArgs j = {.path = MTC_SOURCE_DIR "/models/gpt2.mt", .preset = "xl"};
    vec_push(a, &j.settings, ((Override){"train.clip", early ? "0" : "1.0"}));
    vec_push(a, &j.settings, ((Override){"train.nonfinite", "stop"}));
    vec_push(a, &j.settings, ((Override){"train.batch", "seqs(2)"}));
    Job *job = elaborate(a, diags_new(a), &j);
    assert_non_null(job);
    PlanArgs args = {.target = target_by_name("h200"),
                     .budget_bytes = 24 * gib,
                     .reserve_bytes = gib / 4,
                     .recompute = -1,
                     .check = true};
    FitResult r = plan_fit(job, a, &args);
    assert_int_equal(r.plan != NULL, early);
    floor[early] = r.floor_bytes;
    if (!early) foreseen = r.early_floor_bytes;
    if (early) assert_true(r.plan->peak_bytes <= 24 * gib);
    arena_free(a);
  }
  assert_true(floor[1] < 22 * gib && floor[0] > 26 * gib);
  assert_in_range(foreseen, floor[1] - floor[1] / 64, floor[1]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bits_are_the_same),
      cmocka_unit_test(accumulators_are_gone),
      cmocka_unit_test(only_where_nothing_is_undone),
      cmocka_unit_test(only_where_it_opens_budgets),
      cmocka_unit_test(the_remedy_is_foreseen),
      cmocka_unit_test(every_budget_has_a_plan),
      cmocka_unit_test(a_late_read_is_found),
      cmocka_unit_test(phases_agree),
      cmocka_unit_test(gpt2_xl_fits_in_24_gib),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
