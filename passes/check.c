/* check.c - the independent proof of a plan: what each step reads and writes. check_space.c proves
 * that buffers lie apart. Input: a Plan. Output: NULL or the first fault as a sentence.
 *
 * Shares nothing with storage.c and assemble.c: it believes the graph, the clusters' node lists and
 * what the plan claims to do, replays every step over the arena, and keeps for each buffer which
 * value's elements lie where. Proved: buffers alive together never overlap; each access stays
 * inside a living buffer; each read finds the wanted value, element for element (at the corners,
 * unit steps and some inner points of its index space), as last written; variables are assigned
 * once and in order; the first micro-batch of a step writes the accumulators and reads none before;
 * what lives on the host is used in stages that hold its newest content (check_copies.c); an output
 * touches an input of its own step only where element by element is safe. */
#include "check.h"

#include <string.h>

/* Elements of a value in a buffer: byte address = offset + sum(i * step). */
typedef struct Region {
  ValueId value;
  int64_t offset;
  int rank, size;
  int64_t dim[MAX_RANK], step[MAX_RANK]; /* step in bytes */
  struct Region *next;
} Region;

typedef struct {
  const Plan *p;
  const PlanProgram *prog;
  const Graph *g;
  Arena *a;
  int program, step;
  bool fresh;    /* the first micro-batch of a step: accumulators hold nothing when it begins */
  Region **held; /* per buffer */
  int *assigned; /* per variable: assigns done so far */
  int *ordinal;  /* per node: VAR, ASSIGN: assigns of its variable that stand before it */
  int *mark;     /* per node: last step that computes it */
  Copying copies;
  const char *why;
} Replay;

