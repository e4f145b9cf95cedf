/* test_autodiff.c - the walk: which nodes it adds, in which order, and what they say about
 * themselves. */
#include "case.h"

static int add_param(Graph *g, const char *path, DType t, Shape s, bool trainable) {
  return var_add(g->vars, (Var){.path = path,
                                .role = VAR_PARAM,
                                .dtype = t,
                                .shape = s,
                                .trainable = trainable,
                                .of = -1,
                                .loc = NO_LOC,
                                .layer = -1});
}

static ValueId sum_all(Graph *g, ValueId x) {
  int64_t axes[MAX_RANK];
  int rank = val(g, x)->shape.rank;
  for (int i = 0; i < rank; i++) axes[i] = i;
  return g_reduce(g, OP_SUM, x, rank, axes);
}

static int count_ops(const Graph *g, Op op) {
  int n = 0;
  for (int i = 0; i < g->nodes.n; i++) n += g->nodes.at[i].op == op;
  return n;
}

/* x @ w1 -> tanh -> @ w2 -> sum: weight gradients come in backward order, each before the data
 * gradient. */
static void order_of_two_layers(void **state) {
  (void)state;
  Case c = case_new();
  Graph *g = c.g;
  int w1 = add_param(g, "a.w", DT_F32, SHAPE(4, 5), true);
  int w2 = add_param(g, "b.w", DT_F32, SHAPE(5, 3), true);
  ValueId x = case_input(&c, DT_F32, SHAPE(2, 3, 4), -1, 1);
  g->here.path = "a", g->here.layer = 0, g->here.loc = (Loc){0, 7, 1, 2};
  ValueId h = g_unary(g, OP_TANH, g_matmul(g, x, g_var(g, w1)));
  g->here.path = "b", g->here.layer = 1, g->here.chunk = 2;
  ValueId loss = sum_all(g, g_matmul(g, h, g_var(g, w2)));
  g->here.path = "", g->here.chunk = 0;
  int first = g->nodes.n;
  Grads grads = graph_autodiff(g, loss);
  assert_int_equal(grads.n, 2);
  assert_int_equal(grads.at[0].var, w2);
  assert_int_equal(grads.at[1].var, w1);
  ValueId dots[4];
  int n = 0;
  for (int i = first; i < g->nodes.n; i++) {
    const Node *node = &g->nodes.at[i];
    assert_int_equal(node->phase, PH_BACKWARD);
    if (node->op == OP_DOT) dots[n++] = node->out;
  }
  assert_int_equal(n, 3); /* no data gradient of x */
  assert_int_equal(dots[0], grads.at[0].grad);
  assert_int_equal(dots[2], grads.at[1].grad);
  assert_int_equal(count_ops(g, OP_TRANSPOSE), 0);
  const Node *last = node_of(g, dots[2]);
  assert_string_equal(last->path, "a");
  assert_int_equal(last->layer, 0);
  assert_int_equal(last->loc.line, 7);
  assert_int_equal(node_of(g, dots[0])->chunk, 2);
  assert_string_equal(g->here.path, "");
  assert_int_equal(g->here.phase, PH_FORWARD);
  case_sound(&c, "two layers");
  case_free(&c);
}

/* An embedding that is the head as well: two parts, the head's first; its gradient needs no
 * transpose. */
static void tied_weights_stay_apart(void **state) {
  (void)state;
  Case c = case_new();
  Graph *g = c.g;
  int w = add_param(g, "wte.w", DT_BF16, SHAPE(7, 4), true);
  ValueId ids = case_input(&c, DT_I32, SHAPE(2, 3), 0, 7), v = g_var(g, w);
  static const int64_t swap[] = {1, 0};
  ValueId f = g_cast(g, v, DT_F32);
  ValueId logits = g_matmul(g, g_gather(g, f, ids), g_transpose(g, f, swap));
  int before = count_ops(g, OP_TRANSPOSE);
  Grads grads = graph_autodiff(g, sum_all(g, logits));
  assert_int_equal(grads.n, 2);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(grads.at[i].var, w);
    assert_int_equal(val(g, grads.at[i].grad)->dtype, DT_BF16);
    const Node *cast = node_of(g, grads.at[i].grad);
    assert_int_equal(cast->op, OP_CAST);
    assert_int_equal(node_of(g, cast->in[0])->op, i ? OP_SCATTER_ADD : OP_DOT);
  }
  assert_int_equal(count_ops(g, OP_TRANSPOSE), before);
  case_sound(&c, "tied");
  case_free(&c);
}

