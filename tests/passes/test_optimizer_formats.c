/* test_optimizer_formats.c - formats of optimizer state: bytes, one kernel a parameter, bounds of the
 * quantisation error, what a skipped step keeps, tied weights, random bits that depend on nothing but their place. */
#include "train_case.h"

#include "passes/optimizer.h"
#include "passes/precision.h"
#include "passes/simplify.h"

enum { ROWS = 64, COLS = 128, N = ROWS * COLS, BLOCK = 256 };

typedef struct {
  int master, moments;
  OptKind kind;
} Format;

/* A matrix, an embedding of the same shape, a bias; bf16 weights. */
static Job *job_of(Arena *a, Format f) {
  Job *j = arena_new_of(a, Job);
  j->arena = a;
  j->diags = diags_new(a);
  j->vars = vars_new(a);
  j->precision = (Precision){
      .compute = DT_BF16, .frozen = PREC_AUTO, .master = f.master, .moments = f.moments};
  static const char *const paths[] = {"w", "e", "b"};
  for (int i = 0; i < 3; i++)
    var_add(j->vars, (Var){.path = paths[i],
                           .role = VAR_PARAM,
                           .dtype = DT_F32,
                           .trainable = true,
                           .lookup = i == 1,
                           .shape = i == 2 ? SHAPE(7) : SHAPE(ROWS, COLS),
                           .of = -1,
                           .loc = NO_LOC,
                           .layer = -1});
  Optimizer o = {.kind = f.kind, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .momentum = 0.9};
  vec_push(a, &j->phases, ((TrainPhase){.name = "", .opt = o, .clip = 1}));
  precision_vars(j);
  optimizer_vars(j);
  return j;
}

static Graph *update_of(const Job *job, Arena *a) {
  return graph_simplify(optimizer_graph(job, a, 0, false), a, true);
}

static void step(Arena *a, const Job *job, const Graph *g, double **v, int t) {
  tiny_scalar(job, v, "step.lr", 1e-2);
  tiny_scalar(job, v, "step.step", t);
  tiny_scalar(job, v, "step.seed", 99);
  graph_interp(g, &(Interp){.arena = a, .vars = v});
}

static void fill_grads(const Job *job, double **v, int t) {
  for (int i = 0; i < 3; i++) {
    int acc = accum_of(job->vars, i);
    for (int64_t k = 0; k < shape_count(&job->vars->all.at[acc].shape); k++)
      v[acc][k] = (float)(1e-2 * tiny_random((uint64_t)(t * 3 + i), (uint64_t)k));
  }
}

static int64_t bytes_of(const Job *job, int param, VarRole role) {
  int64_t bytes = 0;
  for (int i = 0; i < job->vars->all.n; i++) {
    const Var *v = &job->vars->all.at[i];
    if (v->of == param && v->role == role) bytes += shape_bytes(&v->shape, v->dtype);
  }
  return bytes;
}

/* Bytes of state: blocks for the matrix, f32 for the embedding and the bias. */
static void bytes(void **state) {
  (void)state;
  Arena *a = arena_new();
  Job *job = job_of(a, (Format){DT_F32, DT_I8, OPT_ADAMW});
  assert_true(bytes_of(job, 0, VAR_MOMENT) <= 2.04 * N);
  assert_int_equal(bytes_of(job, 1, VAR_MOMENT), 8 * N);
  assert_int_equal(bytes_of(job, 2, VAR_MOMENT), 8 * 7);
  assert_int_equal(bytes_of(job, 0, VAR_MASTER), 4 * N);
  job = job_of(a, (Format){PREC_SPLIT, DT_BF16, OPT_LION});
  assert_int_equal(bytes_of(job, 0, VAR_MOMENT), 2 * N);
  assert_int_equal(bytes_of(job, 0, VAR_MASTER), 2 * N);
  job = job_of(a, (Format){DT_BF16, DT_I8, OPT_LION});
  assert_true(bytes_of(job, 0, VAR_MOMENT) <= 1.02 * N);
  assert_int_equal(bytes_of(job, 0, VAR_MASTER), 0);
  arena_free(a);
}

