/* compose.c - compositions: norms, softmax, activations, rotary positions, dropout, cross-entropy
 * and means as definitions over primitives, so that gradients, fusion, precision and recompute see
 * through them.
 *
 * Each builds its nodes under one tag and one fresh tag id. A reduction drops its axis and is
 * broadcast back directly, never through an axis of size 1: that is the form that fuses into row
 * kernels. Operands of -1 give -1. */
#include <math.h>
#include <string.h>
#include "graph.h"
#include "words.h"

typedef struct {
  const char *tag;
  int tag_id;
} Saved;

static Saved begin(Graph *g, const char *tag) {
  Saved s = {g->here.tag, g->here.tag_id};
  g->here.tag = intern(tag);
  g->here.tag_id = ++g->last_tag_id;
  return s;
}

static ValueId end(Graph *g, Saved s, ValueId v) {
  g->here.tag = s.tag;
  g->here.tag_id = s.tag_id;
  return v;
}

/* r, a reduction of x over `axis`, in the shape of x again. */
static ValueId spread(Graph *g, ValueId r, ValueId x, int axis) {
  if (r < 0) return r;
  const Shape to = val(g, x)->shape;
  int64_t axes[MAX_RANK];
  for (int k = 0, n = 0; k < to.rank; k++)
    if (k != axis) axes[n++] = k;
  return g_broadcast(g, r, to, axes);
}

static ValueId over(Graph *g, Op op, ValueId x, int axis) {
  int64_t axes[] = {axis};
  return g_reduce(g, op, x, 1, axes);
}

static ValueId mean_over(Graph *g, ValueId x, int axis) {
  return quot(g, over(g, OP_SUM, x, axis), number(g, (double)val(g, x)->shape.dim[axis]));
}

/* False, after E0204, when x has fewer than `rank` axes. */
static bool at_least(Graph *g, ValueId x, int rank, const char *what) {
  const Shape *s = &val(g, x)->shape;
  if (s->rank >= rank) return true;
  if (!g->diags) bug("`%s` of %s (in `%s`)", what, shape_text(g->arena, s), g->here.path);
  diag_error(g->diags, E_RANK, g->here.loc, "`%s` takes at least %d ax%s, got %s", what, rank,
             rank == 1 ? "is" : "es", shape_text(g->arena, s));
  return false;
}

/* False, after E0201, when x is not a float. */
static bool floats(Graph *g, ValueId x, const char *what) {
  DType t = val(g, x)->dtype;
  if (dtype_is_float(t)) return true;
  if (!g->diags) bug("`%s` of %s (in `%s`)", what, dtype_name(t), g->here.path);
  diag_error(g->diags, E_TYPE, g->here.loc, "`%s` takes floats, not %s", what, dtype_name(t));
  return false;
}

/* ---- norms ---- */

/* Weight and bias go with the last axis; -1 leaves them out. */
static ValueId affine(Graph *g, ValueId x, ValueId w, ValueId b) {
  if (w >= 0) x = mul(g, x, w);
  if (b >= 0) x = add(g, x, b);
  return x;
}

ValueId c_layernorm(Graph *g, ValueId x, ValueId w, ValueId b, double eps) {
  if (x < 0 || !at_least(g, x, 1, "layernorm") || !floats(g, x, "layernorm")) return -1;
  Saved s = begin(g, "layernorm");
  int axis = val(g, x)->shape.rank - 1;
  ValueId centred = sub(g, x, spread(g, mean_over(g, x, axis), x, axis));
  ValueId var = mean_over(g, mul(g, centred, centred), axis);
  ValueId scale = g_unary(g, OP_RSQRT, add(g, var, number(g, eps)));
  return end(g, s, affine(g, mul(g, centred, spread(g, scale, x, axis)), w, b));
}

