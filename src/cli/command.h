// The definition of a command, and the list of all commands.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/options.h"
#include "cli/terminal.h"

namespace redline::cli {

struct Command {
  const char* name;
  const char* summary;                ///< one line, lower case, no full stop
  const char* details;                ///< paragraphs for --help; "" for none
  std::vector<const char*> examples;  ///< whole command lines
  /// Calls `use` with the options of a default-constructed Args, which live as long as the call.
  void (*with_options)(const std::function<void(const OptionList&)>& use);
  /// Parses and runs; also handles --help.
  Status (*run)(const Command& self, std::span<const std::string> arguments, Terminal& terminal);
};

/// Prints a command's help: usage, options, examples, exit codes.
std::string help_text(const Command& command);
Status print_help(const Command& command, Terminal& terminal);

/// A command from its Args (with visit()) and its body.
template <class Args, Status (*body)(const Args&, Terminal&)>
Command make_command(const char* name, const char* summary, const char* details, std::vector<const char*> examples) {
  return {name,
          summary,
          details,
          std::move(examples),
          [](const std::function<void(const OptionList&)>& use) {
            Args args;
            OptionList options;
            args.visit(options);
            use(options);
          },
          [](const Command& self, std::span<const std::string> arguments, Terminal& terminal) -> Status {
            Args args;
            OptionList options;
            args.visit(options);
            REDLINE_ASSIGN(const ParsedOptions parsed,
                           parse_options(options, arguments, fmt::format("redline {}", self.name)));
            return parsed.wants_help ? print_help(self, terminal) : body(args, terminal);
          }};
}

/// Every command, in the order of `redline help`. To add one: its file, and its row in commands.cc.
const std::vector<Command>& commands();
/// nullptr: no such command.
const Command* find_command(std::string_view name);

/// The whole program after main(): `arguments` without the program's name.
/// Returns the process exit code.
int run_cli(std::span<const std::string> arguments, Terminal& terminal);

/// docs/cli.md.
std::string markdown_help();
/// A script for "bash", "zsh" or "fish".
std::string completion_script(std::string_view shell);
/// "redline 0.1.0".
std::string_view version_text();

}  // namespace redline::cli
