/* cuda_parts.h - between the files of the CUDA device: cuda_device.c (memory, graphs, reading and writing), cuda_host.c
 * (the arena on the host, copies), cuda_gemm.c (cuBLASLt), cuda_launch.c (emitted kernels and attention). */
#ifndef MTC_CUDA_PARTS_H
#define MTC_CUDA_PARTS_H
#include "cuda_api.h"
#include "gemm_table.h"
#include "replay.h"

/* A product made ready: descriptors and its algorithm, which the table or the fixed rule chose. */
typedef struct {
  Gemm m;                              /* its sizes */
  int64_t offset_a, offset_b, offset_c; /* elements from the command's tensors */
  LtMatmulDesc desc;
  LtMatrixLayout a, b, c;
  LtAlgo algo;
  size_t workspace; /* that the algorithm uses; <= the command's */
  float beta;
} GemmPart;
/* A GEMM command: one product, or two where a size is no multiple of a vector. */
typedef struct {
  int nparts;
  GemmPart part[2];
} CudaGemm;

/* Kernel arguments live until the graph is captured; pointers of cuLaunchKernel. */
typedef struct {
  CUfunction function;
  int n, most;
  void **arg;
  uint64_t *word; /* pointers and integers */
  CUtensorMap map[6];
} CudaLaunch;

typedef struct {
  CudaGemm *gemm;      /* CMD_GEMM */
  CudaLaunch *launch;  /* the others: nlaunches of them */
  CUevent done;        /* CMD_COPY */
} CudaCmd;

/* A program's graph with an event before each command and one at the end, and two around each copy. */
typedef struct {
  CUgraphExec graph;
  CUevent *event;
  CUevent (*copy)[2]; /* per command */
} CudaTimed;

struct Device {
  const Program *p;
  Arena *memory; /* of all below but the driver's objects */
  DeviceOptions options;
  CUdevice ordinal;
  CUcontext context;
  int64_t taken_before; /* bytes of the GPU in use when the device was opened; -1 unknown */
  CUstream stream;
  CUdeviceptr arena;
  char *host;            /* arena on the host; NULL none */
  bool pinned;
  CUstream copies[2];    /* to the device, to the host */
  CUevent fork;          /* what a copy waits for */
  CUdeviceptr filler;    /* COPIES_NEVER: what comes instead of the host's */
  int nmodules;
  CUmodule *modules;
  CUfunction *functions; /* per kernel name */
  CUdeviceptr schedules; /* the global mt_schedules of the images; 0 none */
  LtHandle lt;
  GemmTable gemms;       /* algorithms from a file */
  CudaCmd **cmds;        /* per program, per command */
  CUgraphExec *graphs;   /* per program; NULL = not captured yet */
  char *ring;            /* pinned staging for writes that the stream orders */
  int64_t ring_at;
  CudaTimed *timed;      /* per program, made by cuda_time; NULL before */
  CUevent ring_events[2]; /* half of the ring was read */
  bool ring_used[2];
};

static inline CUdeviceptr device_at(const Device *d, int64_t offset) {
  return d->arena + (CUdeviceptr)offset;
}

/* cuda_gemm.c. `ready` makes descriptors and takes algorithms; of a part alone: by the rule, up to `most` candidates,
 * best first by the library's own estimate. Returns how many. */
bool cuda_gemm_open(Device *d, Fail *f);
bool cuda_gemm_ready(Device *d, const Cmd *c, CudaGemm *g, Fail *f);
GemmPart cuda_gemm_whole(const Cmd *c);
bool cuda_gemm_part(Device *d, const Cmd *c, GemmPart *g, Fail *f);
int cuda_gemm_candidates(Device *d, const Cmd *c, const GemmPart *g, int most, LtHeuristic *to, Fail *f);
uint64_t cuda_gemm_key(const Cmd *c, const GemmPart *g);
const char *cuda_gemm_text(Arena *a, const Cmd *c, const GemmPart *g);
/* One product in the stream, with this algorithm; the status of cuBLASLt. */
int cuda_gemm_multiply(Device *d, const Cmd *c, const GemmPart *g, const LtAlgo *algo, size_t workspace);
bool cuda_gemm_run(Device *d, const Cmd *c, const CudaGemm *g, Fail *f);
void cuda_gemm_drop(CudaGemm *g);
void cuda_gemm_drop_part(GemmPart *g);

/* cuda_tune.c: DeviceApi.tune and record */
bool cuda_tune(const Program *p, const DeviceOptions *o, Arena *a, DeviceTune *to, Fail *f);
bool cuda_record(Device *d, const char *path, Fail *f);

/* cuda_device.c: all of open but the first run of each program */
Device *cuda_open_cold(const Program *p, const DeviceOptions *o, Fail *f);
void cuda_close(Device *d);

/* cuda_launch.c */
bool cuda_launches_ready(Device *d, const Cmd *c, CudaLaunch *l, Fail *f);
bool cuda_launch(Device *d, const Cmd *c, CudaLaunch *l, Fail *f);

/* cuda_device.c: one command, in the stream */
bool cuda_run_command(Device *d, int program, int k, Fail *f);

/* cuda_host.c: before anything is taken; mapping and pinning; and back */
bool cuda_host_room(const Program *p, Fail *f);
bool cuda_host_open(Device *d, Fail *f);
void cuda_host_close(Device *d);
/* CMD_COPY k begins after what is in the stream; times: two events around it, or NULL */
bool cuda_copy_begin(Device *d, int program, int k, const CUevent *times, Fail *f);
bool cuda_copy_wait(Device *d, int program, int k, Fail *f); /* CMD_WAIT k */
bool cuda_copies_join(Device *d, int program, Fail *f);      /* the stream goes on after all copies of the program */
bool cuda_copy_now(Device *d, int program, int k, Fail *f);  /* in the stream, and waits for it */
bool cuda_copy_poison(Device *d, int program, int k, Fail *f);

/* cuda_time.c: DeviceApi.time and copy_rate */
bool cuda_time(Device *d, int program, double *start, double *copy, Fail *f);
void cuda_time_drop(Device *d);
bool cuda_copy_rate(Device *d, double *rate, Fail *f);

#endif
