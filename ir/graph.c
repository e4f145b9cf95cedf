/* graph.c - the graph itself: op table, variables, the general builder, attribute access, uses.
 *
 * Input: operands and attributes; output: nodes appended to the graph with the result types that
 * the op's shape rule infers. A node is never changed after it was added. */
#include "graph.h"
#include <pthread.h>
#include <string.h>
#include "infer.h"

static const struct {
  const char *text, *attrs, *doc;
  int nin, nout;
  OpKind kind;
} table[OP_COUNT] = {
#define OP(id, text, nin, nout, attrs, shape, grad, eval, kind, doc) \
  [id] = {text, attrs, doc, nin, nout, kind},
#include "ops.def"
};

const char *op_name(Op op) {
  return table[op].text;
}
OpKind op_kind(Op op) {
  return table[op].kind;
}
const char *op_attrs(Op op) {
  return table[op].attrs;
}
const char *op_doc(Op op) {
  return table[op].doc;
}
int op_operands(Op op) {
  return table[op].nin;
}
int op_results(Op op) {
  return table[op].nout;
}

bool op_is_slow(Op op) {
  switch (op) {
    case OP_EXP:
    case OP_LOG:
    case OP_TANH:
    case OP_ERF:
    case OP_SIN:
    case OP_COS:
    case OP_POW:
    case OP_QUANT8:
    case OP_QUANT8U:
    case OP_DEQUANT8:
    case OP_DEQUANT8U: return true;
    default: return false;
  }
}

int op_by_name(const char *s) {
  for (int i = 0; i < OP_COUNT; i++)
    if (!strcmp(table[i].text, s)) return i;
  return -1;
}

/* ---- variables ---- */

Vars *vars_new(Arena *a) {
  Vars *v = arena_new_of(a, Vars);
  v->arena = a;
  return v;
}

int var_find(const Vars *v, const char *path) {
  for (int i = 0; i < v->all.n; i++)
    if (!strcmp(v->all.at[i].path, path)) return i;
  return -1;
}

int var_add(Vars *v, Var var) {
  ensure(var_find(v, var.path) < 0, "variable `%s` is added twice", var.path);
  var.path = intern(var.path);
  vec_push(v->arena, &v->all, var);
  return v->all.n - 1;
}

static const struct {
  const char *path;
  DType dtype;
  int n; /* 0 = a scalar */
} step_scalars[SC_COUNT] = {
#define X(id, path, dtype, n, doc) [id] = {path, dtype, n},
    STEP_SCALARS(X)
#undef X
};

int var_scalar_known(const Vars *v, StepScalar s) {
  return var_find(v, step_scalars[s].path);
}

int var_scalar(Vars *v, StepScalar s) {
  int found = var_scalar_known(v, s);
  if (found >= 0) return found;
  Var var = {.path = step_scalars[s].path,
             .role = VAR_SCALAR,
             .dtype = step_scalars[s].dtype,
             .of = -1,
             .loc = NO_LOC,
             .layer = -1};
  if (step_scalars[s].n) var.shape = SHAPE(step_scalars[s].n);
  return var_add(v, var);
}

/* ---- attributes ---- */

bool attr_next(const char **s, Attr *out) {
  const char *p = *s;
  while (*p == ' ') p++;
  if (!*p) return false;
  const char *colon = strchr(p, ':');
  ensure(colon && colon - p < (int)sizeof out->name, "bad legend in ops.def: %s", p);
  memcpy(out->name, p, colon - p);
  out->name[colon - p] = 0;
  out->kind = colon[1];
  *s = colon + 2;
  return true;
}

/* The legends of ops.def, read once. */
static struct {
  int n;
  Attr attr[MAX_ATTRS];
} legends[OP_COUNT];

static void read_legends(void) {
  for (int op = 0; op < OP_COUNT; op++) {
    const char *text = table[op].attrs;
    for (Attr attr = {0}; attr_next(&text, &attr);) {
      ensure(legends[op].n < MAX_ATTRS, "too many attributes in ops.def: %s", table[op].attrs);
      legends[op].attr[legends[op].n++] = attr;
    }
  }
}

/* Words that an attribute takes from ints[at..] on, as its place in `at` and `len`; false when they
 * are not there. */
static bool take_attr(Attr *attr, int nints, const int64_t *ints, int *at, int *nnum) {
  attr->len = attr->kind != 's';
  if (attr->kind == 's') {
    attr->at = 0;
  } else if (attr->kind == 'f') {
    attr->at = (*nnum)++;
  } else {
    if (*at >= nints) return false;
    if (attr->kind == 'I') {
      if (ints[*at] < 0 || ints[*at] > nints - *at - 1) return false;
      attr->len = (int)ints[(*at)++];
    }
    attr->at = *at;
    *at += attr->len;
  }
  return true;
}

static int legend_size(Op op) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, read_legends);
  return legends[op].n;
}

int attr_layout(Op op, int nints, const int64_t *ints, int max, Attr *out) {
  int at = 0, nnum = 0, n = legend_size(op);
  for (int i = 0; i < n; i++) {
    Attr attr = legends[op].attr[i];
    if (!take_attr(&attr, nints, ints, &at, &nnum)) return -1;
    if (i < max) out[i] = attr;
  }
  return at == nints ? n < max ? n : max : -1;
}

Attr attr_find(Op op, int nints, const int64_t *ints, const char *name) {
  for (int i = 0, at = 0, nnum = 0, n = legend_size(op); i < n; i++) {
    Attr attr = legends[op].attr[i];
    if (!take_attr(&attr, nints, ints, &at, &nnum)) break;
    if (!strcmp(attr.name, name)) return attr;
  }
  bug("op `%s` has no attribute `%s`", op_name(op), name);
}

