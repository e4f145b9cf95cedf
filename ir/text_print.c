/* text_print.c - the text form of a graph (grammar in text.h).
 *
 * Every field of variables and nodes is printed or at its default, so that reading the text gives
 * an equal graph and printing that gives equal text. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "infer.h"
#include "text.h"

#define X(id, text) [id] = text,
static const char *const roles[] = {VAR_ROLES(X)}, *const inits[] = {INIT_KINDS(X)},
                         *const phases[] = {PHASES(X)};
#undef X

/* Quoted; whatever is not printable ASCII becomes \xNN. */
static void print_string(Str *o, const char *s) {
  str_add(o, "\"");
  for (; *s; s++) {
    unsigned char c = (unsigned char)*s;
    if (c == '"' || c == '\\')
      str_addf(o, "\\%c", c);
    else if (c < 32 || c > 126)
      str_addf(o, "\\x%02x", c);
    else
      str_add_n(o, s, 1);
  }
  str_add(o, "\"");
}

/* The shortest decimal that reads back as x. */
static void print_number(Str *o, double x) {
  char text[40];
  if (isnan(x)) {
    str_add(o, "nan");
    return;
  }
  for (int digits = 1; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, x);
    if (strtod(text, NULL) == x) break;
  }
  str_add(o, text);
}

/* Names of axes are words in models; any other text stands in quotes. */
static void print_axis(Str *o, const char *name) {
  size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
  if (n && !name[n] && !(name[0] >= '0' && name[0] <= '9'))
    str_add(o, name);
  else
    print_string(o, name);
  str_add(o, "=");
}

static void print_type(Str *o, DType t, const Shape *s) {
  str_add(o, dtype_name(t));
  for (int k = 0; k < s->rank; k++) {
    str_add(o, k ? ", " : "[");
    if (s->axis[k]) print_axis(o, s->axis[k]);
    str_addf(o, "%lld", (long long)s->dim[k]);
  }
  if (s->rank) str_add(o, "]");
}

static void print_loc(Str *o, Loc l) {
  if (!loc_ok(l)) return;
  str_add(o, " !");
  if (l.file) str_addf(o, "%d:", l.file);
  str_addf(o, "%d:%d", l.line, l.col);
  if (l.len) str_addf(o, "+%d", l.len);
}

static void print_var(Str *o, const Var *v) {
  str_addf(o, "var %s ", roles[v->role]);
  print_string(o, v->path);
  str_add(o, " ");
  print_type(o, v->dtype, &v->shape);
  const Init *i = &v->init;
  if (i->kind != INIT_ZEROS || i->a != 0 || i->b != 0 || i->from) {
    str_addf(o, " init=%s(", inits[i->kind]);
    print_number(o, i->a);
    str_add(o, ", ");
    print_number(o, i->b);
    str_addf(o, ", %d)", i->from);
  }
  if (v->trainable) str_add(o, " trainable");
  if (v->of != -1) str_addf(o, " of=%d", v->of);
  if (v->layer != -1) str_addf(o, " layer=%d", v->layer);
  print_loc(o, v->loc);
  str_add(o, "\n");
}

/* ---- names of values: unique, readable, and a function of the graph alone ---- */

typedef struct {
  const char **name; /* per value */
  Arena *arena;
  int *slot; /* open addressing over names; value id + 1 */
  int slots;
} Names;

/* Takes the name for value v unless another value has it. */
static bool claim(Names *n, int v, const char *name) {
  uint64_t h = hash_text(name);
  for (;; h++) {
    int *slot = &n->slot[h % n->slots];
    if (*slot && !strcmp(n->name[*slot - 1], name)) return false;
    if (*slot) continue;
    *slot = v + 1;
    n->name[v] = name;
    return true;
  }
}

static const char *base_name(const Graph *g, const Node *n, Arena *a) {
  char *s;
  if (n->op == OP_VAR)
    s = arena_printf(a, "%s", g->vars->all.at[n->ints[0]].path);
  else if (n->op == OP_INPUT)
    s = arena_printf(a, "%s", n->sym);
  else
    s = arena_printf(a, "%s%s%s", n->path, *n->path ? "." : "", op_name(n->op));
  for (char *c = s; *c; c++)
    if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:-", *c)) *c = '_';
  return *s ? s : "v";
}

