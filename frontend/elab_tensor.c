/* elab_tensor.c - operators on tensors: arithmetic with broadcasting, `@`, `as`, indexing, `.T`.
 * Every shape rule is checked here, before the graph is touched, because only here both operands'
 * source text is known. */
#include <string.h>
#include "elab.h"

void axes_named_like(Graph *g, ValueId to, ValueId from) {
  const Shape f = g->values.at[from].shape;
  Shape *t = &g->values.at[to].shape;
  for (int i = 1; i <= t->rank && i <= f.rank; i++) {
    int k = t->rank - i, m = f.rank - i;
    if (!t->axis[k] && t->dim[k] == f.dim[m]) t->axis[k] = f.axis[m];
  }
}

/* The value with exactly these axis names. */
static Val named(Elab *e, ValueId v, const Shape *names) {
  if (v < 0) return VAL_ERR;
  Shape *s = &e->b->g->values.at[v].shape;
  for (int i = 0; i < s->rank && i < names->rank; i++) s->axis[i] = names->axis[i];
  return val_tensor(v);
}

Val tensor_of(Elab *e, Val v, DType t) {
  Graph *g = e->b->g;
  switch (v.kind) {
    case V_INT:
      return val_tensor(g_const(g, t, shape_scalar(), (double)v.i));
    case V_NUM:
      if (!dtype_is_float(t)) t = DT_F32;
      return val_tensor(g_const(g, t, shape_scalar(), v.f));
    case V_BOOL:
      return val_tensor(g_const(g, DT_BOOL, shape_scalar(), v.i ? 1 : 0));
    default:
      return v;
  }
}

bool shapes_broadcast(const Shape *a, const Shape *b, int *axis) {
  for (int i = 1; i <= a->rank && i <= b->rank; i++) {
    int64_t p = a->dim[a->rank - i], q = b->dim[b->rank - i];
    if (p != q && p != 1 && q != 1) {
      *axis = i;
      return false;
    }
  }
  return true;
}

static const char *axis_text(Elab *e, const Shape *s, int from_right) {
  int k = s->rank - from_right;
  return s->axis[k] ? arena_printf(e->arena, "%s=%lld", s->axis[k], (long long)s->dim[k])
                    : arena_printf(e->arena, "%lld", (long long)s->dim[k]);
}

/* Both operands as tensors of one dtype, or false after a message. */
static bool same_dtype(Elab *e, const Expr *x, Val *a, Val *b) {
  Graph *g = e->b->g;
  g->here.loc = caret(x);
  if (a->kind != V_TENSOR) *a = tensor_of(e, *a, tval(e, b)->dtype);
  if (b->kind != V_TENSOR) *b = tensor_of(e, *b, tval(e, a)->dtype);
  if (a->kind != V_TENSOR || b->kind != V_TENSOR) {
    const Val *odd = a->kind != V_TENSOR ? a : b;
    if (odd->kind != V_ERR)
      elab_error(e, E_TYPE, caret(x), "`%s` takes numbers and tensors, not %s",
                 say_loc(e, x->op_loc), say_val(e, odd));
    return false;
  }
  DType p = tval(e, a)->dtype, q = tval(e, b)->dtype;
  if (p == q) return true;
  if (dtype_is_float(p) && dtype_is_float(q)) {
    *a = val_tensor(g_cast(g, a->v, DT_F32));
    *b = val_tensor(g_cast(g, b->v, DT_F32));
    return a->kind == V_TENSOR && b->kind == V_TENSOR;
  }
  Diag *d = elab_error(e, E_TYPE, caret(x), "operands of `%s` have different types: %s and %s",
                       say_loc(e, x->op_loc), dtype_name(p), dtype_name(q));
  diag_label(e->d, d, x->a->loc, "%s %s", dtype_name(p), say_shape(e, a));
  diag_label(e->d, d, x->b->loc, "%s %s", dtype_name(q), say_shape(e, b));
  diag_help(e->d, d, "`x as f32` converts");
  return false;
}

