// The table of commands: one row each.
#include "cli/command.h"

namespace redline::cli {

// clang-format off
#define REDLINE_COMMANDS(row) \
  row(run)                    \
  row(image)                  \
  row(logits)                 \
  row(bench)                  \
  row(eval)                   \
  row(compare)                \
  row(calibrate)              \
  row(inspect)                \
  row(devices)                \
  row(tokenize)               \
  row(convert)                \
  row(cache)                  \
  row(version)                \
  row(completion)             \
  row(help)
// clang-format on

#define REDLINE_DECLARE(name) Command name##_command();
REDLINE_COMMANDS(REDLINE_DECLARE)
#undef REDLINE_DECLARE

const std::vector<Command>& commands() {
#define REDLINE_CALL(name) name##_command(),
  static const std::vector<Command> table = {REDLINE_COMMANDS(REDLINE_CALL)};
#undef REDLINE_CALL
  return table;
}

const Command* find_command(std::string_view name) {
  for (const Command& c : commands())
    if (name == c.name) return &c;
  return nullptr;
}

}  // namespace redline::cli
