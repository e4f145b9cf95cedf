/* diag.h - diagnostics are data: passes add them, one renderer prints them.
 *
 * Style (docs/errors.md): the message stands alone, lower case, no full stop, code in backticks; the primary
 * span is short; labels name both sides with axis names and values; `help` only when it is likely right. */
#ifndef MTC_DIAG_H
#define MTC_DIAG_H
#include "base.h"

/* A span of source text. line and col are 1-based, col counts bytes; len in bytes; line 0 = no place. */
typedef struct {
  int file; /* index from diag_add_source; -1 none */
  int line, col, len;
} Loc;
#define NO_LOC ((Loc){-1, 0, 0, 0})
static inline bool loc_ok(Loc l) { return l.line > 0; }
/* From the start of `a` to the end of `b` when both lie on one line, else `a`. */
Loc loc_span(Loc a, Loc b);

/* Codes: one row each in errors.def: E01xx syntax and names, E02xx shapes and types, E03xx selectors and
 * weights, E04xx settings, E05xx budgets, E06xx files and data, W04xx warnings. */
typedef enum {
#define ERR(id, code, title, page) id,
#include "errors.def"
#undef ERR
  ERR_COUNT
} ErrId;
const char *err_code(ErrId id);  /* "E0203" */
const char *err_title(ErrId id); /* one line for the index */
const char *err_page(ErrId id);  /* the text of `mtc explain` */
/* The id of "E0203" (or "e0203"), or -1. */
int err_by_code(const char *code);

typedef enum { SEV_ERROR, SEV_WARNING } Severity;

typedef struct {
  Loc loc;
  const char *text; /* may be "" */
} Label;

typedef struct Diag {
  ErrId id;
  Severity sev;
  const char *message;
  Label primary;
  VEC(Label) labels; /* secondary */
  VEC(const char *) notes; /* printed as "= ..." */
  const char *help;        /* printed as "= help: ..." or NULL */
} Diag;

typedef struct {
  const char *path; /* as the user wrote it */
  const char *text;
  size_t size;
} Source;

/* A sink for the diagnostics of one run. */
typedef struct {
  Arena *arena;
  VEC(Source) sources;
  VEC(Diag *) all;
  int errors;
  int limit; /* stop after this many errors; 0 = 20 */
} Diags;

Diags *diags_new(Arena *a);
int diag_add_source(Diags *d, const char *path, const char *text, size_t size);
/* Adds a diagnostic and returns it, so that labels, notes and help can be added. Never NULL. The same error at
 * the same place is kept once. */
Diag *diag_error(Diags *d, ErrId id, Loc at, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
Diag *diag_warn(Diags *d, ErrId id, Loc at, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void diag_primary_label(Diags *d, Diag *g, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void diag_label(Diags *d, Diag *g, Loc at, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void diag_note(Diags *d, Diag *g, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void diag_help(Diags *d, Diag *g, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* True once no further error should be looked for. */
bool diag_full(const Diags *d);
/* "models/gpt2.mt:36:20" or "" */
char *loc_text(const Diags *d, Arena *a, Loc at);

/* Renders all diagnostics in order. colour: ANSI escapes. Tabs count as written and wide UTF-8 as one column, so
 * that carets line up. */
void diag_render(const Diags *d, FILE *to, bool colour);
/* One JSON object a line: code, severity, message, file, line, column, length, labels, notes, help. */
void diag_render_json(const Diags *d, FILE *to);

#endif
