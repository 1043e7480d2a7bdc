#include "diffusion/prompt_syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace redline {
namespace {

bool is_number(std::string_view text) {
  const bool has_digit = std::any_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  return has_digit && text.find_first_not_of("0123456789. +-") == std::string_view::npos;
}

/// Returns the text from `open` to the next `close`, both included, whose last part after a colon is a number; "" if
/// there is none. `colons`: minimum number of colons.
std::string_view weighted(std::string_view prompt, char open, char close, int64_t colons) {
  for (size_t end = prompt.find(close); end != std::string_view::npos; end = prompt.find(close, end + 1)) {
    const std::string_view before = prompt.substr(0, end);
    const size_t colon = before.rfind(':'), begin = before.rfind(open);
    if (colon == std::string_view::npos || begin == std::string_view::npos || begin > colon) continue;
    const std::string_view inside = before.substr(begin + 1);
    // "(8:30)" is a time, because a weight follows words.
    if (is_number(before.substr(colon + 1)) && !is_number(before.substr(begin + 1, colon - begin - 1)) &&
        std::count(inside.begin(), inside.end(), ':') >= colons)
      return prompt.substr(begin, end + 1 - begin);
  }
  return {};
}

bool is_word_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/// Returns the separate word `name`, or, if it ends with a colon, `name` and the text that follows it; "" if the prompt
/// does not have it.
std::string_view word(std::string_view prompt, std::string_view name) {
  for (size_t at = prompt.find(name); at != std::string_view::npos; at = prompt.find(name, at + 1)) {
    if (at > 0 && is_word_char(prompt[at - 1])) continue;
    size_t end = at + name.size();
    const bool takes_name = name.ends_with(':');
    if (end < prompt.size() && is_word_char(prompt[end]) != takes_name) continue;
    if (takes_name && end == prompt.size()) continue;
    while (takes_name && end < prompt.size() && is_word_char(prompt[end])) ++end;
    return prompt.substr(at, end - at);
  }
  return {};
}

}  // namespace

std::vector<std::string> prompt_syntax_warnings(std::span<const std::string> prompts) {
  std::string_view weight, edit, chunk, embedding, adapter;
  const auto keep_first = [](std::string_view& first, std::string_view found) {
    if (first.empty()) first = found;
  };
  for (const std::string_view prompt : prompts) {
    keep_first(weight, weighted(prompt, '(', ')', 1));
    if (prompt.find("((") != std::string_view::npos && prompt.find("))") != std::string_view::npos)
      keep_first(weight, "((");
    keep_first(edit, weighted(prompt, '[', ']', 2));
    keep_first(chunk, word(prompt, "BREAK"));
    keep_first(embedding, word(prompt, "embedding:"));
    for (const std::string_view tag : {"<lora:", "<lyco:", "<hypernet:"})
      if (prompt.find(tag) != std::string_view::npos) keep_first(adapter, tag);
  }
  std::vector<std::string> warnings;
  const auto add = [&](std::string_view found, std::string_view what) {
    if (!found.empty()) warnings.push_back(fmt::format("\"{}\" in a prompt is text like any other; {}", found, what));
  };
  add(weight, "weights of words are not interpreted");
  add(edit, "changes of the prompt during the steps are not interpreted");
  add(chunk, "a prompt is not divided into chunks");
  add(embedding, "textual inversion is not supported");
  add(adapter, adapter == "<hypernet:" ? "hypernetworks are not supported"
                                       : "load the adapter with lora (--lora FILE:WEIGHT on the command line)");
  return warnings;
}

}  // namespace redline
