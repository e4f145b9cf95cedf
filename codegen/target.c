/* target.c - the rows of targets.def as constant structs. */
#include "target.h"

#include <string.h>

#define MIB(x) ((int64_t)(x) << 20)

static const Target table[] = {
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
