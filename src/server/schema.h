// Descriptions of JSON objects. Both the checks of requests and /openapi.json are derived from them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/json.h"

namespace redline::server {

/// JSON types, as flags.
enum Type : unsigned {
  kAny = 0,
  kString = 1,
  kInteger = 2,
  kNumber = 4,
  kBoolean = 8,
  kArray = 16,
  kObject = 32,
};

struct Schema;
struct Field;

/// Rules for a field. A limit applies to values of the types that have it.
struct FieldRules {
  bool required = false;  ///< if false, the field may be absent or null
  std::optional<double> min, max;
  /// Limits of strings in characters and of arrays in items.
  std::optional<size_t> min_length, max_length, min_items, max_items;
  std::vector<std::string> choices;  ///< allowed strings
  const Schema* object = nullptr;    ///< schema of an object
  const Field* items = nullptr;      ///< field that describes the items of an array
  /// The accepted values; any other is refused with the reason `why`.
  std::vector<Json> only = {};
  std::string why = {};
  bool is_ignored = false;   ///< accepted without effect, and listed in the header X-Redline-Ignored
  bool is_nullable = false;  ///< an answer may have null here
};

/// A member of a JSON object.
struct Field {
  std::string name;
  unsigned types = kAny;
  std::string description;
  FieldRules rules = {};
};

/// A JSON object.
struct Schema {
  std::string name;  ///< name in /openapi.json
  std::vector<Field> fields;
  bool is_open = false;  ///< unknown fields are accepted
  /// Fields that would change the answer, each with the end of the sentence "NAME ...". Values without effect are
  /// accepted.
  std::vector<std::pair<std::string, std::string>> refused = {};
  /// If set, the value is an array of these. With `fields`, an answer is such an array or the object.
  const Field* list = nullptr;
};

/// Checks a request and removes null members. Fields that the schema does not have are handled as known_fields() says:
/// read as another field, ignored or refused. Unknown fields are ignored as well, unless the name is a misspelling of a
/// known one. Fields without effect are added to `ignored`, at most 64; those of array items once ("messages[].name").
/// The error names the field as a path, as the client wrote it ("messages[2].role").
std::optional<ApiError> validate(const Schema& schema, Json& value, std::vector<std::string>& ignored);

/// Use of a schema. Answers have only the described fields; requests may have others.
enum class SchemaUse : uint8_t { kRequest, kAnswer };
/// Returns the JSON Schema (2020-12) of an object. `components` receives the schemas that it refers to.
Json json_schema(const Schema& schema, Json& components, SchemaUse use);
/// Returns {"$ref": ...} to a schema, and adds it to `components` if they have none of its name.
Json schema_reference(const Schema& schema, Json& components, SchemaUse use);

/// Returns the fields of `first`, then those of `second`.
std::vector<Field> joined(std::vector<Field> first, const std::vector<Field>& second);

}  // namespace redline::server
