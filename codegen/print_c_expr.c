/* print_c_expr.c - expressions of the C printer: types, indices, loads, element-wise operations,
 * stores.
 *
 * Floats are computed in f32 and rounded to their dtype where they are made. bool is 0 or 1 in an
 * int32_t, so that vectors of it have the width of the rest. */
#include <string.h>

#include "print_c.h"

static const struct {
  const char *memory, *reg, *load, *store;
} c_types[DT_COUNT] = {
    [DT_F32] = {"float", "float", "%s", "%s"},
    [DT_BF16] = {"uint16_t", "float", "mt_from_bf16(%s)", "mt_to_bf16(%s)"},
    [DT_F16] = {"uint16_t", "float", "mt_from_f16(%s)", "mt_to_f16(%s)"},
    [DT_I32] = {"int32_t", "int32_t", "%s", "%s"},
    [DT_U32] = {"uint32_t", "uint32_t", "%s", "%s"},
    [DT_I8] = {"int8_t", "int32_t", "(int32_t)%s", "(int8_t)%s"},
    [DT_BOOL] = {"uint8_t", "int32_t", "(int32_t)(%s != 0)", "(uint8_t)%s"},
    [DT_U16] = {"uint16_t", "uint32_t", "(uint32_t)%s", "(uint16_t)%s"},
    [DT_U8] = {"uint8_t", "uint32_t", "(uint32_t)%s", "(uint8_t)%s"},
};
const char *c_register_type(DType t) {
  return c_types[t].reg;
}
const char *c_memory_type(DType t) {
  return c_types[t].memory;
}

static void fill(Str *out, const char *pattern, const char *what) {
  const char *spot = strstr(pattern, "%s");
  str_add_n(out, pattern, (size_t)(spot - pattern));
  str_add(out, what);
  str_add(out, spot + 2);
}
void c_loaded(Str *out, DType t, const char *element) {
  fill(out, c_types[t].load, element);
}
void c_stored(Str *out, DType t, const char *value) {
  fill(out, c_types[t].store, value);
}

/* ---- indices ---- */

static void add_term(Str *out, bool *first, int64_t coef, const char *what) {
  if (!coef) return;
  if (coef < 0)
    str_add(out, *first ? "-" : " - ");
  else if (!*first)
    str_add(out, " + ");
  *first = false;
  int64_t size = coef < 0 ? -coef : coef;
  if (!what)
    str_addf(out, "%lld", (long long)size);
  else if (size == 1)
    str_add(out, what);
  else
    str_addf(out, "%s * %lld", what, (long long)size);
}

void c_index(Str *out, const KIndex *i, const KNest *n) {
  bool first = true;
  for (int g = 0; n && g < n->nrows + n->ncols; g++) {
    char name[16];
    snprintf(name, sizeof name, "i%d", n->group[g].last);
    add_term(out, &first, i->coef[n->group[g].last], name);
  }
  for (int s = 0; s < i->nsubs; s++) {
    Str sub = {.arena = out->arena};
    if (i->subs[s].mod) str_add(&sub, "(");
    if (i->subs[s].div != 1) str_add(&sub, "(");
    str_add(&sub, "(");
    c_index(&sub, i->subs[s].of, n);
    str_add(&sub, ")");
    if (i->subs[s].div != 1) str_addf(&sub, " / %lld)", (long long)i->subs[s].div);
    if (i->subs[s].mod) str_addf(&sub, " %% %lld)", (long long)i->subs[s].mod);
    add_term(out, &first, i->subs[s].coef, sub.text);
  }
  add_term(out, &first, i->constant, NULL);
  if (first) str_add(out, "0");
}

/* ---- operations ---- */

