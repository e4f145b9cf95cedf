/* print_c.h - between the files of the C printer. */
#ifndef MTC_PRINT_C_H
#define MTC_PRINT_C_H
#include "kir.h"

/* C type that a register of this dtype lives in ("float"), and that memory holds ("uint16_t"). */
const char *c_register_type(DType t);
const char *c_memory_type(DType t);

/* The register that a memory element holds, and the memory element that a register becomes. */
void c_loaded(Str *out, DType t, const char *element);
void c_stored(Str *out, DType t, const char *value);

/* The integer, in terms of i0, i1, ..: one variable for each group of the nest, named after its
 * last axis. */
void c_index(Str *out, const KIndex *i, const KNest *n);
/* The right-hand side that computes register r; KI_REDUCE and KI_SUM have none. */
void c_expression(Str *out, const Kernel *k, const KNest *n, KReg r);
/* The same before it is rounded to its dtype. */
void c_unrounded(Str *out, const Kernel *k, const KNest *n, KReg r);
/* "p3[..] = v7;" */
void c_store(Str *out, const Kernel *k, const KNest *n, const KStore *s);

#endif
