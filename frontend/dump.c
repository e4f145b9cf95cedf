/* dump.c - the tree of a .mt file as text without places, for tests: two files mean the same when
 * their dumps are equal. Lisp-like, one item or member a line. */
#include <string.h>
#include "frontend/ast.h"

static void dump_expr(const Expr *e, Str *s);

static void dump_text(const char *text, Str *s) {
  str_add(s, "\"");
  for (const char *p = text ? text : ""; *p; p++) {
    if (*p == '"' || *p == '\\') str_add(s, "\\");
    if (*p == '\n')
      str_add(s, "\\n");
    else
      str_add_n(s, p, 1);
  }
  str_add(s, "\"");
}

static void dump_names(const NameList *names, Str *s) {
  str_add(s, "(");
  for (int i = 0; i < names->n; i++) {
    str_add(s, i ? " " : "");
    dump_text(names->at[i].text, s);
  }
  str_add(s, ")");
}

static void dump_type(const TypeExpr *t, Str *s) {
  if (!t) {
    str_add(s, " (any)");
    return;
  }
  str_addf(s, " (type %s", t->dtype < 0 ? "float" : dtype_name((DType)t->dtype));
  if (t->has_dims) str_add(s, " of");
  for (int i = 0; i < t->dims.n; i++) {
    str_add(s, " ");
    if (t->dims.at[i])
      dump_expr(t->dims.at[i], s);
    else
      str_add(s, "..");
  }
  str_add(s, ")");
}

static const char *op_text(int op) {
  static const char *const words[] = {"**", "==", "!=", "<=", ">=", "and", "or", "not"};
  static char one[2];
  if (op >= OPR_POW) return words[op - OPR_POW];
  one[0] = (char)op;
  return one;
}

static void dump_index(const Index *x, Str *s) {
  static const char *const marks[] = {NULL, ":", "*", ".."};
  if (x->kind == IX_RANGE) {
    str_add(s, " (range ");
    dump_expr(x->a, s);
    str_add(s, " ");
    dump_expr(x->b, s);
    str_add(s, ")");
  } else if (x->kind == IX_EXPR) {
    str_add(s, " ");
    dump_expr(x->a, s);
  } else {
    str_addf(s, " %s", marks[x->kind]);
  }
}

static void dump_expr(const Expr *e, Str *s) {
  static const char *const heads[] = {"name", "num",   "size",  "string", "bool",  "none",
                                      "auto", "dtype", "tuple", "list",   "unary", "binary",
                                      "as",   "cond",  "call",  "index",  "field"};
  str_addf(s, "(%s%s", e->parens ? "p:" : "", heads[e->kind]);
  if (e->kind == EX_UNARY || e->kind == EX_BINARY) str_addf(s, " %s", op_text(e->op));
  if (e->text) {
    str_add(s, " ");
    dump_text(e->text, s);
  }
  if (e->kind == EX_NUM || e->kind == EX_SIZE)
    str_addf(s, " %.17g%s", e->num, e->is_int ? " int" : "");
  const Expr *parts[] = {e->a, e->b, e->c};
  for (int i = 0; i < 3; i++) {
    if (!parts[i]) continue;
    str_add(s, " ");
    dump_expr(parts[i], s);
  }
  for (int i = 0; i < e->items.n; i++) {
    str_add(s, " ");
    dump_expr(e->items.at[i], s);
  }
  for (int i = 0; i < e->args.n; i++) {
    str_addf(s, " %s%s", e->args.at[i].name ? e->args.at[i].name : "",
             e->args.at[i].name ? "=" : "");
    dump_expr(e->args.at[i].value, s);
  }
  for (int i = 0; i < e->index.n; i++) dump_index(&e->index.at[i], s);
  if (e->kind == EX_AS) dump_type(e->type, s);
  str_add(s, ")");
}

static void dump_value(const Expr *e, Str *s) {
  if (!e) return;
  str_add(s, " ");
  dump_expr(e, s);
}

