/* job_graph.c - graphs of the model's functions: inputs by their signatures and the sizes in force,
 * then the walk over the function; and the check of all functions that elaboration ends with. */
#include <string.h>
#include "elab.h"

const Fn *job_fn(const Elab *e, JobFn kind) {
  static const char *const names[] = {
      [FN_LOSS] = "loss", [FN_EVAL_LOSS] = "loss", [FN_FORWARD] = "forward"};
  const char *name = kind == FN_METRIC ? e->job->eval.metric : names[kind];
  const Inst *owner;
  return name && e->root ? inst_fn(e->root, name, &owner) : NULL;
}

/* ---- sizes of inputs ---- */

static bool is_size(const Scope *s, const char *name) {
  const Binding *b = scope_find(s, name);
  return b && (b->val.kind == V_INT || b->val.kind == V_ERR);
}

static void names_in(Elab *e, const Expr *x, NameList *out) {
  if (!x) return;
  if (x->kind == EX_NAME && !is_size(&e->root->scope, x->text)) {
    for (int i = 0; i < out->n; i++)
      if (out->at[i].text == x->text) return;
    vec_push(e->arena, out, ((Name){x->text, x->loc}));
  }
  names_in(e, x->a, out);
  names_in(e, x->b, out);
  names_in(e, x->c, out);
}

static void dims_of_fn(Elab *e, const Fn *fn, NameList *out) {
  for (int i = 0; i < fn->args.n; i++) {
    const TypeExpr *t = fn->args.at[i].type;
    for (int k = 0; t && k < t->dims.n; k++) names_in(e, t->dims.at[k], out);
  }
}

void job_dim_names(Elab *e, NameList *out) {
  for (int i = 0; i < e->root->scope.all.n; i++) {
    const Val *v = &e->root->scope.all.at[i].val;
    if (v->kind == V_FN) dims_of_fn(e, v->fn, out);
  }
}

static int64_t size_in_force(const Elab *e, int phase, const char *name, int64_t samples) {
  const TrainPhase *p = &e->job->phases.at[phase];
  if (p->batch_dim && p->batch_dim == name) return samples;
  for (int i = 0; i < p->dims.n; i++)
    if (p->dims.at[i].name.text == name) return p->dims.at[i].value;
  /* without `train` any size serves the check of shapes; 8 is small and no common factor of theirs
   */
  return e->no_train ? 8 : -1;
}

/* The scope in which the types of inputs are read: sizes of the model, then those of the phase. */
static bool input_scope(Elab *e, const Fn *fn, int phase, int64_t samples, bool quiet, Scope *s) {
  NameList names = {0};
  dims_of_fn(e, fn, &names);
  s->up = &e->root->scope;
  for (int i = 0; i < names.n; i++) {
    int64_t size = size_in_force(e, phase, names.at[i].text, samples);
    if (size < 1 && quiet) return false;
    if (size < 1) {
      Diag *d = diag_error(e->d, E_STATIC, names.at[i].loc, "dimension `%s` of `%s.%s` has no size",
                           names.at[i].text, e->named_item->name.text, fn->name.text);
      diag_help(e->d, d, "add `%s = ..` to `dims` in `train`, or pass -D %s=..", names.at[i].text,
                names.at[i].text);
      return false;
    }
    scope_set(e->arena, s, names.at[i].text, val_int(size, names.at[i].text), names.at[i].loc);
  }
  return true;
}

static bool make_input(Elab *e, const Scope *s, const FnArg *arg, bool quiet, Val *out) {
  Graph *g = e->b->g;
  if (!arg->type && arg->value) {
    *out = eval(e, &e->root->scope, arg->value);
    return out->kind != V_ERR;
  }
  if (!arg->type) {
    if (quiet) return false;
    Diag *d = diag_error(e->d, E_TYPE, arg->loc, "input `%s` needs a type", arg->name.text);
    diag_help(e->d, d, "write `%s i32[B, T]`", arg->name.text);
    return false;
  }
  Shape shape;
  if (!type_shape(e, s, arg->type, &shape)) return false;
  g->here.loc = arg->name.loc;
  ValueId v =
      g_input(g, arg->name.text, arg->type->dtype < 0 ? DT_F32 : (DType)arg->type->dtype, shape);
  for (int k = 0; v >= 0 && k < shape.rank; k++) g->values.at[v].shape.axis[k] = shape.axis[k];
  *out = val_tensor(v);
  return v >= 0;
}

