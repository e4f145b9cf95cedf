/* residual.c - see residual.h. */
#include "residual.h"

#include <string.h>

typedef struct {
  const Graph *g;
  bool *in; /* per value */
  VEC(ValueId) todo;
  Arena *arena;
} Stream;

static const Node *maker(const Graph *g, ValueId v) {
  return node_of((Graph *)g, v);
}

/* A parameter or a number, spread over other axes or not: what a bias is. */
static bool is_bias(const Graph *g, ValueId v) {
  const Node *n = maker(g, v);
  while (n->op == OP_BROADCAST || n->op == OP_CAST || n->op == OP_RESHAPE) n = maker(g, n->in[0]);
  return n->op == OP_VAR || n->op == OP_CONST;
}

static bool is_sum(const Graph *g, const Node *n) {
  return n->op == OP_ADD && !n->tag_id && val(g, n->out)->shape.rank >= 2 &&
         dtype_is_float(val(g, n->out)->dtype) && !is_bias(g, n->in[0]) && !is_bias(g, n->in[1]);
}

static bool is_dropout(const Node *n) {
  return n->tag_id && n->tag && !strcmp(n->tag, "dropout");
}

static void mark(Stream *s, ValueId v) {
  const Value *x = val(s->g, v);
  if (s->in[v] || !dtype_is_float(x->dtype) || !x->shape.rank || is_bias(s->g, v)) return;
  const Node *n = maker(s->g, v);
  if (op_kind(n->op) == LEAF || (n->tag_id && !is_dropout(n))) return;
  s->in[v] = true;
  vec_push(s->arena, &s->todo, v);
}

/* What flows element by element into a value of the stream is of the stream. */
static void mark_operands(Stream *s, const Node *n) {
  OpKind kind = op_kind(n->op);
  bool flows = (kind == ELEM || kind == VIEW || kind == JOIN) && n->op != OP_GATHER;
  for (int k = 0; flows && k < n->nin; k++) mark(s, n->in[k]);
}

bool *residual_stream(const Graph *g, Arena *a) {
  Stream s = {.g = g, .in = arena_array(a, bool, g->values.n + 1), .arena = a};
  for (NodeId i = 0; i < g->nodes.n; i++) {
    const Node *n = node_at((Graph *)g, i);
    if (is_sum(g, n)) mark(&s, n->out);
  }
  while (s.todo.n) {
    ValueId v = s.todo.at[--s.todo.n];
    mark_operands(&s, maker(g, v));
  }
  return s.in;
}
