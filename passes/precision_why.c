/* precision_why.c - the reasons of dtypes, in words: the decisions of precision.c in the order in
 * which it takes them (see precision.h). */
#include "precision.h"

static const char *by_rule(const Job *job, const PrecRule *r, Arena *a) {
  const char *at = loc_text(job->diags, a, r->loc);
  return arena_printf(a, "by \"%s\"%s%s", r->pattern, *at ? " at " : "", at);
}

static const char *compute_name(const Precision *p) {
  if (p->compute < 0) return "auto";
  return p->compute == DT_F32 && p->tf32 ? "tf32" : dtype_name((DType)p->compute);
}

/* What the setting says, or why it was chosen. */
static const char *by_compute(const Job *job, Arena *a) {
  const Precision *p = &job->precision;
  const FormatChoice *c = &p->choice[FMT_COMPUTE];
  if (c->open && c->why) return arena_printf(a, "by `compute = auto`: %s", c->why);
  return arena_printf(a, "by `compute = %s`", c->open ? "auto" : compute_name(p));
}

/* What is not as the settings say. */
static const char *class_of(const Precision *p, const Node *n, const Value *v, Arena *a) {
  if (n->op == OP_ATTENTION) return "f32: statistics of attention";
  if (n->tag_id) return arena_printf(a, "f32: inside of `%s`, which is f32 throughout", n->tag);
  if (op_kind(n->op) == REDUCE) return "f32: a sum";
  if (p->compute == DT_F16) return "f32: of the residual stream, where f16 would overflow";
  return arena_printf(a, "%s: as what it is made of", dtype_name(v->dtype));
}

const char *precision_why(const Job *job, const Node *n, const Value *v, Arena *a) {
  if (!dtype_is_float(v->dtype)) return NULL;
  const Precision *p = &job->precision;
  if (!v->shape.rank) return "f32: a single number";
  const PrecRule *r = precision_rule(p, n->path, n->tag ? n->tag : op_name(n->op));
  if (r && r->dtype == (int)v->dtype) return by_rule(job, r, a);
  DType compute = p->compute < 0 ? DT_BF16 : (DType)p->compute;
  return v->dtype == compute ? by_compute(job, a) : class_of(p, n, v, a);
}

const char *precision_why_stored(const Job *job, int var, Arena *a) {
  const Precision *p = &job->precision;
  const Var *v = &job->vars->all.at[var];
  if (!trained_ever(job, var) && p->frozen != PREC_AUTO && p->frozen != p->compute)
    return arena_printf(a, "by `frozen = %s`", dtype_name((DType)p->frozen));
  const PrecRule *r = precision_rule(p, v->path, NULL);
  return r && r->dtype >= 0 ? by_rule(job, r, a) : by_compute(job, a);
}
