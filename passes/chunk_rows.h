/* chunk_rows.h - between the files of passes/chunk.h: values whose leading axes are the tokens, and
 * the same values for the rows (tokens) of one chunk. */
#ifndef MTC_CHUNK_ROWS_H
#define MTC_CHUNK_ROWS_H
#include "rewrite.h"

/* A part of a forward graph that begins with contractions of token rows, goes on with row-wise
 * nodes and ends with nodes that take its values out. Several regions of a graph may share the
 * arrays. */
typedef struct {
  const Graph *g;
  int64_t rows; /* tokens */
  int *lead;    /* per value of the region: how many leading axes are tokens; 0 = not in it */
  bool *opens;  /* per node: one of its contractions */
  bool *exit;   /* per node: reads a value of the region, makes one that is not in it */
} Region;

/* Tokens of a value whose first n axes they are. */
int64_t region_rows(const Shape *s, int n);
Region region_new(const Graph *g, Arena *a);
/* n is x[tokens.., inner..] with w, tokens leading, more numbers out than in: what it makes is worth
 * cutting. */
bool region_may_open(const Graph *g, const Node *n);
/* Takes the contraction n into the region, and its tokens as the region's rows. */
void region_open(Region *r, NodeId n);
/* Leading token axes of the operands of n that are in the region: 0 when none is, -1 when they differ. */
int region_lead(const Region *r, const Node *n);
/* Leading token axes of the result of n, given those of its operands in the region. 0: n cannot be
 * cut. */
int region_lead_after(const Region *r, const Node *n, int lead);
/* Outside of the region, but cheaper to make for the chunk than to cut out of the whole. */
bool region_made_again(const Node *n, int lead);

/* Writes a graph whose nodes of chunk i of a region carry i as their chunk or, `tiles`, tile. */
typedef struct {
  Region region;
  Rewrite r;
  bool tiles;
  int chunk, chunks;   /* at work: 1..chunks */
  int64_t start, stop; /* its rows */
  ValueId *made;       /* per old value: its rows of the chunk at work; -1 not yet */
  ValueId *flat;       /* per old value: with its token axes as one */
} Chunker;

Chunker chunker_new(Region region, const Graph *g, Arena *a);
void chunk_begin(Chunker *c, int chunk);
/* New nodes get the place of n, and the chunk (0: none). */
void chunk_work_at(Chunker *c, const Node *n, int chunk);
/* Old value v, whose first `lead` axes are the tokens, for the rows of the chunk at work. */
ValueId chunk_of(Chunker *c, ValueId v, int lead);
/* The contraction n, its tokens in in[0], for those rows. */
ValueId chunk_contraction(Chunker *c, const Node *n, int lead);

#endif
