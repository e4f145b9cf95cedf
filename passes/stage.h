/* stage.h - the stages of host variables in one program: when each is copied in, how long it stays, when it is copied
 * out; and what that does to the program's time.
 *
 * Uses of a variable that are close together share one stage, a window. Begins and ends of the copies come from a
 * simulation of three timelines: the steps one after another, copies to the device, copies to the host. A copy in begins
 * as late as still hides it, and no earlier than there is room for its stage; a copy out ends as soon as it can. */
#ifndef MTC_STAGE_H
#define MTC_STAGE_H
#include "storage.h"

typedef struct {
  int var;
  bool read, write;
} HostUse;

/* Uses of host variables by cluster: those of cluster c are list[first[c]..first[c+1]). */
typedef struct {
  int *first;
  HostUse *list;
  int members; /* of the group that the program runs (group.h), 1 for none */
} HostUses;
HostUses stage_uses(const StorageMap *m, const bool *host, Arena *a);

typedef struct {
  int var;
  int64_t bytes;     /* aligned */
  int first, last;   /* steps that use it */
  bool in, out;      /* copied in; copied out */
  int in_begin;      /* the copy in begins before this step */
  int out_end;       /* the copy out is over before this step */
  int before, next;  /* windows of the same variable, or -1 */
  int64_t in_from, in_to, out_from, out_to; /* ns: when the copies run */
} StageWindow;

typedef struct {
  int n;
  StageWindow *at;   /* by first use, in which order they are copied in */
  int *head;         /* per variable: its first window, or -1 */
  int64_t *begin_ns; /* per step: when it begins */
  int64_t ns;        /* of the program */
  int64_t in_ns, out_ns; /* that each direction is busy */
  int64_t exposed_ns;    /* that steps wait for copies */
  int64_t peak;      /* most bytes alive, of `live` and stages */
} StagePlan;

typedef struct {
  int nsteps;
  const int *trace;      /* cluster of each step */
  const int64_t *ns;     /* per cluster */
  const HostUses *uses;
  const Vars *vars;
  const Target *target;
  const int64_t *live;   /* per step: bytes alive that are no stages */
  int room;              /* to copy ahead, in halves of the most that the stages of one step take; 0: a step that takes most of
                            it has it for itself */
} StageProblem;
StagePlan stage_plan(const StageProblem *p, Arena *a);

#endif
