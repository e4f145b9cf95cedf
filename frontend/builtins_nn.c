/* builtins_nn.c - norms, activations, attention, dropout, losses, convolution: operand checks here,
 * definitions over primitives in ir/compose.c or, where only these models need them, below. */
#include <math.h>
#include <string.h>
#include "builtins.h"

typedef __typeof__(((Graph *)0)->here) Here;

/* Nodes until `end` carry the tag of this composition. */
static Here begin(Graph *g, const char *tag) {
  Here saved = g->here;
  g->here.tag = intern(tag);
  g->here.tag_id = ++g->last_tag_id;
  return saved;
}

static void end(Graph *g, Here saved) {
  g->here.tag = saved.tag;
  g->here.tag_id = saved.tag_id;
}

static Val like(Elab *e, ValueId v, const Val *x) {
  if (v >= 0) axes_named_like(e->b->g, v, x->v);
  return val_tensor(v);
}

/* Argument i must be a vector of `size`. */
static bool is_vector(Elab *e, const BuiltinCall *c, int i, int64_t size, const char *what) {
  const Shape *s = &tval(e, &c->arg[i])->shape;
  if (s->rank == 1 && s->dim[0] == size) return true;
  builtin_error(e, c, E_SHAPE, "`%s` of `%s` is %s; %s has %lld", c->op->arg[i], c->op->name,
                say_shape(e, &c->arg[i]), what, (long long)size);
  return false;
}

static bool has_rank(Elab *e, const BuiltinCall *c, int i, int rank, const char *axes) {
  if (tval(e, &c->arg[i])->shape.rank == rank) return true;
  builtin_error(e, c, E_RANK, "`%s` of `%s` is %s; it takes %s", c->op->arg[i], c->op->name,
                say_shape(e, &c->arg[i]), axes);
  return false;
}

static int64_t last_dim(Elab *e, const Val *x) {
  const Shape *s = &tval(e, x)->shape;
  return s->rank ? s->dim[s->rank - 1] : 1;
}

/* ---- norms ---- */

Val bi_layernorm(Elab *e, const BuiltinCall *c) {
  int64_t d = last_dim(e, &c->arg[0]);
  if (!is_vector(e, c, 1, d, "the last axis of x") ||
      !is_vector(e, c, 2, d, "the last axis of x") || !builtin_range(e, c, 3, 0, 1))
    return VAL_ERR;
  const Val *x = &c->arg[0];
  return like(e, c_layernorm(e->b->g, x->v, c->arg[1].v, c->arg[2].v, c->arg[3].f), x);
}

Val bi_rmsnorm(Elab *e, const BuiltinCall *c) {
  if (!is_vector(e, c, 1, last_dim(e, &c->arg[0]), "the last axis of x") ||
      !builtin_range(e, c, 2, 0, 1))
    return VAL_ERR;
  return like(e, c_rmsnorm(e->b->g, c->arg[0].v, c->arg[1].v, c->arg[2].f), &c->arg[0]);
}

/* A vector in the shape of x, along one axis. */
static ValueId along(Graph *g, ValueId vector, ValueId x, int64_t axis) {
  return g_broadcast(g, vector, g->values.at[x].shape, &axis);
}

Val bi_affine(Elab *e, const BuiltinCall *c) {
  Graph *g = e->b->g;
  ValueId x = c->arg[0].v;
  int64_t axis;
  if (!builtin_axis(e, c, c->arg[3].i, val(g, x)->shape.rank, &axis)) return VAL_ERR;
  int64_t n = val(g, x)->shape.dim[axis];
  if (!is_vector(e, c, 1, n, "that axis of x") || !is_vector(e, c, 2, n, "that axis of x"))
    return VAL_ERR;
  Here saved = begin(g, "affine");
  ValueId y = g_binary(g, OP_MUL, x, along(g, c->arg[1].v, x, axis));
  y = g_binary(g, OP_ADD, y, along(g, c->arg[2].v, x, axis));
  end(g, saved);
  return like(e, y, &c->arg[0]);
}

