/* fmt.c - the canonical layout of .mt.
 *
 * In: a file that parsed without errors, and its text. Out: the same tokens and comments, two
 * spaces a level, at most 100 columns where the tokens allow it. What the writer decides is kept:
 * which settings share a line, single blank lines, comments. Everything else is decided here, from
 * the tokens alone, so that formatting twice changes nothing: spaces, breaks inside a unit (at the
 * outermost bracket's commas first), and columns that line up in neighbouring layers, parameters
 * and settings. */
#include "frontend/fmt.h"
#include <string.h>
#include "mt.tab.h"

enum { WIDTH = 100, INDENT = 2, HANG = 4, FAR = 60 /* brackets beyond it do not set the indent */ };

typedef struct {
  const char *text; /* without the comment; "" for a blank line */
  int width, indent;
  const char *comment; /* behind it, or NULL */
} Line;

typedef struct {
  FmtTree *tree;
  Arena *arena;
  Str line;      /* being written */
  int indent;    /* of it */
  VEC(int) hang; /* column behind each open bracket */
  const char *comment;
  VEC(Line) lines;
} Layout;

/* ---- widths and spaces ---- */

static int kind_of(const Layout *l, int i) {
  return l->tree->tokens.at[i].token.kind;
}
static const FmtToken *token(const Layout *l, int i) {
  return &l->tree->tokens.at[i];
}

static int characters(const char *text, int len) {
  int n = 0;
  for (int i = 0; i < len; i++) n += ((unsigned char)text[i] & 0xc0) != 0x80;
  return n;
}

/* Spaces between a token and the one before it, within a unit. */
static int space(const Layout *l, int i) {
  int now = kind_of(l, i), last = kind_of(l, i - 1);
  if (now == ',' || now == ')' || now == ']' || now == '.' || last == '.') return 0;
  if (last == '(' || last == '[' || token(l, i - 1)->unary) return 0;
  if (token(l, i)->slice || token(l, i - 1)->slice) return last == ',';
  if (now == T_DOTS) return last == ',';
  if (last == T_DOTS) return now == '{';
  if (token(l, i)->starts_type) return 1;
  if (now == '[' && last == T_DTYPE) return 0;
  if (now == '(' || now == '[') return !(last == T_NAME || last == ')' || last == ']');
  return 1;
}

static int width_of(const Layout *l, int i, bool first) {
  return characters(token(l, i)->text, token(l, i)->len) + (first ? 0 : space(l, i));
}

static int inline_block_width(const Layout *l, const FmtBlock *b);

/* Width of tokens first..last on one line, with blocks that may stand on it. */
static int flat_width(const Layout *l, const FmtUnit *u, int first, int last) {
  int width = 0, block = 0;
  while (block < u->blocks.n && u->blocks.at[block]->open < first) block++;
  for (int i = first; i <= last; i++) {
    if (block < u->blocks.n && u->blocks.at[block]->open == i) {
      width += (i > first) + inline_block_width(l, u->blocks.at[block]);
      i = u->blocks.at[block++]->close;
    } else {
      width += width_of(l, i, i == first);
    }
  }
  return width;
}

static int inline_block_width(const Layout *l, const FmtBlock *b) {
  if (b->units.n == 0) return 2;
  int width = 4;
  for (int i = 0; i < b->units.n; i++)
    width +=
        flat_width(l, b->units.at[i], b->units.at[i]->first, b->units.at[i]->last) + 2 * (i > 0);
  return width;
}

/* ---- lines ---- */

static void end_line(Layout *l) {
  const char *text = l->line.text && l->line.len ? l->line.text : "";
  Line line = {text, characters(text, (int)strlen(text)), l->indent, l->comment};
  vec_push(l->arena, &l->lines, line);
  l->line = (Str){.arena = l->arena};
  l->comment = NULL;
}

static void begin_line(Layout *l, int indent) {
  l->indent = indent;
  str_addf(&l->line, "%*s", indent, "");
}

static int column(const Layout *l) {
  return l->line.len ? characters(l->line.text, (int)l->line.len) : 0;
}

static void blank_line(Layout *l) {
  if (l->lines.n > 0 && vec_last(&l->lines).text[0]) end_line(l);
}

static const char *comment_text(Layout *l, int c) {
  const char *text = l->tree->comments.at[c].text;
  bool tight = text[0] == ' ' || text[0] == '#' || text[0] == '!' || !text[0];
  return arena_printf(l->arena, tight ? "#%s" : "# %s", text);
}

