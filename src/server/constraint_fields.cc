#include "server/constraint_fields.h"

namespace redline::server {
namespace {

constexpr size_t kMaxGrammar = size_t{1} << 20;

const Schema any_schema{"JsonSchema", {}, true};
const Field choice_item{"", kString, "", {.min_length = 1, .max_length = 10000}};
const Schema named_schema{"NamedJsonSchema",
                          {{"name", kString, "a name for the caller's own use", {.max_length = 1000}},
                           {"description", kString, "a text for the caller's own use"},
                           {"schema", kObject, "a JSON Schema", {.object = &any_schema}},
                           {"strict", kBoolean, "the schema is always followed"}}};
const Schema structured_schema{
    "StructuredOutputs",
    {{"json", kObject | kString, "a JSON Schema", {.max_length = kMaxGrammar, .object = &any_schema}},
     {"json_object", kBoolean, "any JSON object"},
     {"regex", kString, "a regular expression", {.min_length = 1, .max_length = kMaxGrammar}},
     {"choice", kArray, "one of these texts", {.min_items = 1, .max_items = 10000, .items = &choice_item}},
     {"grammar", kString, "a grammar (GBNF)", {.min_length = 1, .max_length = kMaxGrammar}},
     {"disable_any_whitespace", kBoolean, "JSON without white space"},
     {"disable_additional_properties", kBoolean,
      "false: members that a JSON Schema does not name are allowed unless it forbids them"},
     {"whitespace_pattern", kString, "\"\": JSON without white space; others are ignored", {.max_length = 1000}}}};

NamedConstraint of_text(OutputConstraint::Kind kind, const Json& text, std::string field) {
  return {{.kind = kind, .text = text.is_string() ? text.get<std::string>() : to_text(text)}, std::move(field)};
}

NamedConstraint of_choices(const Json& choices, std::string field) {
  return {{.kind = OutputConstraint::Kind::kChoice, .choices = choices.get<std::vector<std::string>>()},
          std::move(field)};
}

}  // namespace

const std::vector<Field>& constraint_fields() {
  static const std::vector<Field> fields = {
      {"response_format", kObject, "text, a JSON object, or JSON of a schema", {.object = &format_schema()}},
      {"structured_outputs",
       kObject,
       "format of the text; set exactly one of the fields",
       {.object = &structured_schema}},
      {"grammar", kString, "the text matches this grammar (GBNF)", {.min_length = 1, .max_length = kMaxGrammar}},
      {"json_schema", kObject, "the text is JSON of this schema", {.object = &any_schema}},
      {"guided_json",
       kObject | kString,
       "another name of json_schema",
       {.max_length = kMaxGrammar, .object = &any_schema}},
      {"guided_regex",
       kString,
       "the text matches this regular expression",
       {.min_length = 1, .max_length = kMaxGrammar}},
      {"guided_choice",
       kArray,
       "the text is one of these",
       {.min_items = 1, .max_items = 10000, .items = &choice_item}},
      {"guided_grammar", kString, "another name of grammar", {.min_length = 1, .max_length = kMaxGrammar}},
      {"guided_whitespace_pattern",
       kString,
       "another name of structured_outputs.whitespace_pattern",
       {.max_length = 1000}},
  };
  return fields;
}

const Schema& format_schema() {
  static const Schema schema{
      "ResponseFormat",
      {{"type", kString, "", {.required = true, .choices = {"text", "json_object", "json_schema"}}},
       {"json_schema", kObject, "object with the schema, in the Chat API", {.object = &named_schema}},
       {"name", kString, "a name for the caller's own use", {.max_length = 1000}},
       {"description", kString, "a text for the caller's own use"},
       {"schema", kObject, "a JSON Schema", {.object = &any_schema}},
       {"strict", kBoolean, "the schema is always followed"}}};
  return schema;
}

NamedConstraint json_constraint(const Json& schema, std::string field, bool is_strict) {
  NamedConstraint named = of_text(OutputConstraint::Kind::kJsonSchema, schema, std::move(field));
  named.constraint.json.is_relaxed = !is_strict;
  return named;
}

Outcome<NamedConstraint> constraint_of_format(const Json& format, const std::string& field) {
  const std::string type = format["type"];
  if (type == "text") return NamedConstraint{};
  // llama.cpp's server and Together allow a schema in a format of this type.
  if (type == "json_object" && !format.contains("schema")) return json_constraint({{"type", "object"}}, field);
  const bool is_nested = format.contains("json_schema");
  const Json& holder = is_nested ? format["json_schema"] : format;
  const std::string path = field + (is_nested ? ".json_schema.schema" : ".schema");
  if (!holder.contains("schema"))
    return bad_request(path, path + " is missing: a JSON Schema", "missing_required_parameter");
  return json_constraint(holder["schema"], path, holder.value("strict", false));
}

void set_json_format(const Json& body, JsonFormat& json) {
  const Json options = body.value("structured_outputs", Json::object());
  json.is_compact = options.value("disable_any_whitespace", false) ||
                    options.value("whitespace_pattern", "-").empty() ||
                    body.value("guided_whitespace_pattern", "-").empty();
  if (!options.value("disable_additional_properties", true)) json.allows_additional = true;
}

std::optional<ApiError> check_exclusive(const NamedConstraint& first, const NamedConstraint& second) {
  if (first.field.empty() || second.field.empty()) return std::nullopt;
  return bad_request(second.field, fmt::format("{} and {} exclude each other", first.field, second.field),
                     "invalid_value");
}

Outcome<NamedConstraint> constraint_of(const Json& body) {
  using Kind = OutputConstraint::Kind;
  std::vector<NamedConstraint> found;
  if (const auto format = body.find("response_format"); format != body.end()) {
    SERVER_ASSIGN(NamedConstraint constraint, constraint_of_format(*format, "response_format"));
    if (!constraint.field.empty()) found.push_back(std::move(constraint));
  }
  if (const auto outputs = body.find("structured_outputs"); outputs != body.end()) {
    const std::string path = "structured_outputs.";
    if (outputs->contains("json")) found.push_back(json_constraint((*outputs)["json"], path + "json"));
    if (outputs->value("json_object", false))
      found.push_back(json_constraint({{"type", "object"}}, path + "json_object"));
    if (outputs->contains("regex")) found.push_back(of_text(Kind::kRegex, (*outputs)["regex"], path + "regex"));
    if (outputs->contains("choice")) found.push_back(of_choices((*outputs)["choice"], path + "choice"));
    if (outputs->contains("grammar")) found.push_back(of_text(Kind::kGrammar, (*outputs)["grammar"], path + "grammar"));
  }
  for (const char* name : {"json_schema", "guided_json"})
    if (body.contains(name)) found.push_back(json_constraint(body[name], name));
  for (const char* name : {"grammar", "guided_grammar"})
    if (body.contains(name)) found.push_back(of_text(Kind::kGrammar, body[name], name));
  if (body.contains("guided_regex")) found.push_back(of_text(Kind::kRegex, body["guided_regex"], "guided_regex"));
  if (body.contains("guided_choice")) found.push_back(of_choices(body["guided_choice"], "guided_choice"));
  if (found.size() > 1) return *check_exclusive(found[0], found[1]);
  return found.empty() ? NamedConstraint{} : std::move(found[0]);
}

}  // namespace redline::server
