/* saved.h - saved values: what a micro-batch makes forward and reads backward, and which of it waits in pinned host memory
 * in between. It is copied out after its last use forward and in again for the uses backward, by the windows of stage.h.
 *
 * What is to wait is chosen for a trace: units that live once in it (what is rebuilt does not wait) and whose longest wait
 * hides both copies by far. Parts of them are spread evenly over the program, so that the copies are as well; each part
 * contains no more bytes than the next. */
#ifndef MTC_SAVED_H
#define MTC_SAVED_H
#include "timeline.h"

/* Units that wait on the host, in the order in which they are made. */
typedef struct {
  int n;
  const int *unit;
  int64_t bytes; /* on the host, aligned */
} SavedSet;

enum { SAVED_PARTS = 4 };

/* All that may wait. ns is per cluster, unit_bytes are aligned sizes. */
SavedSet saved_values(const StorageMap *m, const Timeline *t, const int64_t *ns,
                      const int64_t *unit_bytes, const Target *target, Arena *a);
/* `part` of SAVED_PARTS of their bytes. */
SavedSet saved_part(const SavedSet *all, int part, const int64_t *unit_bytes, Arena *a);
/* The same timeline with these units in buffers of their own, which take over no others and are not taken over: their
 * stages are. */
Timeline saved_apart(const Timeline *t, const SavedSet *s, int nunits, Arena *a);

#endif