static ValueId scaled(Graph *g, ValueId x, double k) {
  return g_bin(g, OP_MUL, x, g_const(g, val(g, x)->dtype, shape_scalar(), k));
}

Val bi_batchnorm(Elab *e, const BuiltinCall *c) {
  if (!has_rank(e, c, 0, 4, "[N, C, H, W]")) return VAL_ERR;
  Graph *g = e->b->g;
  ValueId x = c->arg[0].v;
  const Shape s = val(g, x)->shape;
  if (!is_vector(e, c, 1, s.dim[1], "axis C of x") ||
      !is_vector(e, c, 2, s.dim[1], "axis C of x") || !builtin_range(e, c, 3, 0, 1))
    return VAL_ERR;
  static const int64_t axes[] = {0, 2, 3};
  double n = (double)(s.dim[0] * s.dim[2] * s.dim[3]);
  e->b->batch_stats = true;
  Here saved = begin(g, "batchnorm");
  ValueId mean = scaled(g, g_reduce(g, OP_SUM, x, 3, axes), 1 / n);
  ValueId d = g_binary(g, OP_SUB, x, along(g, mean, x, 1));
  ValueId squares = g_reduce(g, OP_SUM, g_binary(g, OP_MUL, d, d), 3, axes);
  ValueId var = scaled(g, squares, 1 / n);
  ValueId eps = g_const(g, DT_F32, shape_scalar(), c->arg[3].f);
  ValueId rstd = g_unary(g, OP_RSQRT, g_bin(g, OP_ADD, var, eps));
  ValueId k = g_binary(g, OP_MUL, rstd, c->arg[1].v);
  ValueId y = g_binary(g, OP_MUL, d, along(g, k, x, 1));
  y = g_binary(g, OP_ADD, y, along(g, c->arg[2].v, x, 1));
  ValueId unbiased = scaled(g, squares, n > 1 ? 1 / (n - 1) : 1);
  end(g, saved);
  Val *items = arena_array(elab_arena(e), Val, 3);
  items[0] = like(e, y, &c->arg[0]);
  items[1] = val_tensor(mean);
  items[2] = val_tensor(unbiased);
  return (Val){.kind = V_TUPLE, .items = items, .n = 3};
}

Val bi_softmax(Elab *e, const BuiltinCall *c) {
  int64_t axis;
  if (!builtin_axis(e, c, c->arg[1].i, tval(e, &c->arg[0])->shape.rank, &axis)) return VAL_ERR;
  return like(e, c_softmax(e->b->g, c->arg[0].v, (int)axis), &c->arg[0]);
}

/* ---- activations ---- */

Val bi_gelu(Elab *e, const BuiltinCall *c) {
  bool tanh_form = !strcmp(c->arg[1].s, "tanh");
  if (!tanh_form && strcmp(c->arg[1].s, "none")) {
    elab_error(e, E_VALUE, c->expr[1]->loc,
               "`approx` of `gelu` is \"none\" or \"tanh\", not \"%s\"", c->arg[1].s);
    return VAL_ERR;
  }
  return like(e, c_gelu(e->b->g, c->arg[0].v, tanh_form), &c->arg[0]);
}

Val bi_silu(Elab *e, const BuiltinCall *c) {
  return like(e, c_silu(e->b->g, c->arg[0].v), &c->arg[0]);
}
Val bi_relu(Elab *e, const BuiltinCall *c) {
  return like(e, c_relu(e->b->g, c->arg[0].v), &c->arg[0]);
}
Val bi_sigmoid(Elab *e, const BuiltinCall *c) {
  return like(e, c_sigmoid(e->b->g, c->arg[0].v), &c->arg[0]);
}

Val bi_dropout(Elab *e, const BuiltinCall *c) {
  if (!builtin_range(e, c, 1, 0, 0.999999)) return VAL_ERR;
  return like(e, c_dropout(e->b->g, c->arg[0].v, c->arg[1].f, e->b->training), &c->arg[0]);
}

/* ---- attention ---- */

