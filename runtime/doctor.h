/* doctor.h - what this machine has for training: the host, the CPU target's tools, a GPU. Measures,
 * never guesses: what could not be found out is marked as unknown. */
#ifndef MTC_DOCTOR_H
#define MTC_DOCTOR_H
#include "fail.h"
#include "nvml.h"

typedef struct {
  int64_t ram, free_ram; /* bytes; what control groups leave counts */
  int64_t container;     /* memory limit of the tightest control group; -1 none */
  int64_t locked;        /* ulimit -l; -1 unlimited */
  bool in_container, wsl;
  int cores, usable_cores; /* of the machine; of this process */
  double disk_read;        /* bytes a second; 0 = could not be measured */
  const char *disk_folder;
  bool disk_in_memory; /* a tmpfs, or pages that stayed in the cache */
} DoctorHost;

/* Where the CPU target stands. */
typedef struct {
  bool works;           /* a C source was compiled into a shared object */
  const char *compiler; /* "gcc (Debian 12.2.0) 12.2.0", "" unknown */
  const char *why;      /* when it does not work */
  const char *blas;     /* OpenBLAS and the kernels that it chose */
  int blas_threads;
} DoctorCpu;

typedef struct {
  char name[128], bus[32]; /* "NVIDIA H200", "0000:65:00.0" */
  int gpus, major, minor, units;
  int driver_cuda; /* CUDA version of the driver: 12060 */
  bool has_nvml;
  NvmlState before;      /* before this process took anything */
  int64_t total, unused; /* as the driver offers, with our context made */
  int64_t overhead; /* bytes of context, a module, a stream and cuBLASLt; -1 unknown without NVML */
  bool watchdog;    /* kernels are bounded in time: a display runs on it */
  int ecc;          /* 1 on, 0 off, -1 unknown */
  double h2d, d2h, both[2]; /* bytes a second, pinned; to the GPU and from it when both run at once */
  size_t lt_version;
  const char *lt_path;
} DoctorGpu;

void doctor_host(Arena *a, DoctorHost *h);
void doctor_cpu(Arena *a, DoctorCpu *c);
/* Finds cuBLASLt, which needs no GPU. */
bool doctor_cublaslt(Arena *a, DoctorGpu *g, Fail *f);
/* The driver and the GPU. The first failure ends it with what is known so far in g. */
bool doctor_gpu_open(DoctorGpu *g, Fail *f);
/* Context, module, libraries, copies; `cubin` is a small image for this GPU, NULL = none. After
 * doctor_gpu_open. */
bool doctor_gpu_measure(DoctorGpu *g, const void *cubin, const char *kernel, Fail *f);
#endif
