/* outfile.h - a file that appears under its name only when it is complete and durable: written to
 * PATH.tmp-PID, synced, renamed, folder synced. Streams, so that checkpoints and weights never need
 * a second copy in memory; what is on the disk leaves the cache, which a large one would fill. */
#ifndef MTC_OUTFILE_H
#define MTC_OUTFILE_H
#include "fail.h"

typedef struct {
  int fd;
  int64_t bytes;     /* written so far */
  int64_t behind;    /* of them on the disk and out of the cache */
  const char *crash; /* name of the crash point that counts these bytes, or NULL */
  char path[1024], tmp[1100];
} OutFile;

bool out_open(OutFile *o, const char *path, const char *crash, Fail *f);
bool out_write(OutFile *o, const void *data, size_t bytes, Fail *f);
bool out_pad(OutFile *o, int64_t align, Fail *f); /* zeros up to a multiple of align */
bool out_commit(OutFile *o, Fail *f);             /* the file is there, or nothing is */
void out_abandon(OutFile *o);

/* Test hook, documented in docs/checkpoint.md: with MTC_CRASH_AT=POINT:N in the environment the
 * process kills itself (SIGKILL) behind the N-th unit of that point. One unit passes: */
void crash_point(const char *point);

#endif
