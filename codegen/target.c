/* target.c - the rows of targets.def as constant structs, and the classes of kernels. */
#include "target.h"

#include <string.h>

#define MIB(x) ((int64_t)(x) << 20)

/* The constants of a kind: index 0 CPU, 1 CUDA, as DeviceKind. */
enum {
#define EFFICIENCY(field, cuda, cpu, doc) FIELD_##field,
#include "targets.def"
  FIELDS
};
static const double efficiency[][FIELDS] = {
    [DEV_CPU] =
        {
#define EFFICIENCY(field, cuda, cpu, doc) [FIELD_##field] = cpu,
#include "targets.def"
        },
    [DEV_CUDA] =
        {
#define EFFICIENCY(field, cuda, cpu, doc) [FIELD_##field] = cuda,
#include "targets.def"
        },
};

static const Target rows[] = {
#define TARGET(name_, title_, kind_, sm_, units_, usable, overhead, granule, workspace, copy, f32, tf32, bf16, \
               f16, h2d, d2h, launch)                                                              \
  {.name = name_,                                                                                  \
   .title = title_,                                                                                \
   .kind = kind_,                                                                                  \
   .sm = sm_,                                                                                      \
   .units = units_,                                                                                \
   .usable_bytes = (usable) ? MIB(usable) : INT64_MAX,                                             \
   .overhead_bytes = MIB(overhead),                                                                \
   .granule_bytes = (int64_t)(granule) << 10,                                                      \
   .workspace_bytes = MIB(workspace),                                                              \
   .copy_gbs = copy,                                                                               \
   .tflops = {[DT_F32] = f32, [DT_BF16] = bf16, [DT_F16] = f16},                                   \
   .tf32_tflops = tf32,                                                                            \
   .h2d_gbs = h2d,                                                                                 \
   .d2h_gbs = d2h,                                                                                 \
   .launch_us = launch},
#include "targets.def"
};

static Target table[COUNT_OF(rows)];

/* Before main, so that threads never meet a half-filled table. */
__attribute__((constructor)) static void fill_table(void) {
  memcpy(table, rows, sizeof table);
  for (int i = 0; i < COUNT_OF(table); i++) {
    const double *of = efficiency[table[i].kind];
#define EFFICIENCY(field, cuda, cpu, doc) table[i].field = of[FIELD_##field];
#include "targets.def"
  }
}

int target_count(void) { return COUNT_OF(table); }

const Target *target_at(int i) {
  ensure(i >= 0 && i < COUNT_OF(table), "no target %d", i);
  return &table[i];
}

const Target *target_by_name(const char *name) {
  for (int i = 0; i < COUNT_OF(table); i++)
    if (!strcmp(table[i].name, name)) return &table[i];
  return NULL;
}

/* ---- classes of kernels ---- */

/* Upper bounds; the last class has none. */
static const int64_t wave_bounds[KC_GEMM_WAVES - 1] = {1, 4}, depth_bounds[KC_GEMM_DEPTHS - 1] = {512, 2048};
static const int64_t head_bounds[KC_ATT_HEADS - 1] = {32, 64, 96};
static const int64_t length_bounds[KC_ATT_LENGTHS - 1] = {512, 1024, 2048, 4096};

static int below(const int64_t *bounds, int n, double x) {
  int i = 0;
  while (i < n && x >= (double)bounds[i]) i++;
  return i;
}

int kernel_class_gemm(double waves, int64_t depth) {
  return KC_GEMM + below(wave_bounds, COUNT_OF(wave_bounds), waves) * KC_GEMM_DEPTHS +
         below(depth_bounds, COUNT_OF(depth_bounds), (double)depth);
}

/* Bounds belong to their class: a head of 64 is in "head<=64". */
int kernel_class_attention(bool backward, int64_t head, int64_t length) {
  int h = below(head_bounds, COUNT_OF(head_bounds), (double)head - 0.5);
  int l = below(length_bounds, COUNT_OF(length_bounds), (double)length - 0.5);
  return KC_ATTENTION + ((backward ? KC_ATT_HEADS : 0) + h) * KC_ATT_LENGTHS + l;
}

static const char *range(const char *what, const int64_t *bounds, int n, int i, const char *upper, const char *lower) {
  return i < n ? intern_printf("%s%s%lld", what, upper, (long long)bounds[i])
               : intern_printf("%s%s%lld", what, lower, (long long)bounds[n - 1]);
}

const char *kernel_class_name(int c) {
  static const char *const loops[] = {"map", "rows", "columns", "scatter"};
  ensure(c >= 0 && c < KC_COUNT, "no class %d", c);
  if (c < KC_GEMM) return loops[c];
  if (c < KC_ATTENTION) {
    int w = (c - KC_GEMM) / KC_GEMM_DEPTHS, d = (c - KC_GEMM) % KC_GEMM_DEPTHS;
    return intern_printf("gemm %s %s", range("waves", wave_bounds, COUNT_OF(wave_bounds), w, "<", ">="),
                         range("depth", depth_bounds, COUNT_OF(depth_bounds), d, "<", ">="));
  }
  int l = (c - KC_ATTENTION) % KC_ATT_LENGTHS, h = (c - KC_ATTENTION) / KC_ATT_LENGTHS;
  return intern_printf("attention %s %s %s", h < KC_ATT_HEADS ? "forward" : "backward",
                       range("head", head_bounds, COUNT_OF(head_bounds), h % KC_ATT_HEADS, "<=", ">"),
                       range("length", length_bounds, COUNT_OF(length_bounds), l, "<=", ">"));
}
