/* simplify.h - smaller graphs with the same results.
 *
 * Common subexpressions, folding of constants, identities, index maps composed and moved to where
 * they cost nothing, sums of disjoint pads as concats, dead code. No sum or product is
 * reassociated: what stays gives the same bits. */
#ifndef MTC_SIMPLIFY_H
#define MTC_SIMPLIFY_H
#include "../ir/graph.h"

/* with_holds: keep OP_HOLD, which autodiff still needs; else it is removed as the identity that it
 * is. */
Graph *graph_simplify(const Graph *g, Arena *a, bool with_holds);

/* The graph whose result is row `position` (a rank-0 i32 value of g) of result `name` along `axis`:
 * what only that row needs is computed for that row alone. The axis vanishes from the result. */
Graph *graph_one_row(const Graph *g, Arena *a, const char *name, int axis, ValueId position);

/* x rounded to dtype t, as a cast does. */
double round_to(double x, DType t);

#endif