/* $0 $1 $2 are the operands. Ints that are not I32 wrap through their own type afterwards. */
static const struct {
  Op op;
  const char *f, *i;
} c_ops[] = {
    {OP_NEG, "-$0", "-$0"},
    {OP_ABS, "mt_abs($0)", "($0 < 0 ? -$0 : $0)"},
    {OP_EXP, "mt_exp($0)", NULL},
    {OP_LOG, "mt_log($0)", NULL},
    {OP_SQRT, "mt_sqrt($0)", NULL},
    {OP_RSQRT, "1.0f / mt_sqrt($0)", NULL},
    {OP_TANH, "mt_tanh($0)", NULL},
    {OP_ERF, "mt_erf($0)", NULL},
    {OP_SIN, "mt_sin($0)", NULL},
    {OP_COS, "mt_cos($0)", NULL},
    {OP_FLOOR, "mt_floor($0)", NULL},
    {OP_NOT, NULL, "$0 == 0"},
    {OP_FINITE, "mt_finite($0)", "1"},
    {OP_HOLD, "$0", "$0"},
    {OP_HIGH, "format_high($0)", NULL},
    {OP_LOW, "format_low($0)", NULL},
    {OP_JOIN, "format_join($0, $1)", NULL},
    {OP_STOCHASTIC, "format_stochastic($0, $1)", NULL},
    {OP_QUANT8, "format_quant8($0)", NULL},
    {OP_QUANT8U, "format_quant8u($0)", NULL},
    {OP_DEQUANT8, NULL, "format_dequant8($0)"},
    {OP_DEQUANT8U, NULL, "format_dequant8u($0)"},
    {OP_ADD, "$0 + $1", "$0 + $1"},
    {OP_SUB, "$0 - $1", "$0 - $1"},
    {OP_MUL, "$0 * $1", "$0 * $1"},
    {OP_DIV, "$0 / $1", "mt_div_$t($0, $1)"},
    {OP_MOD, NULL, "mt_mod_$t($0, $1)"},
    {OP_POW, "mt_pow($0, $1)", NULL},
    {OP_MAX, "mt_max($0, $1)", "($0 > $1 ? $0 : $1)"},
    {OP_MIN, "mt_min($0, $1)", "($0 < $1 ? $0 : $1)"},
    {OP_LT, "$0 < $1", "$0 < $1"},
    {OP_LE, "$0 <= $1", "$0 <= $1"},
    {OP_EQ, "$0 == $1", "$0 == $1"},
    {OP_AND, NULL, "$0 & $1"},
    {OP_OR, NULL, "$0 | $1"},
    {OP_SELECT, "$0 ? $1 : $2", "$0 ? $1 : $2"},
};

static const char *op_pattern(const Kernel *k, const KInstr *i) {
  DType t = i->op == OP_SELECT ? i->dtype : k->instrs[i->in[0]].dtype;
  for (int o = 0; o < COUNT_OF(c_ops); o++)
    if (c_ops[o].op == i->op) {
      const char *p = dtype_is_float(t) ? c_ops[o].f : c_ops[o].i;
      ensure(p, "`%s` of %s has no C expression", op_name(i->op), dtype_name(t));
      return p;
    }
  bug("`%s` has no C expression", op_name(i->op));
}

static bool is_unsigned(DType t) {
  return t == DT_U32 || t == DT_U16 || t == DT_U8;
}
/* Integers narrower than their register wrap through their own type: its cast, or NULL. */
static const char *narrowed(DType t) {
  return t == DT_I8    ? "(int32_t)(int8_t)"
         : t == DT_U16 ? "(uint32_t)(uint16_t)"
         : t == DT_U8  ? "(uint32_t)(uint8_t)"
                       : NULL;
}

static void fill_pattern(Str *out, const char *p, const Kernel *k, const KInstr *i) {
  for (; *p; p++) {
    if (*p != '$')
      str_add_n(out, p, 1);
    else if (*++p == 't')
      str_add(out, is_unsigned(k->instrs[i->in[0]].dtype) ? "u32" : "i32");
    else
      str_addf(out, "v%d", (int)i->in[*p - '0']);
  }
}

static void cast(Str *out, DType to, DType from, KReg v) {
  bool f = dtype_is_float(from);
  if (dtype_is_float(to)) {
    str_addf(out, f ? "v%d" : "(float)v%d", (int)v);
  } else if (to == DT_BOOL) {
    str_addf(out, "v%d != 0", (int)v);
  } else if (f) {
    str_addf(out, "mt_to_%s(v%d)", dtype_name(to), (int)v);
  } else if (narrowed(to)) {
    str_addf(out, "%sv%d", narrowed(to), (int)v);
  } else {
    str_addf(out, "(%s)v%d", c_register_type(to), (int)v);
  }
}

