/* parse_error.c - the wording of syntax errors.
 *
 * In: what the grammar would have accepted (spellings of its symbols), what it found, and the open
 * brackets. Out: one diagnostic in the user's terms: sets of tokens are named by what they begin
 * ("an expression"), and the bracket that is still open gets a label. */
#include <stdlib.h>
#include <string.h>
#include "frontend/parse.h"
#include "mt.tab.h"

/* What a symbol means in a list of expected ones. */
typedef enum {
  R_OTHER,    /* named as itself */
  R_OPERATOR, /* goes on with an expression */
  R_EXPR,     /* begins an expression */
  R_UNIT,     /* begins a unit */
} Role;

static Role role_of(const char *name) {
  static const char *const operators[] = {"'+'", "'-'", "'*'", "'/'", "'%'", "'@'", "'<'",
                                          "'>'", "**",  "==",  "!=",  "<=",  ">=",  "and",
                                          "or",  "as",  "'?'", "'('", "'['", "'.'"};
  static const char *const units[] = {"use", "block",   "model",  "fn", "param", "state",  "layer",
                                      "let", "require", "preset", "if", "for",   "return", "wrap"};
  static const char *const exprs[] = {"number", "size", "literal", "dtype", "not"};
  for (int i = 0; i < COUNT_OF(operators); i++)
    if (!strcmp(name, operators[i])) return R_OPERATOR;
  for (int i = 0; i < COUNT_OF(units); i++)
    if (!strcmp(name, units[i])) return R_UNIT;
  for (int i = 0; i < COUNT_OF(exprs); i++)
    if (!strcmp(name, exprs[i])) return R_EXPR;
  return R_OTHER;
}

static bool has(const char *const *names, int n, const char *name) {
  for (int i = 0; i < n; i++)
    if (!strcmp(names[i], name)) return true;
  return false;
}

/* "'+'" -> "`+`"; "name" -> "a name"; ".." -> "`..`" */
static const char *spell(Arena *a, const char *name) {
  static const char *const kinds[][2] = {{"name", "a name"},
                                         {"number", "a number"},
                                         {"size", "a size"},
                                         {"string", "a string"},
                                         {"literal", "a literal"},
                                         {"dtype", "a dtype"},
                                         {"end of file", "the end of the file"}};
  for (int i = 0; i < COUNT_OF(kinds); i++)
    if (!strcmp(name, kinds[i][0])) return kinds[i][1];
  if (name[0] == '\'') return arena_printf(a, "`%c`", name[1]);
  return arena_printf(a, "`%s`", name);
}

/* The words for the units that may begin here: items, members, statements, settings. */
static const char *unit_words(const char *const *e, int n) {
  if (has(e, n, "block")) return "a block, a model, a function or a section";
  if (has(e, n, "param")) return "a member of the block";
  if (has(e, n, "return")) return "a statement";
  if (has(e, n, "wrap")) return "`wrap`";
  return NULL;
}

typedef VEC(const char *) Words;

static void add_once(Arena *a, Words *w, const char *word) {
  if (!has(w->at, w->n, word)) vec_push(a, w, word);
}

/* Reduces the expected symbols to a few words, separators first. after: the symbols allow going on
 * with an expression. */
static Words expected_words(Parse *p, const char *const *e, int n, bool *after) {
  Words w = {0};
  Arena *a = p->arena;
  *after = has(e, n, "'+'") && has(e, n, "as");
  bool expr = !*after && has(e, n, "number") && has(e, n, "'('");
  bool type = !*after && !expr && has(e, n, "dtype") && has(e, n, "'['");
  const char *units = unit_words(e, n);
  bool settings = has(e, n, "name") && has(e, n, "'}'") && !units && !expr;
  bool value = !units && !settings && has(e, n, "'='") && has(e, n, "'{'");
  if (expr) add_once(a, &w, "an expression");
  if (type) add_once(a, &w, "a type");
  if (units) add_once(a, &w, units);
  if (settings) add_once(a, &w, "a setting");
  if (has(e, n, "','")) add_once(a, &w, "`,`");
  for (int i = 0; i < n; i++) {
    Role r = role_of(e[i]);
    bool name = !strcmp(e[i], "name"), string = !strcmp(e[i], "string");
    bool begins = r == R_EXPR || name || string || !strcmp(e[i], "'('") || !strcmp(e[i], "'['") ||
                  !strcmp(e[i], "'-'");
    if (*after && (r == R_OPERATOR || (has(e, n, "','") && !strcmp(e[i], "'='")))) continue;
    if (expr && begins) continue;
    if (type && (!strcmp(e[i], "dtype") || !strcmp(e[i], "'['"))) continue;
    if (units && (r == R_UNIT || name)) continue;
    if ((settings || value) && (name || string)) continue;
    add_once(a, &w, spell(a, e[i]));
  }
  return w;
}

