// Values against schemas: whether one matches, which values of enum and const remain, whether two schemas exclude each
// other.
#pragma once

#include <map>
#include <set>

#include "constraints/byte_dfa.h"
#include "constraints/json_schema_document.h"
#include "constraints/regex_syntax.h"

namespace redline::json_schema {

class SchemaValues {
 public:
  /// `document` must outlive this.
  explicit SchemaValues(SchemaDocument& document) : document_(document) {}

  /// Unevaluated members and items are supported where nothing else combines schemas; elsewhere: unsupported.
  Result<bool> validates(const Json& value, const Json& schema) { return validates(value, schema, 0); }
  /// The values of enum and const that match all schemas; nullopt: no schema has these keywords.
  Result<std::optional<std::vector<const Json*>>> values_of(const Schemas& schemas);
  /// Whether it is easily seen that no value can match both.
  Result<bool> are_disjoint(const Json& a, const Json& b) { return are_disjoint(a, b, 0); }

  /// The strings in which a regular expression is found; `keyword` of `schema` is named in errors.
  Result<ByteDfa> search_language(const Json& schema, std::string_view keyword, const std::string& pattern,
                                  RegexSyntax::Reading reading);
  /// The strings that pattern and format allow, but for the values `without`; nullopt: there is neither.
  Result<std::optional<ByteDfa>> string_language(const Schemas& schemas, RegexSyntax::Reading reading,
                                                 const std::set<const Json*>& without = {});
  /// The strings that match a schema (kStrict), or a superset of them (kLoose). The lengths of the schemas `counted`
  /// are left out.
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
  /// How patterns are read: loose where what matches must not.
  RegexSyntax::Reading reading_ = RegexSyntax::Reading::kStrict;
  std::map<std::pair<std::string, RegexSyntax::Reading>, ByteDfa> languages_;
};

}  // namespace redline::json_schema
