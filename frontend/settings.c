/* settings.c - reads sections by the rows of settings.def: unknown keys, wrong types and values out
 * of range are reported here, so that what comes out can be used as it is. */
#include "settings.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const Setting rows[] = {
#define SETTING(section, key, kind, preset, lo, hi, phase, doc) \
  {section, key, SK_##kind, preset, lo, hi, phase, doc},
#include "settings.def"
};

static const struct {
  const char *name, *doc;
} sections[] = {
#define SECTION(section, doc) {section, doc},
#include "settings.def"
};

static bool same(const char *a, const char *b) {
  return !strcmp(a, b);
}

static const char *short_name(const char *section) {
  const char *dot = strchr(section, '.');
  return dot ? dot + 1 : section;
}

/* "cosine(warmup, final, cycles = 1)" */
static const char *call_signature(Elab *e, const char *section) {
  Str s = {.arena = e->arena};
  str_addf(&s, "%s(", short_name(section));
  for (int i = 0, n = 0; i < COUNT_OF(rows); i++) {
    const Setting *r = &rows[i];
    if (!same(r->section, section)) continue;
    str_addf(&s, "%s%s", n++ ? ", " : "", r->key);
    if (*r->preset == '!' || !*r->preset || same(r->preset, "0")) continue;
    const char *bar = strchr(r->preset, '|');
    int len = bar ? (int)(bar - r->preset) : (int)strlen(r->preset);
    bool pair = r->kind == SK_PAIR;
    str_addf(&s, " = %s%.*s%s", pair ? "(" : "", len, r->preset, pair ? ")" : "");
  }
  str_add(&s, ")");
  return s.text;
}

/* ---- presets ---- */

static void fill_preset(SetValue *v) {
  const char *p = v->row->preset;
  if (!*p || *p == '!') return;
  switch (v->row->kind) {
    case SK_NUMBER:
    case SK_COUNT:
      v->num = strtod(p, NULL);
      return;
    case SK_FLAG:
      v->num = same(p, "true");
      return;
    case SK_PAIR:
      v->pair[0] = strtod(p, NULL);
      v->pair[1] = strtod(strchr(p, ',') + 1, NULL);
      return;
    case SK_CHOICE:
      v->text = intern_n(p, strcspn(p, "|"));
      return;
    case SK_DTYPE:
      v->text = p;
      v->dtype = same(p, "auto") ? PREC_AUTO : dtype_by_name(p);
      return;
    default:
      v->text = p;
      return;
  }
}

Settings settings_new(Elab *e, const char *section, Loc loc) {
  Settings s = {.section = section};
  for (int i = 0; i < COUNT_OF(rows); i++) s.n += same(rows[i].section, section);
  s.at = arena_array(e->arena, SetValue, s.n);
  for (int i = 0, n = 0; i < COUNT_OF(rows); i++) {
    if (!same(rows[i].section, section)) continue;
    s.at[n] = (SetValue){.row = &rows[i], .loc = loc, .dtype = PREC_AUTO, .data = {-1, false}};
    fill_preset(&s.at[n++]);
  }
  return s;
}

Settings settings_copy(Elab *e, const Settings *s) {
  Settings c = *s;
  c.at = arena_copy(e->arena, s->at, sizeof *s->at * (size_t)s->n);
  return c;
}

SetValue *settings_get(const Settings *s, const char *key) {
  for (int i = 0; i < s->n; i++)
    if (same(s->at[i].row->key, key)) return &s->at[i];
  bug("section `%s` has no setting `%s`", s->section, key);
}

/* ---- values ---- */

static const char *kind_text(SettingKind k) {
  switch (k) {
    case SK_NUMBER:
      return "a number";
    case SK_COUNT:
      return "a whole number";
    case SK_FLAG:
      return "true or false";
    case SK_TEXT:
      return "a text in quotes";
    case SK_TEXTS:
      return "a list of texts: [\"a\", \"b\"]";
    case SK_PAIR:
      return "two numbers: (a, b)";
    case SK_DTYPE:
      return "a number format, such as f32 or bf16, or auto";
    case SK_CHOICE:
      return "one of a few words";
    case SK_DATA:
      return "data, such as corpus.train";
    case SK_NAME:
      return "the name of a function";
    default:
      return "another form";
  }
}

