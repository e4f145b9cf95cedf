/* elab.h - internal to the elaborator (elab*.c, builtins*.c, settings.c, job*.c, weights.c); nobody
 * else includes it.
 *
 * Input: the trees of the parser. Output: a Job (job.h) and, on demand, typed graphs.
 * A model is instantiated once: every layer becomes an Inst with its path, its static values and
 * its variables. Graphs are then built by walking the functions' trees over those instances. One
 * evaluator serves both: an expression is a static value (number, text, layer, ..) or, while a
 * graph is built (Elab.b is set), a tensor. A value of kind V_ERR stands for a mistake that was
 * reported: whatever uses it stays silent, so that one mistake gives one message. */
#ifndef MTC_ELAB_H
#define MTC_ELAB_H
#include "job.h"

typedef struct Inst Inst;
typedef struct Unit Unit;
typedef struct Val Val;

typedef enum {
  V_ERR,
  V_NONE,
  V_AUTO,
  V_INT,
  V_NUM,
  V_BOOL,
  V_STR,
  V_DTYPE,
  V_TUPLE, /* items */
  V_INIT,  /* how a parameter starts */
  V_VAR,   /* a parameter or state: read when it is named in a function */
  V_TENSOR,
  V_LAYER,  /* inst */
  V_LAYERS, /* items, each V_LAYER */
  V_FN,     /* fn of inst, or of unit */
  V_BLOCK   /* block or model: item of unit */
} ValKind;

struct Val {
  ValKind kind;
  int64_t i;          /* INT; BOOL; DTYPE; VAR: its number */
  double f;           /* NUM, INT */
  const char *s;      /* STR; DTYPE: as written */
  const char *name;   /* INT: what messages call this dimension, or NULL */
  ValueId v;          /* TENSOR */
  const Expr *origin; /* TENSOR: the expression that it is one part of, or NULL */
  int part_of;        /* TENSOR: number of those parts */
  const Inst *inst;
  const Val *items;
  int n;
  const Fn *fn;
  const Unit *unit;
  const Item *item;
  Init init;
  bool init_by_fan; /* INIT: init.b is still to be divided by the root of the fan-in */
};

#define VAL_ERR  ((Val){.kind = V_ERR})
#define VAL_NONE ((Val){.kind = V_NONE})
Val val_int(int64_t i, const char *name);
Val val_num(double f);
Val val_bool(bool b);
Val val_str(const char *s);
Val val_tensor(ValueId v); /* V_ERR for a negative id */
static inline bool val_is_number(const Val *v) {
  return v->kind == V_INT || v->kind == V_NUM;
}

typedef struct {
  const char *name;
  Val val;
  Loc loc;
  bool is_let; /* `let`: messages point at it */
} Binding;
typedef struct Scope {
  const struct Scope *up;
  VEC(Binding) all;
} Scope;
/* Sets or replaces a name in this very scope. */
void scope_set(Arena *a, Scope *s, const char *name, Val v, Loc loc);
Binding *scope_find_here(const Scope *s, const char *name);
const Binding *scope_find(const Scope *s, const char *name);

/* One file. Its scope holds lets, blocks, models and functions, its own and imported ones. */
struct Unit {
  const char *path;
  File *file;
  Scope scope;
  bool loading;
};

struct Inst {
  const Unit *unit;
  const Item *item;   /* block or model */
  const char *path;   /* "h.0.attn"; "" for the model */
  const char *prefix; /* of its own variables: path, or below it beside a wrapped layer */
  Scope scope;        /* formals, lets, params, states, layers, functions */
  Loc decl;           /* of the layer's declaration */
  const Inst *wraps;  /* a layer given to a `: layer` formal */
  bool element;       /* of a layer array */
};

/* The graph under construction. */
typedef struct Frame {
  struct Frame *up;
  const Inst *inst; /* NULL in functions of a file */
  const Fn *fn;
  Loc call; /* where it was called */
  Scope scope;
  bool returned;
  Val result;
  ValueId lead; /* value whose leading axes `..` stood for, -1 none */
  int lead_axes;
} Frame;

typedef struct {
  Graph *g;
  bool training;
  bool in_element;       /* inside an element of a layer array */
  int mark;              /* nodes when here.layer began */
  VEC(ValueId) weighted; /* results of cross_entropy */
  VEC(ValueId) targets;  /* its targets .. */
  VEC(int64_t) ignore;   /* .. and what does not count among them */
  bool batch_stats;      /* batchnorm in training */
} Build;

