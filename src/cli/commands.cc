// The table of commands: one row each.
#include "cli/command.h"

namespace redline::cli {

// clang-format off
#define REDLINE_COMMANDS(row)      \
  row("generate", run)             \
  row("generate", chat)            \
  row("generate", image)           \
  row("generate", embed)           \
  row("generate", serve)           \
  row("generate", batch)           \
  row("models", pull)              \
  row("models", list)              \
  row("models", show)              \
  row("models", rm)                \
  row("look inside", inspect)      \
  row("look inside", tokenize)     \
  row("look inside", template)     \
  row("look inside", logits)       \
  row("measure", bench)            \
  row("measure", eval)             \
  row("measure", compare)          \
  row("measure", devices)          \
  row("prepare", convert)          \
  row("prepare", quantize)         \
  row("prepare", imatrix)          \
  row("prepare", calibrate)        \
  row("prepare", cache)            \
  row("this program", help)        \
  row("this program", completion)  \
  row("this program", version)
// clang-format on

#define REDLINE_DECLARE(purpose, name) Command name##_command();
REDLINE_COMMANDS(REDLINE_DECLARE)
#undef REDLINE_DECLARE
Command bench_serve_command();
Command bench_tokenizer_command();

namespace {
Command with_group(const char* group, Command command) {
  command.group = group;
  return command;
}
}  // namespace

const std::vector<Command>& commands() {
#define REDLINE_CALL(group, name) with_group(group, name##_command()),
  static const std::vector<Command> table = {REDLINE_COMMANDS(REDLINE_CALL)};
#undef REDLINE_CALL
  return table;
}

const std::vector<Command>& bench_commands() {
  static const std::vector<Command> table = {bench_serve_command(), bench_tokenizer_command()};
  return table;
}

const Command* find_command(std::string_view name) {
  for (const std::vector<Command>* table : {&commands(), &bench_commands()})
    for (const Command& c : *table)
      if (name == c.name) return &c;
  return nullptr;
}

}  // namespace redline::cli
