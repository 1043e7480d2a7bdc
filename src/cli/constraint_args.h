// The flags that say what a text must match.
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

  /// `letter`: of --json-schema; 0: none.
  void visit(OptionList& v, char letter = 'j');
  /// not_found, io: a file after '@' that cannot be read.
  Result<OutputConstraint> constraint() const;
};

/// A warning that names the keywords that a relaxed constraint leaves out. Errors as TextEngine::unenforced_keywords().
Status note_unenforced(TextEngine& engine, const OutputConstraint& constraint, Terminal& terminal);

}  // namespace redline::cli
