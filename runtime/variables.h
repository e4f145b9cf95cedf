/* variables.h - values of a program's variables on the device: which are saved, their initial
 * values, loading of weights. */
#ifndef MTC_VARIABLES_H
#define MTC_VARIABLES_H
#include "replay.h"
#include "safetensors.h"

/* Whether a checkpoint holds the variable: all but accumulators, step scalars and metrics, which
 * are empty between steps. */
bool variable_persists(const ProgramVar *v);

/* Initial values by the seed and each variable's path, so that they depend on neither plan nor
 * order. A copy takes the unrounded value of what it copies. `all` = false: only variables that do
 * not persist. */
bool variables_init(Replay *r, uint64_t seed, bool all, Fail *f);

/* Row-major copies of one whole variable. malloc'ed buffers come from variable_buffer and go to
 * free(). */
void *variable_buffer(const ProgramVar *v, Fail *f);
int64_t variable_bytes(const ProgramVar *v); /* of its logical elements */

/* Gives variable `var`, and its master when it has one, the values of `e` (row-major, any float
 * dtype). */
bool variable_load(Replay *r, int var, DType dtype, const void *data, Fail *f);
/* The same for the variable alone. */
bool variable_store(Replay *r, int var, DType dtype, const void *data, Fail *f);

/* The variable that holds the most precise value of parameter `var`: its master or itself; a u16 master holds the
 * bits that complete the parameter (join_halves). */
int variable_master(const Program *p, int var);

/* Fills every variable of a role with one byte: 0, or 0xff for numbers that nobody may use. */
bool variables_fill(Replay *r, ProgramVarRole role, int byte, Fail *f);

#endif
