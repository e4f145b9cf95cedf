/* mtx.c - the .mtx file: header, section table, sections. docs/mtx.md describes it byte by byte.
 *
 * Sections: `manifest` (JSON for people and tools), `program` (binary, mtx_code.c), `kernels`
 * (source text) and one `image` per compiled architecture. Each has an XXH3-64 checksum, the header
 * and table have one of their own, and bytes between sections must be zero, so that no byte of the
 * file can change unnoticed. The same program gives the same bytes. */
#include "mtx_parts.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

static const char magic[8] = {'\x89', 'M', 'T', 'X', '\r', '\n', '\x1a', '\n'};
enum {
  VERSION = 3,
  ALIGN = 64,
  HEAD_BYTES = 40,
  ENTRY_BYTES = 64,
  NAME_BYTES = 40,
  MAX_SECTIONS = 1024
};

static void store64(void *at, uint64_t x) {
  for (int i = 0; i < 8; i++) ((uint8_t *)at)[i] = (uint8_t)(x >> 8 * i);
}
static uint64_t load64(const void *at) {
  uint64_t x = 0;
  for (int i = 0; i < 8; i++) x |= (uint64_t)((const uint8_t *)at)[i] << 8 * i;
  return x;
}

/* ---- writing ---- */

typedef struct {
  char name[NAME_BYTES]; /* "manifest", "program", "kernels", "image:sm_90a" */
  const void *data;
  size_t size;
} Section;

static char *manifest_text(const Program *p) {
  json_t *programs = json_array();
  for (int i = 0; i < p->nprograms; i++)
    json_array_append_new(programs, json_pack("{s:s, s:i}", "name", p->programs[i].name, "commands",
                                              p->programs[i].ncmds));
  char id[17];
  snprintf(id, sizeof id, "%016llx", (unsigned long long)p->plan_id);
  json_t *j = json_pack(
      "{s:s, s:s, s:s, s:s, s:s?, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:i, s:i, s:o}", "schema",
      "mtc.mtx/1", "mtc", MTC_VERSION, "source", p->source, "model", p->model, "preset", p->preset,
      "target", p->target, "plan", id, "params", (json_int_t)p->params, "arena_bytes",
      (json_int_t)p->arena_bytes, "peak_bytes", (json_int_t)p->peak_bytes, "budget_bytes",
      (json_int_t)p->budget_bytes, "persistent_bytes", (json_int_t)p->persistent_bytes, "variables",
      p->nvars, "kernels", p->nkernels, "programs", programs);
  ensure(j, "the manifest of a program could not be made");
  char *text = json_dumps(j, JSON_INDENT(2));
  json_decref(j);
  ensure(text, "out of memory");
  return text;
}

/* Lays the sections out behind the header and fills header and table. */
static void assemble(Str *out, const Section *s, int n) {
  size_t table = HEAD_BYTES + (size_t)n * ENTRY_BYTES;
  Arena *a = out->arena;
  uint8_t *head = arena_alloc(a, table);
  size_t at = (size_t)round_up((int64_t)table, ALIGN);
  for (int i = 0; i < n; i++) {
    uint8_t *e = head + HEAD_BYTES + (size_t)i * ENTRY_BYTES;
    memcpy(e, s[i].name, NAME_BYTES);
    store64(e + NAME_BYTES, at);
    store64(e + NAME_BYTES + 8, s[i].size);
    store64(e + NAME_BYTES + 16, hash_bytes(s[i].data, s[i].size, 0));
    at = (size_t)round_up((int64_t)(at + s[i].size), ALIGN);
  }
  memcpy(head, magic, sizeof magic);
  store64(head + 8, VERSION);
  store64(head + 16, (uint64_t)n);
  store64(head + 24, at);
  store64(head + 32, hash_bytes(head, table, 0)); /* taken with the field zero */
  str_add_n(out, (char *)head, table);
  static const char zeros[ALIGN];
  for (int i = 0; i < n; i++) {
    str_add_n(out, zeros, (size_t)round_up((int64_t)out->len, ALIGN) - out->len);
    str_add_n(out, s[i].data, s[i].size);
  }
  str_add_n(out, zeros, (size_t)round_up((int64_t)out->len, ALIGN) - out->len);
}

static void section(Section *s, const char *name, const void *data, size_t size) {
  *s = (Section){.data = data, .size = size};
  snprintf(s->name, sizeof s->name, "%s", name);
}

bool mtx_write(const Program *p, const char *path, const char **why) {
  *why = NULL;
  Arena *a = arena_new();
  Str program = {.arena = a}, file = {.arena = a};
  mtx_encode(p, &program);
  char *manifest = manifest_text(p);
  Section *s = arena_array(a, Section, 3 + p->nimages);
  const char *source = p->kernel_source ? p->kernel_source : "";
  section(&s[0], "manifest", manifest, strlen(manifest));
  section(&s[1], "program", program.text, program.len);
  section(&s[2], "kernels", source, strlen(source));
  for (int i = 0; i < p->nimages; i++) {
    const char *name = arena_printf(a, "image:%s", p->images[i].arch);
    ensure(strlen(name) < NAME_BYTES, "the architecture name %s is too long", p->images[i].arch);
    section(&s[3 + i], name, p->images[i].data, p->images[i].size);
  }
  assemble(&file, s, 3 + p->nimages);
  bool ok = write_file_atomic(path, file.text, file.len);
  if (!ok) *why = intern_printf("cannot write %s: %s", path, strerror(errno));
  free(manifest);
  arena_free(a);
  return ok;
}

