/* program_tables.c - what a program says of its job: variables, phases, data, weights, evaluation,
 * checkpoints. */
#include <math.h>
#include <string.h>

#include "program.h"

/* The runtime knows the graph's and the job's enums by number. */
_Static_assert((int)PV_PARAM == (int)VAR_PARAM && (int)PV_STATE == (int)VAR_STATE &&
                   (int)PV_MASTER == (int)VAR_MASTER && (int)PV_MOMENT == (int)VAR_MOMENT &&
                   (int)PV_ACCUM == (int)VAR_ACCUM && (int)PV_SCALAR == (int)VAR_SCALAR &&
                   (int)PV_METRIC == (int)VAR_METRIC && (int)PV_OPT == (int)VAR_OPT,
               "variable roles");

Tensor program_tensor(const Plan *p, const Storage *at, const Shape *s, DType t) {
  const PlanBuf *b = &p->bufs.at[at->buf];
  Tensor out = {.offset = b->offset + at->offset, .host = b->space == SPACE_HOST, .dtype = t, .rank = s->rank};
  memcpy(out.dim, s->dim, sizeof *out.dim * (size_t)s->rank);
  memcpy(out.stride, at->stride, sizeof *out.stride * (size_t)s->rank);
  /* An axis of one element has no stride; files want none that could lead outside. */
  for (int k = 0; k < s->rank; k++)
    if (s->dim[k] == 1) out.stride[k] = 0;
  return out;
}

/* Per variable of the job: its number in the program; -1 for what no program uses. */
static int *numbers(const Plan *p, Program *out) {
  const Vars *vars = p->job->vars;
  int *number = arena_array(out->arena, int, vars->all.n + 1);
  for (int i = 0; i < vars->all.n; i++) number[i] = p->var_buf[i] >= 0 ? out->nvars++ : -1;
  return number;
}

static void variables(const Plan *p, const int *number, Program *out) {
  const Vars *vars = p->job->vars;
  out->vars = arena_array(out->arena, ProgramVar, out->nvars + 1);
  for (int i = 0; i < vars->all.n; i++) {
    const Var *v = &vars->all.at[i];
    Storage at = {.buf = p->var_buf[i]};
    if (number[i] < 0) continue;
    shape_strides(&v->shape, at.stride);
    out->vars[number[i]] =
        (ProgramVar){.path = v->path,
                     .role = (ProgramVarRole)v->role,
                     .at = program_tensor(p, &at, &v->shape, v->dtype),
                     .trainable = v->trainable,
                     .of = v->of < 0 ? v->of : number[v->of],
                     .init_kind = (int)v->init.kind,
                     .init_a = v->init.a,
                     .init_b = v->init.b,
                     .init_from = v->init.kind == INIT_COPY ? number[v->init.from] : v->init.from};
  }
}

static void phases(const Plan *p, Program *out) {
  const Job *j = p->job;
  out->nphases = p->phases.n;
  out->phases = arena_array(out->arena, ProgramPhase, out->nphases + 1);
  for (int i = 0; i < out->nphases; i++) {
    const PlanPhase *from = &p->phases.at[i];
    const TrainPhase *t = &j->phases.at[from->phase];
    int64_t samples = phase_samples(j, from->phase);
    out->phases[i] =
        (ProgramPhase){.name = t->name,
                       .micro = from->programs[PROG_MICRO],
                       .first = from->programs[PROG_FIRST],
                       .update = from->programs[PROG_UPDATE],
                       .eval = from->programs[PROG_EVAL],
                       .sample = from->programs[PROG_SAMPLE],
                       .micro_batch = from->micro_batch,
                       .accumulation = from->accumulation,
                       .tokens_per_sample = samples ? phase_tokens(j, from->phase) / samples : 0,
                       .steps = t->steps,
                       .epochs = t->epochs,
                       .lr = t->opt.lr,
                       .sched_kind = (int)t->sched.kind,
                       .warmup = t->sched.warmup,
                       .final = t->sched.final,
                       .decay = t->sched.decay,
                       .cycles = t->sched.cycles,
                       .final_is_lr = t->sched.final_is_lr,
                       .data = t->data.data,
                       .data_val = t->data.val,
                       .est_step_seconds = (double)from->step_ns * 1e-9};
  }
  if (j->phases.n) {
    out->nonfinite_stop = j->phases.at[0].nonfinite == NONFINITE_STOP;
    out->nonfinite_limit = j->phases.at[0].nonfinite_limit;
  }
}

