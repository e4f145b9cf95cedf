/* Sections: every key of the examples lands in the Job, defaults, phases, choices; help and
 * documentation from the table. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "frontend/builtins.h"
#include "frontend/settings.h"

static Job *load(const char *path) {
  Arena *a = arena_new();
  Diags *d = diags_new(a);
  JobArgs args = {.path = path};
  Job *j = elaborate(a, d, &args);
  if (!j) diag_render(d, stderr, false);
  assert_non_null(j);
  return j;
}

static Job *example(const char *name) {
  char path[4096];
  snprintf(path, sizeof path, MTC_SOURCE_DIR "/models/%s", name);
  return load(intern(path));
}

/* A model with these sections. */
static Job *with_sections(const char *sections) {
  static const char model[] =
      "mt 1\n"
      "use \"std/nn.mt\" (Embedding, Linear)\n"
      "let long = 16\n"
      "model M(V = 16, D = 8) {\n"
      "  layer emb = Embedding(V, D)\n"
      "  layer out = Linear(D, V)\n"
      "  fn loss(tokens i32[B, T], targets i32[B, T]) -> f32 {\n"
      "    return cross_entropy(out(emb(tokens)), targets)\n"
      "  }\n"
      "}\n"
      "data bytes = text(train = \"x.txt\", holdout = 0.25)\n";
  char path[] = "/tmp/mtc-test-XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  assert_true(write(fd, model, strlen(model)) > 0 && write(fd, sections, strlen(sections)) > 0);
  close(fd);
  Job *j = load(path);
  unlink(path);
  return j;
}

#define TRAIN "train { data = bytes.train  dims { T = 4 }  batch = seqs(4)  steps = 10 "

static void gpt2_has_what_it_says(void **state) {
  (void)state;
  Job *j = example("gpt2.mt");
  assert_int_equal(j->precision.compute, DT_BF16);
  assert_int_equal(j->precision.master, DT_F32);
  assert_int_equal(j->precision.frozen, DT_BF16);
  assert_int_equal(j->precision.rules.n, 2);
  assert_string_equal(j->precision.rules.at[0].pattern, "op:softmax");
  assert_int_equal(j->precision.rules.at[0].dtype, DT_F32);
  assert_int_equal(j->data.n, 1);
  assert_int_equal(j->data.at[0].kind, DATA_TOKENS);
  assert_string_equal(j->data.at[0].dtype, "u16");
  assert_string_equal(j->data.at[0].val, "fineweb10B/val_*.bin");
  assert_int_equal(j->phases.n, 1);
  const TrainPhase *p = &j->phases.at[0];
  assert_string_equal(p->name, "");
  assert_string_equal(p->batch_dim, "B");
  assert_int_equal(p->unit, BATCH_TOKENS);
  assert_int_equal(phase_samples(j, 0), 512);
  assert_int_equal(phase_dim(j, 0, "B"), -1);
  assert_int_equal(p->opt.kind, OPT_ADAMW);
  assert_true(p->opt.lr == 6e-4 && p->opt.beta1 == 0.9 && p->opt.beta2 == 0.95);
  assert_true(p->opt.eps == 1e-8 && p->opt.weight_decay == 0.1);
  assert_int_equal(p->sched.kind, SCHED_COSINE);
  assert_true(p->sched.warmup == 700 && p->sched.final == 0 && p->sched.cycles == 1);
  assert_true(p->clip == 1.0);
  assert_int_equal(j->seed, 1337);
  assert_int_equal(p->groups.n, 1);
  assert_int_equal(p->groups.at[0].patterns.n, 3);
  assert_true(p->groups.at[0].weight_decay == 0 && isnan(p->groups.at[0].lr_scale));
  assert_true(j->eval.data.val);
  assert_int_equal(j->eval.every, 250);
  assert_int_equal(j->eval.batches, 20);
  assert_int_equal(j->checkpoint.every, 1000);
  assert_int_equal(j->checkpoint.keep, 3);
  assert_int_equal(j->weights.n, 4 + 12 * 12);
  arena_free(j->arena);
}