static int line_before(const FmtTree *t, int token) {
  if (token == 0) return 0;
  return t->tokens.at[token - 1].token.loc.line;
}

/* Comments on lines of their own; `last` is the line in the source that ends before them. Returns
 * the line of the last comment. Blank lines between them are kept, and before the first when
 * `lead_blank`. */
static int own_comments(Layout *l, int from, int to, int indent, int last, bool lead_blank) {
  for (int c = from; c < to; c++) {
    int line = l->tree->comments.at[c].loc.line;
    if (line > last + 1 && (c > from || lead_blank)) blank_line(l);
    begin_line(l, indent);
    str_add(&l->line, comment_text(l, c));
    end_line(l);
    last = line;
  }
  return last;
}

/* ---- one unit ---- */

static void put_token(Layout *l, const FmtUnit *u, int i, bool first) {
  const FmtToken *k = token(l, i);
  for (int p = 0; p < 2; p++)
    if (u->pad[p] > 0 && u->pad_at[p] == i) str_addf(&l->line, "%*s", u->pad[p], "");
  if (!first && space(l, i)) str_add(&l->line, " ");
  str_add_n(&l->line, k->text, (size_t)k->len);
  int kind = k->token.kind;
  if (kind == '(' || kind == '[') vec_push(l->arena, &l->hang, column(l));
  if ((kind == ')' || kind == ']') && l->hang.n > 0) l->hang.n--;
}

/* Where a line that is broken here goes on. */
static int hang_column(const Layout *l, int indent) {
  if (l->hang.n == 0 || vec_last(&l->hang) > FAR) return indent + HANG;
  return vec_last(&l->hang);
}

/* The token before which the line that starts at `from` should end: to + 1 when all fits. `extra`
 * columns follow the last token. Outer brackets break first, commas before operators, the rightmost
 * of equals. */
static int line_end(const Layout *l, const FmtUnit *u, int from, int to, int extra) {
  int width = column(l), depth = l->hang.n, best = -1, best_key = 0;
  bool over = false;
  for (int i = from; i <= to; i++) {
    const FmtToken *k = token(l, i);
    if (i > from && (k->lead < k->lead_end || token(l, i - 1)->trail >= 0)) return i;
    bool comma = i > from && kind_of(l, i - 1) == ',';
    if (i > from && (comma || k->binary) && (!over || best < 0)) {
      int key = 2 * depth + !comma;
      if (best < 0 || key <= best_key) best = i, best_key = key;
    }
    if (over && best > 0) return best;
    for (int p = 0; p < 2; p++)
      if (u->pad_at[p] == i) width += u->pad[p];
    width += width_of(l, i, i == from);
    int kind = k->token.kind;
    if (kind == '(' || kind == '[') depth++;
    if ((kind == ')' || kind == ']') && depth > 0) depth--;
    over |= width + (i == to ? extra : 0) > WIDTH;
    if (over && best > 0) return best;
  }
  return to + 1;
}

/* Tokens from..to, broken into lines where they do not fit. */
static void put_run(Layout *l, const FmtUnit *u, int from, int to, int indent, int extra,
                    bool first) {
  while (from <= to) {
    const FmtToken *k = token(l, from);
    bool comments = from > u->first && k->lead < k->lead_end;
    if (comments || (from > u->first && token(l, from - 1)->trail >= 0)) {
      int hang = kind_of(l, from - 1) == '}' ? indent : hang_column(l, indent);
      if (l->line.len) end_line(l);
      own_comments(l, k->lead, k->lead_end, hang, k->token.loc.line, false);
      begin_line(l, hang);
      first = true;
    }
    int end = line_end(l, u, from, to, extra);
    for (int i = from; i < end; i++) put_token(l, u, i, first && i == from);
    if (token(l, end - 1)->trail >= 0) l->comment = comment_text(l, token(l, end - 1)->trail);
    if (end <= to && !l->comment && token(l, end)->lead == token(l, end)->lead_end) {
      int hang = hang_column(l, indent);
      end_line(l);
      begin_line(l, hang);
      first = true;
    } else {
      first = false;
    }
    from = end;
  }
}

