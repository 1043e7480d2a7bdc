// The text of a JSON Schema: places for messages, references, and whether its keywords are known and of the right
// types.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "base/error.h"
#include "constraints/json_schema_keywords.h"

namespace redline::json_schema {

class SchemaDocument {
 public:
  /// `root` and `deadline` must outlive the document. `is_relaxed`: JsonFormat::is_relaxed.
  /// invalid_argument: values are nested too deep.
  static Result<SchemaDocument> make(const Json& root, CompileDeadline& deadline, bool is_relaxed);

  /// The JSON pointer of a value, or "the root".
  std::string place(const Json& value) const;
  Status wrong(const Json& schema, std::string_view keyword, std::string_view what) const;
  /// unsupported: "`keyword` `what` not supported".
  Status refused(const Json& schema, std::string_view keyword, std::string_view what = "is") const;
  /// For a keyword that may be left out: refused() unless the format is relaxed, which then notes the keyword.
  Status leave_out(const Json& schema, std::string_view keyword, std::string_view what = "is");
  const std::set<std::string>& unenforced() const { return unenforced_; }
  bool is_relaxed() const { return is_relaxed_; }

  /// Checks the types of the keywords' values, once per schema. Unknown keywords are annotations.
  Status check(const Json& schema);
  /// What $ref and the like lead to, and the schema of kAt; nullptr: the schema has no reference. invalid_argument: a
  /// reference that leads nowhere. unsupported: another document.
  Result<const Json*> target_of(const Json& schema);
  /// The schemas that hold where one does, and lists of which one holds.
  struct Parts {
    Schemas schemas;
    std::vector<const Json*> lists;
  };
  using PartsOf = std::function<Result<const Parts*>(const Json& schema)>;
  /// Replaces `schemas` by all schemas that hold where these do, in order, each once, without `true`; adds the lists of
  /// all of them to `alternatives`. The parts of a schema are used before those of the next one are asked for.
  Status flatten(Schemas& schemas, std::vector<const Json*>& alternatives, const PartsOf& parts_of);
  /// The same with what allOf and references lead to, and the lists of anyOf and oneOf. Other keywords that combine
  /// schemas are left as they are.
  Status flatten(Schemas& schemas, std::vector<const Json*>& alternatives);
  /// Draft 7 and before: siblings of a $ref are ignored.
  bool ref_hides_siblings() const { return ref_hides_siblings_; }
  /// The document has unevaluatedProperties or unevaluatedItems.
  bool has_unevaluated() const { return has_unevaluated_; }

  /// Keeps a schema that is made of parts of others; messages name the place of `origin`.
  const Json* own(Json schema, const Json& origin);
  /// A schema that holds where `schema` does, to be part of an own schema.
  Json at(const Json& schema);

  const Json& root() const { return *root_; }
  CompileDeadline& deadline() { return *deadline_; }

 private:
  Status name_places();
  void name_identifiers(const Json& value, const std::string& base, bool is_name_map);
  Status check_keyword(const Json& schema, const std::string& key, const Json& value) const;
  Status check_type_names(const Json& schema, const Json& value) const;
  Result<const Json*> resolve(const Json& schema, const char* keyword, const std::string& ref);

  const Json* root_ = nullptr;
  CompileDeadline* deadline_ = nullptr;
  bool ref_hides_siblings_ = false, names_draft_ = false, is_relaxed_ = false, has_unevaluated_ = false;
  std::map<const Json*, std::string> places_, bases_;
  std::map<std::string, const Json*> identified_;  ///< by absolute URI, with the fragment of an anchor
  std::map<std::string, std::set<const Json*>> dynamic_anchors_;
  bool has_recursive_anchor_ = false;
  std::set<const Json*> checked_;
  std::deque<Json> own_;
  std::vector<const Json*> numbered_;  ///< of kAt
  std::map<const Json*, size_t> numbers_;
  std::set<std::string> unenforced_;
};

}  // namespace redline::json_schema
