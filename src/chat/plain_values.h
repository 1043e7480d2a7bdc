// Values of parameters in formats that write them without quotes: the one rule by which the grammar of demanded calls
// writes them and the reader reads them.
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
  kNumberBit = 8,  ///< numbers that are no integers
  kStringBit = 16,
  kArrayBit = 32,
  kObjectBit = 64,
  kAllTypeBits = 127,
};
JsonTypeBit type_bit_of(const nlohmann::ordered_json& value);

/// What the schema of a parameter says about its values. A text is the JSON value that it spells if that has one of the
/// types in `types` and is no string, else it is a string as it stands.
struct PlainValueRule {
  uint8_t types = kAllTypeBits;
  bool is_known = false;           ///< false: the schema says nothing about the type
  bool has_any_text = false;       ///< any string is a value, as far as types go
  std::vector<std::string> texts;  ///< else the strings that are values
  /// The schema of the values that are no strings; not set: there are none.
  std::optional<nlohmann::ordered_json> others;
};
/// `parameters`: the schema that `schema` is a part of, for its references.
PlainValueRule plain_value_rule(const nlohmann::ordered_json& parameters, const nlohmann::ordered_json& schema);

/// The value that a text stands for, as JSON.
std::string plain_value_as_json(const PlainValueRule& rule, std::string_view text);

}  // namespace redline
