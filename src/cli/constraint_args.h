// The flags that say what a text must match.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "redline/text.h"

namespace redline::cli {

struct ConstraintArgs {
  std::optional<std::string> grammar, json_schema, regex;
  std::vector<std::string> choices;

  /// `letter`: of --json-schema; 0: none.
  void visit(OptionList& v, char letter = 'j');
  /// not_found, io: a file after '@' that cannot be read.
  Result<OutputConstraint> constraint() const;
};

}  // namespace redline::cli
