/* formats.h - number formats of optimizer state. Needs no header, so that emitted C and CUDA carry it as text and all of
 * them, the interpreter and the runtime compute the same bits: define FORMAT_FN, FORMAT_MUL and FORMAT_ADD (rounded
 * after each operation) first where they need to be others. bf16 values are floats whose low 16 bits are zero.
 *
 *   stochastic  f32 to one of its two bf16 neighbours, by 16 random bits
 *   high, low   f32 in two halves: the bf16 nearest to it (a tie goes away from zero) and the 16 bits that complete it;
 *               join puts them together again, exactly
 *   quant8      a number in [-1, 1] as the nearest entry of the dynamic map of Dettmers et al. (2022): seven decades
 *               1e-6 .. 1, each with twice the entries of the one below; quant8u: the map of numbers in [0, 1], with
 *               twice the entries. Codes: sign, then index of the magnitude; 0 is zero; 128 (signed) and 255
 *               (unsigned) are 1 */
#ifndef FORMAT_FN
#define FORMAT_FN static inline
#endif
#ifndef FORMAT_MUL
#define FORMAT_MUL(a, b) ((a) * (b))
#define FORMAT_ADD(a, b) ((a) + (b))
#endif

FORMAT_FN unsigned format_bits(float x) {
  union {
    float f;
    unsigned u;
  } y = {x};
  return y.u;
}
FORMAT_FN float format_float(unsigned bits) {
  union {
    unsigned u;
    float f;
  } y = {bits};
  return y.f;
}

/* NaN and infinity stay what they are: what is added to infinity is cut off again. */
FORMAT_FN float format_stochastic(float x, unsigned random) {
  const unsigned b = format_bits(x);
  return format_float((x != x ? b | 0x400000u : b + (random & 0xffffu)) & 0xffff0000u);
}

FORMAT_FN float format_high(float x) {
  const unsigned b = format_bits(x);
  return format_float((x != x ? b | 0x400000u : b + 0x8000u) & 0xffff0000u);
}
FORMAT_FN unsigned format_low(float x) { return format_bits(x) & 0xffffu; }
FORMAT_FN float format_join(float high, unsigned low) {
  return format_float(format_bits(high) - ((low & 0x8000u) << 1) + low);
}

/* 10^(d - 6) and 10^(6 - d) for d = 0 .. 6. */
FORMAT_FN float format_decade(int d) {
  const float low = d == 0 ? 1e-6f : d == 1 ? 1e-5f : 1e-4f, high = d == 5 ? 0.1f : 1.0f;
  return d < 3 ? low : d == 3 ? 1e-3f : d == 4 ? 1e-2f : high;
}
FORMAT_FN float format_scale(int d) {
  const float low = d == 0 ? 1e6f : d == 1 ? 1e5f : 1e4f, high = d == 5 ? 10.0f : 1.0f;
  return d < 3 ? low : d == 3 ? 1e3f : d == 4 ? 1e2f : high;
}

/* The middle of cell n - 2^i of the 2^i cells of [0.1, 1], where n has i + 1 bits, times the power of decade i - skip. */
FORMAT_FN float format_entry(unsigned n, int skip) {
  const unsigned b = format_bits(FORMAT_ADD(format_float(0x4b000000u | n | (n == 0)), -8388608.0f)); /* n as a float */
  const int i = (int)(b >> 23) - 127;
  const float place = format_float((b & 0x7fffffu) | 0x3f800000u), cell = format_float((unsigned)(127 - i) << 23);
  const float middle = FORMAT_ADD(FORMAT_ADD(FORMAT_MUL(0.9f, place), -0.8f), FORMAT_MUL(0.45f, cell));
  return FORMAT_MUL(middle, format_decade(i - skip));
}
FORMAT_FN float format_dequant8(unsigned code) {
  const unsigned k = code & 127u;
  const float size = format_entry(k, 0);
  const float some = code & 128u ? -size : size;
  return k ? some : code ? 1.0f : 0.0f;
}
FORMAT_FN float format_dequant8u(unsigned code) {
  const float some = format_entry(code + 1u, 1);
  return code == 0u ? 0.0f : code == 255u ? 1.0f : some;
}

/* Where a code changes to the next: from zero to the least entry, from the last entry of each decade to the first of the
 * next, and to 1. */
#define FORMAT_EDGES8 {2.75e-7f, 1.9e-6f, 1.45e-5f, 1.225e-4f, 1.1125e-3f, 1.05625e-2f, 0.1028125f, 0.996484375f}
#define FORMAT_EDGES8U {1.625e-7f, 1.45e-6f, 1.225e-5f, 1.1125e-4f, 1.05625e-3f, 1.028125e-2f, 0.10140625f, 0.9982421875f}

/* n of the entry nearest to a among 2^(d + skip) of each decade d; a lies between the least entry and 1. */
FORMAT_FN unsigned format_nearest(float a, int d, int skip) {
  const unsigned cells = 1u << (d + skip);
  const float y = FORMAT_MUL(FORMAT_ADD(FORMAT_MUL(a, format_scale(d)), -0.1f), 1.1111111f);
  const float at = FORMAT_MUL(y, format_float((unsigned)(127 + d + skip) << 23));
  const int j = at > 0.0f ? (int)at : 0, last = (int)cells - 1;
  return cells + (unsigned)(j < last ? j : last);
}
FORMAT_FN unsigned format_quant8(float x) {
  const float edge[] = FORMAT_EDGES8, a = x < 0.0f ? -x : x;
  const int d = (a >= edge[1]) + (a >= edge[2]) + (a >= edge[3]) + (a >= edge[4]) + (a >= edge[5]) + (a >= edge[6]);
  const unsigned sign = x < 0.0f ? 128u : 0u, code = format_nearest(a < 1.0f ? a : 1.0f, d, 0) | sign;
  return !(a >= edge[0]) ? 0u : x >= edge[7] ? 128u : code;
}
FORMAT_FN unsigned format_quant8u(float a) {
  const float edge[] = FORMAT_EDGES8U;
  const int d = (a >= edge[1]) + (a >= edge[2]) + (a >= edge[3]) + (a >= edge[4]) + (a >= edge[5]) + (a >= edge[6]);
  const unsigned code = format_nearest(a < 1.0f ? a : 1.0f, d, 1) - 1u;
  return !(a >= edge[0]) ? 0u : a >= edge[7] ? 255u : code;
}
