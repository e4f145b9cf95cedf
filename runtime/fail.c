/* fail.c - one sentence and an exit code: see fail.h. */
#include "fail.h"

static bool record(Fail *f, int code, const char *page, const char *fmt, va_list ap) {
  if (f->code) return false;
  f->code = code;
  f->page = page;
  vsnprintf(f->text, sizeof f->text, fmt, ap);
  return false;
}

bool fail_set(Fail *f, int code, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  record(f, code, NULL, fmt, ap);
  va_end(ap);
  return false;
}

bool fail_page(Fail *f, int code, const char *page, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  record(f, code, page, fmt, ap);
  va_end(ap);
  return false;
}

void fail_print(const Fail *f, FILE *to) {
  if (!f->code) return;
  if (f->page)
    fprintf(to, "error[%s]: %s\n", f->page, f->text);
  else
    fprintf(to, "error: %s\n", f->text);
}