/* The text of a token, shortened. */
static const char *token_text(Parse *p, Loc at) {
  const Source *s = &p->diags->sources.at[p->source];
  const char *line = s->text;
  for (int i = 1; i < at.line && line; i++) {
    line = memchr(line, '\n', s->size - (size_t)(line - s->text));
    if (line) line++;
  }
  if (!line || at.len <= 0) return "";
  int len = at.len < 40 ? at.len : 40;
  return arena_printf(p->arena, "%.*s%s", len, line + at.col - 1, len < at.len ? ".." : "");
}

static const char *found_words(Parse *p, Loc at, const char *found) {
  static const char *const kinds[] = {"name", "number", "size", "dtype", "literal"};
  const char *text = token_text(p, at);
  if (!text[0]) return found[0] == '\'' ? spell(p->arena, found) : found;
  for (int i = 0; i < COUNT_OF(kinds); i++)
    if (!strcmp(found, kinds[i])) return arena_printf(p->arena, "%s `%s`", found, text);
  if (!strcmp(found, "string")) return arena_printf(p->arena, "string %s", text);
  bool word = text[0] >= 'a' && text[0] <= 'z';
  return arena_printf(p->arena, word ? "keyword `%s`" : "`%s`", text);
}

/* "after this argument", "after `use`": what just ended, judged by the bracket around it. */
static const char *context_words(Parse *p, bool after, bool begins_unit) {
  const Bracket *b = p->open.n ? &vec_last(&p->open) : NULL;
  if (!after) {
    if (begins_unit || p->before.kind <= 0 || p->before.kind == '}' || p->before.kind == '{')
      return "";
    return arena_printf(p->arena, " after `%s`", token_text(p, p->before.loc));
  }
  bool attached = b && (b->before == T_NAME || b->before == ')' || b->before == ']');
  if (b && b->kind == '(') return attached ? " after this argument" : " after this expression";
  if (b && b->kind == '[') return attached ? " after this size or index" : " after this element";
  return " after this expression";
}

/* A statement that was left incomplete swallows the name that begins the next line; the error then
 * shows at the `=` behind it. Reported where something is missing instead. */
static bool report_incomplete(Parse *p, bool after) {
  int k = p->before2.kind;
  bool set = p->now.kind == '=' || p->now.kind == T_SET;
  bool wants = (k > 0 && k < 256 && strchr("+-*/%@<>=(,?:[", k)) || (k >= T_SET && k <= T_GE) ||
               k == T_AND || k == T_OR || k == T_NOT;
  if (!set || !after || !p->before.first || p->before.kind != T_NAME || !wants) return false;
  diag_error(p->diags, E_SYNTAX, p->before2.loc,
             "expected an expression after `%s`, found a new line", token_text(p, p->before2.loc));
  return true;
}

static bool is_keyword(int kind) {
  return kind >= T_MT && kind <= T_NOT;
}

/* One suggestion where the cause is nearly certain. */
static void add_help(Parse *p, Diag *g, const char *const *e, int n, bool after) {
  static const struct {
    const char *word, *help;
  } habits[] = {
      {"elif", "write `else if`"},
      {"elseif", "write `else if`"},
      {"def", "functions begin with `fn`"},
      {"func", "functions begin with `fn`"},
      {"class", "write `block` or `model`"},
      {"import", "write `use \"FILE.mt\" (A, B)`"},
      {"from", "write `use \"FILE.mt\" (A, B)`"},
      {"while", "loops are static: `for x in LAYERS`"},
  };
  const Token *last[] = {&p->now, &p->before, &p->before2};
  for (int k = 0; k < COUNT_OF(last) && !g->help; k++)
    for (int i = 0; last[k]->kind == T_NAME && i < COUNT_OF(habits); i++)
      if (!strcmp(token_text(p, last[k]->loc), habits[i].word))
        diag_help(p->diags, g, "%s", habits[i].help);
  const char *ours = p->now.kind == T_NAME && has(e, n, "dtype")
                         ? dtype_of_others(token_text(p, p->now.loc))
                         : NULL;
  if (!g->help && ours) diag_help(p->diags, g, "did you mean `%s`?", ours);
  if (!g->help && is_keyword(p->now.kind) && has(e, n, "name") && !unit_words(e, n) && !after)
    diag_help(p->diags, g, "keywords of the language cannot be names");
  if (!g->help && p->now.kind == '=' && after && p->open.n && vec_last(&p->open).kind == '{')
    diag_help(p->diags, g,
              "compare with `==`; a value is set by `name = ..` at the start of a statement");
}

