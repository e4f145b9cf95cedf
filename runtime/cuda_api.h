/* cuda_api.h - the calls of the CUDA driver and of cuBLASLt that we use, opened with dlopen, so that one binary runs
 * everywhere and says what it misses. Prototypes are ours, after the CUDA 13 driver API and cuBLASLt manuals; no header
 * of NVIDIA's is needed.
 *
 * cuda_load() fills `cu`, cublaslt_load() fills `lt`; both are process-wide and loaded once. Enumerators below have the
 * values of those manuals. */
#ifndef MTC_CUDA_API_H
#define MTC_CUDA_API_H
#include "fail.h"

typedef int CUresult, CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct {
  uint64_t opaque[16];
} __attribute__((aligned(64))) CUtensorMap;

enum {
  CU_SUCCESS = 0,
  CU_ERROR_NOT_READY = 600,
  CU_ATTR_SM_COUNT = 16,
  CU_ATTR_KERNEL_TIMEOUT = 17, /* a display runs on it */
  CU_ATTR_ECC = 32,
  CU_ATTR_MAJOR = 75,
  CU_ATTR_MINOR = 76,
  CU_ATTR_SHARED_OPTIN = 97,
  CU_FUNC_LOCAL_BYTES = 3,
  CU_FUNC_REGISTERS = 4,
  CU_FUNC_DYNAMIC_SHARED = 8,
  CU_LIMIT_STACK = 0,
  CU_LIMIT_PRINTF = 1,
  CU_LIMIT_HEAP = 2,
  CU_STREAM_NONBLOCKING = 1,
  CU_EVENT_NO_TIMING = 2,
  CU_EVENT_TIMING = 0,
  CU_EVENT_RECORD_EXTERNAL = 1, /* in a capture: a node of the graph */
  CU_CAPTURE_THREAD = 1,
  CU_MAP_F16 = 6,
  CU_MAP_BF16 = 9,
  CU_MAP_SWIZZLE_128 = 3,
  CU_MAP_L2_256 = 3
};