static bool wrong_type(Elab *e, const Setting *r, const Expr *x, const Val *v) {
  Diag *d = elab_error(e, E_TYPE, x->loc, "`%s` is %s, not %s", r->key, kind_text(r->kind),
                       v ? say_val(e, v) : arena_printf(e->arena, "`%s`", say_expr(e, x)));
  diag_note(e->d, d, "%s: %s", r->key, r->doc);
  return false;
}

static bool in_range(Elab *e, const Setting *r, const Expr *x, double f) {
  if (f >= r->lo && f <= r->hi) return true;
  if (f < r->lo)
    elab_error(e, E_VALUE, x->loc, "`%s` must be at least %g, not %g", r->key, r->lo, f);
  else
    elab_error(e, E_VALUE, x->loc, "`%s` may be at most %g, not %g", r->key, r->hi, f);
  return false;
}

static bool read_number(Elab *e, const Setting *r, const Expr *x, SetValue *out) {
  Val v = eval_static(e, job_scope(e), x, "a setting");
  if (v.kind == V_ERR) return false;
  bool whole = v.kind == V_INT || (v.kind == V_NUM && v.f == floor(v.f));
  if (r->kind == SK_FLAG ? v.kind != V_BOOL : !val_is_number(&v)) return wrong_type(e, r, x, &v);
  if (r->kind == SK_COUNT && !(v.f > -9e15 && v.f < 9e15 && whole)) return wrong_type(e, r, x, &v);
  out->num = r->kind == SK_FLAG ? (double)v.i : v.f;
  return r->kind == SK_FLAG || in_range(e, r, x, out->num);
}

static bool read_pair(Elab *e, const Setting *r, const Expr *x, SetValue *out) {
  Val v = eval_static(e, job_scope(e), x, "a setting");
  if (v.kind == V_ERR) return false;
  if (v.kind != V_TUPLE || v.n != 2 || !val_is_number(&v.items[0]) || !val_is_number(&v.items[1]))
    return wrong_type(e, r, x, &v);
  out->pair[0] = v.items[0].f;
  out->pair[1] = v.items[1].f;
  return in_range(e, r, x, out->pair[0]) && in_range(e, r, x, out->pair[1]);
}

/* A word: names, `auto` and `none` as they are written. */
static const char *word_of(const Expr *x) {
  switch (x->kind) {
    case EX_NAME:
    case EX_STRING:
    case EX_DTYPE:
      return x->text;
    case EX_AUTO:
      return "auto";
    case EX_NONE:
      return "none";
    default:
      return NULL;
  }
}

static bool read_choice(Elab *e, const Setting *r, const Expr *x, SetValue *out) {
  const char *word = word_of(x);
  VEC(const char *) words = {0};
  for (const char *p = r->preset; *p; p += strcspn(p, "|"), p += *p == '|')
    vec_push(e->arena, &words, intern_n(p, strcspn(p, "|")));
  for (int i = 0; i < words.n; i++) {
    if (!word || !same(word, words.at[i])) continue;
    out->text = words.at[i];
    out->choice = i;
    return true;
  }
  Diag *d = elab_error(e, E_VALUE, x->loc, "`%s` cannot be `%s`", r->key, say_expr(e, x));
  if (word) say_nearest(e, d, word, words.at, words.n);
  Str s = {.arena = e->arena};
  for (int i = 0; i < words.n; i++) str_addf(&s, "%s%s", i ? ", " : "", words.at[i]);
  diag_note(e->d, d, "it is one of: %s", s.text);
  return false;
}

