/* philox.h - Philox4x32-10 (Salmon et al. 2011) and what random numbers of a program mean. Needs no
 * header, so that emitted C and CUDA can carry it as text: define PHILOX_FN first where functions
 * need other qualifiers.
 *
 * Random bits are a function of (seed, key, step, sample, element) and of nothing else: a
 * recomputed, chunked or re-batched draw is the same draw.
 *
 *   counter = (block low, block high, sample, step)    block = element / 4; word element % 4 of it
 *   key     = (seed[0] ^ key low, seed[1] ^ key high)
 *
 * element: row-major index within the sample, that is over all axes but the batch axis; over all
 * axes when the draw has no batch axis, and sample is 0 then. sample: index within the step,
 * sample0 + index along the batch axis. A uniform is the top 24 bits times 2^-24: in [0, 1), exact
 * in f32. Attention's dropout draws element (head * Tq + query) * Tk + key of its sample. Dropout
 * keeps what is below (float)(1 - rate). */
#ifndef MTC_PHILOX_H
#define MTC_PHILOX_H
#ifndef PHILOX_FN
#define PHILOX_FN static inline
#endif

/* Ten rounds over the counter c, in place. */
PHILOX_FN void philox4x32_10(unsigned c[4], unsigned k0, unsigned k1) {
  for (int round = 0; round < 10; round++) {
    unsigned long long p0 = 0xD2511F53ull * c[0], p1 = 0xCD9E8D57ull * c[2];
    unsigned c1 = c[1], c3 = c[3];
    c[0] = (unsigned)(p1 >> 32) ^ c1 ^ k0;
    c[1] = (unsigned)p1;
    c[2] = (unsigned)(p0 >> 32) ^ c3 ^ k1;
    c[3] = (unsigned)p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

/* The four words of a block of elements. */
PHILOX_FN void philox_block(unsigned seed0, unsigned seed1, unsigned long long key, unsigned step,
                            unsigned sample, unsigned long long block, unsigned word[4]) {
  word[0] = (unsigned)block;
  word[1] = (unsigned)(block >> 32);
  word[2] = sample;
  word[3] = step;
  philox4x32_10(word, seed0 ^ (unsigned)key, seed1 ^ (unsigned)(key >> 32));
}

/* The random bits of one element. */
PHILOX_FN unsigned philox_bits(unsigned seed0, unsigned seed1, unsigned long long key,
                               unsigned step, unsigned sample, unsigned long long element) {
  unsigned word[4];
  philox_block(seed0, seed1, key, step, sample, element >> 2, word);
  return word[element & 3];
}

PHILOX_FN float philox_uniform(unsigned bits) {
  return (float)(bits >> 8) * 5.9604644775390625e-8f;
}

#endif