static void phases_lay_over_train(void **state) {
  (void)state;
  Job *j = example("llama.mt");
  assert_int_equal(j->phases.n, 2);
  assert_string_equal(j->phases.at[0].name, "short");
  assert_int_equal(phase_dim(j, 0, "T"), 2048);
  assert_int_equal(phase_dim(j, 1, "T"), 4096);
  assert_int_equal(phase_samples(j, 0), 2048);
  assert_int_equal(phase_samples(j, 1), 1024);
  assert_int_equal(phase_tokens(j, 0), phase_tokens(j, 1));
  assert_int_equal(j->precision.moments, PREC_AUTO);
  assert_int_equal(j->memory.recompute, RC_AUTO);
  assert_int_equal(j->memory.optimizer, -1);
  arena_free(j->arena);
  j = example("bert_cls.mt");
  assert_true(j->phases.at[0].opt.lr == 1e-3 && j->phases.at[0].epochs == 1);
  assert_true(j->phases.at[1].opt.lr == 2e-5 && j->phases.at[1].epochs == 3);
  assert_true(j->phases.at[0].opt.weight_decay == 0.01); /* of adamw(..) as it is written there */
  assert_true(j->phases.at[1].sched.warmup == 0.1);
  assert_string_equal(j->eval.metric, "accuracy");
  arena_free(j->arena);
}

static void other_kinds_are_kept(void **state) {
  (void)state;
  Job *j = example("t5.mt");
  assert_int_equal(j->data.at[0].kind, DATA_SPAN);
  assert_string_equal(j->data.at[0].train, "c4/*.bin");
  assert_int_equal(j->phases.at[0].opt.kind, OPT_ADAFACTOR);
  assert_true(j->phases.at[0].opt.decay == 0.8);
  assert_int_equal(j->phases.at[0].sched.kind, SCHED_RSQRT);
  arena_free(j->arena);
  j = example("resnet50.mt");
  assert_int_equal(j->data.at[0].kind, DATA_IMAGES);
  assert_true(j->phases.at[0].opt.momentum == 0.9);
  assert_true(j->phases.at[0].sched.warmup == 5 * 1252);
  assert_int_equal(j->phases.at[0].unit, BATCH_IMAGES);
  assert_string_equal(j->phases.at[0].batch_dim, "N");
  arena_free(j->arena);
  j = example("llama_lora.mt");
  assert_int_equal(j->data.at[0].kind, DATA_JSONL);
  assert_false(j->data.at[0].prompt_loss);
  assert_string_equal(j->checkpoint.only, "*.a, *.b");
  assert_string_equal(j->init, "hf:meta-llama/Llama-2-7b-hf");
  arena_free(j->arena);
}

static void what_is_not_given_has_a_default(void **state) {
  (void)state;
  Job *j = with_sections(TRAIN "optimizer = adamw(lr = 1e-3) }\n");
  const TrainPhase *p = &j->phases.at[0];
  assert_int_equal(j->precision.compute, DT_F32);
  assert_int_equal(j->precision.moments, DT_F32);
  assert_int_equal(j->memory.recompute, RC_AUTO);
  assert_int_equal(j->memory.optimizer, -1);
  assert_int_equal(p->sched.kind, SCHED_CONSTANT);
  assert_true(p->sched.warmup == 0 && p->clip == 0);
  assert_true(p->opt.beta2 == 0.999 && p->opt.weight_decay == 0.01);
  assert_int_equal(p->nonfinite, NONFINITE_SKIP);
  assert_int_equal(p->nonfinite_limit, 100);
  assert_int_equal(j->eval.every, 0);
  assert_int_equal(j->checkpoint.every, 0);
  assert_true(j->data.at[0].shuffle);
  assert_string_equal(p->batch_dim, "B");
  arena_free(j->arena);
}