static void constant(Str *out, DType t, double x) {
  if (!dtype_is_float(t)) {
    str_addf(out, is_unsigned(t) ? "%lldu" : "%lld", (long long)x);
  } else if (x != x) {
    str_add(out, "mt_float(0x7fc00000u)");
  } else if (x - x != 0) {
    str_add(out, x > 0 ? "mt_float(0x7f800000u)" : "mt_float(0xff800000u)");
  } else {
    char text[40];
    snprintf(text, sizeof text, "%.9g", x);
    str_addf(out, "%s%sf", text, strpbrk(text, ".e") ? "" : ".0");
  }
}

static void load(Str *out, const Kernel *k, const KNest *n, const KInstr *i) {
  DType t = k->params[i->param].dtype;
  Str element = {.arena = out->arena};
  str_addf(&element, "p%d[", i->param);
  if (i->nin)
    str_addf(&element, "mt_row(v%d, %lld) * %lld + ", (int)i->in[0], (long long)i->gather_rows,
             (long long)i->gather);
  c_index(&element, &i->at, n);
  str_add(&element, "]");
  for (int g = 0; g < i->nguards; g++) {
    str_add(out, g ? " & (" : "((");
    c_index(out, &i->guards[g].at, n);
    str_add(out, " >= 0) & (");
    c_index(out, &i->guards[g].at, n);
    str_addf(out, " < %lld)", (long long)i->guards[g].limit);
  }
  if (i->nguards) str_add(out, ") ? ");
  c_loaded(out, t, element.text);
  if (i->nguards) str_add(out, " : 0");
}

static void random_bits(Str *out, const KNest *n, const KInstr *i) {
  str_addf(out, "mt_random_%s(v%d, v%d, v%d, key%d, ", dtype_name(i->dtype), (int)i->in[0],
           (int)i->in[1], (int)i->in[2], i->key_slot);
  if (i->nin == 4) {
    str_addf(out, "v%d + (int32_t)(", (int)i->in[3]);
    c_index(out, &i->at, n);
    str_add(out, "), ");
  } else {
    str_add(out, "0, ");
  }
  str_add(out, "mt_index(");
  c_index(out, &i->element, n);
  str_add(out, "))");
}

void c_unrounded(Str *out, const Kernel *k, const KNest *n, KReg r) {
  const KInstr *i = &k->instrs[r];
  const char *narrow = i->kind == KI_OP && i->op != OP_CAST ? narrowed(i->dtype) : NULL;
  if (narrow) str_addf(out, "%s(", narrow);
  switch (i->kind) {
    case KI_CONST:
      constant(out, i->dtype, i->value);
      break;
    case KI_LOAD:
      load(out, k, n, i);
      break;
    case KI_IOTA:
      str_addf(out, "(%s)(", c_register_type(i->dtype));
      c_index(out, &i->at, n);
      str_add(out, ")");
      break;
    case KI_RANDOM:
      random_bits(out, n, i);
      break;
    case KI_SUM:
      str_addf(out, "q%d[", (int)r);
      c_index(out, &i->column, n);
      str_add(out, "]");
      break;
    case KI_OP:
      if (i->op == OP_CAST)
        cast(out, i->dtype, k->instrs[i->in[0]].dtype, i->in[0]);
      else
        fill_pattern(out, op_pattern(k, i), k, i);
      break;
    case KI_REDUCE:
      bug("a reduction is no expression");
  }
  if (narrow) str_add(out, ")");
}

void c_expression(Str *out, const Kernel *k, const KNest *n, KReg r) {
  const KInstr *i = &k->instrs[r];
  if (i->rounds) str_addf(out, "mt_round_%s(", dtype_name(i->dtype));
  c_unrounded(out, k, n, r);
  if (i->rounds) str_add(out, ")");
}

void c_store(Str *out, const Kernel *k, const KNest *n, const KStore *s) {
  DType t = k->params[s->param].dtype;
  char value[16];
  snprintf(value, sizeof value, "v%d", (int)s->value);
  str_addf(out, "p%d[", s->param);
  c_index(out, &s->at, n);
  str_add(out, "] = ");
  c_stored(out, t, value);
  str_add(out, ";");
}
