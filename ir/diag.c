/* diag.c - collects diagnostics and renders them, as text with carets or as JSON lines. See diag.h. */
#include "diag.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct {
  const char *code, *title, *page;
} errors[ERR_COUNT] = {
#define ERR(id, code, title, page) [id] = {code, title, page},
#include "errors.def"
#undef ERR
};

const char *err_code(ErrId id) { return errors[id].code; }
const char *err_title(ErrId id) { return errors[id].title; }
const char *err_page(ErrId id) { return errors[id].page; }

int err_by_code(const char *code) {
  for (int i = 0; i < ERR_COUNT; i++)
    if (!strcasecmp(errors[i].code, code)) return i;
  return -1;
}

Loc loc_span(Loc a, Loc b) {
  if (a.line == b.line && a.file == b.file && b.col + b.len > a.col + a.len)
    a.len = b.col + b.len - a.col;
  return a;
}

enum { DEFAULT_ERROR_LIMIT = 20 };

Diags *diags_new(Arena *a) {
  Diags *d = arena_new_of(a, Diags);
  d->arena = a;
  d->limit = DEFAULT_ERROR_LIMIT;
  return d;
}

int diag_add_source(Diags *d, const char *path, const char *text, size_t size) {
  vec_push(d->arena, &d->sources, ((Source){intern(path), text, size}));
  return d->sources.n - 1;
}

static bool same_place(Loc a, Loc b) {
  return a.file == b.file && a.line == b.line && a.col == b.col;
}

static Diag *add(Diags *d, ErrId id, Severity sev, Loc at, const char *fmt, va_list ap) {
  Diag *g = arena_new_of(d->arena, Diag);
  g->id = id;
  g->sev = sev;
  g->message = arena_vprintf(d->arena, fmt, ap);
  g->primary = (Label){at, ""};
  for (int i = 0; loc_ok(at) && i < d->all.n; i++) {
    Diag *old = d->all.at[i];
    if (old->id == id && same_place(old->primary.loc, at)) return g; /* said already */
  }
  vec_push(d->arena, &d->all, g);
  if (sev == SEV_ERROR) d->errors++;
  return g;
}

Diag *diag_error(Diags *d, ErrId id, Loc at, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  Diag *g = add(d, id, SEV_ERROR, at, fmt, ap);
  va_end(ap);
  return g;
}

Diag *diag_warn(Diags *d, ErrId id, Loc at, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  Diag *g = add(d, id, SEV_WARNING, at, fmt, ap);
  va_end(ap);
  return g;
}

#define PRINT_TO(dest)                             \
  do {                                             \
    va_list ap;                                    \
    va_start(ap, fmt);                             \
    (dest) = arena_vprintf(d->arena, fmt, ap);     \
    va_end(ap);                                    \
  } while (0)

void diag_primary_label(Diags *d, Diag *g, const char *fmt, ...) { PRINT_TO(g->primary.text); }

void diag_label(Diags *d, Diag *g, Loc at, const char *fmt, ...) {
  Label l = {.loc = at};
  PRINT_TO(l.text);
  if (loc_ok(at)) vec_push(d->arena, &g->labels, l);
}

void diag_note(Diags *d, Diag *g, const char *fmt, ...) {
  const char *text;
  PRINT_TO(text);
  vec_push(d->arena, &g->notes, text);
}

void diag_help(Diags *d, Diag *g, const char *fmt, ...) { PRINT_TO(g->help); }

bool diag_full(const Diags *d) { return d->errors >= d->limit; }

char *loc_text(const Diags *d, Arena *a, Loc at) {
  if (!loc_ok(at) || at.file < 0 || at.file >= d->sources.n) return arena_printf(a, "%s", "");
  return arena_printf(a, "%s:%d:%d", d->sources.at[at.file].path, at.line, at.col);
}

/* ---- text ---- */
#define RED    "\033[1;31m"
#define YELLOW "\033[1;33m"
#define BLUE   "\033[1;34m"
#define BOLD   "\033[1m"
#define OFF    "\033[0m"

typedef struct {
  FILE *to;
  bool colour;
  int gutter; /* width of line numbers */
} Pen;

static const char *ink(const Pen *p, const char *code) { return p->colour ? code : ""; }

/* The text of a line, without its newline. */
static const char *line_text(const Source *s, int line, int *len) {
  const char *p = s->text, *end = s->text + s->size;
  for (int i = 1; i < line && p < end; i++) {
    const char *nl = memchr(p, '\n', (size_t)(end - p));
    p = nl ? nl + 1 : end;
  }
  const char *nl = memchr(p, '\n', (size_t)(end - p));
  const char *stop = nl ? nl : end;
  if (stop > p && stop[-1] == '\r') stop--;
  *len = (int)(stop - p);
  return p;
}

static bool continuation(char c) { return ((unsigned char)c & 0xC0) == 0x80; }

/* Screen column (from 0) of byte column `col` (from 1); a tab is printed as one space. */
static int screen_col(const char *line, int len, int col) {
  int x = 0;
  for (int i = 0; i < col - 1; i++)
    if (i >= len || !continuation(line[i])) x++;
  return x;
}

