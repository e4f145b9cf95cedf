/* simplify_rules.h - what the files of simplify share: the graph under construction and entry
 * points of the rules. */
#ifndef MTC_SIMPLIFY_RULES_H
#define MTC_SIMPLIFY_RULES_H
#include "rewrite.h"
#include "simplify.h"

typedef struct {
  Graph *g; /* new graph */
  Arena *arena;
  bool with_holds;
  bool single;        /* the operand of the node at hand has no other user in the old graph */
  int nslots;         /* power of two */
  NodeId *slot;       /* node + 1, 0 empty: hashed by content */
  ValueId *var_value; /* per variable: VAR node since its last assign, or -1 */
  bool *assigned; /* per variable: the graph assigns it: nothing may come to read it later than it
                     did */
} Simplify;

/* The value of p: an existing one, what a rule makes of it, or a new node. */
ValueId simplified(Simplify *s, const Proto *p);
/* Rules; -1 when none applies. */
ValueId simplify_view(Simplify *s, const Proto *p);
ValueId simplify_elem(Simplify *s, const Proto *p);

/* Builders that go through `simplified`. */
ValueId sm_cast(Simplify *s, ValueId v, DType t);
ValueId sm_reshape(Simplify *s, ValueId v, const Shape *to);
ValueId sm_slice(Simplify *s, ValueId v, const int64_t *start, const int64_t *stop);
ValueId sm_transpose(Simplify *s, ValueId v, const int64_t *perm);
ValueId sm_broadcast(Simplify *s, ValueId v, const Shape *to, const int64_t *axes);
ValueId sm_pad(Simplify *s, ValueId v, const int64_t *before, const int64_t *after);
ValueId sm_concat(Simplify *s, int n, const ValueId *in, int axis);
ValueId sm_const(Simplify *s, DType t, const Shape *shape, double value);
static inline bool sm_is_const(const Simplify *s, ValueId v, double *value) {
  const Node *n = node_of(s->g, v);
  if (n->op == OP_CONST) *value = n->num[0];
  return n->op == OP_CONST;
}

#endif
