/* precision.c - storage dtypes of parameters and the precision pass (see precision.h).
 *
 * Invariant: a value that one composition instance makes and something else reads is rounded once,
 * to the dtype that it declares, whatever reads it. A job of f32 gets its graph back as it was. */
#include "precision.h"

#include <string.h>

#include "residual.h"
#include "rewrite.h"

static DType compute_dtype(const Precision *p) {
  return p->compute == PREC_AUTO ? DT_BF16 : (DType)p->compute;
}

const PrecRule *precision_rule(const Precision *p, const char *path, const char *tag) {
  for (int i = p->rules.n - 1; i >= 0; i--)
    if (selector_match(p->rules.at[i].pattern, path, tag)) return &p->rules.at[i];
  return NULL;
}

/* The dtype of the last rule that matches, or -1. */
static int rule_dtype(const Precision *p, const char *path, const char *tag) {
  const PrecRule *r = precision_rule(p, path, tag);
  return r ? r->dtype : -1;
}

static const char *node_tag(const Node *n) {
  return n->tag ? n->tag : op_name(n->op);
}

bool precision_tf32(const Precision *p, const Node *n) {
  const PrecRule *r = p->rules.n ? precision_rule(p, n->path, node_tag(n)) : NULL;
  return r && r->dtype != PREC_AUTO ? r->tf32 : p->tf32;
}

uint64_t precision_rounding(const Precision *p) {
  uint64_t h = p->tf32;
  for (int i = 0; i < p->rules.n; i++) {
    const PrecRule *r = &p->rules.at[i];
    if (r->tf32 || h) h = hash_bytes(r->pattern, strlen(r->pattern), h + (r->tf32 ? 1 : 2));
  }
  return h;
}

/* ---- variables ---- */

bool trained_in(const Job *job, int phase, int var) {
  const Var *v = &job->vars->all.at[var];
  if (v->role != VAR_PARAM || !v->trainable) return false;
  const TrainPhase *p = &job->phases.at[phase];
  for (int i = 0; i < p->frozen.n; i++)
    if (p->frozen.at[i] == var) return false;
  return true;
}

bool trained_ever(const Job *job, int var) {
  for (int i = 0; i < job->phases.n; i++)
    if (trained_in(job, i, var)) return true;
  return false;
}

static DType storage_dtype(const Job *job, int var) {
  const Precision *p = &job->precision;
  int t = rule_dtype(p, job->vars->all.at[var].path, NULL);
  if (!trained_ever(job, var) && p->frozen != PREC_AUTO) t = p->frozen;
  return t < 0 ? compute_dtype(p) : (DType)t;
}

/* What a weight of dtype t is updated in besides itself; t: nothing. A 16-bit `master` means that
 * bf16 weights have none: they are rounded at random. */
static DType master_dtype(const Precision *p, DType t) {
  if (t == DT_F32) return t;
  if (p->master == PREC_SPLIT) return t == DT_BF16 ? (DType)PREC_SPLIT : DT_F32;
  bool none = p->master == DT_BF16 || p->master == DT_F16;
  return none && (t == DT_BF16 || p->master == (int)t) ? t : DT_F32;
}

void precision_vars(const Job *job) {
  Vars *vars = job->vars;
  int n = vars->all.n;
  for (int i = 0; i < n; i++) {
    if (vars->all.at[i].role != VAR_PARAM) continue;
    DType t = storage_dtype(job, i);
    vars->all.at[i].dtype = t;
    DType master = master_dtype(&job->precision, t);
    if (t == master || !trained_ever(job, i) || master_of(vars, i) != i) continue;
    Var m = vars->all.at[i];
    m.path = intern_printf("%s:%s", m.path, master == (DType)PREC_SPLIT ? "low" : "master");
    m.role = VAR_MASTER;
    m.dtype = master;
    m.init = (Init){.kind = INIT_COPY, .from = i};
    m.of = i;
    var_add(vars, m);
  }
}

int master_of(const Vars *vars, int param) {
  for (int i = param + 1; i < vars->all.n; i++)
    if (vars->all.at[i].of == param && vars->all.at[i].role == VAR_MASTER) return i;
  return param;
}

/* ---- the pass ---- */

typedef struct {
  const Precision *precision;
  DType compute;
  Rewrite r;
  bool open;         /* `compute = auto`: sums are f32, there are few of them */
  bool *stream;      /* per old value: stays f32 although the rest is f16; NULL = none does */
  ValueId *declared; /* per old value: its map rounded to the dtype it declares; -1 = not yet */
  const char *last_path, *last_tag;
  int last_rule;
} Pass;

/* The dtype of the last rule for n, or -1. */
static int node_rule(Pass *p, const Node *n) {
  const char *tag = node_tag(n);
  if (p->last_path != n->path || p->last_tag != tag) {
    p->last_rule = rule_dtype(p->precision, n->path, tag);
    p->last_path = n->path;
    p->last_tag = tag;
  }
  return p->last_rule;
}

/* The dtype that result v of n declares to the outside. */
static DType declared_dtype(Pass *p, const Node *n, ValueId v) {
  if (!val(p->r.from, v)->shape.rank) return DT_F32;
  int rule = node_rule(p, n);
  if (rule >= 0) return (DType)rule;
  bool f32 = (p->stream && p->stream[v]) || (p->open && op_kind(n->op) == REDUCE);
  return f32 ? DT_F32 : p->compute;
}

/* The dtype in which a contraction reads its operands. */
static DType operand_dtype(Pass *p, const Node *n) {
  if (!val(p->r.from, n->out)->shape.rank) return DT_F32;
  int rule = node_rule(p, n);
  return rule < 0 ? p->compute : (DType)rule;
}

static bool is_float(const Graph *g, ValueId v) {
  return dtype_is_float(val(g, v)->dtype);
}

