/* problems.h - recompute problems made by code: training steps of transformers, residual networks,
 * U-Nets and perceptrons, one op each kernel, in execution order, with roofline times (650 TFLOP/s
 * GEMM, 300 attention, 400 convolution, 3.8 TB/s, 3 us a launch). Weights, gradients and optimizer
 * state are persistent and not counted. */
#ifndef TEST_PROBLEMS_H
#define TEST_PROBLEMS_H
#include <stdlib.h>
#include "passes/recompute.h"

#define GEMM_RATE      650e12
#define ATTENTION_RATE 300e12
#define CONV_RATE      400e12
#define MEMORY_RATE    3.8e12
enum { LAUNCH_NS = 3000, NO_VALUE = -1 };

typedef struct {
  Arena *a;
  VEC(RecOp) op;
  VEC(int64_t) bytes;
  int layer;
  bool bwd;
} Maker;

/* What an op costs. */
typedef struct {
  double flops, bytes, rate;
} Cost;

static inline int maker_value(Maker *g, double bytes) {
  vec_push(g->a, &g->bytes, (int64_t)bytes);
  return g->bytes.n - 1;
}

/* Adds an op; ins ends with NO_VALUE, of which the first is taken over in place when `inplace`.
 * Returns its first output; the others follow. Ops without outputs may run only once. */
static inline int maker_op(Maker *g, const char *name, const int *ins, int nout, const double *outs,
                           Cost c, double ws, bool inplace) {
  double flops = c.flops / (c.rate > 0 ? c.rate : GEMM_RATE), bytes = c.bytes / MEMORY_RATE;
  RecOp o = {
      .name = name, .layer = g->layer, .bwd = g->bwd, .alias = -1, .nout = nout, .ws = (int64_t)ws};
  o.ns = (int64_t)(LAUNCH_NS + (flops > bytes ? flops : bytes) * 1e9);
  while (ins[o.nin] != NO_VALUE) o.nin++;
  o.in = arena_copy(g->a, ins, sizeof *ins * (size_t)(o.nin + 1));
  int *out = arena_array(g->a, int, nout + 1);
  for (int i = 0; i < nout; i++) out[i] = maker_value(g, outs[i]);
  o.out = out;
  if (inplace) o.alias = ins[0];
  o.redo = !g->bwd && nout > 0;
  vec_push(g->a, &g->op, o);
  return nout ? out[0] : NO_VALUE;
}
#define INS(...) ((const int[]){__VA_ARGS__, NO_VALUE})
#define OUTS(...) \
  (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), ((const double[]){__VA_ARGS__})
#define NO_INS  ((const int[]){NO_VALUE})
#define NO_OUTS 0, NULL

static inline RecProblem maker_problem(Maker *g) {
  return (RecProblem){.nop = g->op.n, .op = g->op.at, .nval = g->bytes.n, .bytes = g->bytes.at};
}

/* ---- transformers ---- */
typedef struct {
  int layers, width, heads, length, batch, vocabulary, hidden; /* hidden 0: 4 x width */
  bool llama;                                                  /* RoPE and SwiGLU */
} Transformer;

typedef struct {
  int x, h1, s1, q, o, lse, m, h2, s2, f, a;
} TransformerLayer;

static inline Cost gemm_cost(double m, double n, double k) {
  return (Cost){2.0 * m * n * k, 2.0 * (m * n + n * k + m * k), GEMM_RATE};
}
static inline Cost weight_gradient_cost(double n, double k, double m) {
  return (Cost){2.0 * m * n * k, 2.0 * (m * n + m * k) + 8.0 * n * k, GEMM_RATE};
}
static inline Cost traffic(double bytes) {
  return (Cost){0, bytes, GEMM_RATE};
}

