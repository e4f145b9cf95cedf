/* gemm_table.h - which algorithm of cuBLASLt each product takes: a text file, one line a product.
 *
 * `mtc bench` times candidates and writes the winners beside the compiled kernels; a program that
 * is loaded takes them from there, and a run keeps the ones that it took in its folder, so that a
 * resumed run repeats them. An algorithm means something to one version of the library on one kind
 * of GPU: the first line names both, and a file of another machine is not read. */
#ifndef MTC_GEMM_TABLE_H
#define MTC_GEMM_TABLE_H
#include "../ir/base.h"

typedef struct {
  uint64_t key;       /* of sizes, dtypes, strides, alignments and workspace */
  uint64_t algo[8];   /* as cuBLASLt serialises it */
  uint64_t workspace; /* bytes that it uses */
  double us, rule_us; /* measured; of the algorithm that the fixed rule takes; 0 not measured */
  const char *what;   /* for readers: "65536x3072x768 bf16"; no line break */
} GemmChoice;

typedef struct {
  Arena *arena;
  const char *machine; /* "NVIDIA H200, cuBLASLt 130100" */
  VEC(GemmChoice) all;
} GemmTable;

GemmTable gemm_table_new(Arena *a, const char *machine);
/* Where `mtc bench` keeps the table of a machine: in $XDG_CACHE_HOME/mtc or ~/.cache/mtc. */
char *gemm_table_path(Arena *a, const char *machine);

/* Adds the choices of a file; false when there is none, when it is of another machine or damaged:
 * nothing is added then. */
bool gemm_table_read(GemmTable *t, const char *path);
/* Writes the table whole, creating its folder. False with errno set. */
bool gemm_table_write(const GemmTable *t, const char *path);

const GemmChoice *gemm_table_find(const GemmTable *t, uint64_t key); /* NULL: none */
/* Adds a choice or replaces the one with its key. */
void gemm_table_put(GemmTable *t, GemmChoice c);
void gemm_table_drop(GemmTable *t, uint64_t key);
#endif
