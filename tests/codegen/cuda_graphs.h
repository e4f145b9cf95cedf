/* cuda_graphs.h - graphs whose loop nests are what training consists of, for the tests of the CUDA
 * target: one row each, forward and backward, at any number of rows and columns. */
#ifndef CUDA_GRAPHS_H
#define CUDA_GRAPHS_H
#include <math.h>
#include "ir/graph.h"
#include "passes/optimizer.h"
#include "passes/precision.h"

/* Inputs draw uniform values between lo and hi; integers below hi. */
typedef struct {
  const char *name;
  ValueId value;
  double lo, hi;
} GraphInput;

typedef struct {
  Arena *a;
  Graph *g;
  int64_t rows, cols;
  DType t; /* of activations */
  VEC(GraphInput) inputs;
  int results;
} KernelGraph;

static inline ValueId kg_input(KernelGraph *k, DType t, Shape s, double lo, double hi) {
  const char *name = intern_printf("x%d", k->inputs.n);
  ValueId v = g_input(k->g, name, t, s);
  vec_push(k->a, &k->inputs, ((GraphInput){name, v, lo, hi}));
  return v;
}
static inline ValueId kg_wide(KernelGraph *k) {
  return kg_input(k, k->t, SHAPE(k->rows, k->cols), -2, 2);
}
static inline ValueId kg_f32(KernelGraph *k, ValueId v) {
  return g_cast(k->g, v, DT_F32);
}
static inline void kg_out(KernelGraph *k, ValueId v) {
  graph_result(k->g, intern_printf("y%d", k->results++), v);
}
static inline ValueId kg_narrow(KernelGraph *k, ValueId v) {
  return g_cast(k->g, v, k->t);
}

/* Results: y in the activations' type and the gradients of wrt, with dy as an input. */
static inline void kg_both_ways(KernelGraph *k, ValueId y, int n, const ValueId *wrt) {
  y = kg_narrow(k, y);
  kg_out(k, y);
  k->g->here.phase = PH_BACKWARD;
  ValueId dy = kg_input(k, k->t, val(k->g, y)->shape, -1, 1), grad[4];
  graph_gradients(k->g, y, dy, n, wrt, grad);
  for (int i = 0; i < n; i++) kg_out(k, grad[i]);
}

static inline void kg_layernorm(KernelGraph *k) {
  ValueId x = kg_wide(k), w = kg_input(k, k->t, SHAPE(k->cols), .5, 1.5),
          b = kg_input(k, k->t, SHAPE(k->cols), -1, 1);
  ValueId y = c_layernorm(k->g, kg_f32(k, x), kg_f32(k, w), kg_f32(k, b), 1e-5);
  kg_both_ways(k, y, 3, (ValueId[]){x, w, b});
}
static inline void kg_residual_norm(KernelGraph *k) { /* the residual stream is an output too */
  ValueId x = kg_wide(k), r = kg_wide(k), w = kg_input(k, DT_F32, SHAPE(k->cols), .5, 1.5);
  ValueId s = g_binary(k->g, OP_ADD, x, r);
  kg_out(k, s);
  kg_both_ways(k, c_rmsnorm(k->g, kg_f32(k, s), w, 1e-5), 2, (ValueId[]){x, w});
}
/* Between two parts of a transformer's block: a bias and the residual stream are added, the sum is
 * an output with a gradient of its own. */
