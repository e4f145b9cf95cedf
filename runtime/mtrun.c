/* mtrun.c - runs a compiled program without the compiler: mtrun MODEL.mtx [options]. The same loop
 * as `mtc train`. */
#include "train.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: mtrun MODEL.mtx [-o DIR] [options]\n"
    "  -o, --output DIR   folder of the run (run)\n"
    "      --resume       go on from the newest checkpoint of the folder\n"
    "      --force        start over in a folder that holds a run\n"
    "      --steps N      stop after step N of the run\n"
    "      --dry-run N    run N steps, report measured against planned, write nothing\n"
    "      --seed N       seed instead of the model's\n"
    "      --threads N    threads of the CPU device (MTC_THREADS, else all cores)\n"
    "      --no-checkpoint  write no checkpoint\n"
    "      --no-copies    with --dry-run: leave out copies between host and device\n"
    "      --poison       fill every byte that dies with NaN, copy as late as the plan allows\n"
    "      --json         print the metrics of each step as one JSON object a line\n"
    "  -q, --quiet        print errors only\n"
    "  -h, --help         this text\n"
    "      --version      print the version\n";

typedef struct {
  const char *name;
  char letter;
  bool *flag;
  int64_t *number;
  const char **text;
} Option;

static int wrong(const char *fmt, const char *what) {
  fputs("mtrun: error: ", stderr);
  fprintf(stderr, fmt, what);
  fputs("\nsee `mtrun --help`\n", stderr);
  return EXIT_USAGE;
}

/* argv[*i] as one of the options; EXIT_OK when it was understood. */
static int parse_option(const Option *options, int n, char **argv, int argc, int *i) {
  const char *arg = argv[*i], *equals = strchr(arg, '=');
  size_t length = equals ? (size_t)(equals - arg) : strlen(arg);
  for (const Option *o = options; o < options + n; o++) {
    bool is_long = str_starts(arg, "--") && strlen(o->name) == length - 2 &&
                   !strncmp(arg + 2, o->name, length - 2);
    bool is_short = o->letter && arg[1] == o->letter && !arg[2];
    if (!is_long && !is_short) continue;
    if (o->flag) {
      *o->flag = true;
      return equals ? wrong("`%s` takes no value", arg) : EXIT_OK;
    }
    const char *value = equals ? equals + 1 : *i + 1 < argc ? argv[++*i] : NULL;
    if (!value) return wrong("`%s` needs a value", arg);
    if (o->text) {
      *o->text = value;
      return EXIT_OK;
    }
    char *end;
    errno = 0;
    *o->number = strtoll(value, &end, 10);
    return end == value || *end || errno || *o->number < 0 ? wrong("`%s` is no whole number", value)
                                                           : EXIT_OK;
  }
  return wrong("unknown option `%s`", arg);
}

static int run(const char *path, const TrainOptions *o) {
  Arena *a = arena_new();
  const char *why;
  Program *p = mtx_read(a, path, &why);
  int code = EXIT_IO;
  if (p)
    code = train_run(p, o);
  else
    fprintf(stderr, "mtrun: error: %s\n", why);
  arena_free(a);
  return code;
}

int main(int argc, char **argv) {
  signal(SIGPIPE, SIG_IGN);
  TrainOptions o = {.dir = "run", .steps = -1, .seed = -1};
  bool help = false, version = false;
  int64_t threads = 0;
  const char *path = NULL;
  const Option options[] = {
      {"output", 'o', NULL, NULL, &o.dir},    {"resume", 0, &o.resume, NULL, NULL},
      {"force", 0, &o.force, NULL, NULL},     {"steps", 0, NULL, &o.steps, NULL},
      {"dry-run", 0, NULL, &o.dry_run, NULL}, {"seed", 0, NULL, &o.seed, NULL},
      {"threads", 0, NULL, &threads, NULL},   {"poison", 0, &o.poison, NULL, NULL},
      {"json", 0, &o.json, NULL, NULL},       {"quiet", 'q', &o.quiet, NULL, NULL},
      {"no-checkpoint", 0, &o.no_checkpoint, NULL, NULL}, {"no-copies", 0, &o.no_copies, NULL, NULL},
      {"help", 'h', &help, NULL, NULL},       {"version", 0, &version, NULL, NULL},
  };
  for (int i = 1; i < argc; i++) {
    int code = EXIT_OK;
    if (argv[i][0] == '-' && argv[i][1])
      code = parse_option(options, COUNT_OF(options), argv, argc, &i);
    else if (path)
      code = wrong("one program at a time; what is `%s`?", argv[i]);
    else
      path = argv[i];
    if (code) return code;
  }
  if (help) fputs(usage, stdout);
  if (version) puts("mtrun " MTC_VERSION);
  if (help || version) return EXIT_OK;
  if (!path) return fputs(usage, stderr), EXIT_USAGE;
  o.threads = (int)threads;
  return run(path, &o);
}