static inline int transformer_forward(Maker *g, const Transformer *p, int x, TransformerLayer *s) {
  double t = (double)p->length * p->batch, C = p->width, F = p->hidden, E = 2 * t * C;
  double attention = 2.0 * p->length * t * C;
  s->x = x;
  s->h1 = maker_op(g, "norm1", INS(x), OUTS(E, 8 * t), traffic(2 * E), 0, false);
  s->s1 = s->h1 + 1;
  s->q = maker_op(g, "qkv", INS(s->h1), OUTS(3 * E), gemm_cost(t, 3 * C, C), 0, false);
  if (p->llama) s->q = maker_op(g, "rope", INS(s->q), OUTS(3 * E), traffic(4 * E / 3 * 2), 0, true);
  s->o = maker_op(g, "attn", INS(s->q), OUTS(E, 4 * t * p->heads),
                  (Cost){attention, 4 * E, ATTENTION_RATE}, 0, false);
  s->lse = s->o + 1;
  s->m = maker_op(g, "proj+res", INS(s->o, x), OUTS(E), gemm_cost(t, C, C), 0, false);
  s->h2 = maker_op(g, "norm2", INS(s->m), OUTS(E, 8 * t), traffic(2 * E), 0, false);
  s->s2 = s->h2 + 1;
  if (p->llama) {
    s->f = maker_op(g, "gateup", INS(s->h2), OUTS(4 * t * F), gemm_cost(t, 2 * F, C), 0, false);
    s->a = maker_op(g, "swiglu", INS(s->f), OUTS(2 * t * F), traffic(6.0 * t * F), 0, false);
  } else {
    s->f = maker_op(g, "fc1", INS(s->h2), OUTS(2 * t * F), gemm_cost(t, F, C), 0, false);
    s->a = maker_op(g, "gelu", INS(s->f), OUTS(2 * t * F), traffic(4.0 * t * F), 0, false);
  }
  return maker_op(g, "fc2+res", INS(s->a, s->m), OUTS(E), gemm_cost(t, C, F), 0, false);
}

static inline int transformer_backward(Maker *g, const Transformer *p, int d,
                                       const TransformerLayer *s) {
  double t = (double)p->length * p->batch, C = p->width, F = p->hidden, E = 2 * t * C;
  double attention = 2.0 * p->length * t * C, wide = p->llama ? 2 * F : F;
  int da = maker_op(g, "fc2_dx", INS(d), OUTS(2 * t * F), gemm_cost(t, F, C), 0, false), df;
  maker_op(g, "fc2_dw", INS(d, s->a), NO_OUTS, weight_gradient_cost(F, C, t), 0, false);
  if (p->llama) {
    df = maker_op(g, "swiglu_b", INS(da, s->f), OUTS(4 * t * F), traffic(10.0 * t * F), 0, false);
  } else {
    df = maker_op(g, "gelu_b", INS(da, s->f), OUTS(2 * t * F), traffic(6.0 * t * F), 0, true);
  }
  maker_op(g, "fc1_dw", INS(df, s->h2), NO_OUTS, weight_gradient_cost(wide, C, t), 0, false);
  int dh = maker_op(g, "fc1_dx", INS(df), OUTS(E), gemm_cost(t, C, wide), 0, false);
  d = maker_op(g, "norm2_b", INS(d, dh, s->m, s->s2), OUTS(E), traffic(5 * E), 0, true);
  maker_op(g, "proj_dw", INS(d, s->o), NO_OUTS, weight_gradient_cost(C, C, t), 0, false);
  int d_o = maker_op(g, "proj_dx", INS(d), OUTS(E), gemm_cost(t, C, C), 0, false);
  int dq =
      maker_op(g, "attn_b", INS(d_o, s->q, s->o, s->lse), OUTS(3 * E),
               (Cost){2.5 * attention, 12 * E, ATTENTION_RATE}, 2 * E + 4 * t * p->heads, false);
  if (p->llama) dq = maker_op(g, "rope_b", INS(dq), OUTS(3 * E), traffic(4 * E / 3 * 2), 0, true);
  maker_op(g, "qkv_dw", INS(dq, s->h1), NO_OUTS, weight_gradient_cost(3 * C, C, t), 0, false);
  dh = maker_op(g, "qkv_dx", INS(dq), OUTS(E), gemm_cost(t, C, 3 * C), 0, false);
  return maker_op(g, "norm1_b", INS(d, dh, s->x, s->s1), OUTS(E), traffic(5 * E), 0, true);
}

