/* test_text.c - the text form: what it looks like, that every field survives, that broken text is
 * refused by line. */
#include "case.h"

/* One graph with every annotation, awkward names and numbers. */
static Case decorated(void) {
  Case c = case_new();
  Graph *g = c.g;
  Var p = {.path = "h.0.w",
           .role = VAR_PARAM,
           .dtype = DT_BF16,
           .shape = SHAPE(4, 3),
           .init = {INIT_NORMAL, 0, 0.02, 0},
           .trainable = true,
           .of = -1,
           .loc = {2, 8, 3, 5},
           .layer = 1};
  p.shape.axis[0] = intern("D");
  p.shape.axis[1] = intern("2*D");
  int w = var_add(g->vars, p);
  int m = var_add(g->vars, (Var){.path = "h.0.w:master",
                                 .role = VAR_MASTER,
                                 .dtype = DT_F32,
                                 .shape = SHAPE(4, 3),
                                 .init = {INIT_COPY, 0, 0, w},
                                 .of = w,
                                 .loc = NO_LOC,
                                 .layer = -1});
  var_scalar(g->vars, SC_SEED);
  Shape s = SHAPE(2, 4);
  s.axis[0] = intern("B");
  g->here.loc = (Loc){0, 5, 9, 4};
  ValueId x = g_input(g, "to\"kens\\\n", DT_BF16, s);
  g->here.path = intern("h.0");
  g->here.layer = 3;
  g->here.loc = (Loc){1, 6, 2, 0};
  ValueId y = g_matmul(g, x, g_var(g, w));
  y = c_gelu(g, y, true);
  g->here.chunk = 2;
  g->here.phase = PH_BACKWARD;
  ValueId z = g_bin(g, OP_MUL, y, g_like(g, y, 0.1));
  g_bin(g, OP_MUL, z, g_like(g, y, -INFINITY));
  g_bin(g, OP_MUL, z, g_like(g, y, NAN));
  g->here.phase = PH_UPDATE;
  ValueId v = g_var(g, m);
  g_assign(g, m, g_bin(g, OP_SUB, v, g_like(g, v, 1e-300)));
  graph_result(g, "out", z);
  graph_result(g, "again \"", z);
  return c;
}

static void same_shape(const Shape *a, const Shape *b) {
  assert_true(shape_equal(a, b));
  for (int k = 0; k < a->rank; k++) assert_ptr_equal(a->axis[k], b->axis[k]);
}

static void same_value(const Value *a, const Value *b) {
  assert_true(a->def == b->def && a->out == b->out && a->dtype == b->dtype);
  same_shape(&a->shape, &b->shape);
}

static void every_field_survives(void **state) {
  (void)state;
  Case c = decorated();
  case_round_trip(&c, "decorated");
  Str text = {.arena = c.a};
  graph_print(c.g, &text);
  const char *why;
  Graph *g = graph_read(c.a, text.text, text.len, &why);
  assert_non_null(g);
  assert_int_equal(g->nodes.n, c.g->nodes.n);
  assert_int_equal(g->last_tag_id, c.g->last_tag_id);
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *a = &g->nodes.at[i], *b = &c.g->nodes.at[i];
    assert_int_equal(a->op, b->op);
    assert_int_equal(a->phase, b->phase);
    assert_int_equal(a->nints, b->nints);
    if (a->nints) assert_memory_equal(a->ints, b->ints, sizeof *a->ints * a->nints);
    assert_true(!memcmp(a->num, b->num, sizeof a->num) || isnan(a->num[0]));
    assert_ptr_equal(a->sym, b->sym);
    assert_memory_equal(&a->loc, &b->loc, sizeof a->loc);
    assert_string_equal(a->path, b->path);
    assert_ptr_equal(a->tag, b->tag);
    assert_int_equal(a->tag_id, b->tag_id);
    assert_int_equal(a->layer, b->layer);
    assert_int_equal(a->chunk, b->chunk);
    for (int k = 0; k < a->nin; k++) assert_int_equal(a->in[k], b->in[k]);
    for (int k = 0; k < a->nout; k++)
      same_value(&g->values.at[a->out + k], &c.g->values.at[b->out + k]);
  }
  for (int i = 0; i < g->vars->all.n; i++) {
    const Var *a = &g->vars->all.at[i], *b = &c.g->vars->all.at[i];
    same_shape(&a->shape, &b->shape);
    assert_true(a->init.kind == b->init.kind && a->init.a == b->init.a && a->init.b == b->init.b &&
                a->init.from == b->init.from);
    assert_memory_equal(&a->loc, &b->loc, sizeof a->loc);
    assert_ptr_equal(a->path, b->path);
    assert_true(a->role == b->role && a->dtype == b->dtype && a->trainable == b->trainable &&
                a->of == b->of && a->layer == b->layer);
  }
  case_free(&c);
}

