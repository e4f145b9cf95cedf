/* data_parts.h - what data.c, data_tokens.c and data_jsonl.c share. Nobody else includes it. */
#ifndef MTC_DATA_PARTS_H
#define MTC_DATA_PARTS_H
#include "data.h"

/* One mapped file. */
typedef struct {
  const char *path;
  const uint8_t *map; /* NULL when empty */
  size_t size;
  const uint8_t *first; /* tokens: behind the header */
  int64_t begin, end;   /* tokens or text: the range that is used */
  int64_t samples_before;
} Shard;

/* A sample of a jsonl file: a line, or with `split` a part of one. */
typedef struct {
  int shard;
  int64_t offset, bytes; /* of the line */
  int64_t part;          /* starts at token part * T */
} Line;

struct DataSet {
  Arena *arena;
  const ProgramData *setting;
  DataNeeds needs;
  const char *name;
  bool val;
  int kind, width; /* bytes a token in the files */
  VEC(Shard) shards;
  VEC(Line) lines;
  int64_t samples, tokens;
};

/* data_tokens.c */
bool tokens_index(DataSet *d, double keep_from, double keep_to, Fail *f);
int64_t tokens_sample(const DataSet *d, int64_t i, int32_t *inputs, int32_t *targets,
                      uint8_t *present);
/* data_jsonl.c */
bool jsonl_index(DataSet *d, double keep_from, double keep_to, Fail *f);
int64_t jsonl_sample(const DataSet *d, int64_t i, int32_t *inputs, int32_t *targets,
                     uint8_t *present);

#endif
