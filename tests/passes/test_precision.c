/* test_precision.c - dtypes by the precision section: f32 inside of compositions, the compute dtype
 * between them, rules, storage of parameters, and nothing at all for a job of f32. */
#include "train_case.h"

#include "passes/precision.h"
#include "passes/simplify.h"

typedef struct {
  Arena *a;
  Job *job;
  Graph *f32, *g;
} Case;

static Case of_model(const char *model, int nset, const Override *set, JobFn fn) {
  Case c = {.a = arena_new()};
  c.job = tiny_job(c.a, model, nset, set);
  c.f32 = job_graph(c.job, c.a, fn, 0, 2);
  precision_vars(c.job);
  c.g = graph_precision(c.f32, c.job, c.a);
  assert_null(graph_verify(c.g, c.a));
  return c;
}

static const Override f32[] = {{"precision.compute", "f32"}};
static const Override bf16[] = {{"precision.compute", "bf16"}};

static void f32_unchanged(void **state) {
  (void)state;
  Case c = of_model("gpt2", 1, f32, FN_LOSS);
  assert_ptr_equal(c.g, c.f32);
  for (int i = 0; i < c.job->vars->all.n; i++)
    assert_int_not_equal(c.job->vars->all.at[i].role, VAR_MASTER);
  arena_free(c.a);
}

/* Counts values of a dtype among the nodes that come from composition `tag` (NULL: from none),
 * casts left out. */
static int count(const Graph *g, const char *tag, DType t) {
  int n = 0;
  for (NodeId i = 0; i < g->nodes.n; i++) {
    const Node *x = node_at(g, i);
    bool same = tag ? x->tag && !strcmp(x->tag, tag) : !x->tag_id;
    if (same && x->nout && x->op != OP_CAST && op_kind(x->op) != LEAF && x->op != OP_CONST)
      n += val(g, x->out)->dtype == t;
  }
  return n;
}

static void check_inside(const char *model, const char *norm) {
  Case c = of_model(model, 1, bf16, FN_LOSS);
  Graph *g = graph_simplify(c.g, c.a, true);
  assert_int_equal(count(g, norm, DT_BF16), 0);
  assert_int_equal(count(g, "cross_entropy", DT_BF16), 0);
  assert_true(count(g, norm, DT_F32) > 5);
  assert_int_equal(val(g, g->results.at[0])->dtype, DT_F32);
  for (NodeId n = 0; n < g->nodes.n; n++) {
    const Node *x = node_at(g, n);
    if (x->op == OP_DOT || x->op == OP_ATTENTION) {
      assert_int_equal(val(g, x->in[0])->dtype, DT_BF16);
      assert_int_equal(val(g, x->out)->dtype, DT_BF16);
    }
  }
  arena_free(c.a);
}

static void inside_gpt2(void **state) {
  (void)state;
  check_inside("gpt2", "layernorm");
}
static void inside_llama(void **state) {
  (void)state;
  check_inside("llama", "rmsnorm");
}

/* What a composition declares is rounded once: its only reader outside gets a bf16 value. */
static void declared(void **state) {
  (void)state;
  Case c = of_model("gpt2", 1, bf16, FN_LOSS);
  for (NodeId n = 0; n < c.g->nodes.n; n++) {
    const Node *x = node_at(c.g, n);
    for (int k = 0; k < x->nin; k++) {
      const Node *d = node_of(c.g, x->in[k]);
      const Value *v = val(c.g, x->in[k]);
      bool crosses = d->tag_id && d->tag_id != x->tag_id && d->op != OP_CAST;
      if (crosses && dtype_is_float(v->dtype)) assert_int_equal(v->shape.rank, 0);
    }
  }
  arena_free(c.a);
}

static void parameters(void **state) {
  (void)state;
  Case c = of_model("gpt2", 1, bf16, FN_LOSS);
  const Vars *vars = c.job->vars;
  int masters = 0, params = 0;
  for (int i = 0; i < vars->all.n; i++) {
    const Var *v = &vars->all.at[i];
    if (v->role == VAR_PARAM) {
      params++;
      assert_int_equal(v->dtype, DT_BF16);
      const Var *m = &vars->all.at[master_of(vars, i)];
      assert_int_equal(m->role, VAR_MASTER);
      assert_int_equal(m->dtype, DT_F32);
      assert_int_equal(m->init.kind, INIT_COPY);
      assert_int_equal(m->init.from, i);
    }
    masters += v->role == VAR_MASTER;
  }
  assert_int_equal(masters, params);
  int n = vars->all.n;
  precision_vars(c.job); /* again: nothing changes */
  assert_int_equal(vars->all.n, n);
  arena_free(c.a);
}

