/* parse.c - entry points of the parser, the token stream between scanner and grammar, and the
 * builders of expressions.
 *
 * In: the bytes of a .mt file. Out: a File (ast.h) and diagnostics. Any bytes are safe: nesting is
 * bounded (by YYMAXDEPTH in mt.y and MAX_EXPR_DEPTH here), so that everything that walks a tree may
 * recurse. */
#include "frontend/parse.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "mt.tab.h"

enum {
  MAX_EXPR_DEPTH = 256,     /* operators and calls inside one another */
  MAX_FILE_BYTES = 16 << 20 /* a model is some kilobytes; a weights file given by mistake is not */
};

/* ---- the token stream ---- */

static Token scan(Parse *p) {
  Token t = {0};
  t.kind = p->fatal ? T_END : mt_scan_lex(p->value, &t.loc, p->scanner);
  if (t.kind == T_END) t.loc = (Loc){p->source, p->line, p->col, 0};
  t.first = p->indent == 0;
  if (t.first) p->indent = t.loc.col;
  return t;
}

/* Keeps the stack of open brackets in step with the grammar; called once the token was used, so
 * that a message about a closer still sees what is open. A closer that fits nothing changes
 * nothing. */
static void track_brackets(Parse *p, const Token *t) {
  if (t->kind == '(' || t->kind == '[' || t->kind == '{') {
    Bracket b = {t->kind, t->loc, p->indent, p->before.kind};
    vec_push(p->arena, &p->open, b);
  } else if (t->kind == ')' || t->kind == ']' || t->kind == '}') {
    int opener = t->kind == ')' ? '(' : t->kind == ']' ? '[' : '{';
    if (p->open.n > 0 && vec_last(&p->open).kind == opener) p->open.n--;
  }
}

int parse_lex(union MT_YYSTYPE *value, Loc *loc, Parse *p) {
  if (p->closers > 0) {
    p->closers--;
    *loc = (Loc){p->source, p->now.loc.line, p->now.loc.col, 0};
    while (p->open.n > 0 && p->open.at[--p->open.n].kind != '{') {
    }
    return '}';
  }
  if (p->held) {
    p->held = false;
  } else {
    track_brackets(p, &p->now);
    p->before2 = p->before;
    p->before = p->now;
    p->now = scan(p);
  }
  *value = *p->value;
  *loc = p->now.loc;
  return p->now.kind;
}

/* ---- recovery ---- */

/* Keywords that begin a unit and so end the skipping when first on a line. */
static bool starts_unit(int kind, Level level) {
  switch (kind) {
    case T_USE:
    case T_BLOCK:
    case T_MODEL:
    case T_FN:
      return true;
    case T_PARAM:
    case T_STATE:
    case T_LAYER:
    case T_REQUIRE:
    case T_PRESET:
      return level == LEVEL_MEMBER || level == LEVEL_STMT;
    case T_LET:
      return level == LEVEL_ITEM || level == LEVEL_MEMBER || level == LEVEL_STMT;
    case T_IF:
      return level == LEVEL_MEMBER || level == LEVEL_STMT;
    case T_FOR:
    case T_RETURN:
      return level == LEVEL_STMT;
    case T_WRAP:
      return level == LEVEL_WRAP;
    default:
      return false;
  }
}

/* How many open blocks end before a unit that starts at this column, by the indentation of the
 * lines that opened them; all of them for what stands at the top level only. */
static int blocks_ended_by(const Parse *p, const Token *t, Level level) {
  bool top = t->kind == T_USE || t->kind == T_BLOCK || t->kind == T_MODEL || t->kind == T_END;
  bool member = t->kind == T_FN || (starts_unit(t->kind, LEVEL_MEMBER) && t->kind != T_IF);
  if (!top && !(member && level == LEVEL_STMT)) return 0;
  int n = 0;
  for (int i = p->open.n - 1; i >= 0; i--) {
    if (p->open.at[i].kind != '{') continue;
    if (!top && p->open.at[i].indent < t->loc.col) break;
    n++;
  }
  return n;
}

static bool stops_here(const Token *t, Level level, Loc start, int depth) {
  if (t->kind == T_END) return true;
  bool top = t->kind == T_USE || t->kind == T_BLOCK || t->kind == T_MODEL;
  if (top && t->first && t->loc.col == 1) return true; /* whatever was left open before it */
  if (depth > 0) return false;
  if (t->kind == '}') return level != LEVEL_ITEM;
  if (!t->first) return false;
  if (starts_unit(t->kind, level)) return true;
  return (t->kind == T_NAME || t->kind == T_STRING) && t->loc.line > start.line &&
         t->loc.col <= start.col;
}