ValueId c_rmsnorm(Graph *g, ValueId x, ValueId w, double eps) {
  if (x < 0 || !at_least(g, x, 1, "rmsnorm") || !floats(g, x, "rmsnorm")) return -1;
  Saved s = begin(g, "rmsnorm");
  int axis = val(g, x)->shape.rank - 1;
  ValueId square = mean_over(g, mul(g, x, x), axis);
  ValueId scale = g_unary(g, OP_RSQRT, add(g, square, number(g, eps)));
  return end(g, s, affine(g, mul(g, x, spread(g, scale, x, axis)), w, -1));
}

/* ---- softmax and activations ---- */

ValueId c_softmax(Graph *g, ValueId x, int axis) {
  if (x < 0 || !at_least(g, x, 1, "softmax") || !floats(g, x, "softmax")) return -1;
  Saved s = begin(g, "softmax");
  ValueId top = g_unary(g, OP_HOLD, over(g, OP_AMAX, x, axis));
  ValueId e = g_unary(g, OP_EXP, sub(g, x, spread(g, top, x, axis)));
  return end(g, s, quot(g, e, spread(g, over(g, OP_SUM, e, axis), x, axis)));
}

ValueId c_gelu(Graph *g, ValueId x, bool tanh_form) {
  if (x < 0 || !floats(g, x, "gelu")) return -1;
  Saved s = begin(g, "gelu");
  ValueId f;
  if (tanh_form) {
    ValueId cube = mul(g, mul(g, x, x), x);
    f = g_unary(g, OP_TANH, times(g, add(g, x, times(g, cube, 0.044715)), sqrt(2 / M_PI)));
  } else {
    f = g_unary(g, OP_ERF, times(g, x, M_SQRT1_2));
  }
  return end(g, s, mul(g, times(g, x, 0.5), add(g, f, number(g, 1))));
}

/* 1 + exp(-x). The exponent stops at 80, where 1 / (1 + exp(80)) is nothing already: an infinity
 * here would meet a zero in the gradient. */
static ValueId one_plus_exp(Graph *g, ValueId x) {
  ValueId e = g_bin(g, OP_MIN, g_unary(g, OP_NEG, x), number(g, 80));
  return add(g, g_unary(g, OP_EXP, e), number(g, 1));
}

ValueId c_silu(Graph *g, ValueId x) {
  if (x < 0 || !floats(g, x, "silu")) return -1;
  Saved s = begin(g, "silu");
  return end(g, s, quot(g, x, one_plus_exp(g, x)));
}

ValueId c_sigmoid(Graph *g, ValueId x) {
  if (x < 0 || !floats(g, x, "sigmoid")) return -1;
  Saved s = begin(g, "sigmoid");
  return end(g, s, quot(g, number(g, 1), one_plus_exp(g, x)));
}

/* Written with the constant first: at 0 the tie gives it the gradient, as PyTorch does. */
ValueId c_relu(Graph *g, ValueId x) {
  if (x < 0 || !floats(g, x, "relu")) return -1;
  Saved s = begin(g, "relu");
  return end(g, s, g_bin(g, OP_MAX, number(g, 0), x));
}

/* ---- rotary positions ---- */

/* Llama 3's scaling of each frequency: as it is above `high_freq` turns in `context` positions, divided by `factor`
 * below `low_freq` turns, and a mixture between. */
static ValueId stretched(Graph *g, ValueId freq, const RopeScaling *k) {
  ValueId turns = times(g, freq, k->context / (2 * M_PI));
  ValueId kept = times(g, sub(g, turns, number(g, k->low_freq)), 1 / (k->high_freq - k->low_freq));
  kept = g_bin(g, OP_MIN, g_bin(g, OP_MAX, kept, number(g, 0)), number(g, 1));
  ValueId rest = sub(g, number(g, 1), kept);
  return add(g, mul(g, kept, freq), mul(g, rest, times(g, freq, 1 / k->factor)));
}