/* The values agree with those of f32 as far as bf16 goes. */
static void values(void **state) {
  (void)state;
  Case c = of_model("gpt2", 1, bf16, FN_LOSS);
  double **vars = tiny_vars(c.a, c.job);
  double exact = tiny_run(c.a, c.job, c.f32, vars, true, 0, 2, 2)[c.f32->results.at[0]][0];
  double mixed = tiny_run(c.a, c.job, c.g, vars, false, 0, 2, 2)[c.g->results.at[0]][0];
  assert_true(fabs(mixed - exact) < 0.02 * exact);
  assert_true(mixed != exact);
  arena_free(c.a);
}

/* Under f16 the residual stream is f32 from the embeddings to the last norm, and so is what flows into it, dropout and
 * biases included; contractions still multiply f16. */
static void f16_residual(void **state) {
  (void)state;
  static const Override set[] = {{"precision.compute", "f16"}, {"drop", "0.1"}};
  Case c = of_model("gpt2", 2, set, FN_LOSS);
  Graph *g = graph_simplify(c.g, c.a, true);
  int sums = 0, branches = 0;
  for (NodeId n = 0; n < g->nodes.n; n++) {
    const Node *x = node_at(g, n);
    if (!x->nout) continue;
    DType t = val(g, x->out)->dtype;
    const char *why = precision_why(c.job, x, val(g, x->out), c.a);
    if (x->op == OP_DOT) {
      assert_int_equal(val(g, x->in[0])->dtype, DT_F16);
      bool branch = str_ends(x->path, "c_proj") || str_ends(x->path, "m_proj");
      assert_int_equal(t, branch ? DT_F32 : DT_F16);
      branches += branch;
      assert_true(why && strstr(why, branch ? "residual stream" : "compute = f16"));
    }
    if (x->op == OP_ADD && !x->tag_id && !strcmp(x->path, "h.0")) {
      assert_int_equal(t, DT_F32);
      sums++;
    }
    if (x->tag && !strcmp(x->tag, "layernorm") && x->op != OP_CAST && dtype_is_float(t))
      assert_int_equal(t, DT_F32);
  }
  assert_int_equal(branches, 4);
  assert_int_equal(sums, 2);
  assert_true(c.job->precision.scale.on && c.job->precision.scale.dynamic);
  arena_free(c.a);
}

/* T5's feed-forward output overflows f16: it is f32, through its dropout, in both stacks. What the branch reads is f16. */
static void f16_t5(void **state) {
  (void)state;
  Arena *a = arena_new();
  static const Override dims[] = {{"V", "40"}, {"D", "16"}, {"H", "2"},  {"Dh", "8"}, {"F", "32"},
                                  {"L", "2"},  {"Tx", "8"}, {"Ty", "4"}, {"Buckets", "8"}};
  JobArgs args = {.path = MTC_SOURCE_DIR "/models/t5.mt"};
  for (int i = 0; i < COUNT_OF(dims); i++) vec_push(a, &args.dims, dims[i]);
  vec_push(a, &args.settings, ((Override){"precision.compute", "f16"}));
  Job *job = elaborate(a, diags_new(a), &args);
  assert_non_null(job);
  Graph *f = job_graph(job, a, FN_LOSS, 0, 2);
  precision_vars(job);
  Graph *g = graph_precision(f, job, a);
  assert_null(graph_verify(g, a));
  int outputs = 0;
  for (NodeId n = 0; n < g->nodes.n; n++) {
    const Node *x = node_at(g, n);
    if (x->op != OP_DOT) continue;
    bool branch = str_ends(x->path, "ff.wo") || str_ends(x->path, "a.o");
    assert_int_equal(val(g, x->in[0])->dtype, DT_F16);
    assert_int_equal(val(g, x->out)->dtype, branch ? DT_F32 : DT_F16);
    outputs += str_ends(x->path, "ff.wo");
  }
  assert_int_equal(outputs, 4);
  arena_free(a);
}

/* What `auto` leaves in f32 besides: a sum that no composition made. */
static void auto_sums(void **state) {
  (void)state;
  static const Override set[] = {{"precision.compute", "auto"}};
  Case c = of_model("gpt2", 1, set, FN_LOSS);
  Graph *g = graph_new(c.a, "sums", c.job->vars);
  int64_t axes[] = {1};
  ValueId x = g_input(g, "x", DT_F32, SHAPE(4, 8));
  graph_result(g, "y", g_binary(g, OP_MUL, x, x));
  graph_result(g, "s", g_reduce(g, OP_SUM, x, 1, axes));
  Graph *to = graph_precision(g, c.job, c.a);
  assert_int_equal(val(to, to->results.at[0])->dtype, DT_BF16);
  assert_int_equal(val(to, to->results.at[1])->dtype, DT_F32);
  assert_string_equal(precision_why(c.job, node_of(to, to->results.at[1]), val(to, to->results.at[1]), c.a), "f32: a sum");
  c.job->precision.choice[FMT_COMPUTE].open = false;
  to = graph_precision(g, c.job, c.a);
  assert_int_equal(val(to, to->results.at[1])->dtype, DT_BF16);
  arena_free(c.a);
}

