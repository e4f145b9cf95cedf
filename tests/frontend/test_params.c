/* Exact parameter counts of the example models, as published; adapters, frozen and tied parameters,
 * names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "frontend/job.h"

static Job *load(const char *model, const char *preset) {
  Arena *a = arena_new();
  Diags *d = diags_new(a);
  JobArgs args = {.path = arena_printf(a, MTC_SOURCE_DIR "/models/%s", model), .preset = preset};
  Job *j = elaborate(a, d, &args);
  if (!j) diag_render(d, stderr, false);
  assert_non_null(j);
  return j;
}

static void counts_are_the_published_ones(void **state) {
  (void)state;
  static const struct {
    const char *model, *preset;
    int64_t params;
  } rows[] = {
      {"gpt2.mt", NULL, 124439808},
      {"gpt2.mt", "medium", 354823168},
      {"gpt2.mt", "large", 774030080},
      {"llama.mt", NULL, 6738415616},
      {"llama.mt", "llama2_7b", 6738415616},
      {"llama.mt", "llama2_13b", 13015864320},
      {"llama.mt", "llama2_70b", 68976648192},
      {"llama.mt", "llama3_8b", 8030261248},
      {"llama.mt", "llama31_8b", 8030261248},
      {"llama.mt", "llama32_1b", 1235814400},
      {"llama.mt", "llama32_3b", 3212749824},
      {"llama.mt", "tinyllama_1b", 1100048384},
      {"qwen2.mt", "qwen25_05b", 494032768},
      {"qwen2.mt", "qwen25_15b", 1543714304},
      {"qwen2.mt", "qwen25_3b", 3085938688},
      {"qwen2.mt", "qwen25_7b", 7615616512},
      {"bert_cls.mt", NULL, 335141888 + 2050},
      {"t5.mt", NULL, 222903552},
      {"t5.mt", "small", 60506624},
      {"resnet50.mt", NULL, 25557032},
      {"llama_lora.mt", NULL, 6738415616 + 8388608},
  };
  for (int i = 0; i < COUNT_OF(rows); i++) {
    Job *j = load(rows[i].model, rows[i].preset);
    if (j->params != rows[i].params)
      fail_msg("%s %s: %lld parameters, published are %lld", rows[i].model,
               rows[i].preset ? rows[i].preset : "", (long long)j->params,
               (long long)rows[i].params);
    arena_free(j->arena);
  }
}

static void an_adapter_trains_itself_alone(void **state) {
  (void)state;
  Job *j = load("llama_lora.mt", NULL);
  assert_int_equal(j->trainable, 8388608);
  assert_int_equal(j->phases.at[0].frozen.n, 291);
  int base = var_find(j->vars, "h.0.attn.q.w"), a = var_find(j->vars, "h.0.attn.q.a"),
      b = var_find(j->vars, "h.31.attn.v.b");
  assert_true(base >= 0 && a >= 0 && b >= 0);
  assert_false(j->vars->all.at[base].trainable);
  assert_true(j->vars->all.at[a].trainable && j->vars->all.at[b].trainable);
  assert_int_equal(var_find(j->vars, "h.0.attn.k.a"), -1);
  assert_int_equal(j->vars->all.at[a].shape.dim[0], 4096);
  assert_int_equal(j->vars->all.at[a].shape.dim[1], 16);
  assert_int_equal(j->vars->all.at[b].init.kind, INIT_ZEROS);
  arena_free(j->arena);
}

static void phases_freeze_what_they_name(void **state) {
  (void)state;
  Job *j = load("bert_cls.mt", NULL);
  assert_int_equal(j->phases.n, 2);
  assert_int_equal(j->trainable, j->params);
  int64_t left = j->params;
  for (int i = 0; i < j->phases.at[0].frozen.n; i++)
    left -= shape_count(&j->vars->all.at[j->phases.at[0].frozen.at[i]].shape);
  assert_int_equal(left, 1024 * 1024 + 1024 + 2050); /* pool and head */
  assert_int_equal(j->phases.at[1].frozen.n, 0);
  arena_free(j->arena);
}

static void state_is_no_parameter(void **state) {
  (void)state;
  Job *j = load("resnet50.mt", NULL);
  int64_t statistics = 0;
  for (int i = 0; i < j->vars->all.n; i++)
    if (j->vars->all.at[i].role == VAR_STATE) statistics += shape_count(&j->vars->all.at[i].shape);
  assert_int_equal(statistics, 53120);
  arena_free(j->arena);
}

static void variables_are_in_order_of_declaration(void **state) {
  (void)state;
  static const char *const order[] = {"wte.w",        "wpe.w",        "h.0.ln_1.w",  "h.0.ln_1.b",
                                      "h.0.c_attn.w", "h.0.c_attn.b", "h.0.c_proj.w"};
  Job *j = load("gpt2.mt", NULL);
  for (int i = 0; i < COUNT_OF(order); i++) assert_string_equal(j->vars->all.at[i].path, order[i]);
  assert_string_equal(j->vars->all.at[147].path, "ln_f.b");
  for (int i = 0; i < 148; i++) assert_int_equal(j->vars->all.at[i].role, VAR_PARAM);
  const Init *init = &j->vars->all.at[6].init;
  assert_int_equal(init->kind, INIT_NORMAL);
  assert_true(init->b > 0.00408 && init->b < 0.00409); /* 0.02 / sqrt(24) */
  arena_free(j->arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(counts_are_the_published_ones),
      cmocka_unit_test(an_adapter_trains_itself_alone),
      cmocka_unit_test(phases_freeze_what_they_name),
      cmocka_unit_test(state_is_no_parameter),
      cmocka_unit_test(variables_are_in_order_of_declaration),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
