/* calibrate.c - fits a target to measured times (see calibrate.h). Input: counts and seconds of
 * commands. Output: the base row with launch time, copy rate and the speed of each class replaced
 * by what was measured. */
#include "calibrate.h"

#include <math.h>
#include <stdlib.h>

enum { LEAST_LAUNCHES = 3 };
static const double least_speed = 0.01, most_speed = 100;

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Median over the commands that are little but a launch; the base's when there are too few. */
static double launch_us(const Target *t, const CostSample *s, int n, Arena *a) {
  double *small = arena_array(a, double, n + 1);
  int count = 0;
  for (int i = 0; i < n; i++)
    if (cost_work_ns(&s[i].cost, t) < 250 * t->launch_us)
      small[count++] = 1e6 * s[i].seconds / s[i].cost.launches;
  if (count < LEAST_LAUNCHES) return t->launch_us;
  qsort(small, (size_t)count, sizeof *small, by_value);
  return small[count / 2];
}

typedef struct {
  int commands;
  double work, seconds, launches, bytes,
      flops; /* seconds of all; work by the model, without launches */
} Sum;

/* A class whose commands are mostly launches says nothing about its speed. */
static double speed_of(const Sum *s) {
  double working = s->seconds - s->launches;
  if (!s->commands || working < s->seconds / 2) return 0;
  return fmin(fmax(s->work / working, least_speed), most_speed);
}

Target calibrate(const Target *base, const CostSample *samples, int n, double copy_gbs,
                 TargetMeasure *measures, int *nmeasures, Arena *a) {
  Target t = *base;
  Sum sums[KC_COUNT] = {0};
  if (copy_gbs > 0) t.copy_gbs = copy_gbs;
  t.launch_us = launch_us(base, samples, n, a);
  for (int i = 0; i < n; i++) {
    const KernelCost *k = &samples[i].cost;
    Sum *s = &sums[cost_class(k, &t)];
    s->commands++;
    s->work += 1e-9 * cost_work_ns(k, &t);
    s->seconds += samples[i].seconds;
    s->launches += 1e-6 * t.launch_us * k->launches;
    s->bytes += (double)k->bytes;
    s->flops += (double)k->flops;
  }
  *nmeasures = 0;
  for (int c = 0; c < KC_COUNT; c++) {
    t.speed[c] = speed_of(&sums[c]);
    if (!(sums[c].seconds > 0)) continue;
    TargetMeasure *m = &measures[(*nmeasures)++];
    *m = (TargetMeasure){.cls = c, .commands = sums[c].commands, .seconds = sums[c].seconds};
    if (c < KC_GEMM)
      m->gbs = 1e-9 * sums[c].bytes / sums[c].seconds;
    else
      m->tflops = 1e-12 * sums[c].flops / sums[c].seconds;
  }
  return t;
}
