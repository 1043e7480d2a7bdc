// Evaluates schemas for values: whether a value matches, which values of enum and const remain, and whether two schemas
// exclude each other.
#pragma once

#include <map>
#include <set>

#include "constraints/byte_dfa.h"
#include "constraints/json_schema_document.h"
#include "constraints/regex_syntax.h"

namespace redline::json_schema {

class SchemaValues {
 public:
  /// `document` must outlive the object.
  explicit SchemaValues(SchemaDocument& document) : document_(document) {}

  /// Returns true if a value matches a schema. unsupported: unevaluatedProperties or unevaluatedItems together with
  /// other keywords that combine schemas.
  Result<bool> validates(const Json& value, const Json& schema) { return validates(value, schema, 0); }
  /// Returns the values of enum and const that match all schemas; nullopt: no schema has these keywords.
  Result<std::optional<std::vector<const Json*>>> values_of(const Schemas& schemas);
  /// Returns true if a simple test shows that no value can match both.
  Result<bool> are_disjoint(const Json& a, const Json& b) { return are_disjoint(a, b, 0); }

  /// Returns the strings in which a regular expression has a match; messages name `keyword` of `schema`.
  Result<ByteDfa> search_language(const Json& schema, std::string_view keyword, const std::string& pattern,
                                  RegexSyntax::Reading reading);
  /// Returns the strings that pattern and format allow, except the values `without`; nullopt: there is neither.
  Result<std::optional<ByteDfa>> string_language(const Schemas& schemas, RegexSyntax::Reading reading,
                                                 const std::set<const Json*>& without = {});
  /// Returns the strings that match a schema (kStrict), or a superset of them (kLoose). The length limits of the
  /// schemas `counted` are ignored.
  Result<ByteDfa> strings_of(const Json& schema, RegexSyntax::Reading reading, const std::set<const Json*>& counted) {
    return strings_of(schema, reading, counted, 0);
  }

 private:
  Result<bool> validates(const Json& value, const Json& schema, size_t depth);
  Result<ByteDfa> strings_of(const Json& schema, RegexSyntax::Reading reading, const std::set<const Json*>& counted,
                             size_t depth);
  Result<ByteDfa> all_strings();
  Result<bool> validates_combined(const Json& value, const Json& schema, size_t depth);
  Result<bool> validates_number(const Json& value, const Json& schema) const;
  Result<bool> validates_array(const Json& value, const Json& schema, size_t depth);
  Result<bool> validates_object(const Json& value, const Json& schema, size_t depth);
  Result<bool> validates_member(const std::string& key, const Json& member, const Json& schema, size_t depth);
  Result<bool> are_disjoint(const Json& a, const Json& b, int depth);
  Result<bool> are_disjoint_objects(const Schemas& x, const Schemas& y, int depth);

  SchemaDocument& document_;
  /// The reading of patterns: loose where a match is forbidden.
  RegexSyntax::Reading reading_ = RegexSyntax::Reading::kStrict;
  std::map<std::pair<std::string, RegexSyntax::Reading>, ByteDfa> languages_;
};

}  // namespace redline::json_schema
