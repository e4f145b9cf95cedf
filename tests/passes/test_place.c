/* test_place.c - static placement: no overlap, never below the bound, perfect packings found, small
 * instances optimal against exhaustive search, huge sizes, alignment, the same answer twice. With
 * MTC_PLACEMENT_DATA naming a folder of public instances (minimalloc/, somas/, iopddl/) also those.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "passes/fixed.h"
#include "passes/place.h"

enum { MOST = 70000 };
static PlaceBuf buf[MOST];
static int64_t offset[MOST];
static uint64_t rng;

static int below(int n) {
  return random_below(&rng, n);
}

static int compare_events(const void *a, const void *b) {
  const int64_t *x = a, *y = b;
  if (x[0] != y[0]) return x[0] < y[0] ? -1 : 1;
  return (x[1] > y[1]) - (x[1] < y[1]); /* deaths first */
}

/* Largest sum of sizes (rounded up to `align`) alive at one time. */
static int64_t liveness(int n, int64_t align) {
  int64_t(*event)[2] = malloc(sizeof *event * 2 * (size_t)(n + 1));
  int m = 0;
  for (int i = 0; i < n; i++) {
    if (buf[i].lower >= buf[i].upper) continue;
    int64_t size = round_up(buf[i].size, align);
    event[m][0] = buf[i].lower;
    event[m++][1] = size;
    event[m][0] = buf[i].upper;
    event[m++][1] = -size;
  }
  qsort(event, (size_t)m, sizeof *event, compare_events);
  int64_t most = 0, now = 0;
  for (int i = 0; i < m; i++) {
    now += event[i][1];
    if (now > most) most = now;
  }
  free(event);
  return most;
}

static bool meet(const PlaceBuf *a, const PlaceBuf *b) {
  return a->size > 0 && b->size > 0 && a->lower < b->upper && b->lower < a->upper &&
         a->lower < a->upper && b->lower < b->upper;
}

static bool overlap(int i, int j) {
  return meet(&buf[i], &buf[j]) && offset[i] < offset[j] + buf[j].size &&
         offset[j] < offset[i] + buf[i].size;
}

static int compare_offsets(const void *a, const void *b) {
  int64_t x = offset[*(const int *)a], y = offset[*(const int *)b];
  return (x > y) - (x < y);
}

/* Checks a placement with nothing of the solver's: in order of offset, each against those that
 * reach above its offset. */
static void check(int n, const PlaceInfo *info, int64_t align) {
  int *order = malloc(sizeof *order * (size_t)(n + 1)),
      *open = malloc(sizeof *open * (size_t)(n + 1));
  int nopen = 0;
  int64_t height = 0;
  for (int i = 0; i < n; i++) order[i] = i;
  qsort(order, (size_t)n, sizeof *order, compare_offsets);
  for (int k = 0; k < n; k++) {
    int i = order[k], kept = 0;
    assert_true(offset[i] >= 0);
    assert_int_equal(offset[i] % align, 0);
    for (int q = 0; q < nopen; q++) {
      int j = open[q];
      if (offset[j] + buf[j].size <= offset[i]) continue;
      open[kept++] = j;
      assert_false(overlap(i, j));
    }
    nopen = kept;
    open[nopen++] = i;
    if (buf[i].lower < buf[i].upper && offset[i] + round_up(buf[i].size, align) > height)
      height = offset[i] + round_up(buf[i].size, align);
  }
  assert_int_equal(height, info->height);
  assert_int_equal(info->bound, liveness(n, align));
  assert_true(info->height >= info->bound);
  free(order);
  free(open);
}

static PlaceInfo place(int n, PlaceOptions opt) {
  PlaceInfo info;
  int64_t height = place_buffers(n, buf, offset, &opt, &info);
  assert_int_equal(height, info.height);
  check(n, &info, opt.align ? opt.align : 1);
  return info;
}

static void none_and_one(void **state) {
  (void)state;
  PlaceInfo info = place(0, (PlaceOptions){0});
  assert_int_equal(info.height, 0);
  buf[0] = (PlaceBuf){3, 9, 100};
  info = place(1, (PlaceOptions){0});
  assert_int_equal(info.height, 100);
  assert_int_equal(offset[0], 0);
  buf[1] = (PlaceBuf){5, 5, 1000}; /* no lifetime */
  buf[2] = (PlaceBuf){5, 8, 0};    /* no size */
  info = place(3, (PlaceOptions){0});
  assert_int_equal(info.height, 100);
}

static void random_buffers(int n, int span, int64_t most) {
  for (int i = 0; i < n; i++) {
    int64_t l = below(span);
    buf[i] = (PlaceBuf){l, l + 1 + below(span / 3 + 1), 1 + below((int)most)};
  }
}