/* A rule for some layers' products, and one that takes it back. */
static void tf32_by_rule(void **state) {
  (void)state;
  Arena *a = arena_new();
  Job *job = tiny_job(a, "gpt2", 1, f32);
  Precision *p = &job->precision;
  p->rules.n = 0;
  vec_push(a, &p->rules, ((PrecRule){.pattern = "h[*].*", .dtype = DT_F32, .loc = NO_LOC, .tf32 = true}));
  vec_push(a, &p->rules, ((PrecRule){.pattern = "h[1].c_fc", .dtype = DT_F32, .loc = NO_LOC}));
  Graph *g = job_graph(job, a, FN_LOSS, 0, 2);
  int with = 0, without = 0;
  for (NodeId n = 0; n < g->nodes.n; n++) {
    const Node *x = node_at(g, n);
    if (x->op != OP_DOT) continue;
    bool rounds = precision_tf32(p, x);
    assert_int_equal(rounds, str_starts(x->path, "h.") && strcmp(x->path, "h.1.c_fc") != 0);
    with += rounds, without += !rounds;
  }
  assert_int_equal(with, 7);
  assert_int_equal(without, 2); /* the rule's layer and the head */
  assert_int_not_equal(precision_rounding(p), 0);
  p->rules.n = 0;
  assert_int_equal(precision_rounding(p), 0);
  p->tf32 = true;
  for (NodeId n = 0; n < g->nodes.n; n++)
    if (node_at(g, n)->op == OP_DOT) assert_true(precision_tf32(p, node_at(g, n)));
  arena_free(a);
}

static PrecRule rule(const char *pattern, DType t) {
  return (PrecRule){.pattern = pattern, .dtype = t, .loc = NO_LOC};
}

static void rules(void **state) {
  (void)state;
  Arena *a = arena_new();
  Job *job = tiny_job(a, "gpt2", 1, bf16);
  job->precision.rules.n = 0;
  vec_push(a, &job->precision.rules, rule("h[0].*", DT_F32));
  vec_push(a, &job->precision.rules, rule("h[0].c_fc.*", DT_BF16));
  vec_push(a, &job->precision.rules, rule("op:gelu", DT_F32));
  Graph *f = job_graph(job, a, FN_LOSS, 0, 2);
  precision_vars(job);
  Graph *g = graph_precision(f, job, a);
  assert_null(graph_verify(g, a));
  const Vars *vars = job->vars;
  assert_int_equal(vars->all.at[var_find(vars, "h.0.c_attn.w")].dtype, DT_F32);
  assert_int_equal(vars->all.at[var_find(vars, "h.0.c_fc.w")].dtype, DT_BF16); /* the later rule */
  assert_int_equal(vars->all.at[var_find(vars, "h.1.c_attn.w")].dtype, DT_BF16);
  assert_int_equal(var_find(vars, "h.0.c_attn.w:master"), -1);
  int gelu = 0;
  for (NodeId n = 0; n < g->nodes.n; n++) {
    const Node *x = node_at(g, n);
    bool is_dot = x->op == OP_DOT && !strcmp(x->path, "h.0.c_attn");
    if (is_dot) assert_int_equal(val(g, x->out)->dtype, DT_F32);
    /* A gelu declares f32 now: nothing casts down inside its instance. */
    gelu +=
        x->op == OP_CAST && x->tag && !strcmp(x->tag, "gelu") && val(g, x->out)->dtype == DT_BF16;
  }
  assert_int_equal(gelu, 0);
  arena_free(a);
}

static void frozen(void **state) {
  (void)state;
  Arena *a = arena_new();
  Job *job = tiny_job(a, "gpt2", 1, f32);
  int wte = var_find(job->vars, "wte.w");
  job->vars->all.at[wte].trainable = false;
  job->precision.frozen = DT_BF16;
  precision_vars(job);
  assert_int_equal(job->vars->all.at[wte].dtype, DT_BF16);
  assert_int_equal(master_of(job->vars, wte), wte);
  assert_false(trained_ever(job, wte));
  assert_true(trained_in(job, 0, var_find(job->vars, "wpe.w")));
  TrainGraphs t = train_graphs(job, a, &(GraphChoice){.micro_batch = 2, .chunks = 1});
  for (NodeId n = 0; n < t.update->nodes.n; n++)
    if (node_at(t.update, n)->op == OP_ASSIGN)
      assert_int_not_equal(node_at(t.update, n)->ints[0], wte);
  arena_free(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(f32_unchanged), cmocka_unit_test(inside_gpt2),
      cmocka_unit_test(inside_llama),  cmocka_unit_test(declared),
      cmocka_unit_test(parameters),    cmocka_unit_test(values),
      cmocka_unit_test(rules),         cmocka_unit_test(frozen),
      cmocka_unit_test(f16_residual),  cmocka_unit_test(f16_t5),
      cmocka_unit_test(auto_sums),     cmocka_unit_test(tf32_by_rule),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
