/* start.h - the values that a program's variables have before its first step. */
#ifndef MTC_START_H
#define MTC_START_H
#include "checkpoint.h"

/* From the checkpoint; without one (or for what Program.ckpt_only leaves out of it) initial values
 * by the seed, and over them the weights that Program.init names. Variables that no checkpoint
 * holds start as their initial value says. */
bool start_values(Replay *r, uint64_t seed, const Checkpoint *from, Fail *f);

#endif
