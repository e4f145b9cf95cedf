// attention_order.cu - which tile a block of the mma.sync kernels takes. Plain C: a test runs it on the host.
//
// Blocks start in the order of their numbers. Heads are taken in groups; of a group the longest tiles of all heads start
// first, so that what is left to the last blocks is short, while the keys and values of a group stay in L2. Grid: x heads of
// a sample, or with BIAS samples of a head, which read the same biases; y tiles; z the rest. The host says how groups are made
// (attention_grid of attention_cuda.c): y also counts 2^(order & 255) neighbours along the other axis, z also 2^(order >> 8)
// parts of the first.
typedef struct {
  int tile, tiles, head, sample;  // tile 0 is the longest
} Place;
DI Place place_of(int order) {
  const int more = order & 255, parts = order >> 8;
  const int x = (blockIdx.z & ((1 << parts) - 1)) * gridDim.x + blockIdx.x;
  const int y = (blockIdx.z >> parts << more) + (blockIdx.y & ((1 << more) - 1));
  const Place p = {(int)(blockIdx.y >> more), (int)(gridDim.y >> more), BIAS ? y : x, BIAS ? x : y};
  return p;
}
