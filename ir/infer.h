/* infer.h - internal to ir/: attribute layout and shape rules.
 *
 * A shape rule reads operands and attributes and fills out[]; on a mistake it fills err, message,
 * notes and help and returns false. It never ends the process, whatever the operands and attributes
 * hold, so that the builder can turn a mistake into a diagnostic, the verifier into a sentence and
 * the reader into a line number. */
#ifndef MTC_INFER_H
#define MTC_INFER_H
#include "graph.h"

typedef struct {
  DType dtype;
  Shape shape;
} Type;

enum { MAX_OUT = 4, MAX_NOTES = 4 };

typedef struct {
  const Graph *g; /* operand values and variables are looked up here */
  Arena *arena;   /* messages come from it */
  Op op;
  int nin;
  const ValueId *in;
  int nints;
  const int64_t *ints;
  const double *num; /* two numbers */
  const char *sym;
  /* results */
  int nout;
  Type out[MAX_OUT];
  ErrId err;
  const char *message;
  const char *notes[MAX_NOTES];
  int nnotes;
  const char *help; /* NULL none */
} Infer;

/* Checks counts and attribute layout, then runs the op's shape rule. */
bool infer(Infer *f);

/* Records the mistake; returns false, so that a rule can `return infer_fail(..)`. */
bool infer_fail(Infer *f, ErrId id, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void infer_note(Infer *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Operand and attribute access inside rules; attributes by name as in ops.def. */
const Value *infer_in(const Infer *f, int i);
int64_t infer_int(const Infer *f, const char *name);
int infer_list(const Infer *f, const char *name, const int64_t **items);
/* Sets the only result. Fails when the shape is not a shape: rank over MAX_RANK, dims under 1, too
 * large. */
bool infer_out(Infer *f, DType t, const Shape *s);
bool infer_shape_ok(Infer *f, const Shape *s);

/* Every shape rule of the table. */
typedef bool ShapeRule(Infer *f);
#define OP(id, text, nin, nout, attrs, shape, grad, eval, kind, doc) ShapeRule shape;
#include "ops.def"

/* One attribute of the legend of an op: where it starts in ints or num, and how many words it has.
 */
typedef struct {
  char name[16];
  char kind; /* i I f s d */
  int at, len;
} Attr;
/* Walks the legend over ints. Fills at most `max` attributes; -1 when ints do not have this layout.
 */
int attr_layout(Op op, int nints, const int64_t *ints, int max, Attr *out);
/* The attribute `name` of an op whose ints have its layout; there must be one. */
Attr attr_find(Op op, int nints, const int64_t *ints, const char *name);
enum { MAX_ATTRS = 8 };
/* Reads the name and kind of the legend entry at *legend and steps over it; false at the end. */
bool attr_next(const char **legend, Attr *out);

/* How messages call an op: "+" for add, "@" for dot, else its name. */
const char *op_symbol(Op op);

#endif
