/* base.c - arenas, vectors, strings, sizes, hashing, files, bugs. See base.h. */
#include "base.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include "pieces.h"

_Noreturn void bug_at(const char *file, int line, const char *fmt, ...) {
  va_list ap;
  fprintf(stderr, "bug: %s:%d: ", file, line);
  va_start(ap, fmt);
  vfprintf(stderr, fmt, ap);
  va_end(ap);
  fprintf(stderr, "\nThis is a fault of mtc, not of your model. Please report it with the command line.\n");
  exit(EXIT_BUG);
}

static void *checked(void *p) {
  if (!p) {
    fprintf(stderr, "mtc: out of host memory\n");
    exit(EXIT_BUG);
  }
  return p;
}

/* ---- arenas: a list of chunks, bump-allocated ---- */
typedef struct Chunk {
  struct Chunk *next;
  size_t used, size;
  max_align_t data[];
} Chunk;

struct Arena {
  Chunk *head;
  size_t total;
};

enum { CHUNK_BYTES = 64 << 10, ARENA_ALIGN = 16 };

Arena *arena_new(void) { return checked(calloc(1, sizeof(Arena))); }

void arena_free(Arena *a) {
  if (!a) return;
  for (Chunk *c = a->head; c;) {
    Chunk *next = c->next;
    free(c);
    c = next;
  }
  free(a);
}

void arena_adopt(Arena *a, Arena *from) {
  Chunk **end = a->head ? &a->head->next : &a->head; /* the first chunk stays the one that is filled */
  Chunk *after = *end;
  *end = from->head;
  while (*end) end = &(*end)->next;
  *end = after;
  a->total += from->total;
  free(from);
}

