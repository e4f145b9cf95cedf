/* trace.h - the predicted timeline of a plan in Chrome's trace format: chrome://tracing and
 * Perfetto open it.
 *
 * One process a program: its steps one after another as "X" events with times of the cost model,
 * and the bytes that are alive as "C" counters, by class. A training step runs `micro` once for
 * each micro-batch, then `update`. */
#ifndef MTC_TRACE_H
#define MTC_TRACE_H
#include "plan.h"
void plan_trace(const Plan *p, FILE *to);
/* The training phase that a program belongs to; "" when there is one phase alone. */
const char *trace_phase(const Plan *p, int program);
#endif