void parse_sync(Parse *p, Level level, Loc start) {
  Token t = p->now;
  while (p->open.n > 0 && vec_last(&p->open).kind != '{') p->open.n--;
  bool again = t.loc.line == p->stopped_line && t.loc.col == p->stopped_col;
  if (again && t.kind == T_END) p->fatal = true;
  int depth = 0;
  p->skipping = true;
  while ((again && t.kind != T_END) || !stops_here(&t, level, start, depth)) {
    again = false;
    if (t.kind == '{') depth++;
    if (t.kind == '}' && depth > 0) depth--;
    p->before = t;
    t = scan(p);
  }
  p->skipping = false;
  p->now = t;
  p->held = true;
  p->stopped_line = t.loc.line, p->stopped_col = t.loc.col;
  p->closers = level == LEVEL_ITEM ? 0 : blocks_ended_by(p, &t, level);
}

/* ---- builders ---- */

static int depth_of(const Expr *e) {
  return e ? e->depth + 1 : 0;
}

static void set_depth(Parse *p, Expr *e, int depth) {
  if (depth > e->depth) e->depth = depth;
  if (e->depth <= MAX_EXPR_DEPTH || p->fatal) return;
  Diag *g = diag_error(p->diags, E_SYNTAX, e->op_loc, "expression nested too deeply (limit is %d)",
                       MAX_EXPR_DEPTH);
  diag_help(p->diags, g, "name a part of it first");
  p->fatal = true;
}

Expr *parse_expr(Parse *p, ExprKind kind, Loc loc, Loc op_loc, int op, Expr *a, Expr *b, Expr *c) {
  Expr *e = arena_new_of(p->arena, Expr);
  *e = (Expr){.kind = kind, .loc = loc, .op_loc = op_loc, .op = op, .dtype = -1};
  e->a = a, e->b = b, e->c = c;
  set_depth(p, e, depth_of(a));
  set_depth(p, e, depth_of(b));
  set_depth(p, e, depth_of(c));
  return e;
}

Expr *parse_expr_done(Parse *p, Expr *e) {
  for (int i = 0; i < e->items.n; i++) set_depth(p, e, depth_of(e->items.at[i]));
  for (int i = 0; i < e->args.n; i++) set_depth(p, e, depth_of(e->args.at[i].value));
  for (int i = 0; i < e->index.n; i++) {
    set_depth(p, e, depth_of(e->index.at[i].a));
    set_depth(p, e, depth_of(e->index.at[i].b));
  }
  for (int i = 0; e->type && i < e->type->dims.n; i++)
    set_depth(p, e, depth_of(e->type->dims.at[i]));
  return e;
}

static char *without_underscores(Parse *p, const char *text) {
  char *out = arena_copy(p->arena, text, strlen(text) + 1), *w = out;
  for (const char *r = text; *r; r++)
    if (*r != '_') *w++ = *r;
  *w = 0;
  return out;
}

Expr *parse_number(Parse *p, Loc loc, const char *text) {
  Expr *e = parse_expr(p, EX_NUM, loc, loc, 0, NULL, NULL, NULL);
  e->text = text;
  e->is_int = !strpbrk(text, ".eE");
  const char *digits = without_underscores(p, text);
  e->num = strtod(digits, NULL);
  errno = 0;
  /* 2^53 is the last one that a double counts to. */
  if (e->is_int && (strtoull(digits, NULL, 10) > 1ull << 53 || errno))
    diag_error(p->diags, E_SYNTAX, loc, "number out of range: whole numbers go up to 2^53");
  else if (!isfinite(e->num))
    diag_error(p->diags, E_SYNTAX, loc, "number out of range");
  return e;
}

Expr *parse_size(Parse *p, Loc loc, const char *text) {
  Expr *e = parse_expr(p, EX_SIZE, loc, loc, 0, NULL, NULL, NULL);
  int64_t bytes = 0;
  e->text = text;
  if (!parse_bytes(without_underscores(p, text), 0, &bytes))
    diag_error(p->diags, E_SYNTAX, loc, "size `%s` is out of range", text);
  e->num = (double)bytes;
  return e;
}

