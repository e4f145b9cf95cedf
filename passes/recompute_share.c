/* recompute_share.c - options of segments that several problems have in common, such as a model with its loss head whole and in
 * pieces: their layers are the same.
 *
 * A segment is known by its signature and its numbers of ops and decisions. Its options depend on nothing else, so what a
 * problem takes is what it would have found, whichever thread was first. */
#include <pthread.h>

#include "recompute_options.h"

typedef struct {
  uint64_t signature;
  int nops, nitem, nflag;
  bool solved;
  Options options;
} Known;

struct RecSegments {
  Arena *arena;
  pthread_mutex_t lock;
  pthread_cond_t solved;
  VEC(Known *) known;
};

RecSegments *rec_segments_new(void) {
  Arena *a = arena_new();
  RecSegments *all = arena_new_of(a, RecSegments);
  all->arena = a;
  pthread_mutex_init(&all->lock, NULL);
  pthread_cond_init(&all->solved, NULL);
  return all;
}

void rec_segments_free(RecSegments *all) {
  if (!all) return;
  pthread_cond_destroy(&all->solved);
  pthread_mutex_destroy(&all->lock);
  arena_free(all->arena);
}

static Known *find(const RecSegments *all, const Segment *g) {
  for (int i = 0; i < all->known.n; i++) {
    Known *k = all->known.at[i];
    if (k->signature == g->signature && k->nops == g->window.n && k->nitem == g->nitem &&
        k->nflag == g->nflag)
      return k;
  }
  return NULL;
}

const Options *segments_take(RecSegments *all, const Segment *g) {
  pthread_mutex_lock(&all->lock);
  Known *k = find(all, g);
  if (!k) {
    Known *begun = arena_new_of(all->arena, Known);
    *begun = (Known){
        .signature = g->signature, .nops = g->window.n, .nitem = g->nitem, .nflag = g->nflag};
    vec_push(all->arena, &all->known, begun);
  }
  while (k && !k->solved) pthread_cond_wait(&all->solved, &all->lock);
  pthread_mutex_unlock(&all->lock);
  return k ? &k->options : NULL;
}

void segments_put(RecSegments *all, const Segment *g) {
  size_t size = (size_t)g->nitem + (size_t)g->nflag;
  pthread_mutex_lock(&all->lock);
  Known *k = find(all, g);
  for (int i = 0; i < g->options->n; i++) {
    Option o = g->options->at[i];
    o.choice = arena_copy(all->arena, o.choice, size);
    vec_push(all->arena, &k->options, o);
  }
  k->solved = true;
  pthread_cond_broadcast(&all->solved);
  pthread_mutex_unlock(&all->lock);
}