void *arena_alloc(Arena *a, size_t bytes) {
  ensure(bytes <= PTRDIFF_MAX / 2, "an allocation of %zu bytes was asked for", bytes);
  bytes = (bytes + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
  Chunk *c = a->head;
  if (!c || c->size - c->used < bytes) {
    size_t grow = a->total / 4; /* few chunks for large arenas */
    size_t size = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
    if (size < grow) size = grow & ~(size_t)(ARENA_ALIGN - 1);
    c = checked(calloc(1, sizeof(Chunk) + size));
    c->size = size;
    c->next = a->head;
    a->head = c;
  }
  void *p = (char *)c->data + c->used;
  c->used += bytes;
  a->total += bytes;
  return p;
}

void *arena_copy(Arena *a, const void *src, size_t bytes) {
  void *p = arena_alloc(a, bytes);
  if (bytes) memcpy(p, src, bytes);
  return p;
}

char *arena_vprintf(Arena *a, const char *fmt, va_list ap) {
  Pieces plain;
  if (pieces_of(&plain, fmt, ap)) {
    char *text = arena_alloc(a, plain.bytes + 1);
    pieces_copy(&plain, text);
    return text;
  }
  char small[256];
  va_list again;
  va_copy(again, ap);
  int n = vsnprintf(small, sizeof small, fmt, ap);
  ensure(n >= 0, "a text cannot be printed");
  char *p = arena_alloc(a, (size_t)n + 1);
  if (n < (int)sizeof small)
    memcpy(p, small, (size_t)n + 1);
  else
    vsnprintf(p, (size_t)n + 1, fmt, again);
  va_end(again);
  return p;
}

char *arena_printf(Arena *a, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  char *p = arena_vprintf(a, fmt, ap);
  va_end(ap);
  return p;
}

size_t arena_used(const Arena *a) { return a->total; }

void vec_grow_raw(Arena *a, void **at, int *cap, int need, size_t item) {
  int64_t to = *cap ? (int64_t)*cap * 2 : 8;
  while (to < need) to *= 2;
  ensure(to <= INT32_MAX, "a vector grew beyond 2^31 items");
  void *p = arena_alloc(a, (size_t)to * item);
  if (*cap) memcpy(p, *at, (size_t)*cap * item);
  *at = p;
  *cap = (int)to;
}

/* ---- strings ---- */
static struct {
  pthread_mutex_t lock;
  Arena *arena;
  const char **slot;
  size_t n, cap;
} interned = {.lock = PTHREAD_MUTEX_INITIALIZER};

static size_t intern_slot(const char *s, size_t n) {
  size_t i = XXH3_64bits(s, n) & (interned.cap - 1);
  while (interned.slot[i] && (strncmp(interned.slot[i], s, n) != 0 || interned.slot[i][n]))
    i = (i + 1) & (interned.cap - 1);
  return i;
}

static void intern_grow(void) {
  const char **old = interned.slot;
  size_t cap = interned.cap;
  interned.cap = cap ? cap * 2 : 1024;
  interned.slot = checked(calloc(interned.cap, sizeof *old));
  for (size_t i = 0; i < cap; i++)
    if (old[i]) interned.slot[intern_slot(old[i], strlen(old[i]))] = old[i];
  free(old);
}

const char *intern_n(const char *s, size_t n) {
  pthread_mutex_lock(&interned.lock);
  if (!interned.arena) interned.arena = arena_new();
  if (2 * (interned.n + 1) > interned.cap) intern_grow();
  size_t zero = strnlen(s, n); /* text ends at the first NUL */
  size_t i = intern_slot(s, zero);
  if (!interned.slot[i]) {
    char *p = arena_alloc(interned.arena, zero + 1);
    memcpy(p, s, zero);
    interned.slot[i] = p;
    interned.n++;
  }
  const char *known = interned.slot[i];
  pthread_mutex_unlock(&interned.lock);
  return known;
}

const char *intern(const char *s) { return intern_n(s, strlen(s)); }

const char *intern_printf(const char *fmt, ...) {
  char small[256];
  Pieces plain;
  va_list ap;
  va_start(ap, fmt);
  const char *out;
  if (pieces_of(&plain, fmt, ap) && plain.bytes < sizeof small) {
    pieces_copy(&plain, small);
    out = intern_n(small, plain.bytes);
  } else {
    Arena *a = arena_new();
    out = intern(arena_vprintf(a, fmt, ap));
    arena_free(a);
  }
  va_end(ap);
  return out;
}

bool str_starts(const char *s, const char *prefix) {
  return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_ends(const char *s, const char *suffix) {
  size_t n = strlen(s), m = strlen(suffix);
  return n >= m && strcmp(s + n - m, suffix) == 0;
}

enum { WORD_MAX = 64 };

/* Edit distance with adjacent transpositions (optimal string alignment). */
static int edit_distance(const char *a, const char *b) {
  int n = (int)strlen(a), m = (int)strlen(b);
  if (n > WORD_MAX || m > WORD_MAX) return WORD_MAX;
  int d[3][WORD_MAX + 1];
  for (int j = 0; j <= m; j++) d[0][j] = j;
  for (int i = 1; i <= n; i++) {
    int *row = d[i % 3], *up = d[(i - 1) % 3], *up2 = d[(i + 1) % 3];
    row[0] = i;
    for (int j = 1; j <= m; j++) {
      int best = up[j - 1] + (a[i - 1] != b[j - 1]);
      if (up[j] + 1 < best) best = up[j] + 1;
      if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && up2[j - 2] + 1 < best)
        best = up2[j - 2] + 1;
      row[j] = best;
    }
  }
  return d[n % 3][m];
}

const char *nearest_word(const char *word, const char *const *cands, int n) {
  const char *best = NULL;
  int limit = (int)strlen(word) / 3;
  int best_d = (limit > 1 ? limit : 1) + 1;
  for (int i = 0; i < n; i++) {
    int dist = edit_distance(word, cands[i]);
    bool extends = strlen(word) >= 3 && (str_starts(word, cands[i]) || str_starts(cands[i], word));
    if (extends && dist > 1) dist = 1;
    if (dist < best_d) best_d = dist, best = cands[i];
  }
  return best;
}

/* Makes the text n bytes longer; returns where they begin, still to be written with a NUL. */
static char *str_extend(Str *s, size_t n) {
  if (s->len + n + 1 > s->cap) {
    size_t cap = s->cap ? s->cap * 2 : 256;
    while (cap < s->len + n + 1) cap *= 2;
    char *p = arena_alloc(s->arena, cap);
    if (s->len) memcpy(p, s->text, s->len);
    s->text = p;
    s->cap = cap;
  }
  s->len += n;
  return s->text + s->len - n;
}

void str_add_n(Str *s, const char *text, size_t n) {
  char *to = str_extend(s, n);
  memcpy(to, text, n);
  to[n] = 0;
}

void str_add(Str *s, const char *text) { str_add_n(s, text, strlen(text)); }

void str_vaddf(Str *s, const char *fmt, va_list ap) {
  Pieces plain;
  if (pieces_of(&plain, fmt, ap)) {
    pieces_copy(&plain, str_extend(s, plain.bytes));
    return;
  }
  char small[512];
  va_list again;
  va_copy(again, ap);
  int n = vsnprintf(small, sizeof small, fmt, ap);
  if (n < (int)sizeof small)
    str_add_n(s, small, (size_t)n);
  else
    str_add(s, arena_vprintf(s->arena, fmt, again));
  va_end(again);
}

void str_addf(Str *s, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  str_vaddf(s, fmt, ap);
  va_end(ap);
}

/* ---- sizes ---- */
static const char SIZE_LETTERS[] = "KMGT";

/* Bytes of one unit spelled `u` ("", "B", "K", "KB", "KiB", ..), or 0. */
static double size_unit(const char *u) {
  if (!*u || !strcmp(u, "B")) return 1;
  const char *letter = strchr(SIZE_LETTERS, *u);
  if (!letter) return 0;
  double base = !strcmp(u + 1, "B") ? 1000 : !u[1] || !strcmp(u + 1, "iB") ? 1024 : 0;
  double unit = base ? 1 : 0;
  for (long i = 0; i <= letter - SIZE_LETTERS; i++) unit *= base;
  return unit;
}

bool parse_bytes(const char *s, int64_t whole, int64_t *bytes) {
  if (!isdigit((unsigned char)*s)) return false;
  char *end;
  errno = 0;
  if (strspn(s, "0123456789") == strlen(s)) { /* exact, also beyond 2^53 */
    *bytes = strtoll(s, &end, 10);
    return errno == 0;
  }
  char number[32]; /* digits and points only: no hexadecimal, no exponent */
  size_t n = strspn(s, "0123456789.");
  if (n >= sizeof number) return false;
  memcpy(number, s, n);
  number[n] = 0;
  double x = strtod(number, &end);
  if (*end) return false;
  end = (char *)s + n;
  double unit = !strcmp(end, "%") ? (double)whole / 100 : size_unit(end);
  if (unit <= 0 || x * unit >= 9.2e18) return false;
  *bytes = (int64_t)(x * unit + 0.5);
  return true;
}

char *format_bytes(Arena *a, int64_t bytes) {
  static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int u = 0;
  double x = (double)bytes;
  while (u + 1 < COUNT_OF(names) && x >= 1024) x /= 1024, u++;
  if (x == (double)(int64_t)x) return arena_printf(a, "%lld %s", (long long)x, names[u]);
  return arena_printf(a, "%.2f %s", x, names[u]);
}

char *format_count(Arena *a, int64_t n) {
  char digits[24];
  int len = snprintf(digits, sizeof digits, "%lld", (long long)(n < 0 ? -n : n));
  Str s = {.arena = a};
  if (n < 0) str_add(&s, "-");
  for (int i = 0; i < len; i++) {
    if (i && (len - i) % 3 == 0) str_add(&s, ",");
    str_add_n(&s, digits + i, 1);
  }
  return s.text;
}

int64_t mul64(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_mul_overflow(a, b, &r))
    bug("%lld x %lld does not fit 64 bits", (long long)a, (long long)b);
  return r;
}

