/* toy_model.h - a bigram model as a hand-made program: w[V, V] holds the logits of the next token.
 * Kernels are written here in C, so that the runtime is tested without the compiler. Training is
 * SGD with momentum; a target of V - 1 makes the gradient NaN. The first micro-batch of a step overwrites
 * the gradient. */
#ifndef MTC_TESTS_TOY_MODEL_H
#define MTC_TESTS_TOY_MODEL_H
#include "toy.h"

enum { TOY_V = 32 };

static const char toy_kernels[] =
    "#include <math.h>\n"
    "#include <stdint.h>\n"
    "enum { V = 32 };\n"
    "static double row_loss(const float *w, int in, int target, double *p) {\n"
    "  double most = w[in * V], total = 0;\n"
    "  for (int v = 1; v < V; v++) most = w[in * V + v] > most ? w[in * V + v] : most;\n"
    "  for (int v = 0; v < V; v++) total += p[v] = exp(w[in * V + v] - most);\n"
    "  for (int v = 0; v < V; v++) p[v] /= total;\n"
    "  return target == V - 1 ? NAN : -log(p[target]);\n"
    "}\n"
    "/* tokens, targets, w, inv_count, count, loss, [grad] */\n"
    "static void batch(void *const *a, float *grad) {\n"
    "  const int32_t *in = a[0], *out = a[1], n = *(const int32_t *)a[4];\n"
    "  const float *w = a[2], inv = *(const float *)a[3];\n"
    "  float *loss = a[5];\n"
    "  for (int i = 0; i < n; i++) {\n"
    "    double p[V];\n"
    "    if (out[i] < 0) continue;\n"
    "    *loss += (float)(row_loss(w, in[i], out[i], p) * inv);\n"
    "    for (int v = 0; grad && v < V; v++)\n"
    "      grad[in[i] * V + v] += (float)((out[i] == V - 1 ? NAN : p[v] - (v == out[i])) * inv);\n"
    "  }\n"
    "}\n"
    "void micro(void *const *a) { batch(a, a[6]); }\n"
    "void first(void *const *a) {\n"
    "  for (int i = 0; i < V * V; i++) ((float *)a[6])[i] = 0;\n"
    "  micro(a);\n"
    "}\n"
    "void eval(void *const *a) { batch(a, 0); }\n"
    "/* w, m, grad, lr, norm, skipped, t */\n"
    "void update(void *const *a) {\n"
    "  float *w = a[0], *m = a[1], *g = a[2], lr = *(float *)a[3];\n"
    "  double norm = 0;\n"
    "  for (int i = 0; i < V * V; i++) norm += (double)g[i] * g[i];\n"
    "  *(float *)a[4] = (float)sqrt(norm);\n"
    "  if (isfinite(norm)) {\n"
    "    for (int i = 0; i < V * V; i++) m[i] = 0.9f * m[i] + g[i], w[i] -= lr * m[i];\n"
    "    ++*(int32_t *)a[6];\n"
    "  } else {\n"
    "    *(float *)a[5] += 1;\n"
    "  }\n"
    "}\n"
    "/* tokens, w, position, logits */\n"
    "void sample(void *const *a) {\n"
    "  const int32_t *in = a[0], at = *(const int32_t *)a[2];\n"
    "  for (int v = 0; v < V; v++) ((float *)a[3])[v] = ((const float *)a[1])[in[at] * V + v];\n"
    "}\n";

enum {
  TOY_W,
  TOY_M,
  TOY_GRAD,
  TOY_LR,
  TOY_INV,
  TOY_POSITION,
  TOY_LOSS,
  TOY_NORM,
  TOY_SKIPPED,
  TOY_EVAL,
  TOY_T,
  TOY_COUNT,
  TOY_VARS
};

typedef struct {
  int64_t T, micro_batch, accumulation, steps;
} ToySize;

static inline void toy_cmd(Arena *a, Program *p, ProgramCode *c, const char *name, int kernel,
                           int n, const Tensor *tensors) {
  p->kernel_names[kernel] = name;
  c->name = name;
  c->ncmds = 1;
  c->cmds = arena_array(a, Cmd, 1);
  c->cmds[0] = (Cmd){.kind = CMD_KERNEL, .kernel = kernel, .ntensors = n, .name = name};
  c->cmds[0].tensors = arena_copy(a, tensors, sizeof *tensors * (size_t)n);
}