static inline RecProblem transformer(Arena *a, Transformer p) {
  enum { CHUNKS = 8 };
  Maker g = {.a = a};
  if (!p.hidden) p.hidden = 4 * p.width;
  double t = (double)p.length * p.batch, C = p.width, E = 2 * t * C, V = p.vocabulary;
  TransformerLayer *s = arena_array(a, TransformerLayer, p.layers);
  int x = maker_op(&g, "embed", NO_INS, OUTS(E), traffic(2 * E), 0, false);
  for (int l = 0; l < p.layers; l++) {
    g.layer = l + 1;
    x = transformer_forward(&g, &p, x, &s[l]);
  }
  g.layer = p.layers + 1;
  int hf = maker_op(&g, "normf", INS(x), OUTS(E, 8 * t), traffic(2 * E), 0, false);
  g.bwd = true;
  int64_t chunk = (int64_t)t / CHUNKS * 2 * p.vocabulary;
  int dh = maker_op(&g, "head", INS(hf), OUTS(E),
                    (Cost){6.0 * t * C * V, 8.0 * t * V / CHUNKS, GEMM_RATE}, (double)chunk, false);
  int d = maker_op(&g, "normf_b", INS(dh, x, hf + 1), OUTS(E), traffic(4 * E), 0, true);
  for (int l = p.layers - 1; l >= 0; l--) {
    g.layer = l + 1;
    d = transformer_backward(&g, &p, d, &s[l]);
  }
  g.layer = 0;
  maker_op(&g, "embed_b", INS(d), NO_OUTS, traffic(3 * E), 0, false);
  return maker_problem(&g);
}

/* ---- convolutions ---- */
static inline Cost conv_cost(double hw, double ci, double co, double k, double batch) {
  return (Cost){2.0 * batch * hw * ci * co * k * k, 2.0 * batch * hw * (ci + co), CONV_RATE};
}

/* ---- residual networks: bottleneck blocks, batch norm and ReLU fused ---- */
typedef struct {
  int blocks, width;
} Stage;

typedef struct {
  int layer, x, cx, w, c1, s1, a1, c2, s2, a2, c3, s3, cs, y;
  double hin, hw;
} ResidualBlock;

static inline double plane(double batch, double c, double hw) {
  return 2 * batch * hw * c;
}

static inline void residual_forward(Maker *g, double B, ResidualBlock *b) {
  double w = b->w, hin = b->hin, hw = b->hw;
  b->c1 = maker_op(g, "conv1", INS(b->x), OUTS(plane(B, w, hin)), conv_cost(hin, b->cx, w, 1, B), 0,
                   false);
  b->a1 = maker_op(g, "bnrelu1", INS(b->c1), OUTS(plane(B, w, hin), 8 * w),
                   traffic(2 * plane(B, w, hin)), 0, false);
  b->s1 = b->a1 + 1;
  b->c2 =
      maker_op(g, "conv2", INS(b->a1), OUTS(plane(B, w, hw)), conv_cost(hw, w, w, 3, B), 0, false);
  b->a2 = maker_op(g, "bnrelu2", INS(b->c2), OUTS(plane(B, w, hw), 8 * w),
                   traffic(2 * plane(B, w, hw)), 0, false);
  b->s2 = b->a2 + 1;
  b->c3 = maker_op(g, "conv3", INS(b->a2), OUTS(plane(B, 4 * w, hw)), conv_cost(hw, w, 4 * w, 1, B),
                   0, false);
  int side = b->x;
  if (b->cs)
    side = b->cs = maker_op(g, "convs", INS(b->x), OUTS(plane(B, 4 * w, hw)),
                            conv_cost(hw, b->cx, 4 * w, 1, B), 0, false);
  b->y = maker_op(g, "bnaddrelu", INS(b->c3, side), OUTS(plane(B, 4 * w, hw), 32 * w),
                  traffic(3 * plane(B, 4 * w, hw)), 0, false);
  b->s3 = b->y + 1;
}