typedef struct {
  const Wrap *wrap;
  const Unit *unit;
  bool *matched; /* per pattern */
} WrapUse;

struct Elab {
  Arena *arena;
  Diags *d;
  Job *job;
  const JobArgs *args;
  VEC(Unit *) units;
  Unit *main;
  const Unit *model_unit; /* of the block that is the model, its derivations stripped */
  const Item *model_item;
  const Item *named_item; /* the model as the file names it: model_item or a derivation */
  const Inst *root;
  VEC(const char *) layers; /* paths of all layers, in order of declaration along the path */
  VEC(WrapUse) wraps;
  VEC(const Inst *) making;  /* layers that are being made, outermost first */
  Build *b;                  /* NULL while everything is static */
  Frame *frame;              /* innermost call */
  int64_t work;              /* calls and rounds of loops of this graph */
  VEC(const Fn *) called;    /* functions of the model that graphs have walked through */
  bool asked_training;       /* some function depends on `training` */
  VEC(Loc) blamed;           /* `let`s that a wrong `as` was put down to */
  VEC(const char *) not_yet; /* what cannot be planned yet .. */
  Loc not_yet_loc;           /* .. and where the first of it stands */
  const char *target_input;  /* of job_target_input */
  int64_t target_ignore;
  bool no_train;       /* the file has no `train` */
  Scope *settings;     /* of job_scope */
  const char *seq_dim; /* the dim that makes tokens of samples, or NULL */
};

/* The arena of what is being made: the graph's while one is built. */
static inline Arena *elab_arena(const Elab *e) {
  return e->b ? e->b->g->arena : e->arena;
}

/* ---- elab_load.c: files, imports, declarations, overrides ---- */
/* NULL, after messages, when the file cannot be read or has syntax errors. */
Unit *elab_load(Elab *e, const char *path, Loc at);
/* Names declared twice, names of operations, in every block whether used or not. */
void elab_declarations(Elab *e, const Unit *u);
/* Lays --set over the tree of the main file. */
void elab_overrides(Elab *e);
/* The value of text from the command line, or NULL after an error. `what` names it in messages. */
Expr *elab_parse_value(Elab *e, const char *what, const char *text);

/* ---- elab_inst.c: layers ---- */
/* Finds the model of the main file and instantiates it; NULL after an error. */
const Inst *elab_model(Elab *e);
/* A name of a layer: static value, variable, child, function; looks through wrappers. NULL when
 * there is none. */
const Binding *inst_find(const Inst *in, const char *name);
/* True when some branch of the block, taken or not, declares the name. */
bool inst_declares(const Inst *in, const char *name);
const Fn *inst_fn(const Inst *in, const char *name, const Inst **owner);
/* "Linear(In=4096, Out=8192)" */
const char *inst_text(Elab *e, const Inst *in);

/* ---- elab_eval.c: expressions ---- */
Val eval(Elab *e, const Scope *s, const Expr *x);
/* A static value; E0107 for tensors. */
Val eval_static(Elab *e, const Scope *s, const Expr *x, const char *what);
/* A size: a whole number of at least 0. False after a message. */
bool eval_dim(Elab *e, const Scope *s, const Expr *x, int64_t *dim, const char **name);
bool eval_cond(Elab *e, const Scope *s, const Expr *x, bool *yes);
/* A variable read, or V_ERR in static places. */
Val eval_read(Elab *e, const Val *v, Loc at);

/* ---- elab_static.c: arithmetic of numbers and text ---- */
Val static_binary(Elab *e, const Expr *x, const Val *a, const Val *b);
bool val_equal(const Val *a, const Val *b);

/* ---- elab_tensor.c: operators on tensors ---- */
Val tensor_binary(Elab *e, const Expr *x, Val a, Val b);
Val tensor_as(Elab *e, const Scope *s, const Expr *x, Val a);
Val tensor_index(Elab *e, const Scope *s, const Expr *x, Val a);
Val tensor_transposed(Elab *e, const Expr *x, Val a);
/* A number as a constant of the given type; a tensor as it is. */
Val tensor_of(Elab *e, Val v, DType t);
/* Gives unnamed axes of `to` the names of `from`, aligned from the right. */
void axes_named_like(Graph *g, ValueId to, ValueId from);
static inline const Value *tval(const Elab *e, const Val *v) {
  return val(e->b->g, v->v);
}
static inline Shape tshape(const Elab *e, const Val *v) {
  return e->b->g->values.at[v->v].shape;
}
/* Broadcast-compatible? Sets the axis (from the right) that is not. */
bool shapes_broadcast(const Shape *a, const Shape *b, int *axis);

