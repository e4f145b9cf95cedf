/* fmt_tree.c - groups the tokens of a parsed file into units and blocks for fmt.c, and gives each
 * comment its place between tokens.
 *
 * Braces only ever hold units, so the tokens alone give the blocks; the parser's tree says where
 * units begin, which tokens begin a type, and which units line up. */
#include "frontend/fmt.h"
#include <stdlib.h>
#include <string.h>
#include "mt.tab.h"

/* A place where a unit or a type begins. */
typedef struct {
  Loc loc;
  bool type;
  AlignKind align;
  const char *key;
} Mark;

typedef struct {
  FmtTree *tree;
  VEC(Mark) marks;
  int at; /* next token */
} Builder;

/* ---- marks, from the tree ---- */

static void mark_unit(Builder *b, Loc loc, AlignKind align, const char *key) {
  Mark m = {loc, false, align, key};
  vec_push(b->tree->arena, &b->marks, m);
}

static void mark_type(Builder *b, const TypeExpr *t) {
  if (!t) return;
  Mark m = {t->loc, true, ALIGN_NONE, NULL};
  vec_push(b->tree->arena, &b->marks, m);
}

static void mark_stmts(Builder *b, const StmtList *list, bool first_is_unit) {
  for (int i = 0; i < list->n; i++) {
    const Stmt *s = list->at[i];
    if (i > 0 || first_is_unit)
      mark_unit(b, s->loc, s->kind == ST_UPDATE ? ALIGN_UPDATE : ALIGN_NONE, NULL);
    mark_stmts(b, &s->body, true);
    mark_stmts(b, &s->other, !s->else_if);
  }
}

static void mark_fn(Builder *b, const Fn *f) {
  for (int i = 0; i < f->args.n; i++) mark_type(b, f->args.at[i].type);
  for (int i = 0; i < f->returns.n; i++) mark_type(b, f->returns.at[i]);
  mark_stmts(b, &f->body, true);
}

static void mark_entries(Builder *b, const EntryList *list) {
  for (int i = 0; i < list->n; i++) {
    const Entry *e = list->at[i];
    AlignKind align = ALIGN_NONE;
    const char *key = NULL;
    if (e->kind == EN_SET) align = ALIGN_SET;
    if (e->kind == EN_SET_PATTERN) align = ALIGN_PATTERN;
    if (e->kind == EN_SECTION && e->patterns.n == 0) {
      align = ALIGN_SECTION;
      key = e->name.text ? e->key.text : NULL;
    }
    mark_unit(b, e->loc, align, key);
    mark_entries(b, &e->body);
  }
}

static void mark_members(Builder *b, const MemberList *list) {
  static const AlignKind aligns[] = {[ME_PARAM] = ALIGN_PARAM,
                                     [ME_STATE] = ALIGN_STATE,
                                     [ME_LAYER] = ALIGN_LAYER,
                                     [ME_PRESET] = ALIGN_PRESET,
                                     [ME_FN] = ALIGN_NONE};
  for (int i = 0; i < list->n; i++) {
    const Member *m = list->at[i];
    mark_unit(b, m->loc, m->kind == ME_LAYER && m->index.text ? ALIGN_ARRAY : aligns[m->kind],
              NULL);
    mark_type(b, m->type);
    mark_entries(b, &m->entries);
    mark_members(b, &m->body);
    mark_members(b, &m->other);
    if (m->fn) mark_fn(b, m->fn);
  }
}

static void mark_items(Builder *b, const File *f) {
  for (int i = 0; i < f->items.n; i++) {
    const Item *it = f->items.at[i];
    mark_unit(b, it->loc, ALIGN_NONE, NULL);
    mark_members(b, &it->members);
    mark_entries(b, &it->entries);
    for (int k = 0; k < it->wraps.n; k++) mark_unit(b, it->wraps.at[k].loc, ALIGN_NONE, NULL);
    if (it->fn) mark_fn(b, it->fn);
  }
}

static int by_place(const void *x, const void *y) {
  const Mark *a = x, *b = y;
  if (a->loc.line != b->loc.line) return a->loc.line < b->loc.line ? -1 : 1;
  return a->loc.col < b->loc.col ? -1 : a->loc.col > b->loc.col;
}

/* The mark at a token, of this kind, or NULL. */
static const Mark *mark_at(const Builder *b, int token, bool type) {
  Mark key = {.loc = b->tree->tokens.at[token].token.loc};
  for (int lo = 0, hi = b->marks.n; lo < hi;) {
    int mid = (lo + hi) / 2, order = by_place(&b->marks.at[mid], &key);
    if (order == 0) return b->marks.at[mid].type == type ? &b->marks.at[mid] : NULL;
    if (order < 0)
      lo = mid + 1;
    else
      hi = mid;
  }
  return NULL;
}

/* ---- tokens and comments ---- */

static bool ends_operand(int kind) {
  return kind == T_NAME || kind == T_NUMBER || kind == T_SIZE || kind == T_STRING ||
         kind == T_LITERAL || kind == T_DTYPE || kind == ')' || kind == ']';
}

static bool is_operator(int kind) {
  return (kind > 0 && kind < 256 && strchr("+-*/%@<>?", kind)) || (kind >= T_POW && kind <= T_GE) ||
         kind == T_AND || kind == T_OR;
}

