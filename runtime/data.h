/* data.h - samples of a data set: token files, text as bytes and jsonl, read through mmap.
 *
 * Opening validates everything (sizes, headers, ids, lengths), so that nothing is refused after
 * step 0. docs/data.md describes the formats. A sample is T inputs and T targets, the targets being
 * the next tokens; positions beyond the end of the data hold input 0 and target `ignore`. */
#ifndef MTC_DATA_H
#define MTC_DATA_H
#include "fail.h"
#include "program.h"

/* As DataKind and TooLong of the job; the compiler asserts that they agree. */
enum { RD_TOKENS, RD_TEXT, RD_JSONL };
enum { RT_ERROR, RT_TRUNCATE, RT_SPLIT };

typedef struct DataSet DataSet;

typedef struct {
  int64_t tokens;  /* T */
  int64_t vocab;   /* ids must be below; 0: any that fits i32 */
  bool has_ignore; /* targets can be left out by setting them to `ignore` */
  int32_t ignore;
  bool
      whole; /* evaluation: a last window of fewer than T tokens is a padded sample, not left out */
} DataNeeds;

/* `source` is the .mt that named the files: paths are relative to its folder. NULL on failure, with
 * EXIT_IO. */
DataSet *data_open(const ProgramData *d, const char *source, bool val, const DataNeeds *needs,
                   Fail *f);
void data_close(DataSet *d); /* NULL is fine */

int64_t data_samples(const DataSet *d);    /* >= 1 */
int64_t data_all_tokens(const DataSet *d); /* targets that exist, before masks */

/* Writes sample i (storage order): T inputs, T targets, T flags "an input stands here". Returns the
 * number of targets that count, or -1 when the file changed under us. Thread-safe. */
int64_t data_sample(const DataSet *d, int64_t i, int32_t *inputs, int32_t *targets,
                    uint8_t *present);

#endif
