/* test_attention_order.c - the order of the tiles of attention kernels: every tile of every head and sample once, the
 * longest of a group first, groups that fill the device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "codegen/attention_cuda.h"

/* What a kernel finds around it. */
typedef struct {
  unsigned x, y, z;
} Dim;
static Dim blockIdx, gridDim;
static bool bias;
#define DI   static
#define BIAS bias
#include "codegen/cuda/attention_order.cu"

typedef struct {
  int64_t batch, heads, t;
  bool causal, bias;
} Sizes;

static AttProblem problem(const Sizes *s) {
  return (AttProblem){.sm = 80,
                      .batch = s->batch,
                      .tq = s->t,
                      .tk = s->t,
                      .heads = s->heads,
                      .kv_heads = s->heads,
                      .head = 64,
                      .causal = s->causal,
                      .bias = s->bias,
                      .dtype = DT_BF16,
                      .bias_dtype = DT_BF16,
                      .sms = 132};
}

/* Runs the blocks of the grid in their order. */
static void check(const Sizes *s) {
  Arena *a = arena_new();
  AttProblem p = problem(s);
  AttVariant v;
  assert_true(attention_variant(&p, ATT_FWD, 0, a, &v));
  AttGrid g = attention_grid(&p, &v);
  int64_t tiles = ceil_div(s->t, v.rows), all = tiles * s->heads * s->batch, n = 0;
  char *taken = arena_array(a, char, all);
  bias = s->bias;
  gridDim = (Dim){g.size[0], g.size[1], g.size[2]};
  assert_int_equal((int64_t)gridDim.x * gridDim.y * gridDim.z, all);
  assert_true(gridDim.y < 65536 && gridDim.z < 65536);
  for (blockIdx.z = 0; blockIdx.z < gridDim.z; blockIdx.z++) {
    int last = 0;
    for (blockIdx.y = 0; blockIdx.y < gridDim.y; blockIdx.y++)
      for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++, n++) {
        Place at = place_of(g.log_more | g.log_parts << 8);
        assert_int_equal(at.tiles, tiles);
        assert_in_range(at.tile, last, tiles - 1); /* no longer tile after a shorter one */
        assert_in_range(at.head, 0, s->heads - 1);
        assert_in_range(at.sample, 0, s->batch - 1);
        char *mine = &taken[(at.tile * s->heads + at.head) * s->batch + at.sample];
        assert_int_equal(*mine, 0);
        *mine = 1;
        last = at.tile;
      }
  }
  assert_int_equal(n, all);
  arena_free(a);
}

static void every_tile_once(void **state) {
  (void)state;
  static const Sizes shapes[] = {
      {1, 1, 5, true, false},      {16, 16, 1024, true, false}, {16, 32, 1024, false, true},
      {3, 12, 1000, true, false},  {6, 25, 1024, true, true},   {1, 16, 16384, true, false},
      {4, 32, 4096, false, false}, {640, 2, 64, true, false},   {64, 12, 1024, true, false},
      {7, 1, 4096, true, true},    {1024, 4, 4096, false, true}};
  for (int i = 0; i < COUNT_OF(shapes); i++) check(&shapes[i]);
}

/* A group of causal heads has between one and three times the blocks that run at once, where there are as many. */
static void groups_fill_the_device(void **state) {
  (void)state;
  Arena *a = arena_new();
  for (int64_t t = 512; t <= 16384; t *= 2) {
    AttProblem p = problem(&(Sizes){16384 / t, 16, t, true, false});
    AttVariant v;
    assert_true(attention_variant(&p, ATT_FWD, 0, a, &v));
    AttGrid g = attention_grid(&p, &v);
    assert_in_range(g.size[0] * g.size[1], 264, 3 * 264);
  }
  arena_free(a);
}

/* With a bias, blocks beside each other are the samples of one head. */
static void samples_share_a_bias(void **state) {
  (void)state;
  Arena *a = arena_new();
  AttProblem p = problem(&(Sizes){16, 32, 1024, false, true});
  AttVariant v;
  assert_true(attention_variant(&p, ATT_FWD, 0, a, &v));
  AttGrid g = attention_grid(&p, &v);
  bias = true;
  gridDim = (Dim){g.size[0], g.size[1], g.size[2]};
  assert_int_equal(gridDim.x, 16);
  blockIdx = (Dim){0};
  Place one = place_of(g.log_more | g.log_parts << 8);
  blockIdx.x = 15;
  Place other = place_of(g.log_more | g.log_parts << 8);
  assert_int_equal(one.head, other.head);
  assert_int_equal(one.tile, other.tile);
  assert_int_equal(other.sample, 15);
  arena_free(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_tile_once),
                                     cmocka_unit_test(groups_fill_the_device),
                                     cmocka_unit_test(samples_share_a_bias)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
