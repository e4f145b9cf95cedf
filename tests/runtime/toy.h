/* toy.h - a small hand-made program that fills every field of program.h, for tests of the runtime that need no compiler. */
#ifndef MTC_TESTS_TOY_H
#define MTC_TESTS_TOY_H
#include "ir/graph.h"
#include "runtime/program.h"

#include <string.h>

static inline Tensor toy_tensor(int64_t offset, DType t, int rank, const int64_t *dim) {
  Tensor x = {.offset = offset, .dtype = t, .rank = rank};
  int64_t stride = 1;
  for (int i = rank; i-- > 0;) {
    x.dim[i] = dim[i];
    x.stride[i] = stride;
    stride *= dim[i];
  }
  return x;
}
#define TOY_TENSOR(offset, t, ...) \
  toy_tensor((offset), (t), COUNT_OF(((int64_t[]){__VA_ARGS__})), (int64_t[]){__VA_ARGS__})

static inline ProgramVar toy_var(const char *path, ProgramVarRole role, Tensor at) {
  return (ProgramVar){.path = path, .role = role, .at = at, .trainable = role == PV_PARAM, .of = -1,
                      .init_kind = INIT_ZEROS, .init_from = -1};
}

#endif
