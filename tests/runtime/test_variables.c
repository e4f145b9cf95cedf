/* test_variables.c - initial values and loading are the same wherever a variable lies: on the
 * device, on the host, with gaps, in one piece or several; checkpoints go from one residency to
 * another. */
#include <stdarg.h>
#include <setjmp.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "folder.h"
#include "runtime/checkpoint.h"
#include "runtime/convert.h"
#include "runtime/rng.h"
#include "runtime/start.h"
#include "runtime/variables.h"
#include "toy.h"

enum { W, MASTER, MOMENT, COUNT, LONG, VARS, LONG_N = (1 << 24) + 12345 };

/* A weight with its master and moment, a counter, and a vector that is longer than what is written
 * at once. */
static Program *program(Arena *a, bool host, bool gaps, bool with_long) {
  Program *p = arena_new_of(a, Program);
  *p = (Program){
      .arena = a, .model = "m", .seed = 3, .arena_bytes = 1 << 20, .persistent_bytes = 1 << 20};
  p->nvars = with_long ? VARS : LONG;
  p->vars = arena_array(a, ProgramVar, VARS);
  p->vars[W] = toy_var("w", PV_PARAM, TOY_TENSOR(0, DT_BF16, 300, 333));
  p->vars[W].init_kind = INIT_NORMAL, p->vars[W].init_b = 0.02;
  p->vars[MASTER] = toy_var("w:master", PV_MASTER, TOY_TENSOR(0, DT_F32, 300, 333));
  p->vars[MASTER].init_kind = INIT_COPY, p->vars[MASTER].init_from = W, p->vars[MASTER].of = W;
  p->vars[MOMENT] = toy_var("w:m", PV_MOMENT, TOY_TENSOR(0, DT_F32, 300, 333));
  p->vars[MOMENT].of = W;
  p->vars[COUNT] = toy_var("opt.t", PV_OPT, TOY_TENSOR(0, DT_I32, 1));
  p->vars[COUNT].init_kind = INIT_CONST, p->vars[COUNT].init_a = 17;
  p->vars[LONG] = toy_var("long", PV_PARAM, TOY_TENSOR(0, DT_BF16, LONG_N));
  p->vars[LONG].init_kind = INIT_UNIFORM, p->vars[LONG].init_b = 1;
  int64_t at[2] = {0};
  for (int i = 0; i < p->nvars; i++) {
    ProgramVar *v = &p->vars[i];
    if (gaps && v->at.rank == 2) v->at.stride[0] += 7;
    v->at.host = host && i != W && i != COUNT;
    v->at.offset = at[v->at.host];
    at[v->at.host] += round_up(tensor_extent(&v->at) * dtype_bytes(v->at.dtype), 512);
  }
  p->arena_bytes = p->persistent_bytes = at[0];
  p->host_bytes = at[1];
  return p;
}

static Replay opened(const Program *p) {
  Replay r;
  Fail f = {0};
  DeviceOptions o = {.threads = 1};
  if (!replay_open(&r, p, &o, &f)) fail_msg("%s", f.text);
  return r;
}

static void *values(Replay *r, int var) {
  Fail f = {0};
  void *p = variable_buffer(&r->program->vars[var], &f);
  assert_true(p && replay_read(r, &r->program->vars[var].at, p, &f));
  return p;
}

static void same_values(Replay *x, Replay *y) {
  for (int i = 0; i < x->program->nvars; i++) {
    void *p = values(x, i), *q = values(y, i);
    if (memcmp(p, q, (size_t)variable_bytes(&x->program->vars[i])))
      fail_msg("%s differs", x->program->vars[i].path);
    free(p);
    free(q);
  }
}

static void initial_values_do_not_depend_on_the_place(void **state) {
  (void)state;
  for (int with_long = 0; with_long < 2; with_long++) {
    Arena *a = arena_new();
    Fail f = {0};
    Replay plain = opened(program(a, false, false, with_long));
    assert_true(start_values(&plain, 3, NULL, &f));
    for (int kind = 1; kind < (with_long ? 2 : 4); kind++) {
      Replay r = opened(program(a, kind & 1, kind & 2, with_long));
      assert_true(start_values(&r, 3, NULL, &f));
      same_values(&plain, &r);
      replay_close(&r);
    }
    replay_close(&plain);
    arena_free(a);
  }
}

