// A JSON Schema document: finds the places of schemas for messages, resolves references, and checks that keywords are
// known and have the right types.
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

  /// Returns the JSON pointer of a value, or "the root".
  std::string place(const Json& value) const;
  Status wrong(const Json& schema, std::string_view keyword, std::string_view what) const;
  /// Returns unsupported with the message "`keyword` `what` not supported".
  Status refused(const Json& schema, std::string_view keyword, std::string_view what = "is") const;
  /// Ignores a keyword: returns refused(), or, if the format is relaxed, ok and adds the keyword to unenforced().
  Status leave_out(const Json& schema, std::string_view keyword, std::string_view what = "is");
  const std::set<std::string>& unenforced() const { return unenforced_; }
  bool is_relaxed() const { return is_relaxed_; }

  /// Checks the types of the keywords' values, once per schema. Unknown keywords are annotations.
  Status check(const Json& schema);
  /// Returns the target of $ref and similar keywords, or the schema of kAt; nullptr: the schema has no reference.
  /// invalid_argument: the target does not exist. unsupported: it is in another document.
  Result<const Json*> target_of(const Json& schema);
  /// The schemas that must hold if a given one does, and lists of alternatives of which one must hold.
  struct Parts {
    Schemas schemas;
    std::vector<const Json*> lists;
  };
  using PartsOf = std::function<Result<const Parts*>(const Json& schema)>;
  /// Replaces `schemas` by all schemas that must hold if these do, in order, each once, without `true`. Adds the lists
  /// of all of them to `alternatives`. The parts of a schema are used before parts_of() is called for the next one.
  Status flatten(Schemas& schemas, std::vector<const Json*>& alternatives, const PartsOf& parts_of);
  /// Adds the schemas of allOf and the targets of references, in order, and the lists of anyOf and oneOf among them to
  /// `alternatives`. Does not follow other keywords that combine schemas.
  Status flatten(Schemas& schemas, std::vector<const Json*>& alternatives);
  /// Returns true for draft 7 and earlier, in which keywords next to a $ref are ignored.
  bool ref_hides_siblings() const { return ref_hides_siblings_; }
  /// Returns true if the document has unevaluatedProperties or unevaluatedItems.
  bool has_unevaluated() const { return has_unevaluated_; }

  /// Stores a schema that is made of parts of others. Messages name the place of `origin` for it.
  const Json* own(Json schema, const Json& origin);
  /// Returns a schema that stands for `schema`, to be used in a schema for own().
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
  std::map<std::string, const Json*> identified_;  ///< schemas by absolute URI, with the fragment of an anchor
  std::map<std::string, std::set<const Json*>> dynamic_anchors_;
  bool has_recursive_anchor_ = false;
  std::set<const Json*> checked_;
  std::deque<Json> own_;
  std::vector<const Json*> numbered_;  ///< schemas by number of kAt
  std::map<const Json*, size_t> numbers_;
  std::set<std::string> unenforced_;
};

}  // namespace redline::json_schema
