// Shared parts of the readers of tool calls.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "chat/tool_call_syntax.h"

namespace redline::tool_calls {

using OrderedJson = nlohmann::ordered_json;
using Outcome = ToolCallSyntax::Outcome;
using Reading = ToolCallSyntax::Reading;

constexpr int kMaxNesting = 64;
constexpr std::string_view kSpaces = " \t\r\n";

inline Reading more() { return {Outcome::kMore}; }
inline Reading failed() { return {Outcome::kFailed}; }
inline Reading more_or_failed(bool is_all) { return is_all ? failed() : more(); }

inline std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}
inline size_t skip_spaces(std::string_view text, size_t at) {
  return std::min(text.find_first_not_of(kSpaces, at), text.size());
}

/// Returns true if the text is JSON without zero bytes, which the parser would take as the end of the text.
bool is_json(std::string_view text);
/// Returns a string as JSON.
std::string json_text(std::string_view text);

/// Writes arguments as a JSON object, in the order in which they are added.
class ArgumentWriter {
 public:
  void add(std::string_view key, std::string_view json) {
    text_ += fmt::format("{}{}: {}", text_.empty() ? "" : ", ", json_text(key), json);
  }
  std::string finish() { return "{" + text_ + "}"; }

 private:
  std::string text_;
};

/// Returns a Python literal as JSON; nullopt if the text is not a literal.
std::optional<std::string> literal_as_json(std::string_view text);

/// Reads the end of a block after its last value: the closing marker, or the end of the text.
Reading closed(const ToolCallSyntax& syntax, std::string_view text, size_t at, bool is_all,
               std::vector<ChatToolCall> calls);

}  // namespace redline::tool_calls
