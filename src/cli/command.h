// The definition of a command, and the list of all commands.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/options.h"
#include "cli/terminal.h"

namespace redline::cli {

/// A command of the program.
struct Command {
  const char* name;
  const char* summary;                ///< one line, lower case, no full stop
  const char* details;                ///< paragraphs for --help; "" for none
  std::vector<const char*> examples;  ///< complete command lines
  /// Calls `use` with the options of a default-constructed Args. They are valid during the call only.
  void (*with_options)(const std::function<void(const OptionList&)>& use);
  /// Parses the arguments and runs the command; also handles --help.
  Status (*run)(const Command& self, std::span<const std::string> arguments, Terminal& terminal);
  std::string_view group = "";  ///< heading in `redline help`, by the user's purpose
  std::string_view after = "";  ///< the command of the group that comes before; empty: it is the first

  /// Sets the place in `redline help`.
  Command in(std::string_view of_group, std::string_view after_name = "") && {
    group = of_group;
    after = after_name;
    return std::move(*this);
  }
};

/// Returns a command's help: usage, options, examples, exit codes, in lines of at most `width` columns.
std::string help_text(const Command& command, size_t width = 100);
Status print_help(const Command& command, Terminal& terminal);

/// Makes a command from its Args (with visit()) and its body. A member `given` of Args receives the names of the
/// options and arguments that were given.
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
            for (const std::string& note : parsed.notes) terminal.note("redline: {}", note);
            if constexpr (requires { args.given; }) args.given = parsed.given;
            return parsed.wants_help ? print_help(self, terminal) : body(args, terminal);
          }};
}

/// Returns every command of one word, in the order of `redline help`, groups together. The build finds the files
/// NAME_command.cc, each of which defines NAME_command().
const std::vector<Command>& commands();
/// Returns the commands of two words, such as `redline bench serve`.
const std::vector<Command>& bench_commands();
/// Finds a command by its name of one or two words. nullptr: no such command.
const Command* find_command(std::string_view name);

/// Runs the whole program after main(). `arguments` are without the program's name. Returns the process exit code.
int run_cli(std::span<const std::string> arguments, Terminal& terminal);

/// Returns the text of docs/cli.md.
std::string markdown_help();
/// Returns the text of `redline help recipes`: worked tasks, most with the bundled models.
std::string recipes_text();
/// Returns a completion script for "bash", "zsh" or "fish".
std::string completion_script(std::string_view shell);
/// Returns "redline 0.1.0".
std::string_view version_text();

}  // namespace redline::cli
