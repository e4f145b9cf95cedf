/* autodiff.c - reverse mode over the graph: walks it backwards once, calls one rule per node, sums
 * cotangents.
 *
 * Only values between a wanted value and the loss are visited. Backward nodes have phase
 * PH_BACKWARD and the place, path, layer and chunk of the node whose gradient they are; the
 * backward of one composition instance is one instance as well. Several contributions to one value
 * are added as they come, in the place of the later consumer. Contributions to a trained parameter
 * are not added: each becomes a GradPart. */
#include <stdlib.h>
#include <string.h>
#include "grad.h"

/* A cotangent of a part of a value: elements start..stop of one axis. */
typedef struct {
  int axis;
  int64_t start, stop;
  ValueId ct;
} Piece;

typedef struct {
  ValueId whole; /* sum of contributions to all of it; -1 none */
  VEC(Piece) pieces;
} Cot;

struct Ad {
  Graph *g;
  Arena *scratch;
  int nvalues; /* of the primal part */
  bool *needs; /* per primal value */
  Cot *cot;    /* per primal value */
  int *tag_of; /* backward instance of each primal tag id; 0 = none yet */
  int ntags;
  bool split;  /* parameters get parts instead of sums */
  int tag_now; /* tag id of the primal node at work */
  VEC(GradPart) parts;
};

static GradRule *const rules[OP_COUNT] = {
#define OP(id, text, nin, nout, attrs, shape, grad, eval, kind, doc) [id] = grad,
#include "ops.def"
};

Graph *ad_graph(Ad *ad) {
  return ad->g;
}
bool ad_needs(const Ad *ad, ValueId v) {
  return ad->needs[v];
}

static bool is_trained(const Graph *g, const Node *n) {
  if (n->op != OP_VAR) return false;
  const Var *v = &g->vars->all.at[n->ints[0]];
  return v->role == VAR_PARAM && v->trainable;
}

bool ad_is_weight(const Ad *ad, ValueId v) {
  const Node *n = node_of(ad->g, v);
  while (n->op == OP_CAST || n->op == OP_RESHAPE || n->op == OP_TRANSPOSE)
    n = node_of(ad->g, n->in[0]);
  return ad->needs[v] && is_trained(ad->g, n);
}

/* New nodes belong to the gradient of n. */
static void enter(Ad *ad, const Node *n) {
  Graph *g = ad->g;
  g->here.loc = n->loc;
  g->here.path = n->path;
  g->here.layer = n->layer;
  g->here.chunk = n->chunk;
  g->here.member = n->member;
  g->here.tile = n->tile;
  g->here.tag = n->tag;
  g->here.tag_id = 0;
  ad->tag_now = n->tag_id;
  if (!n->tag_id || n->tag_id >= ad->ntags) return;
  if (!ad->tag_of[n->tag_id]) ad->tag_of[n->tag_id] = ++g->last_tag_id;
  g->here.tag_id = ad->tag_of[n->tag_id];
}

/* a + b, inside the instance at work only when the value v that they belong to was made inside it.
 */
static ValueId sum_of(Ad *ad, ValueId v, ValueId a, ValueId b) {
  Graph *g = ad->g;
  const char *tag = g->here.tag;
  int tag_id = g->here.tag_id;
  if (node_of(g, v)->tag_id != ad->tag_now) g->here.tag = NULL, g->here.tag_id = 0;
  ValueId sum = g_binary(g, OP_ADD, a, b);
  g->here.tag = tag;
  g->here.tag_id = tag_id;
  return sum;
}

/* A contribution to a parameter, through the casts and reorderings between it and v. */
static void give_weight(Ad *ad, ValueId v, ValueId ct) {
  Graph *g = ad->g;
  for (;;) {
    const Node n = *node_of(g, v);
    if (n.op == OP_VAR) {
      GradPart part = {(int)n.ints[0], ct};
      vec_push(g->arena, &ad->parts, part);
      return;
    }
    const Value to = *val(g, n.in[0]);
    if (n.op == OP_CAST) {
      ct = g_cast(g, ct, to.dtype);
    } else if (n.op == OP_RESHAPE) {
      ct = g_reshape(g, ct, to.shape);
    } else {
      int64_t inverse[MAX_RANK];
      for (int k = 0; k < to.shape.rank; k++) inverse[n.ints[1 + k]] = k;
      ct = g_transpose(g, ct, inverse);
    }
    v = n.in[0];
  }
}