/* ---- one graph ---- */

static const char *const graph_names[] = {"loss", "eval", "metric", "forward"};
static const char *const result_names[] = {"loss", "loss", "metric", "logits"};

static bool finish(Elab *e, Build *b, const Fn *fn, JobFn kind, const Val *v) {
  if (v->kind == V_ERR || (v->kind != V_TENSOR && kind == FN_FORWARD)) return false;
  if (v->kind != V_TENSOR) {
    diag_error(e->d, E_PROMISE, fn->name.loc, "`%s.%s` returns %s, not one tensor",
               e->named_item->name.text, fn->name.text, say_val(e, v));
    return false;
  }
  ValueId r = v->v;
  if (kind != FN_FORWARD) {
    const Value *x = val(b->g, r);
    if (shape_count(&x->shape) != 1 || !dtype_is_float(x->dtype)) {
      Diag *d = diag_error(e->d, E_PROMISE, fn->name.loc, "`%s.%s` must return one number, not %s",
                           e->named_item->name.text, fn->name.text, say_val(e, v));
      diag_help(e->d, d, "`mean(x)` makes one of many");
      return false;
    }
    if (kind != FN_METRIC) r = job_weigh_loss(e, b, r, fn->name.loc);
  }
  if (r < 0) return false;
  graph_result(b->g, result_names[kind], r);
  return true;
}

Graph *job_build(Elab *e, Arena *a, const Fn *fn, JobFn kind, int phase, int64_t samples,
                 bool quiet, Build *out) {
  Build b = {.training = kind == FN_LOSS};
  b.g = graph_new(a, graph_names[kind], e->job->vars);
  b.g->diags = e->d;
  b.g->here.layer = 0;
  b.g->here.path = "";
  Scope s = {0};
  if (!input_scope(e, fn, phase, samples, quiet, &s)) return NULL;
  int before = e->d->errors;
  e->b = &b;
  e->work = 0;
  Val *args = arena_array(a, Val, fn->args.n);
  bool ok = true;
  for (int i = 0; i < fn->args.n; i++) ok &= make_input(e, &s, &fn->args.at[i], quiet, &args[i]);
  if (ok) {
    b.mark = b.g->nodes.n;
    Val v = call_fn(e, e->root, e->root->unit, fn, NULL, args, NULL);
    ok = e->d->errors == before && finish(e, &b, fn, kind, &v);
  }
  e->b = NULL;
  if (out) *out = b;
  return ok && e->d->errors == before ? b.g : NULL;
}

Graph *job_graph(const Job *j, Arena *a, JobFn kind, int phase, int64_t samples) {
  const Fn *fn = job_fn(j->elab, kind);
  if (!fn && kind == FN_FORWARD) return NULL;
  ensure(fn, "the model has no function for graph `%s`", graph_names[kind]);
  ensure(phase >= 0 && phase < j->phases.n, "phase %d of %d", phase, j->phases.n);
  Graph *g = job_build(j->elab, a, fn, kind, phase, samples, kind == FN_FORWARD, NULL);
  ensure(g || j->diags->errors || kind == FN_FORWARD, "no graph of `%s` and no message",
         graph_names[kind]);
  return g;
}

/* ---- the check of everything ---- */

/* The input behind a value, through what keeps every element. */
static const char *input_behind(Graph *g, ValueId v) {
  const Node *n = node_of(g, v);
  while (n->op == OP_RESHAPE || n->op == OP_CAST || n->op == OP_TRANSPOSE) n = node_of(g, n->in[0]);
  return n->op == OP_INPUT ? n->sym : NULL;
}

static void learn_targets(Elab *e, const Build *b) {
  for (int i = 0; i < b->targets.n; i++) {
    const char *name = input_behind(b->g, b->targets.at[i]);
    Loc at = node_of(b->g, b->weighted.at[i])->loc;
    if (!name)
      job_say_not_yet(e, at, "cross entropy whose targets are not an input of the loss");
    else if (e->target_input &&
             (strcmp(name, e->target_input) || e->target_ignore != b->ignore.at[i]))
      job_say_not_yet(e, at, "two cross entropies with different targets");
    else
      e->target_input = name, e->target_ignore = b->ignore.at[i];
  }
}