typedef struct {
  const Label *label;
  bool primary;
  int x, width; /* screen columns */
} Mark;

static int by_column(const void *a, const void *b) {
  const Mark *m = a, *n = b;
  return m->x != n->x ? m->x - n->x : (int)n->primary - (int)m->primary;
}

static void margin(const Pen *p, const char *sep) {
  fprintf(p->to, "%s%*s %s%s", ink(p, BLUE), p->gutter, "", sep, ink(p, OFF));
}

/* Writes `row` (one style letter per column in `style`: p primary, s secondary, ' ' none) and a newline. */
static void put_row(const Pen *p, const char *row, const char *style, int n, const char *primary) {
  while (n > 0 && row[n - 1] == ' ') n--;
  char now = ' ';
  for (int i = 0; i < n; i++) {
    if (style[i] != now && p->colour) {
      fputs(OFF, p->to);
      if (style[i] != ' ') fputs(style[i] == 'p' ? primary : BLUE, p->to);
    }
    now = style[i];
    fputc(row[i], p->to);
  }
  if (now != ' ' && p->colour) fputs(OFF, p->to);
}

static void put_label(const Pen *p, const Mark *m, const char *primary) {
  fprintf(p->to, "%s%s%s", ink(p, m->primary ? primary : BLUE), m->label->text, ink(p, OFF));
}

/* The source line, the row of carets, and one row per label that hangs below it. */
static void put_line(const Pen *p, const Diags *d, Arena *a, int file, int line, Mark *marks, int n,
                     const char *primary) {
  int len;
  const char *text = line_text(&d->sources.at[file], line, &len);
  fprintf(p->to, "%s%*d |%s ", ink(p, BLUE), p->gutter, line, ink(p, OFF));
  for (int i = 0; i < len; i++)
    fputc(text[i] == '\t' || (unsigned char)text[i] < ' ' ? ' ' : text[i], p->to);
  fputc('\n', p->to);

  int width = 0;
  for (int i = 0; i < n; i++) {
    Loc at = marks[i].label->loc;
    marks[i].x = screen_col(text, len, at.col);
    int end = screen_col(text, len, at.col + (at.len > 0 ? at.len : 1));
    marks[i].width = end > marks[i].x ? end - marks[i].x : 1;
    if (marks[i].x + marks[i].width > width) width = marks[i].x + marks[i].width;
  }
  qsort(marks, (size_t)n, sizeof *marks, by_column);
  char *row = arena_alloc(a, (size_t)width + 1), *style = arena_alloc(a, (size_t)width + 1);
  memset(row, ' ', (size_t)width);
  memset(style, ' ', (size_t)width);
  for (int pass = 0; pass < 2; pass++) /* primary over secondary */
    for (int i = 0; i < n; i++)
      if (marks[i].primary == (pass == 1)) {
        memset(row + marks[i].x, marks[i].primary ? '^' : '-', (size_t)marks[i].width);
        memset(style + marks[i].x, marks[i].primary ? 'p' : 's', (size_t)marks[i].width);
      }
  margin(p, "| ");
  put_row(p, row, style, width, primary);
  int open = n; /* marks[0..open) still owe their label */
  if (n && *marks[n - 1].label->text &&
      marks[n - 1].x + marks[n - 1].width == width) { /* the rightmost fits beside its caret */
    fputc(' ', p->to);
    put_label(p, &marks[n - 1], primary);
    open = n - 1;
  }
  fputc('\n', p->to);
  int owed = 0;
  for (int i = 0; i < open; i++)
    if (*marks[i].label->text) marks[owed++] = marks[i];
  for (int k = owed - 1, first = 1; k >= 0; k--, first = 0) {
    for (int bars = first; bars >= 0; bars--) { /* a row of bars before the first label */
      memset(row, ' ', (size_t)width);
      memset(style, ' ', (size_t)width);
      for (int i = 0; i <= k; i++)
        row[marks[i].x] = '|', style[marks[i].x] = marks[i].primary ? 'p' : 's';
      margin(p, "| ");
      if (bars) {
        put_row(p, row, style, width, primary);
      } else {
        int x = marks[k].x;
        for (int i = 0; i < x; i++) {
          bool bar = row[i] == '|';
          fprintf(p->to, "%s%c%s", bar ? ink(p, style[i] == 'p' ? primary : BLUE) : "", row[i],
                  bar ? ink(p, OFF) : "");
        }
        put_label(p, &marks[k], primary);
      }
      fputc('\n', p->to);
    }
  }
}

static int by_place(const void *a, const void *b) {
  const Mark *m = a, *n = b;
  Loc p = m->label->loc, q = n->label->loc;
  return p.line != q.line ? p.line - q.line : p.col - q.col;
}

/* Marks of one file, the lines in order. */
static void put_file(const Pen *p, const Diags *d, Arena *a, int file, Mark *marks, int n,
                     const char *primary) {
  qsort(marks, (size_t)n, sizeof *marks, by_place);
  for (int i = 0; i < n;) {
    int j = i;
    while (j < n && marks[j].label->loc.line == marks[i].label->loc.line) j++;
    put_line(p, d, a, file, marks[i].label->loc.line, marks + i, j - i, primary);
    i = j;
  }
}

