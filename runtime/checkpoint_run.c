/* checkpoint_run.c - checkpoints of a running program and of a run's folder: save, restore, newest,
 * prune. */
#include "checkpoint.h"
#include "convert.h"
#include "variables.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- `only` ---- */

/* One selector as a shell pattern: `[*]` is any index of a layer array, {a,b} are alternatives. */
static char *shell_pattern(Arena *a, const char *s, size_t n) {
  Str out = {.arena = a};
  str_add(&out, "");
  int depth = 0;
  for (size_t i = 0; i < n; i++) {
    if (n - i >= 3 && !strncmp(s + i, "[*]", 3)) {
      str_add(&out, ".+([0-9])");
      i += 2;
    } else if (s[i] == '{') {
      str_add(&out, "@(");
      depth++;
    } else if (s[i] == '}') {
      str_add(&out, ")");
      depth--;
    } else if (s[i] == ',') {
      str_add(&out, "|"); /* separators between selectors were cut before */
    } else {
      str_add_n(&out, s + i, 1);
    }
  }
  return depth ? NULL : out.text;
}

/* Does a path match one of the selectors of a list "p, q"? Commas inside braces belong to their
 * selector. */
static bool matches_only(Arena *a, const char *only, const char *path) {
  int depth = 0;
  const char *start = only;
  for (const char *s = only;; s++) {
    depth += (*s == '{') - (*s == '}');
    if (*s && (*s != ',' || depth)) continue;
    while (start < s && *start == ' ') start++;
    const char *end = s;
    while (end > start && end[-1] == ' ') end--;
    char *pattern = shell_pattern(a, start, (size_t)(end - start));
    if (pattern && !fnmatch(pattern, path, FNM_EXTMATCH)) return true;
    if (!*s) return false;
    start = s + 1;
  }
}

static bool is_saved(Arena *a, const Program *p, const ProgramVar *v) {
  if (!variable_persists(v)) return false;
  if (!p->ckpt_only || v->role == PV_OPT || v->role == PV_STATE) return true;
  const ProgramVar *owner = v->of >= 0 ? &p->vars[v->of] : v;
  return matches_only(a, p->ckpt_only, owner->path);
}

/* ---- save and restore ---- */

typedef struct {
  Replay *replay;
  const int *var;
} Source;

static bool fetch_variable(void *context, int i, void *to, Fail *f) {
  Source *s = context;
  return replay_read(s->replay, &s->replay->program->vars[s->var[i]].at, to, f);
}

int64_t checkpoint_size(const Program *p) {
  Arena *a = arena_new();
  int64_t bytes = 0;
  for (int i = 0; i < p->nvars; i++)
    if (is_saved(a, p, &p->vars[i])) bytes += round_up(variable_bytes(&p->vars[i]), 64);
  arena_free(a);
  return bytes;
}

bool checkpoint_save(const char *path, const TrainState *s, Replay *r, Fail *f) {
  const Program *p = r->program;
  Arena *a = arena_new();
  StEntry *e = arena_array(a, StEntry, p->nvars + 1);
  int *var = arena_array(a, int, p->nvars + 1), n = 0;
  for (int i = 0; i < p->nvars; i++) {
    const ProgramVar *v = &p->vars[i];
    if (!is_saved(a, p, v)) continue;
    e[n] = (StEntry){.name = v->path, .dtype = (int)v->at.dtype, .rank = v->at.rank};
    memcpy(e[n].dim, v->at.dim, sizeof e[n].dim);
    var[n++] = i;
  }
  Source source = {r, var};
  bool ok = checkpoint_write(path, p->model, s, e, n, fetch_variable, &source, f);
  arena_free(a);
  return ok;
}

static bool same_shape(const ProgramVar *v, const StEntry *e) {
  return v->at.rank == e->rank && !memcmp(v->at.dim, e->dim, sizeof *e->dim * (size_t)e->rank) &&
         convert_possible(v->at.dtype, (DType)e->dtype);
}

