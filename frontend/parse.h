/* parse.h - what the scanner (mt.l), the grammar (mt.y), parse.c and parse_error.c share; nobody
 * else includes it.
 *
 * The grammar pulls tokens through parse_lex, which stands between it and the scanner: it keeps the
 * stack of open brackets for messages and, after an error, skips to a place where a new unit (item,
 * member, statement, entry) begins, judged by line starts and indentation - the grammar itself is
 * blind to newlines. */
#ifndef MTC_PARSE_H
#define MTC_PARSE_H
#include "ast.h"

typedef struct {
  int kind; /* T_... or a character */
  Loc loc;
  bool first; /* first on its line */
} Token;

typedef struct {
  int kind; /* '(', '[' or '{' */
  Loc loc;
  int indent; /* column of the first token on its line */
  int before; /* kind of the token before it */
} Bracket;

typedef enum { LEVEL_ITEM, LEVEL_MEMBER, LEVEL_STMT, LEVEL_ENTRY, LEVEL_WRAP } Level;

typedef VEC(Token) TokenList;
typedef VEC(TypeExpr *) TypeList;
typedef VEC(Arg) ArgList;
typedef VEC(FnArg) FnArgList;
typedef VEC(Index) IndexList;
typedef VEC(Formal) FormalList;
typedef VEC(Wrap) WrapList;

union MT_YYSTYPE;

typedef struct Parse {
  Arena *arena;
  Diags *diags;
  File *file;
  int source;
  void *scanner;
  /* scanner */
  int line, col; /* of the next byte */
  int indent;    /* column of the first token on this line, 0 = none yet */
  /* between scanner and grammar */
  Token now, before, before2; /* the last token delivered and the ones before it */
  union MT_YYSTYPE *value;    /* of `now` */
  VEC(Bracket) open;
  bool held;                     /* `now` is delivered once more */
  int closers;                   /* '}' to deliver before it, for blocks that were never closed */
  int stopped_line, stopped_col; /* where the last recovery stopped: the next must get past it */
  bool skipping;                 /* in recovery: bad text is not worth a message */
  bool fatal;                    /* no use going on: the rest reads as the end of the file */
} Parse;

/* parse.c */
int parse_lex(union MT_YYSTYPE *value, Loc *loc, Parse *p);
/* Skips to the next unit behind a syntax error in a unit that began at `start`; the grammar must
 * then drop its lookahead, which is delivered again where it still matters. */
void parse_sync(Parse *p, Level level, Loc start);
Expr *parse_expr(Parse *p, ExprKind kind, Loc loc, Loc op_loc, int op, Expr *a, Expr *b, Expr *c);
Expr *parse_expr_done(Parse *p, Expr *e); /* sets depth from the lists of e */
Expr *parse_number(Parse *p, Loc loc, const char *text);
Expr *parse_size(Parse *p, Loc loc, const char *text);
Expr *parse_literal(Parse *p, Loc loc, const char *text);
Expr *parse_dtype(Parse *p, Loc loc, const char *text);
TypeExpr *parse_type(Parse *p, Loc loc, const char *dtype, ExprList *dims);
void parse_version(Parse *p, Loc loc, const char *text);
const char *parse_string(Parse *p, Loc loc, const char *quoted, size_t len);

/* The tokens of a text that parsed without errors, in order, for fmt. */
void parse_tokens(Arena *a, const char *text, TokenList *out);

/* parse_error.c */
/* Reports that `found` stands where one of `expected` (spellings of the grammar) should. */
void parse_unexpected(Parse *p, Loc at, const char *found, const char *const *expected, int n);
/* Reports text that is no token at all. */
void parse_bad_text(Parse *p, Loc at, const char *text, size_t len);

/* scanner, generated */
void *mt_scan_open(Parse *p, const char *text, size_t size);
void mt_scan_close(void *scanner);
int mt_scan_lex(union MT_YYSTYPE *value, Loc *loc, void *scanner);

#endif
