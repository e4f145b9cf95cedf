/* types.h - element types and shapes. */
#ifndef MTC_TYPES_H
#define MTC_TYPES_H
#include "base.h"

/*            id    text   bytes  float */
#define DTYPES(X)                                                                                  \
  X(DT_F32,   "f32",  4, true)                                                                     \
  X(DT_BF16,  "bf16", 2, true)                                                                     \
  X(DT_F16,   "f16",  2, true)                                                                     \
  X(DT_I32,   "i32",  4, false)                                                                    \
  X(DT_U32,   "u32",  4, false)                                                                    \
  X(DT_I8,    "i8",   1, false)                                                                    \
  X(DT_BOOL,  "bool", 1, false)                                                                    \
  X(DT_U16,   "u16",  2, false)                                                                    \
  X(DT_U8,    "u8",   1, false)

typedef enum {
#define X(id, text, bytes, is_float) id,
  DTYPES(X)
#undef X
  DT_COUNT
} DType;

const char *dtype_name(DType t);
int dtype_bytes(DType t);
bool dtype_is_float(DType t);
int dtype_by_name(const char *s); /* -1 when unknown */
/* Our name for what others call a type: "i8" for "int8", "bf16" for "bfloat16"; NULL when unknown. For help in messages. */
const char *dtype_of_others(const char *s);

enum { MAX_RANK = 8 };

/* Static, row-major. Axes keep the name the model gave them (interned, NULL = unnamed); names serve messages
 * only and never decide semantics. */
typedef struct {
  int rank;
  int64_t dim[MAX_RANK];
  const char *axis[MAX_RANK];
} Shape;

int64_t shape_count(const Shape *s); /* elements; 1 for a scalar; bug() on overflow */
int64_t shape_bytes(const Shape *s, DType t);
bool shape_equal(const Shape *a, const Shape *b);   /* dims only */
void shape_strides(const Shape *s, int64_t *stride); /* contiguous, in elements */
/* "[B=8, T=1024, 768]"; "scalar" for rank 0. */
char *shape_text(Arena *a, const Shape *s);
Shape shape_of(int rank, const int64_t *dim);
#define SHAPE(...) shape_of(COUNT_OF(((int64_t[]){__VA_ARGS__})), (int64_t[]){__VA_ARGS__})
static inline Shape shape_scalar(void) { return (Shape){0}; }

#endif