static void put_inline_block(Layout *l, const FmtBlock *b) {
  static const FmtUnit no_pads = {0};
  if (b->units.n == 0) {
    str_add(&l->line, "{}");
    return;
  }
  str_add(&l->line, "{ ");
  for (int i = 0; i < b->units.n; i++) {
    const FmtUnit *u = b->units.at[i];
    if (i > 0) str_add(&l->line, "  ");
    for (int t = u->first, block = 0; t <= u->last; t++) {
      if (block < u->blocks.n && u->blocks.at[block]->open == t) {
        str_add(&l->line, " ");
        put_inline_block(l, u->blocks.at[block]);
        t = u->blocks.at[block++]->close;
      } else {
        put_token(l, &no_pads, t, t == u->first);
      }
    }
  }
  str_add(&l->line, " }");
}

static void put_units(Layout *l, FmtUnits *units, int indent, bool top);

static void put_block(Layout *l, FmtBlock *b, int indent) {
  const FmtTree *t = l->tree;
  str_add(&l->line, "{");
  if (token(l, b->open)->trail >= 0) l->comment = comment_text(l, token(l, b->open)->trail);
  end_line(l);
  put_units(l, &b->units, indent + INDENT, false);
  const FmtToken *close = token(l, b->close);
  own_comments(l, close->lead, close->lead_end, indent + INDENT, line_before(t, b->close),
               b->units.n > 0);
  begin_line(l, indent);
  str_add(&l->line, "}");
}

/* All blocks of the unit may stand on its line, and then it fits. */
static bool fits_inline(const Layout *l, const FmtUnit *u, int indent) {
  for (int i = 0; i < u->blocks.n; i++)
    if (!u->blocks.at[i]->is_inline) return false;
  return indent + flat_width(l, u, u->first, u->last) <= WIDTH;
}

static bool is_empty(const Layout *l, const FmtBlock *b) {
  const FmtToken *close = token(l, b->close);
  return b->units.n == 0 && token(l, b->open)->trail < 0 && close->lead == close->lead_end;
}

static void put_unit(Layout *l, FmtUnit *u, int indent) {
  bool flat = fits_inline(l, u, indent);
  begin_line(l, indent);
  l->hang.n = 0;
  int from = u->first;
  for (int i = 0; i < u->blocks.n; i++) {
    FmtBlock *b = u->blocks.at[i];
    bool same_line = flat || is_empty(l, b);
    int extra = !same_line ? 2 : 1 + inline_block_width(l, b);
    put_run(l, u, from, b->open - 1, indent, extra, from == u->first);
    for (int p = 0; p < 2; p++)
      if (u->pad[p] > 0 && u->pad_at[p] == b->open) str_addf(&l->line, "%*s", u->pad[p], "");
    if (token(l, b->open)->lead < token(l, b->open)->lead_end || l->comment) {
      end_line(l);
      own_comments(l, token(l, b->open)->lead, token(l, b->open)->lead_end, indent + HANG, 0,
                   false);
      begin_line(l, indent);
    } else if (b->open > u->first) {
      str_add(&l->line, " ");
    }
    if (same_line)
      put_inline_block(l, b);
    else
      put_block(l, b, indent);
    if (token(l, b->close)->trail >= 0) l->comment = comment_text(l, token(l, b->close)->trail);
    from = b->close + 1;
  }
  put_run(l, u, from, u->last, indent, 0, from == u->first);
  end_line(l);
}

/* ---- columns that line up ---- */

static int depth_zero_token(const Layout *l, const FmtUnit *u, int kind) {
  int depth = 0;
  for (int i = u->first; i <= u->last; i++) {
    int k = kind_of(l, i);
    if (k == kind && depth == 0) return i;
    if (k == '(' || k == '[' || k == '{') depth++;
    if (k == ')' || k == ']' || k == '}') depth--;
  }
  return -1;
}

/* The token whose column lines up (which = 0, 1), or -1. */
static int align_token(const Layout *l, const FmtUnit *u, int which) {
  switch (u->align) {
    case ALIGN_LAYER:
    case ALIGN_ARRAY:
    case ALIGN_SET:
    case ALIGN_PATTERN:
      return which == 0 ? depth_zero_token(l, u, '=') : -1;
    case ALIGN_PARAM:
    case ALIGN_STATE:
      return which == 0 ? u->first + 2 : depth_zero_token(l, u, '=');
    case ALIGN_UPDATE:
      return which == 0 ? u->first + 1 : -1;
    case ALIGN_SECTION:
    case ALIGN_PRESET:
      return which == 0 && u->blocks.n ? u->blocks.at[0]->open : -1;
    default:
      return -1;
  }
}

