/* target.h - what the planner and the emitter know of a device, without having one. Rows in targets.def. */
#ifndef MTC_TARGET_H
#define MTC_TARGET_H
#include "../ir/types.h"

typedef enum { DEV_CPU, DEV_CUDA } DeviceKind;

/* Classes of kernels that a calibrated target knows the speed of. Products are told apart by waves of 128 x 128 tiles over
 * the units and by depth, attention by direction, head size and length of the keys. */
enum {
  KC_GEMM_WAVES = 3,
  KC_GEMM_DEPTHS = 3,
  KC_ATT_HEADS = 4,
  KC_ATT_LENGTHS = 5,
  KC_MAP = 0, /* loops without sums */
  KC_ROWS,    /* loops with sums along rows */
  KC_COLUMNS, /* loops with sums over rows */
  KC_SCATTER,
  KC_GEMM,
  KC_ATTENTION = KC_GEMM + KC_GEMM_WAVES * KC_GEMM_DEPTHS,
  KC_COUNT = KC_ATTENTION + 2 * KC_ATT_HEADS * KC_ATT_LENGTHS
};
int kernel_class_gemm(double waves, int64_t depth);
int kernel_class_attention(bool backward, int64_t head, int64_t length);
const char *kernel_class_name(int c); /* "gemm waves<4 depth>=2048"; interned */

typedef struct {
  const char *name;         /* "rtx4090" */
  const char *title;        /* "RTX 4090" */
  DeviceKind kind;
  int sm;                   /* 89; 0 for the CPU */
  int units;                /* SMs, or cores that the CPU row assumes */
  int64_t usable_bytes;     /* of the card; CPU: INT64_MAX */
  int64_t overhead_bytes;   /* context, modules, streams */
  int64_t granule_bytes;    /* allocation granularity: 2 MiB on CUDA, 4 KiB on the CPU */
  int64_t workspace_bytes;  /* of the GEMM library */
  double copy_gbs;          /* device to device, read + written, GB/s */
  double tflops[DT_COUNT];  /* achieved by large GEMMs, per compute dtype (DT_F32 without TF32) */
  double tf32_tflops;
  double h2d_gbs, d2h_gbs;
  double launch_us;
#define EFFICIENCY(field, cuda, cpu, doc) double field;
#include "targets.def"
  double speed[KC_COUNT];   /* measured speed of a class over the model's; 0 = not measured, as 1 */
  const char *file;         /* that calibrated it, or NULL */
} Target;

int target_count(void);
const Target *target_at(int i);
const Target *target_by_name(const char *name); /* NULL when unknown */

/* Partial sums of a column result over `rows` rows: the first stage of a column reduction makes this many rows of
 * partials (f32), the second adds them. Fixed by the shape alone, so that sums never depend on the machine. */
static inline int64_t column_blocks(int64_t rows) {
  int64_t blocks = ceil_div(rows, 16);
  return blocks < 64 ? blocks : 64;
}
/* The same on CUDA, where more blocks run at once: of column sums over n rows, of a sum of n elements to one number. */
static inline int64_t cuda_sum_blocks(bool flat, int64_t n) {
  int64_t blocks = ceil_div(n, flat ? 8192 : 32), most = flat ? 256 : 264;
  return blocks < most ? blocks : most;
}
/* Room for either, so that the CPU can execute a plan made for CUDA. */
static inline int64_t cuda_plan_blocks(bool flat, int64_t n) {
  int64_t cuda = cuda_sum_blocks(flat, n), cpu = column_blocks(n);
  return cuda > cpu ? cuda : cpu;
}
/* Bytes of the card that a host arena of so many variables takes: the tables of its pages, 8 bytes for each 4 KiB (H200: 24 MiB
 * were measured for 12 GiB, 182 for 96), and the nodes of their copies in the graphs (86 MiB for about 1,090 variables of Llama-2
 * 7B, which are copied in about four places each). In whole granules. */
static inline int64_t target_pinning_bytes(const Target *t, int64_t host_bytes, int variables) {
  enum { OF_A_VARIABLE = 96 << 10 };
  if (t->kind != DEV_CUDA || host_bytes <= 0) return 0;
  return round_up(ceil_div(host_bytes, 512) + (int64_t)variables * OF_A_VARIABLE, t->granule_bytes);
}
#endif
