/* copies.c - when a copy that may happen over a span of commands is performed: see copies.h. */
#include "copies.h"

/* All copies of one direction before command `end` that are not done yet. */
static bool perform_until(CopyRun *c, bool to_host, int end, Fail *f) {
  for (; c->done[to_host] < end; c->done[to_host]++) {
    const Cmd *k = &c->code->cmds[c->done[to_host]];
    if (k->kind == CMD_COPY && k->copy.to_host == to_host &&
        !c->perform(c->context, c->done[to_host], f))
      return false;
  }
  return true;
}

bool copies_at(CopyRun *c, int i, Fail *f) {
  const Cmd *k = &c->code->cmds[i];
  c->begun = i + 1;
  if (c->times == COPIES_SOON && k->kind == CMD_COPY)
    return perform_until(c, k->copy.to_host, i + 1, f);
  if (c->times != COPIES_LATE || k->kind != CMD_WAIT) return true;
  const Cmd *awaited = &c->code->cmds[k->copy.awaited];
  return perform_until(c, awaited->copy.to_host, k->copy.awaited + 1, f);
}

bool copies_end(CopyRun *c, Fail *f) {
  if (c->times == COPIES_NEVER) return true;
  return perform_until(c, false, c->begun, f) && perform_until(c, true, c->begun, f);
}