/* ---- reading ---- */

typedef struct {
  Arena *arena;
  const uint8_t *data;
  size_t size;
  const char *why;
} Reader;

__attribute__((format(printf, 2, 3))) static bool refuse(Reader *r, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  if (!r->why) r->why = arena_vprintf(r->arena, fmt, ap);
  va_end(ap);
  return false;
}

static bool read_head(Reader *r, int *count) {
  if (r->size < sizeof magic || memcmp(r->data, magic, sizeof magic))
    return refuse(r, "not a .mtx file");
  if (r->size < HEAD_BYTES) return refuse(r, "truncated: %zu bytes are no header", r->size);
  uint64_t version = load64(r->data + 8), n = load64(r->data + 16), size = load64(r->data + 24);
  if (version != VERSION)
    return refuse(r, "version %llu of the format; this mtc reads version %d: compile it again",
                  (unsigned long long)version, VERSION);
  if (size > r->size)
    return refuse(r, "truncated: %zu of %llu bytes", r->size, (unsigned long long)size);
  if (size < r->size) return refuse(r, "bytes follow the end of the file");
  if (n < 3 || n > MAX_SECTIONS || HEAD_BYTES + n * ENTRY_BYTES > r->size)
    return refuse(r, "the section table is damaged");
  size_t table = HEAD_BYTES + (size_t)n * ENTRY_BYTES;
  uint8_t *head = arena_copy(r->arena, r->data, table);
  store64(head + 32, 0);
  if (hash_bytes(head, table, 0) != load64(r->data + 32))
    return refuse(r, "checksum of the header does not match: the file is damaged");
  *count = (int)n;
  return true;
}

/* Sections follow each other in order; what lies between them is zero. */
static bool read_sections(Reader *r, Section *s, int n) {
  size_t end = HEAD_BYTES + (size_t)n * ENTRY_BYTES;
  for (int i = 0; i <= n; i++) {
    uint64_t at = r->size, size = 0;
    if (i < n) {
      const uint8_t *e = r->data + HEAD_BYTES + (size_t)i * ENTRY_BYTES;
      memcpy(s[i].name, e, NAME_BYTES);
      if (s[i].name[NAME_BYTES - 1]) return refuse(r, "a section's name is damaged");
      at = load64(e + NAME_BYTES), size = load64(e + NAME_BYTES + 8);
      if (at < end || at > r->size || size > r->size - at)
        return refuse(r, "section %s lies outside the file", s[i].name);
      s[i].data = r->data + at, s[i].size = (size_t)size;
      if (hash_bytes(s[i].data, s[i].size, 0) != load64(e + NAME_BYTES + 16))
        return refuse(r, "checksum of section %s does not match: the file is damaged", s[i].name);
    }
    for (; end < at; end++)
      if (r->data[end]) return refuse(r, "bytes between sections are damaged");
    end = (size_t)(at + size);
  }
  return true;
}

static const Section *find_section(Reader *r, const Section *s, int n, const char *name) {
  for (int i = 0; i < n; i++)
    if (!strcmp(s[i].name, name)) return &s[i];
  refuse(r, "section %s is missing", name);
  return NULL;
}

static bool read_images(Reader *r, const Section *s, int n, Program *p) {
  p->images = arena_alloc(r->arena, sizeof *p->images * (size_t)n);
  for (int i = 0; i < n; i++) {
    if (!str_starts(s[i].name, "image:")) continue;
    p->images[p->nimages].arch = arena_printf(r->arena, "%s", s[i].name + strlen("image:"));
    p->images[p->nimages].data = arena_copy(r->arena, s[i].data, s[i].size);
    p->images[p->nimages++].size = s[i].size;
  }
  return true;
}

static Program *read_program(Reader *r) {
  int n = 0;
  if (!read_head(r, &n)) return NULL;
  Section *s = arena_array(r->arena, Section, n);
  if (!read_sections(r, s, n)) return NULL;
  const Section *code = find_section(r, s, n, "program"), *text = find_section(r, s, n, "kernels");
  if (!code || !text || !find_section(r, s, n, "manifest")) return NULL;
  Program *p = arena_new_of(r->arena, Program);
  p->arena = r->arena;
  const char *why;
  if (!mtx_decode(r->arena, code->data, code->size, p, &why)) {
    refuse(r, "%s", why);
    return NULL;
  }
  if (memchr(text->data, 0, text->size)) {
    refuse(r, "the kernel source holds a zero byte");
    return NULL;
  }
  char *source = arena_alloc(r->arena, text->size + 1);
  memcpy(source, text->data, text->size);
  p->kernel_source = source;
  read_images(r, s, n, p);
  why = mtx_check(p, r->arena);
  if (why) refuse(r, "%s", why);
  return why ? NULL : p;
}

Program *mtx_read_mem(Arena *a, const void *data, size_t size, const char **why) {
  Reader r = {.arena = a, .data = data, .size = size};
  Program *p = read_program(&r);
  *why = r.why;
  return p;
}

Program *mtx_read(Arena *a, const char *path, const char **why) {
  size_t size;
  char *data = read_file(a, path, &size);
  if (!data) {
    *why = arena_printf(a, "cannot read %s: %s", path, strerror(errno));
    return NULL;
  }
  Program *p = mtx_read_mem(a, data, size, why);
  if (!p) *why = arena_printf(a, "%s: %s", path, *why);
  return p;
}
