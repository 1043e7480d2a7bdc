#include "server/schema.h"

#include <algorithm>
#include <cmath>

#include "base/text_distance.h"

namespace redline::server {
namespace {

struct TypeName {
  Type type;
  const char* json;     // in a schema
  const char* message;  // in an error
};
constexpr TypeName kTypeNames[] = {{kString, "string", "a string"}, {kInteger, "integer", "an integer"},
                                   {kNumber, "number", "a number"}, {kBoolean, "boolean", "true or false"},
                                   {kArray, "array", "an array"},   {kObject, "object", "an object"}};

unsigned type_of(const Json& value) {
  if (value.is_string()) return kString;
  if (value.is_boolean()) return kBoolean;
  if (value.is_array()) return kArray;
  if (value.is_object()) return kObject;
  if (value.is_number_integer()) return kInteger | kNumber;
  if (value.is_number()) {
    const double number = value.get<double>();
    return std::trunc(number) == number && std::abs(number) < 9e15 ? kInteger | kNumber : kNumber;
  }
  return 0;
}

std::string names_of(unsigned types) {
  std::string text;
  for (const TypeName& t : kTypeNames)
    if (types & t.type) text += (text.empty() ? "" : " or ") + std::string(t.message);
  return text;
}

std::string child(const std::string& path, const std::string& name) { return path.empty() ? name : path + "." + name; }

std::string number_text(double value) {
  return std::abs(value) < 1e15 && std::trunc(value) == value ? fmt::format("{:.0f}", value)
                                                              : fmt::format("{:g}", value);
}

class Validator {
 public:
  explicit Validator(std::vector<std::string>& ignored) : ignored_(ignored) {}

  std::optional<ApiError> check_list(const Schema& schema, Json& list) {
    for (size_t i = 0; i < list.size(); ++i)
      if (auto error = check(*schema.list, list[i], fmt::format("[{}]", i))) return error;
    return std::nullopt;
  }

  std::optional<ApiError> check_object(const Schema& schema, Json& object, const std::string& path) {
    for (const auto& [name, value] : object.items())
      if (auto error = check_name(schema, name, value, path)) return error;
    for (const Field& field : schema.fields) {
      const auto found = object.find(field.name);
      if (found == object.end() || found->is_null()) {
        if (found != object.end()) object.erase(found);
        if (!field.rules.required) continue;
        const std::string place = child(path, field.name);
        return bad_request(
            place, fmt::format("{} is missing{}{}", place, field.description.empty() ? "" : ": ", field.description),
            "missing_required_parameter");
      }
      if (field.rules.is_ignored) ignore(child(path, field.name));
      if (auto error = check(field, *found, child(path, field.name))) return error;
    }
    return std::nullopt;
  }

 private:
  /// The same field of all items of an array is one: "tools[].strict".
  void ignore(const std::string& path) {
    std::string name;
    for (size_t i = 0; i < path.size(); ++i) {
      name += path[i];
      if (path[i] == '[') i = path.find(']', i) - 1;
    }
    if (std::find(ignored_.begin(), ignored_.end(), name) == ignored_.end()) ignored_.push_back(std::move(name));
  }
  std::optional<ApiError> check_name(const Schema& schema, const std::string& name, const Json& value,
                                     const std::string& path) {
    const auto is_it = [&](const auto& field) { return field.name == name; };
    if (schema.is_open || std::any_of(schema.fields.begin(), schema.fields.end(), is_it)) return std::nullopt;
    const std::string shown = name.substr(0, 64);
    for (const auto& [refused, why] : schema.refused) {
      if (refused != name) continue;
      if (value.is_null()) return std::nullopt;
      return bad_request(child(path, name), fmt::format("{} {}", child(path, name), why), "unsupported_parameter");
    }
    std::vector<std::string_view> known;
    for (const Field& field : schema.fields) known.push_back(field.name);
    return bad_request(child(path, shown),
                       fmt::format("unknown field {}{}", child(path, shown), did_you_mean(shown, known)),
                       "unknown_parameter");
  }

  std::optional<ApiError> check(const Field& field, Json& value, const std::string& path) {
    const FieldRules& r = field.rules;
    const auto wrong = [&](const std::string& what) {
      return bad_request(path, fmt::format("{} {}", path, what), "invalid_value");
    };
    const unsigned types = type_of(value);
    if (field.types != kAny && !(types & field.types))
      return bad_request(path, fmt::format("{} must be {}", path, names_of(field.types)), "invalid_type");
    if (!r.only.empty() && std::find(r.only.begin(), r.only.end(), value) == r.only.end())
      return bad_request(path, fmt::format("{} {}", path, r.why), "unsupported_value");
    if (types & kNumber) {
      const double number = value.get<double>();
      if ((r.min && number < *r.min) || (r.max && number > *r.max))
        return wrong(fmt::format("is {}; it must be {}", number_text(number), range_text(r.min, r.max)));
      if ((types & kInteger) && value.is_number_float()) value = static_cast<int64_t>(number);
    } else if (types & kString) {
      const auto& text = value.get_ref<const std::string&>();
      const auto length =
          static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
      if (r.min_length && length < *r.min_length)
        return wrong(fmt::format("must have at least {} characters", *r.min_length));
      if (r.max_length && length > *r.max_length)
        return wrong(fmt::format("has {} characters; the limit is {}", length, *r.max_length));
      if (!r.choices.empty() && std::find(r.choices.begin(), r.choices.end(), text) == r.choices.end())
        return wrong(fmt::format("is \"{}\"; it must be one of {}", text.substr(0, 64), fmt::join(r.choices, ", ")));
    } else if (types & kArray) {
      if (r.min_items && value.size() < *r.min_items)
        return wrong(fmt::format("must have at least {} items", *r.min_items));
      if (r.max_items && value.size() > *r.max_items)
        return wrong(fmt::format("has {} items; the limit is {}", value.size(), *r.max_items));
      if (r.items)
        for (size_t i = 0; i < value.size(); ++i)
          if (auto error = check(*r.items, value[i], fmt::format("{}[{}]", path, i))) return error;
    } else if (types & kObject) {
      if (r.object) return check_object(*r.object, value, path);
    }
    return std::nullopt;
  }

