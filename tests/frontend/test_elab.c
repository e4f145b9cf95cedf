/* Elaboration: the messages of docs/language.md at their places, -D, --set and presets, derived
 * models, and the graphs of functions: layers, paths, weights of the parts of a loss. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "frontend/job.h"

typedef struct {
  Arena *a;
  Diags *d;
  Job *j;
} Run;

/* `settings`: "L=2" is a size, "train.steps=3" a setting; ends with NULL. */
static Run run(const char *path, const char *preset, const char *const *settings) {
  Run r = {.a = arena_new()};
  r.d = diags_new(r.a);
  JobArgs args = {.path = path, .preset = preset};
  for (; settings && *settings; settings++) {
    const char *eq = strchr(*settings, '=');
    Override o = {intern_n(*settings, (size_t)(eq - *settings)), intern(eq + 1)};
    if (strchr(o.name, '.'))
      vec_push(r.a, &args.settings, o);
    else
      vec_push(r.a, &args.dims, o);
  }
  r.j = elaborate(r.a, r.d, &args);
  return r;
}

static Run run_model(const char *name, const char *const *settings) {
  char path[4096];
  snprintf(path, sizeof path, MTC_SOURCE_DIR "/models/%s", name);
  Run r = run(intern(path), NULL, settings);
  if (!r.j) diag_render(r.d, stderr, false);
  assert_non_null(r.j);
  return r;
}

/* Writes text to a file that is gone after elaboration. */
static Run run_text(const char *text, const char *const *settings) {
  char path[] = "/tmp/mtc-test-XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, text, strlen(text)), strlen(text));
  close(fd);
  Run r = run(path, NULL, settings);
  unlink(path);
  return r;
}

static Run run_sound(const char *text, const char *const *settings) {
  Run r = run_text(text, settings);
  if (!r.j) diag_render(r.d, stderr, false);
  assert_non_null(r.j);
  return r;
}

static char *rendered(const Run *r) {
  char *text;
  size_t size;
  FILE *f = open_memstream(&text, &size);
  diag_render(r->d, f, false);
  fclose(f);
  char *copy = arena_copy(r->a, text, size + 1);
  free(text);
  return copy;
}

/* ---- the messages that docs/language.md shows ---- */

/* An example model with the first `from` replaced. */
static Run changed(const char *model, const char *from, const char *to) {
  Arena *a = arena_new();
  size_t size;
  char *text = read_file(a, arena_printf(a, MTC_SOURCE_DIR "/models/%s", model), &size);
  assert_non_null(text);
  char *at = strstr(text, from);
  assert_non_null(at);
  Run r =
      run_text(arena_printf(a, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)), NULL);
  arena_free(a);
  return r;
}

static void says(Run r, const char *code, int line, int col, int diags, const char *const *words) {
  const char *text = rendered(&r);
  bool ok = r.d->all.n == diags;
  const Diag *g = r.d->all.n ? r.d->all.at[0] : NULL;
  ok = ok && !strcmp(err_code(g->id), code) && g->primary.loc.line == line &&
       g->primary.loc.col == col;
  for (; ok && *words; words++) ok = strstr(text, *words) != NULL;
  if (!ok) fail_msg("wanted %s at %d:%d with `%s`, got\n%s", code, line, col, *words, text);
  arena_free(r.a);
}

#define SAYS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void matmul_of_the_untransposed_table(void **state) {
  (void)state;
  says(changed("gpt2.mt", "wte.w.T ", "wte.w "), "E0203", 36, 20, 1,
       SAYS("inner dimensions of `@` differ: 768 and 50257", "[V=50257, D=768]",
            "[B=1, T=1024, D=768]", "in GPT2.forward, called from GPT2.loss at 40:26",
            "help: `wte.w.T` is [D=768, V=50257]"));
}

static void a_head_size_that_does_not_fit(void **state) {
  (void)state;
  says(changed("gpt2.mt", "let Dh = D / H", "let Dh = 63"), "E0207", 17, 21, 1,
       SAYS("`as` must keep the element count: 768 per token in, 756 out", "Dh is set here",
            "[B=1, T=1024, H=12, Dh=63]  H*Dh = 756", "[B=1, T=1024, 768]   a third of",
            "help: Dh = D / H would be 64"));
}

static void a_broken_promise(void **state) {
  (void)state;
  says(changed("llama.mt", "layer o = Linear(H * Dh, D,", "layer o = Linear(H * Dh, 2 * D,"),
       "E0211", 18, 12, 1,
       SAYS("block `Attention` promises [B, T, D] but returns [B=1, T=4096, 8192]",
            "promised: D=4096 on axis 2", "Linear(In=4096, Out=8192), declared at 12:3",
            "in h.0.attn"));
}

