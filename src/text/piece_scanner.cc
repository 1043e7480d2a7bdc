#include "text/piece_scanner.h"

#include <algorithm>
#include <array>

#include "text/pre_tokenizer.h"

namespace redline {
namespace {

enum CharClass : uint8_t { kOther, kUpper, kLower, kDigit, kBlank, kNewline, kBeyond };

constexpr std::array<CharClass, 256> kClasses = [] {
  std::array<CharClass, 256> classes = {};
  for (int c = 0; c < 256; ++c)
    classes[static_cast<size_t>(c)] = c >= 0x80                                         ? kBeyond
                                      : c >= 'a' && c <= 'z'                            ? kLower
                                      : c >= 'A' && c <= 'Z'                            ? kUpper
                                      : c >= '0' && c <= '9'                            ? kDigit
                                      : c == '\r' || c == '\n'                          ? kNewline
                                      : c == ' ' || c == '\t' || c == 0x0B || c == 0x0C ? kBlank
                                                                                        : kOther;
  return classes;
}();

CharClass class_of(const char* at) { return kClasses[static_cast<uint8_t>(*at)]; }
bool is_letter(CharClass c) { return c == kUpper || c == kLower; }
bool is_space(CharClass c) { return c == kBlank || c == kNewline; }

/// Returns the address of the first character from `at` on whose class is not in the bit mask `set`.
template <unsigned set>
const char* skip(const char* at, const char* end) {
  while (at < end && (set >> class_of(at) & 1) != 0) ++at;
  return at;
}
constexpr unsigned kLetters = 1u << kUpper | 1u << kLower, kSpaceClasses = 1u << kBlank | 1u << kNewline;

/// Returns the bytes of a match that ended at `to`, or 0 if the character there is beyond this scanner and may belong
/// to the match.
size_t unless_beyond(const char* from, const char* to, const char* end) {
  return to < end && class_of(to) == kBeyond ? 0 : static_cast<size_t>(to - from);
}

enum class Found : uint8_t { no, yes, beyond };
struct Contraction {
  Found found = Found::no;
  size_t bytes = 0;
};
/// Looks for one of the contractions 's 't 'd 'm 're 've 'll at `at`.
Contraction contraction_at(const char* at, const char* end, bool any_case) {
  if (*at != '\'' || at + 1 >= end) return {};
  const auto letter = [&](size_t i) -> char {
    return any_case && class_of(at + i) == kUpper ? static_cast<char>(at[i] + ('a' - 'A')) : at[i];
  };
  if (class_of(at + 1) == kBeyond) return {any_case ? Found::beyond : Found::no};  // the long s is an s in any case
  const char first = letter(1);
  if (first == 's' || first == 't' || first == 'd' || first == 'm') return {Found::yes, 2};
  if (first != 'r' && first != 'v' && first != 'l') return {};
  if (at + 2 >= end) return {};
  if (class_of(at + 2) == kBeyond) return {any_case ? Found::beyond : Found::no};
  return letter(2) == (first == 'l' ? 'l' : 'e') ? Contraction{Found::yes, 3} : Contraction{};
}

/// Matches \s*[\r\n]+ if `lines`, then \s+(?!\S), then \s+.
size_t match_spaces(const char* at, const char* end, bool lines) {
  const char* const to = skip<kSpaceClasses>(at, end);
  if (to < end && class_of(to) == kBeyond) return 0;
  if (lines)
    for (const char* last = to; last > at; --last)
      if (class_of(last - 1) == kNewline) return static_cast<size_t>(last - at);
  const auto length = static_cast<size_t>(to - at);
  return to == end || length == 1 ? length : length - 1;
}

size_t match_gpt2(const char* at, const char* end) {
  if (const Contraction c = contraction_at(at, end, false); c.found == Found::yes) return c.bytes;
  const char* from = at;
  if (*at == ' ' && at + 1 < end && !is_space(class_of(at + 1))) ++from;
  switch (class_of(from)) {
    case kUpper:
    case kLower: return unless_beyond(at, skip<kLetters>(from, end), end);
    case kDigit: return unless_beyond(at, skip<1u << kDigit>(from, end), end);
    case kOther: return unless_beyond(at, skip<1u << kOther>(from, end), end);
    case kBeyond: return 0;
    default: return match_spaces(at, end, false);
  }
}

/// Matches the alternatives that follow the alternatives for letters in the patterns of Llama 3 and later ones. `tail`:
/// nonzero if slashes may follow other characters.
template <unsigned tail>
size_t match_rest(const char* at, const char* end, int max_digits) {
  if (class_of(at) == kDigit) {
    const char* const limit = end - at > max_digits ? at + max_digits : end;
    const char* const to = skip<1u << kDigit>(at, limit);
    return to == limit ? static_cast<size_t>(to - at) : unless_beyond(at, to, end);
  }
  const char* from = *at == ' ' && at + 1 < end ? at + 1 : at;
  if (class_of(from) == kBeyond) return 0;
  if (class_of(from) == kOther) {
    const char* const to = skip<1u << kOther>(from, end);
    if (to < end && class_of(to) == kBeyond) return 0;
    if constexpr (tail == 0) {
      return static_cast<size_t>(skip<1u << kNewline>(to, end) - at);
    } else {  // matches [\r\n/]*; slashes before `to` are already part of the run
      const char* last = to;
      while (last < end && (class_of(last) == kNewline || *last == '/')) ++last;
      return static_cast<size_t>(last - at);
    }
  }
  return match_spaces(at, end, true);
}

size_t match_llama3(const char* at, const char* end, int max_digits) {
  const CharClass first = class_of(at);
  if (first == kBeyond) return 0;
  if (const Contraction c = contraction_at(at, end, true); c.found != Found::no)
    return c.found == Found::yes ? c.bytes : 0;
  if (is_letter(first)) return unless_beyond(at, skip<kLetters>(at, end), end);
  if (first != kNewline && first != kDigit && at + 1 < end) {
    const CharClass second = class_of(at + 1);
    if (second == kBeyond) return 0;
    if (is_letter(second)) return unless_beyond(at, skip<kLetters>(at + 1, end), end);
  }
  return match_rest<0>(at, end, max_digits);
}

/// Matches [^\r\n\p{L}\p{N}]? before upper case letters, lower case letters and a contraction.
size_t match_gpt4o(const char* at, const char* end, int max_digits) {
  const CharClass first = class_of(at);
  if (first == kBeyond) return 0;
  const char* word = at;
  if (!is_letter(first) && first != kNewline && first != kDigit) ++word;
  if (word < end && class_of(word) == kBeyond) return 0;
  if (word < end && is_letter(class_of(word))) {
    const char* to = skip<1u << kLower>(skip<1u << kUpper>(word, end), end);
    if (to == end) return static_cast<size_t>(to - at);
    if (class_of(to) == kBeyond) return 0;
    const Contraction c = contraction_at(to, end, true);
    if (c.found == Found::beyond) return 0;
    return static_cast<size_t>(to - at) + c.bytes;
  }
  return match_rest<1>(at, end, max_digits);
}

}  // namespace

std::optional<PieceScanner> PieceScanner::of(std::string_view pattern) {
  constexpr int kLlama3Digits = 3;
  if (pattern == kGpt2Pattern) return PieceScanner(Kind::gpt2, 0);
  if (pattern == kLlama3Pattern) return PieceScanner(Kind::llama3, kLlama3Digits);
  if (pattern == kQwen2Pattern) return PieceScanner(Kind::llama3, 1);
  if (pattern == kGpt4oPattern) return PieceScanner(Kind::gpt4o, kLlama3Digits);
  return std::nullopt;
}

size_t PieceScanner::match(const char* at, const char* end) const {
  switch (kind_) {
    case Kind::gpt2: return match_gpt2(at, end);
    case Kind::llama3: return match_llama3(at, end, digits_);
    case Kind::gpt4o: return match_gpt4o(at, end, digits_);
  }
  return 0;
}

}  // namespace redline