Val bi_rope(Elab *e, const BuiltinCall *c) {
  if (!has_rank(e, c, 0, 4, "[B, T, H, Dh]") || !builtin_range(e, c, 1, 1, 1e12)) return VAL_ERR;
  if (last_dim(e, &c->arg[0]) % 2) {
    builtin_error(e, c, E_SHAPE, "`rope` pairs the halves of the last axis, which is odd: %lld",
                  (long long)last_dim(e, &c->arg[0]));
    return VAL_ERR;
  }
  if (!builtin_range(e, c, 2, 1e-6, 1e6) || !builtin_range(e, c, 3, 0, 1e6) ||
      !builtin_range(e, c, 4, 0, 1e6) || !builtin_range(e, c, 5, 1, 1e12))
    return VAL_ERR;
  RopeScaling k = {c->arg[2].f, c->arg[3].f, c->arg[4].f, c->arg[5].f};
  if (k.low_freq >= k.high_freq) {
    Diag *d = elab_error(e, E_VALUE, caret(c->x),
                         "`low_freq` of `rope` is %g, which is not below `high_freq`, %g",
                         k.low_freq, k.high_freq);
    diag_help(e->d, d, "Llama 3 has `low_freq = 1.0, high_freq = 4.0`");
    return VAL_ERR;
  }
  ValueId y = c_rope(e->b->g, c->arg[0].v, c->arg[1].f, k.factor == 1 ? NULL : &k);
  return like(e, y, &c->arg[0]);
}

static bool attention_fits(Elab *e, const BuiltinCall *c) {
  for (int i = 0; i < 3; i++)
    if (!has_rank(e, c, i, 4, i ? "[B, Tk, KV, Dh]" : "[B, Tq, H, Dh]")) return false;
  const Shape q = tshape(e, &c->arg[0]), k = tshape(e, &c->arg[1]), v = tshape(e, &c->arg[2]);
  const char *wrong = NULL;
  if (!shape_equal(&k, &v)) wrong = "k and v differ";
  if (q.dim[0] != k.dim[0]) wrong = "batches of q and k differ";
  if (q.dim[3] != k.dim[3]) wrong = "head sizes of q and k differ";
  if (wrong || q.dim[2] % k.dim[2]) {
    if (wrong)
      builtin_error(e, c, E_SHAPE, "`attention`: %s", wrong);
    else
      builtin_error(e, c, E_SHAPE,
                    "`attention`: %lld query heads cannot share %lld heads of k and v",
                    (long long)q.dim[2], (long long)k.dim[2]);
    return false;
  }
  if (c->arg[4].kind == V_TENSOR) {
    Shape want = SHAPE(k.dim[0], k.dim[1]);
    const Value *m = tval(e, &c->arg[4]);
    if (m->dtype != DT_BOOL || !shape_equal(&m->shape, &want)) {
      builtin_error(e, c, E_SHAPE, "`mask` of `attention` is %s %s; it takes bool [B, Tk] = %s",
                    dtype_name(m->dtype), say_shape(e, &c->arg[4]), shape_text(e->arena, &want));
      return false;
    }
  }
  if (c->arg[5].kind == V_TENSOR) {
    Shape want = SHAPE(q.dim[2], q.dim[1], k.dim[1]);
    const Value *b = tval(e, &c->arg[5]);
    if (!dtype_is_float(b->dtype) || !shape_equal(&b->shape, &want)) {
      builtin_error(e, c, E_SHAPE, "`bias` of `attention` is %s; it takes [H, Tq, Tk] = %s",
                    say_shape(e, &c->arg[5]), shape_text(e->arena, &want));
      return false;
    }
  }
  return builtin_range(e, c, 7, 0, 0.999999);
}

