/* gen_place.c - writes placement instances in minimalloc's format: gen_place FOLDER.
 *   perfect-N    buffers that fill a rectangle of time and addresses: the bound can be reached
 *   training-N   a training step: activations freed in reverse, short-lived values between
 * Built by the script that needs it: cc -I. tests/bench/gen_place.c passes/fixed.c. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include "passes/fixed.h"

static uint64_t rng;
static int ids;

static int below(int n) {
  return random_below(&rng, n);
}

static void buffer(FILE *f, int64_t lower, int64_t upper, int64_t size) {
  fprintf(f, "%d,%lld,%lld,%lld\n", ids++, (long long)lower, (long long)upper, (long long)size);
}

/* Cuts time [l, r) x address [lo, hi) into `parts` buffers. */
static void cut(FILE *f, int parts, int64_t l, int64_t r, int64_t lo, int64_t hi) {
  bool wide = r - l > 1, tall = hi - lo > 1;
  if (parts == 1 || (!wide && !tall)) {
    buffer(f, l, r, hi - lo);
    return;
  }
  int left = 1 + below(parts - 1);
  if (wide && (!tall || below(2))) {
    int64_t at = l + 1 + below((int)(r - l - 1));
    cut(f, left, l, at, lo, hi);
    cut(f, parts - left, at, r, lo, hi);
  } else {
    int64_t at = lo + 1 + below((int)(hi - lo - 1));
    cut(f, left, l, r, lo, at);
    cut(f, parts - left, l, r, at, hi);
  }
}

static void training(FILE *f, int layers) {
  enum { EACH = 8 };
  int64_t end = 2 * (int64_t)layers * EACH;
  for (int l = 0; l < layers; l++)
    for (int k = 0; k < EACH; k++) {
      int64_t from = (int64_t)l * EACH + k, back = end - from,
              size = (int64_t)(1 + below(6)) << (8 + below(12));
      buffer(f, from, k % 3 ? from + 2 : back, size);
      buffer(f, back, back + 1 + below(3), size);
    }
}

static FILE *begin(const char *folder, const char *kind, int n) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s-%d.csv", folder, kind, n);
  FILE *f = fopen(path, "w");
  if (!f) {
    perror(path);
    exit(1);
  }
  fprintf(f, "id,lower,upper,size\n");
  rng = 88172645463325252ull + (uint64_t)n;
  ids = 0;
  return f;
}

int main(int argc, char **argv) {
  static const int perfect[] = {25, 50, 75}, layers[] = {12, 96, 1200, 4000};
  if (argc != 2) {
    fprintf(stderr, "usage: gen_place FOLDER\n");
    return 2;
  }
  for (size_t i = 0; i < sizeof perfect / sizeof *perfect; i++) {
    FILE *f = begin(argv[1], "perfect", perfect[i]);
    cut(f, perfect[i], 0, 40, 0, 1 << 20);
    fclose(f);
  }
  for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
    FILE *f = begin(argv[1], "training", layers[i]);
    training(f, layers[i]);
    fclose(f);
  }
  return 0;
}
