#include "chat/plain_values.h"

#include <algorithm>

#include "chat/tool_call_parts.h"

namespace redline {
namespace {

using PlainJson = nlohmann::ordered_json;
constexpr int kMaxSchemaDepth = 32;

uint8_t bits_of_name(std::string_view name) {
  if (name == "null") return kNullBit;
  if (name == "boolean") return kBooleanBit;
  if (name == "integer") return kIntegerBit;
  if (name == "number") return kIntegerBit | kNumberBit;
  if (name == "string") return kStringBit;
  if (name == "array") return kArrayBit;
  return name == "object" ? kObjectBit : 0;
}

PlainJson names_of_bits(uint8_t bits) {
  PlainJson names = PlainJson::array();
  for (const char* name : {"null", "boolean", "string", "array", "object"})
    if (bits & bits_of_name(name)) names.push_back(name);
  if (bits & kNumberBit) names.push_back("number");
  else if (bits & kIntegerBit) names.push_back("integer");
  return names;
}

PlainValueRule nothing_known() {
  PlainValueRule rule;
  rule.has_any_text = true;
  rule.others = PlainJson{{"type", names_of_bits(kAllTypeBits & ~kStringBit)}};
  return rule;
}

class RuleReader {
 public:
  explicit RuleReader(const PlainJson& root) : root_(root) {}

  PlainValueRule read(const PlainJson& schema, int depth) {
    if (!schema.is_object() || depth > kMaxSchemaDepth) return nothing_known();
    if (const PlainJson* target = referenced(schema)) return read(*target, depth + 1);
    if (schema.contains("const")) return of_values(PlainJson::array({schema["const"]}));
    if (schema.contains("enum") && schema["enum"].is_array()) return of_values(schema["enum"]);
    for (const char* key : {"anyOf", "oneOf"})
      if (schema.contains(key) && schema[key].is_array() && !schema[key].empty())
        return of_alternatives(schema, key, depth);
    if (schema.contains("allOf") && schema["allOf"].is_array() && !schema.contains("type"))
      return of_all(schema, depth);
    return of_type(schema);
  }

 private:
  const PlainJson* referenced(const PlainJson& schema) const {
    const auto ref = schema.find("$ref");
    if (ref == schema.end() || !ref->is_string()) return nullptr;
    const std::string& text = ref->get_ref<const std::string&>();
    if (!text.starts_with('#')) return nullptr;
    try {
      const PlainJson::json_pointer pointer(text.substr(1));
      return root_.contains(pointer) ? &root_.at(pointer) : nullptr;
    } catch (const PlainJson::exception&) {  // the compiler of the grammar reports an invalid pointer
      return nullptr;
    }
  }

  static PlainValueRule of_values(const PlainJson& values) {
    PlainValueRule rule;
    rule.is_known = true;
    rule.types = 0;
    PlainJson others = PlainJson::array();
    for (const PlainJson& value : values) {
      rule.types |= type_bit_of(value);
      if (value.is_string()) rule.texts.push_back(value.get<std::string>());
      else others.push_back(value);
    }
    if (!others.empty()) rule.others = PlainJson{{"enum", std::move(others)}};
    return rule;
  }

  PlainValueRule of_alternatives(const PlainJson& schema, const char* key, int depth) {
    PlainValueRule rule;
    rule.types = 0;
    rule.is_known = true;
    PlainJson others = PlainJson::array();
    for (const PlainJson& alternative : schema[key]) {
      PlainValueRule one = read(alternative, depth + 1);
      rule.types |= one.types;
      rule.is_known = rule.is_known && one.is_known;
      rule.has_any_text = rule.has_any_text || one.has_any_text;
      rule.texts.insert(rule.texts.end(), one.texts.begin(), one.texts.end());
      if (one.others) others.push_back(std::move(*one.others));
    }
    if (schema.contains("type")) {
      const uint8_t own = bits_of(schema["type"]);
      rule.types &= own;
      rule.is_known = true;
      if (!(own & kStringBit)) {
        rule.has_any_text = false;
        rule.texts.clear();
      }
    }
    if (others.size() == 1) rule.others = others[0];
    else if (!others.empty()) rule.others = PlainJson{{key, std::move(others)}};
    return rule;
  }

