/* program.h - from a Plan to the executable Program: kernels emitted and compiled, commands, and
 * all that the runtime needs to know of the job. Everything is copied out of the plan; the program
 * refers to nothing but its arena. */
#ifndef MTC_CODEGEN_PROGRAM_H
#define MTC_CODEGEN_PROGRAM_H
#include "../passes/plan.h"
#include "../runtime/program.h"

/* NULL with a sentence in *why when this machine cannot compile the kernels, or a kernel cannot be
 * emitted. */
Program *program_build(const Plan *p, Arena *a, const char **why);
/* The same for another kind of device than the plan's target: the CPU executes every plan, at its
 * offsets. */
Program *program_build_on(const Plan *p, DeviceKind device, Arena *a, const char **why);

/* ---- between the files ---- */
/* program_tables.c: variables, phases, data, weights, evaluation, checkpoints. */
void program_tables(const Plan *p, Program *out);
/* The tensor of a value with this shape and dtype that lies at `at`. */
Tensor program_tensor(const Plan *p, const Storage *at, const Shape *s, DType t);
/* dot.c: sizes and strides of a CL_GEMM cluster whose operands are a, b and c. False with a
 * sentence when they are no matrices. */
bool dot_gemm(const Graph *g, const Cluster *c, const Tensor *a, const Tensor *b, const Tensor *to,
              Gemm *out, const char **why);

#endif
