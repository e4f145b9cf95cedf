/* schema.h - a validator for the part of JSON Schema that docs/schema uses. Include after cmocka.h
 * and jansson.h. */
#ifndef MTC_TEST_SCHEMA_H
#define MTC_TEST_SCHEMA_H
#include <stdbool.h>
#include <string.h>

static bool is_type(const json_t *v, const char *type) {
  if (!strcmp(type, "object")) return json_is_object(v);
  if (!strcmp(type, "array")) return json_is_array(v);
  if (!strcmp(type, "string")) return json_is_string(v);
  if (!strcmp(type, "integer")) return json_is_integer(v);
  if (!strcmp(type, "number")) return json_is_number(v);
  if (!strcmp(type, "boolean")) return json_is_boolean(v);
  return !strcmp(type, "null") && json_is_null(v);
}

static void validate(const json_t *schema, const json_t *v, const char *where) {
  const json_t *type = json_object_get(schema, "type"), *words = json_object_get(schema, "enum");
  bool ok = json_is_string(type) && is_type(v, json_string_value(type));
  for (size_t i = 0; i < json_array_size(type); i++)
    ok |= is_type(v, json_string_value(json_array_get(type, i)));
  if (!ok) fail_msg("%s has another type than its schema", where);
  bool known = !words;
  for (size_t i = 0; i < json_array_size(words); i++)
    known |= json_equal(json_array_get(words, i), v);
  if (!known) fail_msg("%s is none of the words of its schema", where);
  const char *key;
  json_t *item;
  json_object_foreach((json_t *)v, key, item) {
    const json_t *sub = json_object_get(json_object_get(schema, "properties"), key);
    if (!sub) fail_msg("%s.%s is not in the schema", where, key);
    validate(sub, item, key);
  }
  const json_t *required = json_object_get(schema, "required");
  for (size_t i = 0; i < json_array_size(required); i++)
    if (!json_object_get(v, json_string_value(json_array_get(required, i))))
      fail_msg("%s.%s is missing", where, json_string_value(json_array_get(required, i)));
  for (size_t i = 0; i < json_array_size(v); i++)
    validate(json_object_get(schema, "items"), json_array_get(v, i), where);
}
#endif
