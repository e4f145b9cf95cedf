/* test_cost.c - counts of arithmetic and bytes, prices that order as they must, and the target
 * table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>
#include "naive.h"
#include "passes/cost.h"

typedef struct {
  Arena *a;
  Graph *g;
} Fixture;

static Fixture begin(void) {
  Fixture f = {.a = arena_new()};
  f.g = graph_new(f.a, "micro", vars_new(f.a));
  return f;
}

static KernelCost only_cost(Fixture *f, ValueId v) {
  graph_result(f->g, "v", v);
  Clusters c = naive_clusters(f->g, f->a);
  return cost_kernel(&c, naive_cluster_of(&c, v), NULL);
}

static KernelCost gemm_cost(int64_t m, int64_t n, int64_t k, DType t) {
  Fixture f = begin();
  ValueId a = g_input(f.g, "a", t, shape_of(2, (int64_t[]){m, k}));
  ValueId b = g_input(f.g, "b", t, shape_of(2, (int64_t[]){k, n}));
  KernelCost x = only_cost(&f, g_matmul(f.g, a, b));
  arena_free(f.a);
  return x;
}

static void a_product_counts_two_for_each_multiply_add(void **state) {
  (void)state;
  KernelCost k = gemm_cost(64, 96, 128, DT_BF16);
  assert_int_equal(k.flops, 2 * 64 * 96 * 128);
  assert_int_equal(k.bytes, 2 * (64 * 128 + 128 * 96 + 64 * 96));
  assert_int_equal(k.m * k.n * k.k * k.batch, 64 * 96 * 128);
}

static void attention_counts_half_when_causal(void **state) {
  (void)state;
  int64_t flops[2];
  for (int causal = 0; causal < 2; causal++) {
    Fixture f = begin();
    Shape s = shape_of(4, (int64_t[]){2, 32, 4, 16});
    AttentionArgs at = {.q = g_input(f.g, "q", DT_BF16, s),
                        .k = g_input(f.g, "k", DT_BF16, s),
                        .v = g_input(f.g, "v", DT_BF16, s),
                        .mask = -1,
                        .bias = -1,
                        .causal = causal != 0,
                        .scale = 0.25,
                        .seed = -1,
                        .step = -1,
                        .sample0 = -1};
    KernelCost k = only_cost(&f, g_attention(f.g, &at));
    flops[causal] = k.flops;
    arena_free(f.a);
  }
  assert_int_equal(flops[0], 2 * 2 * (2 * 4) * 32 * 32 * 16);
  assert_int_equal(flops[1], flops[0] / 2);
}

static void a_broadcast_operand_moves_its_source_only(void **state) {
  (void)state;
  Fixture f = begin();
  ValueId x = g_input(f.g, "x", DT_F32, shape_of(2, (int64_t[]){64, 32}));
  ValueId b = g_input(f.g, "b", DT_F32, shape_of(1, (int64_t[]){32}));
  ValueId y = g_binary(f.g, OP_ADD, x,
                       g_broadcast(f.g, b, shape_of(2, (int64_t[]){64, 32}), (int64_t[]){1}));
  KernelCost k = only_cost(&f, y);
  assert_int_equal(k.bytes, 4 * (64 * 32 + 32 + 64 * 32));
  arena_free(f.a);
}

static void column_sums_need_partials(void **state) {
  (void)state;
  Fixture f = begin();
  ValueId x = g_input(f.g, "x", DT_F32, shape_of(2, (int64_t[]){4096, 96}));
  KernelCost k = only_cost(&f, g_reduce(f.g, OP_SUM, x, 1, (int64_t[]){0}));
  assert_int_equal(k.columns, 96);
  assert_int_equal(cost_workspace(&k, target_by_name("cpu")), 64 * 96 * 4);
  arena_free(f.a);
  f = begin();
  x = g_input(f.g, "x", DT_F32, shape_of(2, (int64_t[]){4096, 96}));
  k = only_cost(&f, g_reduce(f.g, OP_SUM, x, 1, (int64_t[]){1}));
  assert_int_equal(cost_workspace(&k, target_by_name("cpu")), 0);
  arena_free(f.a);
}

static void library_workspace_is_the_targets(void **state) {
  (void)state;
  KernelCost k = gemm_cost(64, 64, 64, DT_BF16);
  assert_int_equal(cost_workspace(&k, target_by_name("h200")), 32 << 20);
  assert_int_equal(cost_workspace(&k, target_by_name("cpu")), 0);
}

static void prices_order_as_they_must(void **state) {
  (void)state;
  for (int i = 0; i < target_count(); i++) {
    const Target *t = target_at(i);
    KernelCost small = gemm_cost(512, 512, 512, DT_BF16),
               large = gemm_cost(4096, 4096, 4096, DT_BF16);
    KernelCost wide = gemm_cost(8192, 4096, 4096, DT_BF16);
    assert_true(cost_ns(&small, t) > 0);
    assert_true(cost_ns(&small, t) < cost_ns(&large, t));
    assert_true(cost_ns(&large, t) < cost_ns(&wide, t));
    /* A large product runs near the table's rate, never above it. */
    double rate = (double)large.flops / (double)cost_ns(&large, t) * 1e-3;
    assert_true(rate <= t->tflops[DT_BF16]);
    assert_true(rate > 0.6 * t->tflops[DT_BF16]);
  }
}

