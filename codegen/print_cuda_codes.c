/* print_cuda_codes.c - 8-bit codes of blocks of numbers: instead of a score of instructions for each
 * element, tables in shared memory that a block fills once, before it takes row after row. */
#include "print_c.h"
#include "print_cuda_impl.h"

static const struct {
  Op op;
  const char *function, *table;
  bool is_unsigned;
} codes[] = {
    {OP_QUANT8, "mt_code", "codes8", false},
    {OP_QUANT8U, "mt_code", "codes8u", true},
    {OP_DEQUANT8, "mt_entry", "codes8", false},
    {OP_DEQUANT8U, "mt_entry", "codes8u", true},
};

/* The row of the table above for register r, or -1. */
static int code_of(const Printer *p, KReg r) {
  const KInstr *d = pr_instr(p, r);
  for (int i = 0; i < COUNT_OF(codes); i++)
    if (d->kind == KI_OP && d->op == codes[i].op) return i;
  return -1;
}

static bool any(const Printer *p, bool is_unsigned) {
  for (int r = 0; r < p->k->ninstrs; r++) {
    int i = code_of(p, r);
    if (i >= 0 && codes[i].is_unsigned == is_unsigned && pr_in_passes(p, r, false)) return true;
  }
  return false;
}

bool pr_any_codes(const Printer *p) {
  return any(p, false) || any(p, true);
}

void pr_code_tables(Printer *p) {
  for (int u = 0; u < 2; u++) {
    if (!any(p, u)) continue;
    const char *name = u ? "codes8u" : "codes8";
    pr_line(p, "__shared__ MtCodes<%s> %s;", u ? "true" : "false", name);
    pr_line(p, "mt_codes_fill(%s);", name);
  }
  pr_line(p, "__syncthreads();");
  p->codes = true;
}

const char *pr_code_value(Printer *p, KReg r) {
  int i = p->codes ? code_of(p, r) : -1;
  if (i < 0 || kreg_level(p->n, pr_instr(p, r)) != LV_ELEM) return NULL;
  return pr_text(p, "%s(%s, v%d)", codes[i].function, codes[i].table, (int)pr_instr(p, r)->in[0]);
}
