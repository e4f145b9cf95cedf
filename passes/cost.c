/* cost.c - the cost model (see cost.h). Input: clusters and a target's row. Output: counts, nanoseconds, workspace.
 *
 * Efficiencies are the target's (EFFICIENCY of targets.def): fits to what was measured on one H200, which scale with
 * the table's rates. A calibrated target corrects them by class of kernel. The model is meant to rank plans; it is within
 * about 15 % of a step. */
#include "cost.h"

#include <math.h>

#include "../codegen/attention_cuda.h"
#include "../codegen/scatter_cuda.h"

/* Relative cost of one element of an op, in additions. */
static int64_t element_weight(Op op) {
  switch (op) {
    case OP_EXP:
    case OP_LOG:
    case OP_TANH:
    case OP_ERF:
    case OP_SIN:
    case OP_COS:
    case OP_POW: return 8;
    case OP_QUANT8:
    case OP_QUANT8U: return 16;
    case OP_DEQUANT8:
    case OP_DEQUANT8U: return 8;
    case OP_RANDOM: return 16;
    case OP_DIV:
    case OP_SQRT:
    case OP_RSQRT:
    case OP_MOD: return 4;
    case OP_CONST:
    case OP_IOTA: return 0;
    default: return 1;
  }
}

/* Bytes that a reader of v touches: a broadcast reads its source only. */
static int64_t source_bytes(const Graph *g, ValueId v) {
  int64_t least = INT64_MAX;
  for (;;) {
    const Value *x = val(g, v);
    int64_t bytes = shape_bytes(&x->shape, x->dtype);
    if (bytes < least) least = bytes;
    const Node *n = node_of(g, v);
    if (n->op != OP_BROADCAST && n->op != OP_RESHAPE && n->op != OP_TRANSPOSE) return least;
    v = n->in[0];
  }
}

static int64_t gather_rows_bytes(const Graph *g, const Cluster *c, ValueId table) {
  int64_t bytes = 0;
  for (int i = 0; i < c->nnodes; i++) {
    const Node *n = node_at(g, c->nodes[i]);
    if (n->op == OP_GATHER && n->in[0] == table)
      bytes += shape_bytes(&val(g, n->out)->shape, val(g, n->out)->dtype);
  }
  return bytes;
}

static int64_t moved_bytes(const Graph *g, const Cluster *c) {
  int64_t bytes = 0;
  for (int i = 0; i < c->nin; i++) {
    int64_t all = source_bytes(g, c->in[i]);
    int64_t rows = c->kind == CL_LOOP ? gather_rows_bytes(g, c, c->in[i]) : 0;
    bytes += rows > 0 && rows < all ? rows : all;
  }
  for (int i = 0; i < c->nout; i++) {
    const Value *v = val(g, c->out[i]);
    bytes += shape_bytes(&v->shape, v->dtype);
  }
  return bytes;
}

static bool column_level(const Cluster *c, int node, const Node *n, const Shape *s) {
  if (n->op != OP_SUM || c->outer == 0) return false;
  for (int k = 0; k < s->rank; k++)
    if (c->node_axes[node].axes[k] < c->outer) return false;
  return true;
}

static void count_loop(const Graph *g, const Cluster *c, KernelCost *out) {
  out->rows = 1;
  for (int k = 0; k < c->outer; k++) out->rows = mul64(out->rows, c->space.dim[k]);
  for (int i = 0; i < c->nnodes; i++) {
    const Node *n = node_at(g, c->nodes[i]);
    if (n->nout == 0) continue;
    ValueId over = op_kind(n->op) == REDUCE ? n->in[0] : n->out;
    out->flops += shape_count(&val(g, over)->shape) * element_weight(n->op);
    if (column_level(c, i, n, &val(g, n->out)->shape))
      out->columns += shape_count(&val(g, n->out)->shape);
    else if (op_kind(n->op) == REDUCE)
      out->sums = true;
  }
  if (out->columns > 0) out->launches++;
  out->flat = c->outer == c->space.rank;
}

