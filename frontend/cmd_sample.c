/* cmd_sample.c - `mtc sample RUN --prompt ".."`: text from the newest checkpoint of a run. */
#include "cli.h"

#include "../runtime/sample.h"

#include <string.h>

int cmd_sample(Cli *c) {
  SampleOptions o = {.prompt = c->flag.prompt,
                     .tokens = c->flag.tokens,
                     .temperature = c->flag.temperature,
                     .top_k = c->flag.top_k,
                     .seed = c->flag.seed >= 0 ? (uint64_t)c->flag.seed : 0,
                     .threads = c->flag.threads > 0 ? (int)c->flag.threads : 0,
                     .device = c->flag.device,
                     .budget_bytes = c->flag.vram.text ? cli_bytes(&c->flag.vram, 0) : -1};
  if (c->flag.vram.text && o.budget_bytes < 0)
    return cli_usage(c, "--vram takes bytes here, such as 24G, not `%s`", c->flag.vram.text);
  return sample_run(c->args.at[0], &o, stdout);
}