static const Format formats[] = {
    {DT_F32, DT_F32, OPT_ADAMW},    {DT_F32, DT_I8, OPT_ADAMW},  {PREC_SPLIT, DT_F32, OPT_ADAMW},
    {PREC_SPLIT, DT_I8, OPT_ADAMW}, {DT_BF16, DT_I8, OPT_ADAMW}, {DT_BF16, DT_BF16, OPT_ADAMW},
    {PREC_SPLIT, DT_I8, OPT_LION},  {DT_BF16, DT_I8, OPT_SGD},   {DT_BF16, DT_BF16, OPT_ADAM},
};

/* One kernel a parameter stores all of its state; nothing of its size is stored between kernels. */
static void kernels(void **state) {
  (void)state;
  for (int f = 0; f < COUNT_OF(formats); f++) {
    Arena *a = arena_new();
    Job *job = job_of(a, formats[f]);
    Graph *g = update_of(job, a);
    Clusters c = fuse_graph(g, a);
    assert_null(fuse_verify(&c, a));
    int updates = 0;
    for (int i = 0; i < c.n; i++) {
      int assigns = 0;
      for (int k = 0; k < c.at[i].nout; k++) {
        bool scalar = val(c.g, c.at[i].out[k])->shape.rank == 0;
        if (c.at[i].out_var[k] < 0 && !scalar) fail_msg("format %d: a temporary", f);
        assigns += !scalar;
      }
      updates += assigns > 0;
    }
    if (updates != 3) fail_msg("format %d: %d kernels for 3 parameters", f, updates);
    arena_free(a);
  }
}

/* A step whose gradient is not finite leaves every bit, whatever the format. */
static void skipped_steps(void **state) {
  (void)state;
  for (int f = 0; f < COUNT_OF(formats); f++) {
    Arena *a = arena_new();
    Job *job = job_of(a, formats[f]);
    Graph *g = update_of(job, a);
    double **v = tiny_vars(a, job), **old = arena_array(a, double *, job->vars->all.n);
    for (int t = 0; t < 2; t++) {
      fill_grads(job, v, t);
      step(a, job, g, v, t);
    }
    for (int k = 0; k < job->vars->all.n; k++)
      old[k] =
          arena_copy(a, v[k], sizeof(double) * (size_t)shape_count(&job->vars->all.at[k].shape));
    fill_grads(job, v, 2);
    v[accum_of(job->vars, 0)][77] = INFINITY;
    step(a, job, g, v, 2);
    unsigned kept = 1 << VAR_PARAM | 1 << VAR_MASTER | 1 << VAR_MOMENT | 1 << VAR_OPT;
    assert_vars(job, old, v, kept, 0);
    arena_free(a);
  }
}

/* Two runs are equal, the bits of another step or parameter are others. */
static void random_bits(void **state) {
  (void)state;
  Arena *a = arena_new();
  Format none = {DT_BF16, DT_BF16, OPT_ADAMW};
  double **end[2];
  for (int run = 0; run < 2; run++) {
    Job *job = job_of(a, none);
    Graph *g = update_of(job, a);
    double **v = end[run] = tiny_vars(a, job);
    for (int t = 0; t < 3; t++) {
      fill_grads(job, v, t);
      step(a, job, g, v, t);
    }
    if (run) assert_vars(job, end[0], v, ALL_KEPT, 0);
  }
  Job *job = job_of(a, none);
  Graph *g = update_of(job, a);
  double **v = tiny_vars(a, job), **w = tiny_vars(a, job);
  fill_grads(job, v, 0);
  fill_grads(job, w, 0);
  step(a, job, g, v, 0);
  step(a, job, g, w, 1);
  int other = 0, at_most = 0;
  for (int k = 0; k < N; k++) {
    other += v[0][k] != w[0][k];
    at_most += fabs(v[0][k] - w[0][k]) <= 0x1p-7 * fabs(v[0][k]) + 1e-30;
  }
  assert_true(other > N / 10);
  assert_int_equal(at_most, N); /* neighbours */
  arena_free(a);
}