#define CUDA_CALLS(X)                                                                              \
  X(cuInit, "cuInit", (unsigned flags))                                                            \
  X(cuDriverGetVersion, "cuDriverGetVersion", (int *version))                                      \
  X(cuDeviceGetCount, "cuDeviceGetCount", (int *n))                                                \
  X(cuDeviceGet, "cuDeviceGet", (CUdevice *d, int ordinal))                                        \
  X(cuDeviceGetName, "cuDeviceGetName", (char *name, int n, CUdevice d))                           \
  X(cuDeviceGetAttribute, "cuDeviceGetAttribute", (int *v, int attribute, CUdevice d))             \
  X(cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId", (char *bus, int n, CUdevice d))                    \
  X(cuDeviceTotalMem, "cuDeviceTotalMem_v2", (size_t *bytes, CUdevice d))                          \
  X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext *c, CUdevice d))              \
  X(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (CUdevice d))                       \
  X(cuCtxSetCurrent, "cuCtxSetCurrent", (CUcontext c))                                             \
  X(cuCtxSetLimit, "cuCtxSetLimit", (int limit, size_t value))                                     \
  X(cuMemGetInfo, "cuMemGetInfo_v2", (size_t *free_bytes, size_t *total))                          \
  X(cuMemAlloc, "cuMemAlloc_v2", (CUdeviceptr *p, size_t bytes))                                   \
  X(cuMemFree, "cuMemFree_v2", (CUdeviceptr p))                                                    \
  X(cuMemHostAlloc, "cuMemHostAlloc", (void **p, size_t bytes, unsigned flags))                    \
  X(cuMemFreeHost, "cuMemFreeHost", (void *p))                                                     \
  X(cuMemHostRegister, "cuMemHostRegister_v2", (void *p, size_t bytes, unsigned flags))            \
  X(cuMemHostUnregister, "cuMemHostUnregister", (void *p))                                         \
  X(cuMemcpyHtoD, "cuMemcpyHtoD_v2", (CUdeviceptr to, const void *from, size_t bytes))             \
  X(cuMemcpyDtoH, "cuMemcpyDtoH_v2", (void *to, CUdeviceptr from, size_t bytes))                   \
  X(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", (CUdeviceptr to, const void *from, size_t bytes, CUstream s)) \
  X(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", (void *to, CUdeviceptr from, size_t bytes, CUstream s)) \
  X(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2", (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s)) \
  X(cuMemsetD8Async, "cuMemsetD8Async", (CUdeviceptr p, unsigned char v, size_t bytes, CUstream s)) \
  X(cuModuleLoadData, "cuModuleLoadData", (CUmodule *m, const void *image))                        \
  X(cuModuleUnload, "cuModuleUnload", (CUmodule m))                                                \
  X(cuModuleGetGlobal, "cuModuleGetGlobal_v2", (CUdeviceptr *p, size_t *bytes, CUmodule m, const char *name)) \
  X(cuModuleGetFunction, "cuModuleGetFunction", (CUfunction *f, CUmodule m, const char *name))     \
  X(cuFuncSetAttribute, "cuFuncSetAttribute", (CUfunction f, int attribute, int value))            \
  X(cuFuncGetAttribute, "cuFuncGetAttribute", (int *value, int attribute, CUfunction f))           \
  X(cuLaunchKernel, "cuLaunchKernel",                                                              \
    (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,   \
     unsigned shared, CUstream s, void **args, void **extra))                                      \
  X(cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled",                                              \
    (CUtensorMap *m, int type, uint32_t rank, void *base, const uint64_t *dims,                    \
     const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,          \
     int swizzle, int l2, int oob))                                                                \
  X(cuStreamCreate, "cuStreamCreate", (CUstream *s, unsigned flags))                               \
  X(cuStreamDestroy, "cuStreamDestroy_v2", (CUstream s))                                           \
  X(cuStreamSynchronize, "cuStreamSynchronize", (CUstream s))                                      \
  X(cuStreamQuery, "cuStreamQuery", (CUstream s))                                                  \
  X(cuStreamWaitEvent, "cuStreamWaitEvent", (CUstream s, CUevent e, unsigned flags))               \
  X(cuStreamBeginCapture, "cuStreamBeginCapture_v2", (CUstream s, int mode))                       \
  X(cuStreamEndCapture, "cuStreamEndCapture", (CUstream s, CUgraph *g))                            \
  X(cuGraphInstantiate, "cuGraphInstantiateWithFlags", (CUgraphExec *x, CUgraph g, unsigned long long flags)) \
  X(cuGraphDestroy, "cuGraphDestroy", (CUgraph g))                                                 \
  X(cuGraphExecDestroy, "cuGraphExecDestroy", (CUgraphExec x))                                     \
  X(cuGraphUpload, "cuGraphUpload", (CUgraphExec x, CUstream s))                                   \
  X(cuGraphLaunch, "cuGraphLaunch", (CUgraphExec x, CUstream s))                                   \
  X(cuEventCreate, "cuEventCreate", (CUevent *e, unsigned flags))                                  \
  X(cuEventDestroy, "cuEventDestroy_v2", (CUevent e))                                              \
  X(cuEventRecord, "cuEventRecord", (CUevent e, CUstream s))                                       \
  X(cuEventRecordWithFlags, "cuEventRecordWithFlags", (CUevent e, CUstream s, unsigned flags))     \
  X(cuEventSynchronize, "cuEventSynchronize", (CUevent e))                                         \
  X(cuEventElapsedTime, "cuEventElapsedTime", (float *ms, CUevent a, CUevent b))                   \
  X(cuGetErrorName, "cuGetErrorName", (CUresult r, const char **text))                             \
  X(cuGetErrorString, "cuGetErrorString", (CUresult r, const char **text))

typedef struct {
#define X(name, symbol, args) CUresult (*name) args;
  CUDA_CALLS(X)
#undef X
} CudaApi;
extern CudaApi cu;

/* Opens libcuda and initialises it. False with EXIT_DEVICE and a sentence naming what is missing. */
bool cuda_load(Fail *f);
/* True when r is CU_SUCCESS; else records `what` with the driver's name and text of the error. */
bool cuda_ok(CUresult r, Fail *f, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* ---- cuBLASLt ---- */
typedef struct LtContext *LtHandle;
typedef struct {
  uint64_t opaque[8];
} LtAlgo;
typedef struct LtDesc *LtMatmulDesc;
typedef struct LtLayout *LtMatrixLayout;
typedef struct LtPref *LtPreference;
typedef struct {
  LtAlgo algo;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
} LtHeuristic;

enum {
  LT_COMPUTE_F32 = 68,
  LT_COMPUTE_TF32 = 77,
  LT_R_32F = 0,
  LT_R_16F = 2,
  LT_R_16BF = 14,
  LT_DESC_TRANSA = 3,
  LT_DESC_TRANSB = 4,
  LT_DESC_EPILOGUE = 7,
  LT_DESC_BIAS = 8,
  LT_LAYOUT_BATCH = 5,
  LT_LAYOUT_STRIDE = 6,
  LT_PREF_WORKSPACE = 1,
  LT_PREF_REDUCTION = 3,
  LT_PREF_ALIGN_A = 5,
  LT_PREF_ALIGN_B = 6,
  LT_PREF_ALIGN_C = 7,
  LT_PREF_ALIGN_D = 8,
  LT_REDUCTION_NOT_OUTPUT_TYPE = 1 | 2 /* in place, compute type: never partial sums in the output's dtype */
};

#define CUBLASLT_CALLS(X)                                                                          \
  X(cublasLtCreate, (LtHandle *h))                                                                 \
  X(cublasLtDestroy, (LtHandle h))                                                                 \
  X(cublasLtMatmulDescCreate, (LtMatmulDesc *d, int compute, int scale))                           \
  X(cublasLtMatmulDescDestroy, (LtMatmulDesc d))                                                   \
  X(cublasLtMatmulDescSetAttribute, (LtMatmulDesc d, int a, const void *v, size_t n))              \
  X(cublasLtMatrixLayoutCreate, (LtMatrixLayout *l, int type, uint64_t rows, uint64_t cols, int64_t ld)) \
  X(cublasLtMatrixLayoutDestroy, (LtMatrixLayout l))                                               \
  X(cublasLtMatrixLayoutSetAttribute, (LtMatrixLayout l, int a, const void *v, size_t n))          \
  X(cublasLtMatmulPreferenceCreate, (LtPreference *p))                                             \
  X(cublasLtMatmulPreferenceDestroy, (LtPreference p))                                             \
  X(cublasLtMatmulPreferenceSetAttribute, (LtPreference p, int a, const void *v, size_t n))        \
  X(cublasLtMatmulAlgoGetHeuristic,                                                                \
    (LtHandle h, LtMatmulDesc d, LtMatrixLayout a, LtMatrixLayout b, LtMatrixLayout c,             \
     LtMatrixLayout out, LtPreference p, int n, LtHeuristic *r, int *found))                       \
  X(cublasLtMatmulAlgoCheck,                                                                       \
    (LtHandle h, LtMatmulDesc d, LtMatrixLayout a, LtMatrixLayout b, LtMatrixLayout c,             \
     LtMatrixLayout out, const LtAlgo *algo, LtHeuristic *r))                                      \
  X(cublasLtMatmul,                                                                                \
    (LtHandle h, LtMatmulDesc d, const void *alpha, CUdeviceptr a, LtMatrixLayout la,              \
     CUdeviceptr b, LtMatrixLayout lb, const void *beta, CUdeviceptr c, LtMatrixLayout lc,         \
     CUdeviceptr out, LtMatrixLayout lout, const LtAlgo *algo, CUdeviceptr workspace, size_t bytes, \
     CUstream s))

typedef struct {
#define X(name, args) int (*name) args;
  CUBLASLT_CALLS(X)
#undef X
  size_t (*cublasLtGetVersion)(void);
} CublasLtApi;
extern CublasLtApi lt;

bool cublaslt_load(Fail *f);

/* dlopen of the first of `names` (NULL-ended) that opens, also from the folders where the toolkit and the Python wheels
 * put their libraries. NULL with the failure set, naming `what` and the remedy. */
void *open_library(const char *const *names, const char *what, Fail *f);

#endif
