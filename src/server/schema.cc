#include "server/schema.h"

#include <algorithm>
#include <cmath>

#include "server/known_fields.h"

namespace redline::server {
namespace {

struct TypeName {
  Type type;
  const char* json;     // name in a JSON Schema
  const char* message;  // name in an error message
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

/// Returns the path of a member. The name is cut, because the client may have made it up and errors show it.
std::string child(const std::string& path, const std::string& name) {
  const std::string shown = name.size() > 64 ? name.substr(0, 64) : name;
  return path.empty() ? shown : path + "." + shown;
}

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
    if (!schema.is_open)
      for (auto& [name, value] : take_others(schema, object))
        if (auto error = read_other(schema, object, name, value, child(path, name))) return error;
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
  using Member = std::pair<std::string, Json>;

  static const Field* find_field(const Schema& schema, std::string_view name) {
    const auto found = std::find_if(schema.fields.begin(), schema.fields.end(),
                                    [&](const Field& field) { return field.name == name; });
    return found == schema.fields.end() ? nullptr : &*found;
  }

  /// Removes the members that the schema does not have from `object` and returns them, without nulls.
  static std::vector<Member> take_others(const Schema& schema, Json& object) {
    std::vector<Member> others;
    auto& members = object.get_ref<Json::object_t&>();
    const auto is_other = [&](const auto& member) { return find_field(schema, member.first) == nullptr; };
    if (std::none_of(members.begin(), members.end(), is_other)) return others;
    Json::object_t kept;
    for (auto& member : members) {
      if (!is_other(member)) kept.emplace_back(member.first, std::move(member.second));
      else if (!member.second.is_null()) others.emplace_back(member.first, std::move(member.second));
    }
    members = std::move(kept);
    return others;
  }

  /// Returns one name for a field of all items of an array: "tools[].strict".
  static std::string header_name(const std::string& path) {
    std::string name;
    for (size_t i = 0; i < path.size() && name.size() < kMaxHeaderName; ++i) {
      name += path[i] > ' ' && path[i] < 127 && path[i] != ',' ? path[i] : '?';
      if (path[i] == '[')
        if (const size_t end = path.find(']', i); end != std::string::npos) i = end - 1;
    }
    return name;
  }
  bool is_listed(const std::string& name) const {
    return std::find(ignored_.begin(), ignored_.end(), name) != ignored_.end();
  }
  void ignore(const std::string& path) {
    std::string name = header_name(path);
    if (is_listed(name)) return;
    if (ignored_.size() < kMaxIgnored) ignored_.push_back(std::move(name));
    else if (ignored_.size() == kMaxIgnored) ignored_.emplace_back("...");
  }

  /// Handles a member that the schema does not have, according to the table of known fields.
  std::optional<ApiError> read_other(const Schema& schema, Json& object, const std::string& name, Json& value,
                                     const std::string& path) {
    for (const auto& [refused, why] : schema.refused) {
      if (refused != name) continue;
      if (asks_for_nothing(value)) return std::nullopt;
      return bad_request(path, fmt::format("{} {}", path, why), "unsupported_parameter");
    }
    const KnownField* row = find_known_field(schema.name, name);
    if (!row) return read_unknown(schema, name, path);
    switch (row->use) {
      case FieldUse::kMapped: return read_mapped(schema, object, *row, value, path);
      case FieldUse::kMembers: return read_members(schema, object, value, path);
      case FieldUse::kRefused:
        if (asks_for_nothing(value)) return std::nullopt;
        return bad_request(path, fmt::format("{} {}", path, row->note), "unsupported_parameter");
      case FieldUse::kHonoured:  // has an effect only where a schema has it
      case FieldUse::kIgnored: break;
    }
    ignore(path);
    return std::nullopt;
  }

  std::optional<ApiError> read_unknown(const Schema& schema, const std::string& name, const std::string& path) {
    if (is_listed(header_name(path))) return std::nullopt;
    if (!is_known_anywhere(name) && ++num_searches_ <= kMaxSearches) {
      std::vector<std::string_view> known = known_names(schema.name);
      for (const Field& field : schema.fields) known.push_back(field.name);
      for (const auto& [refused, why] : schema.refused) known.push_back(refused);
      if (const std::string_view meant = misspelled_name(name, known); !meant.empty())
        return bad_request(path, fmt::format("unknown field {}; did you mean \"{}\"?", path, meant),
                           "unknown_parameter");
    }
    ignore(path);
    return std::nullopt;
  }

  std::optional<ApiError> read_mapped(const Schema& schema, Json& object, const KnownField& row, Json& value,
                                      const std::string& path) {
    Json instead = Json::object();
    std::vector<std::string> without_effect;
    if (!row.convert) {
      instead[std::string(row.note)] = std::move(value);
    } else if (const std::string_view wanted = row.convert(value, instead, without_effect); !wanted.empty()) {
      return bad_request(path, fmt::format("{} must be {}", path, wanted), "invalid_type");
    }
    for (const std::string& part : without_effect) ignore(part.empty() ? path : child(path, part));
    for (auto& [target, converted] : instead.items())
      if (auto error = set(schema, object, target, converted, path)) return error;
    return std::nullopt;
  }

