#include "simplify.h"
#include "rewrite.h"
Graph *graph_one_row(const Graph *g, Arena *a, const char *name, int axis, ValueId position) {
  (void)a; (void)name; (void)axis;
  Graph *to = (Graph *)g;
  ValueId v = g->results.at[0];
  const Shape *s = &val(g, v)->shape;
  ValueId flat = g_reshape(to, v, SHAPE(s->dim[1], s->dim[2]));
  to->results.at[0] = g_gather(to, flat, position);
  return to;
}