/* Every variable that cannot be restored, in one failure. */
static bool check_fit(const Checkpoint *c, const Program *p, Arena *a, Fail *f) {
  Str lines = {.arena = a};
  int wrong = 0;
  for (int i = 0; i < p->nvars; i++) {
    const ProgramVar *v = &p->vars[i];
    const StEntry *e = checkpoint_find(c, v->path);
    if (!variable_persists(v) || (e && same_shape(v, e))) continue;
    bool frozen = v->role == PV_PARAM && !v->trainable;
    if (!e && frozen && p->ckpt_only) continue;
    if (wrong++ < 20)
      str_addf(&lines, "\n  %s  %s", e ? "another shape " : "missing       ", v->path);
  }
  if (!wrong) return true;
  return fail_page(
      f, EXIT_IO, "E0302",
      "%s does not fit this model: %d of its variables are missing or have another shape%s",
      c->path, wrong, lines.text);
}

bool checkpoint_restore(const Checkpoint *c, Replay *r, Fail *f) {
  const Program *p = r->program;
  Arena *a = arena_new();
  bool ok = check_fit(c, p, a, f);
  arena_free(a);
  for (int i = 0; i < p->nvars && ok; i++) {
    const ProgramVar *v = &p->vars[i];
    const StEntry *e = checkpoint_find(c, v->path);
    if (!variable_persists(v) || !e) continue;
    ok = variable_store(r, i, (DType)e->dtype, e->data, f);
    checkpoint_release(c, e);
  }
  return ok;
}

/* ---- a run's folder ---- */

char *checkpoint_path(Arena *a, const char *dir, int64_t step) {
  return arena_printf(a, "%s/step-%06lld.mtck", dir, (long long)step);
}

/* "step-000500.mtck" -> 500; -1 for other names. */
static int64_t step_of(const char *name) {
  long long step;
  int end = 0;
  if (sscanf(name, "step-%lld.mtck%n", &step, &end) != 1 || name[end] || !end || step < 0)
    return -1;
  return step;
}

static int by_step_down(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x < y ? 1 : x > y ? -1 : 0;
}

typedef VEC(int64_t) Steps;

/* Steps of the checkpoints in dir, newest first. */
static Steps list_steps(Arena *a, const char *dir) {
  Steps steps = {0};
  DIR *d = opendir(dir);
  for (struct dirent *e; d && (e = readdir(d));) {
    int64_t step = step_of(e->d_name);
    if (step >= 0) vec_push(a, &steps, step);
  }
  if (d) closedir(d);
  if (steps.n) qsort(steps.at, (size_t)steps.n, sizeof *steps.at, by_step_down);
  return steps;
}

Checkpoint *checkpoint_newest(const char *dir, Fail *f) {
  Arena *a = arena_new();
  Steps steps = list_steps(a, dir);
  Checkpoint *c = NULL;
  Fail why = {0};
  for (int i = 0; i < steps.n && !c; i++) {
    why = (Fail){0};
    c = checkpoint_open(checkpoint_path(a, dir, steps.at[i]), &why);
    if (!c) fprintf(stderr, "warning: passing over a checkpoint: %s\n", why.text);
  }
  if (!c && steps.n)
    fail_page(f, EXIT_IO, "E0601", "no checkpoint in %s can be read; the last: %s", dir, why.text);
  arena_free(a);
  return c;
}

void checkpoint_prune(const char *dir, int64_t step, int64_t keep) {
  Arena *a = arena_new();
  Steps steps = list_steps(a, dir);
  int64_t seen = 0;
  for (int i = 0; keep > 0 && i < steps.n; i++)
    if (steps.at[i] <= step && ++seen > keep) unlink(checkpoint_path(a, dir, steps.at[i]));
  DIR *d = opendir(dir);
  for (struct dirent *e; d && (e = readdir(d));)
    if (str_starts(e->d_name, "step-") && strstr(e->d_name, ".mtck.tmp-"))
      unlink(arena_printf(a, "%s/%s", dir, e->d_name));
  if (d) closedir(d);
  arena_free(a);
}
