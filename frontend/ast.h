/* ast.h - the syntax tree of a .mt file, as the grammar in mt.y builds it. Every node has its Loc. */
#ifndef MTC_AST_H
#define MTC_AST_H
#include "../ir/diag.h"
#include "../ir/types.h"

typedef struct Expr Expr;
typedef struct Stmt Stmt;
typedef struct Member Member;
typedef struct Entry Entry;
typedef VEC(Expr *) ExprList;
typedef VEC(Stmt *) StmtList;
typedef VEC(Member *) MemberList;
typedef VEC(Entry *) EntryList;

typedef struct {
  const char *text; /* interned */
  Loc loc;
} Name;
typedef VEC(Name) NameList;

/* [B, T, D], bool[B, T], f32, [.., In] */
typedef struct {
  Loc loc;
  int dtype;     /* DType, or -1 for any float */
  bool has_dims; /* false for a bare dtype */
  ExprList dims; /* NULL entry = ".." */
} TypeExpr;

typedef enum {
  EX_NAME, EX_NUM, EX_SIZE, EX_STRING, EX_BOOL, EX_NONE, EX_AUTO, EX_DTYPE, EX_TUPLE, EX_LIST,
  EX_UNARY, EX_BINARY, EX_AS, EX_COND, EX_CALL, EX_INDEX, EX_FIELD
} ExprKind;

/* Operators keep their spelling: '+' '-' '*' '/' '%' '@' '<' '>' and these. */
enum { OPR_POW = 256, OPR_EQ, OPR_NE, OPR_LE, OPR_GE, OPR_AND, OPR_OR, OPR_NOT };

typedef enum { IX_EXPR, IX_ALL, IX_STAR, IX_DOTS, IX_RANGE } IndexKind; /* e  :  *  ..  a:b */
typedef struct {
  IndexKind kind;
  Loc loc;
  Expr *a, *b;
} Index;

typedef struct {
  const char *name; /* NULL = positional */
  Loc name_loc, loc;
  Expr *value;
} Arg;

struct Expr {
  ExprKind kind;
  Loc loc;    /* all of it */
  Loc op_loc; /* operator, '(' of a call, '[' of an index, name of a field */
  int op;
  const char *text; /* NAME, STRING (unescaped), FIELD; NUM and SIZE as written */
  double num;       /* NUM; BOOL 0/1; SIZE in bytes */
  bool is_int;      /* NUM without fraction or exponent */
  int dtype;        /* DTYPE; formats of files (u16, u8, i64, f8..) keep their text only and have -1 */
  bool parens;      /* written in parentheses */
  int depth;        /* levels of expressions below; the parser bounds it, so that walks may recurse */
  Expr *a, *b, *c;  /* operands; callee, base; condition first */
  ExprList items;   /* TUPLE, LIST */
  VEC(Arg) args;    /* CALL */
  VEC(Index) index; /* INDEX */
  TypeExpr *type;   /* AS */
};

typedef enum { ST_SET, ST_UPDATE, ST_FOR, ST_IF, ST_RETURN } StmtKind;
struct Stmt {
  StmtKind kind;
  Loc loc;
  NameList targets;    /* SET, UPDATE (one), FOR */
  Expr *value;         /* SET, UPDATE; IF condition; FOR iterable or range start */
  Expr *to;            /* FOR: range end or NULL */
  ExprList results;    /* RETURN */
  StmtList body, other; /* FOR, IF; else (a single ST_IF for `else if`) */
  bool has_else, else_if;
};

typedef struct {
  Name name;
  Loc loc;
  TypeExpr *type; /* NULL: any */
  Expr *value;    /* default or NULL */
} FnArg;
typedef struct {
  Name name;
  Loc loc;
  VEC(FnArg) args;
  VEC(TypeExpr *) returns;
  StmtList body;
} Fn;

typedef struct {
  Name name;
  Loc loc;
  bool is_layer; /* `base : layer` */
  Expr *value;
} Formal;

typedef enum { ME_PARAM, ME_STATE, ME_LAYER, ME_LET, ME_REQUIRE, ME_PRESET, ME_IF, ME_FN } MemberKind;
struct Member {
  MemberKind kind;
  Loc loc;
  Name name;
  TypeExpr *type;      /* PARAM, STATE */
  Expr *value;         /* init, layer's call, let, require, if; NULL none */
  Expr *from, *to;     /* LAYER arrays: s[i in from..to]; s[n]: from NULL, to = n */
  Name index;          /* i; text NULL for s[n] */
  const char *message; /* REQUIRE */
  EntryList entries;   /* PRESET */
  MemberList body, other;
  bool has_else;
  Fn *fn;
};

typedef enum { EN_SET, EN_SET_PATTERN, EN_SECTION, EN_DO } EntryKind;
struct Entry { /* k = v | "p", "q" = v | kind [name | pats] { .. } | word pats */
  EntryKind kind;
  Loc loc;
  Name key;
  Name name;         /* SECTION with a name */
  NameList patterns; /* strings without quotes */
  Expr *value;
  EntryList body;
};

typedef enum { IT_USE, IT_LET, IT_FN, IT_BLOCK, IT_MODEL, IT_DERIVE, IT_SECTION, IT_BIND } ItemKind;
typedef struct {
  NameList patterns;
  Expr *with;
  Loc loc;
} Wrap;
typedef struct {
  ItemKind kind;
  Loc loc;
  Name key;             /* SECTION: train, precision..; BIND: data; USE: the path */
  Name name;            /* BLOCK, MODEL, DERIVE, LET, FN, BIND; SECTION: its name or string or NULL */
  bool name_is_string;
  NameList names;       /* USE */
  VEC(Formal) formals;  /* BLOCK, MODEL */
  MemberList members;
  Expr *value;          /* LET, BIND, DERIVE */
  VEC(Wrap) wraps;      /* DERIVE */
  EntryList entries;    /* SECTION */
  Fn *fn;
} Item;

/* A comment or blank line, kept for `mtc fmt`. */
typedef struct {
  Loc loc;
  const char *text; /* without the '#' and trailing spaces */
  bool own_line;    /* nothing else stands on its line */
} Comment;

typedef struct {
  const char *path;
  int source; /* in Diags */
  int version;
  VEC(Item *) items;
  VEC(Comment) comments;
} File;

/* parse.c: reads and parses PATH. Syntax errors go to d, and parsing goes on behind them; NULL only when the file
 * cannot be read (E0601 added). With errors the tree holds what was understood. */
File *mt_parse_file(Arena *a, Diags *d, const char *path);
File *mt_parse_text(Arena *a, Diags *d, const char *path, const char *text, size_t size);

/* fmt.c: canonical layout, comments kept, idempotent, same tree. */
void mt_format(const File *f, const char *text, Str *out);
/* A canonical dump of the tree without locations, for tests ("AST before = AST after"). */
void mt_dump(const File *f, Str *out);

#endif