static void looks(void **state) {
  (void)state;
  Case c = case_new();
  int w = var_add(c.g->vars, (Var){.path = "head.w",
                                   .role = VAR_PARAM,
                                   .dtype = DT_F32,
                                   .shape = SHAPE(4, 2),
                                   .trainable = true,
                                   .of = -1,
                                   .loc = {0, 3, 1, 0},
                                   .layer = -1});
  Shape s = SHAPE(2, 4);
  s.axis[0] = intern("B");
  ValueId x = g_input(c.g, "x", DT_F32, s);
  c.g->here.path = "head";
  c.g->here.loc = (Loc){0, 9, 10, 0};
  ValueId y = g_matmul(c.g, x, g_var(c.g, w));
  graph_result(c.g, "y", c_relu(c.g, y));
  Str text = {.arena = c.a};
  graph_print(c.g, &text);
  assert_string_equal(
      text.text,
      "graph \"case\" tags=1\n"
      "var param \"head.w\" f32[4, 2] trainable !3:1\n"
      "%x = input {name=\"x\" dtype=f32 shape=[2, 4]} : f32[B=2, 4]\n"
      "%head.w = var {var=0} : f32[4, 2] path=\"head\" !9:10\n"
      "%head.dot = dot %x, %head.w {batch_a=[] batch_b=[] con_a=[1] con_b=[0] dtype=f32} : "
      "f32[B=2, 2] path=\"head\" !9:10\n"
      "%head.const = const {dtype=f32 shape=[] value=0} : f32 path=\"head\" tag=\"relu\" tag_id=1 "
      "!9:10\n"
      "%head.const:2 = const {dtype=f32 shape=[2, 2] value=0} : f32[B=2, 2] path=\"head\" "
      "tag=\"relu\" tag_id=1 !9:10\n"
      "%head.max = max %head.const:2, %head.dot : f32[B=2, 2] path=\"head\" tag=\"relu\" tag_id=1 "
      "!9:10\n"
      "result \"y\" %head.max\n");
  case_free(&c);
}

static void broken_text(void **state) {
  (void)state;
  static const char *const rows[][2] = {
      {"", "line 1: expected `graph` first"},
      {"graph \"g\"\n%x = foo : f32", "line 2: unknown op `foo`"},
      {"graph \"g\"\n\n# words\n%x = neg %y : f32", "line 4: value `%y` is not defined before"},
      {"graph \"g\"\n%x = const {dtype=f32 shape=[2] value=1} : f32[3]",
       "line 2: `const` gives f32[2]"},
      {"graph \"g\"\n%x = const {dtype=f32 shape=[2] value=1} : f32[2]\n"
       "%x = neg %x : f32[2]",
       "line 3: value `%x` is defined twice"},
      {"graph \"g\"\n%x = const {dtype=f32 value=1} : f32",
       "line 2: expected attribute `shape`, found `value`"},
      {"graph \"g\"\n%x = iota {dtype=f32 shape=[2] axis=4} : f32[2]",
       "line 2: `iota` along axis 4 of [2]"},
      {"graph \"g\"\n%x = var {var=3} : f32", "line 2: `var` of variable 3, which does not exist"},
      {"graph \"g\"\nvar param \"w\" f32[0]", "line 2: 0 is out of range"},
      {"graph \"g\"\nvar param \"w\" f32\nvar param \"w\" f32",
       "line 3: variable `w` has no name or is defined twice"},
      {"graph \"g\"\nvar param \"w\" f32 colour=3", "line 2: unknown word `colour`"},
      {"graph \"g\"\n%x = const {dtype=f32 shape=[99999999999999999999] value=1} : f32",
       "line 2: expected a whole number before `9999999999`"},
      {"graph \"g\"\nresult \"y\" %x", "line 2: value `%x` is not defined before"},
      {"graph \"g\"\nresult \"y", "line 2: expected `\"` before ``"},
      {"graph \"g\" tags=0\n%x = const {dtype=f32 shape=[] value=1} : f32 tag=\"a\" tag_id=1",
       "graph `g`, node 0 (`const` in ``): tag id 1 was never given out"},
  };
  for (int i = 0; i < COUNT_OF(rows); i++) {
    Arena *a = arena_new();
    const char *why = NULL;
    assert_null(graph_read(a, rows[i][0], strlen(rows[i][0]), &why));
    assert_string_equal(why, rows[i][1]);
    arena_free(a);
  }
}

/* Cut anywhere and with any byte replaced, it is read or refused, never more. */
static void damaged_text(void **state) {
  (void)state;
  Case c = decorated();
  Str text = {.arena = c.a};
  graph_print(c.g, &text);
  for (size_t i = 0; i < text.len; i += 3) {
    Arena *a = arena_new();
    const char *why;
    if (!graph_read(a, text.text, i, &why)) assert_non_null(why);
    char kept = text.text[i];
    text.text[i] = " \n%{[=,9\"!"[i / 3 % 10];
    if (!graph_read(a, text.text, text.len, &why)) assert_non_null(why);
    text.text[i] = kept;
    arena_free(a);
  }
  case_free(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_field_survives),
      cmocka_unit_test(looks),
      cmocka_unit_test(broken_text),
      cmocka_unit_test(damaged_text),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