  static std::string range_text(const std::optional<double>& min, const std::optional<double>& max) {
    if (min && max) return fmt::format("from {} to {}", number_text(*min), number_text(*max));
    return min ? fmt::format("at least {}", number_text(*min)) : fmt::format("at most {}", number_text(*max));
  }

  std::vector<std::string>& ignored_;
};

Json object_schema(const Schema& schema, Json& components);

Json field_schema(const Field& field, Json& components, bool is_nullable) {
  const FieldRules& r = field.rules;
  if (!r.choices.empty() && (field.types & ~kString) != 0) {  // the choices are those of strings
    Field text = field, other = field;
    text.types = kString;
    other.types &= ~static_cast<unsigned>(kString);
    other.rules.choices.clear();
    text.description.clear();
    other.description.clear();
    return {{"anyOf", {field_schema(text, components, is_nullable), field_schema(other, components, false)}},
            {"description", field.description}};
  }
  if (field.types == kObject && r.object && !is_nullable && r.only.empty()) {
    Json reference = schema_reference(*r.object, components);
    if (!field.description.empty()) reference["description"] = field.description;
    return reference;
  }
  Json json = Json::object();
  if (field.types != kAny) {
    Json types = Json::array();
    for (const TypeName& t : kTypeNames)
      if (field.types & t.type) types.push_back(t.json);
    if (is_nullable) types.push_back("null");
    json["type"] = types.size() == 1 ? types[0] : types;
  }
  if (!field.description.empty()) json["description"] = field.description;
  if (r.is_ignored) json["description"] = field.description + " (accepted, and ignored)";
  if (r.min) json["minimum"] = *r.min;
  if (r.max) json["maximum"] = *r.max;
  if (r.min_length) json["minLength"] = *r.min_length;
  if (r.max_length) json["maxLength"] = *r.max_length;
  if (r.min_items) json["minItems"] = *r.min_items;
  if (r.max_items) json["maxItems"] = *r.max_items;
  Json values = Json::array();
  for (const std::string& choice : r.choices) values.push_back(choice);
  for (const Json& value : r.only) values.push_back(value);
  if (!values.empty()) {
    if (is_nullable) values.push_back(nullptr);
    json["enum"] = std::move(values);
  }
  if (r.items) json["items"] = field_schema(*r.items, components, false);
  if (r.object) {
    const Json object = object_schema(*r.object, components);
    for (const auto& [key, value] : object.items())
      if (key != "type") json[key] = value;
  }
  return json;
}

Json object_schema(const Schema& schema, Json& components) {
  if (schema.list) return {{"type", "array"}, {"items", field_schema(*schema.list, components, false)}};
  Json properties = Json::object(), required = Json::array();
  for (const Field& field : schema.fields) {
    properties[field.name] = field_schema(field, components, !field.rules.required || field.rules.is_nullable);
    if (field.rules.required) required.push_back(field.name);
  }
  Json json = {{"type", "object"}, {"properties", std::move(properties)}};
  if (!required.empty()) json["required"] = std::move(required);
  if (!schema.is_open) json["additionalProperties"] = false;
  return json;
}

}  // namespace

std::optional<ApiError> validate(const Schema& schema, Json& value, std::vector<std::string>& ignored) {
  if (schema.list) {
    if (!value.is_array()) return bad_request("", "the body must be a JSON array", "invalid_type");
    return Validator(ignored).check_list(schema, value);
  }
  if (!value.is_object()) return bad_request("", "the body must be a JSON object", "invalid_type");
  return Validator(ignored).check_object(schema, value, "");
}

Json json_schema(const Schema& schema, Json& components) { return object_schema(schema, components); }

Json schema_reference(const Schema& schema, Json& components) {
  if (!components.contains(schema.name)) {
    components[schema.name] = Json::object();  // ends the recursion of schemas that refer to themselves
    components[schema.name] = object_schema(schema, components);
  }
  return {{"$ref", "#/components/schemas/" + schema.name}};
}

std::vector<Field> joined(std::vector<Field> first, const std::vector<Field>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

}  // namespace redline::server