/* Moments and the weight of an element are rounded by bits of which any two are independent: all four
 * quarters of the square that two of them span are equally full, to five deviations. */
static void draws_are_independent(void **state) {
  (void)state;
  Arena *a = arena_new();
  Job *job = job_of(a, (Format){DT_BF16, DT_BF16, OPT_ADAMW});
  Graph *g = update_of(job, a);
  double **v = tiny_vars(a, job);
  fill_grads(job, v, 0);
  tiny_scalar(job, v, "step.seed", 99);
  double **all = graph_interp(g, &(Interp){.arena = a, .vars = v});
  const double *draws[8];
  int n = 0;
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *x = node_at(g, i);
    if (x->op == OP_STOCHASTIC && shape_count(&val(g, x->out)->shape) == N && n < 3)
      draws[n++] = all[x->in[1]];
  }
  assert_int_equal(n, 3);
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < i; j++) {
      int quarter[4] = {0};
      for (int k = 0; k < N; k++)
        quarter[((unsigned)draws[i][k] >> 15 & 1) << 1 | ((unsigned)draws[j][k] >> 15 & 1)]++;
      for (int q = 0; q < 4; q++) assert_in_range(quarter[q], N / 4 - 5 * 40, N / 4 + 5 * 40);
    }
  arena_free(a);
}

/* ---- 8 bits ---- */

/* Blocks that are hard to quantise, by number. */
static double hard(int block, int k) {
  switch (block) {
    case 0:
      return 0;
    case 1:
      return 3.25e-5;
    case 2:
      return -3.25e-5;
    case 3:
      return k == 17 ? 1e4 : 1e-3 * tiny_random(8, (uint64_t)k);
    case 4:
      return 1e-40 * tiny_random(9, (uint64_t)k);
    case 5:
      return k % 2 ? 0x1p-149 : -0x1p-149;
    case 6:
      return tiny_random(10, (uint64_t)k) * 1e15;
    case 7:
      return k ? 0 : -7;
    default:
      return tiny_random(11, (uint64_t)(block * BLOCK + k)) * pow(10, -(k % 7));
  }
}

/* Relative to the block's largest magnitude: half of a cell, which is 0.9 / 2^d of decade d = 0 .. 6, and what lies
 * under the least entry. */
static double bound(double share) {
  double cell = 0.9 * 1e-6;
  for (int d = 0; d < 7; d++)
    if (share > pow(10, d - 6) * 0.09) cell = 0.9 * pow(10, d - 6) / (1 << d);
  double up = 0.9 * pow(10, -5); /* between two decades the upper one's first cell counts */
  for (int d = 1; d < 7; d++)
    if (share > pow(10, d - 6) * 0.09) up = 0.9 * pow(10, d - 6) / (1 << d);
  return 0.5001 * fmax(cell, up);
}