static Names make_names(const Graph *g, Arena *a) {
  Names n = {.arena = a, .slots = 2 * g->values.n + 7};
  n.name = arena_array(a, const char *, g->values.n + 1);
  n.slot = arena_array(a, int, n.slots);
  int *next = arena_array(a, int, n.slots); /* last suffix tried, by slot of the base name */
  for (int v = 0; v < g->values.n; v++) {
    const char *base = base_name(g, &g->nodes.at[g->values.at[v].def], a);
    if (claim(&n, v, base)) continue;
    int *k = &next[hash_text(base) % n.slots];
    if (!*k) *k = 1;
    while (!claim(&n, v, arena_printf(a, "%s:%d", base, ++*k))) continue;
  }
  return n;
}

/* ---- nodes ---- */

static void print_attrs(Str *o, const Node *n) {
  Attr all[MAX_ATTRS];
  int count = attr_layout(n->op, n->nints, n->ints, MAX_ATTRS, all);
  for (int i = 0; i < count; i++) {
    const Attr *a = &all[i];
    str_addf(o, "%s%s=", i ? " " : " {", a->name);
    if (a->kind == 's') print_string(o, n->sym);
    if (a->kind == 'f') print_number(o, n->num[a->at]);
    if (a->kind == 'd') str_add(o, dtype_name((DType)n->ints[a->at]));
    if (a->kind == 'i') str_addf(o, "%lld", (long long)n->ints[a->at]);
    if (a->kind == 'I') {
      str_add(o, "[");
      for (int k = 0; k < a->len; k++)
        str_addf(o, "%s%lld", k ? ", " : "", (long long)n->ints[a->at + k]);
      str_add(o, "]");
    }
  }
  if (count > 0) str_add(o, "}");
}

static void print_node(Str *o, const Graph *g, const Node *n, const Names *names) {
  for (int i = 0; i < n->nout; i++) str_addf(o, "%s%%%s", i ? ", " : "", names->name[n->out + i]);
  str_addf(o, "%s%s", n->nout ? " = " : "", op_name(n->op));
  for (int i = 0; i < n->nin; i++) str_addf(o, "%s%%%s", i ? ", " : " ", names->name[n->in[i]]);
  print_attrs(o, n);
  for (int i = 0; i < n->nout; i++) {
    const Value *v = &g->values.at[n->out + i];
    str_add(o, i ? ", " : " : ");
    print_type(o, v->dtype, &v->shape);
  }
  if (*n->path) {
    str_add(o, " path=");
    print_string(o, n->path);
  }
  if (n->tag) {
    str_add(o, " tag=");
    print_string(o, n->tag);
  }
  if (n->tag_id) str_addf(o, " tag_id=%d", n->tag_id);
  if (n->layer != -1) str_addf(o, " layer=%d", n->layer);
  if (n->chunk) str_addf(o, " chunk=%d", n->chunk);
  if (n->member) str_addf(o, " member=%d", n->member);
  if (n->tile) str_addf(o, " tile=%d", n->tile);
  if (n->phase != PH_FORWARD) str_addf(o, " phase=%s", phases[n->phase]);
  print_loc(o, n->loc);
  str_add(o, "\n");
}

void graph_print(const Graph *g, Str *out) {
  Arena *scratch = arena_new();
  Names names = make_names(g, scratch);
  str_add(out, "graph ");
  print_string(out, g->name);
  if (g->last_tag_id) str_addf(out, " tags=%d", g->last_tag_id);
  str_add(out, "\n");
  for (int i = 0; g->vars && i < g->vars->all.n; i++) print_var(out, &g->vars->all.at[i]);
  for (int i = 0; i < g->nodes.n; i++) print_node(out, g, &g->nodes.at[i], &names);
  for (int i = 0; i < g->results.n; i++) {
    str_add(out, "result ");
    print_string(out, g->result_names.at[i]);
    str_addf(out, " %%%s\n", names.name[g->results.at[i]]);
  }
  arena_free(scratch);
}