static inline void toy_inputs(Arena *a, ProgramCode *c, Tensor tokens, const Tensor *targets) {
  c->inputs = arena_alloc(a, 2 * sizeof *c->inputs);
  c->inputs[0].name = "tokens", c->inputs[0].at = tokens;
  c->ninputs = 1;
  if (!targets) return;
  c->inputs[1].name = "targets", c->inputs[1].at = *targets;
  c->ninputs = 2;
}

/* Each variable at a multiple of 4096 bytes; data is set by the caller. */
static inline Program *toy_model(Arena *a, const char *source, ToySize s) {
  Program *p = arena_new_of(a, Program);
  *p = (Program){.arena = a,
                 .source = source,
                 .model = "Bigram",
                 .target = "cpu",
                 .plan_id = 77,
                 .seed = 5,
                 .params = TOY_V * TOY_V,
                 .vocab = TOY_V,
                 .target_input = "targets",
                 .ignore = -1,
                 .eval_data = -1,
                 .nonfinite_limit = 3,
                 .kernel_source = toy_kernels};
  const struct {
    const char *path;
    ProgramVarRole role;
    DType dtype;
  } vars[TOY_VARS] = {
      {"w", PV_PARAM, DT_F32},
      {"w:m", PV_MOMENT, DT_F32},
      {"w:grad", PV_ACCUM, DT_F32},
      {"step.lr", PV_SCALAR, DT_F32},
      {"step.inv_count", PV_SCALAR, DT_F32},
      {"step.position", PV_SCALAR, DT_I32},
      {"metric.loss", PV_METRIC, DT_F32},
      {"metric.grad_norm", PV_METRIC, DT_F32},
      {"metric.skipped", PV_METRIC, DT_F32},
      {"metric.eval", PV_METRIC, DT_F32},
      {"opt.t", PV_OPT, DT_I32},
      {"count", PV_SCALAR, DT_I32},
  };
  p->nvars = TOY_VARS;
  p->vars = arena_array(a, ProgramVar, TOY_VARS);
  for (int i = 0; i < TOY_VARS; i++) {
    bool matrix = i <= TOY_GRAD;
    Tensor t = matrix ? TOY_TENSOR(4096 * i, vars[i].dtype, TOY_V, TOY_V)
                      : toy_tensor(4096 * i, vars[i].dtype, 0, NULL);
    p->vars[i] = toy_var(vars[i].path, vars[i].role, t);
  }
  p->vars[TOY_W].init_kind = INIT_NORMAL, p->vars[TOY_W].init_b = 0.1;
  p->vars[TOY_M].of = p->vars[TOY_GRAD].of = TOY_W;
  p->vars[TOY_COUNT].init_kind = INIT_CONST,
  p->vars[TOY_COUNT].init_a = (double)(s.micro_batch * s.T);
  int64_t at = 4096 * TOY_VARS, bytes = round_up(4 * s.micro_batch * s.T, 4096);
  Tensor tokens = TOY_TENSOR(at, DT_I32, s.micro_batch, s.T),
         targets = TOY_TENSOR(at + bytes, DT_I32, s.micro_batch, s.T);
  Tensor one = TOY_TENSOR(at, DT_I32, 1, s.T), logits = TOY_TENSOR(at + bytes, DT_F32, TOY_V);
  p->persistent_bytes = at;
  p->arena_bytes = p->peak_bytes = at + bytes + (bytes > 4096 ? bytes : 4096);
#define AT(i) p->vars[i].at
  p->nkernels = p->nprograms = 5;
  p->kernel_names = arena_array(a, const char *, 5);
  p->programs = arena_array(a, ProgramCode, 5);
  toy_cmd(a, p, &p->programs[0], "micro", 0, 7,
          (Tensor[]){tokens, targets, AT(TOY_W), AT(TOY_INV), AT(TOY_COUNT), AT(TOY_LOSS),
                     AT(TOY_GRAD)});
  toy_cmd(a, p, &p->programs[1], "update", 1, 7,
          (Tensor[]){AT(TOY_W), AT(TOY_M), AT(TOY_GRAD), AT(TOY_LR), AT(TOY_NORM), AT(TOY_SKIPPED),
                     AT(TOY_T)});
  toy_cmd(a, p, &p->programs[2], "eval", 2, 6,
          (Tensor[]){tokens, targets, AT(TOY_W), AT(TOY_INV), AT(TOY_COUNT), AT(TOY_EVAL)});
  toy_cmd(a, p, &p->programs[3], "sample", 3, 4,
          (Tensor[]){one, AT(TOY_W), AT(TOY_POSITION), logits});
#undef AT
  toy_cmd(a, p, &p->programs[4], "first", 4, 7, p->programs[0].cmds[0].tensors);
  toy_inputs(a, &p->programs[0], tokens, &targets);
  toy_inputs(a, &p->programs[4], tokens, &targets);
  toy_inputs(a, &p->programs[2], tokens, &targets);
  toy_inputs(a, &p->programs[3], one, NULL);
  p->programs[3].nresults = 1;
  p->programs[3].results = arena_alloc(a, sizeof *p->programs[3].results);
  p->programs[3].results[0].name = "logits", p->programs[3].results[0].at = logits;
  p->nphases = 1;
  p->phases = arena_array(a, ProgramPhase, 1);
  p->phases[0] = (ProgramPhase){.name = "",
                                .micro = 0,
                                .first = 4,
                                .update = 1,
                                .eval = 2,
                                .sample = 3,
                                .micro_batch = s.micro_batch,
                                .accumulation = s.accumulation,
                                .tokens_per_sample = s.T,
                                .steps = s.steps,
                                .lr = 1,
                                .cycles = 1};
  p->ndata = 1;
  p->data = arena_array(a, ProgramData, 1);
  p->data[0] = (ProgramData){.name = "d", .kind = 1, .train = "text.txt", .shuffle = true};
  return p;
}

