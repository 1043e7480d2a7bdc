// Compiles a JSON Schema to rules of a grammar. Schemas that must hold together (allOf, $ref) are one rule; anyOf,
// oneOf, `if` and dependencies are its alternatives.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "constraints/json_schema.h"
#include "constraints/json_schema_negation.h"
#include "constraints/json_schema_texts.h"
#include "constraints/json_schema_values.h"

namespace redline::json_schema {

class SchemaCompiler {
 public:
  /// The arguments must outlive the compiler.
  SchemaCompiler(Grammar& grammar, SchemaDocument& document, const JsonFormat& options)
      : document_(document), options_(options), deadline_(document.deadline()), values_(document), negations_(document),
        g_(grammar), texts_(grammar, document) {}

  /// Returns the rule for the values of `schema`, which is part of the document.
  Result<Grammar::Rule> compile(const Json& schema);

 private:
  /// Returns the rule for a set of schemas that must hold together; each set has one rule, which equal schemas share.
  Result<Grammar::Rule> rule_for(Schemas schemas);
  /// Returns the description of the rule of a set, by SchemaTexts::number_of(); empty: the rule is not shared.
  std::vector<uint32_t> description_of(const Schemas& schemas);
  Result<Grammar::Expr> value_of(Schemas schemas);

  /// Lists come from anyOf, oneOf, if and dependencies.
  using Parts = SchemaDocument::Parts;
  Result<const Parts*> parts_of(const Json& schema);
  Status add_one_of(const Json& schema, const Json& list, Parts& parts);
  Status add_if(const Json& schema, const Json& condition, Parts& parts);
  void add_dependencies(const Json& schema, Parts& parts);
  /// SchemaDocument::flatten() with parts_of().
  Status flatten(Schemas& schemas, std::vector<const Json*>& alternatives);
  /// Expands the alternatives of the lists, one list after the other; an alternative of the `chosen` lists has been
  /// selected.
  Result<Grammar::Expr> cases(Schemas schemas, std::set<const Json*> chosen, size_t depth);
  /// Returns true if a simple test shows that no value matches all schemas.
  bool is_impossible(const Schemas& schemas) const;
  /// Returns the schemas of `schemas` that `schema` applies to the value: members and items that they name count as
  /// evaluated for `schema`.
  Result<Schemas> applied_by(const Schemas& schemas, const Json& schema);

  // Schemas without alternatives.
  Result<Grammar::Expr> leaf(const Schemas& schemas);
  /// Returns an expression for a value with white space between its tokens.
  Grammar::Expr value_expression(const Json& value);
  Result<Grammar::Expr> number_of(const Schemas& schemas, uint8_t types);
  Result<Grammar::Expr> string_of(const Schemas& schemas);
  /// Returns the values of kNotEnum that have one of the types.
  static std::vector<const Json*> excluded_values(const Schemas& schemas, uint8_t types);

  // Arrays (json_schema_arrays.cc).
  Result<Grammar::Expr> array_of(const Schemas& schemas);
  struct Contains;
  /// Returns the schemas of item i. `applied`: for each schema with unevaluatedItems, the schemas that it applies.
  Schemas items_at(const Schemas& schemas, const std::map<const Json*, Schemas>& applied, size_t i) const;
  Result<Grammar::Expr> items_with_contains(const Schemas& schemas, const std::map<const Json*, Schemas>& applied,
                                            std::vector<Contains> contains, size_t prefix, uint32_t least,
                                            uint32_t greatest);
  /// Returns an expression for arrays of distinct values; nullopt: the values cannot be listed.
  Result<std::optional<Grammar::Expr>> unique_array(Schemas items, uint32_t least, uint32_t greatest);
  /// Returns all values that match, if they are few; nullopt: they cannot be listed.
  Result<std::optional<std::vector<const Json*>>> finite_values(Schemas schemas, size_t depth);

  // Objects (json_schema_objects.cc).
  Result<Grammar::Expr> object_of(const Schemas& schemas);
  struct Pattern {
    const Json* owner;  ///< the schema with patternProperties
    const Json* value;
    ByteDfa strict, loose;
  };
  struct Members {
    std::vector<std::string> names;  ///< names in the order of `properties`, then names that are only in `required`
    std::set<std::string> required, known, absent;
    std::vector<Pattern> patterns;
    Schemas names_schemas;  ///< propertyNames
    /// for each schema with unevaluatedProperties: the schemas that it applies
    std::map<const Json*, Schemas> applied;
    uint32_t least = 0, greatest = kUnbounded;
    bool is_open = true;  ///< members may be generated that neither a schema nor a pattern names
  };
  Result<Members> members_of(const Schemas& schemas);
  /// Returns the schemas that the value of a member must match. matches(p) returns two flags, whether pattern p surely
  /// and whether it possibly matches the name. `name`: nullptr for a name that no schema has.
  template <class Matches>
  static Schemas member_schemas(const Schemas& schemas, const Members& members, const Matches& matches,
                                const std::string* name);
  /// Returns an expression for a member with this name; nullopt: the name is not allowed.
  Result<std::optional<Grammar::Expr>> named_member(const Schemas& schemas, const Members& members,
                                                    const std::string& name);
  /// Returns expressions for members with other names, one for each set of patterns that a name may match.
  Result<std::vector<Grammar::Expr>> free_members(const Schemas& schemas, const Members& members);
  Status add_free_members(const Schemas& schemas, const Members& members, std::vector<uint8_t>& matched,
                          const std::optional<ByteDfa>& names, uint32_t least, uint32_t greatest,
                          std::vector<Grammar::Expr>& found);

  /// Returns an expression for optional white space: a space, or a line break with an indentation.
  Grammar::Expr space();
  Grammar::Expr comma() { return g_.sequence({g_.bytes(","), space()}); }
  Grammar::Expr member(Grammar::Expr name, Grammar::Expr value) {
    return g_.sequence({name, g_.bytes(":"), options_.is_compact ? g_.empty() : g_.optional(g_.bytes(" ")), value});
  }
  Grammar::Expr in_brackets(const char* begin, Grammar::Expr body, const char* end);

  SchemaDocument& document_;
  const JsonFormat& options_;
  CompileDeadline& deadline_;
  SchemaValues values_;
  SchemaNegations negations_;
  Grammar& g_;
  SchemaTexts texts_;
  std::optional<Grammar::Rule> space_;
  size_t num_cases_ = 0;
  std::map<const Json*, Parts> parts_;
  /// by schema with `else`: the alternative in which the `else` schema holds
  std::map<const Json*, const Json*> else_branches_;
  std::map<Schemas, Grammar::Rule> rules_;
  std::vector<std::pair<Grammar::Rule, Schemas>> pending_;
  std::map<std::pair<uint32_t, uint32_t>, Grammar::Rule> strings_;
};

}  // namespace redline::json_schema