/* Roles of operators: `-` and `*` by what stands before them, `:` by the bracket around it. */
static void set_roles(FmtTree *t) {
  VEC(int) questions = {0}; /* open `?` of each bracket that is open, and the bracket */
  VEC(int) brackets = {0};
  vec_push(t->arena, &questions, 0);
  vec_push(t->arena, &brackets, '{');
  for (int i = 0; i < t->tokens.n; i++) {
    FmtToken *k = &t->tokens.at[i];
    int kind = k->token.kind, before = i ? t->tokens.at[i - 1].token.kind : 0;
    bool operand = ends_operand(before);
    if (kind == '-') k->unary = !operand;
    k->binary = is_operator(kind) && operand;
    if (kind == '?') vec_last(&questions)++;
    if (kind == ':' && vec_last(&questions) > 0) {
      vec_last(&questions)--;
      k->binary = true;
    } else if (kind == ':') {
      k->slice = vec_last(&brackets) == '[';
    }
    if (kind == '(' || kind == '[' || kind == '{') {
      vec_push(t->arena, &questions, 0);
      vec_push(t->arena, &brackets, kind);
    } else if ((kind == ')' || kind == ']' || kind == '}') && questions.n > 1) {
      questions.n--, brackets.n--;
    }
  }
}

static void read_tokens(FmtTree *t, const char *text) {
  TokenList list = {0};
  parse_tokens(t->arena, text, &list);
  const char *line = text;
  int number = 1;
  for (int i = 0; i < list.n; i++) {
    Loc at = list.at[i].loc;
    for (; number < at.line; number++) line = strchr(line, '\n') + 1;
    FmtToken k = {.token = list.at[i], .text = line + at.col - 1, .len = at.len, .trail = -1};
    vec_push(t->arena, &t->tokens, k);
  }
  set_roles(t);
}

static bool before(Loc a, Loc b) {
  return a.line < b.line || (a.line == b.line && a.col < b.col);
}

static void place_comments(FmtTree *t, const File *f) {
  for (int i = 0; i < f->comments.n; i++) vec_push(t->arena, &t->comments, f->comments.at[i]);
  int c = 0;
  for (int i = 0; i < t->tokens.n; i++) {
    FmtToken *k = &t->tokens.at[i];
    k->lead = c;
    while (c < t->comments.n && before(t->comments.at[c].loc, k->token.loc)) c++;
    k->lead_end = c;
    if (c < t->comments.n && t->comments.at[c].loc.line == k->token.loc.line &&
        (i + 1 == t->tokens.n || before(t->comments.at[c].loc, t->tokens.at[i + 1].token.loc)))
      k->trail = c++;
  }
  t->tail = c;
}

/* ---- units and blocks ---- */

static FmtUnit *build_unit(Builder *b, bool nested);

static bool has_comment(const FmtTree *t, int from, int to) {
  for (int i = from; i < to; i++)
    if (t->tokens.at[i].trail >= 0 || t->tokens.at[i + 1].lead < t->tokens.at[i + 1].lead_end)
      return true;
  return false;
}

/* The cursor stands on "{"; afterwards behind "}". */
static FmtBlock *build_block(Builder *b) {
  FmtTree *t = b->tree;
  FmtBlock *k = arena_new_of(t->arena, FmtBlock);
  k->open = b->at++;
  k->settings = true;
  k->is_inline = true;
  while (t->tokens.at[b->at].token.kind != '}') {
    FmtUnit *u = build_unit(b, true);
    vec_push(t->arena, &k->units, u);
    int kind = t->tokens.at[u->first].token.kind;
    k->settings &= kind == T_NAME || kind == T_STRING;
    k->settings &= u->align == ALIGN_SET || u->align == ALIGN_PATTERN ||
                   u->align == ALIGN_SECTION || t->tokens.at[u->first + 1].token.kind == T_STRING;
    for (int i = 0; i < u->blocks.n; i++) k->is_inline &= u->blocks.at[i]->is_inline;
  }
  k->close = b->at++;
  k->is_inline &= t->tokens.at[k->open].token.loc.line == t->tokens.at[k->close].token.loc.line;
  k->is_inline &= !has_comment(t, k->open, k->close);
  k->is_inline &= k->settings || k->units.n <= 1;
  return k;
}

static FmtUnit *build_unit(Builder *b, bool nested) {
  FmtTree *t = b->tree;
  FmtUnit *u = arena_new_of(t->arena, FmtUnit);
  const Mark *m = mark_at(b, b->at, false);
  u->first = b->at;
  if (m) u->align = m->align, u->key = m->key;
  while (b->at < t->tokens.n) {
    int kind = t->tokens.at[b->at].token.kind;
    if (kind == '}' && nested) break;
    if (b->at > u->first && mark_at(b, b->at, false)) break;
    if (kind == '{')
      vec_push(t->arena, &u->blocks, build_block(b));
    else
      b->at++;
  }
  u->last = b->at - 1;
  /* All blocks of a unit are laid out alike. */
  bool all = true;
  for (int i = 0; i < u->blocks.n; i++) all &= u->blocks.at[i]->is_inline;
  for (int i = 0; i < u->blocks.n; i++) u->blocks.at[i]->is_inline = all;
  return u;
}

FmtTree *fmt_tree(Arena *a, const File *f, const char *text) {
  FmtTree *t = arena_new_of(a, FmtTree);
  t->arena = a;
  read_tokens(t, text);
  place_comments(t, f);
  Builder b = {.tree = t};
  mark_items(&b, f);
  if (b.marks.n) qsort(b.marks.at, (size_t)b.marks.n, sizeof(Mark), by_place);
  for (int i = 0; i < t->tokens.n; i++) t->tokens.at[i].starts_type = mark_at(&b, i, true) != NULL;
  while (b.at < t->tokens.n) vec_push(a, &t->units, build_unit(&b, false));
  return t;
}