static void random_instances(void **state) {
  (void)state;
  rng = 7;
  for (int round = 0; round < 60; round++) {
    int n = 1 + below(round < 50 ? 40 : 1500);
    random_buffers(n, 2 + below(60), 1 + below(1000));
    place(n, (PlaceOptions){.effort = 0.02});
  }
}

static void alignment(void **state) {
  (void)state;
  rng = 11;
  for (int round = 0; round < 20; round++) {
    int n = 1 + below(60);
    random_buffers(n, 30, 5000);
    place(n, (PlaceOptions){.align = 512, .effort = 0.02});
  }
}

/* Sizes near 2^56: sums stay exact. */
static void huge_sizes(void **state) {
  (void)state;
  rng = 13;
  for (int round = 0; round < 20; round++) {
    int n = 1 + below(40);
    for (int i = 0; i < n; i++) {
      int64_t l = below(20);
      buf[i] = (PlaceBuf){l, l + 1 + below(8), ((int64_t)1 << 56) - below(1 << 30)};
    }
    PlaceInfo info = place(n, (PlaceOptions){.effort = 0.05});
    assert_true(info.height >= ((int64_t)1 << 55));
  }
  buf[0] = (PlaceBuf){INT64_MIN / 2, INT64_MAX / 2, (int64_t)1 << 61};
  buf[1] = (PlaceBuf){0, 1, ((int64_t)1 << 60) + 1};
  PlaceInfo info = place(2, (PlaceOptions){0});
  assert_int_equal(info.height, info.bound);
}

/* Cuts time [l, r) x address [lo, hi) into n buffers that fill it. */
static void cut(int *n, int parts, int64_t l, int64_t r, int64_t lo, int64_t hi) {
  bool wide = r - l > 1, tall = hi - lo > 1;
  if (parts == 1 || (!wide && !tall)) {
    buf[(*n)++] = (PlaceBuf){l, r, hi - lo};
    return;
  }
  int left = 1 + below(parts - 1);
  if (wide && (!tall || below(2))) {
    int64_t at = l + 1 + below((int)(r - l - 1));
    cut(n, left, l, at, lo, hi);
    cut(n, parts - left, at, r, lo, hi);
  } else {
    int64_t at = lo + 1 + below((int)(hi - lo - 1));
    cut(n, left, l, r, lo, at);
    cut(n, parts - left, l, r, at, hi);
  }
}

static void shuffle(int n) {
  for (int i = n - 1; i > 0; i--) {
    int j = below(i + 1);
    PlaceBuf t = buf[i];
    buf[i] = buf[j];
    buf[j] = t;
  }
}

static void perfect_packings(void **state) {
  (void)state;
  rng = 17;
  for (int round = 0; round < 60; round++) {
    int n = 0, parts = 6 + below(70);
    cut(&n, parts, 0, 10 + below(40), 0, 1000 + below(100000));
    shuffle(n);
    PlaceInfo info = place(n, (PlaceOptions){0});
    assert_false(info.refuted);
    assert_int_equal(info.height, info.bound);
  }
}

/* Lowest height over all orders in which each buffer rests on what meets it: the optimum. */
static int64_t exhaustive(int n, int placed, int64_t height, int64_t best) {
  if (placed == (1 << n) - 1) return height < best ? height : best;
  for (int i = 0; i < n; i++) {
    if (placed >> i & 1) continue;
    int64_t o = 0;
    for (int j = 0; j < n; j++)
      if (placed >> j & 1 && meet(&buf[i], &buf[j]) && offset[j] + buf[j].size > o)
        o = offset[j] + buf[j].size;
    offset[i] = o;
    int64_t h = o + buf[i].size > height ? o + buf[i].size : height;
    if (h < best) best = exhaustive(n, placed | 1 << i, h, best);
  }
  return best;
}

/* Also says whether the optimum lies above the bound. */
static bool is_optimal(int n) {
  int64_t best = exhaustive(n, 0, 0, INT64_MAX);
  PlaceInfo info = place(n, (PlaceOptions){0});
  assert_int_equal(info.height, best);
  assert_int_equal(info.refuted, best > info.bound);
  assert_true(info.optimal);
  if (best == info.bound) return false;
  info = place(n, (PlaceOptions){.target = best}); /* as a capacity */
  assert_false(info.refuted);
  assert_int_equal(info.height, best);
  if (best - 1 > info.bound) assert_true(place(n, (PlaceOptions){.target = best - 1}).refuted);
  return true;
}

