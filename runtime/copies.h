/* copies.h - the copies of a program when they are performed one by one instead of beside the
 * commands: at once, as late as the program allows, or never. Both devices use it. */
#ifndef MTC_COPIES_H
#define MTC_COPIES_H
#include "replay.h"

/* How far a run of one program has come. */
typedef struct {
  const ProgramCode *code;
  CopyTimes times;
  int begun;   /* commands that were met */
  int done[2]; /* per direction (to_host): copies before this command are done */
  /* Performs code->cmds[i], which is a copy. */
  bool (*perform)(void *context, int i, Fail *f);
  void *context;
} CopyRun;

/* At command i, whatever it is: performs what must not wait any longer, in order. */
bool copies_at(CopyRun *c, int i, Fail *f);
/* After the last command that was met: the rest of what has begun. */
bool copies_end(CopyRun *c, Fail *f);
#endif