static inline void kg_block_norm(KernelGraph *k) {
  ValueId x = kg_wide(k), r = kg_wide(k), b = kg_input(k, k->t, SHAPE(k->cols), -1, 1),
          w = kg_input(k, k->t, SHAPE(k->cols), .5, 1.5),
          c = kg_input(k, k->t, SHAPE(k->cols), -1, 1);
  ValueId s = g_binary(k->g, OP_ADD, r, g_bin(k->g, OP_ADD, x, b));
  ValueId y = c_layernorm(k->g, kg_f32(k, s), kg_f32(k, w), kg_f32(k, c), 1e-5);
  kg_both_ways(k, g_binary(k->g, OP_ADD, kg_narrow(k, y), s), 4, (ValueId[]){r, b, w, c});
}
static inline void kg_rmsnorm(KernelGraph *k) {
  ValueId x = kg_wide(k), w = kg_input(k, k->t, SHAPE(k->cols), .5, 1.5);
  kg_both_ways(k, c_rmsnorm(k->g, kg_f32(k, x), kg_f32(k, w), 1e-5), 2, (ValueId[]){x, w});
}
static inline void kg_softmax(KernelGraph *k) {
  ValueId x = kg_wide(k);
  kg_both_ways(k, c_softmax(k->g, kg_f32(k, x), 1), 1, &x);
}
static inline void kg_gelu_tanh(KernelGraph *k) {
  ValueId x = kg_wide(k), b = kg_input(k, k->t, SHAPE(k->cols), -1, 1);
  ValueId y = c_gelu(k->g, kg_f32(k, g_bin(k->g, OP_ADD, x, b)), true);
  kg_both_ways(k, y, 2, (ValueId[]){x, b});
}
static inline void kg_gelu_erf(KernelGraph *k) {
  ValueId x = kg_wide(k);
  kg_both_ways(k, c_gelu(k->g, kg_f32(k, x), false), 1, &x);
}
static inline void kg_swiglu(KernelGraph *k) {
  ValueId gate = kg_wide(k), up = kg_wide(k);
  ValueId y = g_binary(k->g, OP_MUL, c_silu(k->g, kg_f32(k, gate)), kg_f32(k, up));
  kg_both_ways(k, y, 2, (ValueId[]){gate, up});
}
static inline void kg_cross_entropy(KernelGraph *k) { /* in place of the logits: their gradient */
  ValueId x = kg_input(k, k->t, SHAPE(k->rows, k->cols), -8, 8);
  ValueId t = kg_input(k, DT_I32, SHAPE(k->rows), -1, (double)k->cols);
  ValueId loss = c_cross_entropy(k->g, kg_f32(k, x), t, -1, 0), grad;
  kg_out(k, loss);
  k->g->here.phase = PH_BACKWARD;
  graph_gradients(k->g, loss, g_like(k->g, loss, 1), 1, &x, &grad);
  kg_out(k, grad);
}
static inline void kg_dropout(KernelGraph *k) {
  ValueId x = kg_wide(k), r = kg_wide(k);
  ValueId y = g_binary(k->g, OP_ADD, r, kg_narrow(k, c_dropout(k->g, kg_f32(k, x), 0.1, true)));
  kg_both_ways(k, y, 2, (ValueId[]){x, r});
}
static inline void kg_rope(KernelGraph *k) {
  int64_t dh = 64, h = k->cols / dh;
  Shape s = SHAPE(1, k->rows, h, dh);
  ValueId x = kg_input(k, k->t, s, -2, 2);
  kg_both_ways(k, c_rope(k->g, kg_f32(k, x), 10000, NULL), 1, &x);
}
static inline void kg_rope_scaled(KernelGraph *k) {
  int64_t dh = 64, h = k->cols / dh;
  ValueId x = kg_input(k, k->t, SHAPE(1, k->rows, h, dh), -2, 2);
  const RopeScaling scaling = {8, 1, 4, 8192};
  kg_both_ways(k, c_rope(k->g, kg_f32(k, x), 500000, &scaling), 1, &x);
}
static inline void kg_adamw(KernelGraph *k) {
  Graph *g = k->g;
  Shape s = SHAPE(k->rows, k->cols);
  ValueId p = kg_input(k, DT_F32, s, -1, 1), d = kg_input(k, DT_F32, s, -1, 1),
          m = kg_input(k, DT_F32, s, -1, 1), v = kg_input(k, DT_F32, s, 0, 1),
          lr = kg_input(k, DT_F32, shape_scalar(), 1e-4, 1e-3),
          clip = kg_input(k, DT_F32, shape_scalar(), .5, 1),
          step = kg_input(k, DT_F32, shape_scalar(), 1, 9);
  ValueId one = g_const(g, DT_F32, shape_scalar(), 1);
  ValueId c1 =
      g_bin(g, OP_SUB, one, g_bin(g, OP_POW, g_const(g, DT_F32, shape_scalar(), .9), step));
  ValueId c2 =
      g_bin(g, OP_SUB, one, g_bin(g, OP_POW, g_const(g, DT_F32, shape_scalar(), .95), step));
  ValueId x = g_bin(g, OP_MUL, d, clip);
  ValueId m2 = g_bin(g, OP_ADD, g_bin(g, OP_MUL, m, g_const(g, DT_F32, shape_scalar(), .9)),
                     g_bin(g, OP_MUL, x, g_const(g, DT_F32, shape_scalar(), .1)));
  ValueId v2 =
      g_bin(g, OP_ADD, g_bin(g, OP_MUL, v, g_const(g, DT_F32, shape_scalar(), .95)),
            g_bin(g, OP_MUL, g_bin(g, OP_MUL, x, x), g_const(g, DT_F32, shape_scalar(), .05)));
  ValueId den = g_bin(g, OP_ADD, g_unary(g, OP_SQRT, g_bin(g, OP_DIV, v2, c2)),
                      g_const(g, DT_F32, shape_scalar(), 1e-8));
  ValueId u = g_bin(g, OP_DIV, g_bin(g, OP_DIV, m2, c1), den);
  ValueId p2 = g_bin(
      g, OP_SUB,
      g_bin(g, OP_MUL, p,
            g_bin(g, OP_SUB, one, g_bin(g, OP_MUL, lr, g_const(g, DT_F32, shape_scalar(), .1)))),
      g_bin(g, OP_MUL, u, lr));
  kg_out(k, m2);
  kg_out(k, v2);
  kg_out(k, p2);
  kg_out(k, kg_narrow(k, p2));
  kg_out(k, g_like(g, d, 0)); /* the accumulator is cleared */
}