static void dead_and_frozen_are_left_out(void **state) {
  (void)state;
  Case c = case_new();
  Graph *g = c.g;
  int w = add_param(g, "w", DT_F32, SHAPE(3), true);
  int frozen = add_param(g, "frozen", DT_F32, SHAPE(3), false);
  int dead = add_param(g, "dead", DT_F32, SHAPE(3), true);
  int held = add_param(g, "held", DT_F32, SHAPE(3), true);
  ValueId y = g_binary(g, OP_MUL, g_var(g, w), g_var(g, frozen));
  g_unary(g, OP_EXP, g_var(g, dead));
  y = g_binary(g, OP_MUL, y, g_unary(g, OP_HOLD, g_var(g, held)));
  Grads grads = graph_autodiff(g, sum_all(g, y));
  assert_int_equal(grads.n, 1);
  assert_int_equal(grads.at[0].var, w);
  assert_int_equal(count_ops(g, OP_MUL), 4); /* two forward, two backward */
  case_free(&c);
}

/* q, k, v cut from one product: their gradients are joined, not padded and added. */
static void slices_become_a_concat(void **state) {
  (void)state;
  Case c = case_new();
  Graph *g = c.g;
  int w = add_param(g, "w", DT_F32, SHAPE(4, 6), true);
  ValueId y = g_matmul(g, case_input(&c, DT_F32, SHAPE(2, 4), -1, 1), g_var(g, w));
  ValueId a = g_slice(g, y, 1, 4, 6), b = g_slice(g, y, 1, 0, 2), d = g_slice(g, y, 1, 2, 4);
  ValueId loss = sum_all(g, g_binary(g, OP_MUL, a, g_binary(g, OP_MUL, b, d)));
  graph_autodiff(g, loss);
  assert_int_equal(count_ops(g, OP_CONCAT), 1);
  assert_int_equal(count_ops(g, OP_PAD), 0);
  assert_int_equal(count_ops(g, OP_ADD), 0);
  case_free(&c);
}

/* The backward of one composition instance is one instance; two forward ones are two. */
static void tags_pair_up(void **state) {
  (void)state;
  Case c = case_new();
  Graph *g = c.g;
  int w = add_param(g, "w", DT_F32, SHAPE(4), true);
  ValueId y = c_softmax(g, c_softmax(g, g_var(g, w), 0), 0);
  ValueId loss = sum_all(g, g_binary(g, OP_MUL, y, y));
  int first = g->nodes.n;
  graph_autodiff(g, loss);
  int of[3] = {
      0}; /* backward instance of each forward instance, told by the forward values it reads */
  for (int i = first; i < g->nodes.n; i++) {
    const Node *n = &g->nodes.at[i];
    if (!n->tag_id) continue;
    assert_string_equal(n->tag, "softmax");
    assert_in_range(n->tag_id, 3, 4);
    for (int k = 0; k < n->nin; k++) {
      const Node *in = node_of(g, n->in[k]);
      if (in->phase != PH_FORWARD || !in->tag_id) continue;
      if (!of[in->tag_id]) of[in->tag_id] = n->tag_id;
      assert_int_equal(of[in->tag_id], n->tag_id);
    }
  }
  assert_int_equal(of[2], 3);
  assert_int_equal(of[1], 4);
  case_free(&c);
}

/* Every axis order of both operands of a dot: the gradient needs a transpose only where two free or
 * contracted axes stand the other way round, and is right in any case. */
static void dots_of_all_orders(void **state) {
  (void)state;
  for (int ka = 0; ka < 2; ka++)
    for (int kb = 0; kb < 2; kb++) {
      Case c = case_new();
      Graph *g = c.g;
      ValueId a = case_input(&c, DT_F32, ka ? SHAPE(3, 4) : SHAPE(4, 3), -1, 1);
      ValueId b = case_input(&c, DT_F32, kb ? SHAPE(2, 4) : SHAPE(4, 2), -1, 1);
      int64_t con_a[] = {ka}, con_b[] = {kb};
      case_result(&c, g_dot(g, a, b, 0, NULL, NULL, 1, con_a, con_b, DT_F32));
      c.want[0] = NULL;
      case_gradients(&c, "dot");
      assert_int_equal(count_ops(g, OP_TRANSPOSE), 0);
      case_free(&c);
    }
}