/* Formats of selectors, TF32 among them; what is left open; factors on the loss, rounded down. */
static void precision_says_it(void **state) {
  (void)state;
  Job *j = with_sections(
      "precision { compute = bf16  moments = auto  \"out\" = tf32  \"emb\" = auto  \"op:dot\" = f32\n"
      "  loss_scale = fixed(1000) }\n" TRAIN "optimizer = adamw(1e-3) }\n");
  const Precision *p = &j->precision;
  assert_int_equal(p->rules.n, 3);
  assert_true(p->rules.at[0].tf32 && p->rules.at[0].dtype == DT_F32);
  assert_int_equal(p->rules.at[1].dtype, PREC_AUTO);
  assert_true(!p->rules.at[2].tf32 && p->rules.at[2].dtype == DT_F32);
  for (int s = 0; s < FMT_COUNT; s++) assert_int_equal(p->choice[s].open, s == FMT_MOMENTS);
  assert_true(p->scale.on && !p->scale.dynamic && p->scale.init == 512);
  arena_free(j->arena);
  j = with_sections("precision { compute = f16 }\n" TRAIN "optimizer = adamw(1e-3) }\n");
  p = &j->precision;
  assert_true(p->scale.on && p->scale.dynamic && p->scale.init == 65536 && p->scale.interval == 2000);
  arena_free(j->arena);
  j = with_sections("precision { compute = bf16 }\n" TRAIN "optimizer = adamw(1e-3) }\n");
  assert_false(j->precision.scale.on);
  arena_free(j->arena);
}

static void values_may_be_computed(void **state) {
  (void)state;
  Job *j = with_sections(
      "precision { compute = tf32 }\nmemory { recompute = none  optimizer = host }\n"
      "train { data = bytes.train  dims { T = long / 2  B = V / 4 }\n"
      "  batch = tokens(long * 2 ** 3)  steps = 10 * D  nonfinite = stop\n"
      "  optimizer = adamw(1e-3, betas = (0.8, 0.9))\n"
      "  schedule = wsd(warmup = 0.1, decay = 0.2, final_lr = 1e-5)\n"
      "  group \"out\" { lr_scale = 0.5 }\n"
      "  eval { data = bytes.val  every = 5 } }\n");
  const TrainPhase *p = &j->phases.at[0];
  assert_true(j->precision.tf32 && j->precision.compute == DT_F32);
  assert_int_equal(j->memory.recompute, RC_NONE);
  assert_int_equal(j->memory.optimizer, 1);
  assert_int_equal(phase_dim(j, 0, "T"), 8);
  assert_int_equal(phase_dim(j, 0, "B"), 4);
  assert_int_equal(phase_samples(j, 0), 16);
  assert_int_equal(p->steps, 80);
  assert_int_equal(p->nonfinite, NONFINITE_STOP);
  assert_true(p->opt.lr == 1e-3 && p->opt.beta1 == 0.8);
  assert_int_equal(p->sched.kind, SCHED_WSD);
  assert_true(p->sched.final_is_lr && p->sched.final == 1e-5 && p->sched.decay == 0.2);
  assert_true(job_lr_scale(j, 0, var_find(j->vars, "out.w")) == 0.5);
  assert_true(job_lr_scale(j, 0, var_find(j->vars, "emb.w")) == 1);
  arena_free(j->arena);
}

