// Options of generating JSON from a JSON Schema.
#pragma once

namespace redline {

/// White space, additional members and strictness of the values that match a JSON Schema.
struct JsonFormat {
  /// If true, there is no white space between the tokens of JSON. If false, white space is optional: a space after ','
  /// and ':' and within brackets, or a line break with an indentation of at most 64 characters.
  bool is_compact = false;
  /// If true and a schema has `properties` without `additionalProperties`, other members are allowed, as JSON Schema
  /// says. If false, they are not generated.
  bool allows_additional = false;
  /// If true, keywords that cannot be enforced are ignored, and TextEngine::unenforced_keywords() lists them. If false,
  /// they are errors.
  bool is_relaxed = false;
  bool operator==(const JsonFormat&) const = default;
};

}  // namespace redline
