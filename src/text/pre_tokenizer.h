// Cutting a text into the pieces that are encoded one by one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/regex.h"

namespace redline {

/// A text and where its pieces lie. Steps cut pieces further or rewrite them.
struct Pieces {
  struct Span {
    size_t begin = 0, bytes = 0;
  };
  std::string text;
  std::vector<Span> spans;  ///< in order, never empty ones
  bool at_start = true;     ///< the first span begins where the whole input begins
  std::string_view view(Span span) const { return std::string_view(text).substr(span.begin, span.bytes); }
};

/// What becomes of the matches when a piece is cut, as tokenizers' SplitDelimiterBehavior.
enum class SplitBehavior : uint8_t { isolated, removed, merged_with_previous, merged_with_next, contiguous };

/// Cuts at what a pattern matches.
struct SplitStep {
  using CharTest = bool (*)(uint32_t);
  std::variant<Regex, std::string, CharTest> pattern;  ///< a literal; each character for which the test holds
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;  ///< the gaps between the matches are the matches
};
/// Puts a space before each piece that does not begin with one.
struct PrefixSpaceStep {};
/// tokenizers' ByteLevel: bytes become characters of the byte alphabet.
struct ByteLevelStep {};
/// tokenizers' Metaspace: spaces become `replacement`, and the piece is cut before each.
struct MetaspaceStep {
  enum class Prepend : uint8_t { never, first, always };
  std::string replacement;
  Prepend prepend = Prepend::always;
  bool split = true;
};
/// Runs of digits cut in threes from the right: "1234567" -> 1 234 567. As a regex each of these looks ahead to the
/// end of the run at every digit, which is quadratic; hence a step of its own.
struct DigitGroupsStep {
  enum class Kind : uint8_t {
    numeric,        ///< \p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})), isolated
    decimal_words,  ///< \d{1,3}(?=(?:\d{3})*\b): a run with a word character behind it stays whole
    decimal_cuts,   ///< (?=(\d{3})+(?!\d)): cuts before groups of three and nowhere else
  };
  Kind kind = Kind::numeric;
};

/// The step that does what one of these patterns does.
std::optional<DigitGroupsStep> digit_groups_of(std::string_view pattern);

using PreTokenizerStep = std::variant<SplitStep, PrefixSpaceStep, ByteLevelStep, MetaspaceStep, DigitGroupsStep>;

class PreTokenizer {
 public:
  void add(PreTokenizerStep step) { steps_.push_back(std::move(step)); }
  void apply(Pieces& pieces) const;

 private:
  std::vector<PreTokenizerStep> steps_;
};

/// GPT-2's pattern, which ByteLevel uses unless told otherwise.
extern const std::string_view kGpt2Pattern;

/// How GGUF files name pre-tokenizers, and what else the name decides.
struct NamedPreTokenizer {
  PreTokenizer steps;
  bool ignore_merges = false;
  bool add_bos = false;     ///< unless the file says otherwise
  bool spell_bytes = true;  ///< false: pieces are raw UTF-8 with spaces as U+2581 and byte tokens "<0x..>"
};
/// unsupported: an unknown name; the message lists the known ones.
Result<NamedPreTokenizer> named_pre_tokenizer(std::string_view name);
/// The first name whose pre-tokenizer cuts with these patterns, one after the other, and spells bytes; "" for none.
std::string_view name_of_pre_tokenizer(const std::vector<std::string>& patterns, bool ignore_merges);

}  // namespace redline
