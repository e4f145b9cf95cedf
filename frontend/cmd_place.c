/* cmd_place.c - `mtc place F.csv [--capacity N] [-o OUT.csv]`: offsets for buffers given as
 * intervals.
 *
 * Reads minimalloc's format: a header with id, lower, upper, size, then one buffer a line, live in
 * [lower, upper). Writes the same with an offset. Exits with 3 when the buffers do not fit, and
 * says whether that is proven. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "frontend/cli.h"
#include "passes/place.h"

typedef struct {
  VEC(PlaceBuf) buf;
  VEC(const char *) id;
  int64_t *offset;
  PlaceInfo info;
} Placement;

enum { COL_ID, COL_LOWER, COL_UPPER, COL_SIZE, COL_COUNT };
static const char *const column_name[COL_COUNT] = {"id", "lower", "upper", "size"};

typedef struct {
  int at[COL_COUNT]; /* field in which each column stands */
} Columns;

enum { MAX_FIELDS = 16 };

/* Splits a line at commas, in place; spaces around fields go. */
static int split_fields(char *line, char **field) {
  int n = 0;
  for (char *rest = line, *f; n < MAX_FIELDS && (f = strsep(&rest, ","));) {
    f += strspn(f, " \t");
    size_t len = strlen(f);
    while (len && strchr(" \t\r", f[len - 1])) f[--len] = '\0';
    field[n++] = f;
  }
  return n;
}

static bool read_header(char *line, Columns *columns) {
  char *field[MAX_FIELDS];
  int n = split_fields(line, field);
  for (int c = 0; c < COL_COUNT; c++) {
    columns->at[c] = -1;
    for (int i = 0; i < n; i++)
      if (!strcmp(field[i], column_name[c])) columns->at[c] = i;
    if (columns->at[c] < 0) return false;
  }
  return true;
}

static bool read_number(const char *text, int64_t *out) {
  char *end;
  errno = 0;
  *out = strtoll(text, &end, 10);
  return *text && !*end && !errno;
}

static bool read_row(Cli *c, char *line, const Columns *columns, Placement *p) {
  char *field[MAX_FIELDS];
  int64_t number[COL_COUNT] = {0};
  int n = split_fields(line, field);
  for (int k = 0; k < COL_COUNT; k++) {
    if (columns->at[k] >= n) return false;
    if (k != COL_ID && !read_number(field[columns->at[k]], &number[k])) return false;
  }
  PlaceBuf b = {number[COL_LOWER], number[COL_UPPER], number[COL_SIZE]};
  if (b.size < 0 || b.lower > b.upper) return false;
  vec_push(c->arena, &p->buf, b);
  vec_push(c->arena, &p->id, field[columns->at[COL_ID]]);
  return true;
}

/* EXIT_OK, or an exit code with the error printed. A last line that was cut off is left out, with a
 * warning. */
static int read_buffers(Cli *c, const char *path, Placement *p) {
  size_t size;
  char *text = read_file(c->arena, path, &size);
  Columns columns;
  if (!text) return cli_fail(c, EXIT_IO, "cannot read `%s`: %s", path, strerror(errno));
  bool whole = size > 0 && text[size - 1] == '\n';
  int line_number = 0;
  for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
    line_number++;
    if (line[strspn(line, " \t\r")] == '\0') continue;
    if (line_number == 1) {
      if (!read_header(line, &columns))
        return cli_fail(c, EXIT_IO, "%s:1: the header does not name id, lower, upper and size",
                        path);
    } else if (!read_row(c, line, &columns, p)) {
      if (rest || whole)
        return cli_fail(c, EXIT_IO, "%s:%d: not a buffer: id, lower <= upper, size >= 0", path,
                        line_number);
      cli_warn(c, "%s:%d: the last line is cut off and left out", path, line_number);
    }
  }
  int64_t total = 0, life;
  for (int i = 0; i < p->buf.n; i++) {
    const PlaceBuf *b = &p->buf.at[i];
    if (__builtin_add_overflow(total, b->size, &total) || total >= INT64_MAX / 2 ||
        __builtin_sub_overflow(b->upper, b->lower, &life))
      return cli_fail(c, EXIT_IO, "%s: the sizes add up to 2^62 or more", path);
  }
  return EXIT_OK;
}