static void later_lines_win(void **state) {
  (void)state;
  Job *j = with_sections(TRAIN
                         "optimizer = adamw(lr = 1e-3)\n"
                         "group \"*\" { weight_decay = 0.3 }\n"
                         "group \"*.b\" { weight_decay = 0.0 }\n"
                         "freeze \"*\"\nunfreeze \"out\"\nfreeze \"out.b\"\n"
                         "phase a { }\n"
                         "phase b { unfreeze \"*\"  group \"*.b\" { weight_decay = 0.2 } } }\n");
  int out_w = var_find(j->vars, "out.w"), out_b = var_find(j->vars, "out.b"),
      emb = var_find(j->vars, "emb.w");
  assert_true(job_weight_decay(j, 0, out_w) == 0.3 && job_weight_decay(j, 0, out_b) == 0);
  assert_true(job_weight_decay(j, 1, out_b) == 0.2);
  assert_int_equal(j->phases.at[0].frozen.n, 2);
  assert_int_equal(j->phases.at[0].frozen.at[0], emb);
  assert_int_equal(j->phases.at[0].frozen.at[1], out_b);
  assert_int_equal(j->phases.at[1].frozen.n, 0);
  assert_true(j->vars->all.at[emb].trainable);
  arena_free(j->arena);
}

/* ---- tables ---- */

static char *text_of(bool (*help)(const char *, FILE *), const char *word) {
  char *text = NULL;
  size_t size;
  FILE *f = open_memstream(&text, &size);
  bool found = help(word, f);
  fclose(f);
  if (found) return text;
  free(text);
  return NULL;
}

static void help_comes_from_the_table(void **state) {
  (void)state;
  static const struct {
    const char *word, *says;
  } rows[] = {{"train", "  clip"},        {"schedule", "cosine(..)"}, {"cosine", "  cycles"},
              {"optimizer", "adafactor"}, {"data", "  too_long"},     {"precision", "\"selector\""},
              {"checkpoint", "  keep"},   {"group", "  lr_scale"}};
  for (int i = 0; i < COUNT_OF(rows); i++) {
    char *text = text_of(settings_help, rows[i].word);
    assert_non_null(text);
    if (!strstr(text, rows[i].says))
      fail_msg("help %s lacks `%s`:\n%s", rows[i].word, rows[i].says, text);
    free(text);
  }
  assert_null(text_of(settings_help, "trian"));
  assert_string_equal(settings_nearest("trian"), "train");
  char *text = text_of(builtin_help, "gelu");
  assert_non_null(strstr(text, "approx"));
  free(text);
  assert_null(text_of(builtin_help, "gellu"));
  assert_string_equal(builtin_nearest("gellu"), "gelu");
}

/* Every operation has a row that can be called: names, kinds and defaults fit each other. */
static void operations_are_well_formed(void **state) {
  (void)state;
  for (int i = 0; i < builtin_count(); i++) {
    const Builtin *b = builtin_at(i);
    assert_ptr_equal(builtin_find(b->name), b);
    assert_int_equal(strlen(b->kinds), b->n);
    bool optional = false;
    for (int k = 0; k < b->n; k++) { /* what has a default does not precede what has none */
      assert_false(optional && b->required[k]);
      optional |= !b->required[k];
    }
  }
}

static void documentation_names_every_section(void **state) {
  (void)state;
  char *text = NULL;
  size_t size;
  FILE *f = open_memstream(&text, &size);
  settings_markdown(f);
  builtin_markdown(f);
  fclose(f);
  static const char *const words[] = {"## `train`", "`optimizer = adamw(..)`", "| `nonfinite` |",
                                      "skip \\| stop", "`attention(q, k, v, causal = false"};
  for (int i = 0; i < COUNT_OF(words); i++)
    if (!strstr(text, words[i])) fail_msg("no `%s`", words[i]);
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gpt2_has_what_it_says),
      cmocka_unit_test(phases_lay_over_train),
      cmocka_unit_test(other_kinds_are_kept),
      cmocka_unit_test(what_is_not_given_has_a_default),
      cmocka_unit_test(precision_says_it),
      cmocka_unit_test(values_may_be_computed),
      cmocka_unit_test(later_lines_win),
      cmocka_unit_test(help_comes_from_the_table),
      cmocka_unit_test(operations_are_well_formed),
      cmocka_unit_test(documentation_names_every_section),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
