/* replay.h - a device that executes programs: one table of functions per back end, so that a new
 * device is one file.
 *
 * Open allocates the one arena of Program.arena_bytes and loads the kernels; nothing is allocated
 * on the device after that. Run replays all commands of one program in order; read and write copy
 * bytes between the host and the arena and see every earlier run. One thread uses a device at a
 * time. Errors go to the Fail with EXIT_DEVICE. */
#ifndef MTC_REPLAY_H
#define MTC_REPLAY_H
#include "fail.h"
#include "program.h"

typedef struct Device Device;

typedef struct {
  int threads; /* CPU: 0 = all cores */
  bool poison; /* fill every transient buffer with 0xFF bytes (NaN) when a program starts and when
                  the buffer dies */
} DeviceOptions;

typedef struct {
  const char *name; /* "cpu" */
  /* NULL on failure. The program must outlive the device. The arena starts zeroed. */
  Device *(*open)(const Program *p, const DeviceOptions *o, Fail *f);
  bool (*run)(Device *d, int program, Fail *f); /* may return before the device is done */
  bool (*wait)(Device *d, Fail *f);             /* until all runs are done */
  bool (*read)(Device *d, int64_t offset, void *to, int64_t bytes, Fail *f);
  bool (*write)(Device *d, int64_t offset, const void *from, int64_t bytes, Fail *f);
  /* Where the arena lies when the host can reach it (the CPU), else NULL: then read and write copy.
   */
  void *(*host)(Device *d);
  /* Bytes the device really holds for us, measured, to be compared with the plan: the arena's pages
   * on the CPU. */
  int64_t (*measured)(Device *d);
  /* Runs a program as `run` does, waits for it, and says when each command began: start[i] in
   * seconds from the first, start[ncmds] the end. Fills no poison. Commands take a little longer
   * than in `run`. With start NULL it runs nothing and only makes ready what a first call makes, which
   * takes memory beyond the plan. */
  bool (*time)(Device *d, int program, double *start, Fail *f);
  /* Bytes a second, read + written, of large copies within the device; 0 when there is no room to
   * tell. */
  bool (*copy_rate)(Device *d, double *rate, Fail *f);
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
/* By name; false without a failure set when the program has none of that name. */
const Tensor *program_input(const Program *p, int program, const char *name);
const Tensor *program_result(const Program *p, int program, const char *name);
int program_var(const Program *p, const char *path); /* -1 */

#endif
