/* optimizer_state.c - formats of what an optimizer keeps (see optimizer_impl.h).
 *
 * Weights: f32; bf16 rounded from an f32 master, or from the halves of one (`split`), to nearest,
 * ties away from zero, so that the 16 bits that a split master keeps are just those that are
 * missing; bf16 without a master, rounded at random.
 * Moments: f32; bf16 rounded at random; 8 bits an element and the largest magnitude of each block
 * of 256 as f32, but for embeddings, small tensors and what is no multiple of a block.
 * Random bits are a function of seed, step, parameter and element. A value that a skipped step
 * leaves alone keeps its bits: each rounding gives back what it once made. */
#include "optimizer_impl.h"

#include <string.h>

#include "../ir/words.h"
#include "precision.h"

enum { BLOCK = 256, SMALL = 4096 };

/* ---- variables ---- */

static bool in_blocks(const Job *job, int param) {
  const Var *v = &job->vars->all.at[param];
  int64_t n = shape_count(&v->shape);
  return job->precision.moments == DT_I8 && n >= SMALL && n % BLOCK == 0 && !v->lookup;
}

static Shape blocks_of(const Shape *s) {
  return SHAPE(shape_count(s) / BLOCK, BLOCK);
}

static void add_state(Vars *vars, int param, const char *suffix, DType t, Shape shape) {
  if (derived_var(vars, param, suffix) >= 0) return;
  Var v = vars->all.at[param];
  v.path = intern_printf("%s%s", v.path, suffix);
  v.role = VAR_MOMENT;
  v.dtype = t;
  v.shape = shape;
  v.init = (Init){.kind = INIT_ZEROS};
  v.of = param;
  var_add(vars, v);
}

static void add_moment(const Job *job, int param, const char *suffix) {
  Vars *vars = job->vars;
  Shape s = vars->all.at[param].shape, blocks = blocks_of(&s);
  if (in_blocks(job, param)) {
    add_state(vars, param, suffix, DT_U8, blocks);
    add_state(vars, param, intern_printf("%s:scale", suffix), DT_F32, SHAPE(blocks.dim[0]));
  } else {
    add_state(vars, param, suffix, job->precision.moments == DT_BF16 ? DT_BF16 : DT_F32, s);
  }
}

/* Shape without one axis. */
static Shape without(const Shape *s, int axis) {
  Shape r = *s;
  r.rank--;
  for (int k = axis; k < r.rank; k++) r.dim[k] = s->dim[k + 1], r.axis[k] = s->axis[k + 1];
  return r;
}

void state_vars(const Job *job, int param, int states) {
  if (states & STATE_M) add_moment(job, param, ":m");
  if (states & STATE_V) add_moment(job, param, ":v");
  if (!(states & STATE_ROWS)) return;
  Shape s = job->vars->all.at[param].shape;
  add_state(job->vars, param, ":r", DT_F32, without(&s, s.rank - 1));
  add_state(job->vars, param, ":c", DT_F32, without(&s, s.rank - 2));
}

/* ---- random bits ---- */

/* The next 16 random bits of each element, in the low half of a u32. A word is enough for three: its
 * low half, its high half, and their sum, so that any two of the three are independent. */
static ValueId random_bits(const Step *s, Update *u) {
  enum { DRAWS = 3 };
  Graph *g = s->g;
  Vars *vars = s->job->vars;
  ValueId step = g_var(g, var_scalar(vars, SC_STEP));
  ValueId in[] = {g_var(g, var_scalar(vars, SC_SEED)), step, step};
  const char *key = intern_printf("%s:round%d", vars->all.at[u->param].path, u->draws / DRAWS);
  int draw = u->draws++ % DRAWS;
  ValueId word = g_random(g, DT_U32, u->space, (int64_t)hash_text(key), RANDOM_STEP, in);
  if (!draw) return word;
  ValueId high = g_binary(g, OP_DIV, word, g_like(g, word, 65536));
  return draw == 1 ? high : g_binary(g, OP_ADD, word, high);
}

/* x, f32, in the format of variable `var`. */
static ValueId rounded(const Step *s, Update *u, int var, ValueId x) {
  DType t = s->job->vars->all.at[var].dtype;
  return t == DT_BF16 ? g_binary(s->g, OP_STOCHASTIC, x, random_bits(s, u)) : g_cast(s->g, x, t);
}

/* ---- moments ---- */

static ValueId in_space(const Step *s, const Update *u, ValueId x) {
  return shape_equal(&val(s->g, x)->shape, &u->space) ? x : g_reshape(s->g, x, u->space);
}

/* Copies keep apart what is computed from the same variables. */
static ValueId copied(const Step *s, ValueId x, int times) {
  for (int i = 0; i < times; i++) x = g_unary(s->g, OP_HOLD, x);
  return x;
}

static ValueId read_var(const Step *s, const Update *u, int var) {
  return copied(s, in_space(s, u, g_var(s->g, var)), u->copy);
}

/* The scale of each block. A copy makes it a value of the row, which the row's kernel may replace. */
static ValueId scales(const Step *s, const Update *u, int var) {
  return copied(s, g_var(s->g, var), 1 + u->copy);
}