static int64_t product_of(const Shape *s, const int64_t *axes, int n) {
  int64_t p = 1;
  for (int k = 0; k < n; k++) p = mul64(p, s->dim[axes[k]]);
  return p;
}

static void count_gemm(const Graph *g, const Node *n, KernelCost *out) {
  const Shape *a = &val(g, n->in[0])->shape, *b = &val(g, n->in[1])->shape;
  const int64_t *list;
  int len = node_list(n, "batch_a", &list);
  out->batch = product_of(a, list, len);
  len = node_list(n, "con_a", &list);
  out->k = product_of(a, list, len);
  out->m = shape_count(a) / (out->batch * out->k);
  out->n = shape_count(b) / (out->batch * out->k);
  out->flops = 2 * mul64(mul64(out->batch, out->m), mul64(out->n, out->k));
  out->type = val(g, n->in[0])->dtype;
}

static void count_attention(const Graph *g, const Node *n, KernelCost *out) {
  const Shape *q = &val(g, n->in[0])->shape, *k = &val(g, n->in[1])->shape;
  int products = n->op == OP_ATTENTION ? 2 : 5;
  out->batch = q->dim[0] * q->dim[2];
  out->m = q->dim[1];
  out->n = k->dim[1];
  out->k = q->dim[3];
  out->flops = 2 * products * mul64(mul64(out->batch, out->m), mul64(out->n, out->k));
  if (node_int(n, "causal")) out->flops /= 2;
  out->type = val(g, n->in[0])->dtype;
  if (n->op == OP_ATTENTION_BWD) out->launches = 2;
}

KernelCost cost_kernel(const Clusters *cl, int cluster, const Precision *p) {
  const Cluster *c = &cl->at[cluster];
  const Graph *g = cl->g;
  KernelCost out = {.kind = c->kind, .type = DT_F32, .launches = 1};
  out.bytes = moved_bytes(g, c);
  if (c->kind == CL_LOOP) count_loop(g, c, &out);
  for (int i = 0; i < c->nnodes; i++) {
    const Node *n = node_at(g, c->nodes[i]);
    if (n->op == OP_DOT) count_gemm(g, n, &out);
    if (n->op == OP_DOT || n->op == OP_ATTENTION || n->op == OP_ATTENTION_BWD)
      out.tf32 = p && precision_tf32(p, n);
    if (n->op == OP_SCATTER_ADD) out.rows = shape_count(&val(g, n->in[0])->shape);
    if (n->op == OP_ATTENTION || n->op == OP_ATTENTION_BWD) count_attention(g, n, &out);
  }
  return out;
}

KernelCost cost_between(const KernelCost *a, int64_t at_a, const KernelCost *b, int64_t at_b, int64_t at) {
  KernelCost k = *a;
#define BETWEEN(f) k.f = linear_between(a->f, at_a, b->f, at_b, at)
  BETWEEN(flops);
  BETWEEN(bytes);
  BETWEEN(batch);
  BETWEEN(m);
  BETWEEN(n);
  BETWEEN(k);
  BETWEEN(rows);
  BETWEEN(columns);
#undef BETWEEN
  return k;
}

/* ---- prices ---- */

/* Share of the large-GEMM rate that tiles of one size and split reach: the last wave of units is partly idle. */
static double tile_share(const KernelCost *k, const Target *t, int64_t tile, double speed, int64_t split) {
  int64_t tiles = k->batch * ceil_div(k->m, tile) * ceil_div(k->n, tile) * split;
  double filled = (double)(k->batch * k->m * k->n * split) / (double)(tiles * tile * tile);
  double waves = (double)tiles / t->units;
  double depth = (double)k->k / (double)split;
  return speed * filled * waves / ceil(waves) * depth / (depth + t->gemm_depth);
}