/* The formats that a setting may have; those without a row take the first one's. */
enum { MOST_FORMATS = 6 };
static const struct {
  const char *key;
  const char *words[MOST_FORMATS];
} formats[] = {
    {"compute", {"f32", "tf32", "bf16", "f16", "auto"}},
    {"master", {"f32", "split", "bf16", "auto"}},
    {"moments", {"f32", "bf16", "i8", "auto"}},
    {"accum", {"f32", "bf16", "auto"}},
};

static bool read_dtype(Elab *e, const Setting *r, const Expr *x, SetValue *out) {
  const char *word = word_of(x);
  if (!word || x->kind == EX_STRING) return wrong_type(e, r, x, NULL);
  out->text = word;
  out->dtype = same(word, "auto")    ? PREC_AUTO
               : same(word, "split") ? PREC_SPLIT
               : same(word, "tf32")  ? DT_F32
                                     : dtype_by_name(word);
  int row = 0, n = 0;
  for (int i = 0; i < COUNT_OF(formats); i++)
    if (same(formats[i].key, r->key)) row = i;
  for (; n < MOST_FORMATS && formats[row].words[n]; n++)
    if (same(formats[row].words[n], word)) return true;
  Diag *d = elab_error(e, E_VALUE, x->loc, "`%s` cannot be `%s`", r->key, word);
  const char *ours = dtype_of_others(word);
  say_nearest(e, d, ours ? ours : word, formats[row].words, n);
  diag_note(e->d, d, "%s: %s", r->key, r->doc);
  return false;
}

static bool read_texts(Elab *e, const Setting *r, const Expr *x) {
  bool ok = x->kind == EX_LIST || x->kind == EX_TUPLE;
  for (int i = 0; ok && i < x->items.n; i++) ok = x->items.at[i]->kind == EX_STRING;
  return ok || wrong_type(e, r, x, NULL);
}

static bool read_value(Elab *e, const Expr *x, SetValue *out) {
  const Setting *r = out->row;
  out->given = true;
  out->loc = x->loc;
  out->x = x;
  switch (r->kind) {
    case SK_NUMBER:
    case SK_COUNT:
    case SK_FLAG:
      return read_number(e, r, x, out);
    case SK_PAIR:
      return read_pair(e, r, x, out);
    case SK_CHOICE:
      return read_choice(e, r, x, out);
    case SK_DTYPE:
      return read_dtype(e, r, x, out);
    case SK_TEXTS:
      return read_texts(e, r, x);
    case SK_TEXT:
      out->text = x->kind == EX_STRING ? x->text : NULL;
      return out->text || wrong_type(e, r, x, NULL);
    case SK_NAME:
      out->text = x->kind == EX_NAME ? x->text : NULL;
      return out->text || wrong_type(e, r, x, NULL);
    case SK_DATA:
      out->data = job_data_ref(e, x);
      return out->data.data >= 0;
    case SK_CALL:
      return true; /* read by settings_call */
    default:
      return wrong_type(e, r, x, NULL);
  }
}

/* ---- sections ---- */

static void say_section_keys(Elab *e, Diag *d, const char *section, const char *word, bool phase) {
  VEC(const char *) keys = {0};
  for (int i = 0; i < COUNT_OF(rows); i++)
    if (same(rows[i].section, section) && (!phase || rows[i].phase) && rows[i].kind != SK_RULES)
      vec_push(e->arena, &keys, rows[i].key);
  say_nearest(e, d, word, keys.at, keys.n);
}

const Setting *settings_row(Elab *e, const char *section, const Name *key, bool in_phase) {
  const Setting *outside = NULL;
  for (int i = 0; i < COUNT_OF(rows); i++) {
    if (!same(rows[i].section, section) || !same(rows[i].key, key->text)) continue;
    if (rows[i].kind == SK_RULES) continue;
    if (!in_phase || rows[i].phase) return &rows[i];
    outside = &rows[i];
  }
  if (outside) {
    Diag *d =
        elab_error(e, E_UNKNOWN_SETTING, key->loc, "`%s` is the same in all phases", key->text);
    diag_help(e->d, d, "set it in `train` itself");
    return NULL;
  }
  Diag *d = elab_error(e, E_UNKNOWN_SETTING, key->loc, "unknown setting `%s` in `%s`", key->text,
                       in_phase ? "phase" : section);
  say_section_keys(e, d, section, key->text, in_phase);
  diag_note(e->d, d, "see `mtc help %s`", section);
  return NULL;
}