/* ---- elab_call.c: calls and statements ---- */
/* Which argument of the call goes to which of n names: slot[i] = index in call->args or -1.
 * `required` names have no default. E0106 with the callee's signature after a mistake. */
typedef struct {
  const char *what;      /* "block `Linear`" */
  const char *signature; /* "Linear(In, Out, bias = true)" or NULL */
  Loc decl;
  int n;
  const char *const *names;
  const bool *required;
  ErrId unknown; /* E_ARGUMENT or E_UNKNOWN_SETTING for a name that does not exist */
} Callee;
bool match_args(Elab *e, const Expr *call, const Callee *c, int *slot);
Val call_value(Elab *e, const Scope *s, const Expr *x, const Val *callee);
/* Calls fn with values (in order of its arguments). at: the call; arg[i] its expressions, NULL in
 * graphs' roots. */
Val call_fn(Elab *e, const Inst *inst, const Unit *unit, const Fn *fn, const Expr *call,
            const Val *args, const Expr *const *exprs);

/* ---- elab_type.c: shapes in signatures ---- */
/* Unifies an argument with its type: single names that mean nothing yet are bound in the frame. x:
 * the argument as written, or NULL. */
bool unify_arg(Elab *e, Frame *f, const FnArg *arg, Val *v, const Expr *x, const Expr *call);
/* The same for result i; a number becomes a constant. */
bool check_result(Elab *e, Frame *f, int i, Val *v, const Expr *x);
/* A value of the promised shape, to go on with after a mistake; V_ERR when the shape is unknown. */
Val promised_value(Elab *e, Frame *f);
/* The shape of a type whose dims are all known. */
bool type_shape(Elab *e, const Scope *s, const TypeExpr *t, Shape *out);

/* ---- elab_say.c: words of messages ---- */
/* Source text of an expression, at most one line. */
const char *say_expr(Elab *e, const Expr *x);
const char *say_loc(Elab *e, Loc at);
const char *say_type(Elab *e, const TypeExpr *t);
const char *say_shape(Elab *e, const Val *v);
/* "a number", "layer `h.0.attn`", "a tensor [B=1, D=768]" */
const char *say_val(Elab *e, const Val *v);
/* The part of an expression that a caret points at. */
Loc caret(const Expr *x);
/* Adds "in h.0.attn, called from .." */
void say_where(Elab *e, Diag *g);
/* "did you mean `x`?" as primary label when a name of the scope, an operation or one of extra is
 * near. */
void say_nearest(Elab *e, Diag *g, const char *word, const char *const *cands, int n);
void say_nearest_in_scope(Elab *e, Diag *g, const char *word, const Scope *s, bool ops);
const char *ordinal_part(int n); /* "half", "third", .. */
/* diag_error and the place in the model. */
Diag *elab_error(Elab *e, ErrId id, Loc at, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* ---- elab_select.c: selectors against the model ---- */
/* Does the selector match a layer, a parameter or an operation? E0301 with the nearest when not.
 * `layers_only`: for wrap. */
bool select_check(Elab *e, const char *pattern, Loc at, bool layers_only);
bool select_var(const char *pattern, const char *path);
/* Warns of rules of `precision` for operations that the loss does not have. */
void select_check_ops(Elab *e, const Graph *g);

/* ---- job_train.c, job_sections.c, weights.c: sections ---- */
void job_sections(Elab *e);
void job_train(Elab *e);
void job_weights(Elab *e);
DataRef job_data_ref(Elab *e, const Expr *x);
/* The static scope of settings: lets of the file and sizes of the model. */
const Scope *job_scope(Elab *e);
void job_say_not_yet(Elab *e, Loc at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* ---- job_graph.c ---- */
/* The function of the model that a JobFn stands for, or NULL. */
const Fn *job_fn(const Elab *e, JobFn fn);
/* Builds the graph of fn. quiet: NULL without a message when a size of an input is unknown. */
Graph *job_build(Elab *e, Arena *a, const Fn *fn, JobFn kind, int phase, int64_t samples,
                 bool quiet, Build *out);
/* Shape-checks every function of the model in every phase; learns what only graphs tell. */
void job_check_functions(Elab *e);
/* Names of dims in the signatures of the model's functions that are not sizes of the model. */
void job_dim_names(Elab *e, NameList *out);
/* ---- job_loss.c ---- */
/* The loss with every part weighted for the whole step (job.h, FN_LOSS). */
ValueId job_weigh_loss(Elab *e, Build *b, ValueId loss, Loc at);

#endif
