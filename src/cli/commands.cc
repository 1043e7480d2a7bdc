// The table of commands, in the order of `redline help`.
#include <algorithm>
#include <array>

#include "base/order_after.h"
#include "cli/command.h"

namespace redline::cli {

#define REDLINE_ROW(make) Command make();
#include <commands.inc>  // of the build: one row per NAME_command.cc
#undef REDLINE_ROW

namespace {

constexpr std::array<std::string_view, 6> kGroups = {"generate", "models",  "look inside",
                                                     "measure",  "prepare", "this program"};

/// Returns the commands whose names have two words, or those with one.
std::vector<Command> in_order(bool has_two_words) {
  std::vector<Command> all = {
#define REDLINE_ROW(make) make(),
#include <commands.inc>
#undef REDLINE_ROW
  };
  std::erase_if(all, [&](const Command& c) {
    return (std::string_view(c.name).find(' ') != std::string_view::npos) != has_two_words;
  });
  std::vector<Command> order = order_after(
      all, [](const Command& c) { return c.name; }, [](const Command& c) { return c.after; });
  const auto group_of = [](const Command& c) { return std::find(kGroups.begin(), kGroups.end(), c.group); };
  std::stable_sort(order.begin(), order.end(),
                   [&](const Command& a, const Command& b) { return group_of(a) < group_of(b); });
  return order;
}

}  // namespace

const std::vector<Command>& commands() {
  static const std::vector<Command> table = in_order(/*has_two_words=*/false);
  return table;
}

const std::vector<Command>& bench_commands() {
  static const std::vector<Command> table = in_order(/*has_two_words=*/true);
  return table;
}

const Command* find_command(std::string_view name) {
  for (const std::vector<Command>* table : {&commands(), &bench_commands()})
    for (const Command& c : *table)
      if (name == c.name) return &c;
  return nullptr;
}

}  // namespace redline::cli
