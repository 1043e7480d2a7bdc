// The complement of a schema as a schema.
#pragma once

#include <map>
#include <string>

#include "constraints/json_schema_document.h"

namespace redline::json_schema {

/// Values that a schema does not accept. Where a keyword has no complement here, `schema` accepts some of them only.
struct Negation {
  const Json* schema = nullptr;  ///< nullptr: none of the keywords has a complement
  std::string lost;              ///< a keyword that has none; "": the complement is exact
  size_t num_alternatives = 0;
};

class SchemaNegations {
 public:
  /// `document` must outlive this.
  explicit SchemaNegations(SchemaDocument& document) : document_(document) {}

  /// The same object for the same schema. Subschemas are negated when they are reached.
  Result<Negation> of(const Json& schema);

 private:
  class Builder;
  SchemaDocument& document_;
  std::map<const Json*, Negation> known_;
};

}  // namespace redline::json_schema
