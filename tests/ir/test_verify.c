/* test_verify.c - the verifier finds each kind of planted fault, and names it. */
#include "case.h"

/* x[2,3] * 2 + v, stored into v; a sound graph with an effect. */
typedef struct {
  Case c;
  int var;
  NodeId mul, read, add, assign;
} Sound;

static Sound sound(void) {
  Sound s = {.c = case_new()};
  Graph *g = s.c.g;
  s.var = var_add(g->vars, (Var){.path = "v",
                                 .role = VAR_STATE,
                                 .dtype = DT_F32,
                                 .shape = SHAPE(2, 3),
                                 .of = -1,
                                 .layer = -1});
  ValueId x = case_input(&s.c, DT_F32, SHAPE(2, 3), -1, 1);
  ValueId y = g_bin(g, OP_MUL, x, g_const(g, DT_F32, shape_scalar(), 2));
  s.mul = val(g, y)->def;
  ValueId v = g_var(g, s.var), z = g_binary(g, OP_ADD, y, v);
  s.read = val(g, v)->def;
  s.add = val(g, z)->def;
  g_assign(g, s.var, z);
  s.assign = g->nodes.n - 1;
  graph_result(g, "z", z);
  return s;
}

/* The verifier says something with these words in it. */
static void finds(Sound *s, const char *words) {
  const char *why = graph_verify(s->c.g, s->c.a);
  if (!why) fail_msg("a fault was not found: %s", words);
  if (!strstr(why, words)) fail_msg("`%s` does not say `%s`", why, words);
  case_free(&s->c);
}

#define FAULT(words, ...) \
  do {                    \
    Sound s = sound();    \
    Graph *g = s.c.g;     \
    __VA_ARGS__;          \
    finds(&s, words);     \
  } while (0)

static void sound_passes(void **state) {
  (void)state;
  Sound s = sound();
  case_sound(&s.c, "sound");
  case_free(&s.c);
}

static void faults_of_structure(void **state) {
  (void)state;
  FAULT("made later", node_at(g, s.mul)->in[0] = node_at(g, s.add)->out);
  FAULT("made later", node_at(g, s.mul)->in[1] = node_at(g, s.mul)->out);
  FAULT("does not exist", node_at(g, s.add)->in[1] = 99);
  FAULT("does not exist", node_at(g, s.add)->in[1] = -1);
  FAULT("takes 2 operands", node_at(g, s.add)->nin = 1);
  FAULT("has 2 results", node_at(g, s.add)->nout = 2);
  FAULT("start at value", node_at(g, s.add)->out--);
  FAULT("another's", g->values.at[node_at(g, s.add)->out].def--);
  FAULT("no such op", node_at(g, s.add)->op = OP_COUNT);
  FAULT("no node makes", vec_push(g->arena, &g->values, g->values.at[0]));
  FAULT("result `z` is value 77", g->results.at[0] = 77);
  FAULT("1 results and 2 names", vec_push(g->arena, &g->result_names, "w"));
}

static void faults_of_types(void **state) {
  (void)state;
  FAULT("its op gives f32[2, 3]", g->values.at[node_at(g, s.add)->out].dtype = DT_BF16);
  FAULT("its op gives f32[2, 3]", g->values.at[node_at(g, s.add)->out].shape.dim[1] = 4);
  FAULT("`+` of [2, 3] and [3, 2]", {
    node_at(g, s.read)->op = OP_CONST;
    int64_t ints[] = {DT_F32, 2, 3, 2};
    node_at(g, s.read)->ints = arena_copy(g->arena, ints, sizeof ints);
    node_at(g, s.read)->nints = 4;
    g->values.at[node_at(g, s.read)->out].shape = SHAPE(3, 2);
  });
  FAULT("malformed attributes", node_at(g, s.read)->nints = 0);
  FAULT("does not exist", node_at(g, s.read)->ints[0] = 5);
  FAULT("needs a name", node_at(g, 0)->sym = NULL);
  FAULT("no such dtype", node_at(g, 0)->ints[0] = DT_COUNT);
  FAULT("cannot become", g->vars->all.at[s.var].dtype = DT_F32,
        g->vars->all.at[s.var].shape.dim[0] = 5,
        g->values.at[node_at(g, s.read)->out].shape.dim[0] = 5, node_at(g, s.add)->in[1] = 0);
}

static void faults_of_annotations(void **state) {
  (void)state;
  FAULT("no path", node_at(g, s.add)->path = NULL);
  FAULT("in no phase", node_at(g, s.add)->phase = (Phase)3);
  FAULT("never given out", node_at(g, s.add)->tag_id = 1, node_at(g, s.add)->tag = "gelu");
  FAULT("without a tag", node_at(g, s.add)->tag_id = 1, g->last_tag_id = 1);
  FAULT("layer -2", node_at(g, s.add)->layer = -2);
  FAULT("chunk -1", node_at(g, s.add)->chunk = -1);
}

static void faults_of_effects(void **state) {
  (void)state;
  FAULT("reads the old value of `v`",
        g_binary(g, OP_ADD, node_at(g, s.read)->out, node_at(g, s.add)->out));
  FAULT("only the runtime writes", g->vars->all.at[s.var].role = VAR_SCALAR);
  FAULT("frozen parameter", g->vars->all.at[s.var].role = VAR_PARAM);
  FAULT("belongs to variable 3", g->vars->all.at[s.var].of = 3);
  FAULT("starts as variable 4", g->vars->all.at[s.var].init = (Init){INIT_COPY, 0, 0, 4});
}

/* A read after the assign is a new read. */
static void new_reads_are_fine(void **state) {
  (void)state;
  Sound s = sound();
  ValueId again = g_var(s.c.g, s.var);
  g_unary(s.c.g, OP_NEG, again);
  case_sound(&s.c, "read again");
  case_free(&s.c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sound_passes),      cmocka_unit_test(faults_of_structure),
      cmocka_unit_test(faults_of_types),   cmocka_unit_test(faults_of_annotations),
      cmocka_unit_test(faults_of_effects), cmocka_unit_test(new_reads_are_fine),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
