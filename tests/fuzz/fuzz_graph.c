/* fuzz_graph.c - libFuzzer target: any bytes as the text form of a graph are read or refused; what
 * is read is sound and prints to text that reads and prints the same. */
#include <string.h>
#include "ir/graph.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Arena *a = arena_new();
  const char *why = NULL;
  Graph *g = graph_read(a, (const char *)data, size, &why);
  ensure((g == NULL) == (why != NULL), "refused without a reason");
  if (g) {
    Str once = {.arena = a}, twice = {.arena = a};
    graph_print(g, &once);
    Graph *again = graph_read(a, once.text, once.len, &why);
    ensure(again, "what was printed is refused: %s", why);
    graph_print(again, &twice);
    ensure(!strcmp(once.text, twice.text), "printed twice, two texts");
  }
  arena_free(a);
  return 0;
}
