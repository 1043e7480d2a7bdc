// Computes the complement of a schema as a schema.
#pragma once

#include <map>
#include <string>

#include "constraints/json_schema_document.h"

namespace redline::json_schema {

/// The complement of a schema: the values that it does not accept. If some keyword has no complement here, `schema`
/// accepts only some of these values.
struct Negation {
  const Json* schema = nullptr;  ///< nullptr: no keyword has a complement
  std::string lost;              ///< a keyword without a complement; "": the complement is exact
  size_t num_alternatives = 0;
};

class SchemaNegations {
 public:
  /// `document` must outlive the object.
  explicit SchemaNegations(SchemaDocument& document) : document_(document) {}

  /// Returns the complement of a schema, which is computed once. Subschemas are negated when they are compiled.
  Result<Negation> of(const Json& schema);

 private:
  class Builder;
  SchemaDocument& document_;
  std::map<const Json*, Negation> known_;
};

}  // namespace redline::json_schema
