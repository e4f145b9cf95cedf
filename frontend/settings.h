/* settings.h - the settings of .mt sections: one table (settings.def), one reader, its help and
 * documentation. */
#ifndef MTC_SETTINGS_H
#define MTC_SETTINGS_H
#include "elab.h"

typedef enum {
  SK_NUMBER,
  SK_COUNT,
  SK_FLAG,
  SK_TEXT,
  SK_TEXTS,
  SK_PAIR,
  SK_DTYPE,
  SK_CHOICE,
  SK_DATA,
  SK_NAME,
  SK_CALL,
  SK_BLOCK,
  SK_NAMED,
  SK_MARKED,
  SK_SELECT,
  SK_RULES
} SettingKind;

typedef struct {
  const char *section, *key;
  SettingKind kind;
  const char *preset;
  double lo, hi;
  bool phase;
  const char *doc;
} Setting;

/* The value of one row. */
typedef struct {
  const Setting *row;
  bool given;
  Loc loc;       /* of the value; of the section when not given */
  const Expr *x; /* CALL: the call */
  double num;    /* NUMBER, COUNT, FLAG */
  double pair[2];
  const char *text; /* TEXT, CHOICE, NAME; DTYPE as written; NULL = nothing */
  int dtype;        /* DTYPE: DType, or PREC_AUTO */
  int choice;       /* CHOICE: which word */
  DataRef data;
} SetValue;

/* The values of a section, presets filled in. */
typedef struct {
  const char *section;
  int n;
  SetValue *at;
} Settings;

Settings settings_new(Elab *e, const char *section, Loc loc);
Settings settings_copy(Elab *e, const Settings *s);
SetValue *settings_get(const Settings *s, const char *key); /* bug() when there is no such row */
/* The row of a key, or NULL after E0102. in_phase: rows of phases only. */
const Setting *settings_row(Elab *e, const char *section, const Name *key, bool in_phase);
/* Reads `key = value`, or an entry of a kind that the caller handles itself: then only the key is
 * checked. False after a message. */
bool settings_entry(Elab *e, Settings *s, const Entry *en, bool in_phase);
/* Reports rows that must be given and are not; label: the section as messages call it. */
bool settings_complete(Elab *e, const Settings *s, Loc loc, const char *label);
/* Reads a call such as `adamw(lr = 1e-3)` for the choices "family.NAME"; which: index of the choice
 * in its order in the table. False after a message. */
bool settings_call(Elab *e, const char *family, const Expr *x, Settings *out, int *which);

/* ---- for `mtc help` and docs ---- */
/* Prints a section ("train"), all choices of a family ("schedule") or one choice ("cosine"). False
 * when there is no such thing. */
bool settings_help(const char *section, FILE *to);
void settings_markdown(FILE *to);
const char *settings_nearest(const char *word); /* nearest section, family or choice, or NULL */

#endif