static ValueId per_element(const Step *s, const Update *u, ValueId row) {
  static const int64_t axis[] = {0};
  return g_broadcast(s->g, row, u->space, axis);
}

static int scale_of(const Step *s, const Update *u, const char *suffix) {
  return derived_var(s->job->vars, u->param, intern_printf("%s:scale", suffix));
}

static bool never_negative(const char *suffix) {
  return !strcmp(suffix, ":v");
}

/* x, or what was there before when the step does not count. */
static ValueId if_it_counts(const Step *s, ValueId x, ValueId old) {
  return s->finite < 0 ? x : g_select(s->g, s->finite, x, old);
}

ValueId state_read(const Step *s, const Update *u, const char *suffix) {
  Graph *g = s->g;
  int var = derived_var(s->job->vars, u->param, suffix), scale = scale_of(s, u, suffix);
  ValueId x = read_var(s, u, var);
  if (scale < 0) return g_cast(g, x, DT_F32);
  ValueId entry = g_unary(g, never_negative(suffix) ? OP_DEQUANT8U : OP_DEQUANT8, x);
  return mul(g, entry, per_element(s, u, scales(s, u, scale)));
}

void state_store(const Step *s, Update *u, const char *suffix, ValueId x) {
  Graph *g = s->g;
  int var = derived_var(s->job->vars, u->param, suffix), scale = scale_of(s, u, suffix);
  if (scale < 0) {
    ValueId old = s->finite < 0 ? -1 : state_read(s, u, suffix);
    g_assign(g, var, rounded(s, u, var, if_it_counts(s, x, old)));
    return;
  }
  static const int64_t columns[] = {1};
  bool plain = never_negative(suffix);
  ValueId most = g_reduce(g, OP_AMAX, plain ? x : g_unary(g, OP_ABS, x), 1, columns);
  ValueId share = quot(g, x, per_element(s, u, most)); /* 0 / 0 becomes entry 0 */
  ValueId code = g_unary(g, plain ? OP_QUANT8U : OP_QUANT8, share);
  g_assign(g, var, if_it_counts(s, code, in_space(s, u, g_var(g, var))));
  g_assign(g, scale, if_it_counts(s, most, scales(s, u, scale)));
}

void store_f32(const Step *s, int var, ValueId x, ValueId old) {
  g_assign(s->g, var, if_it_counts(s, x, old));
}

/* ---- weights ---- */

static ValueId weight_read(const Step *s, const Update *u) {
  Graph *g = s->g;
  const Vars *vars = s->job->vars;
  int home = master_of(vars, u->param);
  ValueId x = in_space(s, u, g_var(g, home));
  if (vars->all.at[home].dtype != DT_U16) return g_cast(g, x, DT_F32);
  return g_binary(g, OP_JOIN, in_space(s, u, g_var(g, u->param)), x);
}

static bool has_accumulator(const Step *s, int param) {
  return !s->gradient || s->gradient[param] < 0;
}

ValueId gradient_read(const Step *s, int param) {
  return has_accumulator(s, param) ? g_var(s->g, accum_of(s->job->vars, param))
                                   : s->gradient[param];
}

ValueId gradient(const Step *s, const Update *u, ValueId factor) {
  ValueId x = copied(s, in_space(s, u, gradient_read(s, u->param)), u->copy);
  x = g_cast(s->g, x, DT_F32);
  if (factor < 0)
    factor = s->scale;
  else if (s->scale >= 0)
    factor = mul(s->g, s->scale, factor);
  return factor < 0 ? x : mul(s->g, x, factor);
}

Update update_begin(Step *s, int param) {
  Graph *g = s->g;
  const Vars *vars = s->job->vars;
  double lr_scale = job_lr_scale(s->job, s->phase_index, param);
  Update u = {.param = param,
              .space = vars->all.at[param].shape,
              .decay = job_weight_decay(s->job, s->phase_index, param)};
  bool blocks =
      derived_var(vars, param, ":m:scale") >= 0 || derived_var(vars, param, ":v:scale") >= 0;
  if (blocks) u.space = blocks_of(&u.space);
  u.lr = lr_scale == 1 ? s->lr : times(g, s->lr, lr_scale);
  u.p = weight_read(s, &u);
  u.grad = gradient(s, &u, -1);
  return u;
}

Update update_again(Step *s, const Update *u) {
  Update again = *u;
  again.copy++;
  again.grad = gradient(s, &again, -1);
  return again;
}

void weight_store(const Step *s, Update *u, ValueId p) {
  Graph *g = s->g;
  const Vars *vars = s->job->vars;
  int param = u->param, home = master_of(vars, param);
  DType t = vars->all.at[param].dtype, kept = vars->all.at[home].dtype;
  ValueId x = if_it_counts(s, p, u->p);
  if (home == param) {
    g_assign(g, param, rounded(s, u, param, x));
  } else {
    g_assign(g, home, kept == DT_U16 ? g_unary(g, OP_LOW, x) : g_cast(g, x, kept));
    g_assign(g, param, t == DT_BF16 ? g_unary(g, OP_HIGH, x) : g_cast(g, x, t));
  }
}
