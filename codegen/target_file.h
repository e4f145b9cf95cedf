/* target_file.h - a target calibrated by `mtc bench`, as a JSON file that `mtc plan --target
 * FILE.json` reads.
 *
 *   {"schema": "mtc.target/1", "base": "h200", "device": "NVIDIA H200",
 *    "usable_bytes", "overhead_bytes", "copy_gbs", "h2d_gbs", "d2h_gbs", "launch_us", "f32_tflops",
 * "tf32_tflops", "bf16_tflops", "f16_tflops": numbers, "efficiency": {"moving": 0.9, ..} rows of
 * EFFICIENCY in targets.def "speed": {"rows": 0.97, ..}              by class: measured speed over
 * the model's "measured": [..]}                        what the speeds come from; not read
 *
 * All but schema and base may be left out; what is left out is the base row's. docs/bench.md
 * explains it. */
#ifndef MTC_TARGET_FILE_H
#define MTC_TARGET_FILE_H
#include "target.h"

/* What was measured of a class: for readers of the file. */
typedef struct {
  int cls, commands;
  double seconds, gbs, tflops; /* of one run of each; rates 0 = none */
} TargetMeasure;

/* NULL with a sentence in *why: no such file, no JSON, another schema, an unknown base or key, a
 * number out of range. */
const Target *target_read(Arena *a, const char *path, const char **why);
/* Everything of t that a file may say; device NULL = unknown. False with errno set. */
bool target_write(const Target *t, const char *device, const TargetMeasure *m, int n,
                  const char *path);
#endif
