/* profile.h - one training step as a Chrome trace: when each command ran, copies between host and
 * device, bytes alive in the arena. chrome://tracing and Perfetto open it. */
#ifndef MTC_PROFILE_H
#define MTC_PROFILE_H
#include "replay.h"

typedef struct Profile Profile;

/* Begins a trace that profile_close writes to `path`, of the programs of one phase. The program
 * must outlive it. NULL on failure. */
Profile *profile_open(const char *path, Replay *r, const ProgramPhase *phase, Fail *f);
/* Runs a program as replay_run does, waits for it, and records its commands and the bytes that were
 * alive. */
bool profile_run(Profile *x, Replay *r, int program, Fail *f);
/* Begin and end of a copy of `bytes` bytes, on the host's clock; bytes 0 = unknown. */
double profile_begin(Profile *x, Replay *r, Fail *f);
void profile_copy(Profile *x, const char *name, int64_t bytes, double begun);
/* Writes the file; NULL is fine. */
bool profile_close(Profile *x, Fail *f);
#endif