/* Where each parameter is first read. */
static void learn_layers(const Elab *e, const Graph *g) {
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *n = node_at((Graph *)g, i);
    if (n->op != OP_VAR) continue;
    Var *v = &e->job->vars->all.at[n->ints[0]];
    if (v->layer < 0 && v->role != VAR_SCALAR) v->layer = n->layer;
  }
}

/* ---- what each parameter is for ---- */

/* The parameter that a value is, through what changes no number; NULL when it is none. */
static Var *param_behind(const Elab *e, Graph *g, ValueId v) {
  const Node *n = node_of(g, v);
  while (op_kind(n->op) == VIEW || n->op == OP_CAST) n = node_of(g, n->in[0]);
  return n->op == OP_VAR ? &e->job->vars->all.at[n->ints[0]] : NULL;
}

/* Marks the matrices whose products become the logits v. */
static void learn_heads(const Elab *e, Graph *g, ValueId v) {
  const Node *n = node_of(g, v);
  OpKind k = op_kind(n->op);
  for (int i = 0; i < n->nin; i++) {
    Var *param = n->op == OP_DOT ? param_behind(e, g, n->in[i]) : NULL;
    if (param) param->head = true;
    bool same_numbers = k == VIEW || n->op == OP_ADD || n->op == OP_MUL || n->op == OP_CAST;
    if (same_numbers && val(g, n->in[i])->shape.rank > 1) learn_heads(e, g, n->in[i]);
  }
}

/* Embeddings, and what makes the logits of a cross entropy. */
static void learn_uses(const Elab *e, Graph *g) {
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *n = node_at(g, i);
    Var *table = n->op == OP_GATHER ? param_behind(e, g, n->in[0]) : NULL;
    if (table) table->lookup = true;
    if (!n->tag || strcmp(n->tag, "cross_entropy")) continue;
    for (int k = 0; k < n->nin; k++)
      if (node_of(g, n->in[k])->tag_id != n->tag_id && val(g, n->in[k])->shape.rank > 1)
        learn_heads(e, g, n->in[k]);
  }
}

/* Marks what the loss depends on in a way that has a gradient: floats made of floats. */
static bool *differentiable(Arena *a, Graph *g) {
  bool *on = arena_array(a, bool, g->values.n);
  on[g->results.at[0]] = true;
  for (int v = g->values.n - 1; v >= 0; v--) {
    const Node *n = node_of(g, v);
    bool stops = n->op == OP_HOLD || n->op == OP_FLOOR || !dtype_is_float(val(g, v)->dtype);
    for (int i = 0; on[v] && !stops && i < n->nin; i++) on[n->in[i]] = true;
  }
  return on;
}

/* Parameters that the loss cannot train: all of them is an error, some a warning. */
static void check_reach(Elab *e, Arena *scratch, const Fn *loss, Graph *g) {
  Vars *vars = e->job->vars;
  bool *on = differentiable(scratch, g), *reached = arena_array(scratch, bool, vars->all.n);
  int trained = 0;
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *n = node_at(g, i);
    if (n->op == OP_VAR && on[n->out]) reached[n->ints[0]] = true;
  }
  for (int i = 0; i < vars->all.n; i++)
    trained += reached[i] && vars->all.at[i].role == VAR_PARAM && vars->all.at[i].trainable;
  if (!trained) {
    Diag *d = diag_error(e->d, E_NO_GRADIENT, loss->name.loc,
                         "no trained parameter has a gradient in `%s.%s`", e->named_item->name.text,
                         loss->name.text);
    diag_note(e->d, d, "comparisons, argmax, floor and stop_gradient have none");
    return;
  }
  for (int i = 0; i < vars->all.n; i++) {
    const Var *v = &vars->all.at[i];
    if (reached[i] || v->role != VAR_PARAM || !v->trainable) continue;
    Diag *d =
        diag_warn(e->d, W_UNUSED, v->loc, "parameter `%s` has no effect on the loss", v->path);
    diag_help(e->d, d, "it stays as it starts; `freeze \"%s\"` says so", v->path);
  }
}

