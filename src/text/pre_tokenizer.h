// Pre-tokenization: splits a text into pieces that are encoded independently.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/regex.h"
#include "text/tokenizer.h"

namespace redline {

/// Handling of the matches when a piece is split, like tokenizers' SplitDelimiterBehavior.
enum class SplitBehavior : uint8_t { isolated, removed, merged_with_previous, merged_with_next, contiguous };

/// Splits at the matches of a pattern.
struct SplitStep {
  using CharTest = bool (*)(uint32_t);
  std::variant<Regex, std::string, CharTest> pattern;  ///< regex, literal or character test
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;  ///< the gaps between matches count as matches
};
/// Prepends a space to each piece that does not begin with one.
struct PrefixSpaceStep {};
/// tokenizers' ByteLevel: bytes become characters of the byte alphabet.
struct ByteLevelStep {};
/// tokenizers' Metaspace: spaces become `replacement`, and the text is split before each.
struct MetaspaceStep {
  enum class Prepend : uint8_t { never, first, always };
  std::string replacement;
  Prepend prepend = Prepend::always;
  bool split = true;
};
/// Splits after every `length` characters.
struct FixedLengthStep {
  int64_t length;
};
/// Splits runs of digits into groups of three from the right: "1234567" -> 1 234 567. A regex for this looks ahead to
/// the end of the run at every digit, which takes quadratic time; hence a separate step.
struct DigitGroupsStep {
  enum class Kind : uint8_t {
    numeric,        ///< \p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})), isolated
    decimal_words,  ///< \d{1,3}(?=(?:\d{3})*\b): a run followed by a word character is not split
    decimal_cuts,   ///< (?=(\d{3})+(?!\d)): splits only before groups of three
  };
  Kind kind = Kind::numeric;
};

/// Returns the step that is equivalent to one of these patterns; nullopt for other patterns.
std::optional<DigitGroupsStep> digit_groups_of(std::string_view pattern);

using PreTokenizerStep =
    std::variant<SplitStep, PrefixSpaceStep, ByteLevelStep, MetaspaceStep, FixedLengthStep, DigitGroupsStep>;

class PreTokenizer {
 public:
  /// Receives a piece, which is never empty. Returning false ends the call.
  using OnPiece = std::function<bool(std::string_view piece)>;

  void add(PreTokenizerStep step) { steps_.push_back(std::move(step)); }
  /// Calls on_piece for the pieces of `text` in order. Pieces are not kept: each step needs memory for one piece.
  /// `at_start`: the text is at the start of the input. `work` counts the bytes that the first step has processed.
  /// Returns false if on_piece or `work` has ended the call.
  bool apply(std::string_view text, bool at_start, EncodeWork& work, const OnPiece& on_piece) const;

  /// Returns true if the last step is the byte level and all others only split.
  bool splits_bytes() const;
  /// apply() without the last step, for splits_bytes(). Pieces are parts of `text`.
  bool split(std::string_view text, EncodeWork& work, const OnPiece& on_piece) const;
  /// Returns true if no step removes a part of the text.
  bool keeps_text() const;
  /// Returns the regular expression that splits the text, if it is the only step before the byte level; else nullptr.
  const Regex* only_regex() const;

 private:
  std::vector<PreTokenizerStep> steps_;
};

/// GPT-2's pattern, the default of ByteLevel.
extern const std::string_view kGpt2Pattern;
extern const std::string_view kLlama3Pattern, kQwen2Pattern, kGpt4oPattern;

/// A pre-tokenizer named in GGUF files, and other settings implied by the name.
struct NamedPreTokenizer {
  PreTokenizer steps;
  bool ignore_merges = false;
  bool add_bos = false;     ///< default for files without the setting
  bool spell_bytes = true;  ///< false: pieces are raw UTF-8 with spaces as U+2581 and byte tokens "<0x..>"
};
/// Returns the pre-tokenizer of a name. unsupported: an unknown name; the message lists the known ones.
Result<NamedPreTokenizer> named_pre_tokenizer(std::string_view name);
/// Returns the first name whose pre-tokenizer applies these patterns in order and spells bytes; "" if there is none.
std::string_view name_of_pre_tokenizer(const std::vector<std::string>& patterns, bool ignore_merges);

}  // namespace redline