static void data(const Job *j, Program *out) {
  out->ndata = j->data.n;
  out->data = arena_array(out->arena, ProgramData, out->ndata + 1);
  for (int i = 0; i < out->ndata; i++) {
    const Data *d = &j->data.at[i];
    out->data[i] = (ProgramData){.name = d->name,
                                 .kind = (int)d->kind,
                                 .train = d->train,
                                 .val = d->val,
                                 .dtype = d->dtype,
                                 .tokenizer = d->tokenizer,
                                 .holdout = d->holdout,
                                 .prompt_loss = d->prompt_loss,
                                 .shuffle = d->shuffle,
                                 .too_long = (int)d->too_long};
  }
}

static void weights(const Job *j, const int *number, Program *out) {
  out->nweights = j->weights.n;
  out->weights = arena_array(out->arena, ProgramWeight, out->nweights + 1);
  for (int i = 0; i < out->nweights; i++) {
    const WeightMap *w = &j->weights.at[i];
    out->weights[i] = (ProgramWeight){w->key, number[w->var], w->transposed};
  }
  out->weights_name = j->weights_name;
  out->init = j->init;
}

/* Ids index the rows of tables: the smallest table that reads an input bounds them. */
static int64_t vocabulary(const Plan *p) {
  int64_t least = 0;
  for (int i = 0; i < p->programs.n; i++) {
    const Graph *g = p->programs.at[i].clusters.g;
    for (int n = 0; n < g->nodes.n; n++) {
      const Node *x = node_at(g, n);
      if (x->op != OP_GATHER) continue;
      const Node *ids = node_of(g, x->in[1]);
      while (op_kind(ids->op) == VIEW || ids->op == OP_HOLD) ids = node_of(g, ids->in[0]);
      int64_t rows = val(g, x->in[0])->shape.dim[0];
      if (ids->op == OP_INPUT && (!least || rows < least)) least = rows;
    }
  }
  return least;
}

void program_tables(const Plan *p, Program *out) {
  const Job *j = p->job;
  out->source = j->path;
  out->model = j->model;
  out->preset = j->preset;
  out->target = p->target->name;
  out->plan_id = p->id;
  out->seed = j->seed;
  out->params = j->params;
  out->vocab = vocabulary(p);
  out->host_bytes = p->host_bytes;
  out->arena_bytes = p->arena_bytes;
  out->persistent_bytes = p->persistent_bytes;
  out->peak_bytes = p->peak_bytes;
  out->budget_bytes = p->budget_bytes;
  out->overhead_bytes = p->overhead_bytes;
  out->reserve_bytes = p->reserve_bytes;
  const int *number = numbers(p, out);
  variables(p, number, out);
  phases(p, out);
  data(j, out);
  weights(j, number, out);
  out->eval_data = j->eval.every ? j->eval.data.data : -1;
  out->eval_val = j->eval.data.val;
  out->eval_every = j->eval.every;
  out->eval_batches = j->eval.batches;
  out->eval_metric = j->eval.metric;
  out->ckpt_every = j->checkpoint.every;
  out->ckpt_keep = j->checkpoint.keep;
  out->ckpt_only = j->checkpoint.only;
  if (!j->elab || !job_target_input(j, &out->target_input, &out->ignore)) out->target_input = NULL;
}