static inline int residual_backward(Maker *g, double B, const ResidualBlock *b, int d) {
  double w = b->w, hin = b->hin, hw = b->hw, wide = plane(B, 4 * w, hw);
  d = maker_op(g, "relu_b", INS(d, b->y), OUTS(wide), traffic(3 * wide), 0, true);
  int dc3 = maker_op(g, "bn3_b", INS(d, b->c3, b->s3), OUTS(wide), traffic(3 * wide), 0, false);
  maker_op(g, "conv3_dw", INS(dc3, b->a2), NO_OUTS, conv_cost(hw, w, 4 * w, 1, B), 0, false);
  int da2 = maker_op(g, "conv3_dx", INS(dc3), OUTS(plane(B, w, hw)), conv_cost(hw, w, 4 * w, 1, B),
                     0, false);
  int dc2 = maker_op(g, "bn2_b", INS(da2, b->c2, b->s2), OUTS(plane(B, w, hw)),
                     traffic(4 * plane(B, w, hw)), 0, true);
  maker_op(g, "conv2_dw", INS(dc2, b->a1), NO_OUTS, conv_cost(hw, w, w, 3, B), 0, false);
  int da1 = maker_op(g, "conv2_dx", INS(dc2), OUTS(plane(B, w, hin)), conv_cost(hw, w, w, 3, B), 0,
                     false);
  int dc1 = maker_op(g, "bn1_b", INS(da1, b->c1, b->s1), OUTS(plane(B, w, hin)),
                     traffic(4 * plane(B, w, hin)), 0, true);
  maker_op(g, "conv1_dw", INS(dc1, b->x), NO_OUTS, conv_cost(hin, b->cx, w, 1, B), 0, false);
  if (b->cs) {
    int dcs = maker_op(g, "bns_b", INS(d, b->cs, b->s3), OUTS(wide), traffic(3 * wide), 0, true);
    maker_op(g, "convs_dw", INS(dcs, b->x), NO_OUTS, conv_cost(hw, b->cx, 4 * w, 1, B), 0, false);
    d = maker_op(g, "convs_dx", INS(dcs), OUTS(plane(B, b->cx, hin)),
                 conv_cost(hw, b->cx, 4 * w, 1, B), 0, false);
  }
  return maker_op(g, "conv1_dx+", INS(d, dc1), OUTS(plane(B, b->cx, hin)),
                  conv_cost(hin, b->cx, w, 1, B), 0, true);
}

static inline RecProblem resnet(Arena *a, double B, int nstage, const Stage *stage) {
  enum { IMAGE = 224, CLASSES = 1000 };
  Maker g = {.a = a};
  double half = IMAGE / 2 * (IMAGE / 2), hw = IMAGE / 4 * (IMAGE / 4), stem = 2 * B * half * 64;
  VEC(ResidualBlock) blocks = {0};
  int c = maker_op(&g, "conv", NO_INS, OUTS(stem), conv_cost(half, 3, 64, 7, B), 0, false);
  int act =
      maker_op(&g, "bnrelu", INS(c), OUTS(stem, 512), traffic(2 * plane(B, 64, half)), 0, false);
  int x = maker_op(&g, "pool", INS(act), OUTS(plane(B, 64, hw), plane(B, 64, hw) / 2),
                   traffic(plane(B, 64, half)), 0, false);
  int index = x + 1, cx = 64;
  for (int s = 0; s < nstage; s++)
    for (int k = 0; k < stage[s].blocks; k++) {
      double hin = hw;
      if (k == 0 && s) hw /= 4;
      ResidualBlock b = {.layer = ++g.layer,
                         .x = x,
                         .cx = cx,
                         .w = stage[s].width,
                         .hin = hin,
                         .hw = hw,
                         .cs = k == 0};
      residual_forward(&g, B, &b);
      vec_push(a, &blocks, b);
      x = b.y;
      cx = 4 * stage[s].width;
    }
  g.layer++;
  int pooled = maker_op(&g, "gap", INS(x), OUTS(2 * B * cx), traffic(plane(B, cx, hw)), 0, false);
  g.bwd = true;
  int dp = maker_op(&g, "head", INS(pooled), OUTS(2 * B * cx),
                    (Cost){6.0 * B * cx * CLASSES, 0, GEMM_RATE}, 4 * B * CLASSES, false);
  int d =
      maker_op(&g, "gap_b", INS(dp), OUTS(plane(B, cx, hw)), traffic(plane(B, cx, hw)), 0, false);
  for (int i = blocks.n - 1; i >= 0; i--) {
    g.layer = blocks.at[i].layer;
    d = residual_backward(&g, B, &blocks.at[i], d);
  }
  g.layer = 0;
  int da = maker_op(&g, "pool_b", INS(d, index), OUTS(stem), traffic(plane(B, 64, half)), 0, false);
  int dc = maker_op(&g, "bn_b", INS(da, c, act + 1), OUTS(stem), traffic(4 * plane(B, 64, half)), 0,
                    true);
  maker_op(&g, "conv_dw", INS(dc), NO_OUTS, conv_cost(half, 3, 64, 7, B), 0, false);
  return maker_problem(&g);
}

