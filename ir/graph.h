/* graph.h - the SSA graph: values, nodes, variables; builder, verifier, text form, autodiff, interpreter.
 *
 * A Graph is one straight-line program over typed values. Nodes are stored in a valid execution order: operands
 * precede their users, and the order of var/assign nodes of one variable is their order of effect. Passes either
 * append or build a new graph; they never reorder in place.
 *
 * Variables outlive a program (parameters, states, accumulators, moments, per-step scalars, metrics). All graphs
 * of a job share one Vars table, so that a variable has the same number in each. */
#ifndef MTC_GRAPH_H
#define MTC_GRAPH_H
#include "diag.h"
#include "types.h"

typedef int32_t ValueId; /* -1 = none */
typedef int32_t NodeId;

typedef enum {
#define OP(id, text, nin, nout, attrs, shape, grad, eval, kind, doc) id,
#include "ops.def"
  OP_COUNT
} Op;
typedef enum { LEAF, ELEM, REDUCE, VIEW, JOIN, CALL, EFFECT, NOT_YET } OpKind;

const char *op_name(Op op);
OpKind op_kind(Op op);
const char *op_attrs(Op op);
const char *op_doc(Op op);
int op_operands(Op op);        /* counts of ops.def; -1 = any number */
int op_results(Op op);
int op_by_name(const char *s); /* -1 when unknown */
bool op_is_slow(Op op); /* an ELEM op that takes many instructions: keeping its value beats computing it twice */

/* ---- variables ---- */
typedef enum {
  VAR_PARAM,  /* trained weight in compute dtype (or master when no separate master exists) */
  VAR_STATE,  /* model state (batch-norm statistics): saved, never differentiated */
  VAR_MASTER, /* fp32 master copy of a parameter */
  VAR_MOMENT, /* optimizer state */
  VAR_ACCUM,  /* gradient accumulator */
  VAR_SCALAR, /* written by the runtime before a program runs; see StepScalar */
  VAR_METRIC, /* written by a program, read by the runtime; zeroed at the start of each step / evaluation */
  VAR_OPT     /* optimizer's own scalars: step count, skip counter; saved in checkpoints */
} VarRole;

/* Initial values. */
typedef enum { INIT_ZEROS, INIT_ONES, INIT_CONST, INIT_NORMAL, INIT_UNIFORM, INIT_COPY } InitKind;
typedef struct {
  InitKind kind;
  double a, b; /* CONST: a. NORMAL: mean a, deviation b. UNIFORM: a..b. COPY: of variable `from` */
  int from;
} Init;

typedef struct {
  const char *path; /* "h.0.attn.q.w"; derived ones "h.0.attn.q.w:master", ":m", ":v", ":grad" */
  VarRole role;
  DType dtype;
  Shape shape;
  Init init;
  bool trainable; /* VAR_PARAM: false when frozen */
  bool lookup;    /* VAR_PARAM: rows are taken by index: an embedding */
  bool head;      /* VAR_PARAM: multiplied to give the logits of a loss */
  int of;         /* the parameter that a master, moment or accumulator belongs to, else -1 */
  Loc loc;
  int layer;      /* position of its layer in forward order, for layer-wise reports; -1 none */
} Var;

/* The scalars that the runtime writes: variables of role VAR_SCALAR with these paths. */
#define STEP_SCALARS(X)                                                                            \
  X(SC_SEED,      "step.seed",      DT_U32, 2, "seed of the run: two words")                       \
  X(SC_STEP,      "step.step",      DT_I32, 0, "training step, from 0")                            \
  X(SC_SAMPLE0,   "step.sample0",   DT_I32, 0, "index within the step of the micro-batch's first sample") \
  X(SC_INV_COUNT, "step.inv_count", DT_F32, 0, "1 / valid tokens of the whole step")               \
  X(SC_INV_ACCUM, "step.inv_accum", DT_F32, 0, "1 / accumulation: weight of one micro-batch in a mean over samples") \
  X(SC_LR,        "step.lr",        DT_F32, 0, "learning rate of the schedule at this step")       \
  X(SC_POSITION,  "step.position",  DT_I32, 0, "sampling: index of the position whose logits are wanted")