static bool wrong_form(Elab *e, const Setting *r, const Entry *en) {
  static const char *const forms[] = {[SK_BLOCK] = "%s { .. }",
                                      [SK_NAMED] = "%s NAME { .. }",
                                      [SK_MARKED] = "%s \"selector\" { .. }",
                                      [SK_SELECT] = "%s \"selector\", .."};
  const char *form = r->kind >= SK_BLOCK && r->kind <= SK_SELECT ? forms[r->kind] : "%s = value";
  Diag *d = elab_error(e, E_TYPE, en->key.loc, "`%s` is not written like this", r->key);
  const char *mark = strstr(form, "%s");
  diag_help(e->d, d, "write `%s%s`", r->key, mark + 2);
  return false;
}

bool settings_entry(Elab *e, Settings *s, const Entry *en, bool in_phase) {
  if (en->kind == EN_SET_PATTERN) {
    for (int i = 0; i < s->n; i++)
      if (s->at[i].row->kind == SK_RULES) return true;
    Diag *d = elab_error(e, E_UNKNOWN_SETTING, en->loc, "`%s` takes no selectors here", s->section);
    if (same(s->section, "train"))
      diag_help(e->d, d, "write `group \"selector\" { weight_decay = .. }`");
    return false;
  }
  const Setting *r = settings_row(e, s->section, &en->key, in_phase);
  if (!r) return false;
  bool form = en->kind == EN_SET  ? r->kind <= SK_CALL
              : en->kind == EN_DO ? r->kind == SK_SELECT
              : en->patterns.n    ? r->kind == SK_MARKED
              : en->name.text     ? r->kind == SK_NAMED
                                  : r->kind == SK_BLOCK;
  if (!form) return wrong_form(e, r, en);
  return en->kind != EN_SET || read_value(e, en->value, settings_get(s, r->key));
}

bool settings_complete(Elab *e, const Settings *s, Loc loc, const char *label) {
  bool ok = true;
  for (int i = 0; i < s->n; i++) {
    const SetValue *v = &s->at[i];
    if (v->given || *v->row->preset != '!') continue;
    Diag *d = elab_error(e, E_ARGUMENT, loc, "`%s` is missing in `%s`", v->row->key, label);
    diag_note(e->d, d, "%s: %s", v->row->key, v->row->doc);
    ok = false;
  }
  return ok;
}

/* ---- choices written as calls ---- */

static const char *find_choice(Elab *e, const char *family, const Expr *name, int *which) {
  VEC(const char *) names = {0};
  for (int i = 0; i < COUNT_OF(sections); i++) {
    size_t n = strlen(family);
    if (strncmp(sections[i].name, family, n) || sections[i].name[n] != '.') continue;
    if (name->text && same(sections[i].name + n + 1, name->text)) {
      *which = names.n;
      return sections[i].name;
    }
    vec_push(e->arena, &names, sections[i].name + n + 1);
  }
  Diag *d =
      elab_error(e, E_UNKNOWN_SETTING, name->loc, "unknown %s `%s`", family, say_expr(e, name));
  if (name->text) say_nearest(e, d, name->text, names.at, names.n);
  Str s = {.arena = e->arena};
  for (int i = 0; i < names.n; i++) str_addf(&s, "%s%s", i ? ", " : "", names.at[i]);
  diag_note(e->d, d, "it is one of: %s; see `mtc help %s`", s.text, family);
  return NULL;
}