/* ---- U-Nets: blocks of convolution, batch norm and ReLU; each encoder output is read by its
 * decoder ---- */
typedef struct {
  int in[2], nin, cin, co, c, s;
  double hw;
} ConvRecord;

typedef struct {
  char kind; /* e encoder, m middle, d decoder */
  int layer, width, index, xin, cu;
  double hw;
  ConvRecord conv[2];
} UnetBlock;

typedef struct {
  Maker g;
  double batch, hw;
  int convs;
} Unet;

static inline int unet_block(Unet *u, UnetBlock *b, const int *in, int nin, int cin, int co) {
  Maker *g = &u->g;
  int act = NO_VALUE;
  for (int j = 0; j < u->convs; j++) {
    ConvRecord *r = &b->conv[j];
    int ins[3] = {NO_VALUE, NO_VALUE, NO_VALUE};
    *r = (ConvRecord){.nin = nin, .cin = cin, .co = co, .hw = u->hw};
    for (int i = 0; i < nin; i++) ins[i] = r->in[i] = in[i];
    double out = plane(u->batch, co, u->hw);
    r->c = maker_op(g, "conv", ins, OUTS(out), conv_cost(u->hw, cin, co, 3, u->batch), 0, false);
    act = maker_op(g, "bnrelu", INS(r->c), OUTS(out, 8 * co), traffic(2 * out), 0, false);
    r->s = act + 1;
    in = &act;
    nin = 1;
    cin = co;
  }
  return act;
}

static inline int unet_block_backward(Unet *u, const UnetBlock *b, int d, int *skip) {
  Maker *g = &u->g;
  for (int j = u->convs - 1; j >= 0; j--) {
    const ConvRecord *r = &b->conv[j];
    double out = plane(u->batch, r->co, r->hw), in = plane(u->batch, r->cin, r->hw);
    int dc = maker_op(g, "bn_b", INS(d, r->c, r->s), OUTS(out), traffic(4 * out), 0, true);
    int ins[4] = {dc, NO_VALUE, NO_VALUE, NO_VALUE};
    for (int i = 0; i < r->nin; i++) ins[1 + i] = r->in[i];
    Cost cost = conv_cost(r->hw, r->cin, r->co, 3, u->batch);
    maker_op(g, "conv_dw", ins, NO_OUTS, cost, 0, false);
    if (r->nin == 2) {
      *skip = maker_op(g, "conv_dx", INS(dc), OUTS(out, out), cost, 0, false);
      d = *skip + 1;
    } else if (r->nin == 1) {
      d = maker_op(g, "conv_dx", INS(dc), OUTS(in), cost, 0, false);
    }
  }
  return d;
}

