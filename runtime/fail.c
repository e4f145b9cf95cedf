/* fail.c - one sentence and an exit code: see fail.h. */
#include "fail.h"

bool fail_set(Fail *f, int code, const char *fmt, ...) {
  if (f->code) return false;
  f->code = code;
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(f->text, sizeof f->text, fmt, ap);
  va_end(ap);
  return false;
}
