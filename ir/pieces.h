/* pieces.h - formatted text without stdio, for the conversions that names and kernels are printed with.
 *
 * A format of plain text, %s, %.*s, %c, %d, %u, %x, %lld, %llu, %llx and %% becomes a list of pieces, which callers copy to
 * where the text is to be. Everything else is left to vsnprintf. */
#ifndef MTC_PIECES_H
#define MTC_PIECES_H
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

enum { MOST_PIECES = 32, NUMBER_BYTES = 24 };

typedef struct {
  int n;
  size_t bytes; /* of all, without a NUL */
  struct {
    const char *at;
    size_t n;
  } piece[MOST_PIECES];
  char number[MOST_PIECES][NUMBER_BYTES];
} Pieces;

/* False when the format has another conversion or too many. Pieces point to the arguments. */
bool pieces_of(Pieces *p, const char *fmt, va_list ap);
/* p->bytes bytes and a NUL. */
void pieces_copy(const Pieces *p, char *to);

#endif