static Val matmul(Elab *e, const Expr *x, const Val *a, const Val *b) {
  const Shape p = tshape(e, a), q = tshape(e, b);
  ErrId id = ERR_COUNT;
  const char *message = NULL;
  if (p.rank < 1 || q.rank < 2 || (q.rank > 2 && q.rank != p.rank)) {
    id = E_RANK;
    message = arena_printf(e->arena,
                           "`@` of %d and %d axes: the right side is a matrix, or has as "
                           "many axes as the left",
                           p.rank, q.rank);
  } else if (p.dim[p.rank - 1] != q.dim[q.rank - 2]) {
    id = E_MATMUL;
    message = arena_printf(e->arena, "inner dimensions of `@` differ: %lld and %lld",
                           (long long)p.dim[p.rank - 1], (long long)q.dim[q.rank - 2]);
  } else {
    for (int i = 0; q.rank > 2 && i < q.rank - 2 && !message; i++)
      if (p.dim[i] != q.dim[i]) {
        id = E_MATMUL;
        message = arena_printf(e->arena, "leading axes of `@` differ: %lld and %lld on axis %d",
                               (long long)p.dim[i], (long long)q.dim[i], i);
      }
  }
  if (!message) {
    e->b->g->here.loc = caret(x);
    Shape names = p;
    names.axis[names.rank - 1] = q.axis[q.rank - 1];
    return named(e, g_matmul(e->b->g, a->v, b->v), &names);
  }
  Diag *d = elab_error(e, id, caret(x), "%s", message);
  diag_label(e->d, d, x->a->loc, "%s", say_shape(e, a));
  diag_label(e->d, d, x->b->loc, "%s", say_shape(e, b));
  if (id == E_MATMUL && q.rank == 2 && p.dim[p.rank - 1] == q.dim[1]) {
    Shape t = {.rank = 2, .dim = {q.dim[1], q.dim[0]}, .axis = {q.axis[1], q.axis[0]}};
    diag_help(e->d, d, "`%s.T` is %s", say_expr(e, x->b), shape_text(e->arena, &t));
  }
  return VAL_ERR;
}

static bool operand_types_ok(Elab *e, const Expr *x, DType t) {
  bool logic = x->op == OPR_AND || x->op == OPR_OR, equal = x->op == OPR_EQ || x->op == OPR_NE;
  const char *takes = logic && t != DT_BOOL                    ? "bool tensors"
                      : !logic && !equal && t == DT_BOOL       ? "numbers"
                      : x->op == '%' && dtype_is_float(t)      ? "whole numbers"
                      : x->op == OPR_POW && !dtype_is_float(t) ? "floating-point numbers"
                                                               : NULL;
  if (takes)
    elab_error(e, E_TYPE, caret(x), "`%s` takes %s, not %s", say_loc(e, x->op_loc), takes,
               dtype_name(t));
  return !takes;
}

/* x ** 2 and the square roots without `pow`. */
static ValueId power(Graph *g, ValueId a, ValueId b) {
  const Node *n = node_of(g, b);
  double k = n->op == OP_CONST ? n->num[0] : 0;
  if (n->op == OP_CONST && k == 2) return g_binary(g, OP_MUL, a, a);
  if (n->op == OP_CONST && k == 1) return a;
  if (n->op == OP_CONST && k == 0.5) return g_unary(g, OP_SQRT, a);
  if (n->op == OP_CONST && k == -0.5) return g_unary(g, OP_RSQRT, a);
  return g_bin(g, OP_POW, a, b);
}

static ValueId apply(Graph *g, int op, ValueId a, ValueId b) {
  switch (op) {
    case '+':
      return g_bin(g, OP_ADD, a, b);
    case '-':
      return g_bin(g, OP_SUB, a, b);
    case '*':
      return g_bin(g, OP_MUL, a, b);
    case '/':
      return g_bin(g, OP_DIV, a, b);
    case '%':
      return g_bin(g, OP_MOD, a, b);
    case '<':
      return g_bin(g, OP_LT, a, b);
    case '>':
      return g_bin(g, OP_LT, b, a);
    case OPR_LE:
      return g_bin(g, OP_LE, a, b);
    case OPR_GE:
      return g_bin(g, OP_LE, b, a);
    case OPR_EQ:
      return g_bin(g, OP_EQ, a, b);
    case OPR_NE:
      return g_unary(g, OP_NOT, g_bin(g, OP_EQ, a, b));
    case OPR_AND:
      return g_bin(g, OP_AND, a, b);
    case OPR_OR:
      return g_bin(g, OP_OR, a, b);
    case OPR_POW:
      return power(g, a, b);
    default:
      bug("operator %d", op);
  }
}