static bool shown(const Diags *d, Loc at) {
  return loc_ok(at) && at.file >= 0 && at.file < d->sources.n;
}

static void put_snippets(const Pen *p, const Diags *d, Arena *a, const Diag *g,
                         const char *primary) {
  int n = g->labels.n + 1;
  Mark *all = arena_array(a, Mark, n), *some = arena_array(a, Mark, n);
  all[0] = (Mark){.label = &g->primary, .primary = true};
  for (int i = 0; i < g->labels.n; i++) all[i + 1] = (Mark){.label = &g->labels.at[i]};
  int files = d->sources.n, first = g->primary.loc.file;
  for (int f = 0; f < files; f++) {
    int file = f == 0 ? first : f <= first ? f - 1 : f; /* the primary's file first */
    int m = 0;
    for (int i = 0; i < n; i++)
      if (shown(d, all[i].label->loc) && all[i].label->loc.file == file) some[m++] = all[i];
    if (!m) continue;
    Loc at = file == first ? g->primary.loc : some[0].label->loc;
    fprintf(p->to, "%s%*s%s%s %s\n", ink(p, BLUE), p->gutter, "", file == first ? "-->" : ":::",
            ink(p, OFF), loc_text(d, a, at));
    margin(p, "|");
    fputc('\n', p->to);
    put_file(p, d, a, file, some, m, primary);
  }
  margin(p, "|");
  fputc('\n', p->to);
}

static void put_note(const Pen *p, const char *kind, const char *text) {
  margin(p, "= ");
  if (*kind) fprintf(p->to, "%s%s:%s ", ink(p, BOLD), kind, ink(p, OFF));
  for (; *text; text++) {
    fputc(*text, p->to);
    if (*text == '\n') fprintf(p->to, "%*s   ", p->gutter, "");
  }
  fputc('\n', p->to);
}

void diag_render(const Diags *d, FILE *to, bool colour) {
  Arena *a = arena_new();
  for (int i = 0; i < d->all.n; i++) {
    const Diag *g = d->all.at[i];
    Pen p = {to, colour, 1};
    int last = g->primary.loc.line;
    for (int k = 0; k < g->labels.n; k++)
      if (g->labels.at[k].loc.line > last) last = g->labels.at[k].loc.line;
    for (; last >= 10; last /= 10) p.gutter++;
    const char *hue = g->sev == SEV_ERROR ? RED : YELLOW;
    if (i) fputc('\n', to);
    fprintf(to, "%s%s[%s]%s: %s%s%s\n", ink(&p, hue), g->sev == SEV_ERROR ? "error" : "warning",
            err_code(g->id), ink(&p, OFF), ink(&p, BOLD), g->message, ink(&p, OFF));
    if (shown(d, g->primary.loc)) put_snippets(&p, d, a, g, hue);
    for (int k = 0; k < g->notes.n; k++) put_note(&p, "", g->notes.at[k]);
    if (g->help) put_note(&p, "help", g->help);
  }
  arena_free(a);
}

/* ---- JSON lines ---- */
static void put_json_string(FILE *to, const char *s) {
  fputc('"', to);
  for (; *s; s++) {
    unsigned char c = (unsigned char)*s;
    if (c == '"' || c == '\\')
      fprintf(to, "\\%c", c);
    else if (c == '\n')
      fputs("\\n", to);
    else if (c < ' ')
      fprintf(to, "\\u%04x", c);
    else
      fputc(c, to);
  }
  fputc('"', to);
}

static void put_json_place(FILE *to, const Diags *d, const Label *l) {
  if (shown(d, l->loc)) {
    fputs("\"file\":", to);
    put_json_string(to, d->sources.at[l->loc.file].path);
    fprintf(to, ",\"line\":%d,\"column\":%d,\"length\":%d,", l->loc.line, l->loc.col, l->loc.len);
  }
  fputs("\"label\":", to);
  put_json_string(to, l->text);
}

void diag_render_json(const Diags *d, FILE *to) {
  for (int i = 0; i < d->all.n; i++) {
    const Diag *g = d->all.at[i];
    fprintf(to, "{\"code\":\"%s\",\"severity\":\"%s\",\"message\":", err_code(g->id),
            g->sev == SEV_ERROR ? "error" : "warning");
    put_json_string(to, g->message);
    fputc(',', to);
    put_json_place(to, d, &g->primary);
    fputs(",\"labels\":[", to);
    for (int k = 0; k < g->labels.n; k++) {
      fputs(k ? ",{" : "{", to);
      put_json_place(to, d, &g->labels.at[k]);
      fputc('}', to);
    }
    fputs("],\"notes\":[", to);
    for (int k = 0; k < g->notes.n; k++) {
      if (k) fputc(',', to);
      put_json_string(to, g->notes.at[k]);
    }
    fputc(']', to);
    if (g->help) {
      fputs(",\"help\":", to);
      put_json_string(to, g->help);
    }
    fputs("}\n", to);
  }
}
