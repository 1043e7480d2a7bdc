// Compiles JSON Schemas and matches instances with them, for bench/constraints/schema_corpus.py: one JSON object per
// line of standard input, {"schema", "instances": [text, ...]}, and one per line of standard output, {"error"} or
// {"unenforced", "accepts": [...]}. Arguments: the members of JsonFormat that are set, "compact", "additional",
// "relaxed"; "states=N" sets the limit of the automaton's states and "ms=N" that of the time to compile.
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>

#include "constraints/constraint.h"

namespace redline {
namespace {

using CorpusJson = nlohmann::ordered_json;

std::shared_ptr<const TokenTrie> byte_tokens() {
  std::vector<std::string> texts;
  for (int b = 0; b < 256; ++b) texts.emplace_back(1, static_cast<char>(b));
  texts.emplace_back("</s>");
  const TokenId end = 256;
  return TokenTrie::make(std::move(texts), std::span(&end, 1));
}

CorpusJson answer(const CorpusJson& line, const std::shared_ptr<const TokenTrie>& trie, const ConstraintLimits& limits,
                  const JsonFormat& format) {
  const std::clock_t begin = std::clock();
  const auto constraint = Constraint::from_json_schema(line["schema"].dump(), trie, limits, format);
  const double ms = 1e3 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  if (!constraint.ok()) return {{"error", constraint.status().message()}, {"ms", ms}};
  CorpusJson accepts = CorpusJson::array();
  for (const CorpusJson& instance : line["instances"]) {
    ConstraintState state(*constraint);
    const Status status = state.accept_text(instance.get_ref<const std::string&>());
    accepts.push_back(status.ok() && state.is_complete());
  }
  return {{"unenforced", (*constraint)->unenforced()},
          {"accepts", accepts},
          {"states", (*constraint)->automaton().num_states()},
          {"ms", ms}};
}

int run_corpus(std::span<char*> arguments) {
  ConstraintLimits limits;
  JsonFormat format;
  for (const std::string_view argument : arguments) {
    if (argument == "compact") format.is_compact = true;
    else if (argument == "additional") format.allows_additional = true;
    else if (argument == "relaxed") format.is_relaxed = true;
    else if (argument.starts_with("states=")) limits.max_states = std::stoul(std::string(argument.substr(7)));
    else if (argument.starts_with("ms=")) limits.compile_ms = std::stod(std::string(argument.substr(3)));
    else return std::cerr << "json_schema_corpus: unknown argument " << argument << "\n", 2;
  }
  const auto trie = byte_tokens();
  for (std::string line; std::getline(std::cin, line);)
    std::cout << answer(CorpusJson::parse(line), trie, limits, format).dump() << std::endl;
  return 0;
}

}  // namespace
}  // namespace redline

int main(int argc, char** argv) { return redline::run_corpus(std::span(argv + 1, static_cast<size_t>(argc - 1))); }
