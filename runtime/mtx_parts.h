/* mtx_parts.h - inside of the .mtx reader and writer: the three files mtx.c (container), mtx_code.c
 * (the binary program) and mtx_check.c (bounds). Nobody else includes it. */
#ifndef MTC_MTX_PARTS_H
#define MTC_MTX_PARTS_H
#include "program.h"

/* mtx_code.c: appends the binary form of p to out; without kernel source and images, which have
 * sections of their own. */
void mtx_encode(const Program *p, Str *out);
/* Fills p from n bytes; false with a sentence in *why. Only the form is checked. */
bool mtx_decode(Arena *a, const void *data, size_t n, Program *p, const char **why);

/* mtx_check.c: NULL when every index, offset, extent and enum of p is inside its bounds, else a
 * sentence in a. */
const char *mtx_check(const Program *p, Arena *a);

#endif