/* SGD's momentum of 8 bits after one step from zero is the gradient, quantised. */
static void quantisation(void **state) {
  (void)state;
  Arena *a = arena_new();
  Job *job = job_of(a, (Format){DT_F32, DT_I8, OPT_SGD});
  job->phases.at[0].clip = 0;
  Graph *g = update_of(job, a);
  /* The moment as the next step reads it. */
  Graph *read = graph_new(a, "read", job->vars);
  int code = var_find(job->vars, "w:m"), scale = var_find(job->vars, "w:m:scale");
  ValueId entry = g_unary(read, OP_DEQUANT8, g_var(read, code));
  ValueId each = g_broadcast(read, g_var(read, scale), SHAPE(N / BLOCK, BLOCK), (int64_t[]){0});
  ValueId m = g_binary(read, OP_MUL, entry, each);
  double **v = tiny_vars(a, job), *grad = v[accum_of(job->vars, 0)];
  double want[N];
  for (int k = 0; k < N; k++) want[k] = grad[k] = (float)hard(k / BLOCK, k % BLOCK);
  step(a, job, g, v, 0);
  double *got = graph_interp(read, &(Interp){.arena = a, .vars = v})[m];
  for (int b = 0; b < N / BLOCK; b++) {
    double most = 0;
    for (int k = 0; k < BLOCK; k++) most = fmax(most, fabs(want[b * BLOCK + k]));
    assert_true(v[scale][b] == most);
    for (int k = 0; k < BLOCK; k++) {
      double x = want[b * BLOCK + k], off = fabs(got[b * BLOCK + k] - x);
      double limit = most * bound(fabs(x) / (most + 1e-300)) + 0x1p-149;
      if (x == 0) limit = 0;
      if (!(off <= limit))
        fail_msg("block %d: %g becomes %g (limit %g)", b, x, got[b * BLOCK + k], limit);
    }
  }
  arena_free(a);
}

/* Tied weights are one variable: one state, one update. */
static void tied_weights(void **state) {
  (void)state;
  Arena *a = arena_new();
  Override set[] = {{"precision.moments", "i8"}};
  Job *job = tiny_job(a, "gpt2", 1, set);
  GraphChoice c = {.micro_batch = 2, .chunks = 1};
  TrainGraphs t = train_graphs(job, a, &c);
  int states = 0, updates = 0, wte = var_find(job->vars, "wte.w");
  int hidden = var_find(job->vars, "h.0.c_fc.w");
  assert_true(wte >= 0 && hidden >= 0);
  assert_true(job->vars->all.at[wte].lookup && job->vars->all.at[wte].head);
  assert_false(job->vars->all.at[hidden].lookup || job->vars->all.at[hidden].head);
  for (int i = 0; i < job->vars->all.n; i++)
    states += job->vars->all.at[i].of == wte && job->vars->all.at[i].role == VAR_MOMENT;
  for (NodeId n = 0; n < t.update->nodes.n; n++)
    updates += node_at(t.update, n)->op == OP_ASSIGN && node_at(t.update, n)->ints[0] == wte;
  assert_int_equal(states, 2);
  assert_int_equal(updates, 1);
  arena_free(a);
}

/* ---- what is more than a loop over elements ---- */

/* Adafactor and Muon keep nothing of a parameter's size but what they say they keep. */
static void states_of_matrices(void **state) {
  (void)state;
  Arena *a = arena_new();
  Job *job = job_of(a, (Format){DT_F32, DT_F32, OPT_ADAFACTOR});
  assert_int_equal(bytes_of(job, 0, VAR_MOMENT), 4 * (ROWS + COLS));
  Graph *g = update_of(job, a);
  Clusters c = fuse_graph(g, a);
  assert_null(fuse_verify(&c, a));
  for (int i = 0; i < c.n; i++)
    for (int k = 0; k < c.at[i].nout; k++)
      if (c.at[i].out_var[k] < 0 && val(c.g, c.at[i].out[k])->shape.rank > 1)
        fail_msg("adafactor: a temporary of a matrix in `%s`", c.at[i].name);
  job = job_of(a, (Format){DT_F32, DT_F32, OPT_MUON});
  assert_int_equal(bytes_of(job, 0, VAR_MOMENT), 4 * N);
  assert_int_equal(bytes_of(job, 1, VAR_MOMENT), 8 * N); /* AdamW's */
  assert_int_equal(bytes_of(job, 2, VAR_MOMENT), 8 * 7);
  arena_free(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bytes),
      cmocka_unit_test(kernels),
      cmocka_unit_test(skipped_steps),
      cmocka_unit_test(random_bits),
      cmocka_unit_test(draws_are_independent),
      cmocka_unit_test(quantisation),
      cmocka_unit_test(tied_weights),
      cmocka_unit_test(states_of_matrices),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