static void check_cot(const Ad *ad, ValueId v, ValueId ct) {
  const Value *a = val(ad->g, v), *b = val(ad->g, ct);
  ensure(a->dtype == b->dtype && shape_equal(&a->shape, &b->shape),
         "cotangent %s%s of a value %s%s", dtype_name(b->dtype), shape_text(ad->scratch, &b->shape),
         dtype_name(a->dtype), shape_text(ad->scratch, &a->shape));
}

void ad_give(Ad *ad, ValueId v, ValueId ct) {
  if (ct < 0 || !ad->needs[v]) return;
  check_cot(ad, v, ct);
  if (ad->split && ad_is_weight(ad, v)) {
    give_weight(ad, v, ct);
    return;
  }
  ValueId *whole = &ad->cot[v].whole;
  *whole = *whole < 0 ? ct : sum_of(ad, v, *whole, ct);
}

/* ct with zeros around it, in the shape of v. */
static ValueId padded(Ad *ad, ValueId v, const Piece *p) {
  int64_t before[MAX_RANK] = {0}, after[MAX_RANK] = {0};
  const Shape to = val(ad->g, v)->shape;
  before[p->axis] = p->start;
  after[p->axis] = to.dim[p->axis] - p->stop;
  ValueId out = g_pad(ad->g, p->ct, before, after);
  if (out >= 0) ad->g->values.at[out].shape.axis[p->axis] = to.axis[p->axis];
  return out;
}

void ad_give_slice(Ad *ad, ValueId v, int axis, int64_t start, ValueId ct) {
  if (ct < 0 || !ad->needs[v]) return;
  Piece p = {axis, start, start + val(ad->g, ct)->shape.dim[axis], ct};
  if (ad->split && ad_is_weight(ad, v)) {
    ad_give(ad, v, padded(ad, v, &p));
    return;
  }
  Cot *c = &ad->cot[v];
  for (int i = 0; i < c->pieces.n; i++) {
    Piece *o = &c->pieces.at[i];
    if (o->axis != axis || o->start != p.start || o->stop != p.stop) continue;
    o->ct = sum_of(ad, v, o->ct, ct);
    return;
  }
  vec_push(ad->scratch, &c->pieces, p);
}

static int by_place(const void *a, const void *b) {
  const Piece *x = a, *y = b;
  if (x->axis != y->axis) return x->axis - y->axis;
  if (x->start != y->start) return x->start < y->start ? -1 : 1;
  return (x->stop > y->stop) - (x->stop < y->stop);
}

/* Joins pieces that follow one another along one axis, pads what is left, and adds all to the
 * whole. */
static void join_pieces(Ad *ad, ValueId v) {
  Cot *c = &ad->cot[v];
  Graph *g = ad->g;
  qsort(c->pieces.at, c->pieces.n, sizeof(Piece), by_place);
  for (int i = 0, next; i < c->pieces.n; i = next) {
    Piece run = c->pieces.at[i];
    VEC(ValueId) parts = {0};
    vec_push(ad->scratch, &parts, run.ct);
    for (next = i + 1; next < c->pieces.n; next++) {
      const Piece *p = &c->pieces.at[next];
      if (p->axis != run.axis || p->start != run.stop) break;
      vec_push(ad->scratch, &parts, p->ct);
      run.stop = p->stop;
    }
    if (parts.n > 1) run.ct = g_concat(g, parts.n, parts.at, run.axis);
    const Shape to = val(g, v)->shape;
    if (run.start > 0 || run.stop < to.dim[run.axis])
      run.ct = padded(ad, v, &run);
    else
      g->values.at[run.ct].shape.axis[run.axis] = to.axis[run.axis];
    ad_give(ad, v, run.ct);
  }
  c->pieces.n = 0;
}