Val bi_attention(Elab *e, const BuiltinCall *c) {
  if (!attention_fits(e, c)) return VAL_ERR;
  Graph *g = e->b->g;
  AttentionArgs a = {.q = c->arg[0].v,
                     .k = c->arg[1].v,
                     .v = c->arg[2].v,
                     .mask = -1,
                     .bias = -1,
                     .causal = c->arg[3].i != 0,
                     .seed = -1,
                     .step = -1,
                     .sample0 = -1};
  if (c->arg[4].kind == V_TENSOR) a.mask = c->arg[4].v;
  if (c->arg[5].kind == V_TENSOR) a.bias = c->arg[5].v;
  a.scale = c->arg[6].kind == V_NONE ? 1 / sqrt((double)last_dim(e, &c->arg[0])) : c->arg[6].f;
  if (e->b->training && c->arg[7].f > 0) {
    a.drop = c->arg[7].f;
    a.key = c_random_key(g);
    a.seed = g_var(g, var_scalar(g->vars, SC_SEED));
    a.step = g_var(g, var_scalar(g->vars, SC_STEP));
    a.sample0 = g_var(g, var_scalar(g->vars, SC_SAMPLE0));
  }
  return like(e, g_attention(g, &a), &c->arg[0]);
}

Val bi_relative_bucket(Elab *e, const BuiltinCall *c) {
  for (int i = 0; i < 5; i++)
    if (i != 3 && !builtin_range(e, c, i, i == 2 ? 4 : 1, 1 << 30)) return VAL_ERR;
  bool both = c->arg[3].i != 0;
  int64_t buckets = both ? c->arg[2].i / 2 : c->arg[2].i, exact = buckets / 2;
  if ((double)c->arg[4].i <= (double)exact) {
    elab_error(e, E_VALUE, caret(c->x), "`max_distance` of `relative_bucket` must exceed %lld",
               (long long)exact);
    return VAL_ERR;
  }
  Graph *g = e->b->g;
  Here saved = begin(g, "relative_bucket");
  Shape s = SHAPE(c->arg[0].i, c->arg[1].i);
  ValueId d = g_binary(g, OP_SUB, g_iota(g, DT_I32, s, 1), g_iota(g, DT_I32, s, 0));
  ValueId zero = g_like(g, d, 0), base = zero;
  if (both) {
    base = g_select(g, g_binary(g, OP_LT, zero, d), g_like(g, d, (double)buckets), zero);
    d = g_unary(g, OP_ABS, d);
  } else {
    d = g_unary(g, OP_NEG, g_binary(g, OP_MIN, d, zero));
  }
  /* exact + log(d / exact) / log(max / exact) * (buckets - exact), for d >= exact */
  ValueId f = g_cast(g, g_binary(g, OP_MAX, d, g_like(g, d, (double)exact)), DT_F32);
  double k = (double)(buckets - exact) / log((double)c->arg[4].i / (double)exact);
  ValueId far = scaled(g, g_unary(g, OP_LOG, scaled(g, f, 1 / (double)exact)), k);
  far = g_binary(g, OP_ADD, g_cast(g, far, DT_I32), g_like(g, d, (double)exact));
  far = g_binary(g, OP_MIN, far, g_like(g, d, (double)(buckets - 1)));
  ValueId near = g_binary(g, OP_LT, d, g_like(g, d, (double)exact));
  ValueId v = g_binary(g, OP_ADD, base, g_select(g, near, d, far));
  end(g, saved);
  return val_tensor(v);
}

/* ---- loss ---- */

Val bi_cross_entropy(Elab *e, const BuiltinCall *c) {
  const Val *logits = &c->arg[0], *targets = &c->arg[1];
  Shape rows = tshape(e, logits);
  rows.rank--;
  if (rows.rank < 0 || !shape_equal(&rows, &tval(e, targets)->shape)) {
    Diag *d = builtin_error(e, c, E_SHAPE, "`cross_entropy` of %s and targets %s",
                            say_shape(e, logits), say_shape(e, targets));
    if (rows.rank >= 0)
      diag_note(e->d, d, "one target for each row of logits: %s", shape_text(e->arena, &rows));
    return VAL_ERR;
  }
  if (!builtin_range(e, c, 2, -2147483648.0, 2147483647) || !builtin_range(e, c, 3, 0, 1))
    return VAL_ERR;
  ValueId v = c_cross_entropy(e->b->g, logits->v, targets->v, c->arg[2].i, c->arg[3].f);
  Arena *a = elab_arena(e);
  vec_push(a, &e->b->weighted, v);
  vec_push(a, &e->b->targets, targets->v);
  vec_push(a, &e->b->ignore, c->arg[2].i);
  return val_tensor(v);
}