static bool fail(Replay *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool fail(Replay *r, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  const char *what = arena_vprintf(r->a, fmt, ap);
  va_end(ap);
  const char *at = r->step >= 0 && r->step < r->prog->nsteps
                       ? r->prog->clusters.at[r->prog->steps[r->step].cluster].name
                       : "end";
  r->why = arena_printf(r->a, "program %s, step %d (%s): %s", r->prog->name, r->step, at ? at : "?",
                        what);
  return false;
}

/* ---- regions ---- */

static Region region_of(const Graph *g, ValueId v, const Storage *s) {
  const Value *x = val(g, v);
  Region r = {.value = v, .offset = s->offset, .size = dtype_bytes(x->dtype)};
  for (int k = 0; k < x->shape.rank; k++) {
    if (x->shape.dim[k] == 1) continue;
    r.dim[r.rank] = x->shape.dim[k];
    r.step[r.rank++] = s->stride[k] * r.size;
  }
  return r;
}

static void bounds(const Region *r, int64_t *lo, int64_t *hi) {
  *lo = *hi = r->offset;
  for (int k = 0; k < r->rank; k++) *(r->step[k] < 0 ? lo : hi) += r->step[k] * (r->dim[k] - 1);
  *hi += r->size;
}

/* The bytes of r modulo `period` as one interval that does not wrap; false when it is none. */
static bool interval_mod(const Region *r, int64_t period, int64_t *lo, int64_t *hi) {
  int64_t extent = r->size;
  for (int k = 0; k < r->rank; k++) {
    if (r->step[k] % period == 0) continue;
    if (r->step[k] < 0 || r->step[k] > period) return false;
    extent += r->step[k] * (r->dim[k] - 1);
  }
  *lo = r->offset % period;
  *hi = *lo + extent;
  return *hi <= period;
}

static bool overlap(const Region *a, const Region *b) {
  int64_t a0, a1, b0, b1;
  bounds(a, &a0, &a1);
  bounds(b, &b0, &b1);
  if (a1 <= b0 || b1 <= a0) return false;
  for (int k = 0; k < a->rank; k++) {
    if (a->step[k] <= 0) continue;
    if (interval_mod(a, a->step[k], &a0, &a1) && interval_mod(b, a->step[k], &b0, &b1) &&
        (a1 <= b0 || b1 <= a0))
      return false;
  }
  return true;
}

static bool same_region(const Region *a, const Region *b) {
  return a->offset == b->offset && a->size == b->size && a->rank == b->rank &&
         !memcmp(a->dim, b->dim, sizeof a->dim) && !memcmp(a->step, b->step, sizeof a->step);
}

static const Region *held_value(const Replay *r, int buf, ValueId v) {
  for (const Region *x = r->held[buf]; x; x = x->next)
    if (x->value == v) return x;
  return NULL;
}

static void hold(Replay *r, int buf, const Region *w) {
  Region **at = &r->held[buf];
  while (*at) {
    if (overlap(*at, w)) {
      *at = (*at)->next;
    } else {
      at = &(*at)->next;
    }
  }
  Region *x = arena_copy(r->a, w, sizeof *w);
  x->next = r->held[buf];
  r->held[buf] = x;
}

/* ---- access ---- */

/* The buffer that holds variable var for this step: its own, or a stage of it where it lives on the host. */
static bool holds_variable(const Replay *r, int buf, int var) {
  const PlanBuf *b = &r->p->bufs.at[buf];
  int home = r->p->var_buf[var];
  if (home < 0 || r->p->bufs.at[home].space == SPACE_DEVICE) return home == buf;
  return b->var == var && b->space == SPACE_DEVICE && b->program == r->program;
}

static bool is_stage(const Replay *r, int buf) {
  return r->p->bufs.at[buf].program >= 0 && r->p->bufs.at[buf].var >= 0;
}

static bool access_ok(Replay *r, ValueId v, const Storage *s, const char *what) {
  if (s->buf < 0 || s->buf >= r->p->bufs.n) return fail(r, "%s of value %d has no buffer", what, v);
  const PlanBuf *b = &r->p->bufs.at[s->buf];
  Region x = region_of(r->g, v, s);
  int64_t lo, hi;
  bounds(&x, &lo, &hi);
  if (lo < 0 || hi > b->bytes)
    return fail(r, "%s of value %d touches bytes %lld..%lld of buffer %s, which has %lld", what, v,
                (long long)lo, (long long)hi, b->name, (long long)b->bytes);
  if (b->space != SPACE_DEVICE) return fail(r, "%s of value %d is on the host", what, v);
  if (b->program >= 0 && b->program != r->program)
    return fail(r, "buffer %s is of another program", b->name);
  if (b->program >= 0 && r->step < r->prog->nsteps && (r->step < b->first || r->step > b->last))
    return fail(r, "%s of value %d in buffer %s, which lives in steps %d..%d only", what, v,
                b->name, b->first, b->last);
  return true;
}

/* One step from an element of v towards what it is a view or part of. False: v is neither. */
static bool towards_source(const Graph *g, ValueId *v, int64_t *idx) {
  const Node *n = node_of(g, *v);
  const Shape *y = &val(g, *v)->shape;
  const int64_t *list;
  int64_t from[MAX_RANK] = {0};
  ValueId src = n->nin > 0 ? n->in[0] : -1;
  if (n->op == OP_BROADCAST) {
    int len = node_list(n, "axes", &list);
    for (int k = 0; k < len; k++) from[k] = val(g, src)->shape.dim[k] == 1 ? 0 : idx[list[k]];
  } else if (n->op == OP_TRANSPOSE) {
    int len = node_list(n, "perm", &list);
    for (int k = 0; k < len; k++) from[list[k]] = idx[k];
  } else if (n->op == OP_SLICE) {
    int len = node_list(n, "start", &list);
    for (int k = 0; k < len; k++) from[k] = idx[k] + list[k];
  } else if (n->op == OP_RESHAPE) {
    int64_t flat = 0;
    for (int k = 0; k < y->rank; k++) flat = flat * y->dim[k] + idx[k];
    const Shape *x = &val(g, src)->shape;
    for (int k = x->rank - 1; k >= 0; k--) {
      from[k] = flat % x->dim[k];
      flat /= x->dim[k];
    }
  } else if (n->op == OP_CONCAT) {
    int axis = (int)node_int(n, "axis"), part = 0;
    memcpy(from, idx, sizeof from);
    while (from[axis] >= val(g, n->in[part])->shape.dim[axis])
      from[axis] -= val(g, n->in[part++])->shape.dim[axis];
    src = n->in[part];
  } else {
    return false;
  }
  *v = src;
  memcpy(idx, from, sizeof from);
  return true;
}

static int64_t address(const Graph *g, ValueId v, const Storage *s, const int64_t *idx) {
  int64_t elements = 0;
  for (int k = 0; k < val(g, v)->shape.rank; k++) elements += idx[k] * s->stride[k];
  return s->offset + elements * dtype_bytes(val(g, v)->dtype);
}

static int64_t region_address(const Graph *g, const Region *x, const int64_t *idx) {
  int64_t at = x->offset;
  const Shape *s = &val(g, x->value)->shape;
  for (int k = 0, j = 0; k < s->rank; k++)
    if (s->dim[k] != 1) at += idx[k] * x->step[j++];
  return at;
}

/* Element idx of v, read at s, is what was last written there. */
static bool element_ok(Replay *r, ValueId v, const Storage *s, const int64_t *at_idx) {
  int64_t idx[MAX_RANK] = {0};
  memcpy(idx, at_idx, sizeof idx);
  int64_t want = address(r->g, v, s, idx);
  ValueId x = v;
  int buf = s->buf; /* that it was written to */
  if (r->copies.saves[buf]) {
    const char *why;
    buf = copying_source(&r->copies, buf, r->a, &why);
    if (why) return fail(r, "%s", why);
  }
  const Region *found = NULL;
  while (!(found = held_value(r, buf, x)) && towards_source(r->g, &x, idx)) {
  }
  const Node *n = node_of(r->g, x);
  if (n->op == OP_VAR) { /* a variable's own bytes, in row-major order */
    int var = (int)node_int(n, "var");
    if (!holds_variable(r, s->buf, var))
      return fail(r, "value %d is read from buffer %d, not from its variable", v, s->buf);
    const char *why = is_stage(r, s->buf) ? copying_read(&r->copies, s->buf, r->assigned[var], r->a) : NULL;
    if (why) return fail(r, "%s", why);
    if (r->fresh && r->assigned[var] == 0 && r->g->vars->all.at[var].role == VAR_ACCUM)
      return fail(r, "accumulator %s is read before the step has written it", r->g->vars->all.at[var].path);
    if (r->assigned[var] != r->ordinal[val(r->g, x)->def])
      return fail(r, "variable %s is read after %d assigns, wanted after %d",
                  r->g->vars->all.at[var].path, r->assigned[var], r->ordinal[val(r->g, x)->def]);
    int64_t flat = 0;
    const Shape *sh = &val(r->g, x)->shape;
    for (int k = 0; k < sh->rank; k++) flat = flat * sh->dim[k] + idx[k];
    if (flat * dtype_bytes(val(r->g, x)->dtype) != want)
      return fail(r, "value %d is read at the wrong place of its variable", v);
    return true;
  }
  if (!found)
    return fail(r, "reads value %d (%s at %s) from buffer %s, which does not hold it", v,
                op_name(n->op), n->path, r->p->bufs.at[s->buf].name);
  if (region_address(r->g, found, idx) != want)
    return fail(r, "reads value %d at other addresses than value %d was written to", v, x);
  return true;
}

/* Corners, unit steps and a few inner points; for concats, the first and last element of each part.
 */
static bool read_ok(Replay *r, ValueId v, const Storage *s) {
  if (!access_ok(r, v, s, "a read")) return false;
  const Shape *sh = &val(r->g, v)->shape;
  int64_t idx[MAX_RANK] = {0};
  uint64_t random = 88172645463325252u;
  if (!element_ok(r, v, s, idx)) return false;
  for (int k = 0; k < sh->rank; k++) {
    int64_t points[] = {1, sh->dim[k] / 2, sh->dim[k] - 1};
    for (int j = 0; j < 3; j++) {
      idx[k] = points[j] < sh->dim[k] ? points[j] : 0;
      if (idx[k] > 0 && !element_ok(r, v, s, idx)) return false;
    }
    idx[k] = 0;
  }
  for (int j = 0; j < 6; j++) {
    for (int k = 0; k < sh->rank; k++) {
      random ^= random << 13, random ^= random >> 7, random ^= random << 17;
      idx[k] = (int64_t)(random % (uint64_t)sh->dim[k]);
    }
    if (sh->rank > 0 && !element_ok(r, v, s, idx)) return false;
  }
  const Node *n = node_of(r->g, v);
  if (n->op != OP_CONCAT || held_value(r, s->buf, v)) return true;
  int axis = (int)node_int(n, "axis");
  memset(idx, 0, sizeof idx);
  for (int k = 0; k < n->nin; k++) {
    if (!element_ok(r, v, s, idx)) return false;
    idx[axis] += val(r->g, n->in[k])->shape.dim[axis] - 1;
    if (!element_ok(r, v, s, idx)) return false;
    idx[axis]++;
  }
  return true;
}

/* ---- one step ---- */

static int position(const Cluster *c, NodeId n) {
  for (int i = 0; i < c->nnodes; i++)
    if (c->nodes[i] == n) return i;
  return -1;
}

/* Writing out[o] over in[i] of the same storage is safe when every use of the input reads, at each
 * point of the loop, the element that the output stores there; a reduction over whole rows has read
 * them before the row is stored. */
static bool in_place_safe(const Replay *r, const Cluster *c, int o, int i) {
  if (c->accumulate && o == 0) return true;
  int def = position(c, val(r->g, c->out[o])->def);
  if (c->kind != CL_LOOP) return false;
  int rank = val(r->g, c->in[i])->shape.rank;
  for (int k = 0; k < c->nnodes; k++) {
    const Node *n = node_at(r->g, c->nodes[k]);
    for (int j = 0; j < n->nin; j++) {
      if (n->in[j] != c->in[i] || n->op == OP_ASSIGN) continue;
      if (op_kind(n->op) == REDUCE && rank == c->space.rank) continue;
      if (op_kind(n->op) != ELEM || (n->op == OP_GATHER && j == 0)) return false;
      if (def >= 0 && memcmp(c->node_axes[k].axes, c->node_axes[def].axes, (size_t)rank))
        return false;
    }
  }
  return true;
}

static bool outputs_apart(Replay *r, const Cluster *c, const PlanStep *s) {
  for (int o = 0; o < c->nout; o++) {
    Region w = region_of(r->g, c->out[o], &s->out[o]);
    for (int k = 0; k < o; k++) {
      Region x = region_of(r->g, c->out[k], &s->out[k]);
      if (s->out[k].buf == s->out[o].buf && overlap(&w, &x))
        return fail(r, "outputs %d and %d overlap", k, o);
    }
    for (int k = 0; k < c->nin; k++) {
      Region x = region_of(r->g, c->in[k], &s->in[k]);
      if (s->in[k].buf != s->out[o].buf || !overlap(&w, &x)) continue;
      if (!same_region(&w, &x) || !in_place_safe(r, c, o, k))
        return fail(r, "output %d (value %d) overwrites input value %d while it is read", o,
                    c->out[o], c->in[k]);
    }
  }
  return true;
}

/* Variables that the step's nodes read are at the version that the graph means; assigns come in
 * order. */
static bool variables_ok(Replay *r, const Cluster *c) {
  for (int i = 0; i < c->nnodes; i++) {
    const Node *n = node_at(r->g, c->nodes[i]);
    for (int k = 0; k < n->nin; k++) {
      NodeId def = val(r->g, n->in[k])->def;
      if (node_at(r->g, def)->op != OP_VAR) continue;
      int var = (int)node_int(node_at(r->g, def), "var");
      if (r->ordinal[def] != r->assigned[var])
        return fail(r, "variable %s is read after %d assigns, wanted after %d",
                    r->g->vars->all.at[var].path, r->assigned[var], r->ordinal[def]);
    }
  }
  for (int i = 0; i < c->nnodes; i++) {
    const Node *n = node_at(r->g, c->nodes[i]);
    if (n->op != OP_ASSIGN) continue;
    int var = (int)node_int(n, "var");
    if (r->ordinal[c->nodes[i]] != r->assigned[var])
      return fail(r, "assign %d of variable %s runs as number %d", r->ordinal[c->nodes[i]] + 1,
                  r->g->vars->all.at[var].path, r->assigned[var] + 1);
    r->assigned[var]++;
    int o = 0;
    while (o < c->nout && c->out_var[o] != var) o++;
    if (o == c->nout)
      return fail(r, "variable %s is assigned but no output goes there",
                  r->g->vars->all.at[var].path);
  }
  return true;
}

static bool step_ok(Replay *r, int index) {
  r->step = index;
  const PlanStep *s = &r->prog->steps[index];
  const Cluster *c = &r->prog->clusters.at[s->cluster];
  for (int k = 0; k < c->nin; k++)
    if (!read_ok(r, c->in[k], &s->in[k])) return false;
  for (int k = 0; k < c->nnodes; k++) r->mark[c->nodes[k]] = index + 1;
  for (int k = 0; k < c->nnodes; k++) {
    const Node *n = node_at(r->g, c->nodes[k]);
    for (int j = 0; j < n->nin; j++) {
      bool given = r->mark[val(r->g, n->in[j])->def] == index + 1;
      for (int i = 0; i < c->nin && !given; i++) given = c->in[i] == n->in[j];
      if (!given && !c->accumulate)
        return fail(r, "node %d needs value %d, which is no input", c->nodes[k], n->in[j]);
    }
  }
  for (int k = 0; k < c->nout; k++) {
    if (!access_ok(r, c->out[k], &s->out[k], "a write")) return false;
    if (c->out_var[k] >= 0 &&
        (!holds_variable(r, s->out[k].buf, c->out_var[k]) || s->out[k].offset != 0))
      return fail(r, "output %d does not lie in its variable", k);
    if (c->out_var[k] < 0 && (r->p->bufs.at[s->out[k].buf].program < 0 || is_stage(r, s->out[k].buf)))
      return fail(r, "output %d lies in a persistent buffer that it is not assigned to", k);
  }
  if (c->workspace > 0) {
    if (s->workspace < 0 || r->p->bufs.at[s->workspace].bytes < c->workspace)
      return fail(r, "has no workspace");
    const PlanBuf *w = &r->p->bufs.at[s->workspace];
    if (w->program != r->program || index < w->first || index > w->last)
      return fail(r, "workspace is not alive");
    for (int k = 0; k < c->nin + c->nout; k++)
      if ((k < c->nin ? s->in[k].buf : s->out[k - c->nin].buf) == s->workspace)
        return fail(r, "workspace is also an operand");
  }
  if (!outputs_apart(r, c, s) || !variables_ok(r, c)) return false;
  for (int k = 0; k < c->nout; k++) {
    Region w = region_of(r->g, c->out[k], &s->out[k]);
    hold(r, s->out[k].buf, &w);
    const char *why = NULL;
    if (is_stage(r, s->out[k].buf)) why = copying_write(&r->copies, s->out[k].buf, r->assigned[c->out_var[k]], r->a);
    if (r->copies.saves[s->out[k].buf]) why = copying_make(&r->copies, s->out[k].buf, r->a);
    if (why) return fail(r, "%s", why);
  }
  return true;
}

static bool program_ok(Replay *r) {
  const PlanProgram *x = r->prog;
  bool *ran = arena_array(r->a, bool, x->clusters.n + 1);
  memset(r->held, 0, sizeof *r->held * (size_t)(r->p->bufs.n + 1));
  int *seen = r->assigned;
  memset(seen, 0, sizeof *seen * (size_t)(r->g->vars->all.n + 1));
  for (NodeId n = 0; n < r->g->nodes.n; n++) {
    const Node *d = node_at(r->g, n);
    if (d->op == OP_VAR) r->ordinal[n] = seen[node_int(d, "var")];
    if (d->op == OP_ASSIGN) r->ordinal[n] = seen[node_int(d, "var")]++;
  }
  memset(seen, 0, sizeof *seen * (size_t)(r->g->vars->all.n + 1));
  r->step = 0;
  r->copies = copying_begin(r->p, r->program, r->fresh, r->a);
  for (int i = 0; i < x->ninputs; i++) {
    if (!access_ok(r, x->inputs[i].value, &x->inputs[i].at, "an input")) return false;
    Region w = region_of(r->g, x->inputs[i].value, &x->inputs[i].at);
    hold(r, x->inputs[i].at.buf, &w);
  }
  for (int s = 0; s < x->nsteps; s++) {
    r->step = s;
    const char *why = copying_boundary(&r->copies, s, r->a);
    if (why) return fail(r, "%s", why);
    if (!step_ok(r, s)) return false;
    ran[x->steps[s].cluster] = true;
  }
  for (int i = 0; i < x->clusters.n; i++)
    if (!ran[i]) return fail(r, "cluster %s never runs", x->clusters.at[i].name);
  r->step = x->nsteps;
  const char *why = copying_boundary(&r->copies, x->nsteps, r->a);
  if (!why && r->copies.begun < x->ncopies) why = "a copy begins after the end";
  if (!why) why = copying_end(&r->copies, r->assigned, r->a);
  if (why) return fail(r, "%s", why);
  for (int i = 0; i < x->nresults; i++)
    if (!read_ok(r, x->results[i].value, &x->results[i].at)) return false;
  return true;
}

/* The phase whose steps begin with the program; NULL: none. */
static const PlanPhase *phase_begun(const Plan *p, int program) {
  for (int i = 0; i < p->phases.n; i++)
    if (phase_first(&p->phases.at[i]) == program) return &p->phases.at[i];
  return NULL;
}

/* All accumulators that the phase's update reads were written. */
static bool accumulators_ok(Replay *r, const PlanPhase *ph) {
  if (ph->programs[PROG_UPDATE] < 0) return true;
  const Graph *update = r->p->programs.at[ph->programs[PROG_UPDATE]].clusters.g;
  for (NodeId n = 0; n < update->nodes.n; n++) {
    const Node *x = node_at(update, n);
    int var = x->op == OP_VAR ? (int)node_int(x, "var") : -1;
    if (var >= 0 && update->vars->all.at[var].role == VAR_ACCUM && r->assigned[var] == 0)
      return fail(r, "accumulator %s is left as the step before had it", update->vars->all.at[var].path);
  }
  return true;
}

const char *plan_check(const Plan *p, Arena *a) {
  Arena *scratch = arena_new();
  const char *why = check_buffers(p, scratch);
  for (int i = 0; i < p->programs.n && !why; i++) {
    const PlanProgram *x = &p->programs.at[i];
    Replay r = {.p = p, .prog = x, .g = x->clusters.g, .a = scratch, .program = i};
    r.held = arena_array(scratch, Region *, p->bufs.n + 1);
    r.assigned = arena_array(scratch, int, r.g->vars->all.n + 1);
    r.ordinal = arena_array(scratch, int, r.g->nodes.n + 1);
    r.mark = arena_array(scratch, int, r.g->nodes.n + 1);
    const PlanPhase *begun = phase_begun(p, i);
    r.fresh = begun != NULL;
    if (!program_ok(&r) || (begun && !accumulators_ok(&r, begun))) why = r.why;
  }
  if (why) why = arena_printf(a, "%s", why);
  arena_free(scratch);
  return why;
}
