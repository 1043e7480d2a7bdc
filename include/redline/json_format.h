// How JSON is generated from a JSON Schema.
#pragma once

namespace redline {

/// How values of a JSON Schema are written, and which of them.
struct JsonFormat {
  /// No white space between the tokens of JSON. Otherwise it is optional: a space after ',' and ':' and within
  /// brackets, or a line break with an indentation of at most 64 characters.
  bool is_compact = false;
  /// Where a schema has `properties` without `additionalProperties`: other members are allowed, which is JSON Schema's
  /// default. Otherwise they are not generated.
  bool allows_additional = false;
  /// A keyword that cannot be enforced is left out, and named by TextEngine::unenforced_keywords(). Otherwise it is an
  /// error.
  bool is_relaxed = false;
  bool operator==(const JsonFormat&) const = default;
};

}  // namespace redline