/* ---- convolution ---- */

/* Windows of size k that fit; 0 none. */
static int64_t windows(int64_t size, int64_t k, int64_t stride, int64_t pad) {
  return size + 2 * pad >= k ? (size + 2 * pad - k) / stride + 1 : 0;
}

static bool window_fits(Elab *e, const BuiltinCall *c, int64_t k, int64_t stride, int64_t pad) {
  const Shape *s = &tval(e, &c->arg[0])->shape;
  if (k < 1 || stride < 1 || pad < 0 || pad > (1 << 20) || k > (1 << 20) || stride > (1 << 20)) {
    elab_error(e, E_VALUE, caret(c->x),
               "`%s` takes kernel and stride of at least 1 and pad of at "
               "least 0",
               c->op->name);
    return false;
  }
  for (int axis = 2; axis < 4; axis++) {
    if (windows(s->dim[axis], k, stride, pad)) continue;
    builtin_error(e, c, E_SHAPE, "a window of %lld does not fit in axis %d of %s", (long long)k,
                  axis, say_shape(e, &c->arg[0]));
    return false;
  }
  return true;
}

Val bi_conv2d(Elab *e, const BuiltinCall *c) {
  if (!has_rank(e, c, 0, 4, "[N, C, H, W]") || !has_rank(e, c, 1, 4, "[O, C / groups, K, K]"))
    return VAL_ERR;
  const Shape x = tshape(e, &c->arg[0]), w = tshape(e, &c->arg[1]);
  int64_t stride = c->arg[2].i, pad = c->arg[3].i, groups = c->arg[4].i;
  if (w.dim[2] != w.dim[3]) {
    builtin_error(e, c, E_SHAPE, "`conv2d` takes square filters, not %lld x %lld",
                  (long long)w.dim[2], (long long)w.dim[3]);
    return VAL_ERR;
  }
  if (groups < 1 || x.dim[1] % groups || x.dim[1] / groups != w.dim[1] || w.dim[0] % groups) {
    builtin_error(e, c, E_SHAPE,
                  "`conv2d` of %lld channels in %lld groups needs filters [O, %lld, K, K], got %s",
                  (long long)x.dim[1], (long long)groups,
                  (long long)(groups > 0 ? x.dim[1] / groups : 0), say_shape(e, &c->arg[1]));
    return VAL_ERR;
  }
  if (!window_fits(e, c, w.dim[2], stride, pad)) return VAL_ERR;
  job_say_not_yet(e, caret(c->x), "operation `conv2d`");
  ValueId in[] = {c->arg[0].v, c->arg[1].v};
  int64_t ints[] = {stride, pad, groups};
  ValueId v = graph_add(e->b->g, OP_CONV2D, 2, in, 3, ints, NULL, NULL);
  if (v < 0) return VAL_ERR;
  Shape *s = &e->b->g->values.at[v].shape;
  s->axis[0] = x.axis[0];
  s->axis[1] = w.axis[0];
  return val_tensor(v);
}

Val bi_max_pool2d(Elab *e, const BuiltinCall *c) {
  if (!has_rank(e, c, 0, 4, "[N, C, H, W]")) return VAL_ERR;
  int64_t kernel = c->arg[1].i, stride = c->arg[2].kind == V_NONE ? kernel : c->arg[2].i,
          pad = c->arg[3].i;
  if (!window_fits(e, c, kernel, stride, pad)) return VAL_ERR;
  job_say_not_yet(e, caret(c->x), "operation `max_pool2d`");
  const Shape x = tshape(e, &c->arg[0]);
  int64_t ints[] = {kernel, stride, pad};
  ValueId v = graph_add(e->b->g, OP_MAX_POOL, 1, &c->arg[0].v, 3, ints, NULL, NULL);
  if (v < 0) return VAL_ERR;
  Shape *s = &e->b->g->values.at[v].shape;
  s->axis[0] = x.axis[0];
  s->axis[1] = x.axis[1];
  return val_tensor(v);
}