Val tensor_binary(Elab *e, const Expr *x, Val a, Val b) {
  if (a.kind == V_NONE || b.kind == V_NONE) /* a tensor is never `none` */
    if (x->op == OPR_EQ || x->op == OPR_NE) return val_bool(x->op == OPR_NE);
  if (!same_dtype(e, x, &a, &b)) return VAL_ERR;
  if (x->op == '@') return matmul(e, x, &a, &b);
  if (!operand_types_ok(e, x, tval(e, &a)->dtype)) return VAL_ERR;
  const Shape p = tshape(e, &a), q = tshape(e, &b);
  int axis = 0;
  if (!shapes_broadcast(&p, &q, &axis)) {
    Diag *d = elab_error(e, E_BROADCAST, caret(x), "shapes of `%s` differ: %s and %s",
                         say_loc(e, x->op_loc), axis_text(e, &p, axis), axis_text(e, &q, axis));
    diag_label(e->d, d, x->a->loc, "%s", say_shape(e, &a));
    diag_label(e->d, d, x->b->loc, "%s", say_shape(e, &b));
    return VAL_ERR;
  }
  Graph *g = e->b->g;
  g->here.loc = caret(x);
  ValueId r = apply(g, x->op, a.v, b.v);
  if (r < 0) return VAL_ERR;
  axes_named_like(g, r, a.v);
  axes_named_like(g, r, b.v);
  return val_tensor(r);
}

Val tensor_transposed(Elab *e, const Expr *x, Val a) {
  Shape s = tshape(e, &a);
  if (s.rank < 2) {
    elab_error(e, E_RANK, x->op_loc, "`.T` takes a tensor of at least 2 axes, not %s",
               say_shape(e, &a));
    return VAL_ERR;
  }
  int64_t perm[MAX_RANK];
  for (int i = 0; i < s.rank; i++) perm[i] = i;
  perm[s.rank - 1] = s.rank - 2;
  perm[s.rank - 2] = s.rank - 1;
  const char *last = s.axis[s.rank - 1];
  s.axis[s.rank - 1] = s.axis[s.rank - 2];
  s.axis[s.rank - 2] = last;
  e->b->g->here.loc = x->op_loc;
  return named(e, g_transpose(e->b->g, a.v, perm), &s);
}

/* ---- x[..] ---- */

typedef struct {
  Shape s;
  bool drop[MAX_RANK];
  ValueId v;
} Cut;

static bool bound(Elab *e, const Scope *s, const Expr *x, int64_t size, int64_t none,
                  int64_t *out) {
  *out = none;
  if (!x) return true;
  Val v = eval_static(e, s, x, "an index");
  if (v.kind != V_INT) {
    if (v.kind != V_ERR)
      elab_error(e, E_TYPE, x->loc, "an index is a number, not %s", say_val(e, &v));
    return false;
  }
  *out = v.i < 0 ? v.i + size : v.i;
  return true;
}

static bool cut_axis(Elab *e, const Scope *s, const Index *ix, Cut *c, int axis, const char *text) {
  int64_t size = c->s.dim[axis], from = 0, to = size;
  if (ix->kind == IX_ALL || ix->kind == IX_STAR) return true;
  if (ix->kind == IX_EXPR) {
    if (!bound(e, s, ix->a, size, 0, &from)) return false;
    to = from + 1;
    c->drop[axis] = true;
  } else if (!bound(e, s, ix->a, size, 0, &from) || !bound(e, s, ix->b, size, size, &to)) {
    return false;
  }
  if (from < 0 || to > size || from >= to) {
    Diag *d = elab_error(e, E_AXIS, ix->loc, "index %s is outside axis %d of %s",
                         say_loc(e, ix->loc), axis, text);
    diag_primary_label(e->d, d, "%s has %lld", c->s.axis[axis] ? c->s.axis[axis] : "the axis",
                       (long long)size);
    return false;
  }
  if (to - from == size) return true;
  c->v = g_slice(e->b->g, c->v, axis, from, to);
  if (ix->kind == IX_RANGE) c->s.axis[axis] = NULL;
  c->s.dim[axis] = to - from;
  return c->v >= 0;
}

