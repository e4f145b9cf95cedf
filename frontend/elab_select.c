/* elab_select.c - selectors against the model: what a pattern matches, and what it may have meant
 * when nothing. */
#include <ctype.h>
#include <string.h>
#include "builtins.h"
#include "elab.h"

bool select_var(const char *pattern, const char *path) {
  return selector_covers(pattern, path, NULL);
}

static bool matches_something(Elab *e, const char *pattern, bool layers_only) {
  for (int i = 0; i < e->layers.n; i++)
    if (selector_match(pattern, e->layers.at[i], NULL)) return true;
  for (int i = 0; !layers_only && i < e->job->vars->all.n; i++)
    if (selector_covers(pattern, e->job->vars->all.at[i].path, NULL)) return true;
  return false;
}

/* h.3.attn.q -> h[*].attn.q */
static const char *generalised(Elab *e, const char *path) {
  Str s = {.arena = e->arena};
  for (const char *p = path; *p;) {
    const char *dot = strchr(p, '.');
    size_t n = dot ? (size_t)(dot - p) : strlen(p);
    if (isdigit((unsigned char)*p))
      str_add(&s, "[*]");
    else {
      if (s.len) str_add(&s, ".");
      str_add_n(&s, p, n);
    }
    p += n + (dot ? 1 : 0);
  }
  return intern(s.text ? s.text : "");
}

typedef struct {
  VEC(const char *) name;
  VEC(int) count;
} Kinds;

static void add_kind(Elab *e, Kinds *k, const char *path) {
  const char *name = generalised(e, path);
  for (int i = 0; i < k->name.n; i++)
    if (k->name.at[i] == name) {
      k->count.at[i]++;
      return;
    }
  vec_push(e->arena, &k->name, name);
  vec_push(e->arena, &k->count, 1);
}

static const char *nearest_op(const char *name) {
  const char *names[OP_COUNT + 1];
  int n = 0;
  if (builtin_nearest(name)) names[n++] = builtin_nearest(name);
  for (int op = 0; op < OP_COUNT; op++) names[n++] = op_name((Op)op);
  return nearest_word(name, names, n);
}

static bool check_op(Elab *e, const char *pattern, Loc at) {
  const char *name = pattern + strlen("op:");
  if (strpbrk(name, "*{[,") || builtin_find(intern(name)) || op_by_name(name) >= 0) return true;
  Diag *d = diag_error(e->d, E_NO_MATCH, at, "selector \"%s\" names no operation", pattern);
  const char *near = nearest_op(name);
  if (near) diag_primary_label(e->d, d, "nearest: \"op:%s\"", near);
  return false;
}

/* What a node is called in `op:NAME`. Attention is one primitive with a softmax inside. */
static bool op_matches(const char *pattern, const Node *n) {
  if (selector_match(pattern, n->path, n->tag ? n->tag : op_name(n->op))) return true;
  return n->op == OP_ATTENTION && selector_match(pattern, n->path, "softmax");
}

/* "layernorm, gelu, dot": what the graph holds, for a message. */
static const char *ops_text(Elab *e, const Graph *g, int most) {
  VEC(const char *) seen = {0};
  Str s = {.arena = e->arena};
  for (int i = 0; i < g->nodes.n && seen.n < most; i++) {
    const Node *n = node_at(g, i);
    const char *name = n->tag ? n->tag : op_kind(n->op) == CALL ? op_name(n->op) : NULL;
    bool known = !name;
    for (int k = 0; k < seen.n && !known; k++) known = !strcmp(seen.at[k], name);
    if (known) continue;
    str_addf(&s, "%s%s", seen.n ? ", " : "", name);
    vec_push(e->arena, &seen, name);
  }
  return s.text ? s.text : "none";
}

void select_check_ops(Elab *e, const Graph *g) {
  enum { NAMED = 8 };
  for (int i = 0; i < e->job->precision.rules.n; i++) {
    const PrecRule *r = &e->job->precision.rules.at[i];
    bool found = !str_starts(r->pattern, "op:");
    for (int k = 0; k < g->nodes.n && !found; k++) found = op_matches(r->pattern, node_at(g, k));
    if (found) continue;
    Diag *d = diag_warn(e->d, W_UNUSED, r->loc, "selector \"%s\" matches no operation of `%s`",
                        r->pattern, e->named_item->name.text);
    diag_help(e->d, d, "it has %s", ops_text(e, g, NAMED));
  }
}

bool select_check(Elab *e, const char *pattern, Loc at, bool layers_only) {
  if (!e->root) return true; /* the model is wrong already */
  if (str_starts(pattern, "op:") && !layers_only) return check_op(e, pattern, at);
  if (matches_something(e, pattern, layers_only)) return true;
  Diag *d = diag_error(e->d, E_NO_MATCH, at, "pattern \"%s\" matches no %s", pattern,
                       layers_only ? "layer" : "layer or parameter");
  Kinds k = {0};
  for (int i = 0; i < e->layers.n; i++) add_kind(e, &k, e->layers.at[i]);
  int layers = k.name.n;
  for (int i = 0; !layers_only && i < e->job->vars->all.n; i++)
    add_kind(e, &k, e->job->vars->all.at[i].path);
  VEC(const char *) close = {0}; /* a prefix is near as a word, but not as a path */
  for (int i = 0; i < k.name.n; i++)
    if (strlen(k.name.at[i]) * 3 >= strlen(pattern) * 2) vec_push(e->arena, &close, k.name.at[i]);
  const char *near = nearest_word(pattern, close.at, close.n);
  for (int i = 0; near && i < k.name.n; i++) {
    if (k.name.at[i] != near) continue;
    diag_primary_label(e->d, d, "nearest: \"%s\" (%d %s%s)", near, k.count.at[i],
                       i < layers ? "layer" : "parameter", k.count.at[i] == 1 ? "" : "s");
    break;
  }
  return false;
}
