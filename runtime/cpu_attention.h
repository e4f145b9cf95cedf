/* cpu_attention.h - attention forward and backward on the CPU: fp32 inside, any float dtype and
 * strides in memory.
 *
 * Work is split over (sample, key head) - with an additive bias over heads, whose gradient sums
 * over samples - and each part runs in a fixed order, so that results do not depend on the number
 * of threads. */
#ifndef MTC_CPU_ATTENTION_H
#define MTC_CPU_ATTENTION_H
#include "program.h"

/* Floats of scratch that one thread needs for the command. */
size_t cpu_attention_scratch(const Cmd *c);

/* Runs a CMD_ATTENTION or CMD_ATTENTION_BWD at its place in the arena. scratch: `threads` times
 * `each` floats, each >= cpu_attention_scratch(c). Reads and writes nothing else. */
void cpu_attention(const Cmd *c, char *arena, float *scratch, size_t each, int threads);
#endif
