// Numbers for schemas: equal schemas have equal numbers, in one document or in several.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "constraints/json_schema_document.h"

namespace redline::json_schema {

/// Finds out which schemas are equal, so that they share one rule of the grammar.
class SchemaTexts {
 public:
  /// The numbers are those of the grammar. The arguments must outlive the object.
  SchemaTexts(Grammar& grammar, SchemaDocument& document) : grammar_(grammar), document_(document) {}

  /// Returns the number of a schema without its annotations, in which references are replaced by the number of their
  /// target. Two schemas with one number accept the same values. nullopt: the schema contains itself, or has keywords
  /// whose meaning depends on its place.
  std::optional<uint32_t> number_of(const Json& schema) { return number_of(schema, 0); }

 private:
  std::optional<uint32_t> number_of(const Json& schema, size_t depth);
  /// Returns the schema that a reference without keywords beside it stands for; nullptr: there are other keywords.
  const Json* target_of_mere_reference(const Json& schema);
  std::optional<std::string> text_of(const Json& schema, size_t depth);
  std::optional<std::string> keyword_text(const std::string& key, const Json& value, size_t depth);

  Grammar& grammar_;
  SchemaDocument& document_;
  std::map<const Json*, std::optional<uint32_t>> numbers_;  ///< nullopt as well while the number is being found
};

}  // namespace redline::json_schema