bool settings_call(Elab *e, const char *family, const Expr *x, Settings *out, int *which) {
  const Expr *name = x->kind == EX_CALL ? x->a : x;
  if (name->kind != EX_NAME) {
    elab_error(e, E_TYPE, x->loc, "`%s` is not a %s", say_expr(e, x), family);
    return false;
  }
  const char *section = find_choice(e, family, name, which);
  if (!section) return false;
  *out = settings_new(e, section, x->loc);
  const char **names = arena_array(e->arena, const char *, out->n);
  bool *required = arena_array(e->arena, bool, out->n);
  int *slot = arena_array(e->arena, int, out->n);
  for (int i = 0; i < out->n; i++) {
    names[i] = intern(out->at[i].row->key);
    required[i] = *out->at[i].row->preset == '!';
  }
  Callee c = {.what = arena_printf(e->arena, "%s(...)", name->text),
              .decl = NO_LOC,
              .n = out->n,
              .signature = arena_printf(e->arena, "%s; see `mtc help %s`",
                                        call_signature(e, section), family),
              .names = names,
              .required = required,
              .unknown = E_UNKNOWN_SETTING};
  if (!match_args(e, x, &c, slot)) return false;
  bool ok = true;
  for (int i = 0; i < out->n; i++)
    if (slot[i] >= 0) ok &= read_value(e, x->args.at[slot[i]].value, &out->at[i]);
  return ok;
}

/* ---- help ---- */

static void print_rows(const char *section, FILE *to) {
  for (int i = 0; i < COUNT_OF(rows); i++) {
    const Setting *r = &rows[i];
    if (!same(r->section, section)) continue;
    fprintf(to, "  %-16s %s", r->kind == SK_RULES ? "\"selector\"" : r->key, r->doc);
    if (*r->preset == '!')
      fprintf(to, " (must be given)");
    else if (r->kind == SK_CHOICE)
      fprintf(to, " (%s)", r->preset);
    else if (*r->preset)
      fprintf(to, " (%s unless given)", r->preset);
    fputc('\n', to);
  }
}

bool settings_help(const char *word, FILE *to) {
  bool found = false;
  size_t n = strlen(word);
  for (int i = 0; i < COUNT_OF(sections); i++) {
    const char *name = sections[i].name;
    bool of_family = !strncmp(name, word, n) && name[n] == '.';
    if (!same(name, word) && !of_family && !(strchr(name, '.') && same(short_name(name), word)))
      continue;
    if (found) fputc('\n', to);
    fprintf(to, strchr(name, '.') ? "%s(..): %s\n" : "%s { .. }: %s\n", short_name(name),
            sections[i].doc);
    print_rows(name, to);
    found = true;
  }
  return found;
}

void settings_markdown(FILE *to) {
  for (int i = 0; i < COUNT_OF(sections); i++) {
    const char *name = sections[i].name, *dot = strchr(name, '.');
    if (dot)
      fprintf(to, "%s### `%.*s = %s(..)`\n\n%s\n\n", i ? "\n" : "", (int)(dot - name), name,
              dot + 1, sections[i].doc);
    else
      fprintf(to, "%s## `%s`\n\n%s\n\n", i ? "\n" : "", name, sections[i].doc);
    fprintf(to, "| setting | meaning | unless given |\n|---|---|---|\n");
    for (int k = 0; k < COUNT_OF(rows); k++) {
      const Setting *r = &rows[k];
      if (!same(r->section, name)) continue;
      fprintf(to, "| `%s` | %s | ", r->kind == SK_RULES ? "\"selector\" = format" : r->key, r->doc);
      for (const char *p = *r->preset == '!' ? "must be given" : r->preset; *p; p++)
        fputs(*p == '|' ? " \\| " : (char[]){*p, 0}, to);
      fprintf(to, " |\n");
    }
  }
}

const char *settings_nearest(const char *word) {
  const char *names[COUNT_OF(sections)];
  for (int i = 0; i < COUNT_OF(sections); i++) names[i] = short_name(sections[i].name);
  return nearest_word(word, names, COUNT_OF(sections));
}