typedef enum {
#define X(id, path, dtype, n, doc) id,
  STEP_SCALARS(X)
#undef X
  SC_COUNT
} StepScalar;

typedef struct {
  Arena *arena;
  VEC(Var) all;
} Vars;
Vars *vars_new(Arena *a);
int var_add(Vars *v, Var var);                     /* bug() when the path exists */
int var_find(const Vars *v, const char *path);     /* -1 */
int var_scalar(Vars *v, StepScalar s);             /* adds it on first use */
int var_scalar_known(const Vars *v, StepScalar s); /* -1 before that */

/* ---- nodes ---- */
typedef struct {
  NodeId def;
  int out; /* which result of def */
  DType dtype;
  Shape shape;
} Value;

/* Where in the program's story a node belongs. */
typedef enum { PH_FORWARD, PH_BACKWARD, PH_UPDATE } Phase;

typedef struct {
  Op op;
  Phase phase;
  int nin, nout;
  ValueId *in;
  ValueId out;       /* first result; results are consecutive */
  int64_t *ints;     /* attributes, as ops.def says */
  int nints;
  double num[2];
  const char *sym;
  Loc loc;           /* the .mt expression it came from, also for gradients */
  const char *path;  /* model path, interned: "h.3.attn", "" for the model itself */
  const char *tag;   /* composition it came from: "layernorm", "softmax", NULL none */
  int tag_id;        /* which instance of that composition; 0 none. Inside one instance values are fp32 */
  int layer;         /* as Var.layer */
  int chunk;         /* 1.. for nodes of a chunked region, 0 none */
  int member;        /* 1.. for nodes of one micro-batch of a group (passes/group.h), 0 none */
  int tile;          /* 1.. for nodes of one chunk of an MLP (passes/chunk.h), 0 none */
} Node;

typedef struct Graph {
  Arena *arena;
  const char *name; /* "loss", "micro", "update", "eval", "sample" */
  Vars *vars;
  VEC(Node) nodes;
  VEC(Value) values;
  VEC(ValueId) results; /* what the graph is for; effects (assign) are roots as well */
  VEC(const char *) result_names;
  /* What new nodes get; builders set and restore it. */
  struct {
    Loc loc;
    const char *path, *tag;
    int tag_id, layer, chunk, member, tile;
    Phase phase;
  } here;
  int last_tag_id;
  Diags *diags; /* when set, shape errors become diagnostics at here.loc; else bug() */
} Graph;

Graph *graph_new(Arena *a, const char *name, Vars *vars);
/* The general builder: infers result types by the op's shape function. Returns the first result (or the node id
 * negated minus 2 for ops without result - use graph_last_node). On a shape error with diags set: adds E02xx and
 * returns -1; operands of -1 are passed through silently so that one mistake gives one message. */
ValueId graph_add(Graph *g, Op op, int nin, const ValueId *in, int nints, const int64_t *ints,
                  const double *num, const char *sym);
static inline const Value *val(const Graph *g, ValueId v) { return &g->values.at[v]; }
static inline Node *node_of(const Graph *g, ValueId v) { return &g->nodes.at[g->values.at[v].def]; }
static inline Node *node_at(const Graph *g, NodeId n) { return &g->nodes.at[n]; }
void graph_result(Graph *g, const char *name, ValueId v);
/* Copies node n of `from` into `to` with operands `in` (same phase, loc, path, tag, layer, chunk, member, tile). Returns its first
 * result. */
ValueId graph_clone_node(Graph *to, const Graph *from, NodeId n, const ValueId *in);

/* Attribute access by name in the op's attrs legend; bug() when there is none. Lists return their length. */
int64_t node_int(const Node *n, const char *name);
int node_list(const Node *n, const char *name, const int64_t **items);
double node_num(const Node *n, const char *name);

