/* parallel.c - see parallel.h. */
#include "parallel.h"

#include <pthread.h>
#include <unistd.h>

enum { MOST_THREADS = 8 };

typedef struct {
  int n, next;
  void (*work)(void *arg, int i);
  void *arg;
} Shared;

static void *take(void *shared) {
  Shared *s = shared;
  for (int i; (i = __atomic_fetch_add(&s->next, 1, __ATOMIC_RELAXED)) < s->n;) s->work(s->arg, i);
  return NULL;
}

void in_parallel(int n, void (*work)(void *arg, int i), void *arg) {
  Shared s = {.n = n, .work = work, .arg = arg};
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  pthread_t thread[MOST_THREADS];
  int helpers = 0;
  while (helpers < n - 1 && helpers < cores - 1 && helpers < MOST_THREADS &&
         pthread_create(&thread[helpers], NULL, take, &s) == 0)
    helpers++;
  take(&s);
  for (int i = 0; i < helpers; i++) pthread_join(thread[i], NULL);
}