static void an_unknown_setting(void **state) {
  (void)state;
  says(changed("gpt2.mt", "warmup = 700", "warmup_steps = 700"), "E0102", 61, 22, 1,
       SAYS("unknown setting `warmup_steps` in `cosine(...)`", "did you mean `warmup`?",
            "cosine(warmup, final, cycles = 1", "see `mtc help schedule`"));
}

static void formats_by_names_of_others(void **state) {
  (void)state;
  says(changed("gpt2.mt", "moments = f32", "moments = int8"), "E0110", 49, 13, 1,
       SAYS("`moments` cannot be `int8`", "did you mean `i8`?"));
  says(changed("gpt2.mt", "moments = f32", "moments = bfloat16"), "E0110", 49, 13, 1,
       SAYS("did you mean `bf16`?"));
  says(changed("gpt2.mt", "tokens i32[", "tokens int32["), "E0101", 33, 21, 1,
       SAYS("found name `int32`", "help: did you mean `i32`?"));
}

static void a_pattern_that_matches_nothing(void **state) {
  (void)state;
  says(changed("llama_lora.mt", "h[*].attn.q", "h[*].atn.q"), "E0301", 7, 8, 1,
       SAYS("pattern \"h[*].atn.q\" matches no layer", "nearest: \"h[*].attn.q\" (32 layers)"));
}

static void statistics_of_the_micro_batch(void **state) {
  (void)state;
  says(run_model("resnet50.mt", SAYS("N=32")), "W0412", 54, 15, 1,
       SAYS("batchnorm statistics are taken over the micro-batch (N=32), not the batch (1024)"));
}

/* ---- overrides ---- */

static void overrides_win_and_are_echoed(void **state) {
  (void)state;
  Run r = run_model("gpt2.mt", SAYS("L=2", "T=128", "train.steps=7", "train.optimizer.lr=1e-5",
                                    "train.eval.every=3", "memory.recompute=full",
                                    "data.fineweb.train=\"x.bin\"", "train.batch=seqs(6)"));
  const TrainPhase *p = &r.j->phases.at[0];
  assert_int_equal(r.j->layers, 2);
  assert_int_equal(phase_dim(r.j, 0, "T"), 128);
  assert_int_equal(p->steps, 7);
  assert_true(p->opt.lr == 1e-5);
  assert_int_equal(r.j->eval.every, 3);
  assert_int_equal(r.j->memory.recompute, RC_FULL);
  assert_string_equal(r.j->data.at[0].train, "x.bin");
  assert_int_equal(phase_samples(r.j, 0), 6);
  assert_int_equal(phase_tokens(r.j, 0), 768);
  assert_int_equal(r.j->overrides.n, 8);
  assert_string_equal(r.j->overrides.at[0], "L = 2");
  assert_string_equal(r.j->overrides.at[2], "train.steps = 7");
  arena_free(r.a);
}

static void steps_and_epochs_displace_each_other(void **state) {
  (void)state;
  Run r = run_model("llama_lora.mt", SAYS("train.steps=9"));
  assert_int_equal(r.j->phases.at[0].steps, 9);
  assert_true(r.j->phases.at[0].epochs == 0);
  arena_free(r.a);
}

static const char small[] =
    "mt 1\n"
    "use \"std/nn.mt\" (Embedding, LayerNorm, Linear, Lora)\n"
    "block Layer(D, F = 4 * D) {\n"
    "  layer norm = LayerNorm(D)\n"
    "  layer up = Linear(D, F)\n"
    "  layer down = Linear(F, D)\n"
    "  fn forward(x [B, T, D]) -> [B, T, D] { return x + down(gelu(up(norm(x)))) }\n"
    "}\n"
    "model Net(V = 16, D = 8, L = 3, aux = false) {\n"
    "  preset wide { D = 12 }\n"
    "  layer emb = Embedding(V, D)\n"
    "  layer h[L] = Layer(D)\n"
    "  layer out = LayerNorm(D)\n"
    "  fn forward(tokens i32[B, T]) -> [B, T, V] {\n"
    "    x = dropout(emb(tokens), 0.1)\n"
    "    for b in h { x = b(x) }\n"
    "    return out(x) @ emb.w.T\n"
    "  }\n"
    "  fn loss(tokens i32[B, T], targets i32[B, T]) -> f32 {\n"
    "    y = forward(tokens)\n"
    "    ce = cross_entropy(y, targets, ignore = 7)\n"
    "    return aux ? 0.5 * ce - mean(y ** 2) / 3.0 : ce\n"
    "  }\n"
    "}\n";