/* Heads as a batch axis in the middle, as attention without its kernel would have it. */
static void dot_looks_through_transposes(void **state) {
  (void)state;
  Case c = case_new();
  Graph *g = c.g;
  static const int64_t heads_first[] = {0, 2, 1, 3}, last_two[] = {0, 1, 3, 2};
  ValueId q = case_input(&c, DT_F32, SHAPE(2, 3, 2, 4), -1, 1);
  ValueId k = case_input(&c, DT_F32, SHAPE(2, 3, 2, 4), -1, 1);
  ValueId kt = g_transpose(g, g_transpose(g, k, heads_first), last_two);
  ValueId s = g_matmul(g, g_transpose(g, q, heads_first), kt);
  const Node *dot = node_of(g, s);
  assert_int_equal(dot->in[0], q);
  assert_int_not_equal(dot->in[1], kt);
  double *want = case_result(&c, s);
  for (int b = 0; b < 2; b++)
    for (int h = 0; h < 2; h++)
      for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
          for (int d = 0; d < 4; d++)
            want[((b * 2 + h) * 3 + i) * 3 + j] += case_data(&c, 0)[((b * 3 + i) * 2 + h) * 4 + d] *
                                                   case_data(&c, 1)[((b * 3 + j) * 2 + h) * 4 + d];
  case_values(&c, "scores");
  case_gradients(&c, "scores");
  case_free(&c);
}

static void no_gradient_is_reported(void **state) {
  (void)state;
  Case c = case_new();
  Graph *g = c.g;
  g->diags = diags_new(c.a);
  int w = add_param(g, "w", DT_F32, SHAPE(2, 3), true);
  ValueId ids = case_input(&c, DT_I32, SHAPE(2), 0, 4);
  g->here.loc = (Loc){0, 12, 3, 4};
  ValueId y = g_scatter_add(g, ids, g_var(g, w), 4, DT_F32);
  g->here.loc = NO_LOC;
  assert_int_equal(graph_autodiff(g, sum_all(g, y)).n, 0);
  assert_int_equal(g->diags->errors, 1);
  assert_string_equal(err_code(g->diags->all.at[0]->id), "E0213");
  assert_int_equal(g->diags->all.at[0]->primary.loc.line, 12);
  case_free(&c);
}

/* A small transformer block end to end: every parameter against differences. */
static void block(void **state) {
  (void)state;
  Case c = case_new();
  Graph *g = c.g;
  static double count[] = {0.125};
  c.vars[var_scalar(g->vars, SC_INV_COUNT)] = count;
  ValueId ids = case_input(&c, DT_I32, SHAPE(2, 4), 0, 7),
          to = case_input(&c, DT_I32, SHAPE(2, 4), 0, 7);
  ValueId wte = case_input(&c, DT_F32, SHAPE(7, 4), -1, 1);
  ValueId qkv = case_input(&c, DT_F32, SHAPE(4, 12), -1, 1);
  ValueId up = case_input(&c, DT_F32, SHAPE(4, 6), -1, 1),
          down = case_input(&c, DT_F32, SHAPE(6, 4), -1, 1);
  ValueId ln = case_input(&c, DT_F32, SHAPE(4), -1, 1), x = g_gather(g, wte, ids);
  ValueId p = g_matmul(g, c_layernorm(g, x, ln, -1, 1e-5), qkv), part[3];
  for (int i = 0; i < 3; i++)
    part[i] = g_reshape(g, g_slice(g, p, 2, 4 * i, 4 * i + 4), SHAPE(2, 4, 2, 2));
  AttentionArgs a = {.q = c_rope(g, part[0], 100, NULL),
                     .k = c_rope(g, part[1], 100, NULL),
                     .v = part[2],
                     .mask = -1,
                     .bias = -1,
                     .causal = true,
                     .scale = 0.7};
  x = g_bin(g, OP_ADD, x, g_reshape(g, g_attention(g, &a), SHAPE(2, 4, 4)));
  ValueId m = c_gelu(g, g_matmul(g, c_rmsnorm(g, x, ln, 1e-5), up), true);
  x = g_bin(g, OP_ADD, x, g_matmul(g, m, down));
  static const int64_t swap[] = {1, 0};
  ValueId logits = g_matmul(g, x, g_transpose(g, wte, swap));
  case_result(&c, c_cross_entropy(g, logits, to, -100, 0));
  c.want[0] = NULL;
  case_gradients(&c, "block");
  case_round_trip(&c, "block");
  case_free(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(order_of_two_layers),
      cmocka_unit_test(tied_weights_stay_apart),
      cmocka_unit_test(dead_and_frozen_are_left_out),
      cmocka_unit_test(slices_become_a_concat),
      cmocka_unit_test(tags_pair_up),
      cmocka_unit_test(dots_of_all_orders),
      cmocka_unit_test(dot_looks_through_transposes),
      cmocka_unit_test(no_gradient_is_reported),
      cmocka_unit_test(block),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
