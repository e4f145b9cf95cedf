/* parallel.h - independent pieces of work on as many threads as there are cores.
 *
 * The pieces share nothing that one of them writes: each allocates from an arena of its own, which arena_adopt() joins to
 * another afterwards. What comes out does not depend on the number of cores. */
#ifndef MTC_PARALLEL_H
#define MTC_PARALLEL_H

/* work(arg, i) for each i below n, in any order; returns when all are done. The caller is one of the threads. */
void in_parallel(int n, void (*work)(void *arg, int i), void *arg);

#endif