/* ---- typed builders (thin wrappers of graph_add; shapes as in ops.def) ---- */
ValueId g_input(Graph *g, const char *name, DType t, Shape s);
ValueId g_var(Graph *g, int var);
void g_assign(Graph *g, int var, ValueId v);
ValueId g_const(Graph *g, DType t, Shape s, double value);
ValueId g_like(Graph *g, ValueId v, double value); /* const of v's type */
ValueId g_iota(Graph *g, DType t, Shape s, int axis);
ValueId g_unary(Graph *g, Op op, ValueId a);
ValueId g_binary(Graph *g, Op op, ValueId a, ValueId b); /* equal shapes */
/* As g_binary, after numpy-style broadcasting of both (trailing axes align, 1 repeats) and promotion of a
 * constant scalar to the other's dtype. Reports E0202 when shapes do not broadcast. */
ValueId g_bin(Graph *g, Op op, ValueId a, ValueId b);
ValueId g_select(Graph *g, ValueId c, ValueId a, ValueId b); /* broadcasts and promotes as g_bin */
/* Random numbers of operands seed, step, sample0; batch: the axis of samples, or one of these. */
enum { RANDOM_STEP = -1, RANDOM_MICRO = -2 };
ValueId g_random(Graph *g, DType t, Shape s, int64_t key, int batch, const ValueId in[3]);
ValueId g_cast(Graph *g, ValueId a, DType t); /* a itself when it has that dtype */
ValueId g_broadcast(Graph *g, ValueId a, Shape to, const int64_t *axes);
ValueId g_broadcast_to(Graph *g, ValueId a, Shape to); /* numpy rule */
ValueId g_reshape(Graph *g, ValueId a, Shape to);
ValueId g_transpose(Graph *g, ValueId a, const int64_t *perm);
ValueId g_slice(Graph *g, ValueId a, int axis, int64_t start, int64_t stop);
ValueId g_pad(Graph *g, ValueId a, const int64_t *before, const int64_t *after);
ValueId g_concat(Graph *g, int n, const ValueId *in, int axis);
ValueId g_reduce(Graph *g, Op op, ValueId a, int naxes, const int64_t *axes);
ValueId g_gather(Graph *g, ValueId table, ValueId ids);
ValueId g_scatter_add(Graph *g, ValueId ids, ValueId rows, int64_t nrows, DType t);
/* Both look through a transpose in front of them, so that `x @ w.T` never moves w.
 * a[..., K] @ b[K, N]: last axis of a with first of b; with rank(b) > 2, leading axes of both are batch. */
ValueId g_matmul(Graph *g, ValueId a, ValueId b);
ValueId g_dot(Graph *g, ValueId a, ValueId b, int nbatch, const int64_t *batch_a, const int64_t *batch_b,
              int ncon, const int64_t *con_a, const int64_t *con_b, DType out);
typedef struct {
  ValueId q, k, v;     /* [B,Tq,H,Dh], [B,Tk,KV,Dh] */
  ValueId mask, bias;  /* -1 none */
  bool causal;
  double scale, drop;
  int64_t key;         /* of the dropout's random bits */
  ValueId seed, step, sample0; /* when drop > 0 */
} AttentionArgs;
ValueId g_attention(Graph *g, const AttentionArgs *a); /* o; lse is the next value */

/* Index lookups used by passes: user[first[v]] .. user[first[v + 1] - 1] are the nodes that use v, each once, in
 * graph order. */
typedef struct {
  int *first; /* per value: start in list; size values+1 */
  NodeId *user;
} Uses;
Uses graph_uses(const Graph *g, Arena *a);

/* ---- compose.c: compositions over primitives. Each sets here.tag and a fresh tag_id while it builds, takes and
 * returns values of any float dtype (inside: as the values are; the precision pass makes the inside fp32). ---- */
