/* plan_text.c - a plan as text for tools and eyes: every buffer and step, and minimalloc's CSV.
 * Input: a Plan. */
#include "assemble.h"

static void print_storage(const Plan *p, const Graph *g, ValueId v, const Storage *s, FILE *to) {
  const Value *x = val(g, v);
  fprintf(to, " %%%d:%s@%lld", v, dtype_name(x->dtype),
          (long long)(p->bufs.at[s->buf].offset + s->offset));
}

static void print_step(const Plan *p, const PlanProgram *x, int index, FILE *to) {
  const PlanStep *s = &x->steps[index];
  const Cluster *c = &x->clusters.at[s->cluster];
  fprintf(to, "  %d %s%s  %lld ns ", index, s->recomputed ? "again " : "", c->name,
          (long long)c->ns);
  for (int k = 0; k < c->nin; k++) print_storage(p, x->clusters.g, c->in[k], &s->in[k], to);
  fputs(" ->", to);
  for (int k = 0; k < c->nout; k++) print_storage(p, x->clusters.g, c->out[k], &s->out[k], to);
  if (s->workspace >= 0)
    fprintf(to, " workspace @%lld", (long long)p->bufs.at[s->workspace].offset);
  fputc('\n', to);
}

void plan_print(const Plan *p, FILE *to) {
  fprintf(to, "plan %08x  target %s  arena %lld  persistent %lld  peak %lld\n",
          (unsigned)(p->id >> 32), p->target->name, (long long)p->arena_bytes,
          (long long)p->persistent_bytes, (long long)p->peak_bytes);
  fputs("# buffer: class bytes @offset, steps of program\n", to);
  for (int i = 0; i < p->bufs.n; i++) {
    const PlanBuf *b = &p->bufs.at[i];
    fprintf(to, "buffer %d %s %s %lld @%lld", i, b->name, buf_class_json(b->cls),
            (long long)b->bytes, (long long)b->offset);
    if (b->program >= 0) fprintf(to, " %d..%d of %d", b->first, b->last, b->program);
    fputc('\n', to);
  }
  for (int i = 0; i < p->programs.n; i++) {
    const PlanProgram *x = &p->programs.at[i];
    fprintf(to, "program %d %s  %d steps  transient %lld  bound %lld\n", i, x->name, x->nsteps,
            (long long)x->transient_bytes, (long long)x->liveness_bytes);
    for (int s = 0; s < x->nsteps; s++) print_step(p, x, s, to);
  }
}

void plan_print_csv(const Plan *p, int program, FILE *to) {
  fputs("id,lower,upper,size,offset\n", to);
  for (int i = 0; i < p->bufs.n; i++) {
    const PlanBuf *b = &p->bufs.at[i];
    if (b->program != program || b->space != SPACE_DEVICE) continue;
    fprintf(to, "%d,%d,%d,%lld,%lld\n", i, b->first, b->last + 1, (long long)b->bytes,
            (long long)(b->offset - p->persistent_bytes));
  }
}
