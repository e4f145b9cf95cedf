/* fail.h - how the runtime reports what went wrong: one sentence and the exit code it means.
 *
 * Functions that can fail return false (or NULL) after fail_set(); the first failure wins. Callers print
 * "error: TEXT" and exit with `code`. */
#ifndef MTC_FAIL_H
#define MTC_FAIL_H
#include "../ir/base.h"

typedef struct {
  int code;        /* EXIT_*; 0 = nothing failed */
  char text[2000]; /* may span lines when several things are reported together */
} Fail;

/* Records the failure unless one is recorded already. Always false. */
bool fail_set(Fail *f, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