  PlainValueRule of_all(const PlainJson& schema, int depth) {
    PlainValueRule rule = nothing_known();
    PlainJson others = PlainJson::array();
    for (const PlainJson& part : schema["allOf"]) {
      PlainValueRule one = read(part, depth + 1);
      rule.types &= one.types;
      rule.is_known = rule.is_known || one.is_known;
      if (!one.has_any_text && rule.has_any_text) {
        rule.has_any_text = false;
        rule.texts = std::move(one.texts);
      } else if (!one.has_any_text) {
        std::erase_if(rule.texts, [&](const std::string& text) {
          return std::find(one.texts.begin(), one.texts.end(), text) == one.texts.end();
        });
      }
      if (one.is_known && one.others) others.push_back(std::move(*one.others));
    }
    if (rule.is_known && !(rule.types & ~kStringBit)) rule.others.reset();
    else if (others.size() == 1) rule.others = others[0];
    else if (!others.empty()) rule.others = PlainJson{{"allOf", std::move(others)}};
    return rule;
  }

  static uint8_t bits_of(const PlainJson& type) {
    uint8_t bits = 0;
    if (type.is_string()) bits = bits_of_name(type.get_ref<const std::string&>());
    else if (type.is_array())
      for (const PlainJson& name : type)
        if (name.is_string()) bits |= bits_of_name(name.get_ref<const std::string&>());
    return bits;
  }

  static PlainValueRule of_type(const PlainJson& schema) {
    PlainValueRule rule = nothing_known();
    if (!schema.contains("type")) return rule;
    rule.types = bits_of(schema["type"]);
    if (schema.value("nullable", PlainJson()) == true) rule.types |= kNullBit;
    rule.is_known = true;
    rule.has_any_text = rule.types & kStringBit;
    const uint8_t others = rule.types & ~kStringBit;
    if (others == 0) {
      rule.others.reset();
    } else {
      rule.others = schema;
      const PlainJson names = names_of_bits(others);
      (*rule.others)["type"] = names.size() == 1 ? names[0] : names;
    }
    return rule;
  }

  const PlainJson& root_;
};

}  // namespace

JsonTypeBit type_bit_of(const PlainJson& value) {
  switch (value.type()) {
    case PlainJson::value_t::null: return kNullBit;
    case PlainJson::value_t::boolean: return kBooleanBit;
    case PlainJson::value_t::number_integer:
    case PlainJson::value_t::number_unsigned: return kIntegerBit;
    case PlainJson::value_t::number_float: {
      const double number = value.get<double>();
      return number == static_cast<double>(static_cast<int64_t>(std::clamp(number, -9e15, 9e15))) ? kIntegerBit
                                                                                                  : kNumberBit;
    }
    case PlainJson::value_t::array: return kArrayBit;
    case PlainJson::value_t::object: return kObjectBit;
    default: return kStringBit;
  }
}

PlainValueRule plain_value_rule(const PlainJson& parameters, const PlainJson& schema) {
  return RuleReader(parameters).read(schema, 0);
}

std::string plain_value_as_json(const PlainValueRule& rule, std::string_view text) {
  using namespace tool_calls;
  if (!(rule.types & ~kStringBit)) return json_text(text);
  const std::string_view bare = trimmed(text);
  std::string json;
  // Some templates print constants, lists and objects as Python does.
  if (bare == "True") json = "true";
  else if (bare == "False") json = "false";
  else if (bare == "None") json = "null";
  else if (!bare.empty() && is_json(bare)) json = bare;
  else if (bare.starts_with('{') || bare.starts_with('[')) json = literal_as_json(bare).value_or("");
  if (json.empty()) return json_text(text);
  const JsonTypeBit type = type_bit_of(PlainJson::parse(json));
  if (type == kStringBit) return rule.is_known && !(rule.types & kStringBit) ? json : json_text(text);
  const bool fits = rule.types & type || !(rule.types & kStringBit);
  return fits ? json : json_text(text);
}

}  // namespace redline
