/* test_simplify.c - each rule on a small graph: which nodes are left, and that the results keep
 * their bits. */
#include "train_case.h"

#include "passes/simplify.h"

static double **run(Arena *a, const Graph *g) {
  static const char *const names[] = {"x", "y", "z"};
  InterpInput in[3];
  for (int i = 0; i < 3; i++) {
    double *v = arena_array(a, double, 4096);
    for (int k = 0; k < 4096; k++) v[k] = (float)tiny_random((uint64_t)i, (uint64_t)k);
    in[i] = (InterpInput){names[i], v};
  }
  return graph_interp(
      g, &(Interp){.arena = a, .inputs = in, .ninputs = 3, .vars = arena_array(a, double *, 16)});
}

/* Simplifies g; the result keeps its bits; the ops left, in order, are `ops` ("input add cast"). */
static void expect_graph(Arena *a, Graph *g, const char *ops) {
  Graph *s = graph_simplify(g, a, false);
  assert_null(graph_verify(s, a));
  Str got = {.arena = a};
  for (NodeId n = 0; n < s->nodes.n; n++)
    str_addf(&got, "%s%s", n ? " " : "", op_name(node_at(s, n)->op));
  assert_string_equal(got.text ? got.text : "", ops);
  double **before = run(a, g), **after = run(a, s);
  for (int i = 0; i < g->results.n; i++) {
    int64_t n = shape_count(&val(g, g->results.at[i])->shape);
    assert_true(shape_equal(&val(g, g->results.at[i])->shape, &val(s, s->results.at[i])->shape));
    assert_int_equal(val(g, g->results.at[i])->dtype, val(s, s->results.at[i])->dtype);
    for (int64_t k = 0; k < n; k++)
      assert_true(before[g->results.at[i]][k] == after[s->results.at[i]][k]);
  }
}

static Graph *new_graph(Arena *a) {
  return graph_new(a, "g", vars_new(a));
}

#define CASE(name, ops, ...)                          \
  static void name(void **state) {                    \
    (void)state;                                      \
    Arena *a = arena_new();                           \
    Graph *g = new_graph(a);                          \
    ValueId x = g_input(g, "x", DT_F32, SHAPE(4, 6)); \
    ValueId r;                                        \
    __VA_ARGS__                                       \
    graph_result(g, "r", r);                          \
    expect_graph(a, g, ops);                          \
    arena_free(a);                                    \
  }

CASE(twice, "input exp mul", r = g_binary(g, OP_MUL, g_unary(g, OP_EXP, x), g_unary(g, OP_EXP, x));)
CASE(dead, "input neg", g_unary(g, OP_EXP, x); r = g_unary(g, OP_NEG, x);)
CASE(add_zero, "input", r = g_binary(g, OP_ADD, x, g_like(g, x, 0));)
CASE(mul_one, "input", r = g_binary(g, OP_MUL, g_like(g, x, 1), x);)
CASE(constants, "input const mul",
     r = g_binary(g, OP_MUL, x, g_binary(g, OP_ADD, g_like(g, x, 0.1), g_like(g, x, 0.2)));)
CASE(add_negated, "input exp sub",
     r = g_binary(g, OP_ADD, g_unary(g, OP_NEG, x), g_unary(g, OP_EXP, x));)
CASE(select_constant, "input",
     r = g_select(g, g_const(g, DT_BOOL, SHAPE(4, 6), 1), x, g_unary(g, OP_EXP, x));)
CASE(cast_back, "input cast", r = g_cast(g, g_cast(g, g_cast(g, x, DT_BF16), DT_F32), DT_BF16);)
CASE(cast_constant, "const", (void)x; r = g_cast(g, g_const(g, DT_F32, SHAPE(3), 0.1), DT_BF16);)
CASE(reshapes, "input reshape", r = g_reshape(g, g_reshape(g, x, SHAPE(24)), SHAPE(2, 12));)
CASE(reshape_back, "input", r = g_reshape(g, g_reshape(g, x, SHAPE(24)), SHAPE(4, 6));)
CASE(transposes, "input",
     r = g_transpose(g, g_transpose(g, x, (int64_t[]){1, 0}), (int64_t[]){1, 0});)
CASE(broadcasts, "input broadcast",
     r = g_broadcast(g, g_broadcast(g, x, SHAPE(2, 4, 6), (int64_t[]){1, 2}), SHAPE(2, 4, 6, 3),
                     (int64_t[]){0, 1, 2});)
CASE(slice_of_slice, "input slice", r = g_slice(g, g_slice(g, x, 1, 1, 5), 1, 1, 3);)
CASE(slice_of_concat, "input",
     r = g_slice(g, g_concat(g, 2, (ValueId[]){g_unary(g, OP_EXP, x), x}, 0), 0, 4, 8);)
CASE(slice_of_pad, "input slice",
     r = g_slice(g, g_pad(g, x, (int64_t[]){0, 2}, (int64_t[]){0, 1}), 1, 3, 6);)
CASE(rejoined, "input",
     r = g_concat(g, 2, (ValueId[]){g_slice(g, x, 1, 0, 2), g_slice(g, x, 1, 2, 6)}, 1);)
CASE(pads_to_concat, "input exp neg concat",
     ValueId e = g_pad(g, g_unary(g, OP_EXP, x), (int64_t[]){4, 0}, (int64_t[]){0, 0});
     ValueId n = g_pad(g, g_unary(g, OP_NEG, x), (int64_t[]){0, 0}, (int64_t[]){4, 0});
     r = g_binary(g, OP_ADD, e, n);)
