/* pieces.c - see pieces.h. */
#include "pieces.h"

#include <string.h>

static void add(Pieces *p, const char *at, size_t n) {
  p->piece[p->n].at = at;
  p->piece[p->n++].n = n;
  p->bytes += n;
}

static void add_number(Pieces *p, unsigned long long x, unsigned base, bool negative) {
  char *end = p->number[p->n] + NUMBER_BYTES, *at = end;
  do {
    *--at = "0123456789abcdef"[x % base];
    x /= base;
  } while (x);
  if (negative) *--at = '-';
  add(p, at, (size_t)(end - at));
}

static void add_signed(Pieces *p, long long x) {
  add_number(p, x < 0 ? 0 - (unsigned long long)x : (unsigned long long)x, 10, x < 0);
}

static size_t length_within(const char *s, int most) {
  return most < 0 ? strlen(s) : strnlen(s, (size_t)most);
}

/* The conversion after a '%'; NULL when it is none of ours, else what follows it. va_list may be an array, so that it is passed
 * in a structure. */
typedef struct {
  va_list ap;
} Arguments;

static const char *convert(Pieces *p, const char *c, Arguments *x) {
  int most = -1;
  bool wide = c[0] == 'l' && c[1] == 'l';
  if (!strncmp(c, ".*s", 3)) {
    most = va_arg(x->ap, int);
    c += 2;
  }
  if (wide) c += 2;
  switch (*c) {
    case '%':
      if (wide) return NULL;
      add(p, c, 1);
      return c + 1;
    case 's': {
      const char *s = wide ? NULL : va_arg(x->ap, const char *);
      if (!s) return NULL;
      add(p, s, length_within(s, most));
      return c + 1;
    }
    case 'c':
      if (wide) return NULL;
      p->number[p->n][0] = (char)va_arg(x->ap, int);
      add(p, p->number[p->n], 1);
      return c + 1;
    case 'd':
      add_signed(p, wide ? va_arg(x->ap, long long) : va_arg(x->ap, int));
      return c + 1;
    case 'u':
    case 'x':
      add_number(p, wide ? va_arg(x->ap, unsigned long long) : va_arg(x->ap, unsigned), *c == 'x' ? 16 : 10, false);
      return c + 1;
    default:
      return NULL;
  }
}

bool pieces_of(Pieces *p, const char *fmt, va_list ap) {
  Arguments x;
  va_copy(x.ap, ap);
  p->n = 0;
  p->bytes = 0;
  while (fmt && *fmt) {
    const char *plain = strchrnul(fmt, '%');
    if (p->n + 2 > MOST_PIECES) fmt = NULL;
    if (fmt && plain > fmt) add(p, fmt, (size_t)(plain - fmt));
    if (fmt) fmt = *plain ? convert(p, plain + 1, &x) : plain;
  }
  va_end(x.ap);
  return fmt != NULL;
}

void pieces_copy(const Pieces *p, char *to) {
  for (int i = 0; i < p->n; i++) {
    memcpy(to, p->piece[i].at, p->piece[i].n);
    to += p->piece[i].n;
  }
  *to = 0;
}