/* The update of one matrix as the planner has it, in given formats: the graph is the optimizer's own. */
static inline void kg_update(KernelGraph *k, OptKind kind, int master, int moments) {
  Job *j = arena_new_of(k->a, Job);
  j->arena = k->a;
  j->vars = k->g->vars;
  j->precision =
      (Precision){.compute = k->t, .frozen = PREC_AUTO, .master = master, .moments = moments};
  var_add(j->vars, (Var){.path = "w",
                         .role = VAR_PARAM,
                         .dtype = k->t,
                         .shape = SHAPE(k->rows, k->cols),
                         .trainable = true,
                         .of = -1,
                         .loc = NO_LOC,
                         .layer = -1});
  Optimizer o = {.kind = kind,
                 .beta1 = .9,
                 .beta2 = .95,
                 .eps = 1e-8,
                 .momentum = .9,
                 .decay = .8,
                 .floor = 1e-3,
                 .threshold = 1,
                 .weight_decay = .1};
  vec_push(k->a, &j->phases, ((TrainPhase){.name = "", .opt = o, .clip = 1}));
  precision_vars(j);
  optimizer_vars(j);
  const char *name = k->g->name;
  k->g = optimizer_graph(j, k->a, 0, false);
  k->g->name = name;
}
static inline void kg_adamw_split(KernelGraph *k) { kg_update(k, OPT_ADAMW, PREC_SPLIT, DT_F32); }
static inline void kg_adamw_blocks(KernelGraph *k) { kg_update(k, OPT_ADAMW, DT_F32, DT_I8); }
static inline void kg_adamw_split_blocks(KernelGraph *k) { kg_update(k, OPT_ADAMW, PREC_SPLIT, DT_I8); }
static inline void kg_adamw_random(KernelGraph *k) { kg_update(k, OPT_ADAMW, DT_BF16, DT_BF16); }
static inline void kg_lion_blocks(KernelGraph *k) { kg_update(k, OPT_LION, DT_F32, DT_I8); }
static inline void kg_sgd(KernelGraph *k) { kg_update(k, OPT_SGD, DT_F32, DT_BF16); }
static inline void kg_adafactor(KernelGraph *k) { kg_update(k, OPT_ADAFACTOR, DT_F32, DT_F32); }

