// Regular expressions as tokenizer files write them: Oniguruma's Ruby syntax (what the tokenizers package uses), run by
// PCRE2 with its just-in-time compiler.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace redline {

/// The same language in PCRE2's spelling: \s \w \d \b and \h with Oniguruma's Unicode meaning, {,n}, {n,m}+ as a
/// repeat of a repeat. unsupported: what PCRE2 cannot say (nested classes and && inside [...]).
Result<std::string> to_pcre2_syntax(std::string_view oniguruma);

class Regex {
 public:
  struct Span {
    size_t begin, end;
  };

  /// invalid_argument with PCRE2's words and the place in the pattern.
  static Result<Regex> compile(std::string_view oniguruma);

  /// Appends all matches, left to right, in bytes of `text`. Ill-formed UTF-8 is matched by nothing and cuts the text:
  /// each well-formed run is searched by itself. An empty match just behind another match is skipped. When a search
  /// exceeds its work limit, the rest of its run counts as unmatched: a hostile pattern costs time in proportion to
  /// the limit, never a hang.
  void find_all(std::string_view text, std::vector<Span>& matches) const;
  const std::string& pattern() const { return pattern_; }

 private:
  struct Program;
  std::string pattern_;
  std::shared_ptr<const Program> program_;
};

}  // namespace redline
