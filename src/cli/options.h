// The arguments of a command: listed once by its Args struct, read by the
// parser, --help, the docs and the completion.
//
//   struct RunArgs {
//     std::string model;
//     int64_t max_tokens = 256;
//     void visit(OptionList& v) {
//       v.argument(model, "MODEL", "model folder or .gguf file");
//       v(max_tokens, "max-tokens", "N", "stop after N new tokens", {.letter =
//       'n', .min = 0});
//     }
//   };
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace redline::cli {

/// Constraints on a value beside its type. Limits apply to numbers and to each number of a list.
struct OptionRule {
  char letter = 0;  ///< one-letter name; 0 for none
  std::optional<double> min, max;
  std::vector<std::string> choices;
  bool optional = false;      ///< an optional positional argument
  bool names_file = false;    ///< completion offers files
  std::string shown_default;  ///< in --help, for a default that is no fixed
                              ///< value ("the model's own")
};

struct Option {
  std::string name;   ///< "max-tokens"; "MODEL" for an argument
  std::string value;  ///< placeholder ("N"); "" for a flag without a value
  std::string help;
  OptionRule rule;
  bool is_argument = false;
  bool is_repeatable = false;
  std::string default_text;                           ///< "" if there is none worth showing
  std::function<Status(std::string_view text)> read;  ///< sets the field; its message does not name the option
};

/// Field types: bool (a flag without a value), int, int64_t, float,
/// std::string, std::optional of int64_t, uint64_t, float or std::string
/// (nullopt if not given), std::vector<std::string> (may be repeated) and
/// std::vector<int64_t> (a comma list). The fields must outlive the list.
class OptionList {
 public:
  template <class T>
  void operator()(T& field, std::string name, std::string value, std::string help, OptionRule rule = {}) {
    add(field, std::move(name), std::move(value), std::move(help), std::move(rule), false);
  }
  template <class T>
  void argument(T& field, std::string name, std::string help, OptionRule rule = {}) {
    add(field, std::move(name), "", std::move(help), std::move(rule), true);
  }

  const std::vector<Option>& all() const { return options_; }
  const Option* find(std::string_view name) const;
  /// The same for a one-letter name.
  const Option* find_letter(char letter) const;

 private:
  template <class T>
  void add(T& field, std::string name, std::string value, std::string help, OptionRule rule, bool is_argument);
  std::vector<Option> options_;
};

struct ParsedOptions {
  bool wants_help = false;  ///< -h or --help before any "--"; nothing was read then
};

/// Reads `arguments` (without the command's name) into the fields behind
/// `options`.
/// --flag VALUE, --flag=VALUE, -f VALUE, -fVALUE; "--" ends the flags; "-" is
/// an ordinary argument. invalid_argument: an unknown flag (with the
/// closest match), a value missing, malformed or out of range (flag, value and what
/// is allowed), a flag given twice, an argument missing or too many (with the
/// usage, which begins with `program`).
Result<ParsedOptions> parse_options(const OptionList& options, std::span<const std::string> arguments,
                                    std::string_view program = "redline");

/// "PROGRAM [options] MODEL [PROMPT]".
std::string usage_of(const OptionList& options, std::string_view program);

/// "; did you mean X?" for the candidate nearest to `word`, or "" if none is close.
std::string nearest_hint(std::string_view word, const std::vector<std::string>& candidates,
                         std::string_view prefix = "");

}  // namespace redline::cli
