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
/// The constraint of a format. `field`: its path.
Outcome<NamedConstraint> constraint_of_format(const Json& format, const std::string& field);
/// The text is JSON of this schema. Strict: a keyword that cannot be enforced is an error, and is not left out.
NamedConstraint json_constraint(const Json& schema, std::string field, bool is_strict = false);

}  // namespace redline::server