void parse_unexpected(Parse *p, Loc at, const char *found, const char *const *expected, int n) {
  bool after = false;
  Words w = expected_words(p, expected, n, &after);
  if (report_incomplete(p, after)) return;
  Str s = {.arena = p->arena};
  str_add(&s, "expected ");
  for (int i = 0; i < w.n; i++) {
    if (i > 0) str_add(&s, i + 1 == w.n ? " or " : ", ");
    str_add(&s, w.at[i]);
  }
  if (w.n == 0) str_add(&s, "something else");
  Diag *g = diag_error(p->diags, E_SYNTAX, at, "%s%s, found %s", s.text,
                       context_words(p, after, has(expected, n, "'}'") || unit_words(expected, n)),
                       found_words(p, at, found));
  const Bracket *b = p->open.n ? &vec_last(&p->open) : NULL;
  bool closer = b && (has(expected, n, b->kind == '(' ? "')'" : b->kind == '[' ? "']'" : "'}'"));
  bool far = b && (b->loc.line != at.line || b->kind != '{');
  bool lost = p->now.kind == T_END || p->now.kind == T_BLOCK || p->now.kind == T_MODEL;
  if (closer && far && (b->kind != '{' || lost))
    diag_label(p->diags, g, b->loc, "%s", lost ? "this is still open" : "opened here");
  add_help(p, g, expected, n, after);
}

void parse_bad_text(Parse *p, Loc at, const char *text, size_t len) {
  static const struct {
    const char *text, *message, *help;
  } known[] = {
      {";", "`;` is not part of the language", "statements end by themselves: remove it"},
      {"//", "`//` is not part of the language", "comments begin with `#`"},
      {"&&", "`&&` is not part of the language", "write `and`"},
      {"||", "`||` is not part of the language", "write `or`"},
      {"!", "`!` is not part of the language", "write `not`"},
      {"'", "strings are written in double quotes", NULL},
      {"\xe2\x80\x9c", "typographic quotes do not make strings", "write \"...\""},
      {"\xe2\x80\x9d", "typographic quotes do not make strings", "write \"...\""},
      {"\xc3\x97", "`\xc3\x97` is not part of the language", "write `*`"},
      {"\xef\xbb\xbf", "the file begins with a byte order mark", "save it as plain UTF-8"},
  };
  if (p->skipping) return;
  for (int i = 0; i < COUNT_OF(known); i++) {
    size_t n = strlen(known[i].text);
    if (len < n || memcmp(text, known[i].text, n)) continue;
    Diag *g = diag_error(p->diags, E_SYNTAX, at, "%s", known[i].message);
    if (known[i].help) diag_help(p->diags, g, "%s", known[i].help);
    return;
  }
  unsigned char c = (unsigned char)text[0];
  if (c == '"') {
    Diag *g = diag_error(p->diags, E_SYNTAX, at, "this string has no end on its line");
    diag_help(p->diags, g, "close it with `\"`");
  } else if (c >= '0' && c <= '9') {
    Diag *g =
        diag_error(p->diags, E_SYNTAX, at, "`%.*s` is no number", len < 40 ? (int)len : 40, text);
    diag_note(p->diags, g, "numbers: 12, 1_000_000, 1.5, 1e-4; sizes: 24G, 1.5GiB, 500MB");
  } else if (c < 0x20 || c == 0x7f) {
    diag_error(p->diags, E_SYNTAX, at, "byte 0x%02x is not text", c);
  } else if (c >= 0x80) {
    diag_error(p->diags, E_SYNTAX, at,
               "only comments and strings may hold characters beyond ASCII");
  } else {
    diag_error(p->diags, E_SYNTAX, at, "`%c` is not part of the language", c);
  }
}
