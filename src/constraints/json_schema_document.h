// The text of a JSON Schema: places for messages, references, and whether its keywords are known and of the right
// types.
#pragma once

#include <map>
#include <set>
#include <string>

#include "base/error.h"
#include "constraints/json_schema_keywords.h"

namespace redline::json_schema {

class SchemaDocument {
 public:
  /// `root` and `deadline` must outlive the document. invalid_argument: values are nested too deep.
  static Result<SchemaDocument> make(const Json& root, CompileDeadline& deadline);

  /// The JSON pointer of a value, or "the root".
  std::string place(const Json& value) const;
  Status wrong(const Json& schema, std::string_view keyword, std::string_view what) const;
  /// unsupported: "`keyword` `what` not supported".
  Status refused(const Json& schema, std::string_view keyword, std::string_view what = "is") const;

  /// Checks the keywords and the types of their values, once per schema.
  Status check(const Json& schema);
  /// What $ref leads to. invalid_argument: nothing. unsupported: another document.
  Result<const Json*> resolve(const Json& schema) const;
  /// Draft 7 and before: siblings of a $ref are ignored.
  bool ref_hides_siblings() const { return ref_hides_siblings_; }
  /// Adds what allOf and $ref lead to, in order; and the lists of anyOf and oneOf among them.
  Status flatten(Schemas& schemas, std::vector<const Json*>& alternatives);

  CompileDeadline& deadline() { return *deadline_; }

 private:
  Status name_places();
  Status check_keyword(const Json& schema, const std::string& key, const Json& value) const;
  Status check_type_names(const Json& schema, const Json& value) const;
  Status check_divisor(const Json& schema, const Json& value) const;

  const Json* root_ = nullptr;
  CompileDeadline* deadline_ = nullptr;
  bool ref_hides_siblings_ = false;
  std::map<const Json*, std::string> places_;
  std::map<std::string, const Json*> anchors_;
  std::set<const Json*> checked_;
};

}  // namespace redline::json_schema