ValueId ad_cot(Ad *ad, const Node *n, int i) {
  return ad->cot[n->out + i].whole;
}

void ad_refuse(Ad *ad, const Node *n, ErrId why) {
  Graph *g = ad->g;
  if (!g->diags) bug("the loss depends on `%s` (in `%s`): no gradient", op_name(n->op), n->path);
  if (why == E_NOT_YET)
    diag_error(g->diags, why, n->loc, "`%s` cannot be trained yet", op_name(n->op));
  else
    diag_error(g->diags, why, n->loc,
               "the loss depends on a parameter through `%s`, which has no gradient",
               op_name(n->op));
}

/* A result needs a cotangent when it is a float that depends on a value that does. */
static void mark_needs(Ad *ad, int last) {
  for (int i = 0; i <= last; i++) {
    const Node *n = &ad->g->nodes.at[i];
    bool any = ad->split && is_trained(ad->g, n);
    for (int k = 0; k < n->nin; k++) any |= ad->needs[n->in[k]];
    if (rules[n->op] == gr_zero) any = false;
    for (int k = 0; k < n->nout; k++)
      if (any && dtype_is_float(ad->g->values.at[n->out + k].dtype)) ad->needs[n->out + k] = true;
  }
}

static Ad start(Graph *g, bool split) {
  Ad ad = {.g = g, .scratch = arena_new(), .nvalues = g->values.n, .split = split};
  ad.needs = arena_array(ad.scratch, bool, g->values.n);
  ad.cot = arena_array(ad.scratch, Cot, g->values.n);
  for (int v = 0; v < g->values.n; v++) ad.cot[v].whole = -1;
  ad.ntags = g->last_tag_id + 1;
  ad.tag_of = arena_array(ad.scratch, int, ad.ntags);
  return ad;
}

static void walk_back(Ad *ad, int last) {
  for (int i = last; i >= 0; i--) {
    const Node n = ad->g->nodes.at[i]; /* a copy: the graph grows */
    bool reached = false, goes_on = false;
    enter(ad, &n);
    for (int k = 0; k < n.nout; k++) {
      if (ad->cot[n.out + k].pieces.n) join_pieces(ad, n.out + k);
      reached |= ad->cot[n.out + k].whole >= 0;
    }
    for (int k = 0; k < n.nin; k++) goes_on |= ad->needs[n.in[k]];
    if (reached && goes_on) rules[n.op](ad, &n);
  }
}

/* Runs the whole walk from loss, whose cotangent is seed, or ones. */
static void differentiate(Ad *ad, ValueId loss, ValueId seed) {
  Graph *g = ad->g;
  __typeof__(g->here) saved = g->here;
  int last = val(g, loss)->def;
  mark_needs(ad, last);
  const Node n = *node_of(g, loss);
  g->here.phase = PH_BACKWARD;
  enter(ad, &n);
  if (ad->needs[loss]) ad_give(ad, loss, seed >= 0 ? seed : g_like(g, loss, 1));
  walk_back(ad, last);
  g->here = saved;
}

Grads graph_autodiff(Graph *g, ValueId loss) {
  ensure(!val(g, loss)->shape.rank && dtype_is_float(val(g, loss)->dtype),
         "the loss of `%s` is no float scalar", g->name);
  Ad ad = start(g, true);
  differentiate(&ad, loss, -1);
  arena_free(ad.scratch);
  return (Grads){ad.parts.at, ad.parts.n};
}

void graph_gradients(Graph *g, ValueId loss, ValueId seed, int n, const ValueId *wrt,
                     ValueId *grad) {
  Ad ad = start(g, false);
  for (int i = 0; i < n; i++) ad.needs[wrt[i]] = true;
  differentiate(&ad, loss, seed);
  for (int i = 0; i < n; i++) {
    ValueId ct = ad.cot[wrt[i]].whole;
    grad[i] = ct >= 0 ? ct : g_like(g, wrt[i], 0);
  }
  arena_free(ad.scratch);
}