static inline void kg_column_sum(KernelGraph *k) {
  ValueId x = kg_wide(k);
  kg_out(k, g_reduce(k->g, OP_SUM, kg_f32(k, x), 1, (int64_t[]){0}));
}
static inline void kg_norm(KernelGraph *k) {
  ValueId x = kg_f32(k, kg_wide(k));
  kg_out(k, g_reduce(k->g, OP_SUM, g_binary(k->g, OP_MUL, x, x), 2, (int64_t[]){0, 1}));
}
static inline void kg_embedding(KernelGraph *k) {
  int64_t v = 97;
  ValueId table = kg_input(k, k->t, SHAPE(v, k->cols), -1, 1),
          pos = kg_input(k, k->t, SHAPE(k->rows, k->cols), -1, 1);
  ValueId ids = kg_input(k, DT_I32, SHAPE(k->rows), 0, (double)v);
  kg_out(k, g_binary(k->g, OP_ADD, g_gather(k->g, table, ids), pos));
}
static inline void kg_copies(KernelGraph *k) { /* what strides cannot say */
  ValueId x = kg_wide(k), y = kg_wide(k);
  kg_out(k, g_reshape(k->g, g_transpose(k->g, x, (int64_t[]){1, 0}), SHAPE(k->rows * k->cols)));
  ValueId half = g_slice(k->g, y, 1, 0, k->cols / 2),
          rest = g_slice(k->g, y, 1, k->cols / 2, k->cols);
  kg_out(k, g_concat(k->g, 2, (ValueId[]){g_unary(k->g, OP_NEG, rest), half}, 1));
  kg_out(k, g_pad(k->g, half, (int64_t[]){1, 3}, (int64_t[]){0, 5}));
}
static inline void kg_extremes(KernelGraph *k) {
  ValueId x = kg_f32(k, kg_wide(k));
  kg_out(k, g_reduce(k->g, OP_AMAX, x, 1, (int64_t[]){1}));
  kg_out(k, g_reduce(k->g, OP_ARGMAX, x, 1, (int64_t[]){1}));
}
static inline void kg_copy(KernelGraph *k) {
  kg_out(k, g_unary(k->g, OP_NEG, kg_wide(k)));
}

static const struct KernelGraphRow {
  const char *name;
  void (*build)(KernelGraph *k);
  bool any_width; /* rows may be as long as a vocabulary */
  bool update;    /* of an optimizer's state */
} kernel_graph_rows[] = {
    {"layernorm", kg_layernorm, false, false},
    {"residual_norm", kg_residual_norm, false, false},
    {"block_norm", kg_block_norm, false, false},
    {"rmsnorm", kg_rmsnorm, false, false},
    {"softmax", kg_softmax, true, false},
    {"gelu_tanh", kg_gelu_tanh, true, false},
    {"gelu_erf", kg_gelu_erf, false, false},
    {"swiglu", kg_swiglu, false, false},
    {"cross_entropy", kg_cross_entropy, true, false},
    {"dropout", kg_dropout, false, false},
    {"rope", kg_rope, false, false},
    {"rope_scaled", kg_rope_scaled, false, false},
    {"adamw", kg_adamw, true, false},
    {"adamw_split", kg_adamw_split, true, true},
    {"adamw_blocks", kg_adamw_blocks, true, true},
    {"adamw_split_blocks", kg_adamw_split_blocks, true, true},
    {"adamw_random", kg_adamw_random, true, true},
    {"lion_blocks", kg_lion_blocks, true, true},
    {"sgd", kg_sgd, true, true},
    {"adafactor", kg_adafactor, true, true},
    {"column_sum", kg_column_sum, true, false},
    {"norm", kg_norm, true, false},
    {"embedding", kg_embedding, true, false},
    {"copies", kg_copies, true, false},
    {"extremes", kg_extremes, true, false},
    {"copy", kg_copy, true, false},
};

static inline KernelGraph kernel_graph(Arena *a, int row, int64_t rows, int64_t cols, DType t) {
  KernelGraph k = {.a = a, .rows = rows, .cols = cols, .t = t};
  k.g = graph_new(a, kernel_graph_rows[row].name, vars_new(a));
  k.g->here.path = kernel_graph_rows[row].name;
  kernel_graph_rows[row].build(&k);
  return k;
}

#endif