static const char small_train[] =
    "data bytes = text(train = \"x.txt\")\n"
    "train { data = bytes.train  dims { T = 4  B = auto }  batch = seqs(4)  steps = 10\n"
    "  optimizer = adamw(lr = 1e-3) }\n";

static Run small_net(const char *tail, const char *const *settings) {
  Arena *a = arena_new();
  Run r = run_sound(arena_printf(a, "%s%s%s", small, tail, small_train), settings);
  arena_free(a);
  return r;
}

/* ---- derived models ---- */

static int64_t elements(const Job *j, const char *path) {
  int v = var_find(j->vars, path);
  if (v < 0) fail_msg("no variable %s", path);
  return shape_count(&j->vars->all.at[v].shape);
}

static void a_derivation_sets_sizes(void **state) {
  (void)state;
  Run r = small_net("model Mine = Net(L = 1, D = 4)\n", SAYS("D=20"));
  assert_string_equal(r.j->model, "Mine");
  assert_int_equal(r.j->layers, 1);
  assert_int_equal(elements(r.j, "emb.w"), 16 * 20);
  assert_int_equal(elements(r.j, "h.0.up.w"), 20 * 80);
  arena_free(r.a);
}

/* Lora's `b` and the bias of Linear have one name: the adapter moves below its own. */
static void wrappers_keep_the_names_of_the_base(void **state) {
  (void)state;
  Run r = small_net("model Mine = Net() { wrap \"h[*].up\" with Lora(r = 2) }\n", NULL);
  assert_int_equal(elements(r.j, "h.0.up.w"), 8 * 32);
  assert_int_equal(elements(r.j, "h.0.up.b"), 32);
  assert_int_equal(elements(r.j, "h.2.up.lora.a"), 16);
  assert_int_equal(elements(r.j, "h.2.up.lora.b"), 64);
  assert_int_equal(var_find(r.j->vars, "h.0.down.lora.a"), -1);
  arena_free(r.a);
}

static void the_map_of_the_base_serves_the_derived_model(void **state) {
  (void)state;
  Run r = run_model("llama_lora.mt", SAYS("L=2"));
  assert_string_equal(r.j->weights_name, "hf:meta-llama/Llama-2-7b-hf");
  assert_int_equal(r.j->weights.n, 3 + 2 * 9);
  const WeightMap *w = NULL;
  for (int i = 0; i < r.j->weights.n; i++)
    if (!strcmp(r.j->weights.at[i].key, "model.layers.1.self_attn.q_proj.weight"))
      w = &r.j->weights.at[i];
  assert_non_null(w);
  assert_string_equal(r.j->vars->all.at[w->var].path, "h.1.attn.q.w");
  assert_true(w->transposed);
  arena_free(r.a);
}

/* ---- graphs ---- */

static Graph *graph_of(const Run *r, JobFn fn, int64_t samples) {
  Graph *g = job_graph(r->j, r->a, fn, 0, samples);
  assert_non_null(g);
  const char *wrong = graph_verify(g, r->a);
  if (wrong) fail_msg("%s", wrong);
  return g;
}

static int count_op(const Graph *g, Op op) {
  int n = 0;
  for (int i = 0; i < g->nodes.n; i++) n += g->nodes.at[i].op == op;
  return n;
}

static void graphs_of_all_examples_are_sound(void **state) {
  (void)state;
  static const char *const models[] = {"gpt2.mt",     "llama.mt", "llama_lora.mt", "qwen2.mt",
                                       "bert_cls.mt", "t5.mt",    "char.mt"};
  for (int i = 0; i < COUNT_OF(models); i++) {
    Run r = run_model(models[i], SAYS("L=2"));
    for (int p = 0; p < r.j->phases.n; p++) {
      Graph *g = job_graph(r.j, r.a, FN_LOSS, p, 3);
      assert_null(graph_verify(g, r.a));
      assert_int_equal(val(g, g->results.at[0])->shape.rank, 0);
      assert_string_equal(g->result_names.at[0], "loss");
    }
    graph_of(&r, FN_EVAL_LOSS, 2);
    graph_of(&r, FN_FORWARD, 1);
    arena_free(r.a);
  }
}

