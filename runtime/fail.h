/* fail.h - how the runtime reports what went wrong: a sentence, the exit code it means and, when
 * docs/errors.md has one, the code of the page that explains it.
 *
 * Functions that can fail return false (or NULL) after fail_set(); the first failure wins. */
#ifndef MTC_FAIL_H
#define MTC_FAIL_H
#include "../ir/base.h"

typedef struct {
  int code;         /* EXIT_*; 0 = nothing failed */
  const char *page; /* "E0602" or NULL */
  char text[4000];  /* may span lines when several things are reported together */
} Fail;

/* Records the failure unless one is recorded already. Always false. */
bool fail_set(Fail *f, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
bool fail_page(Fail *f, int code, const char *page, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* "error[E0602]: TEXT" */
void fail_print(const Fail *f, FILE *to);

#endif
