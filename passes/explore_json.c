/* explore_json.c - what was explored, for programs: one JSON object (docs/schema/explore.json) or
 * CSV, one line a point. Input: an Explore. Bytes, seconds and counts. */
#include <jansson.h>

#include "explore.h"

static void put_int(json_t *o, const char *key, int64_t v) {
  json_object_set_new(o, key, json_integer(v));
}
static void put_real(json_t *o, const char *key, double v) {
  json_object_set_new(o, key, json_real(v));
}
static void put_text(json_t *o, const char *key, const char *v) {
  json_object_set_new(o, key, v ? json_string(v) : json_null());
}
static void put_bool(json_t *o, const char *key, bool v) {
  json_object_set_new(o, key, json_boolean(v));
}

static json_t *point_json(const ExplorePoint *p) {
  json_t *o = json_object();
  put_text(o, "vram", p->vram);
  put_int(o, "vram_bytes", p->vram_bytes);
  put_int(o, "peak_bytes", p->at.peak_bytes);
  put_real(o, "step_seconds", (double)p->at.step_ns * 1e-9);
  put_real(o, "tokens_per_second", p->rate);
  put_int(o, "micro_batch", p->at.micro_batch);
  put_int(o, "chunks", p->at.chunks);
  put_int(o, "host_bytes", p->at.host_bytes);
  put_bool(o, "early_update", p->at.early_update);
  put_bool(o, "recompute", p->at.front > 0);
  return o;
}

static json_t *kinds_json(unsigned kinds) {
  static const char *const name[] = {"floor", "first", "knee", "size", "last", "end", "mark"};
  json_t *list = json_array();
  for (int i = 0; i < COUNT_OF(name); i++)
    if (kinds >> i & 1) json_array_append_new(list, json_string(name[i]));
  return list;
}

static json_t *row_json(const ExploreRow *r) {
  json_t *o = json_object();
  char id[17];
  snprintf(id, sizeof id, "%08x", (unsigned)(r->plan_id >> 32));
  put_text(o, "plan", id);
  put_text(o, "vram", r->vram);
  put_int(o, "vram_bytes", r->vram_bytes);
  put_int(o, "peak_bytes", r->peak_bytes);
  put_real(o, "step_seconds", (double)r->step_ns * 1e-9);
  put_real(o, "tokens_per_second", r->rate);
  put_real(o, "tokens_per_second_with_more", r->more_rate);
  put_int(o, "micro_batch", r->micro_batch);
  put_int(o, "accumulation", r->accumulation);
  put_int(o, "chunks", r->chunks);
  put_int(o, "host_bytes", r->host_bytes);
  put_bool(o, "early_update", r->early_update);
  put_real(o, "recompute_seconds", (double)r->recompute_ns * 1e-9);
  put_text(o, "recompute", r->recompute);
  put_text(o, "remark", r->remark);
  json_object_set_new(o, "kinds", kinds_json(r->kinds));
  return o;
}

static json_t *setting_json(const ExploreSetting *s) {
  json_t *o = json_object(), *points = json_array(), *rows = json_array();
  put_text(o, "label", s->label);
  put_text(o, "flags", *s->flags ? s->flags + 1 : "");
  put_bool(o, "fits", s->rows.n > 0);
  put_int(o, "floor_bytes", s->floor_bytes);
  put_int(o, "weighed", s->all.n);
  for (int i = 0; i < s->points.n; i++) json_array_append_new(points, point_json(&s->points.at[i]));
  for (int i = 0; i < s->rows.n; i++) json_array_append_new(rows, row_json(&s->rows.at[i]));
  json_object_set_new(o, "frontier", points);
  json_object_set_new(o, "rows", rows);
  return o;
}

void explore_json(const Explore *x, FILE *to) {
  json_t *o = json_object(), *list = json_array();
  put_text(o, "schema", "mtc.explore/1");
  put_text(o, "source", x->job->path);
  put_text(o, "model", x->job->model);
  put_text(o, "preset", x->job->preset);
  put_int(o, "params", x->job->params);
  put_text(o, "target", x->target->name);
  put_text(o, "command", x->command);
  put_int(o, "low_bytes", x->low);
  json_object_set_new(o, "high_bytes", x->high == INT64_MAX ? json_null() : json_integer(x->high));
  put_int(o, "more_bytes", x->more_bytes);
  for (int i = 0; i < x->settings.n; i++)
    json_array_append_new(list, setting_json(&x->settings.at[i]));
  json_object_set_new(o, "settings", list);
  json_dumpf(o, to, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
  fputc('\n', to);
  json_decref(o);
}

void explore_csv(const Explore *x, FILE *to) {
  fputs("setting,vram,peak_bytes,step_seconds,tokens_per_second,micro_batch,chunks,recompute,host_bytes\n",
        to);
  for (int i = 0; i < x->settings.n; i++) {
    const ExploreSetting *s = &x->settings.at[i];
    for (int k = 0; k < s->points.n; k++) {
      const ExplorePoint *p = &s->points.at[k];
      fprintf(to, "\"%s\",%s,%lld,%.9g,%.9g,%lld,%d,%d,%lld\n", s->label, p->vram,
              (long long)p->at.peak_bytes, (double)p->at.step_ns * 1e-9, p->rate,
              (long long)p->at.micro_batch, p->at.chunks, p->at.front > 0,
              (long long)p->at.host_bytes);
    }
  }
}