static int write_placement(Cli *c, const char *path, const Placement *p) {
  Str s = {.arena = c->arena};
  str_add(&s, "id,lower,upper,size,offset\n");
  for (int i = 0; i < p->buf.n; i++) {
    const PlaceBuf *b = &p->buf.at[i];
    str_addf(&s, "%s,%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "\n", p->id.at[i], b->lower,
             b->upper, b->size, p->offset[i]);
  }
  if (!strcmp(path, "-")) {
    fwrite(s.text, 1, s.len, stdout);
    return EXIT_OK;
  }
  if (path_exists(path) && !c->flag.force)
    return cli_usage(c, "`%s` exists; --force overwrites it", path);
  if (write_file_atomic(path, s.text, s.len)) return EXIT_OK;
  return cli_fail(c, EXIT_IO, "cannot write `%s`: %s", path, strerror(errno));
}

static void print_json(const Placement *p, int64_t capacity, bool fits, bool proven) {
  json_t *offsets = json_array();
  for (int i = 0; i < p->buf.n; i++) json_array_append_new(offsets, json_integer(p->offset[i]));
  json_t *o = json_object();
  json_object_set_new(o, "schema", json_string("mtc.place/1"));
  json_object_set_new(o, "buffers", json_integer(p->buf.n));
  json_object_set_new(o, "capacity_bytes", capacity < 0 ? json_null() : json_integer(capacity));
  json_object_set_new(o, "bound_bytes", json_integer(p->info.bound));
  json_object_set_new(o, "height_bytes", json_integer(p->info.height));
  json_object_set_new(o, "fits", json_boolean(fits));
  json_object_set_new(o, "proven", json_boolean(proven));
  json_object_set_new(o, "method", json_string(p->info.method));
  json_object_set_new(o, "offsets", offsets);
  json_dumpf(o, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
  putchar('\n');
  json_decref(o);
}

/* Exit 3: why the buffers do not fit, and whether that is certain. */
static int does_not_fit(Cli *c, const char *path, const Placement *p, int64_t capacity) {
  const char *wanted = format_count(c->arena, capacity);
  if (p->info.bound > capacity)
    return cli_fail(c, EXIT_INFEASIBLE,
                    "%s does not fit in %s bytes: %s bytes are live at one time (proven)", path,
                    wanted, format_count(c->arena, p->info.bound));
  if (p->info.refuted)
    return cli_fail(
        c, EXIT_INFEASIBLE,
        "%s does not fit in %s bytes: no placement exists (proven by exhaustive search)", path,
        wanted);
  return cli_fail(c, EXIT_INFEASIBLE,
                  "found no placement of %s in %s bytes: the best takes %s (not proven; at least "
                  "%s are needed)",
                  path, wanted, format_count(c->arena, p->info.height),
                  format_count(c->arena, p->info.bound));
}

static void print_text(Cli *c, const char *path, const Placement *p) {
  int64_t over = p->info.height - p->info.bound;
  FILE *to = c->flag.output && !strcmp(c->flag.output, "-") ? stderr : stdout;
  fprintf(to, "%s: %s buffers in %s bytes", path, format_count(c->arena, p->buf.n),
          format_count(c->arena, p->info.height));
  if (p->info.optimal) {
    fprintf(to, ", the least possible");
  } else {
    fprintf(to, ", %.2f %% over the %s that are live at one time",
            100.0 * (double)over / (double)p->info.bound, format_count(c->arena, p->info.bound));
  }
  fprintf(to, " (%s)\n", p->info.method);
}

int cmd_place(Cli *c) {
  const char *path = c->args.at[0];
  Placement p = {0};
  int64_t capacity = cli_bytes(&c->flag.capacity, 0);
  if (c->flag.capacity.text && capacity < 0)
    return cli_usage(c, "--capacity takes bytes, not a share");
  int code = read_buffers(c, path, &p);
  if (code != EXIT_OK) return code;
  p.offset = arena_array(c->arena, int64_t, p.buf.n + 1);
  PlaceOptions opt = {.target = capacity > 0 ? capacity : 0};
  place_buffers(p.buf.n, p.buf.at, p.offset, &opt, &p.info);
  bool fits = capacity < 0 || p.info.height <= capacity;
  bool proven = fits || p.info.bound > capacity || p.info.refuted;
  if (fits && c->flag.output) code = write_placement(c, c->flag.output, &p);
  if (code != EXIT_OK) return code;
  if (c->flag.json) {
    print_json(&p, capacity, fits, proven);
  } else if (fits && !c->flag.quiet) {
    print_text(c, path, &p);
  }
  return fits ? EXIT_OK : does_not_fit(c, path, &p, capacity);
}
