// Descriptions of JSON objects, from which come both the checks of a request and /openapi.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/json.h"

namespace redline::server {

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

/// Limits hold for values of the types that they concern.
struct FieldRules {
  bool required = false;  ///< the others may be absent or null
  std::optional<double> min, max;
  std::optional<size_t> min_length, max_length, min_items, max_items;  ///< of strings, in characters; of arrays
  std::vector<std::string> choices;                                    ///< of strings
  const Schema* object = nullptr;                                      ///< of objects
  const Field* items = nullptr;                                        ///< of arrays
  std::vector<Json> only = {};  ///< the accepted values; another one is refused because of `why`
  std::string why = {};
  bool is_ignored = false;   ///< accepted without effect, and listed in the header X-Redline-Ignored
  bool is_nullable = false;  ///< of an answer
};

struct Field {
  std::string name;
  unsigned types = kAny;
  std::string description;
  FieldRules rules = {};
};

struct Schema {
  std::string name;  ///< in /openapi.json
  std::vector<Field> fields;
  bool is_open = false;  ///< other fields are fine
  /// Fields that would change the answer, with the end of the sentence "NAME ...". Values that ask for nothing pass.
  std::vector<std::pair<std::string, std::string>> refused = {};
  const Field* list = nullptr;  ///< the value is an array of these; with fields, of an answer: or the object
};

/// Checks a request and removes what is null. A field that the schema does not have is what known_fields() says: read
/// as another one, ignored or refused. Others are ignored as well, unless the name is a typing error of a known one.
/// Fields that have no effect are added to `ignored`, those of the items of an array once ("messages[].name"), and at
/// most 64. The error names the field as a path, as the client wrote it ("messages[2].role").
std::optional<ApiError> validate(const Schema& schema, Json& value, std::vector<std::string>& ignored);

/// Answers have no fields beyond those that are described; requests may.
enum class SchemaUse : uint8_t { kRequest, kAnswer };
/// The JSON Schema (2020-12) of an object. `components` receives the schemas that it refers to.
Json json_schema(const Schema& schema, Json& components, SchemaUse use);
/// {"$ref": ...} to a schema, which is added to `components`, if that has none of its name.
Json schema_reference(const Schema& schema, Json& components, SchemaUse use);

/// `first` with the fields of `second`.
std::vector<Field> joined(std::vector<Field> first, const std::vector<Field>& second);

}  // namespace redline::server
