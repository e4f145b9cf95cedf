/* elab_say.c - the words of the elaborator's messages: source text, shapes, the place in the model,
 * suggestions. Nothing here decides anything. */
#include <string.h>
#include "builtins.h"
#include "elab.h"

/* The bytes of one source line from `at` on. */
static const char *source_at(const Elab *e, Loc at, size_t *left) {
  *left = 0;
  if (!loc_ok(at) || at.file < 0 || at.file >= e->d->sources.n) return "";
  const Source *src = &e->d->sources.at[at.file];
  const char *p = src->text, *end = src->text + src->size;
  for (int line = 1; line < at.line && p < end; line++) {
    const char *nl = memchr(p, '\n', (size_t)(end - p));
    p = nl ? nl + 1 : end;
  }
  if (at.col - 1 > end - p) return "";
  p += at.col - 1;
  const char *nl = memchr(p, '\n', (size_t)(end - p));
  *left = (size_t)((nl ? nl : end) - p);
  return p;
}

const char *say_loc(Elab *e, Loc at) {
  size_t left;
  const char *p = source_at(e, at, &left);
  size_t n = (size_t)at.len < left ? (size_t)at.len : left;
  return arena_printf(e->arena, "%.*s", (int)n, p);
}

const char *say_expr(Elab *e, const Expr *x) {
  enum { LONGEST = 60 };
  const char *text = say_loc(e, x->loc);
  return strlen(text) > LONGEST ? arena_printf(e->arena, "%.*s..", LONGEST, text) : text;
}

const char *say_type(Elab *e, const TypeExpr *t) {
  return say_loc(e, t->loc);
}

const char *say_shape(Elab *e, const Val *v) {
  if (v->kind != V_TENSOR) return "";
  return shape_text(e->arena, &tval(e, v)->shape);
}

const char *say_val(Elab *e, const Val *v) {
  Arena *a = e->arena;
  switch (v->kind) {
    case V_ERR:
      return "a mistake";
    case V_NONE:
      return "`none`";
    case V_AUTO:
      return "`auto`";
    case V_INT:
      return arena_printf(a, "the number %lld", (long long)v->i);
    case V_NUM:
      return arena_printf(a, "the number %g", v->f);
    case V_BOOL:
      return v->i ? "`true`" : "`false`";
    case V_STR:
      return arena_printf(a, "the text \"%s\"", v->s);
    case V_DTYPE:
      return arena_printf(a, "the type `%s`", v->s);
    case V_TUPLE:
      return arena_printf(a, "a tuple of %d", v->n);
    case V_INIT:
      return "an initial value";
    case V_VAR:
      return arena_printf(a, "parameter `%s`", e->job->vars->all.at[v->i].path);
    case V_TENSOR:
      return arena_printf(a, "a tensor %s%s",
                          dtype_is_float(tval(e, v)->dtype)
                              ? ""
                              : arena_printf(a, "%s ", dtype_name(tval(e, v)->dtype)),
                          say_shape(e, v));
    case V_LAYER:
      return arena_printf(a, "layer `%s`", v->inst->path);
    case V_LAYERS:
      return arena_printf(a, "an array of %d layers", v->n);
    case V_FN:
      return arena_printf(a, "function `%s`", v->fn->name.text);
    case V_BLOCK:
      return arena_printf(a, "%s `%s`", v->item->kind == IT_BLOCK ? "block" : "model",
                          v->item->name.text);
  }
  return "a value";
}

Loc caret(const Expr *x) {
  switch (x->kind) {
    case EX_BINARY:
      return x->op_loc;
    case EX_AS:
      return x->op_loc;
    case EX_CALL:
      return caret(x->a);
    case EX_UNARY:
      return x->op_loc.line ? x->op_loc : x->loc;
    default:
      return x->loc;
  }
}

/* "GPT2.forward", "h.0.attn", "function `f`" */
static const char *frame_name(const Elab *e, const Frame *f) {
  if (!f->inst) return arena_printf(e->arena, "function `%s`", f->fn->name.text);
  if (!*f->inst->path)
    return arena_printf(e->arena, "%s.%s", e->named_item ? e->named_item->name.text : "model",
                        f->fn->name.text);
  return f->inst->path;
}

void say_where(Elab *e, Diag *g) {
  const Frame *f = e->frame;
  const Inst *made = e->making.n ? e->making.at[e->making.n - 1] : NULL;
  if (!f && made && *made->path)
    diag_note(e->d, g, "in %s, %s declared at %s", made->path, inst_text(e, made),
              loc_text(e->d, e->arena, made->decl));
  if (!f) return;
  if (!f->up) {
    diag_note(e->d, g, "in %s", frame_name(e, f));
    return;
  }
  const char *file = f->call.file == g->primary.loc.file || f->call.file < 0
                         ? ""
                         : arena_printf(e->arena, "%s:", e->d->sources.at[f->call.file].path);
  diag_note(e->d, g, "in %s, called from %s at %s%d:%d", frame_name(e, f), frame_name(e, f->up),
            file, f->call.line, f->call.col);
}

Diag *elab_error(Elab *e, ErrId id, Loc at, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  const char *text = arena_vprintf(e->arena, fmt, ap);
  va_end(ap);
  Diag *g = diag_error(e->d, id, at, "%s", text);
  say_where(e, g);
  return g;
}

void say_nearest(Elab *e, Diag *g, const char *word, const char *const *cands, int n) {
  const char *near = nearest_word(word, cands, n);
  if (near) diag_primary_label(e->d, g, "did you mean `%s`?", near);
}

void say_nearest_in_scope(Elab *e, Diag *g, const char *word, const Scope *s, bool ops) {
  VEC(const char *) c = {0};
  for (; s; s = s->up)
    for (int i = 0; i < s->all.n; i++) vec_push(e->arena, &c, s->all.at[i].name);
  for (int i = 0; ops && i < builtin_count(); i++) vec_push(e->arena, &c, builtin_at(i)->name);
  say_nearest(e, g, word, c.at, c.n);
}

const char *ordinal_part(int n) {
  static const char *const words[] = {"all",       "all",     "a half", "a third",
                                      "a quarter", "a fifth", "a sixth"};
  return n >= 0 && n < COUNT_OF(words) ? words[n] : "a part";
}
