/* words.h - short names for writing compositions: f32 numbers and element-wise arithmetic with broadcasting. Included by
 * the files that define compositions and optimizers, by nobody else. */
#ifndef MTC_WORDS_H
#define MTC_WORDS_H
#include "graph.h"

static inline ValueId number(Graph *g, double x) { return g_const(g, DT_F32, shape_scalar(), x); }
static inline ValueId add(Graph *g, ValueId a, ValueId b) { return g_bin(g, OP_ADD, a, b); }
static inline ValueId sub(Graph *g, ValueId a, ValueId b) { return g_bin(g, OP_SUB, a, b); }
static inline ValueId mul(Graph *g, ValueId a, ValueId b) { return g_bin(g, OP_MUL, a, b); }
static inline ValueId quot(Graph *g, ValueId a, ValueId b) { return g_bin(g, OP_DIV, a, b); }
static inline ValueId times(Graph *g, ValueId a, double x) { return mul(g, a, number(g, x)); }

#endif