Val tensor_index(Elab *e, const Scope *s, const Expr *x, Val a) {
  Cut c = {.s = tshape(e, &a), .v = a.v};
  int dots = 0;
  for (int i = 0; i < x->index.n; i++) dots += x->index.at[i].kind == IX_DOTS;
  if (dots > 1 || x->index.n - dots > c.s.rank) {
    elab_error(e, E_RANK, x->op_loc, "%d indices for %s", x->index.n, say_shape(e, &a));
    return VAL_ERR;
  }
  const char *text = say_shape(e, &a);
  for (int i = 0, axis = 0; i < x->index.n; i++) {
    if (x->index.at[i].kind == IX_DOTS) {
      axis += c.s.rank - (x->index.n - 1);
      continue;
    }
    e->b->g->here.loc = x->op_loc;
    if (!cut_axis(e, s, &x->index.at[i], &c, axis++, text)) return VAL_ERR;
  }
  Shape out = {0};
  for (int k = 0; k < c.s.rank; k++) {
    if (c.drop[k]) continue;
    out.dim[out.rank] = c.s.dim[k];
    out.axis[out.rank++] = c.s.axis[k];
  }
  if (out.rank != c.s.rank) c.v = g_reshape(e->b->g, c.v, out);
  return c.v == a.v ? a : named(e, c.v, &out);
}

/* ---- x as [..] ---- */

typedef struct {
  Shape in, out;
  int same; /* leading axes that agree */
} Recast;

/* "token" when the leading axes are those of one, "sample" for a batch alone; else their names. */
static const char *per_what(Elab *e, const Recast *r) {
  const char *last = r->in.axis[r->same - 1];
  if (r->same == 2 && last && last[0] == 'T') return "token";
  if (r->same == 1 && last && (!strcmp(last, "B") || !strcmp(last, "N"))) return "sample";
  Shape lead = r->in;
  lead.rank = r->same;
  return shape_text(e->arena, &lead);
}

/* Elements of the axes from `from` on; INT64_MAX when there are more. */
static int64_t product(const Shape *s, int from) {
  int64_t n = 1;
  for (int i = from; i < s->rank; i++)
    if (__builtin_mul_overflow(n, s->dim[i], &n)) return INT64_MAX;
  return n;
}

static const char *product_text(Elab *e, const Shape *s, int from) {
  Str t = {.arena = e->arena};
  for (int i = from; i < s->rank; i++) {
    str_add(&t, i > from ? "*" : "");
    if (s->axis[i])
      str_add(&t, s->axis[i]);
    else
      str_addf(&t, "%lld", (long long)s->dim[i]);
  }
  return t.text;
}

/* The `let` among the dims that the mistake may lie in, or NULL. */
static const Binding *find_let(const Scope *s, const Expr *x, const Recast *r) {
  for (int i = r->same; i < x->type->dims.n && x->type->dims.n == r->out.rank; i++) {
    const Expr *dim = x->type->dims.at[i];
    const Binding *b = dim && dim->kind == EX_NAME ? scope_find(s, dim->text) : NULL;
    if (b && b->is_let && b->val.i) return b;
  }
  return NULL;
}

/* What the `let` would have to be, and from which two sizes that would follow. */
static void blame_let(Elab *e, const Scope *s, Diag *d, const Recast *r, const Binding *b) {
  int64_t want = product(&r->in, r->same), others = product(&r->out, r->same) / b->val.i;
  diag_label(e->d, d, b->loc, "%s is set here", b->name);
  int64_t need = others ? want / others : 0;
  if (!others || need * others != want) return;
  const Scope *home = s;
  while (!scope_find_here(home, b->name)) home = home->up;
  for (int p = 0; p < home->all.n; p++)
    for (int q = 0; q < home->all.n; q++) {
      const Binding *m = &home->all.at[p], *n = &home->all.at[q];
      if (m->val.kind != V_INT || n->val.kind != V_INT || m == b || n == b || n->val.i < 2 ||
          m->val.i != need * n->val.i)
        continue;
      diag_help(e->d, d, "%s = %s / %s would be %lld", b->name, m->name, n->name, (long long)need);
      return;
    }
  diag_help(e->d, d, "%s = %lld would fit", b->name, (long long)need);
}

/* One wrong `let` makes many wrong shapes: it is blamed once. */
static bool blamed(Elab *e, const Binding *b) {
  for (int i = 0; i < e->blamed.n; i++)
    if (e->blamed.at[i].line == b->loc.line && e->blamed.at[i].file == b->loc.file) return true;
  vec_push(e->arena, &e->blamed, b->loc);
  return false;
}

