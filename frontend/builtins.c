/* builtins.c - the table of builtins.def made usable: signatures are parsed once, calls are matched
 * with them and arguments checked against their kinds before an operation runs. */
#include "builtins.h"
#include <stdlib.h>
#include <string.h>

static Builtin table[] = {
#define BUILTIN(name, signature, kinds, where, run, doc)                                \
  {#name, signature, kinds, doc, BUILTIN_##where, BUILTIN_##where == BUILTIN_INIT, run, \
   0,     {0},       {{0}}, {0}},
#include "builtins.def"
};

/* A default as written in the table: a number, text, true, false or none. */
static Val preset_value(const char *s, size_t n) {
  const char *text = intern_n(s, n);
  if (!strcmp(text, "none")) return VAL_NONE;
  if (!strcmp(text, "true")) return val_bool(true);
  if (!strcmp(text, "false")) return val_bool(false);
  if (*text == '"') return val_str(intern_n(text + 1, n - 2));
  bool whole = !strpbrk(text, ".e");
  return whole ? val_int(strtoll(text, NULL, 10), NULL) : val_num(strtod(text, NULL));
}

static void parse_signature(Builtin *b) {
  b->name = intern(b->name);
  for (const char *p = b->signature; *p;) {
    const char *end = strchr(p, ',');
    if (!end) end = p + strlen(p);
    const char *eq = memchr(p, '=', (size_t)(end - p)), *stop = eq ? eq : end;
    while (stop > p && stop[-1] == ' ') stop--;
    ensure(b->n < BUILTIN_ARGS, "too many arguments in the row of `%s`", b->name);
    b->arg[b->n] = intern_n(p, (size_t)(stop - p));
    b->required[b->n] = !eq;
    if (eq) b->preset[b->n] = preset_value(eq + 2, (size_t)(end - eq - 2));
    b->n++;
    p = *end ? end + 2 : end;
  }
  ensure((int)strlen(b->kinds) == b->n, "kinds of `%s` do not fit its signature", b->name);
}

static void prepare(void) {
  static bool done;
  if (done) return;
  done = true;
  for (int i = 0; i < COUNT_OF(table); i++) parse_signature(&table[i]);
}

int builtin_count(void) {
  return COUNT_OF(table);
}

const Builtin *builtin_at(int i) {
  prepare();
  return &table[i];
}

const Builtin *builtin_find(const char *interned) {
  prepare();
  for (int i = 0; i < COUNT_OF(table); i++)
    if (table[i].name == interned) return &table[i];
  return NULL;
}

/* ---- arguments ---- */

static const char *kind_text(char kind) {
  switch (kind) {
    case 'f':
      return "a float tensor";
    case 'i':
      return "an i32 tensor";
    case 't':
      return "a tensor";
    case 'o':
      return "a tensor or `none`";
    case 'v':
      return "a tensor or a number";
    case 'V':
      return "a tensor, a number or `none`";
    case 'n':
      return "a number";
    case 'N':
      return "a number or `none`";
    case 'd':
      return "a whole number";
    case 'D':
      return "a whole number or `none`";
    case 'b':
      return "`true` or `false`";
    case 's':
      return "a text";
    default:
      return "an axis or a tuple of axes";
  }
}

static bool is_axes(const Val *v) {
  if (v->kind == V_NONE || v->kind == V_INT) return true;
  for (int i = 0; v->kind == V_TUPLE && i < v->n; i++)
    if (v->items[i].kind != V_INT) return false;
  return v->kind == V_TUPLE;
}

static bool kind_fits(const Elab *e, char kind, const Val *v) {
  bool tensor = v->kind == V_TENSOR;
  switch (kind) {
    case 'f':
      return tensor && dtype_is_float(tval(e, v)->dtype);
    case 'i':
      return tensor && tval(e, v)->dtype == DT_I32;
    case 't':
      return tensor;
    case 'o':
      return tensor || v->kind == V_NONE;
    case 'v':
      return tensor || val_is_number(v);
    case 'V':
      return tensor || val_is_number(v) || v->kind == V_NONE;
    case 'n':
      return val_is_number(v);
    case 'N':
      return val_is_number(v) || v->kind == V_NONE;
    case 'd':
      return v->kind == V_INT;
    case 'D':
      return v->kind == V_INT || v->kind == V_NONE;
    case 'b':
      return v->kind == V_BOOL;
    case 's':
      return v->kind == V_STR;
    case 'a':
      return is_axes(v);
    default:
      return true;
  }
}

static const char *signature_text(Elab *e, const Builtin *op) {
  return arena_printf(elab_arena(e), "%s(%s)", op->name, op->signature);
}

static bool check_kinds(Elab *e, const BuiltinCall *c) {
  const Builtin *op = c->op;
  for (int i = 0; i < op->n; i++) {
    const Val *v = &c->arg[i];
    if (v->kind == V_ERR) return false;
    if (!c->expr[i] || kind_fits(e, op->kinds[i], v)) continue;
    bool must_be_static = v->kind == V_TENSOR && strchr("nNdDbsa", op->kinds[i]);
    Diag *d = elab_error(e, must_be_static ? E_STATIC : E_TYPE, c->expr[i]->loc,
                         "argument `%s` of `%s` takes %s%s, not %s", op->arg[i], op->name,
                         kind_text(op->kinds[i]), must_be_static ? " known at compile time" : "",
                         say_val(e, v));
    if (v->kind == V_TENSOR && op->kinds[i] == 'f') diag_help(e->d, d, "`x as f32` converts");
    diag_note(e->d, d, "%s", signature_text(e, op));
    return false;
  }
  return true;
}