Expr *parse_literal(Parse *p, Loc loc, const char *text) {
  ExprKind kind = EX_BOOL;
  if (!strcmp(text, "none")) kind = EX_NONE;
  if (!strcmp(text, "auto")) kind = EX_AUTO;
  Expr *e = parse_expr(p, kind, loc, loc, 0, NULL, NULL, NULL);
  e->text = text;
  e->num = !strcmp(text, "true");
  return e;
}

Expr *parse_dtype(Parse *p, Loc loc, const char *text) {
  Expr *e = parse_expr(p, EX_DTYPE, loc, loc, 0, NULL, NULL, NULL);
  e->text = text;
  e->dtype = dtype_by_name(text);
  return e;
}

TypeExpr *parse_type(Parse *p, Loc loc, const char *dtype, ExprList *dims) {
  static const int of_values[] = {DT_F32, DT_BF16, DT_F16, DT_I32, DT_BOOL};
  TypeExpr *t = arena_new_of(p->arena, TypeExpr);
  t->loc = loc;
  t->dtype = dtype ? dtype_by_name(dtype) : -1;
  bool ok = !dtype;
  for (int i = 0; i < COUNT_OF(of_values); i++) ok |= t->dtype == of_values[i];
  if (!ok) {
    Loc at = loc;
    at.len = (int)strlen(dtype);
    Diag *g = diag_error(p->diags, E_SYNTAX, at,
                         "`%s` is a format of storage, not a type of values", dtype);
    diag_note(p->diags, g, "values are f32, bf16, f16, i32 or bool");
    t->dtype = -1;
  }
  if (dims) {
    t->has_dims = true;
    t->dims = *dims;
  }
  return t;
}

void parse_version(Parse *p, Loc loc, const char *text) {
  p->file->version = atoi(text);
  if (!strcmp(text, "1")) return;
  Diag *g =
      diag_error(p->diags, E_SYNTAX, loc, "this mtc reads version 1 of the language, not %s", text);
  diag_help(p->diags, g, "write `mt 1`");
}

const char *parse_string(Parse *p, Loc loc, const char *quoted, size_t len) {
  Str s = {.arena = p->arena};
  str_add(&s, "");
  for (size_t i = 1; i + 1 < len; i++) {
    char c = quoted[i];
    if (c == '\\') {
      c = quoted[++i];
      if (c == 'n') {
        c = '\n';
      } else if (c == 't') {
        c = '\t';
      } else if (c != '"' && c != '\\' && !p->skipping) {
        Loc at = {loc.file, loc.line, loc.col + (int)i - 1, 2};
        Diag *g = diag_error(p->diags, E_SYNTAX, at, "unknown escape in a string");
        diag_note(p->diags, g, "there are `\\n`, `\\t`, `\\\"` and `\\\\`");
      }
    }
    str_add_n(&s, &c, 1);
  }
  return intern_n(s.text, s.len);
}

/* ---- entry points ---- */

void parse_tokens(Arena *a, const char *text, TokenList *out) {
  File scratch = {0};
  Parse p = {.arena = a, .file = &scratch, .line = 1, .col = 1, .skipping = true};
  p.value = arena_new_of(a, union MT_YYSTYPE);
  p.scanner = mt_scan_open(&p, text, strlen(text));
  for (Token t = scan(&p); t.kind != T_END; t = scan(&p)) vec_push(a, out, t);
  mt_scan_close(p.scanner);
}

File *mt_parse_text(Arena *a, Diags *d, const char *path, const char *text, size_t size) {
  File *f = arena_new_of(a, File);
  f->path = path;
  f->version = 1;
  f->source = diag_add_source(d, path, text, size);
  if (size > MAX_FILE_BYTES) {
    diag_error(d, E_FILE, (Loc){f->source, 1, 1, 0}, "`%s` is no model: it has more than 16 MiB",
               path);
    return f;
  }
  Parse p = {.arena = a, .diags = d, .file = f, .source = f->source, .line = 1, .col = 1};
  p.value = arena_new_of(a, union MT_YYSTYPE);
  p.scanner = mt_scan_open(&p, text, size);
  mt_yyparse(&p);
  mt_scan_close(p.scanner);
  return f;
}

File *mt_parse_file(Arena *a, Diags *d, const char *path) {
  size_t size = 0;
  char *text = read_file(a, path, &size);
  if (text) return mt_parse_text(a, d, path, text, size);
  Diag *g = diag_error(d, E_FILE, NO_LOC, "cannot read `%s`: %s", path, strerror(errno));
  if (errno == ENOENT && !str_ends(path, ".mt")) diag_help(d, g, "models end in `.mt`");
  return NULL;
}
