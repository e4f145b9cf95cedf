/* replay.h - a device that executes programs: one table of functions per back end, so that a new
 * device is one file.
 *
 * Open allocates the one arena of Program.arena_bytes on the device and, where the program has one,
 * the arena of Program.host_bytes on the host, and loads the kernels; nothing is allocated after
 * that. Run replays all commands of one program in order, its copies between the two beside them;
 * read and write move bytes to and from either arena and see every earlier run. One thread uses a
 * device at a time. Errors go to the Fail with EXIT_DEVICE. */
#ifndef MTC_REPLAY_H
#define MTC_REPLAY_H
#include "fail.h"
#include "program.h"

typedef struct Device Device;

/* When the copies of a program happen. It allows any time between CMD_COPY and the CMD_WAIT for it
 * or its end; a program whose results differ between the first two is wrong. */
typedef enum {
  COPIES_SOON, /* CPU: at their CMD_COPY. CUDA: on streams of their own, beside what follows */
  COPIES_LATE, /* at their CMD_WAIT, or when the program ends; CUDA: command by command, as with
                  poison */
  COPIES_NEVER /* left out, to measure what they cost; on CUDA numbers from the GPU's own memory
                  come instead: results mean nothing */
} CopyTimes;

typedef struct {
  int threads; /* CPU: 0 = all cores */
  bool poison; /* fill every transient buffer with 0xFF bytes (NaN) when a program starts and when
                  the buffer dies, and what a late copy writes when it may begin */
  CopyTimes copies;
  const char *algorithms; /* CUDA: file of the products' algorithms (gemm_table.h) that a run
                             recorded; NULL = those that `mtc bench` found on this machine */
} DeviceOptions;

/* Called after a command, when it and all before it have finished. *enough ends the run there;
 * false with the failure set ends it as well. */
typedef bool CommandSeen(void *context, int cmd, bool *enough, Fail *f);

/* What timing the products of a program found. */
typedef struct {
  int products, faster; /* distinct ones; where another algorithm than the rule's was faster */
  double rule, best;    /* seconds of one run of each: with the rule's algorithms, with the best */
  const char *machine;  /* of the arena that was given */
  const char *path;     /* the table that was written */
} DeviceTune;

typedef struct {
  const char *name; /* "cpu" */
  /* NULL on failure. The program must outlive the device. Both arenas start zeroed. */
  Device *(*open)(const Program *p, const DeviceOptions *o, Fail *f);
  bool (*run)(Device *d, int program, Fail *f); /* may return before the device is done */
  bool (*wait)(Device *d, Fail *f);             /* until all runs are done */
  /* Of the arena on the host when `host`, else of the device's. */
  bool (*read)(Device *d, bool host, int64_t offset, void *to, int64_t bytes, Fail *f);
  bool (*write)(Device *d, bool host, int64_t offset, const void *from, int64_t bytes, Fail *f);
  /* Where that arena lies when the processor can reach it, else NULL: the host's always, the
   * device's on the CPU. Whoever uses it waits first. */
  void *(*reach)(Device *d, bool host);
  /* Bytes the device really holds for us, measured, to be compared with the plan: the arena's pages
   * on the CPU. */
  int64_t (*measured)(Device *d);
  /* The same of the host's arena: pages in memory, on CUDA pinned; 0 without one. */
  int64_t (*measured_host)(Device *d);
  /* Runs a program as `run` does, waits for it, and says when each command began: start[i] in
   * seconds from the first, start[ncmds] the end of commands and copies. Fills no poison. Commands
   * take a little longer than in `run`. Of command i that is a copy, copy[2 * i] and the
   * next are its own begin and end (start[i] is when it might have begun); copy NULL: not asked.
   * With start NULL it runs nothing and only makes ready what a first call makes, which takes
   * memory beyond the plan. */
  bool (*time)(Device *d, int program, double *start, double *copy, Fail *f);
  /* Runs a program one command after another, and calls `seen` between them. What is left of a
   * program that was ended early is not run: its variables are not what a whole run leaves. */
  bool (*watch)(Device *d, int program, CommandSeen *seen, void *context, Fail *f);
  /* Bytes a second, read + written, of large copies within the device; 0 when there is no room to
   * tell. */
  bool (*copy_rate)(Device *d, double *rate, Fail *f);
  /* Times candidate algorithms of the program's products on random data, on a device of its own,
   * and writes the fastest into the table that later opens read. NULL where there is no choice. */
  bool (*tune)(const Program *p, const DeviceOptions *o, Arena *a, DeviceTune *to, Fail *f);
  /* Writes the algorithms in use to a file for DeviceOptions.algorithms. NULL where there is no
   * choice. */
  bool (*record)(Device *d, const char *path, Fail *f);
  void (*close)(Device *d); /* NULL is fine */
} DeviceApi;

extern const DeviceApi device_cpu, device_cuda;
/* The back end a program was compiled for; NULL with the failure set when this build has none. */
const DeviceApi *device_for(const Program *p, Fail *f);

/* A device together with its program: what the training loop holds. */
typedef struct {
  const Program *program;
  const DeviceApi *api;
  Device *device;
} Replay;

bool replay_open(Replay *r, const Program *p, const DeviceOptions *o, Fail *f);
void replay_close(Replay *r);
bool replay_run(Replay *r, int program, Fail *f);

/* Whole tensors in row-major order without padding, in the tensor's dtype. */
bool replay_read(Replay *r, const Tensor *t, void *packed, Fail *f);
bool replay_write(Replay *r, const Tensor *t, const void *packed, Fail *f);
/* Elements `first` .. of a tensor without gaps (tensor_contiguous). */
bool replay_write_part(Replay *r, const Tensor *t, int64_t first, const void *packed, int64_t n,
                       Fail *f);
/* Where a tensor without gaps lies when the processor can reach it, after all runs are done: it may
 * be read and written there. *at is NULL for others. False on failure. */
bool replay_reach(Replay *r, const Tensor *t, void **at, Fail *f);
/* By name; false without a failure set when the program has none of that name. */
const Tensor *program_input(const Program *p, int program, const char *name);
const Tensor *program_result(const Program *p, int program, const char *name);
int program_var(const Program *p, const char *path); /* -1 */

#endif