ValueId c_rope(Graph *g, ValueId x, double theta, const RopeScaling *scaling) {
  if (x < 0 || !at_least(g, x, 4, "rope") || !floats(g, x, "rope")) return -1;
  const Value v = *val(g, x);
  if (v.shape.rank != 4 || v.shape.dim[3] % 2) {
    const char *text = shape_text(g->arena, &v.shape);
    if (!g->diags) bug("`rope` of %s (in `%s`)", text, g->here.path);
    diag_error(g->diags, E_SHAPE, g->here.loc,
               "`rope` takes [batch, time, heads, even width], not %s", text);
    return -1;
  }
  Saved s = begin(g, "rope");
  int64_t half = v.shape.dim[3] / 2;
  Shape table = SHAPE(v.shape.dim[1], half), part = v.shape;
  part.dim[3] = half;
  part.axis[3] = NULL;
  table.axis[0] = v.shape.axis[1];
  /* angle = position / theta^(2i / Dh), all in f32 as Hugging Face computes it */
  ValueId i = g_iota(g, DT_F32, SHAPE(half), 0);
  ValueId power = quot(g, times(g, i, 2), number(g, (double)v.shape.dim[3]));
  ValueId freq = quot(g, number(g, 1), g_bin(g, OP_POW, number(g, theta), power));
  if (scaling) freq = stretched(g, freq, scaling);
  ValueId angle = mul(g, g_iota(g, DT_F32, table, 0), freq);
  static const int64_t axes[] = {1, 3};
  ValueId c = g_broadcast(g, g_cast(g, g_unary(g, OP_COS, angle), v.dtype), part, axes);
  ValueId d = g_broadcast(g, g_cast(g, g_unary(g, OP_SIN, angle), v.dtype), part, axes);
  ValueId a = g_slice(g, x, 3, 0, half), b = g_slice(g, x, 3, half, 2 * half);
  ValueId turned[] = {sub(g, mul(g, a, c), mul(g, b, d)), add(g, mul(g, b, c), mul(g, a, d))};
  ValueId out = g_concat(g, 2, turned, 3);
  if (out >= 0) g->values.at[out].shape.axis[3] = v.shape.axis[3];
  return end(g, s, out);
}

/* ---- dropout ---- */

int64_t c_random_key(const Graph *g) {
  int draws = 0;
  for (int n = 0; n < g->nodes.n; n++) {
    const Node *node = &g->nodes.at[n];
    bool draw = node->op == OP_RANDOM || (node->op == OP_ATTENTION && node->num[1] > 0);
    if (draw && !strcmp(node->path, g->here.path)) draws++;
  }
  const char *site = intern_printf("%s#%d", g->here.path, draws);
  return (int64_t)(hash_text(site) >> 1);
}

ValueId c_dropout(Graph *g, ValueId x, double rate, bool training) {
  if (x < 0 || !floats(g, x, "dropout")) return -1;
  if (rate == 0 || !training) return x;
  if (!(rate > 0 && rate < 1)) {
    if (!g->diags) bug("dropout rate %g (in `%s`)", rate, g->here.path);
    diag_error(g->diags, E_VALUE, g->here.loc, "dropout rate %g is not in [0, 1)", rate);
    return -1;
  }
  Saved s = begin(g, "dropout");
  const Value v = *val(g, x);
  double keep = (float)(1 - rate); /* what an f32 comparison sees, in any arithmetic */
  ValueId in[] = {g_var(g, var_scalar(g->vars, SC_SEED)), g_var(g, var_scalar(g->vars, SC_STEP)),
                  g_var(g, var_scalar(g->vars, SC_SAMPLE0))};
  int64_t ints[MAX_RANK + 4];
  int n = 0;
  ints[n++] = DT_F32;
  ints[n++] = v.shape.rank;
  for (int k = 0; k < v.shape.rank; k++) ints[n++] = v.shape.dim[k];
  ints[n++] = c_random_key(g);
  ints[n++] = v.shape.rank ? 0 : -1;
  ValueId u = graph_add(g, OP_RANDOM, 3, in, n, ints, NULL, NULL);
  ValueId kept = g_bin(g, OP_LT, u, number(g, keep));
  ValueId scaled = quot(g, x, number(g, keep));
  return end(g, s, g_select(g, kept, scaled, number(g, 0)));
}

