/* stage.h - the stages of what lives on the host in one program: when each is copied in, how long it stays, when it is copied
 * out; and what that does to the program's time.
 *
 * Items are variables by number, and behind them saved values (saved.h): what the program makes, copies out and copies in
 * again. A saved value is written once, in its first window, and never again.
 *
 * Uses of an item that are close together share one stage, a window. Begins and ends of the copies come from a
 * simulation of three timelines: the steps one after another, copies to the device, copies to the host. A copy in begins
 * as late as still hides it, and no earlier than there is room for its stage; a copy out ends as soon as it can. */
#ifndef MTC_STAGE_H
#define MTC_STAGE_H
#include "saved.h"

typedef struct {
  int item;
  bool read, write;
} HostUse;

/* What may have stages. */
typedef struct {
  int n, nvars;
  const int *of_unit;   /* per unit of the program: its item where that is on the host, else -1 */
  const int64_t *bytes; /* per item, aligned */
} HostItems;
/* The variables of host, and saved values, whose aligned sizes are unit_bytes[unit]. */
HostItems stage_items(const StorageMap *m, const Vars *vars, const bool *host, const SavedSet *saved, const int64_t *unit_bytes,
                      Arena *a);

/* Uses of items by cluster: those of cluster c are list[first[c]..first[c+1]). */
typedef struct {
  int *first;
  HostUse *list;
  int members; /* of the group that the program runs (group.h), 1 for none */
} HostUses;
HostUses stage_uses(const StorageMap *m, const HostItems *items, Arena *a);

/* What waits this long for its next use is copied out and in again. */
int64_t stage_long_wait(const Target *t, int64_t bytes);

typedef struct {
  int item;
  int64_t bytes;     /* aligned */
  int first, last;   /* steps that use it */
  bool in, out;      /* copied in; copied out */
  int in_begin;      /* the copy in begins before this step */
  int out_end;       /* the copy out is over before this step */
  int before, next;  /* windows of the same item, or -1 */
  int64_t in_from, in_to, out_from, out_to; /* ns: when the copies run */
} StageWindow;

typedef struct {
  int n;
  StageWindow *at;   /* by first use, in which order they are copied in */
  int *head;         /* per item: its first window, or -1 */
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
  const HostItems *items;
  const Target *target;
  const int64_t *live;   /* per step: bytes alive that are no stages */
  int room;              /* to copy ahead, in halves of the most that the stages of one step take; 0: a step that takes most of
                            it has it for itself */
} StageProblem;
StagePlan stage_plan(const StageProblem *p, Arena *a);

#endif
