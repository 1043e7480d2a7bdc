// The arguments of a command, listed once by its Args struct. The parser, --help, the docs and the completion read that
// list.
//
//   struct RunArgs {
//     std::string model;
//     int64_t max_tokens = 256;
//     void visit(OptionList& v) {
//       v.argument(model, "MODEL", "model folder or .gguf file", {.aliases = {"-m", "--model"}});
//       v(max_tokens, "max-tokens", "N", "stop after N new tokens", {.letter = 'n', .min = 0});
//     }
//   };
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "redline/embedding.h"
#include "redline/precision.h"

namespace redline::cli {

/// Constraints on a value besides its type. Limits apply to numbers and to each number of a list.
struct OptionRule {
  char letter = 0;  ///< one-letter name; 0 for none
  std::optional<double> min, max;
  std::vector<std::string> choices;
  bool optional = false;      ///< the positional argument may be missing
  bool names_file = false;    ///< completion offers files
  std::string shown_default;  ///< default shown in --help when it is not a fixed value ("the model's own")
  /// Names of the option in other programs, with their dashes: "-p", "--n-predict". For an argument: flags that set it.
  std::vector<std::string> aliases;
  std::string hint;                   ///< ends the error message for a wrong value
  bool is_required = false;           ///< the flag must be given
  std::vector<std::string> needs;     ///< the option has no effect unless one of these flags is given
  std::vector<std::string> not_with;  ///< options that cannot be combined with this one
  int64_t unit = 1;                   ///< the field of type int64_t becomes the value times this, as for MiB and bytes
  bool turns_off = false;             ///< the flag sets its bool to false
  bool is_table_row = false;          ///< from a table of options: docs/cli.md does not repeat it for each command
};

/// An option or positional argument of a command.
struct Option {
  std::string name;   ///< "max-tokens"; "MODEL" for an argument
  std::string value;  ///< placeholder ("N"); "" for a flag without a value
  std::string help;
  OptionRule rule;
  bool is_argument = false;
  bool is_repeatable = false;
  std::string default_text;                           ///< "" if there is none worth showing
  std::string group;                                  ///< heading in --help; "": "options"
  std::function<Status(std::string_view text)> read;  ///< sets the field; its errors do not name the option
};

/// Flags of other programs that have no equivalent here.
struct ForeignFlags {
  enum class Kind : uint8_t {
    kImplied,  ///< requests Redline's default behaviour: accepted
    kIgnored,  ///< has no effect on the result: accepted, with `answer` on stderr
    kRefused,  ///< would change the result: an error with `answer`
  };
  Kind kind = Kind::kRefused;
  std::vector<std::string> names;  ///< with their dashes
  bool takes_value = false;
  std::vector<std::string> values = {};  ///< the next word belongs to the flag if it is one of these
  std::string answer = "";               ///< "write --lora FILE instead"
};

/// Field types: bool (a flag without a value), int, int64_t, float, double,
/// std::string, Precision and std::optional<Pooling> (by their names),
/// std::optional of int64_t, uint64_t, float or std::string (nullopt if not
/// given), std::vector<std::string> (may be repeated) and
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

  /// Sets the heading of the options that follow, in --help; "": "options".
  void group(std::string name) { group_ = std::move(name); }

  void foreign(ForeignFlags flags) { foreign_.push_back(std::move(flags)); }

  const std::vector<Option>& all() const { return options_; }
  const Option* find(std::string_view name) const;
  /// Finds an option by its one-letter name.
  const Option* find_letter(char letter) const;
  /// Finds an option by its name in another program, with its dashes.
  const Option* find_alias(std::string_view name) const;
  const ForeignFlags* find_foreign(std::string_view name) const;

 private:
  template <class T>
  void add(T& field, std::string name, std::string value, std::string help, OptionRule rule, bool is_argument);
  std::vector<Option> options_;
  std::vector<ForeignFlags> foreign_;
  std::string group_;
};

struct ParsedOptions {
  bool wants_help = false;         ///< -h or --help before any "--"; nothing was read then
  std::vector<std::string> notes;  ///< notes on flags that were accepted and have no effect
  std::set<std::string> given;     ///< names of the options and arguments that were given
};

/// Reads `arguments` (without the command's name) into the fields of `options`.
/// --flag VALUE, --flag=VALUE, -f VALUE, -fVALUE; in a long name '_' is read as '-'; "--" ends the flags; "-" is an
/// ordinary argument. Arguments fill the places that no flag has filled, in their order. invalid_argument: an unknown
/// flag (with the closest match), a value missing, malformed or out of range (flag, value and what is allowed), a flag
/// given twice or without effect (OptionRule::needs, not_with), an argument missing or too many (with the usage, which
/// begins with `program`).
Result<ParsedOptions> parse_options(const OptionList& options, std::span<const std::string> arguments,
                                    std::string_view program = "redline");

/// Returns "PROGRAM [options] MODEL [PROMPT]".
std::string usage_of(const OptionList& options, std::string_view program);

/// Returns "; did you mean X?" for the candidate nearest to `word`, or "" if none is close.
std::string nearest_hint(std::string_view word, const std::vector<std::string>& candidates,
                         std::string_view prefix = "");

}  // namespace redline::cli
