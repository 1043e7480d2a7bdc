// The flags that constrain the generated text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "cli/terminal.h"
#include "redline/text.h"

namespace redline::cli {

struct ConstraintArgs {
  std::optional<std::string> grammar, json_schema, regex;
  std::vector<std::string> choices;
  bool json_compact = false, json_additional = false, json_relaxed = false;

  /// Lists the flags. `letter`: one-letter name of --json-schema; 0: none.
  void visit(OptionList& v, char letter = 'j');
  /// Returns the constraint. not_found, io: a file after '@' that cannot be read.
  Result<OutputConstraint> constraint() const;
};

/// Prints a warning that names the keywords that a relaxed constraint ignores. Errors as
/// TextEngine::unenforced_keywords().
Status note_unenforced(TextEngine& engine, const OutputConstraint& constraint, Terminal& terminal);

}  // namespace redline::cli
