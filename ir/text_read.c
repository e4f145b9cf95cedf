/* text_read.c - reads the text form of a graph (grammar in text.h).
 *
 * Input: any bytes; output: a verified graph, or a sentence with the line number. Every node goes
 * through the builder, so that shapes are inferred again and must be the ones written. The first
 * mistake ends the reading. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "infer.h"
#include "text.h"

#define X(id, text) text,
static const char *const roles[] = {VAR_ROLES(X)}, *const inits[] = {INIT_KINDS(X)},
                         *const phases[] = {PHASES(X)};
#undef X

typedef struct {
  const char *name; /* NULL = free slot */
  ValueId value;
} Slot;

typedef struct {
  Arena *a;
  const char *p, *end; /* NUL stands at end */
  int line;
  const char *why; /* the first mistake */
  Graph *g;
  Slot *slot; /* value names: open addressing */
  int nslots, used;
} Reader;

static bool fail(Reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool fail(Reader *r, const char *fmt, ...) {
  if (r->why) return false;
  va_list ap;
  va_start(ap, fmt);
  const char *what = arena_vprintf(r->a, fmt, ap);
  va_end(ap);
  r->why = arena_printf(r->a, "line %d: %s", r->line, what);
  return false;
}

/* ---- words ---- */

#define WORD "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

static void skip_blanks(Reader *r) {
  while (r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\r')) r->p++;
  if (r->p < r->end && *r->p == '#')
    while (r->p < r->end && *r->p != '\n') r->p++;
}

static bool at_end_of_line(Reader *r) {
  skip_blanks(r);
  return r->p == r->end || *r->p == '\n';
}

static bool accept(Reader *r, char c) {
  skip_blanks(r);
  if (r->p == r->end || *r->p != c) return false;
  r->p++;
  return true;
}

static bool expect(Reader *r, char c) {
  return accept(r, c) || fail(r, "expected `%c` before `%.10s`", c, r->p);
}

static char *read_span(Reader *r, const char *chars) {
  size_t n = strspn(r->p, chars);
  char *s = arena_printf(r->a, "%.*s", (int)n, r->p);
  r->p += n;
  return s;
}

/* "" when no word stands here. */
static char *read_word(Reader *r) {
  skip_blanks(r);
  return read_span(r, WORD);
}

static bool read_int(Reader *r, int64_t min, int64_t max, int64_t *x) {
  skip_blanks(r);
  char *stop;
  errno = 0;
  *x = strtoll(r->p, &stop, 10);
  if (stop == r->p || errno || *r->p == '\n')
    return fail(r, "expected a whole number before `%.10s`", r->p);
  r->p = stop;
  return (*x >= min && *x <= max) || fail(r, "%lld is out of range", (long long)*x);
}

static bool read_small(Reader *r, int *x) {
  int64_t wide;
  if (!read_int(r, INT_MIN, INT_MAX, &wide)) return false;
  *x = (int)wide;
  return true;
}

static bool read_number(Reader *r, double *x) {
  skip_blanks(r);
  char *stop;
  *x = strtod(r->p, &stop);
  if (stop == r->p || *r->p == '\n') return fail(r, "expected a number before `%.10s`", r->p);
  r->p = stop;
  return true;
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static char *read_string(Reader *r) {
  if (!expect(r, '"')) return NULL;
  Str s = {.arena = r->a};
  str_add(&s, "");
  while (r->p < r->end && *r->p != '"' && *r->p != '\n') {
    char c = *r->p++;
    if (c == '\\' && r->p < r->end) {
      c = *r->p++;
      if (c == 'x') {
        int hi = r->p < r->end ? hex_digit(r->p[0]) : -1, lo = hi < 0 ? -1 : hex_digit(r->p[1]);
        if (lo < 0 || hi + lo == 0) {
          fail(r, "expected two hexadecimal digits after `\\x`");
          return NULL;
        }
        c = (char)(hi * 16 + lo);
        r->p += 2;
      }
    }
    if (c) str_add_n(&s, &c, 1);
  }
  return expect(r, '"') ? s.text : NULL;
}

/* Index of the word in a list of n, or -1 after a message. */
static int read_choice(Reader *r, const char *what, const char *const *list, int n) {
  const char *word = read_word(r);
  for (int i = 0; i < n; i++)
    if (!strcmp(list[i], word)) return i;
  fail(r, "unknown %s `%s`", what, word);
  return -1;
}

static bool read_dtype(Reader *r, DType *t) {
  const char *word = read_word(r);
  int found = dtype_by_name(word);
  if (found < 0) return fail(r, "unknown dtype `%s`", word);
  *t = (DType)found;
  return true;
}

/* f32[B=8, 4] */
static bool read_type(Reader *r, Type *t) {
  *t = (Type){0};
  if (!read_dtype(r, &t->dtype)) return false;
  if (!accept(r, '[')) return true;
  do {
    Shape *s = &t->shape;
    if (s->rank == MAX_RANK) return fail(r, "more than %d axes", MAX_RANK);
    skip_blanks(r);
    const char *name = NULL;
    if (*r->p == '"') {
      if (!(name = read_string(r))) return false;
    } else if (strchr(WORD, *r->p) && !(*r->p >= '0' && *r->p <= '9') && *r->p) {
      name = read_word(r);
    }
    if (name && !expect(r, '=')) return false;
    s->axis[s->rank] = name ? intern(name) : NULL;
    if (!read_int(r, 1, INT64_MAX, &s->dim[s->rank++])) return false;
  } while (accept(r, ','));
  return expect(r, ']');
}

/* !LINE:COL, !FILE:LINE:COL, either with +LENGTH; the `!` is read already. */
static bool read_loc(Reader *r, Loc *l) {
  int n[3], count = 0;
  *l = (Loc){0};
  do {
    if (count == 3) return fail(r, "a place has at most file, line and column");
    if (!read_small(r, &n[count++])) return false;
  } while (accept(r, ':'));
  if (count < 2) return fail(r, "a place has line and column");
  if (count == 3) l->file = n[0];
  l->line = n[count - 2];
  l->col = n[count - 1];
  return !accept(r, '+') || read_small(r, &l->len);
}

/* ---- names of values ---- */

static Slot *find_slot(Slot *slot, int nslots, const char *name) {
  uint64_t h = hash_text(name);
  while (slot[h % nslots].name && strcmp(slot[h % nslots].name, name)) h++;
  return &slot[h % nslots];
}

static bool define(Reader *r, const char *name, ValueId v) {
  if (2 * (r->used + 1) > r->nslots) {
    int n = 2 * r->nslots + 64;
    Slot *grown = arena_array(r->a, Slot, n);
    for (int i = 0; i < r->nslots; i++)
      if (r->slot[i].name) *find_slot(grown, n, r->slot[i].name) = r->slot[i];
    r->slot = grown;
    r->nslots = n;
  }
  Slot *s = find_slot(r->slot, r->nslots, name);
  if (s->name) return fail(r, "value `%%%s` is defined twice", name);
  *s = (Slot){name, v};
  r->used++;
  return true;
}

static char *read_name(Reader *r) {
  if (!expect(r, '%')) return NULL;
  char *name = read_span(r, WORD ".:-");
  if (*name) return name;
  fail(r, "expected a name after `%%`");
  return NULL;
}

static bool read_value(Reader *r, ValueId *v) {
  const char *name = read_name(r);
  if (!name) return false;
  Slot *s = r->nslots ? find_slot(r->slot, r->nslots, name) : NULL;
  if (!s || !s->name) return fail(r, "value `%%%s` is not defined before", name);
  *v = s->value;
  return true;
}

/* ---- statements ---- */

static bool read_init(Reader *r, Init *init) {
  int kind = read_choice(r, "initial value", inits, COUNT_OF(inits));
  if (kind < 0 || !expect(r, '(') || !read_number(r, &init->a) || !expect(r, ',') ||
      !read_number(r, &init->b) || !expect(r, ',') || !read_small(r, &init->from))
    return false;
  init->kind = (InitKind)kind;
  return expect(r, ')');
}

static bool read_var(Reader *r) {
  Var v = {.of = -1, .layer = -1, .loc = NO_LOC};
  Type t;
  int role = read_choice(r, "role", roles, COUNT_OF(roles));
  if (role < 0 || !(v.path = read_string(r)) || !read_type(r, &t)) return false;
  v.role = (VarRole)role;
  v.dtype = t.dtype;
  v.shape = t.shape;
  while (!at_end_of_line(r)) {
    if (accept(r, '!')) {
      if (!read_loc(r, &v.loc)) return false;
      continue;
    }
    const char *key = read_word(r);
    if (!strcmp(key, "trainable")) {
      v.trainable = true;
      continue;
    }
    if (!expect(r, '=')) return false;
    bool ok = !strcmp(key, "init")    ? read_init(r, &v.init)
              : !strcmp(key, "of")    ? read_small(r, &v.of)
              : !strcmp(key, "layer") ? read_small(r, &v.layer)
                                      : fail(r, "unknown word `%s`", key);
    if (!ok) return false;
  }
  Infer f = {.g = r->g, .arena = r->a, .op = OP_VAR};
  if (!infer_shape_ok(&f, &v.shape)) return fail(r, "%s", f.message);
  if (!*v.path || var_find(r->g->vars, v.path) >= 0)
    return fail(r, "variable `%s` has no name or is defined twice", v.path);
  var_add(r->g->vars, v);
  return true;
}

/* One node as written, before it goes through the builder. */
typedef struct {
  VEC(const char *) names;
  VEC(ValueId) in;
  VEC(int64_t) ints;
  VEC(Type) types;
  double num[2];
  const char *sym;
  Op op;
} Line;

static bool read_list(Reader *r, Line *n) {
  if (!expect(r, '[')) return false;
  int at = n->ints.n;
  vec_push(r->a, &n->ints, 0);
  if (accept(r, ']')) return true;
  do {
    int64_t x;
    if (!read_int(r, INT64_MIN, INT64_MAX, &x)) return false;
    vec_push(r->a, &n->ints, x);
    n->ints.at[at]++;
  } while (accept(r, ','));
  return expect(r, ']');
}

static bool read_attr(Reader *r, Line *n, char kind, int *nnum) {
  int64_t x = 0;
  DType t = DT_F32;
  switch (kind) {
    case 'I':
      return read_list(r, n);
    case 'f':
      return read_number(r, &n->num[(*nnum)++]);
    case 's':
      return (n->sym = read_string(r)) != NULL;
    case 'd':
      if (!read_dtype(r, &t)) return false;
      x = t;
      break;
    default:
      if (!read_int(r, INT64_MIN, INT64_MAX, &x)) return false;
  }
  vec_push(r->a, &n->ints, x);
  return true;
}

static bool read_attrs(Reader *r, Line *n) {
  const char *legend = op_attrs(n->op);
  int nnum = 0;
  if (!*legend) return true;
  if (!expect(r, '{')) return false;
  for (Attr attr = {0}; attr_next(&legend, &attr);) {
    const char *name = read_word(r);
    if (strcmp(name, attr.name))
      return fail(r, "expected attribute `%s`, found `%s`", attr.name, name);
    if (!expect(r, '=') || !read_attr(r, n, attr.kind, &nnum)) return false;
  }
  return expect(r, '}');
}

static bool read_story(Reader *r) {
  __typeof__(r->g->here) *h = &r->g->here;
  *h = (__typeof__(*h)){.loc = NO_LOC, .path = "", .layer = -1};
  while (!at_end_of_line(r)) {
    if (accept(r, '!')) {
      if (!read_loc(r, &h->loc)) return false;
      continue;
    }
    const char *key = read_word(r), *text = NULL;
    bool ok = expect(r, '=');
    if (ok && !strcmp(key, "path")) {
      if ((ok = (text = read_string(r)) != NULL)) h->path = intern(text);
    } else if (ok && !strcmp(key, "tag")) {
      if ((ok = (text = read_string(r)) != NULL)) h->tag = intern(text);
    } else if (ok && !strcmp(key, "phase")) {
      int phase = read_choice(r, "phase", phases, COUNT_OF(phases));
      if ((ok = phase >= 0)) h->phase = (Phase)phase;
    } else if (ok) {
      ok = !strcmp(key, "tag_id")   ? read_small(r, &h->tag_id)
           : !strcmp(key, "layer")  ? read_small(r, &h->layer)
           : !strcmp(key, "chunk")  ? read_small(r, &h->chunk)
           : !strcmp(key, "member") ? read_small(r, &h->member)
           : !strcmp(key, "tile")   ? read_small(r, &h->tile)
                                    : fail(r, "unknown word `%s`", key);
    }
    if (!ok) return false;
  }
  return true;
}

/* Adds the node and holds its types against the ones written, whose axis names it takes. */
static bool build_node(Reader *r, const Line *n) {
  Graph *g = r->g;
  ValueId out = graph_add(g, n->op, n->in.n, n->in.at, n->ints.n, n->ints.at, n->num, n->sym);
  if (out == -1)
    return fail(r, "%s", g->diags->all.n ? g->diags->all.at[0]->message : "bad operands");
  const Node *made = &g->nodes.at[g->nodes.n - 1];
  if (made->nout != n->names.n || made->nout != n->types.n)
    return fail(r, "`%s` has %d results here", op_name(n->op), made->nout);
  for (int i = 0; i < made->nout; i++) {
    Value *v = &g->values.at[out + i];
    const Type *t = &n->types.at[i];
    if (v->dtype != t->dtype || !shape_equal(&v->shape, &t->shape))
      return fail(r, "`%s` gives %s%s", op_name(n->op), dtype_name(v->dtype),
                  shape_text(r->a, &v->shape));
    v->shape = t->shape;
    if (!define(r, n->names.at[i], out + i)) return false;
  }
  return true;
}

/* [%a, %b =] op [%x, %y] [{attrs}] [: types] annotations; the op's word is given when it started
 * the line. */
static bool read_node(Reader *r, const char *word) {
  Line n = {0};
  if (!word) {
    do {
      const char *name = read_name(r);
      if (!name) return false;
      vec_push(r->a, &n.names, name);
    } while (accept(r, ','));
    if (!expect(r, '=')) return false;
    word = read_word(r);
  }
  int op = op_by_name(word);
  if (op < 0) return fail(r, "unknown op `%s`", word);
  n.op = (Op)op;
  skip_blanks(r);
  while (*r->p == '%') {
    ValueId v;
    if (!read_value(r, &v)) return false;
    vec_push(r->a, &n.in, v);
    if (!accept(r, ',')) break;
    skip_blanks(r);
  }
  if (!read_attrs(r, &n)) return false;
  if (accept(r, ':')) {
    do {
      Type t;
      if (!read_type(r, &t)) return false;
      vec_push(r->a, &n.types, t);
    } while (accept(r, ','));
  }
  return read_story(r) && build_node(r, &n);
}

static bool read_result(Reader *r) {
  const char *name = read_string(r);
  ValueId v;
  if (!name || !read_value(r, &v)) return false;
  graph_result(r->g, name, v);
  return true;
}

static bool read_line(Reader *r) {
  if (at_end_of_line(r)) return true;
  if (*r->p == '%') return read_node(r, NULL);
  const char *word = read_word(r);
  if (!strcmp(word, "var")) return read_var(r);
  if (!strcmp(word, "result")) return read_result(r);
  return *word ? read_node(r, word) : fail(r, "expected a statement before `%.10s`", r->p);
}

static bool read_header(Reader *r) {
  for (; r->p < r->end && at_end_of_line(r) && *r->p == '\n'; r->p++) r->line++;
  const char *name;
  if (strcmp(read_word(r), "graph")) return fail(r, "expected `graph` first");
  if (!(name = read_string(r))) return false;
  r->g = graph_new(r->a, name, vars_new(r->a));
  r->g->diags = diags_new(r->a); /* of shape errors */
  if (at_end_of_line(r)) return true;
  if (strcmp(read_word(r), "tags") || !expect(r, '=')) return fail(r, "expected `tags`");
  return read_small(r, &r->g->last_tag_id);
}

Graph *graph_read(Arena *a, const char *text, size_t size, const char **why) {
  char *copy = arena_alloc(a, size + 1); /* NUL at the end */
  if (size) memcpy(copy, text, size);
  Reader r = {.a = a, .p = copy, .end = copy + size, .line = 1};
  bool ok = read_header(&r);
  while (ok) {
    if (!at_end_of_line(&r)) ok = fail(&r, "unexpected `%.10s`", r.p);
    if (!ok || r.p == r.end) break;
    r.p++;
    r.line++;
    ok = read_line(&r);
  }
  if (ok && !r.why) {
    r.g->diags = NULL;
    r.g->here = (__typeof__(r.g->here)){.loc = NO_LOC, .path = "", .layer = -1};
    r.why = graph_verify(r.g, a);
  }
  *why = r.why;
  return r.why ? NULL : r.g;
}