static Attr find_attr(const Node *n, const char *name) {
  return attr_find(n->op, n->nints, n->ints, name);
}

int64_t node_int(const Node *n, const char *name) {
  return n->ints[find_attr(n, name).at];
}
double node_num(const Node *n, const char *name) {
  return n->num[find_attr(n, name).at];
}

int node_list(const Node *n, const char *name, const int64_t **items) {
  Attr a = find_attr(n, name);
  *items = n->ints + a.at;
  return a.len;
}

/* ---- the builder ---- */

Graph *graph_new(Arena *a, const char *name, Vars *vars) {
  Graph *g = arena_new_of(a, Graph);
  g->arena = a;
  g->name = intern(name);
  g->vars = vars;
  g->here.loc = NO_LOC;
  g->here.path = "";
  g->here.layer = -1;
  return g;
}

static void report(Graph *g, const Infer *f) {
  if (!g->diags) {
    Str s = {.arena = g->arena};
    for (int i = 0; i < f->nnotes; i++) str_addf(&s, "; %s", f->notes[i]);
    bug("%s: %s%s (in `%s`)", err_code(f->err), f->message, f->nnotes ? s.text : "", g->here.path);
  }
  Diag *d = diag_error(g->diags, f->err, g->here.loc, "%s", f->message);
  for (int i = 0; i < f->nnotes; i++) diag_note(g->diags, d, "%s", f->notes[i]);
  if (f->help) diag_help(g->diags, d, "%s", f->help);
}

ValueId graph_add(Graph *g, Op op, int nin, const ValueId *in, int nints, const int64_t *ints,
                  const double *num, const char *sym) {
  for (int i = 0; i < nin; i++)
    if (in[i] < 0) return -1;
  static const double none[2];
  Infer f = {.g = g,
             .arena = g->arena,
             .op = op,
             .nin = nin,
             .in = in,
             .nints = nints,
             .ints = ints,
             .num = num ? num : none,
             .sym = sym};
  if (!infer(&f)) {
    report(g, &f);
    return -1;
  }
  Node n = {.op = op,
            .phase = g->here.phase,
            .nin = nin,
            .nout = f.nout,
            .out = g->values.n,
            .nints = nints,
            .num = {f.num[0], f.num[1]},
            .sym = sym ? intern(sym) : NULL,
            .loc = g->here.loc,
            .path = g->here.path ? g->here.path : "",
            .tag = g->here.tag,
            .tag_id = g->here.tag_id,
            .layer = g->here.layer,
            .chunk = g->here.chunk,
            .member = g->here.member,
            .tile = g->here.tile};
  n.in = nin ? arena_copy(g->arena, in, sizeof *in * nin) : NULL;
  n.ints = nints ? arena_copy(g->arena, ints, sizeof *ints * nints) : NULL;
  NodeId id = g->nodes.n;
  vec_push(g->arena, &g->nodes, n);
  for (int i = 0; i < f.nout; i++) {
    Value v = {.def = id, .out = i, .dtype = f.out[i].dtype, .shape = f.out[i].shape};
    vec_push(g->arena, &g->values, v);
  }
  return f.nout ? n.out : -id - 2;
}

void graph_result(Graph *g, const char *name, ValueId v) {
  if (v < 0) return;
  vec_push(g->arena, &g->results, v);
  vec_push(g->arena, &g->result_names, intern(name));
}

ValueId graph_clone_node(Graph *to, const Graph *from, NodeId n, const ValueId *in) {
  const Node src = from->nodes.at[n]; /* a copy: `to` may be `from` and grow */
  __typeof__(to->here) saved = to->here;
  to->here = (__typeof__(to->here)){.loc = src.loc,
                                    .path = src.path,
                                    .tag = src.tag,
                                    .tag_id = src.tag_id,
                                    .layer = src.layer,
                                    .chunk = src.chunk,
                                    .member = src.member,
                                    .tile = src.tile,
                                    .phase = src.phase};
  ValueId out = graph_add(to, src.op, src.nin, in, src.nints, src.ints, src.num, src.sym);
  to->here = saved;
  if (src.tag_id > to->last_tag_id) to->last_tag_id = src.tag_id;
  for (int i = 0; i < src.nout && out >= 0; i++) {
    const Shape names = from->values.at[src.out + i].shape;
    Shape *s = &to->values.at[out + i].shape;
    for (int k = 0; k < s->rank && s->rank == names.rank; k++)
      if (s->dim[k] == names.dim[k]) s->axis[k] = names.axis[k];
  }
  return out;
}

/* ---- uses ---- */

/* True when operand i of n stands among its earlier operands too. */
static bool repeated(const Node *n, int i) {
  for (int k = 0; k < i; k++)
    if (n->in[k] == n->in[i]) return true;
  return false;
}

Uses graph_uses(const Graph *g, Arena *a) {
  Uses u = {.first = arena_array(a, int, g->values.n + 1)};
  for (int n = 0; n < g->nodes.n; n++) {
    const Node *node = &g->nodes.at[n];
    for (int i = 0; i < node->nin; i++)
      if (!repeated(node, i)) u.first[node->in[i] + 1]++;
  }
  for (int v = 0; v < g->values.n; v++) u.first[v + 1] += u.first[v];
  u.user = arena_array(a, NodeId, u.first[g->values.n] + 1);
  int *fill = arena_copy(a, u.first, sizeof *fill * (g->values.n + 1));
  for (int n = 0; n < g->nodes.n; n++) {
    const Node *node = &g->nodes.at[n];
    for (int i = 0; i < node->nin; i++)
      if (!repeated(node, i)) u.user[fill[node->in[i]]++] = n;
  }
  return u;
}
