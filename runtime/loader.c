/* loader.c - sample order and the preparing thread: see loader.h.
 *
 * Two batches take turns: the thread fills one while the other is in use. */
#include "loader.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- order ---- */

static uint64_t mix(uint64_t x) { /* splitmix64's finalizer */
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/* A balanced Feistel network over 2*half bits is a permutation of its domain; indices that leave
 * 0..n-1 walk on along their cycle until they come back, which keeps it one. The domain is at most
 * 4n, so walks are short. */
int64_t shuffle_at(uint64_t seed, int64_t epoch, int64_t index, int64_t n) {
  enum { ROUNDS = 6 };
  int half = 1;
  while (half < 31 && (int64_t)1 << 2 * half < n) half++;
  uint64_t mask = ((uint64_t)1 << half) - 1, x = (uint64_t)index;
  uint64_t key = mix(seed ^ mix((uint64_t)epoch + 0x9e3779b97f4a7c15u));
  do {
    uint64_t l = x >> half, r = x & mask;
    for (int i = 0; i < ROUNDS; i++) {
      uint64_t next = l ^ (mix(r ^ mix(key + (uint64_t)i)) & mask);
      l = r, r = next;
    }
    x = l << half | r;
  } while (x >= (uint64_t)n);
  return (int64_t)x;
}

/* ---- batches ---- */

bool batch_alloc(Batch *b, int64_t tokens, int64_t samples, Fail *f) {
  *b = (Batch){.samples = samples, .tokens = tokens};
  size_t n = (size_t)tokens * (size_t)samples;
  b->inputs = malloc(n * sizeof *b->inputs);
  b->targets = malloc(n * sizeof *b->targets);
  b->present = malloc(n);
  if (b->inputs && b->targets && b->present) return true;
  batch_free(b);
  return fail_set(f, EXIT_DEVICE, "no host memory for a batch of %lld x %lld tokens",
                  (long long)samples, (long long)tokens);
}

void batch_free(Batch *b) {
  free(b->inputs);
  free(b->targets);
  free(b->present);
  *b = (Batch){0};
}

int64_t batch_fill(Batch *b, const DataSet *d, int64_t first, int32_t ignore) {
  int64_t left = data_samples(d) - first, real = left < b->samples ? left : b->samples;
  b->valid = 0;
  for (int64_t i = 0; i < b->samples; i++) {
    int64_t at = i * b->tokens;
    if (i >= real) {
      memset(b->inputs + at, 0, sizeof *b->inputs * (size_t)b->tokens);
      memset(b->present + at, 0, (size_t)b->tokens);
      for (int64_t t = 0; t < b->tokens; t++) b->targets[at + t] = ignore;
      continue;
    }
    int64_t valid = data_sample(d, first + i, b->inputs + at, b->targets + at, b->present + at);
    if (valid < 0) return -1;
    b->valid += valid;
  }
  return real;
}

/* ---- the thread ---- */

struct Loader {
  const DataSet *data;
  uint64_t seed;
  bool shuffle;
  DataPosition position;
  Batch batch[2];
  int ready;     /* batches that are filled and not yet taken */
  int in_use;    /* 1 when the caller holds a batch */
  int64_t taken; /* batches handed out */
  bool stop, broken;
  bool running;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
};

/* Only the thread calls it, or loader_open before there is one. */
static bool fill_next(Loader *l, Batch *b) {
  int64_t n = data_samples(l->data);
  b->valid = 0;
  for (int64_t i = 0; i < b->samples; i++) {
    DataPosition *p = &l->position;
    int64_t sample = l->shuffle ? shuffle_at(l->seed, p->epoch, p->index, n) : p->index;
    int64_t at = i * b->tokens;
    int64_t valid = data_sample(l->data, sample, b->inputs + at, b->targets + at, b->present + at);
    if (valid < 0) return false;
    b->valid += valid;
    if (++p->index == n) *p = (DataPosition){p->epoch + 1, 0};
  }
  b->after = l->position;
  return true;
}

static void *prepare(void *arg) {
  Loader *l = arg;
  for (int64_t k = 0;; k++) {
    pthread_mutex_lock(&l->lock);
    while (!l->stop && l->ready + l->in_use == 2) pthread_cond_wait(&l->changed, &l->lock);
    bool stop = l->stop;
    pthread_mutex_unlock(&l->lock);
    if (stop) return NULL;
    bool ok = fill_next(l, &l->batch[k % 2]);
    pthread_mutex_lock(&l->lock);
    if (ok)
      l->ready++;
    else
      l->broken = true;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    if (!ok) return NULL;
  }
}

Loader *loader_open(const DataSet *d, int64_t tokens, int64_t samples, uint64_t seed, bool shuffle,
                    DataPosition from, Fail *f) {
  Loader *l = calloc(1, sizeof *l);
  ensure(l, "out of memory");
  l->data = d, l->seed = seed, l->shuffle = shuffle, l->position = from;
  if (from.index >= data_samples(d)) l->position = (DataPosition){from.epoch + 1, 0};
  pthread_mutex_init(&l->lock, NULL);
  pthread_cond_init(&l->changed, NULL);
  bool ok = batch_alloc(&l->batch[0], tokens, samples, f) &&
            batch_alloc(&l->batch[1], tokens, samples, f);
  if (ok && pthread_create(&l->thread, NULL, prepare, l) != 0)
    ok = fail_set(f, EXIT_DEVICE, "cannot start the thread that prepares data");
  l->running = ok;
  if (ok) return l;
  loader_close(l);
  return NULL;
}

const Batch *loader_next(Loader *l, Fail *f) {
  pthread_mutex_lock(&l->lock);
  l->in_use = 0;
  pthread_cond_broadcast(&l->changed);
  while (!l->ready && !l->broken) pthread_cond_wait(&l->changed, &l->lock);
  const Batch *b = NULL;
  if (l->ready) {
    b = &l->batch[l->taken++ % 2];
    l->ready--, l->in_use = 1;
  }
  pthread_mutex_unlock(&l->lock);
  if (!b) fail_page(f, EXIT_IO, "E0602", "a data file changed while it was being read");
  return b;
}

void loader_close(Loader *l) {
  if (!l) return;
  if (l->running) {
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
  }
  pthread_cond_destroy(&l->changed);
  pthread_mutex_destroy(&l->lock);
  for (int i = 0; i < 2; i++) batch_free(&l->batch[i]);
  free(l);
}