CASE(cast_of_concat, "input exp cast cast concat",
     r = g_cast(g, g_concat(g, 2, (ValueId[]){g_unary(g, OP_EXP, x), x}, 0), DT_BF16);)
CASE(view_of_cast, "input cast slice cast",
     r = g_slice(g, g_cast(g, g_cast(g, x, DT_BF16), DT_F32), 0, 1, 3);)
CASE(reshaped_broadcast, "input broadcast",
     r = g_reshape(g,
                   g_broadcast(g, g_reshape(g, x, SHAPE(4, 6)), SHAPE(2, 3, 4, 6),
                               (int64_t[]){2, 3}),
                   SHAPE(6, 4, 6));)
CASE(gather_range, "input slice", r = g_gather(g, x, g_iota(g, DT_I32, SHAPE(3), 0));)
CASE(sum_of_one, "input reshape",
     r = g_reduce(g, OP_SUM, g_reshape(g, x, SHAPE(4, 1, 6)), 1, (int64_t[]){1});
     r = g_reshape(g, r, SHAPE(24));)
CASE(dot_of_transpose, "input input dot", ValueId y = g_input(g, "y", DT_F32, SHAPE(5, 6));
     ValueId t = g_transpose(g, y, (int64_t[]){1, 0});
     r = graph_add(g, OP_DOT, 2, (ValueId[]){x, t}, 7, (int64_t[]){0, 0, 1, 1, 1, 0, DT_F32}, NULL,
                   NULL);)
CASE(transposed_dot, "input input dot", ValueId y = g_input(g, "y", DT_F32, SHAPE(6, 5));
     r = g_transpose(g, g_matmul(g, x, y), (int64_t[]){1, 0});)

/* ---- what must stay ---- */

CASE(narrow_and_back, "input cast cast", r = g_cast(g, g_cast(g, x, DT_BF16), DT_F32);)
CASE(no_reassociation, "input const add const add",
     ValueId half = g_binary(g, OP_ADD, x, g_like(g, x, 0.5));
     ValueId quarter = g_like(g, x, 0.25); r = g_binary(g, OP_ADD, half, quarter);)

/* A variable read before and after an assignment is two values. */
static void variables(void **state) {
  (void)state;
  Arena *a = arena_new();
  Graph *g = new_graph(a);
  int var = var_add(
      g->vars, (Var){.path = "s", .role = VAR_STATE, .dtype = DT_F32, .shape = SHAPE(3), .of = -1});
  ValueId one = g_unary(g, OP_EXP, g_var(g, var)), again = g_unary(g, OP_EXP, g_var(g, var));
  g_assign(g, var, g_binary(g, OP_ADD, one, again));
  graph_result(g, "r", g_binary(g, OP_SUB, g_unary(g, OP_EXP, g_var(g, var)), one));
  expect_graph(a, g, "var exp add assign var exp sub");
  arena_free(a);
}

static void holds(void **state) {
  (void)state;
  Arena *a = arena_new();
  Graph *g = new_graph(a);
  graph_result(g, "r", g_unary(g, OP_HOLD, g_input(g, "x", DT_F32, SHAPE(3))));
  assert_int_equal(graph_simplify(g, a, true)->nodes.n, 2);
  assert_int_equal(graph_simplify(g, a, false)->nodes.n, 1);
  arena_free(a);
}

static void rounding(void **state) {
  (void)state;
  assert_true(round_to(1 + 0x1p-8, DT_BF16) == 1);
  assert_true(round_to(1 + 3 * 0x1p-8, DT_BF16) == 1 + 0x1p-6);
  assert_true(round_to(65520, DT_F16) == INFINITY);
  assert_true(round_to(65519, DT_F16) == 65504);
  assert_true(round_to(0x1p-25, DT_F16) == 0);
  assert_true(round_to(0x1.8p-24, DT_F16) == 0x1p-23);
  assert_true(round_to(-0x1p-149, DT_F32) == -0x1p-149);
  assert_true(isnan(round_to(NAN, DT_BF16)));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(twice),
      cmocka_unit_test(dead),
      cmocka_unit_test(add_zero),
      cmocka_unit_test(mul_one),
      cmocka_unit_test(constants),
      cmocka_unit_test(add_negated),
      cmocka_unit_test(select_constant),
      cmocka_unit_test(cast_back),
      cmocka_unit_test(cast_constant),
      cmocka_unit_test(reshapes),
      cmocka_unit_test(reshape_back),
      cmocka_unit_test(transposes),
      cmocka_unit_test(broadcasts),
      cmocka_unit_test(slice_of_slice),
      cmocka_unit_test(slice_of_concat),
      cmocka_unit_test(slice_of_pad),
      cmocka_unit_test(rejoined),
      cmocka_unit_test(pads_to_concat),
      cmocka_unit_test(cast_of_concat),
      cmocka_unit_test(view_of_cast),
      cmocka_unit_test(reshaped_broadcast),
      cmocka_unit_test(gather_range),
      cmocka_unit_test(sum_of_one),
      cmocka_unit_test(dot_of_transpose),
      cmocka_unit_test(transposed_dot),
      cmocka_unit_test(narrow_and_back),
      cmocka_unit_test(no_reassociation),
      cmocka_unit_test(variables),
      cmocka_unit_test(holds),
      cmocka_unit_test(rounding),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