/* Old value v as `user` may read it, still in the dtype that v has. */
static ValueId seen_by(Pass *p, ValueId v, const Node *user) {
  const Node *maker = node_of(p->r.from, v);
  ValueId now = p->r.map[v];
  if (!maker->tag_id || (user && maker->tag_id == user->tag_id)) return now;
  if (p->declared[v] >= 0) return p->declared[v];
  if (is_float(p->r.to, now)) {
    DType t = declared_dtype(p, maker, v);
    graph_at(p->r.to, maker);
    now = g_cast(p->r.to, now, t);
  }
  return p->declared[v] = now;
}

/* Floats among the operands are cast to t; -1 leaves them. */
static void operands(Pass *p, const Node *n, int t, ValueId *in) {
  for (int k = 0; k < n->nin; k++) {
    in[k] = seen_by(p, n->in[k], n);
    graph_at(p->r.to, n);
    if (t >= 0 && is_float(p->r.to, in[k])) in[k] = g_cast(p->r.to, in[k], (DType)t);
  }
}

/* The dtype in which floats enter n; -1 = as they are. */
static int work_dtype(Pass *p, const Node *n) {
  const Graph *g = p->r.from;
  DType own = n->nout ? declared_dtype(p, n, n->out) : DT_F32;
  switch (n->op) {
    case OP_DOT:
    case OP_ATTENTION:
    case OP_CONV2D:
    case OP_MAX_POOL:
      return operand_dtype(p, n);
    case OP_GATHER:
    case OP_RANDOM:
    case OP_SCATTER_ADD:
      return -1;
    case OP_ASSIGN:
      return (int)g->vars->all.at[n->ints[0]].dtype;
    default:
      break;
  }
  if (n->tag_id) return DT_F32;
  if (op_kind(n->op) == VIEW) return -1;
  if (n->nout && !is_float(g, n->out)) { /* a comparison: in the wider of its operands */
    for (int k = 0; k < n->nin; k++)
      if (is_float(g, n->in[k]) && node_of(g, n->in[k])->tag_id == 0 &&
          val(p->r.to, p->r.map[n->in[k]])->dtype == DT_F32 && node_of(g, n->in[k])->op != OP_CONST)
        return DT_F32;
  }
  return own;
}

static void convert_node(Pass *p, NodeId id) {
  const Node *n = node_at(p->r.from, id);
  Graph *to = p->r.to;
  if (op_kind(n->op) == LEAF) {
    rewrite_node(&p->r, id);
    return;
  }
  ValueId few[8];
  ValueId *in = n->nin <= COUNT_OF(few) ? few : arena_array(p->r.arena, ValueId, n->nin);
  int t = work_dtype(p, n);
  operands(p, n, t, in);
  graph_at(to, n);
  Proto q = proto_of(n, in);
  int64_t *ints = arena_array(p->r.arena, int64_t, n->nints + 1);
  for (int k = 0; k < n->nints; k++) ints[k] = n->ints[k];
  q.ints = ints;
  bool sets_dtype = n->op == OP_DOT && t >= 0;
  if (sets_dtype) ints[n->nints - 1] = n->tag_id ? t : (int)declared_dtype(p, n, n->out);
  if (n->op == OP_CAST && dtype_is_float((DType)ints[0]) && is_float(to, in[0])) {
    for (int k = 0; k < n->nout; k++) p->r.map[n->out + k] = in[0];
    return;
  }
  ValueId out = graph_add_proto(to, &q);
  if (n->op == OP_CAST && dtype_is_float((DType)ints[0]) && t >= 0) out = g_cast(to, out, (DType)t);
  if (n->op == OP_GATHER && !n->tag_id && is_float(to, out))
    out = g_cast(to, out, declared_dtype(p, n, n->out));
  if (n->op == OP_GATHER && n->tag_id && is_float(to, out)) out = g_cast(to, out, DT_F32);
  for (int k = 0; k < n->nout; k++) {
    p->r.map[n->out + k] = out + k;
    Shape *s = &to->values.at[out + k].shape;
    const Shape *names = &val(p->r.from, n->out + k)->shape;
    for (int i = 0; i < s->rank; i++) s->axis[i] = names->axis[i];
  }
}

/* True when no value of the graph would change its dtype. */
static bool all_f32(const Job *job) {
  const Precision *p = &job->precision;
  if (compute_dtype(p) != DT_F32) return false;
  for (int i = 0; i < p->rules.n; i++)
    if (p->rules.at[i].dtype != DT_F32) return false;
  for (int i = 0; i < job->vars->all.n; i++) {
    const Var *v = &job->vars->all.at[i];
    if (v->role == VAR_PARAM && v->dtype != DT_F32) return false;
  }
  return true;
}

Graph *graph_precision(const Graph *g, const Job *job, Arena *a) {
  if (all_f32(job)) return (Graph *)g;
  Pass p = {.precision = &job->precision,
            .compute = compute_dtype(&job->precision),
            .open = job->precision.choice[FMT_COMPUTE].open,
            .r = rewrite_begin(g, a)};
  if (p.compute == DT_F16) p.stream = residual_stream(g, a);
  p.declared = arena_array(a, ValueId, g->values.n + 1);
  for (int i = 0; i < g->values.n; i++) p.declared[i] = -1;
  for (NodeId n = 0; n < g->nodes.n; n++) convert_node(&p, n);
  for (int i = 0; i < g->results.n; i++) {
    ValueId v = seen_by(&p, g->results.at[i], NULL);
    if (!val(p.r.to, v)->shape.rank && is_float(p.r.to, v)) v = g_cast(p.r.to, v, DT_F32);
    graph_result(p.r.to, g->result_names.at[i], v);
  }
  return p.r.to;
}