static inline RecProblem unet(Arena *a, int batch, int image, int depth, int width, int convs) {
  Unet u = {.g = {.a = a}, .batch = batch, .hw = (double)image * image, .convs = convs};
  Maker *g = &u.g;
  UnetBlock *b = arena_array(a, UnetBlock, 2 * depth + 1);
  int *skip = arena_array(a, int, depth), *dskip = arena_array(a, int, depth + 1);
  int x = NO_VALUE, cx = 3, n = 0;
  double B = batch;
  for (int d = 0; d < depth; d++, n++) {
    int w = width << d;
    b[n] = (UnetBlock){.kind = 'e', .layer = g->layer, .width = w, .hw = u.hw};
    skip[d] = unet_block(&u, &b[n], &x, x != NO_VALUE, cx, w);
    double quarter = plane(B, w, u.hw / 4);
    x = maker_op(g, "pool", INS(skip[d]), OUTS(quarter, quarter / 2),
                 traffic(plane(B, w, u.hw) * 1.25), 0, false);
    b[n].index = x + 1;
    cx = w;
    u.hw /= 4;
    g->layer++;
  }
  b[n] = (UnetBlock){.kind = 'm', .layer = g->layer, .width = width << depth, .hw = u.hw};
  x = unet_block(&u, &b[n++], &x, 1, cx, width << depth);
  cx = width << depth;
  for (int d = depth - 1; d >= 0; d--, n++) {
    int w = width << d;
    g->layer++;
    b[n] = (UnetBlock){.kind = 'd', .layer = g->layer, .width = w, .xin = x, .cu = cx};
    int up = maker_op(g, "up", INS(x), OUTS(plane(B, w, u.hw * 4)), conv_cost(u.hw, cx, w, 2, B), 0,
                      false);
    u.hw *= 4;
    b[n].hw = u.hw;
    x = unet_block(&u, &b[n], (int[]){skip[d], up}, 2, 2 * w, w);
    cx = w;
  }
  g->layer++;
  g->bwd = true;
  double full = plane(B, cx, u.hw);
  int d = maker_op(g, "head", INS(x), OUTS(full),
                   (Cost){6.0 * B * u.hw * cx * 2, 3 * full, GEMM_RATE}, 8 * B * u.hw, false);
  int held = 0;
  while (n--) {
    g->layer = b[n].layer;
    double w = b[n].width, h = b[n].hw;
    if (b[n].kind == 'e')
      d = maker_op(g, "pool_b+", INS(dskip[--held], d, b[n].index), OUTS(plane(B, w, h)),
                   traffic(2.5 * plane(B, w, h)), 0, true);
    int ds = NO_VALUE;
    d = unet_block_backward(&u, &b[n], d, &ds);
    if (b[n].kind != 'd') continue;
    dskip[held++] = ds;
    maker_op(g, "up_dw", INS(d, b[n].xin), NO_OUTS, conv_cost(h / 4, b[n].cu, w, 2, B), 0, false);
    d = maker_op(g, "up_dx", INS(d), OUTS(plane(B, b[n].cu, h / 4)),
                 conv_cost(h / 4, b[n].cu, w, 2, B), 0, false);
  }
  return maker_problem(g);
}

/* ---- perceptrons ---- */
typedef struct {
  int x, ci, co, z;
} MlpLayer;

static inline RecProblem mlp(Arena *a, int layers, int nwidth, const int *width) {
  Maker g = {.a = a};
  double t = 8192;
  MlpLayer *s = arena_array(a, MlpLayer, layers);
  int x = maker_op(&g, "in", NO_INS, OUTS(2 * t * width[0]), traffic(2 * t * width[0]), 0, false),
      ci = width[0];
  for (int i = 0; i < layers; i++) {
    g.layer = i + 1;
    double co = width[(i + 1) % nwidth];
    int z = maker_op(&g, "fc", INS(x), OUTS(2 * t * co), (Cost){2.0 * t * ci * co, 0, GEMM_RATE}, 0,
                     false);
    s[i] = (MlpLayer){x, ci, (int)co, z};
    x = maker_op(&g, "gelu", INS(z), OUTS(2 * t * co), traffic(4 * t * co), 0, false);
    ci = (int)co;
  }
  g.layer++;
  g.bwd = true;
  int d = maker_op(&g, "loss", INS(x), OUTS(2 * t * ci), traffic(4 * t * ci), 0, false);
  for (int i = layers - 1; i >= 0; i--) {
    double in = s[i].ci, co = s[i].co;
    g.layer = i + 1;
    d = maker_op(&g, "gelu_b", INS(d, s[i].z), OUTS(2 * t * co), traffic(6 * t * co), 0, true);
    maker_op(&g, "dw", INS(d, s[i].x), NO_OUTS, (Cost){2.0 * t * in * co, 0, GEMM_RATE}, 0, false);
    d = maker_op(&g, "dx", INS(d), OUTS(2 * t * in), (Cost){2.0 * t * in * co, 0, GEMM_RATE}, 0,
                 false);
  }
  return maker_problem(&g);
}

#endif
