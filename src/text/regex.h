// Regular expressions in the syntax of tokenizer files: Oniguruma's Ruby syntax (used by the tokenizers package),
// executed by PCRE2 with its just-in-time compiler.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace redline {

/// Translates a pattern to PCRE2 syntax: \s \w \d \b and \h with Oniguruma's Unicode meaning, {,n}, {n,m}+ as a
/// repeated repeat. unsupported: no PCRE2 equivalent (nested classes and && inside [...]).
Result<std::string> to_pcre2_syntax(std::string_view oniguruma);

class Regex {
 public:
  struct Span {
    size_t begin, end;
  };

  /// Compiles a pattern. invalid_argument: the message has PCRE2's reason and the position in the pattern.
  static Result<Regex> compile(std::string_view oniguruma);

  /// Appends all matches from left to right, as byte spans of `text`. Ill-formed UTF-8 never matches and splits the
  /// text: each well-formed run is searched separately. An empty match directly after another match is skipped. If a
  /// search exceeds its work limit, the rest of its run counts as unmatched, so a hostile pattern takes bounded time.
  void find_all(std::string_view text, std::vector<Span>& matches) const;
  /// find_all() without a list: calls visit(match) for each match until it returns false.
  void for_each(std::string_view text, const std::function<bool(Span)>& visit) const;
  /// Returns the end of the match that begins at `from`; `from` itself if there is none or it is empty. `text` must be
  /// well-formed UTF-8.
  size_t match_at(std::string_view text, size_t from) const;
  const std::string& pattern() const { return pattern_; }

 private:
  struct Program;
  std::string pattern_;
  std::shared_ptr<const Program> program_;
};

}  // namespace redline
