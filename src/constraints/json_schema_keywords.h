// Reads the keywords of single JSON Schemas.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "constraints/grammar.h"
#include "constraints/json_number.h"

namespace redline::json_schema {

using Json = nlohmann::ordered_json;
using Schemas = std::vector<const Json*>;  ///< schemas that must all hold

inline constexpr uint32_t kUnbounded = Grammar::kUnbounded;
inline constexpr size_t kMaxSchemaDepth = 128;  ///< maximum nesting of the schema's text
inline constexpr size_t kMaxDivisor = 5000;     ///< maximum multipleOf, as an integer
inline constexpr size_t kMaxScale = 12;         ///< maximum digits of the fraction of multipleOf

/// Keywords of schemas that stand for parts of other keywords (SchemaDocument::own). No name of a document begins with
/// their first character.
inline constexpr char kOwnMark = '\1';
inline constexpr const char* kAt = "\1at";                  ///< number of another schema, which must also hold
inline constexpr const char* kOwnTypes = "\1types";         ///< the allowed Types
inline constexpr const char* kAbsent = "\1absent";          ///< names of members that an object must not have
inline constexpr const char* kMembers = "\1members";        ///< like `properties`, but without effect on other members
inline constexpr const char* kNotEnum = "\1notEnum";        ///< excluded values
inline constexpr const char* kNotPattern = "\1notPattern";  ///< pattern that strings must not match
inline constexpr const char* kNotMultipleOf = "\1notMultipleOf";  ///< divisor of which numbers must not be multiples

/// A set of types; an integer is a number without a fraction.
enum Types : uint8_t { kNull = 1, kBoolean = 2, kInteger = 4, kFraction = 8, kString = 16, kArray = 32, kObject = 64 };
inline constexpr uint8_t kNumber = kInteger | kFraction, kAllTypes = 127;

uint8_t type_named(std::string_view name);  ///< 0: no such type
std::vector<std::string_view> type_names();
uint8_t type_of(const Json& value);
bool is_integral(const Json& value);
size_t count_chars(std::string_view text);  ///< code points
/// Returns JSON Schema's equality: numbers by value, members in any order.
bool equals(const Json& a, const Json& b);

/// Returns a member; nullptr: there is no such member.
const Json* find(const Json& object, const char* key);
/// Returns a number as Decimal; nullopt: it has more than 40 digits.
std::optional<Decimal> decimal_of(const Json& value);
uint32_t count_of(const Json& value);

/// Returns the types that all schemas allow.
uint8_t types_of(const Schemas& schemas);
/// Narrows `range` to minimum, maximum and their exclusive forms.
void bound(const Json& schema, NumberRange& range);
/// Narrows [least, greatest] to the keywords of a length, for example minItems and maxItems.
void bound_length(const Schemas& schemas, const char* min_key, const char* greatest_key, uint32_t& least,
                  uint32_t& greatest);

/// Returns the schema of item i of an array; nullptr: any value.
const Json* items_at(const Json& schema, size_t i);
Schemas items_at(const Schemas& schemas, size_t i);
/// Returns the number of items with separate schemas at the beginning of the array.
size_t prefix_of(const Json& schema);
/// Returns the schema of items after the prefix, from additionalItems or items; nullptr: any value.
const Json* rest_of(const Json& schema);
/// Returns true if one of the schemas is `false`.
bool has_false(const Schemas& schemas);

}  // namespace redline::json_schema