static bool bind_args(Elab *e, const Scope *s, BuiltinCall *c) {
  const Builtin *op = c->op;
  int slot[BUILTIN_ARGS];
  Callee callee = {.what = "",
                   .decl = NO_LOC,
                   .n = op->n,
                   .names = op->arg,
                   .required = op->required,
                   .unknown = E_ARGUMENT};
  callee.what = arena_printf(elab_arena(e), "`%s`", op->name);
  callee.signature = signature_text(e, op);
  if (!match_args(e, c->x, &callee, slot)) return false;
  for (int i = 0; i < op->n; i++) {
    c->expr[i] = slot[i] >= 0 ? c->x->args.at[slot[i]].value : NULL;
    c->arg[i] = c->expr[i] ? eval(e, s, c->expr[i]) : op->preset[i];
  }
  return check_kinds(e, c);
}

Val builtin_call(Elab *e, const Scope *s, const Expr *x, const Builtin *op) {
  BuiltinCall c = {.op = op, .x = x};
  if (op->where == BUILTIN_GRAPH && !e->b) {
    elab_error(e, E_STATIC, caret(x), "`%s` makes a tensor: it is not known at compile time",
               op->name);
    return VAL_ERR;
  }
  if (x->kind == EX_CALL && !bind_args(e, s, &c)) return VAL_ERR;
  for (int i = 0; x->kind != EX_CALL && i < op->n; i++) {
    if (op->required[i]) {
      elab_error(e, E_ARGUMENT, x->loc, "`%s` needs its arguments: %s", op->name,
                 signature_text(e, op));
      return VAL_ERR;
    }
    c.arg[i] = op->preset[i];
  }
  int before = e->d->errors, said = e->d->all.n;
  if (e->b) e->b->g->here.loc = caret(x);
  Val v = op->run(e, &c);
  if (e->d->errors >
      before) { /* a message of the graph library does not know where in the model it is */
    Diag *d = e->d->all.at[said];
    if (!d->notes.n || !str_starts(d->notes.at[0], "in ")) say_where(e, d);
    return VAL_ERR;
  }
  return v;
}

Diag *builtin_error(Elab *e, const BuiltinCall *c, ErrId id, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  const char *text = arena_vprintf(e->arena, fmt, ap);
  va_end(ap);
  Diag *d = elab_error(e, id, caret(c->x), "%s", text);
  for (int i = 0; i < c->op->n; i++)
    if (c->expr[i] && c->arg[i].kind == V_TENSOR)
      diag_label(e->d, d, c->expr[i]->loc, "%s", say_shape(e, &c->arg[i]));
  return d;
}

bool builtin_axis(Elab *e, const BuiltinCall *c, int64_t given, int rank, int64_t *axis) {
  *axis = given < 0 ? given + rank : given;
  if (*axis >= 0 && *axis < rank) return true;
  builtin_error(e, c, E_AXIS, "`%s` along axis %lld of a tensor with %d axes", c->op->name,
                (long long)given, rank);
  return false;
}

int builtin_axes(Elab *e, const BuiltinCall *c, int i, int rank, int64_t *axes) {
  const Val *v = &c->arg[i];
  bool in[MAX_RANK] = {0};
  int count = v->kind == V_TUPLE ? v->n : 1, n = 0;
  for (int k = 0; v->kind != V_NONE && k < count; k++) {
    int64_t axis;
    if (!builtin_axis(e, c, v->kind == V_TUPLE ? v->items[k].i : v->i, rank, &axis)) return -1;
    in[axis] = true;
  }
  for (int k = 0; k < rank; k++)
    if (in[k] || v->kind == V_NONE) axes[n++] = k;
  return n;
}

bool builtin_range(Elab *e, const BuiltinCall *c, int i, double lo, double hi) {
  double f = c->arg[i].f;
  if (f >= lo && f <= hi) return true;
  elab_error(e, E_VALUE, c->expr[i] ? c->expr[i]->loc : caret(c->x),
             "`%s` of `%s` must be between %g and %g, not %g", c->op->arg[i], c->op->name, lo, hi,
             f);
  return false;
}

/* ---- help ---- */

bool builtin_help(const char *name, FILE *to) {
  const Builtin *b = builtin_find(intern(name));
  if (!b) return false;
  fprintf(to, "%s(%s)\n  %s\n", b->name, b->signature, b->doc);
  for (int i = 0; i < b->n; i++)
    fprintf(to, "  %-14s %s%s\n", b->arg[i], kind_text(b->kinds[i]),
            b->required[i] ? "" : " (has a default)");
  return true;
}

void builtin_list(FILE *to) {
  for (int i = 0; i < builtin_count(); i++)
    fprintf(to, "  %-16s %s\n", builtin_at(i)->name, builtin_at(i)->doc);
}

void builtin_markdown(FILE *to) {
  fprintf(to, "| operation | what it gives |\n|---|---|\n");
  for (int i = 0; i < builtin_count(); i++) {
    const Builtin *b = builtin_at(i);
    fprintf(to, "| `%s%s%s%s` | %s |\n", b->name, b->n ? "(" : "", b->signature, b->n ? ")" : "",
            b->doc);
  }
}

const char *builtin_nearest(const char *word) {
  const char *names[COUNT_OF(table)];
  for (int i = 0; i < builtin_count(); i++) names[i] = builtin_at(i)->name;
  return nearest_word(word, names, builtin_count());
}
