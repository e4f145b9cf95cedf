/* glob.c - selectors: does "h[*].attn.{q,v}" or "op:softmax" mean this path?
 *
 * A path is written with dots, indices included: h.3.attn.q.w. In a selector `*` is any run of
 * characters, dots included; `[*]` any index and `[3]` or `[0..3]` these indices of a layer array;
 * `{a,b}` alternatives; a comma outside braces separates whole selectors; `op:NAME` tests the tag
 * of the composition instead of the path. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "frontend/job.h"

/* "[*]", "[3]" or "[0..4]" at p against ".3" at s: bytes of s used, 0 = no match; *past is set
 * behind the "]". */
static size_t match_index(const char *p, const char *s, const char **past) {
  const char *end = strchr(p, ']');
  if (!end || s[0] != '.' || !isdigit((unsigned char)s[1])) return 0;
  char *rest;
  long index = strtol(s + 1, &rest, 10);
  if (*rest != '.' && *rest != 0) return 0;
  *past = end + 1;
  if (p[1] == '*' && end == p + 2) return (size_t)(rest - s);
  char *after;
  long from = strtol(p + 1, &after, 10), to = from + 1;
  if (after == p + 1) return 0;
  if (str_starts(after, "..")) {
    const char *number = after + 2;
    to = strtol(number, &after, 10);
    if (after == number) return 0;
  }
  return after == end && index >= from && index < to ? (size_t)(rest - s) : 0;
}

/* A selector without braces. Only the last `*` ever needs to give way: what stands between two
 * stars matches best where it matches first. */
static bool match_flat(const char *p, const char *s) {
  const char *star = NULL, *retry = NULL;
  for (;;) {
    const char *past = NULL;
    size_t n;
    if (*p == '*') {
      star = ++p;
      retry = s;
      continue;
    }
    if (*p == 0 && *s == 0) return true;
    if (*p == '[' && (n = match_index(p, s, &past)) > 0) {
      p = past;
      s += n;
    } else if (*p != 0 && *p != '[' && *p == *s) {
      p++, s++;
    } else if (star && *retry) {
      p = star;
      s = ++retry;
    } else {
      return false;
    }
  }
}

/* The end of an alternative: the `,` or `}` at this level of braces, or the NUL. */
static const char *alternative_end(const char *p) {
  int depth = 0;
  for (; *p; p++) {
    if (*p == '{') depth++;
    if (*p == '}' && depth-- == 0) return p;
    if (*p == ',' && depth == 0) return p;
  }
  return p;
}

/* Tries each alternative of the first braces in place of them. */
static bool match_braces(const char *pattern, const char *s) {
  const char *open = strchr(pattern, '{');
  if (!open) return match_flat(pattern, s);
  const char *close = open + 1;
  for (close = alternative_end(close); *close == ','; close = alternative_end(close + 1)) {
  }
  if (*close != '}') return false;
  char *one = malloc(strlen(pattern) + 1);
  ensure(one, "out of memory");
  bool found = false;
  size_t head = (size_t)(open - pattern);
  for (const char *a = open + 1; !found; a++) {
    const char *end = alternative_end(a);
    memcpy(one, pattern, head);
    memcpy(one + head, a, (size_t)(end - a));
    strcpy(one + head + (end - a), close + 1);
    found = match_braces(one, s);
    a = end;
    if (end == close) break;
  }
  free(one);
  return found;
}

bool selector_match(const char *pattern, const char *path, const char *tag) {
  char *one = malloc(strlen(pattern) + 1);
  ensure(one, "out of memory");
  bool found = false;
  for (const char *p = pattern; !found;) {
    while (*p == ' ') p++;
    const char *end = alternative_end(p);
    size_t n = (size_t)(end - p);
    while (n > 0 && p[n - 1] == ' ') n--;
    memcpy(one, p, n);
    one[n] = 0;
    bool op = str_starts(one, "op:");
    const char *subject = op ? tag : path;
    found = subject && n > 0 && match_braces(op ? one + 3 : one, subject);
    if (!*end) break;
    p = end + 1;
  }
  free(one);
  return found;
}

bool selector_covers(const char *pattern, const char *path, const char *tag) {
  if (selector_match(pattern, path, tag)) return true;
  char *part = malloc(strlen(path) + 1);
  ensure(part, "out of memory");
  strcpy(part, path);
  bool found = false;
  for (char *dot; !found && (dot = strrchr(part, '.'));) {
    *dot = 0;
    found = selector_match(pattern, part, NULL);
  }
  free(part);
  return found;
}