static void small_optima(void **state) {
  (void)state;
  rng = 19;
  for (int round = 0; round < 200; round++) {
    int n = 3 + below(6);
    random_buffers(n, 6 + below(6), 4);
    is_optimal(n);
  }
}

/* Few small instances need more than their bound; these are variations on one that does. */
static void above_the_bound(void **state) {
  (void)state;
  static const PlaceBuf seed[] = {{2, 8, 2}, {4, 8, 2}, {7, 9, 3}, {1, 2, 3},
                                  {2, 5, 2}, {5, 7, 1}, {1, 4, 3}, {8, 14, 3}};
  rng = 37;
  int above = 0;
  for (int round = 0; round < 60; round++) {
    int n = COUNT_OF(seed), unit = 1 + below(40);
    for (int i = 0; i < n; i++) {
      buf[i] = seed[i];
      buf[i].size = buf[i].size * unit + (round % 3 ? below(unit / 8 + 1) : 0);
    }
    shuffle(n);
    above += is_optimal(n);
  }
  assert_true(above > 20);
}

static void same_twice(void **state) {
  (void)state;
  static int64_t first[2000];
  rng = 23;
  for (int round = 0; round < 4; round++) {
    int n = round < 3 ? 150 : 2000;
    random_buffers(n, 80, 4000);
    PlaceOptions opt = {.effort = 0.1};
    PlaceInfo a = place(n, opt);
    memcpy(first, offset, sizeof *first * (size_t)n);
    PlaceInfo b = place(n, opt);
    assert_int_equal(a.height, b.height);
    assert_memory_equal(first, offset, sizeof *first * (size_t)n);
  }
}

/* A training step: activations of many layers, freed in reverse, short-lived ones between. The
 * bound is reached. */
static void training_step(void **state) {
  (void)state;
  rng = 29;
  enum { LAYERS = 600, EACH = 8 };
  int n = 0;
  for (int l = 0; l < LAYERS; l++)
    for (int k = 0; k < EACH; k++) {
      int64_t from = l * EACH + k, size = (int64_t)(1 + below(6)) << (8 + below(4));
      int64_t back = 2 * LAYERS * EACH - from;
      buf[n++] = (PlaceBuf){from, k % 3 ? from + 2 : back, size};
      buf[n++] = (PlaceBuf){back, back + 1 + below(3), size};
    }
  PlaceInfo info = place(n, (PlaceOptions){.align = 512, .effort = 1});
  assert_int_equal(info.height, info.bound);
}

static int read_csv(const char *command) {
  FILE *f = popen(command, "r");
  assert_non_null(f);
  char line[256];
  long long id, lower, upper, size;
  int n = 0;
  while (fgets(line, sizeof line, f)) {
    if (!strchr(line, '\n') || sscanf(line, "%lld,%lld,%lld,%lld", &id, &lower, &upper, &size) != 4)
      continue;
    assert_true(n < MOST);
    buf[n++] = (PlaceBuf){lower, upper, size};
  }
  pclose(f);
  return n;
}

static void public_instances(void **state) {
  (void)state;
  const char *folder = getenv("MTC_PLACEMENT_DATA");
  if (!folder) skip();
  char command[4096];
  for (char name = 'A'; name <= 'K'; name++) {
    snprintf(command, sizeof command, "cat '%s/minimalloc/%c.1048576.csv'", folder, name);
    int n = read_csv(command);
    assert_true(n > 100);
    assert_true(place(n, (PlaceOptions){.target = 1048576}).height <= 1048576);
  }
  static const char *const large[][2] = {{"cat", "somas/pangu_2.6B.csv"},
                                         {"cat", "somas/resnet50.csv"},
                                         {"gzip -dc", "iopddl/S_1.csv.gz"},
                                         {"gzip -dc", "iopddl/Y_1.csv.gz"},
                                         {"gzip -dc", "iopddl/G_1.csv.gz"}};
  for (int i = 0; i < COUNT_OF(large); i++) {
    snprintf(command, sizeof command, "%s '%s/%s'", large[i][0], folder, large[i][1]);
    int n = read_csv(command);
    PlaceInfo info = place(n, (PlaceOptions){0});
    assert_true(n > 500);
    assert_int_equal(info.height, info.bound);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(none_and_one),     cmocka_unit_test(random_instances),
      cmocka_unit_test(alignment),        cmocka_unit_test(huge_sizes),
      cmocka_unit_test(perfect_packings), cmocka_unit_test(small_optima),
      cmocka_unit_test(above_the_bound),  cmocka_unit_test(same_twice),
      cmocka_unit_test(training_step),    cmocka_unit_test(public_instances),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
