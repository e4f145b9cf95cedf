/* text.h - internal to ir/: words that the printer and the reader of the text form share.
 *
 *   graph "micro" tags=3
 *   var param "h.0.w" f32[D=8, 4] init=normal(0, 0.02, 0) trainable layer=0 !12:3+4
 *   %tokens = input {name="tokens" dtype=i32 shape=[8, 16]} : i32[B=8, T=16] !30:5
 *   %h.0.w = var {var=0} : f32[D=8, 4] path="h.0" layer=0
 *   %h.0.dot = dot %x, %h.0.w {batch_a=[] batch_b=[] con_a=[1] con_b=[0] dtype=f32} : f32[B=8, 4]
 *   assign %y {var=3} phase=update
 *   result "loss" %mul:2
 *
 * One line each: the graph, its variables, its nodes, its results. After the types come the
 * annotations that are not at their default: path="" tag=none tag_id=0 layer=-1 chunk=0
 * phase=forward and no place. A place is !LINE:COL, with +LENGTH when it has one, and FILE: before
 * it unless the file is the first. Names of values are made from paths and ops on printing; the
 * reader only needs them to be unique. # starts a comment. */
#ifndef MTC_TEXT_H
#define MTC_TEXT_H
#include "graph.h"

#define VAR_ROLES(X)                                                                          \
  X(VAR_PARAM, "param")                                                                       \
  X(VAR_STATE, "state") X(VAR_MASTER, "master") X(VAR_MOMENT, "moment") X(VAR_ACCUM, "accum") \
      X(VAR_SCALAR, "scalar") X(VAR_METRIC, "metric") X(VAR_OPT, "opt")
#define INIT_KINDS(X)                                                                             \
  X(INIT_ZEROS, "zeros")                                                                          \
  X(INIT_ONES, "ones") X(INIT_CONST, "const") X(INIT_NORMAL, "normal") X(INIT_UNIFORM, "uniform") \
      X(INIT_COPY, "copy")
#define PHASES(X) X(PH_FORWARD, "forward") X(PH_BACKWARD, "backward") X(PH_UPDATE, "update")

#endif