/* The key of the next random bits drawn at here.path: a hash of the path and of how many draws it has already. */
int64_t c_random_key(const Graph *g);
ValueId c_layernorm(Graph *g, ValueId x, ValueId w, ValueId b, double eps); /* last axis; two-pass variance */
ValueId c_rmsnorm(Graph *g, ValueId x, ValueId w, double eps);
ValueId c_softmax(Graph *g, ValueId x, int axis);
ValueId c_gelu(Graph *g, ValueId x, bool tanh_form);
ValueId c_silu(Graph *g, ValueId x);
ValueId c_relu(Graph *g, ValueId x);
ValueId c_sigmoid(Graph *g, ValueId x);
/* Llama 3's scaling of rotary frequencies to a longer context. Turns are full rotations within `context` positions. */
typedef struct {
  double factor;              /* the slow frequencies are divided by it */
  double low_freq, high_freq; /* turns: slow up to low_freq, left alone from high_freq on; low_freq < high_freq */
  double context;             /* positions that the model was trained with before */
} RopeScaling;
/* x[B,T,H,Dh], rotated by position along T; half-split convention (x1,x2 = halves of Dh), as in Hugging Face.
 * scaling: NULL for none. */
ValueId c_rope(Graph *g, ValueId x, double theta, const RopeScaling *scaling);
/* Inverted dropout; identity when rate is 0 or !training. key = hash of path and call site; batch axis 0. */
ValueId c_dropout(Graph *g, ValueId x, double rate, bool training);
/* Sum over valid targets of -log softmax(logits)[target], times SC_INV_COUNT: the token-weighted mean of the whole
 * step. logits [..., V], targets i32 [...]; targets equal to ignore do not count; smooth = label smoothing. */
ValueId c_cross_entropy(Graph *g, ValueId logits, ValueId targets, int64_t ignore, double smooth);
ValueId c_mean(Graph *g, ValueId x, int naxes, const int64_t *axes);

/* ---- verify.c ---- */
/* Checks every invariant above and each op's shape rule again. NULL when sound, else a sentence (in a) that names
 * the node. bug()-worthy after a pass. */
const char *graph_verify(const Graph *g, Arena *a);

/* ---- text.c: print(read(print(g))) == print(g) ---- */
void graph_print(const Graph *g, Str *out);
/* NULL with an error in *why ("line 3: unknown op `foo`") when malformed. Never crashes on any input. */
Graph *graph_read(Arena *a, const char *text, size_t size, const char **why);

/* ---- autodiff.c ---- */
/* Appends to g the gradient of scalar `loss` with respect to each var node of a trainable VAR_PARAM, phase
 * PH_BACKWARD. Contributions to one parameter stay separate, in the order in which backward makes them (tied weights
 * have several); the caller accumulates them. Weight-gradient nodes precede data-gradient nodes of the same op.
 * Reports E0213 for an op without a gradient on the way. */
typedef struct {
  int var;
  ValueId grad; /* same shape as the variable */
} GradPart;
typedef struct {
  GradPart *at;
  int n;
} Grads;
Grads graph_autodiff(Graph *g, ValueId loss);
/* Gradient with respect to arbitrary float values (tests): one per wanted value, summed; zeros when independent. */
void graph_gradients(Graph *g, ValueId loss, ValueId seed, int n, const ValueId *wrt, ValueId *grad);

/* ---- interp.c: reference semantics ---- */
/* Runs the graph on the host, every float in f64 (exact = false: rounded to each value's dtype after each node, as
 * compiled code does). Integers and random bits are exact. var values come and go through `vars` (indexed by var
 * number, f64 arrays, NULL = zeros on first use); inputs by name. Returned arrays live in arena. */
typedef struct {
  const char *name;
  const double *data;
} InterpInput;
typedef struct {
  Arena *arena;
  bool exact; /* true: f64 throughout */
  const InterpInput *inputs;
  int ninputs;
  double **vars;
} Interp;
double **graph_interp(const Graph *g, const Interp *in); /* per value; NULL for never computed */

/* philox.h has the generator itself, shared with emitted code's tests. */
#endif
