/* fmt.h - what `mtc fmt` lays out: the tokens of a file grouped into units (items, members,
 * statements, settings) and blocks. fmt_tree.c builds it from the tree of the parser, fmt.c turns
 * it into lines. */
#ifndef MTC_FMT_H
#define MTC_FMT_H
#include "parse.h"

/* Units whose columns line up when they stand below one another. */
typedef enum {
  ALIGN_NONE,
  ALIGN_LAYER,
  ALIGN_ARRAY,
  ALIGN_PARAM,
  ALIGN_STATE,
  ALIGN_SET,
  ALIGN_PATTERN,
  ALIGN_SECTION,
  ALIGN_PRESET,
  ALIGN_UPDATE,
  ALIGN_KINDS
} AlignKind;

typedef struct FmtUnit FmtUnit;
typedef VEC(FmtUnit *) FmtUnits;

typedef struct {
  int open, close; /* tokens of the braces */
  FmtUnits units;
  bool is_inline; /* written on one line, and may stay there */
  bool settings;  /* several units may share a line, two spaces apart */
} FmtBlock;

struct FmtUnit {
  int first, last; /* tokens */
  AlignKind align;
  const char *key; /* only units of one key line up */
  VEC(FmtBlock *) blocks;
  int pad_at[2], pad[2]; /* spaces to add before these tokens; 0 = none */
};

typedef struct {
  Token token;
  const char *text;
  int len;
  bool starts_type;   /* a space stands before it, though it is `[` */
  bool unary;         /* no space behind it */
  bool slice;         /* a `:` without spaces */
  bool binary;        /* a line may break before it */
  int lead, lead_end; /* comments on lines of their own before it, in FmtTree.comments */
  int trail;          /* comment behind it on its line, -1 = none */
} FmtToken;

typedef struct {
  Arena *arena;
  VEC(FmtToken) tokens;
  VEC(Comment) comments;
  int tail; /* comments from here on stand behind the last token */
  FmtUnits units;
} FmtTree;

FmtTree *fmt_tree(Arena *a, const File *f, const char *text);

#endif