/* ---- loss ---- */

/* -log softmax(x)[target] of each row with label smoothing: lse - (1 - smooth) x[target] - smooth
 * mean(x). */
static ValueId row_losses(Graph *g, ValueId x, ValueId targets, double smooth) {
  const Shape s = val(g, x)->shape;
  int axis = s.rank - 1;
  ValueId top = g_unary(g, OP_HOLD, over(g, OP_AMAX, x, axis));
  ValueId e = g_unary(g, OP_EXP, sub(g, x, spread(g, top, x, axis)));
  ValueId lse = add(g, g_unary(g, OP_LOG, over(g, OP_SUM, e, axis)), top);
  ValueId hit = g_bin(g, OP_EQ, g_iota(g, DT_I32, s, axis), spread(g, targets, x, axis));
  ValueId picked = over(g, OP_SUM, g_select(g, hit, x, number(g, 0)), axis);
  if (smooth == 0) return sub(g, lse, picked);
  ValueId rest = times(g, mean_over(g, x, axis), smooth);
  return sub(g, sub(g, lse, times(g, picked, 1 - smooth)), rest);
}

ValueId c_cross_entropy(Graph *g, ValueId logits, ValueId targets, int64_t ignore, double smooth) {
  if (logits < 0 || targets < 0 || !at_least(g, logits, 1, "cross_entropy") ||
      !floats(g, logits, "cross_entropy"))
    return -1;
  Shape rows = val(g, logits)->shape;
  rows.rank--;
  const Value t = *val(g, targets);
  if (t.dtype != DT_I32 || !shape_equal(&t.shape, &rows)) {
    const char *tl = shape_text(g->arena, &val(g, logits)->shape),
               *tt = shape_text(g->arena, &t.shape);
    if (!g->diags) bug("`cross_entropy` of %s and %s%s", tl, dtype_name(t.dtype), tt);
    Diag *d = diag_error(g->diags, E_SHAPE, g->here.loc, "`cross_entropy` of %s and targets %s%s",
                         tl, dtype_name(t.dtype), tt);
    diag_note(g->diags, d, "targets are i32, one for each row of logits: i32%s",
              shape_text(g->arena, &rows));
    return -1;
  }
  Saved s = begin(g, "cross_entropy");
  ValueId loss = row_losses(g, g_cast(g, logits, DT_F32), targets, smooth);
  ValueId skip = g_bin(g, OP_EQ, targets, number(g, (double)ignore));
  loss = g_select(g, skip, number(g, 0), loss);
  int64_t axes[MAX_RANK];
  for (int k = 0; k < rows.rank; k++) axes[k] = k;
  if (rows.rank) loss = g_reduce(g, OP_SUM, loss, rows.rank, axes);
  ValueId weight = g_var(g, var_scalar(g->vars, SC_INV_COUNT));
  return end(g, s, mul(g, loss, weight));
}

ValueId c_mean(Graph *g, ValueId x, int naxes, const int64_t *axes) {
  if (x < 0 || !floats(g, x, "mean")) return -1;
  if (!naxes) return x;
  Saved s = begin(g, "mean");
  double n = 1;
  for (int i = 0; i < naxes; i++) {
    bool inside = axes[i] >= 0 && axes[i] < val(g, x)->shape.rank; /* else the sum reports it */
    if (inside) n *= (double)val(g, x)->shape.dim[axes[i]];
  }
  return end(g, s, quot(g, g_reduce(g, OP_SUM, x, naxes, axes), number(g, n)));
}
