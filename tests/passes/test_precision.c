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

static PrecRule rule(const char *pattern, DType t) {
  return (PrecRule){pattern, t, NO_LOC};
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
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
