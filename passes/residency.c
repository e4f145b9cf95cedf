/* residency.c - the choices of what lives on the host (see residency.h). Input: the job's variables, all of them, and
 * the most that may be pinned. Output: sets of variables, each larger than the one before.
 *
 * A class moves in parts: of a part of a class, the variables are spread evenly over the model, so that the copies are
 * spread over the program as well. */
#include "residency.h"

#include "plan.h"

/* Roles in the order in which they move; -1: never. */
static int rank_of(VarRole r) {
  switch (r) {
    case VAR_MOMENT: return 0;
    case VAR_MASTER: return 1;
    case VAR_ACCUM: return 2;
    case VAR_PARAM: return 3;
    default: return -1;
  }
}
enum { RANKS = 4, STATE_RANKS = 2 };

/* Parts that each class moves in. They do not depend on how much there is room for: more host memory only adds choices. */
static const int parts_of[RANKS] = {16, 16, 8, 4};

static int64_t placed_bytes(const Var *v) {
  return round_up(shape_bytes(&v->shape, v->dtype), PLAN_ALIGN);
}

/* A copy has a price of its own: what is smaller than this stays. */
static int64_t least_moved(const Vars *vars) {
  enum { OF_ALL = 4096, MOST = 1 << 20 };
  int64_t all = 0;
  for (int i = 0; i < vars->all.n; i++) all += placed_bytes(&vars->all.at[i]);
  return all / OF_ALL < MOST ? all / OF_ALL : MOST;
}

typedef struct {
  const Vars *vars;
  Arena *arena;
  int64_t least;
  const bool *absent;
} Moves;

static bool movable(const Moves *m, int var, int rank) {
  const Var *v = &m->vars->all.at[var];
  if (m->absent && m->absent[var]) return false;
  return rank_of(v->role) == rank && placed_bytes(v) >= m->least;
}

/* Everything of the ranks before `rank`, and `part` of `parts` of it. */
static Residency choice(const Moves *m, int rank, int part, int parts) {
  int n = m->vars->all.n;
  bool *host = arena_array(m->arena, bool, n + 1);
  Residency r = {.host = host, .absent = m->absent, .whole = part == 0 || part == parts};
  int64_t owed = 0; /* parts of bytes that should have moved */
  for (int i = 0; i < n; i++) {
    const Var *v = &m->vars->all.at[i];
    int64_t bytes = placed_bytes(v);
    int own = rank_of(v->role);
    if (m->absent && m->absent[i]) continue;
    if (own >= 0 && own < rank) host[i] = movable(m, i, own);
    if (own == rank && movable(m, i, own)) {
      owed += bytes * part;
      host[i] = owed * 2 >= bytes * parts;
      if (host[i]) owed -= bytes * parts;
    }
    *(host[i] ? &r.host_bytes : &r.device_bytes) += bytes;
    r.variables += host[i];
    r.micro |= host[i] && own >= STATE_RANKS;
  }
  return r;
}

/* False when there is no room for it. */
static bool add(Residencies *out, const Moves *m, Residency r, int64_t most) {
  if (r.host_bytes > most) return false;
  if (out->n > 0 && out->at[out->n - 1].host_bytes >= r.host_bytes) return true; /* nothing of the class to move */
  Residency *more = arena_array(m->arena, Residency, out->n + 1);
  for (int i = 0; i < out->n; i++) more[i] = out->at[i];
  more[out->n++] = r;
  out->at = more;
  return true;
}

static Residencies list_of(const Job *job, const Moves *m, int64_t host_bytes) {
  Residencies out = {0};
  bool on_host = job->memory.optimizer == 1, on_device = job->memory.optimizer == 0;
  if (!on_host) {
    add(&out, m, choice(m, 0, 0, 1), host_bytes);
    if (on_device || host_bytes <= 0) return out;
  } else {
    Residency least = choice(m, STATE_RANKS, 0, 1);
    out.least_bytes = least.host_bytes;
    add(&out, m, least, host_bytes);
  }
  bool room = out.n > 0;
  for (int rank = on_host ? STATE_RANKS : 0; rank < RANKS && room; rank++)
    for (int part = 1; part <= parts_of[rank] && room; part++)
      room = add(&out, m, choice(m, rank, part, parts_of[rank]), host_bytes);
  return out;
}

Residencies residency_list(const Job *job, Arena *a, int64_t host_bytes, const bool *absent) {
  Moves m = {.vars = job->vars, .arena = a, .least = least_moved(job->vars)};
  Residencies all = list_of(job, &m, host_bytes);
  if (!absent) return all;
  m.absent = absent;
  Residencies early = list_of(job, &m, host_bytes);
  Residency *both = arena_array(a, Residency, all.n + early.n + 1);
  for (int i = 0; i < all.n + early.n; i++) both[i] = i < all.n ? all.at[i] : early.at[i - all.n];
  all.at = both;
  all.n += early.n;
  return all;
}
