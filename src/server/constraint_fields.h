// Fields that constrain the text, under the names of OpenAI, vLLM and llama.cpp.
#pragma once

#include "redline/text.h"
#include "server/schema.h"

namespace redline::server {

const std::vector<Field>& constraint_fields();

/// A format {"type": "text" | "json_object" | "json_schema", ...}, the schema being in `json_schema` (chat) or in the
/// format itself (Responses, Anthropic).
const Schema& format_schema();

struct NamedConstraint {
  OutputConstraint constraint;
  std::string field;  ///< that errors name; "": there is no constraint
};
/// The constraint of a checked body. 400: more than one field, or a format without its schema.
Outcome<NamedConstraint> constraint_of(const Json& body);
/// 400: both are set.
std::optional<ApiError> check_exclusive(const NamedConstraint& first, const NamedConstraint& second);
/// Sets how JSON is written, and whether members beyond `properties` are, by the options of a checked body. They hold for
/// its constraint, whichever field has that, and for the arguments of calls that it demands.
void set_json_format(const Json& body, JsonFormat& json);
/// The constraint of a format. `field`: its path.
Outcome<NamedConstraint> constraint_of_format(const Json& format, const std::string& field);
/// The text is JSON of this schema. Strict: a keyword that cannot be enforced is an error, and is not left out.
NamedConstraint json_constraint(const Json& schema, std::string field, bool is_strict = false);

}  // namespace redline::server