/* One program of the same model whose matrices live on the host: what it uses comes to a stage on
 * the device before the kernel, what it writes goes back behind it. Of `late` programs nobody waits
 * for what goes back but the end. */
static inline void toy_host_code(Arena *a, const Program *p, ProgramCode *c, int64_t stages,
                                 bool writes, bool late) {
  Cmd kernel = c->cmds[0], *to = c->cmds = arena_array(a, Cmd, 16);
  Tensor *t = kernel.tensors = arena_copy(a, kernel.tensors, sizeof *t * (size_t)kernel.ntensors);
  int var[3], n = 0, first;
  for (int i = 0; i < kernel.ntensors; i++)
    for (int v = TOY_W; v <= TOY_GRAD; v++)
      if (t[i].offset == p->vars[v].at.offset) var[n++] = v, t[i].offset += stages;
#define COPY(v, out)                                                            \
  (Cmd) {                                                                       \
    .kind = CMD_COPY, .name = p->vars[v].path, .where = "toy.mt:1:1", .copy = { \
      .to_host = out,                                                           \
      .device_offset = stages + p->vars[v].at.offset,                           \
      .host_offset = p->vars[v].at.offset,                                      \
      .bytes = 4 * TOY_V * TOY_V                                                \
    }                                                                           \
  }
#define WAIT(v, of)                                                                            \
  (Cmd) {                                                                                      \
    .kind = CMD_WAIT, .name = p->vars[v].path, .where = "toy.mt:1:1", .copy = {.awaited = of } \
  }
  for (int i = 0; i < n; i++) *to++ = COPY(var[i], false);
  for (int i = 0; i < n; i++) *to++ = WAIT(var[i], i);
  *to++ = kernel;
  first = (int)(to - c->cmds);
  for (int i = 0; writes && i < n; i++) *to++ = COPY(var[i], true);
  for (int i = 0; writes && !late && i < n; i++) *to++ = WAIT(var[i], first + i);
#undef COPY
#undef WAIT
  c->ncmds = (int)(to - c->cmds);
  c->ndeaths = n;
  c->deaths = arena_alloc(a, sizeof *c->deaths * (size_t)n);
  for (int i = 0; i < n; i++) {
    c->deaths[i].cmd = c->ncmds - 1;
    c->deaths[i].offset = stages + p->vars[var[i]].at.offset, c->deaths[i].bytes = 4096;
  }
}

/* Gives the matrices of a toy model the host for a place; everything else stays. The stages are
 * transient. */
static inline void toy_to_host(Arena *a, Program *p, bool late) {
  int64_t stages = p->arena_bytes;
  for (int i = 0; i < p->nprograms; i++)
    toy_host_code(a, p, &p->programs[i], stages, i < 2 || i == 4, late);
  for (int v = TOY_W; v <= TOY_GRAD; v++) p->vars[v].at.host = true;
  p->host_bytes = 4096 * (TOY_GRAD + 1);
  p->arena_bytes = p->peak_bytes = stages + 4096 * (TOY_GRAD + 1);
}

#endif