static double gemm_share(const KernelCost *k, const Target *t) {
  double best = 0;
  if (t->kind == DEV_CPU)
    best = (double)k->m / ((double)k->m + t->gemm_edge) * (double)k->n / ((double)k->n + t->gemm_edge) * (double)k->k /
           ((double)k->k + t->gemm_depth);
  else
    for (int64_t split = 1; split <= 8; split *= 2) {
      double cost = split == 1 ? 1.0 : t->gemm_split;
      double large = tile_share(k, t, 128, cost, split), small = tile_share(k, t, 64, t->gemm_small_tile * cost, split);
      best = fmax(best, fmax(large, small));
    }
  return fmax(best, t->gemm_least);
}

static double attention_share(const KernelCost *k, const Target *t) {
  double most = k->kind == CL_ATTENTION ? t->attention_fwd : t->attention_bwd;
  return most * (double)k->n / ((double)k->n + t->attention_length);
}

/* FLOP/s of the target for contractions of this type. */
static double rate(const KernelCost *k, const Target *t) {
  return 1e12 * (k->type == DT_F32 && k->tf32 ? t->tf32_tflops : t->tflops[k->type]);
}

int cost_class(const KernelCost *k, const Target *t) {
  enum { TILE = 128 };
  switch (k->kind) {
    case CL_GEMM:
      return kernel_class_gemm((double)(k->batch * ceil_div(k->m, TILE) * ceil_div(k->n, TILE)) / t->units, k->k);
    case CL_ATTENTION:
    case CL_ATTENTION_BWD: return kernel_class_attention(k->kind == CL_ATTENTION_BWD, k->k, k->n);
    case CL_SCATTER: return KC_SCATTER;
    case CL_LOOP: break;
  }
  return k->columns > 0 ? KC_COLUMNS : k->sums ? KC_ROWS : KC_MAP;
}

double cost_work_ns(const KernelCost *k, const Target *t) {
  double arithmetic;
  switch (k->kind) {
    case CL_GEMM: arithmetic = (double)k->flops / (rate(k, t) * gemm_share(k, t)); break;
    case CL_ATTENTION:
    case CL_ATTENTION_BWD: arithmetic = (double)k->flops / (rate(k, t) * attention_share(k, t)); break;
    default: arithmetic = (double)k->flops / (1e12 * t->element * t->tflops[DT_F32]); break;
  }
  double moving = (double)k->bytes / (1e9 * t->moving * t->copy_gbs);
  return 1e9 * fmax(arithmetic, moving);
}

int64_t cost_ns(const KernelCost *k, const Target *t) {
  double speed = t->speed[cost_class(k, t)];
  return llround(cost_work_ns(k, t) / (speed > 0 ? speed : 1) + 1e3 * t->launch_us * k->launches);
}

/* Partial sums, and what kernels written by hand say that they need. */
int64_t cost_workspace(const KernelCost *k, const Target *t) {
  bool cuda = t->kind == DEV_CUDA;
  switch (k->kind) {
    case CL_GEMM: return t->workspace_bytes;
    case CL_LOOP:
      if (k->columns == 0) return 0;
      return mul64(cuda ? cuda_plan_blocks(k->flat, k->rows) : column_blocks(k->rows), k->columns) * 4;
    case CL_ATTENTION_BWD:
      return cuda ? attention_workspace(&(AttProblem){.batch = k->batch, .heads = 1, .tq = k->m}) : 0;
    case CL_SCATTER: return cuda ? scatter_workspace(k->rows) : 0;
    default: return 0;
  }
}

void cost_clusters(Clusters *c, const Target *t, const Precision *p) {
  for (int i = 0; i < c->n; i++) {
    KernelCost k = cost_kernel(c, i, p);
    c->at[i].flops = k.flops;
    c->at[i].bytes = k.bytes;
    c->at[i].ns = cost_ns(&k, t);
    c->at[i].workspace = cost_workspace(&k, t);
  }
}