  /// Sets a field that another one is mapped to. Errors name the field that the client wrote.
  std::optional<ApiError> set(const Schema& schema, Json& object, const std::string& target, Json& value,
                              const std::string& path) {
    const Field* const field = find_field(schema, target);
    if (!field) {
      ignore(path);
      return std::nullopt;
    }
    if (auto error = check(*field, value, path)) return error;
    if (const auto given = object.find(target); given == object.end() || given->is_null())
      object[target] = std::move(value);
    else if (*given != value) ignore(path);
    return std::nullopt;
  }

  std::optional<ApiError> read_members(const Schema& schema, Json& object, Json& value, const std::string& path) {
    if (!value.is_object()) return bad_request(path, path + " must be an object", "invalid_type");
    for (auto& [name, member] : value.items()) {
      if (member.is_null()) continue;
      const std::string place = child(path, name);
      if (auto error = find_field(schema, name) ? set(schema, object, name, member, place)
                                                : read_other(schema, object, name, member, place))
        return error;
    }
    return std::nullopt;
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

  // Limits of the header X-Redline-Ignored, and of the number of searches for misspelled names, which take about 50 us
  // each.
  static constexpr size_t kMaxIgnored = 64, kMaxHeaderName = 80, kMaxSearches = 256;

  std::vector<std::string>& ignored_;
  size_t num_searches_ = 0;
};

Json object_schema(const Schema& schema, Json& components, SchemaUse use);

Json field_schema(const Field& field, Json& components, SchemaUse use, bool is_nullable) {
  const FieldRules& r = field.rules;
  if (!r.choices.empty() && (field.types & ~kString) != 0) {  // choices apply to strings only
    Field text = field, other = field;
    text.types = kString;
    other.types &= ~static_cast<unsigned>(kString);
    other.rules.choices.clear();
    text.description.clear();
    other.description.clear();
    return {{"anyOf", {field_schema(text, components, use, is_nullable), field_schema(other, components, use, false)}},
            {"description", field.description}};
  }
  if (field.types == kObject && r.object && !is_nullable && r.only.empty()) {
    Json reference = schema_reference(*r.object, components, use);
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
  if (r.items) json["items"] = field_schema(*r.items, components, use, false);
  if (r.object) {
    const Json object = object_schema(*r.object, components, use);
    for (const auto& [key, value] : object.items())
      if (key != "type") json[key] = value;
  }
  return json;
}

/// Adds the fields of the table of known fields to those of the schema.
void add_known_fields(const Schema& schema, Json& properties) {
  for (const std::string_view name : known_names(schema.name)) {
    const KnownField& row = *find_known_field(schema.name, name);
    if (properties.contains(name)) continue;
    std::string text;
    switch (row.use) {
      case FieldUse::kMapped: text = fmt::format("read as {}", row.note); break;
      case FieldUse::kRefused: text = std::string(row.note); break;
      case FieldUse::kMembers: text = std::string(row.note); break;
      case FieldUse::kHonoured:
      case FieldUse::kIgnored: text = "accepted, and ignored"; break;
    }
    properties[std::string(name)] = {{"description", std::move(text)}};
  }
}

Json object_schema(const Schema& schema, Json& components, SchemaUse use) {
  if (schema.list && schema.fields.empty())
    return {{"type", "array"}, {"items", field_schema(*schema.list, components, use, false)}};
  Json properties = Json::object(), required = Json::array();
  for (const Field& field : schema.fields) {
    properties[field.name] = field_schema(field, components, use, !field.rules.required || field.rules.is_nullable);
    if (field.rules.required) required.push_back(field.name);
  }
  if (use == SchemaUse::kRequest) add_known_fields(schema, properties);
  Json json = {{"type", "object"}, {"properties", std::move(properties)}};
  if (!required.empty()) json["required"] = std::move(required);
  if (!schema.is_open && use == SchemaUse::kAnswer) json["additionalProperties"] = false;
  if (schema.list)  // an object, or a list of such
    return {{"anyOf",
             {std::move(json), {{"type", "array"}, {"items", field_schema(*schema.list, components, use, false)}}}}};
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

Json json_schema(const Schema& schema, Json& components, SchemaUse use) {
  return object_schema(schema, components, use);
}

Json schema_reference(const Schema& schema, Json& components, SchemaUse use) {
  if (!components.contains(schema.name)) {
    components[schema.name] = Json::object();  // ends the recursion of schemas that refer to themselves
    components[schema.name] = object_schema(schema, components, use);
  }
  return {{"$ref", "#/components/schemas/" + schema.name}};
}

std::vector<Field> joined(std::vector<Field> first, const std::vector<Field>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

}  // namespace redline::server
