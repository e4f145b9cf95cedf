/* verify.c - checks every invariant of a graph: the sentence it returns names the first node that
 * breaks one.
 *
 * Checked: counts and attributes as in ops.def; operands before users; results consecutive and
 * typed as the shape rule says; annotations in range; variables that exist and are written only by
 * those who may; no use of a variable's old value after it was assigned; results that exist. */
#include <string.h>
#include "infer.h"

typedef struct {
  const Graph *g;
  Arena *a;
  NodeId *assigned; /* per variable: last ASSIGN so far, -1 none */
} Check;

static const char *broken(const Check *c, NodeId id, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* "node 7 (`add` in h.3.attn): what is wrong" */
static const char *broken(const Check *c, NodeId id, const char *fmt, ...) {
  const Node *n = &c->g->nodes.at[id];
  const char *op = n->op >= 0 && n->op < OP_COUNT ? op_name(n->op) : "?";
  va_list ap;
  va_start(ap, fmt);
  const char *what = arena_vprintf(c->a, fmt, ap);
  va_end(ap);
  return arena_printf(c->a, "graph `%s`, node %d (`%s` in `%s`): %s", c->g->name, id, op,
                      n->path ? n->path : "", what);
}

static const char *check_operands(const Check *c, NodeId id) {
  const Node *n = &c->g->nodes.at[id];
  if (n->nin < 0 || (n->nin && !n->in)) return broken(c, id, "has no operand list");
  for (int i = 0; i < n->nin; i++) {
    if (n->in[i] < 0 || n->in[i] >= c->g->values.n)
      return broken(c, id, "operand %d is value %d, which does not exist", i, n->in[i]);
    NodeId def = c->g->values.at[n->in[i]].def;
    if (def >= id) return broken(c, id, "operand %d is made later, by node %d", i, def);
  }
  return NULL;
}

static const char *check_types(const Check *c, NodeId id, ValueId next) {
  const Graph *g = c->g;
  const Node *n = &g->nodes.at[id];
  Infer f = {.g = g,
             .arena = c->a,
             .op = n->op,
             .nin = n->nin,
             .in = n->in,
             .nints = n->nints,
             .ints = n->ints,
             .num = n->num,
             .sym = n->sym};
  if (!infer(&f)) return broken(c, id, "%s", f.message);
  if (n->nout != f.nout) return broken(c, id, "has %d results, not %d", n->nout, f.nout);
  if (n->out != next) return broken(c, id, "results start at value %d, not %d", n->out, next);
  if (next + n->nout > g->values.n) return broken(c, id, "results are missing");
  for (int i = 0; i < n->nout; i++) {
    const Value *v = &g->values.at[next + i];
    if (v->def != id || v->out != i)
      return broken(c, id, "value %d says it is another's", next + i);
    if (v->dtype != f.out[i].dtype || !shape_equal(&v->shape, &f.out[i].shape))
      return broken(c, id, "result %d is %s%s, its op gives %s%s", i, dtype_name(v->dtype),
                    shape_text(c->a, &v->shape), dtype_name(f.out[i].dtype),
                    shape_text(c->a, &f.out[i].shape));
  }
  return NULL;
}

static const char *check_story(const Check *c, NodeId id) {
  const Node *n = &c->g->nodes.at[id];
  if (!n->path) return broken(c, id, "has no path");
  if (n->phase != PH_FORWARD && n->phase != PH_BACKWARD && n->phase != PH_UPDATE)
    return broken(c, id, "is in no phase: %d", (int)n->phase);
  if (n->tag_id < 0 || n->tag_id > c->g->last_tag_id)
    return broken(c, id, "tag id %d was never given out", n->tag_id);
  if (n->tag_id && !n->tag) return broken(c, id, "tag id %d without a tag", n->tag_id);
  if (n->layer < -1) return broken(c, id, "layer %d", n->layer);
  if (n->chunk < 0) return broken(c, id, "chunk %d", n->chunk);
  if (n->member < 0) return broken(c, id, "member %d", n->member);
  if (n->tile < 0) return broken(c, id, "tile %d", n->tile);
  return NULL;
}

/* Needs checked operands and attributes. */
static const char *check_effects(Check *c, NodeId id) {
  const Graph *g = c->g;
  const Node *n = &g->nodes.at[id];
  for (int i = 0; i < n->nin; i++) {
    const Value *v = &g->values.at[n->in[i]];
    const Node *read = &g->nodes.at[v->def];
    if (read->op != OP_VAR || v->def > c->assigned[read->ints[0]]) continue;
    return broken(c, id, "reads the old value of `%s` after node %d assigned it",
                  g->vars->all.at[read->ints[0]].path, c->assigned[read->ints[0]]);
  }
  if (n->op != OP_ASSIGN) return NULL;
  const Var *v = &g->vars->all.at[n->ints[0]];
  if (v->role == VAR_SCALAR)
    return broken(c, id, "assigns `%s`, which only the runtime writes", v->path);
  if (v->role == VAR_PARAM && !v->trainable)
    return broken(c, id, "assigns the frozen parameter `%s`", v->path);
  c->assigned[n->ints[0]] = id;
  return NULL;
}

static const char *check_vars(const Check *c) {
  const Vars *vars = c->g->vars;
  for (int i = 0; vars && i < vars->all.n; i++) {
    const Var *v = &vars->all.at[i];
    if (!v->path || !*v->path) return arena_printf(c->a, "variable %d has no path", i);
    if (v->of < -1 || v->of >= vars->all.n)
      return arena_printf(c->a, "variable `%s` belongs to variable %d", v->path, v->of);
    if (v->init.kind == INIT_COPY && (v->init.from < 0 || v->init.from >= vars->all.n))
      return arena_printf(c->a, "variable `%s` starts as variable %d", v->path, v->init.from);
    if (v->dtype < 0 || v->dtype >= DT_COUNT || v->shape.rank < 0 || v->shape.rank > MAX_RANK)
      return arena_printf(c->a, "variable `%s` has no type", v->path);
  }
  return NULL;
}

static const char *check_results(const Check *c) {
  const Graph *g = c->g;
  if (g->results.n != g->result_names.n)
    return arena_printf(c->a, "graph `%s` has %d results and %d names", g->name, g->results.n,
                        g->result_names.n);
  for (int i = 0; i < g->results.n; i++)
    if (g->results.at[i] < 0 || g->results.at[i] >= g->values.n)
      return arena_printf(c->a, "graph `%s`: result `%s` is value %d, which does not exist",
                          g->name, g->result_names.at[i], g->results.at[i]);
  return NULL;
}

const char *graph_verify(const Graph *g, Arena *a) {
  Check c = {.g = g, .a = a};
  int nvars = g->vars ? g->vars->all.n : 0;
  c.assigned = arena_array(a, NodeId, nvars + 1);
  for (int i = 0; i < nvars; i++) c.assigned[i] = -1;
  const char *why = check_vars(&c);
  ValueId next = 0;
  for (NodeId i = 0; i < g->nodes.n && !why; i++) {
    const Node *n = &g->nodes.at[i];
    if (n->op < 0 || n->op >= OP_COUNT) return broken(&c, i, "no such op: %d", (int)n->op);
    why = check_operands(&c, i);
    if (!why) why = check_types(&c, i, next);
    if (!why) why = check_story(&c, i);
    if (!why) why = check_effects(&c, i);
    next += n->nout;
  }
  if (why) return why;
  if (next != g->values.n)
    return arena_printf(a, "graph `%s` has %d values that no node makes", g->name,
                        g->values.n - next);
  return check_results(&c);
}