static void align_run(Layout *l, FmtUnit **run, int n) {
  for (int which = 0; which < 2; which++) {
    int widest = 0;
    for (int pass = 0; pass < 2; pass++) {
      for (int i = 0; i < n; i++) {
        int at = align_token(l, run[i], which);
        if (at < 0) continue;
        int from = which == 0 ? run[i]->first : run[i]->pad_at[0];
        int width = flat_width(l, run[i], from, at - 1);
        if (pass == 0 && width > widest) widest = width;
        if (pass == 1) run[i]->pad_at[which] = at, run[i]->pad[which] = widest - width;
      }
    }
  }
}

static bool blank_before(const Layout *l, const FmtUnit *u) {
  const FmtToken *k = token(l, u->first);
  int line = k->lead < k->lead_end ? l->tree->comments.at[k->lead].loc.line : k->token.loc.line;
  return u->first > 0 && line > line_before(l->tree, u->first) + 1;
}

/* Runs of one kind of unit without blank lines, comments or blocks of several lines between them;
 * settings may have sections of one line between them. */
static void align_units(Layout *l, FmtUnits *units, int indent) {
  for (int kind = ALIGN_NONE + 1; kind < ALIGN_KINDS; kind++) {
    VEC(FmtUnit *) run = {0};
    for (int i = 0; i < units->n; i++) {
      FmtUnit *u = units->at[i];
      bool apart = blank_before(l, u) || token(l, u->first)->lead < token(l, u->first)->lead_end;
      bool tall = u->blocks.n > 0 && !fits_inline(l, u, indent);
      bool member = u->align == (AlignKind)kind && !tall;
      bool other_key = member && run.n > 0 && vec_last(&run)->key != u->key;
      if (apart || tall || other_key || (!member && kind != ALIGN_SET)) {
        align_run(l, run.at, run.n);
        run.n = 0;
      }
      if (member) vec_push(l->arena, &run, u);
    }
    align_run(l, run.at, run.n);
  }
}

/* ---- all units ---- */

static void put_units(Layout *l, FmtUnits *units, int indent, bool top) {
  if (!top) align_units(l, units, indent);
  bool tall = false;
  for (int i = 0; i < units->n; i++) {
    FmtUnit *u = units->at[i];
    const FmtToken *k = token(l, u->first);
    bool now_tall = u->blocks.n > 0 && !fits_inline(l, u, indent);
    bool stands_off = k->lead < k->lead_end &&
                      l->tree->comments.at[k->lead_end - 1].loc.line + 1 < k->token.loc.line;
    bool apart = top && (tall || (now_tall && !stands_off));
    if (i > 0 && (blank_before(l, u) || apart)) blank_line(l);
    int last = own_comments(l, k->lead, k->lead_end, indent, line_before(l->tree, u->first), false);
    if (k->lead < k->lead_end && k->token.loc.line > last + 1) blank_line(l);
    put_unit(l, u, indent);
    tall = now_tall;
  }
}

/* Comments behind neighbouring lines of one indent start in one column. */
static void print_lines(Layout *l, Str *out) {
  for (int i = 0; i < l->lines.n;) {
    int end = i, column = 0;
    for (; end < l->lines.n; end++) {
      const Line *line = &l->lines.at[end];
      if (!line->text[0] || line->indent != l->lines.at[i].indent) break;
      if (line->comment && line->width > column) column = line->width;
    }
    for (end += end == i; i < end; i++) {
      const Line *line = &l->lines.at[i];
      str_add(out, line->text);
      if (line->comment) str_addf(out, "%*s%s", column - line->width + 2, "", line->comment);
      str_add(out, "\n");
    }
  }
}

void mt_format(const File *f, const char *text, Str *out) {
  Arena *a = arena_new();
  Layout l = {.tree = fmt_tree(a, f, text), .arena = a, .line = {.arena = a}};
  put_units(&l, &l.tree->units, 0, true);
  FmtTree *t = l.tree;
  own_comments(&l, t->tail, t->comments.n, 0, t->tokens.n ? vec_last(&t->tokens).token.loc.line : 0,
               t->tokens.n > 0);
  str_add(out, "");
  print_lines(&l, out);
  arena_free(a);
}