/* Every number is the one that its index asks for, and the master is what the weight was rounded
 * from. */
static void initial_values_are_those_of_the_seed(void **state) {
  (void)state;
  Arena *a = arena_new();
  Fail f = {0};
  Replay r = opened(program(a, true, false, true));
  assert_true(start_values(&r, 3, NULL, &f));
  float *master = values(&r, MASTER), *moment = values(&r, MOMENT), one;
  uint16_t *w = values(&r, W), *all = values(&r, LONG);
  for (int i = 0; i < 300 * 333; i++) {
    rng_normals(3, rng_stream("w"), (uint64_t)i, 1, 0, 0.02, &one);
    assert_true(master[i] == one && w[i] == f32_to_bf16(one) && moment[i] == 0);
  }
  for (int i = 0; i < LONG_N; i += 997) {
    rng_uniforms(3, rng_stream("long"), (uint64_t)i, 1, 0, 1, &one);
    assert_true(all[i] == f32_to_bf16(one));
  }
  int32_t *t = values(&r, COUNT);
  assert_int_equal(*t, 17);
  free(t), free(master), free(moment), free(w), free(all);
  replay_close(&r);
  arena_free(a);
}

static void loading_reaches_weight_and_master(void **state) {
  (void)state;
  enum { N = 300 * 333 };
  Arena *a = arena_new();
  float *data = malloc(N * sizeof *data);
  for (int i = 0; i < N; i++) data[i] = (float)sin(i);
  for (int kind = 0; kind < 4; kind++) {
    Fail f = {0};
    Replay r = opened(program(a, kind & 1, kind & 2, false));
    assert_true(variable_load(&r, W, DT_F32, data, &f));
    float *master = values(&r, MASTER);
    uint16_t *w = values(&r, W), *rounded = malloc(N * sizeof *rounded);
    convert_halves(DT_BF16, rounded, DT_F32, data, N);
    for (int i = 0; i < N; i++) assert_true(master[i] == data[i] && w[i] == rounded[i]);
    free(master), free(w), free(rounded);
    assert_false(variable_load(&r, COUNT, DT_F32, data, &f));
    assert_int_equal(f.code, EXIT_IO);
    replay_close(&r);
  }
  free(data);
  arena_free(a);
}

static void zeroing_reaches_the_host(void **state) {
  (void)state;
  Arena *a = arena_new();
  for (int kind = 0; kind < 4; kind++) {
    Fail f = {0};
    Replay r = opened(program(a, kind & 1, kind & 2, false));
    assert_true(start_values(&r, 3, NULL, &f) && variables_fill(&r, PV_MASTER, 0, &f));
    float *master = values(&r, MASTER);
    uint16_t *w = values(&r, W);
    for (int i = 0; i < 300 * 333; i++) assert_true(master[i] == 0);
    assert_true(w[0] != 0);
    free(master), free(w);
    replay_close(&r);
  }
  arena_free(a);
}

static void checkpoints_go_to_another_residency(void **state) {
  const Place *at = *state;
  Arena *a = arena_new();
  Fail f = {0};
  Replay device = opened(program(a, false, false, false)),
         host = opened(program(a, true, true, false));
  assert_true(start_values(&device, 3, NULL, &f));
  TrainState s = {.seed = 3, .step = 4};
  const char *one = arena_printf(a, "%s/one.mtck", at->dir),
             *two = arena_printf(a, "%s/two.mtck", at->dir);
  assert_true(checkpoint_save(one, &s, &device, &f));
  Checkpoint *c = checkpoint_open(one, &f);
  assert_non_null(c);
  assert_true(start_values(&host, 99, c, &f));
  checkpoint_close(c);
  same_values(&device, &host);
  assert_true(checkpoint_save(two, &s, &host, &f));
  size_t n[2];
  const char *x = read_file(a, one, &n[0]), *y = read_file(a, two, &n[1]);
  assert_int_equal(n[0], n[1]);
  assert_memory_equal(x, y, n[0]);
  replay_close(&device);
  replay_close(&host);
  arena_free(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(initial_values_do_not_depend_on_the_place),
      cmocka_unit_test(initial_values_are_those_of_the_seed),
      cmocka_unit_test(loading_reaches_weight_and_master),
      cmocka_unit_test(zeroing_reaches_the_host),
      cmocka_unit_test_setup_teardown(checkpoints_go_to_another_residency, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