/* Within 15 % of what cuBLASLt reached on an H200 with random data. */
static void large_products_on_the_h200(void **state) {
  (void)state;
  const Target *t = target_by_name("h200");
  const int64_t size[] = {2048, 4096, 8192};
  const double measured[] = {668.4, 666.2, 674.4};
  for (int i = 0; i < 3; i++) {
    KernelCost k = gemm_cost(size[i], size[i], size[i], DT_BF16);
    double rate = (double)k.flops / (double)cost_ns(&k, t) * 1e-3;
    if (rate < 0.75 * measured[i] || rate > 1.15 * measured[i])
      fail_msg("%lld: %.0f TFLOP/s, measured %.0f", (long long)size[i], rate, measured[i]);
  }
}

static void costs_are_linear_in_the_micro_batch(void **state) {
  (void)state;
  KernelCost one = gemm_cost(1 * 64, 96, 128, DT_BF16), two = gemm_cost(2 * 64, 96, 128, DT_BF16);
  KernelCost six = gemm_cost(6 * 64, 96, 128, DT_BF16), between = cost_between(&one, 1, &two, 2, 6);
  assert_int_equal(between.flops, six.flops);
  assert_int_equal(between.bytes, six.bytes);
  assert_int_equal(between.m, six.m);
  assert_int_equal(cost_ns(&between, target_by_name("rtx4090")),
                   cost_ns(&six, target_by_name("rtx4090")));
}

static void every_target_is_complete(void **state) {
  (void)state;
  for (int i = 0; i < target_count(); i++) {
    const Target *t = target_at(i);
    assert_ptr_equal(target_by_name(t->name), t);
    assert_true(t->copy_gbs > 0 && t->tflops[DT_F32] > 0 && t->tflops[DT_BF16] > 0 &&
                t->tflops[DT_F16] > 0);
    assert_true(t->units > 0 && t->launch_us > 0 && t->granule_bytes > 0);
    assert_true(t->kind == DEV_CPU || t->overhead_bytes < t->usable_bytes / 20);
  }
  assert_null(target_by_name("rtx4099"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_product_counts_two_for_each_multiply_add),
      cmocka_unit_test(attention_counts_half_when_causal),
      cmocka_unit_test(a_broadcast_operand_moves_its_source_only),
      cmocka_unit_test(column_sums_need_partials),
      cmocka_unit_test(library_workspace_is_the_targets),
      cmocka_unit_test(prices_order_as_they_must),
      cmocka_unit_test(large_products_on_the_h200),
      cmocka_unit_test(costs_are_linear_in_the_micro_batch),
      cmocka_unit_test(every_target_is_complete),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
