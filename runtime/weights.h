/* weights.h - the `weights` map between keys of a safetensors file and variables: matching, import,
 * export. */
#ifndef MTC_WEIGHTS_H
#define MTC_WEIGHTS_H
#include "safetensors.h"
#include "program.h"

/* One key of the file and the variable that it stands for. */
typedef struct {
  const char *key;
  const char *path;
  int var;         /* index in the table that the slots were made from */
  bool transposed; /* the file holds the transpose */
  DType dtype;     /* of the variable */
  int rank;
  int64_t dim[MAX_RANK]; /* of the variable */
} WeightSlot;
typedef struct {
  WeightSlot *at;
  int n;
} WeightSlots;

/* By the program's map; without one every parameter and state by its path. */
WeightSlots weights_of_program(Arena *a, const Program *p);

/* When the file has every key that it lacks behind one and the same prefix, slots get it: "transformer.h.0.ln_1.weight" for
 * "h.0.ln_1.weight", of a model saved as a part of a larger one. New keys lie in a. */
void weights_take_prefix(Arena *a, WeightSlots *s, const SafeTensors *file);

/* Every slot has its key in the file with the right shape, and every key of the file has a slot,
 * but for buffers that can be computed (causal masks, rotary frequencies) and keys that match a
 * pattern of `ignore` (shell globs). All that does not fit is reported together as E0302. */
typedef struct {
  const char *const *ignore;
  int nignore;
  int ignored; /* result: keys left out */
} WeightRules;
bool weights_match(const WeightSlots *s, const SafeTensors *file, const char *path,
                   WeightRules *rules, Fail *f);

/* Between file layout and the variable's row-major order: `to` gets the elements of the variable in
 * dtype `dtype`. */
bool weights_import(const WeightSlot *s, const StEntry *e, DType dtype, void *to, Fail *f);
/* `from` holds the variable in dtype `dtype`; `to` gets what the file holds, in dtype `file_dtype`.
 */
bool weights_export(const WeightSlot *s, DType dtype, const void *from, DType file_dtype, void *to,
                    Fail *f);
/* Shape in the file. */
void weights_file_dims(const WeightSlot *s, int64_t *dim);

#endif
