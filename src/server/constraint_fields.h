// Fields that constrain the generated text, under the names of OpenAI, vLLM and llama.cpp.
#pragma once

#include "redline/text.h"
#include "server/schema.h"

namespace redline::server {

const std::vector<Field>& constraint_fields();

/// Returns the schema of a format {"type": "text" | "json_object" | "json_schema", ...}. The JSON schema is in
/// `json_schema` (chat) or in the format itself (Responses, Anthropic).
const Schema& format_schema();

struct NamedConstraint {
  OutputConstraint constraint;
  std::string field;  ///< field that errors name; "": there is no constraint
};
/// Returns the constraint of a checked body. 400: more than one field, or a format without its schema.
Outcome<NamedConstraint> constraint_of(const Json& body);
/// Returns a 400 if both are set.
std::optional<ApiError> check_exclusive(const NamedConstraint& first, const NamedConstraint& second);
/// Sets white space and members beyond `properties` by the options of a checked body. They apply to its constraint,
/// whichever field has that, and to the arguments of required calls.
void set_json_format(const Json& body, JsonFormat& json);
/// Returns the constraint of a format. `field` is its path.
Outcome<NamedConstraint> constraint_of_format(const Json& format, const std::string& field);
/// Returns a constraint to JSON of this schema. Strict: a keyword that cannot be enforced is an error instead of being
/// ignored.
NamedConstraint json_constraint(const Json& schema, std::string field, bool is_strict = false);

}  // namespace redline::server