static void warn_batch_stats(Elab *e, int phase) {
  const TrainPhase *p = &e->job->phases.at[phase];
  int64_t micro = phase_dim(e->job, phase, p->batch_dim ? p->batch_dim : "");
  int64_t batch = phase_samples(e->job, phase);
  if (e->no_train || micro == batch) return;
  const char *of = micro > 0 ? arena_printf(e->arena, "%s=%lld", p->batch_dim, (long long)micro)
                             : arena_printf(e->arena, "%s=auto", p->batch_dim);
  Diag *d =
      diag_warn(e->d, W_BATCH_STATS, p->batch_loc,
                "batchnorm statistics are taken over the micro-batch (%s), not the batch (%lld)",
                of, (long long)batch);
  diag_note(e->d, d,
            "accumulation changes the result of this model; pin %s with `dims { %s = ... }` or "
            "use a norm that does not cross samples",
            p->batch_dim, p->batch_dim);
}

static bool same_dims(const TrainPhase *a, const TrainPhase *b) {
  if (a->dims.n != b->dims.n) return false;
  for (int i = 0; i < a->dims.n; i++)
    if (a->dims.at[i].name.text != b->dims.at[i].name.text ||
        a->dims.at[i].value != b->dims.at[i].value)
      return false;
  return true;
}

static int64_t check_samples(const Elab *e, int phase) {
  const TrainPhase *p = &e->job->phases.at[phase];
  int64_t n = p->batch_dim ? phase_dim(e->job, phase, p->batch_dim) : 1;
  return n > 0 ? n : 1;
}

/* The loss in training, once more with two samples where the batch is open (an axis of size 1 hides
 * broadcasts), and as it is evaluated when that may differ. */
static void check_loss(Elab *e, Arena *scratch, const Fn *loss, int phase) {
  Build b;
  int64_t samples = check_samples(e, phase);
  Graph *g = job_build(e, scratch, loss, FN_LOSS, phase, samples, false, &b);
  if (!g) return;
  if (!phase) {
    learn_targets(e, &b);
    select_check_ops(e, g);
    learn_layers(e, g);
    learn_uses(e, g);
    check_reach(e, scratch, loss, g);
  }
  if (b.batch_stats) warn_batch_stats(e, phase);
  if (phase) return; /* other lengths change nothing in what follows */
  if (samples == 1 && !job_build(e, scratch, loss, FN_LOSS, phase, 2, false, NULL)) return;
  if (e->asked_training) job_build(e, scratch, loss, FN_EVAL_LOSS, phase, samples, false, NULL);
}

static bool was_called(const Elab *e, const Fn *fn) {
  for (int i = 0; i < e->called.n; i++)
    if (e->called.at[i] == fn) return true;
  return false;
}

/* Functions that the loss may not call, with the sizes that are known. */
static void check_others(Elab *e, Arena *scratch, const Fn *loss, int phase) {
  for (int i = 0; i < e->root->scope.all.n && !diag_full(e->d); i++) {
    const Val *v = &e->root->scope.all.at[i].val;
    if (v->kind != V_FN || v->fn == loss) continue;
    bool metric = e->job->eval.metric && !strcmp(e->job->eval.metric, v->fn->name.text);
    if (was_called(e, v->fn) && !e->asked_training && !metric) continue;
    job_build(e, scratch, v->fn, metric ? FN_METRIC : FN_FORWARD, phase, check_samples(e, phase),
              !metric, NULL);
  }
}

void job_check_functions(Elab *e) {
  const Fn *loss = job_fn(e, FN_LOSS);
  Arena *scratch = arena_new();
  if (!loss && !e->no_train) {
    Diag *d = diag_error(e->d, E_UNKNOWN_NAME, e->model_item->name.loc,
                         "model `%s` has no function `loss` to train", e->model_item->name.text);
    diag_help(e->d, d, "add `fn loss(..) -> f32 { return .. }`");
  }
  int n = e->job->phases.n, before = e->d->errors;
  for (int p = n - 1; p >= 0 && !diag_full(e->d); p--) { /* the last phase is the whole length */
    bool again = false;
    for (int q = n - 1; q > p && p; q--)
      again |= same_dims(&e->job->phases.at[p], &e->job->phases.at[q]);
    if (loss && !again && e->d->errors == before) check_loss(e, scratch, loss, p);
    if (!p) check_others(e, scratch, loss, p);
  }
  arena_free(scratch);
}
