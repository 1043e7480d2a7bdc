// A row of a table of options as a value, and visits to all rows: how the command line, `redline help options` and the
// tests read the tables. redline/text_engine_options.inc says what the rows give.
//
//   visit_options(options, [](auto& member, const redline::OptionRow& row) {
//     if (!row.flag.empty()) add_flag(row.flag, member);
//   });
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

namespace redline {

/// Description of an option.
struct OptionRow {
  /// Commands that have the flag, of those that open such an engine.
  enum Commands : uint8_t {
    kEvery,       ///< every one: run, chat, serve, bench, ...
    kGenerating,  ///< those that generate text: not logits, eval and imatrix
    kServers,     ///< serve and batch
    kServe,       ///< serve
  };

  std::string_view name;          ///< name of the member in C++ and C, and of the keyword in Python
  std::string_view type;          ///< "INT64": a type of redline/option_types.h
  std::string_view meaning;       ///< a phrase: "worker threads"
  std::string_view details = {};  ///< further sentences; "": none
  std::string_view unset = {};    ///< what the default stands for, if it is not a plain value: "the model's own"
  std::string_view flag = {};     ///< name of the flag without dashes; "": there is none. "no-NAME" switches a BOOL off
  std::string_view flag_help = {};  ///< meaning of a flag "no-NAME"
  Commands commands = kEvery;
  std::string_view symbol = {};                ///< placeholder of the flag's value: "N"; "" for a BOOL
  char letter = 0;                             ///< one-letter name of the flag; 0: none
  std::optional<double> min = {}, max = {};    ///< bounds of the flag's value
  int64_t unit = 1;                            ///< the flag's value times this is the option's, as for MiB and bytes
  std::vector<std::string_view> choices = {};  ///< allowed values of a TEXT; those of a named type follow from it
  std::vector<std::string_view> aliases = {};  ///< names of the flag in other programs, with their dashes
  std::vector<std::string_view> needs = {};    ///< flags without which this one is an error
  std::string_view after = {};                 ///< the option behind which lists for people have this one
  bool is_setting = false;                     ///< changes the result, so results store the value
};

/// Adds an element to a list in the order of reading: behind the element whose name is `after`, else at the end.
/// `name_of` returns the name of an element.
template <class T, class NameOf>
void place_option(std::vector<T>& list, std::string_view after, T element, const NameOf& name_of) {
  auto place = list.end();
  if (!after.empty())
    for (auto i = list.begin(); i != list.end(); ++i)
      if (name_of(*i) == after) place = i + 1;
  list.insert(place, std::move(element));
}

}  // namespace redline