static void dump_stmts(const StmtList *list, Str *s) {
  static const char *const heads[] = {"set", "update", "for", "if", "return"};
  str_add(s, " {");
  for (int i = 0; i < list->n; i++) {
    const Stmt *t = list->at[i];
    str_addf(s, "\n    (%s ", heads[t->kind]);
    dump_names(&t->targets, s);
    dump_value(t->value, s);
    dump_value(t->to, s);
    for (int k = 0; k < t->results.n; k++) dump_value(t->results.at[k], s);
    if (t->kind == ST_FOR || t->kind == ST_IF) dump_stmts(&t->body, s);
    if (t->has_else) dump_stmts(&t->other, s);
    str_add(s, ")");
  }
  str_add(s, "}");
}

static void dump_fn(const Fn *f, Str *s) {
  str_addf(s, " %s (", f->name.text);
  for (int i = 0; i < f->args.n; i++) {
    str_addf(s, "(%s", f->args.at[i].name.text);
    dump_type(f->args.at[i].type, s);
    dump_value(f->args.at[i].value, s);
    str_add(s, ")");
  }
  str_add(s, ") ->");
  for (int i = 0; i < f->returns.n; i++) dump_type(f->returns.at[i], s);
  dump_stmts(&f->body, s);
}

static void dump_entries(const EntryList *list, Str *s) {
  static const char *const heads[] = {"set", "pattern", "section", "do"};
  str_add(s, " {");
  for (int i = 0; i < list->n; i++) {
    const Entry *e = list->at[i];
    str_addf(s, "\n    (%s %s %s ", heads[e->kind], e->key.text ? e->key.text : "-",
             e->name.text ? e->name.text : "-");
    dump_names(&e->patterns, s);
    dump_value(e->value, s);
    if (e->kind == EN_SECTION) dump_entries(&e->body, s);
    str_add(s, ")");
  }
  str_add(s, "}");
}

static void dump_members(const MemberList *list, Str *s) {
  static const char *const heads[] = {"param",   "state",  "layer", "let",
                                      "require", "preset", "if",    "fn"};
  str_add(s, " {");
  for (int i = 0; i < list->n; i++) {
    const Member *m = list->at[i];
    str_addf(s, "\n  (%s", heads[m->kind]);
    if (m->fn) {
      dump_fn(m->fn, s);
    } else {
      str_addf(s, " %s", m->name.text ? m->name.text : "-");
      if (m->type) dump_type(m->type, s);
      if (m->to) {
        str_addf(s, " [%s", m->index.text ? m->index.text : "-");
        dump_value(m->from, s);
        dump_value(m->to, s);
        str_add(s, "]");
      }
      dump_value(m->value, s);
      if (m->message) dump_text(m->message, s);
      if (m->kind == ME_PRESET) dump_entries(&m->entries, s);
      if (m->kind == ME_IF) dump_members(&m->body, s);
      if (m->has_else) dump_members(&m->other, s);
    }
    str_add(s, ")");
  }
  str_add(s, "}");
}

static void dump_item(const Item *it, Str *s) {
  static const char *const heads[] = {"use",   "let",    "fn",      "block",
                                      "model", "derive", "section", "bind"};
  str_addf(s, "(%s", heads[it->kind]);
  if (it->key.text) {
    str_add(s, " ");
    dump_text(it->key.text, s);
  }
  if (it->fn) {
    dump_fn(it->fn, s);
  } else {
    str_addf(s, " %s ", it->name_is_string ? "string" : "name");
    dump_text(it->name.text, s);
    if (it->kind == IT_USE) dump_names(&it->names, s);
    for (int i = 0; i < it->formals.n; i++) {
      str_addf(s, " (%s %s", it->formals.at[i].is_layer ? "layer" : "formal",
               it->formals.at[i].name.text);
      dump_value(it->formals.at[i].value, s);
      str_add(s, ")");
    }
    dump_value(it->value, s);
    if (it->kind == IT_BLOCK || it->kind == IT_MODEL) dump_members(&it->members, s);
    if (it->kind == IT_SECTION) dump_entries(&it->entries, s);
    for (int i = 0; i < it->wraps.n; i++) {
      str_add(s, "\n  (wrap ");
      dump_names(&it->wraps.at[i].patterns, s);
      dump_value(it->wraps.at[i].with, s);
      str_add(s, ")");
    }
  }
  str_add(s, ")\n");
}

void mt_dump(const File *f, Str *out) {
  str_addf(out, "(mt %d)\n", f->version);
  for (int i = 0; i < f->items.n; i++) dump_item(f->items.at[i], out);
}