static void say_reshape(Elab *e, const Scope *s, const Expr *x, const Val *a, Recast *r) {
  while (r->same < r->in.rank && r->same < r->out.rank && r->in.dim[r->same] == r->out.dim[r->same])
    r->same++;
  const Binding *let = find_let(s, x, r);
  if (let && blamed(e, let)) return;
  long long in = product(&r->in, r->same), out = product(&r->out, r->same);
  Diag *d = r->same ? elab_error(e, E_RESHAPE, x->op_loc,
                                 "`as` must keep the element count: %lld per %s in, %lld out", in,
                                 per_what(e, r), out)
                    : elab_error(e, E_RESHAPE, x->op_loc,
                                 "`as` must keep the element count: %lld in, %lld out", in, out);
  if (r->out.rank - r->same > 1)
    diag_label(e->d, d, x->type->loc, "%s  %s = %lld", shape_text(e->arena, &r->out),
               product_text(e, &r->out, r->same), out);
  else
    diag_label(e->d, d, x->type->loc, "%s", shape_text(e->arena, &r->out));
  const char *part = "";
  if (a->origin)
    part = arena_printf(e->arena, "   %s of %s, %lld", ordinal_part(a->part_of),
                        say_expr(e, a->origin), (long long)r->in.dim[r->in.rank - 1] * a->part_of);
  diag_label(e->d, d, x->a->loc, "%s%s", shape_text(e->arena, &r->in), part);
  if (let) blame_let(e, s, d, r, let);
}

/* The dims of `as [..]`: `..` keeps leading axes, `auto` takes what is left. False after a message.
 */
static bool recast_dims(Elab *e, const Scope *s, const Expr *x, Recast *r) {
  const TypeExpr *t = x->type;
  int dots = -1, wild = -1;
  for (int i = 0; i < t->dims.n; i++) {
    const Expr *d = t->dims.at[i];
    if (r->out.rank >= MAX_RANK || (!d && i > 0)) {
      elab_error(e, E_RANK, t->loc, d ? "more than %d axes" : "`..` stands first, for leading axes",
                 MAX_RANK);
      return false;
    }
    if (!d) {
      dots = i;
    } else if (d->kind == EX_AUTO && wild < 0) {
      wild = r->out.rank;
      r->out.dim[r->out.rank++] = 1;
    } else {
      int k = r->out.rank++;
      if (!eval_dim(e, s, d, &r->out.dim[k], &r->out.axis[k])) return false;
    }
  }
  if (dots >= 0) { /* as many leading axes as leave the product of the others */
    int64_t rest = product(&r->out, 0);
    int lead = r->in.rank;
    while (lead > 0 && product(&r->in, lead) < rest) lead--;
    if (lead + r->out.rank > MAX_RANK) lead = MAX_RANK - r->out.rank;
    Shape out = r->in;
    out.rank = lead;
    for (int i = 0; i < r->out.rank; i++) {
      out.dim[out.rank] = r->out.dim[i];
      out.axis[out.rank++] = r->out.axis[i];
    }
    if (wild >= 0) wild += lead;
    r->out = out;
  }
  int64_t known = product(&r->out, 0), all = product(&r->in, 0);
  if (wild >= 0 && known && all % known == 0) r->out.dim[wild] = all / known;
  return true;
}

Val tensor_as(Elab *e, const Scope *s, const Expr *x, Val a) {
  if (a.kind != V_TENSOR && e->b && (val_is_number(&a) || a.kind == V_BOOL)) {
    e->b->g->here.loc = x->op_loc;
    a = tensor_of(e, a, x->type->dtype >= 0 ? (DType)x->type->dtype : DT_F32);
  }
  if (a.kind != V_TENSOR) {
    elab_error(e, E_TYPE, x->op_loc, "`as` takes a tensor, not %s", say_val(e, &a));
    return VAL_ERR;
  }
  Graph *g = e->b->g;
  Val out = a;
  if (x->type->has_dims) {
    Recast r = {.in = tshape(e, &a)};
    if (!recast_dims(e, s, x, &r)) return VAL_ERR;
    if (product(&r.in, 0) != product(&r.out, 0)) {
      say_reshape(e, s, x, &a, &r);
      return VAL_ERR;
    }
    g->here.loc = x->op_loc;
    out = shape_equal(&r.in, &r.out) ? a : named(e, g_reshape(g, a.v, r.out), &r.out);
  }
  if (x->type->dtype >= 0 && out.kind == V_TENSOR && (int)tval(e, &out)->dtype != x->type->dtype) {
    const Shape names = tshape(e, &out);
    g->here.loc = x->op_loc;
    out = named(e, g_cast(g, out.v, (DType)x->type->dtype), &names);
  }
  return out;
}
