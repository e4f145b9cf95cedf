/* builtins.h - operations in call position: their table, how their arguments are bound, their help.
 */
#ifndef MTC_BUILTINS_H
#define MTC_BUILTINS_H
#include "elab.h"

enum { BUILTIN_ARGS = 8 };

typedef struct Builtin Builtin;
typedef struct {
  const Builtin *op;
  const Expr *x; /* the call; a bare name for initial values */
  Val arg[BUILTIN_ARGS];
  const Expr *expr[BUILTIN_ARGS]; /* NULL: the default */
} BuiltinCall;

typedef Val BuiltinRun(Elab *e, const BuiltinCall *c);

typedef enum { BUILTIN_GRAPH, BUILTIN_MATH, BUILTIN_INIT } BuiltinWhere;

struct Builtin {
  const char *name, *signature, *kinds, *doc;
  BuiltinWhere where;
  bool is_init;
  BuiltinRun *run;
  int n;
  const char *arg[BUILTIN_ARGS]; /* names */
  Val preset[BUILTIN_ARGS];      /* defaults */
  bool required[BUILTIN_ARGS];
};

int builtin_count(void);
const Builtin *builtin_at(int i);
const Builtin *builtin_find(const char *interned); /* NULL when there is none */
Val builtin_call(Elab *e, const Scope *s, const Expr *x, const Builtin *op);

/* An error of the operation: caret at its name, each tensor operand labelled with its shape. */
Diag *builtin_error(Elab *e, const BuiltinCall *c, ErrId id, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* An axis in -rank..rank-1 as 0..rank-1; false after E0205. */
bool builtin_axis(Elab *e, const BuiltinCall *c, int64_t given, int rank, int64_t *axis);
/* Axes of argument i, ascending and each once; all of them for `none`. -1 after a message. */
int builtin_axes(Elab *e, const BuiltinCall *c, int i, int rank, int64_t *axes);
/* A number in lo..hi, else E0110. */
bool builtin_range(Elab *e, const BuiltinCall *c, int i, double lo, double hi);

#define BUILTIN(name, signature, kinds, where, run, doc) BuiltinRun run;
#include "builtins.def"

/* ---- for `mtc help` and docs ---- */
/* Prints one operation; false when there is none of this name. */
bool builtin_help(const char *name, FILE *to);
void builtin_list(FILE *to);
void builtin_markdown(FILE *to);
/* The name nearest to `word`, or NULL. */
const char *builtin_nearest(const char *word);

#endif
