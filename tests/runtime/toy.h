/* toy.h - a small hand-made program that fills every field of program.h, for tests of the runtime
 * that need no compiler. */
#ifndef MTC_TESTS_TOY_H
#define MTC_TESTS_TOY_H
#include "ir/graph.h"
#include "runtime/program.h"

#include <string.h>

static inline Tensor toy_tensor(int64_t offset, DType t, int rank, const int64_t *dim) {
  Tensor x = {.offset = offset, .dtype = t, .rank = rank};
  int64_t stride = 1;
  for (int i = rank; i-- > 0;) {
    x.dim[i] = dim[i];
    x.stride[i] = stride;
    stride *= dim[i];
  }
  return x;
}
#define TOY_TENSOR(offset, t, ...) \
  toy_tensor((offset), (t), COUNT_OF(((int64_t[]){__VA_ARGS__})), (int64_t[]){__VA_ARGS__})

static inline ProgramVar toy_var(const char *path, ProgramVarRole role, Tensor at) {
  return (ProgramVar){.path = path,
                      .role = role,
                      .at = at,
                      .trainable = role == PV_PARAM,
                      .of = -1,
                      .init_kind = INIT_ZEROS,
                      .init_from = -1};
}

enum { TOY_ARENA = 4096, TOY_HOST = 2048 };

/* A program that runs nothing; every field of every record differs from zero somewhere. */
static inline Program *toy_full_program(Arena *a) {
  Program *p = arena_new_of(a, Program);
  *p = (Program){.arena = a,
                 .source = "models/toy.mt",
                 .model = "Toy",
                 .preset = "tiny",
                 .target = "cpu",
                 .plan_id = 0x123456789abcdef0u,
                 .seed = 7,
                 .params = 16,
                 .vocab = 256,
                 .arena_bytes = TOY_ARENA,
                 .host_bytes = TOY_HOST,
                 .persistent_bytes = 1024,
                 .peak_bytes = 5000,
                 .budget_bytes = 6000,
                 .overhead_bytes = 1,
                 .reserve_bytes = 2,
                 .weights_name = "hf:toy",
                 .init = "w.safetensors",
                 .eval_val = true,
                 .eval_every = 5,
                 .eval_batches = 3,
                 .eval_metric = "accuracy",
                 .ckpt_every = 10,
                 .ckpt_keep = 2,
                 .ckpt_only = "*.a",
                 .target_input = "targets",
                 .ignore = -1,
                 .nonfinite_limit = 4,
                 .nonfinite_stop = true,
                 .cuda = true};
  p->nvars = 3;
  p->vars = arena_array(a, ProgramVar, 3);
  p->vars[0] = toy_var("w", PV_PARAM, TOY_TENSOR(0, DT_F32, 4, 4));
  p->vars[0].init_kind = INIT_NORMAL, p->vars[0].init_b = 0.02, p->vars[0].init_a = 1;
  p->vars[1] = toy_var("w:master", PV_MASTER, TOY_TENSOR(512, DT_F32, 4, 4));
  p->vars[1].init_kind = INIT_COPY, p->vars[1].init_from = 0, p->vars[1].of = 0;
  p->vars[2] = toy_var("w:m", PV_MOMENT, TOY_TENSOR(1024, DT_F32, 4, 4));
  p->vars[2].of = 0, p->vars[2].at.host = true;
  p->nkernels = 1;
  p->kernel_names = arena_array(a, const char *, 1);
  p->kernel_names[0] = "k0";
  p->kernel_source = "void k0(void) {}\n";
  p->nprograms = 1;
  p->programs = arena_array(a, ProgramCode, 1);
  ProgramCode *c = &p->programs[0];
  c->name = "micro";
  c->ncmds = 5;
  c->cmds = arena_array(a, Cmd, 5);
  Tensor *t = arena_array(a, Tensor, 3);
  for (int i = 0; i < 3; i++) t[i] = TOY_TENSOR(1024 + 512 * i, DT_F32, 4, 4);
  c->cmds[0] = (Cmd){.kind = CMD_GEMM,
                     .ntensors = 3,
                     .tensors = t,
                     .name = "h.0.q",
                     .where = "toy.mt:3:1",
                     .gemm = {.batch = 1,
                              .m = 4,
                              .n = 4,
                              .k = 4,
                              .lda = 4,
                              .ldb = 4,
                              .ldc = 4,
                              .trans_a = true,
                              .accumulate = true,
                              .product = DT_BF16,
                              .tf32 = true}};
  c->cmds[1] = (Cmd){.kind = CMD_KERNEL,
                     .ntensors = 1,
                     .tensors = t,
                     .workspace_offset = 2560,
                     .workspace_bytes = 100,
                     .accumulate = true,
                     .nlaunches = 1,
                     .launches = {{.grid = {2, 3, 4},
                                   .threads = 128,
                                   .shared = 64,
                                   .role = 1,
                                   .rows = 2,
                                   .cols = 3,
                                   .store_rows = 4,
                                   .table_offset = 8}}};
  c->cmds[2] = (Cmd){.kind = CMD_FILL, .ntensors = 1, .tensors = t};
  c->cmds[3] = (Cmd){.kind = CMD_COPY,
                     .copy = {.to_host = true, .device_offset = 1024, .host_offset = 1024, .bytes = 64}};
  c->cmds[4] = (Cmd){.kind = CMD_WAIT, .copy = {.awaited = 3}};
  c->ninputs = c->nresults = c->ndeaths = 1;
  c->inputs = arena_alloc(a, sizeof *c->inputs);
  c->inputs[0].name = "tokens", c->inputs[0].at = TOY_TENSOR(2048, DT_I32, 2, 8);
  c->results = arena_alloc(a, sizeof *c->results);
  c->results[0].name = "logits", c->results[0].at = TOY_TENSOR(2048, DT_F32, 8);
  c->deaths = arena_alloc(a, sizeof *c->deaths);
  c->deaths[0].cmd = 1, c->deaths[0].offset = 1024, c->deaths[0].bytes = 64;
  p->nphases = 1;
  p->phases = arena_array(a, ProgramPhase, 1);
  p->phases[0] = (ProgramPhase){.name = "long",
                                .first = -1,
                                .eval = -1,
                                .sample = -1,
                                .micro_batch = 2,
                                .accumulation = 3,
                                .tokens_per_sample = 8,
                                .steps = 100,
                                .lr = 1e-3,
                                .sched_kind = 2,
                                .warmup = 10,
                                .final = 0.1,
                                .decay = 0.2,
                                .cycles = 1,
                                .data_val = true,
                                .epochs = 1.5,
                                .final_is_lr = true,
                                .est_step_seconds = 0.5};
  p->ndata = 1;
  p->data = arena_array(a, ProgramData, 1);
  p->data[0] = (ProgramData){.name = "d",
                             .kind = 2,
                             .train = "t",
                             .val = "v",
                             .dtype = "u16",
                             .tokenizer = "x",
                             .holdout = 0.1,
                             .prompt_loss = true,
                             .shuffle = true,
                             .too_long = 1};
  p->nweights = 1;
  p->weights = arena_array(a, ProgramWeight, 1);
  p->weights[0] = (ProgramWeight){"w.weight", 0, true};
  p->nimages = 2;
  p->images = arena_alloc(a, 2 * sizeof *p->images);
  p->images[0].arch = p->images[1].arch = "sm_90a";
  p->images[0].data = "cubin one", p->images[0].size = 9;
  p->images[1].data = "two", p->images[1].size = 3;
  return p;
}

#endif