/* ---- hashing ---- */
uint64_t hash_bytes(const void *p, size_t n, uint64_t seed) {
  return XXH3_64bits_withSeed(p, n, seed);
}
uint64_t hash_text(const char *s) { return hash_bytes(s, strlen(s), 0); }

/* ---- files ---- */
char *read_file(Arena *a, const char *path, size_t *size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return NULL;
  struct stat st;
  char *text = NULL;
  if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
    errno = EISDIR;
  } else {
    Str s = {.arena = a}; /* grows, so that pipes work too */
    char block[1 << 16];
    ssize_t n;
    if (S_ISREG(st.st_mode) && st.st_size > 0 && st.st_size < PTRDIFF_MAX / 4) {
      str_extend(&s, (size_t)st.st_size);
      s.len = 0;
    }
    while ((n = read(fd, block, sizeof block)) > 0) str_add_n(&s, block, (size_t)n);
    if (n == 0) {
      str_add(&s, "");
      text = s.text;
      if (size) *size = s.len;
    }
  }
  int saved = errno;
  close(fd);
  errno = saved;
  return text;
}

static bool write_all(int fd, const char *p, size_t n) {
  while (n) {
    ssize_t w = write(fd, p, n);
    if (w < 0 && errno == EINTR) continue;
    if (w < 0) return false;
    p += w;
    n -= (size_t)w;
  }
  return true;
}

static void sync_folder_of(Arena *a, const char *path) {
  const char *slash = strrchr(path, '/');
  const char *dir = slash ? arena_printf(a, "%.*s/", (int)(slash - path), path) : ".";
  int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd); /* some file systems refuse; the rename itself is atomic all the same */
  close(fd);
}

bool write_file_atomic(const char *path, const void *data, size_t size) {
  Arena *a = arena_new();
  char *tmp = arena_printf(a, "%s.tmp-%ld", path, (long)getpid());
  int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  bool ok = fd >= 0 && write_all(fd, data, size) && fsync(fd) == 0;
  int saved = errno;
  if (fd >= 0 && close(fd) != 0 && ok) ok = false, saved = errno;
  if (ok && rename(tmp, path) != 0) ok = false, saved = errno;
  if (ok)
    sync_folder_of(a, path);
  else if (fd >= 0)
    unlink(tmp);
  arena_free(a);
  errno = saved;
  return ok;
}

bool make_dirs(const char *path) {
  Arena *a = arena_new();
  char *p = arena_printf(a, "%s", path);
  bool ok = true;
  for (char *s = p + 1; ok && *p; s++) {
    if (*s != '/' && *s) continue;
    char keep = *s;
    *s = 0;
    ok = mkdir(p, 0755) == 0 || errno == EEXIST;
    *s = keep;
    if (!keep) break;
  }
  arena_free(a);
  struct stat st;
  return ok && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

char *path_beside(Arena *a, const char *base, const char *rel) {
  const char *slash = strrchr(base, '/');
  if (*rel == '/' || !slash) return arena_printf(a, "%s", rel);
  return arena_printf(a, "%.*s%s", (int)(slash - base + 1), base, rel);
}

bool path_exists(const char *path) { return access(path, F_OK) == 0; }

bool path_is_folder(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}
