// From a JSON Schema to rules of a grammar. Schemas that hold together (allOf, $ref) are one rule; anyOf and oneOf are
// its cases.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "constraints/json_schema.h"
#include "constraints/json_schema_values.h"

namespace redline::json_schema {

class SchemaCompiler {
 public:
  /// All must outlive the compiler.
  SchemaCompiler(Grammar& grammar, SchemaDocument& document, const JsonSchemaOptions& options)
      : document_(document), options_(options), deadline_(document.deadline()), values_(document), g_(grammar) {}

  /// The values of `schema`, which is part of the document.
  Result<Grammar::Rule> compile(const Json& schema);

 private:
  /// One rule per set of schemas that hold together.
  Result<Grammar::Rule> rule_for(Schemas schemas);
  Result<Grammar::Expr> value_of(Schemas schemas);
  /// SchemaDocument::flatten; the alternatives of oneOf must exclude each other.
  Status flatten(Schemas& schemas, std::vector<const Json*>& alternatives);
  Status check_exclusive(const Json& schema, const Json& list);
  /// The alternatives of anyOf and oneOf, one after the other; `chosen` lists have been decided.
  Result<Grammar::Expr> cases(Schemas schemas, std::set<const Json*> chosen, size_t depth);

  // Schemas without alternatives.
  Result<Grammar::Expr> leaf(const Schemas& schemas);
  Result<Grammar::Expr> number_of(const Schemas& schemas, bool is_integer);
  Result<Grammar::Expr> string_of(const Schemas& schemas);
  Result<Grammar::Expr> array_of(const Schemas& schemas);
  /// Arrays of distinct values: a state per set of values that were used.
  Result<Grammar::Expr> unique_array(const Schemas& schemas, const Json& place_of, size_t prefix, uint32_t least,
                                     uint32_t greatest);
  Result<Grammar::Expr> object_of(const Schemas& schemas);

  /// The combined schemas of an object (json_schema_objects.cc).
  struct Pattern {
    const Json* owner;  ///< the schema with patternProperties
    const Json* value;
    ByteDfa strict, loose;
  };
  struct Members {
    std::vector<std::string> names;  ///< in the order of `properties`, then those that are only required
    std::set<std::string> required, known;
    std::vector<Pattern> patterns;
    Schemas names_schemas;  ///< propertyNames
    uint32_t least = 0, greatest = kUnbounded;
    bool is_open = true;  ///< more than the named members may be generated
  };
  Result<Members> members_of(const Schemas& schemas);
  /// What the value of a member must match. matches(p) returns whether pattern p matches its name: surely, possibly.
  /// `name`: nullptr for a name that no schema has.
  template <class Matches>
  static Schemas member_schemas(const Schemas& schemas, const Members& members, const Matches& matches,
                                const std::string* name);
  /// A member with this name; nullopt: the name is not allowed.
  Result<std::optional<Grammar::Expr>> named_member(const Schemas& schemas, const Members& members,
                                                    const std::string& name);
  /// Members with other names, by the set of patterns that they match.
  Result<std::vector<Grammar::Expr>> free_members(const Schemas& schemas, const Members& members);
  /// A name, with quotes, that no schema has and that matches exactly these patterns.
  Result<Grammar::Expr> free_name(const Members& members, uint32_t set);

  Grammar::Expr space();
  Grammar::Expr comma() { return g_.sequence({space(), g_.bytes(","), space()}); }
  Grammar::Expr member(Grammar::Expr name, Grammar::Expr value) {
    return g_.sequence({name, space(), g_.bytes(":"), space(), value});
  }
  Grammar::Expr graph_of(const ByteDfa& dfa);

  SchemaDocument& document_;
  const JsonSchemaOptions& options_;
  CompileDeadline& deadline_;
  SchemaValues values_;
  Grammar& g_;
  size_t num_cases_ = 0;
  std::set<const Json*> exclusive_;
  std::map<Schemas, Grammar::Rule> rules_;
  std::vector<std::pair<Grammar::Rule, Schemas>> pending_;
  std::map<std::pair<uint32_t, uint32_t>, Grammar::Rule> strings_;
};

}  // namespace redline::json_schema
