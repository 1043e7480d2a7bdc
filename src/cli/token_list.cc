#include "cli/token_list.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/mapped_file.h"

namespace redline::cli {

Result<std::vector<int32_t>> parse_tokens(std::string_view text) {
  constexpr std::string_view kSeparators = ", \t\r\n[]";
  std::vector<int32_t> tokens;
  size_t begin = text.find_first_not_of(kSeparators);
  while (begin != std::string_view::npos) {
    const size_t end = std::min(text.find_first_of(kSeparators, begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    int32_t id = 0;
    const auto [rest, problem] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (problem != std::errc() || rest != word.data() + word.size() || id < 0)
      return invalid_argument("'{}' is not a token id", word.substr(0, 40));
    tokens.push_back(id);
    begin = text.find_first_not_of(kSeparators, end);
  }
  return tokens;
}

Result<std::vector<int32_t>> read_tokens(const std::string& text_or_file) {
  // A mistyped list ("1,2x") must be reported as such, not as a missing file.
  std::error_code error;
  const bool begins_like_a_list = text_or_file.find_first_of("0123456789[-") == 0;
  if (text_or_file.empty() || (begins_like_a_list && !std::filesystem::exists(text_or_file, error)))
    return parse_tokens(text_or_file);
  REDLINE_ASSIGN(const std::string text, read_text_file(text_or_file));
  return parse_tokens(text).within(text_or_file);
}

}  // namespace redline::cli