static void layers_count_along_forward(void **state) {
  (void)state;
  Run r = small_net("", NULL);
  Graph *g = graph_of(&r, FN_LOSS, 2);
  int last = 0;
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *n = node_at(g, i);
    assert_true(n->layer >= last);
    last = n->layer;
    if (str_starts(n->path, "h.1")) assert_int_equal(n->layer, 2);
    if (!strcmp(n->path, "emb") && n->op == OP_GATHER) assert_int_equal(n->layer, 0);
    if (!strcmp(n->path, "out")) assert_int_equal(n->layer, 4);
    assert_true(loc_ok(n->loc));
  }
  assert_int_equal(last, 4);
  const Var *down = &r.j->vars->all.at[var_find(r.j->vars, "h.2.down.w")];
  assert_int_equal(down->layer, 3);
  assert_int_equal(r.j->vars->all.at[var_find(r.j->vars, "emb.w")].layer, 0);
  arena_free(r.a);
}

static void compositions_carry_their_name(void **state) {
  (void)state;
  Run r = small_net("", NULL);
  Graph *g = graph_of(&r, FN_LOSS, 2);
  int norms = 0, gelus = 0, loose = 0;
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *n = node_at(g, i);
    norms += n->op == OP_RSQRT && n->tag && !strcmp(n->tag, "layernorm");
    gelus += n->op == OP_ERF && n->tag && !strcmp(n->tag, "gelu");
    loose += n->op == OP_DOT && n->tag;
  }
  assert_int_equal(norms, 4);
  assert_int_equal(gelus, 3);
  assert_int_equal(loose, 0);
  arena_free(r.a);
}

static void dropout_only_in_training(void **state) {
  (void)state;
  Run r = small_net("", NULL);
  assert_int_equal(count_op(graph_of(&r, FN_LOSS, 2), OP_RANDOM), 1);
  assert_int_equal(count_op(graph_of(&r, FN_EVAL_LOSS, 2), OP_RANDOM), 0);
  assert_int_equal(count_op(graph_of(&r, FN_FORWARD, 2), OP_RANDOM), 0);
  arena_free(r.a);
}

static void targets_are_known_to_the_data(void **state) {
  (void)state;
  Run r = small_net("", NULL);
  const char *input;
  int64_t ignore;
  assert_true(job_target_input(r.j, &input, &ignore));
  assert_string_equal(input, "targets");
  assert_int_equal(ignore, 7);
  arena_free(r.a);
}

/* The value of the loss over `n` samples with the given step scalars, all parameters 0.05 + i /
 * 1000. */
static double loss_value(const Run *r, int from, int n, int valid, double share) {
  Graph *g = graph_of(r, FN_EVAL_LOSS, n);
  double tokens[32], targets[32];
  for (int i = 0; i < 4 * n; i++) {
    tokens[i] = (from * 4 + i) * 5 % 16;
    targets[i] = (from * 4 + i) % 3 ? (from * 4 + i) * 3 % 16 : 7;
  }
  InterpInput inputs[] = {{"tokens", tokens}, {"targets", targets}};
  int count_of_step = var_scalar(r->j->vars, SC_INV_COUNT);
  int share_of_step = var_scalar(r->j->vars, SC_INV_ACCUM);
  double **vars = arena_array(r->a, double *, r->j->vars->all.n);
  for (int v = 0; v < r->j->vars->all.n; v++) {
    int64_t count = shape_count(&r->j->vars->all.at[v].shape);
    vars[v] = arena_array(r->a, double, count);
    for (int64_t i = 0; i < count; i++) vars[v][i] = 0.05 + (double)((i * 7 + v) % 11) / 100;
  }
  vars[count_of_step][0] = 1.0 / valid;
  vars[share_of_step][0] = share;
  Interp in = {r->a, true, inputs, 2, vars};
  return graph_interp(g, &in)[g->results.at[0]][0];
}

/* A step of 4 samples gives one loss, in one micro-batch or in two or four, whatever its parts are.
 */
static void parts_of_a_loss_add_up(void **state) {
  (void)state;
  for (int aux = 0; aux < 2; aux++) {
    Run r = small_net("", SAYS(aux ? "aux=true" : "aux=false"));
    int valid = 0;
    for (int i = 0; i < 16; i++) valid += i % 3 && i * 3 % 16 != 7;
    double whole = loss_value(&r, 0, 4, valid, 1);
    double halves = loss_value(&r, 0, 2, valid, 0.5) + loss_value(&r, 2, 2, valid, 0.5);
    double quarters = 0;
    for (int i = 0; i < 4; i++) quarters += loss_value(&r, i, 1, valid, 0.25);
    assert_true(fabs(whole) > 0.1);
    assert_true(fabs(whole - halves) < 1e-12);
    assert_true(fabs(whole - quarters) < 1e-12);
    arena_free(r.a);
  }
}

