// Values of parameters in formats that write them without quotes. The grammar of required calls and the parser of calls
// use the same rule.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace redline {

/// The kinds of JSON values, as bits.
enum JsonTypeBit : uint8_t {
  kNullBit = 1,
  kBooleanBit = 2,
  kIntegerBit = 4,
  kNumberBit = 8,  ///< numbers that are not integers
  kStringBit = 16,
  kArrayBit = 32,
  kObjectBit = 64,
  kAllTypeBits = 127,
};
JsonTypeBit type_bit_of(const nlohmann::ordered_json& value);

/// Rule for the values of a parameter, from its schema. A text stands for the JSON value that it spells if that is not
/// a string and has one of the types in `types`; otherwise it is a string.
struct PlainValueRule {
  uint8_t types = kAllTypeBits;
  bool is_known = false;           ///< false: the schema does not restrict the type
  bool has_any_text = false;       ///< any string is a value, according to the types
  std::vector<std::string> texts;  ///< if not has_any_text, the strings that are values
  /// The schema of the values that are not strings; unset: there are no such values.
  std::optional<nlohmann::ordered_json> others;
};
/// Returns the rule of a parameter. `parameters`: the schema that contains `schema`, for references.
PlainValueRule plain_value_rule(const nlohmann::ordered_json& parameters, const nlohmann::ordered_json& schema);

/// Returns the value that a text stands for, as JSON.
std::string plain_value_as_json(const PlainValueRule& rule, std::string_view text);

}  // namespace redline
