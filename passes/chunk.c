#include "chunk.h"
int chunk_limit(const Graph *g) { (void)g; return 1; }
Graph *graph_chunk(Graph *g, Arena *a, int chunks) { (void)a; (void)chunks; return g; }
