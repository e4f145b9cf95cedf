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

static bool check_op(Elab *e, const char *pattern, Loc at) {
  const char *name = pattern + strlen("op:");
  if (strpbrk(name, "*{[") || builtin_find(intern(name))) return true;
  Diag *d = diag_error(e->d, E_NO_MATCH, at, "selector \"%s\" names no operation", pattern);
  const char *near = builtin_nearest(name);
  if (near) diag_primary_label(e->d, d, "nearest: \"op:%s\"", near);
  return false;
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
