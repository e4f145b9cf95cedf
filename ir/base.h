/* base.h - what every part of mtc stands on: arenas, vectors, interned strings, sizes, files, bugs.
 *
 * Memory of the compiler is owned by arenas and released with them; nothing is freed one by one.
 * The runtime, which lives as long as a training run, pairs each acquire with a release instead.
 * Allocation failure ends the process with exit code 70 and a sentence: a compiler that cannot get a few
 * megabytes has nothing useful left to do. */
#ifndef MTC_BASE_H
#define MTC_BASE_H
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Exit codes, as documented in docs/cli.md. */
enum {
  EXIT_OK = 0,
  EXIT_SOURCE = 1,      /* errors in a .mt file */
  EXIT_USAGE = 2,       /* command line */
  EXIT_INFEASIBLE = 3,  /* no plan fits the budget */
  EXIT_DEVICE = 4,      /* device, driver, compiler: the environment */
  EXIT_PLAN_BROKEN = 5, /* memory at run time broke the plan: always a bug of mtc */
  EXIT_IO = 6,          /* data, weights or .mtx */
  EXIT_STOPPED = 7,     /* training stopped: non-finite steps */
  EXIT_BUG = 70,
  EXIT_INTERRUPTED = 130
};

/* Prints "bug: FILE:LINE: message" and exits with EXIT_BUG. For broken invariants only. */
_Noreturn void bug_at(const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
#define bug(...) bug_at(__FILE__, __LINE__, __VA_ARGS__)
/* Checks an invariant in every build; the sentence says what was expected. */
#define ensure(cond, ...) ((cond) ? (void)0 : bug(__VA_ARGS__))

#define COUNT_OF(a) ((int)(sizeof(a) / sizeof *(a)))

/* ---- arenas ---- */
typedef struct Arena Arena;
Arena *arena_new(void);
void arena_free(Arena *a);                     /* releases all that came from it; NULL is fine */
void *arena_alloc(Arena *a, size_t bytes);     /* zeroed, 16-byte aligned, never NULL */
void *arena_copy(Arena *a, const void *src, size_t bytes);
char *arena_printf(Arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
char *arena_vprintf(Arena *a, const char *fmt, va_list ap);
size_t arena_used(const Arena *a);
/* What came from `from` lives as long as a from now on; `from` is no more. */
void arena_adopt(Arena *a, Arena *from);
#define arena_new_of(a, type) ((type *)arena_alloc((a), sizeof(type)))
#define arena_array(a, type, n) ((type *)arena_alloc((a), sizeof(type) * (size_t)(n)))

/* ---- vectors ----  VEC(int) v = {0}; vec_push(arena, &v, 3); v.at[i]; v.n.
 * Storage comes from the arena given; a vector never shrinks. */
#define VEC(type)                                                                                  \
  struct {                                                                                         \
    type *at;                                                                                      \
    int n, cap;                                                                                    \
  }
void vec_grow_raw(Arena *a, void **at, int *cap, int need, size_t item);
#define vec_reserve(a, v, need)                                                                    \
  ((need) > (v)->cap ? vec_grow_raw((a), (void **)&(v)->at, &(v)->cap, (need), sizeof *(v)->at)    \
                     : (void)0)
#define vec_push(a, v, x) (vec_reserve((a), (v), (v)->n + 1), (void)((v)->at[(v)->n++] = (x)))
#define vec_last(v) ((v)->at[(v)->n - 1])

/* ---- strings ---- */
/* Interned strings live forever; equal text gives the equal pointer, so == compares them. Any thread may ask for one. */
const char *intern(const char *s);
const char *intern_n(const char *s, size_t n);
const char *intern_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
bool str_starts(const char *s, const char *prefix);
bool str_ends(const char *s, const char *suffix);
/* The candidate nearest to `word` by edit distance (transpositions count one), or NULL when none is
 * near enough to suggest: distance <= max(1, len/3). */
const char *nearest_word(const char *word, const char *const *cands, int n);

/* A growing text buffer; text is always NUL-terminated once anything was added. */
typedef struct {
  Arena *arena;
  char *text;
  size_t len, cap;
} Str;
void str_add(Str *s, const char *text);
void str_add_n(Str *s, const char *text, size_t n);
void str_addf(Str *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void str_vaddf(Str *s, const char *fmt, va_list ap);

/* ---- sizes ---- */
/* Parses "24G", "1.5GiB", "500MB", "4096" (bytes): K M G T and KiB.. are powers of 1024, KB MB GB TB of
 * 1000. "NN%" is a share of `whole` (an error when whole is 0). False when malformed, negative, or over
 * INT64_MAX. */
bool parse_bytes(const char *s, int64_t whole, int64_t *bytes);
/* "24 GiB", "1.50 GiB", "452 MiB", "512 B" - never "GB". Exact values print without decimals. */
char *format_bytes(Arena *a, int64_t bytes);
/* 124439808 -> "124,439,808". */
char *format_count(Arena *a, int64_t n);
static inline int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }
static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
/* a * b, or bug() on overflow: sizes are int64 everywhere. */
int64_t mul64(int64_t a, int64_t b);

/* ---- hashing: XXH3, stable across machines ---- */
uint64_t hash_bytes(const void *p, size_t n, uint64_t seed);
uint64_t hash_text(const char *s);

/* ---- files ---- */
/* Whole file into the arena, NUL-terminated. NULL with errno set on failure. */
char *read_file(Arena *a, const char *path, size_t *size);
/* Writes to PATH.tmp-PID, fsyncs, renames over PATH, fsyncs the folder. False with errno set, and nothing
 * half-written, on failure. */
bool write_file_atomic(const char *path, const void *data, size_t size);
bool make_dirs(const char *path); /* mkdir -p */
/* `rel` against the folder of `base` (a file); absolute paths stay. */
char *path_beside(Arena *a, const char *base, const char *rel);
bool path_exists(const char *path);
bool path_is_folder(const char *path);

#endif
