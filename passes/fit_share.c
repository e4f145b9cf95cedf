/* fit_share.c - families of one job taken over by another whose micro-batches are the same programs: jobs that differ in
 * the formats of masters and moments, which no micro-batch touches (see fit.h).
 *
 * Input: a pool of the other job. Output: its families and its sample, with this job's numbers of variables. Variables that
 * only building graphs adds are added here, in the same order. */
#include "fit.h"

/* Kept from one micro-batch to the next by the update alone. */
static bool is_state(const Var *v) {
  return v->role == VAR_MASTER || v->role == VAR_MOMENT;
}

static bool same_variable(const Var *a, const Var *b) {
  return a->role == b->role && a->dtype == b->dtype && a->trainable == b->trainable &&
         shape_equal(&a->shape, &b->shape);
}

static int count_others(const Vars *vars) {
  int n = 0;
  for (int i = 0; i < vars->all.n; i++) n += !is_state(&vars->all.at[i]);
  return n;
}

static void add_missing(Vars *to, const Vars *from, int *number) {
  for (int i = 0; i < from->all.n; i++) {
    if (is_state(&from->all.at[i]) || number[i] >= 0) continue;
    Var v = from->all.at[i];
    if (v.of >= 0) v.of = number[v.of];
    number[i] = var_add(to, v);
  }
}

int *fit_same_variables(const Vars *from, Vars *to, Arena *a) {
  int *number = arena_array(a, int, from->all.n + 1), found = 0;
  for (int i = 0; i < from->all.n; i++) {
    const Var *v = &from->all.at[i];
    number[i] = is_state(v) ? -1 : var_find(to, v->path);
    if (number[i] < 0) continue;
    if (!same_variable(v, &to->all.at[number[i]])) return NULL;
    found++;
  }
  if (found < count_others(to)) return NULL;
  add_missing(to, from, number);
  return number;
}

static const Built *renumbered(const Built *b, const int *number, int nvars, Arena *a) {
  if (!b) return NULL;
  Built *own = arena_copy(a, b, sizeof *b);
  own->map.unit = arena_copy(a, b->map.unit, sizeof *b->map.unit * (size_t)b->map.nunits);
  own->map.overwritten = arena_array(a, bool, nvars + 1);
  own->first = renumbered(b->first, number, nvars, a);
  for (int u = 0; u < b->map.nunits; u++) {
    int var = b->map.unit[u].var;
    if (var < 0) continue;
    ensure(number[var] >= 0, "fit: a micro-batch uses variable %d, which is the update's", var);
    own->map.unit[u].var = number[var];
    own->map.overwritten[number[var]] = b->map.overwritten[var];
  }
  return own;
}

/* Only reads what it takes: the traces, which a family may add to, are its own. */
void fit_take_families(const PhasePool *from, const int *number, int nvars, bool squares, Arena *a,
                       PhasePool *to) {
  for (int i = 0; i < from->families.n; i++) {
    Family f = from->families.at[i];
    if (f.cut.kind == MICRO_UPDATES || (f.cut.kind == MICRO_SQUARES && !squares)) continue;
    bool alone = f.micro[0] == f.micro[1];
    f.micro[0] = renumbered(f.micro[0], number, nvars, a);
    f.micro[1] = alone ? f.micro[0] : renumbered(f.micro[1], number, nvars, a);
    f.traces.at = arena_copy(a, f.traces.at, sizeof *f.traces.at * (size_t)f.traces.n);
    f.traces.cap = f.traces.n;
    vec_push(a, &to->families, f);
  }
  to->sample = renumbered(from->sample, number, nvars, a);
}
