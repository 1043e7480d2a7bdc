// Flags from the tables of options (redline/text_engine_options.inc).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/options.h"
#include "redline/option_tables.h"

namespace redline::cli {

/// Converts the bounds, names and defaults of a row to those of its flag. `shown_default`: replaces that of the row;
/// "": does not.
OptionRule rule_of(const OptionRow& row, std::string shown_default = "");

/// Defaults that a command shows in place of those of the rows: option and text.
using ShownDefaults = std::vector<std::pair<std::string_view, std::string>>;

/// Adds the flags of the rows of a struct of options that `has_flag` selects. The flags set the members of `options`,
/// whose present values are the defaults.
template <class Options, class HasFlag>
void add_option_rows(OptionList& v, Options& options, const HasFlag& has_flag, const ShownDefaults& shown = {}) {
  using Entry = std::pair<std::string_view, std::function<void()>>;
  std::vector<Entry> ordered;
  visit_options(options, [&](auto& member, const OptionRow& row) {
    if (row.flag.empty() || !has_flag(row)) return;
    std::string shown_default;
    for (const auto& [name, text] : shown)
      if (name == row.name) shown_default = text;
    const auto add = [&v, &member, row, shown_default] {
      v(member, std::string(row.flag), std::string(row.symbol),
        std::string(row.flag_help.empty() ? row.meaning : row.flag_help), rule_of(row, shown_default));
    };
    place_option(ordered, row.after, Entry(row.name, add), [](const Entry& entry) { return entry.first; });
  });
  for (const Entry& entry : ordered) entry.second();
}

/// Returns true for the rows whose flag every command has.
inline bool is_for_every_command(const OptionRow& row) { return row.commands == OptionRow::kEvery; }

/// Returns the text of `redline help options`: all rows of all tables.
std::string option_tables_text();

}  // namespace redline::cli