static void keys_of_random_bits_do_not_repeat(void **state) {
  (void)state;
  Run r = run_model("bert_cls.mt", SAYS("L=3"));
  Graph *g = graph_of(&r, FN_LOSS, 2);
  VEC(int64_t) keys = {0};
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *n = node_at(g, i);
    if (n->op != OP_RANDOM && n->op != OP_ATTENTION) continue;
    int64_t key = node_int(n, "key");
    for (int k = 0; k < keys.n; k++) assert_true(keys.at[k] != key);
    vec_push(r.a, &keys, key);
  }
  assert_int_equal(keys.n, 2 + 3 * 3);
  arena_free(r.a);
}

static void what_cannot_be_planned_is_named(void **state) {
  (void)state;
  static const struct {
    const char *model, *words;
  } rows[] = {
      {"gpt2.mt", NULL},
      {"llama.mt", NULL},
      {"llama_lora.mt", NULL},
      {"qwen2.mt", NULL},
      {"t5.mt", "data of kind `span_corruption`"},
      {"bert_cls.mt", "data of kind `tsv`"},
      {"resnet50.mt",
       "data of kind `images`, operation `conv2d` and operation `max_pool2d`"},
      {"char.mt", NULL}};
  for (int i = 0; i < COUNT_OF(rows); i++) {
    Run r = run_model(rows[i].model, NULL);
    Loc at;
    const char *what = job_not_yet(r.j, &at);
    assert_int_equal(what != NULL, rows[i].words != NULL);
    if (what) assert_string_equal(what, rows[i].words);
    if (what) assert_true(loc_ok(at));
    arena_free(r.a);
  }
}

/* ---- decay groups ---- */

static void groups_decide_decay(void **state) {
  (void)state;
  Run r = run_model("gpt2.mt", SAYS("L=1"));
  static const struct {
    const char *path;
    double decay;
  } rows[] = {{"wte.w", 0.1},    {"h.0.c_attn.w", 0.1}, {"h.0.c_attn.b", 0},
              {"h.0.ln_1.w", 0}, {"ln_f.w", 0},         {"ln_f.b", 0}};
  for (int i = 0; i < COUNT_OF(rows); i++) {
    int v = var_find(r.j->vars, rows[i].path);
    assert_true(job_weight_decay(r.j, 0, v) == rows[i].decay);
    assert_true(job_lr_scale(r.j, 0, v) == 1);
  }
  arena_free(r.a);
}

/* ---- time: the limits of docs, with room for slow machines and sanitizers ---- */

static double cpu_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void elaboration_is_quick(void **state) {
  (void)state;
  double start = cpu_ms();
  Run r = run_model("llama.mt", NULL);
  double elaborated = cpu_ms();
  job_graph(r.j, r.a, FN_LOSS, 0, 4);
  double built = cpu_ms();
  assert_true(elaborated - start < 400);
  assert_true(built - elaborated < 160);
  arena_free(r.a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(matmul_of_the_untransposed_table),
      cmocka_unit_test(a_head_size_that_does_not_fit),
      cmocka_unit_test(a_broken_promise),
      cmocka_unit_test(an_unknown_setting),
      cmocka_unit_test(formats_by_names_of_others),
      cmocka_unit_test(a_pattern_that_matches_nothing),
      cmocka_unit_test(statistics_of_the_micro_batch),
      cmocka_unit_test(overrides_win_and_are_echoed),
      cmocka_unit_test(steps_and_epochs_displace_each_other),
      cmocka_unit_test(a_derivation_sets_sizes),
      cmocka_unit_test(wrappers_keep_the_names_of_the_base),
      cmocka_unit_test(the_map_of_the_base_serves_the_derived_model),
      cmocka_unit_test(graphs_of_all_examples_are_sound),
      cmocka_unit_test(layers_count_along_forward),
      cmocka_unit_test(compositions_carry_their_name),
      cmocka_unit_test(dropout_only_in_training),
      cmocka_unit_test(targets_are_known_to_the_data),
      cmocka_unit_test(parts_of_a_loss_add_up),
      cmocka_unit_test(keys_of_random_bits_do_not_repeat),
      cmocka_unit_test(what_cannot_be_planned_is_named),
      cmocka_unit_test(groups_decide_decay),
      cmocka_unit_test(elaboration_is_quick),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
