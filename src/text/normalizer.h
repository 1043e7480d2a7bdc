// Normalizes a text before pre-tokenization.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/regex.h"
#include "text/unicode.h"
#include "text/vocabulary.h"

namespace redline {

/// SentencePiece's precompiled character map: a double-array trie (Aoe 1989, in the form of the darts-clone library)
/// from character sequences to replacements. Untrusted: every step is bounds-checked.
class CharsMap {
 public:
  /// Parses ModelProto.NormalizerSpec.precompiled_charsmap: u32 size of the trie, trie, NUL-terminated replacements.
  static Result<CharsMap> parse(std::string_view blob);
  struct Match {
    size_t bytes = 0;  ///< 0: no match here
    std::string_view replacement;
  };
  Match longest_at(std::string_view text, size_t pos) const { return match_at(text, pos, true); }
  Match shortest_at(std::string_view text, size_t pos) const { return match_at(text, pos, false); }

 private:
  Match match_at(std::string_view text, size_t pos, bool longest) const;
  std::vector<uint32_t> units_;
  std::string replacements_;
};

struct NormalizeForm {
  NormalForm form;
};
struct Lowercase {};
struct StripSpace {
  bool left, right;
};
struct StripAccents {};
/// BERT's normalizer. `cleans`: white space becomes spaces, and control characters are removed. `separates_chinese`:
/// Chinese characters become separate words.
struct BertNormalize {
  bool cleans = true, separates_chinese = true, strips_accents = true, lowercases = true;
};
struct ReplaceText {
  std::string from, to;
};
struct ReplaceRegex {
  Regex from;
  std::string to;
};
/// Prepends a prefix to a non-empty text.
struct PrependText {
  std::string prefix;
};
struct SpellBytes {};
/// tokenizers' Nmt: removes control characters, and replaces other white space, zero-width marks and U+2581 by spaces.
struct CleanControls {};
/// Applies the map like Hugging Face tokenizers: a grapheme cluster shorter than six bytes with a prefix in the map is
/// replaced as a whole by the replacement of its shortest such prefix; other clusters are processed character by
/// character. SentencePiece itself uses the longest match at each position.
struct PrecompiledMap {
  std::shared_ptr<const CharsMap> map;
};
/// SentencePiece's complete normalizer: map, spaces, dummy prefix, escape.
struct SentencePieceNormalize {
  std::shared_ptr<const CharsMap> map;             ///< may be null
  std::shared_ptr<const PrefixMatcher> untouched;  ///< user-defined pieces; may be null
  bool remove_extra_whitespaces = false;
  bool add_dummy_prefix = true;
  bool dummy_prefix_at_start_only = false;  ///< transformers' legacy=false: not after added tokens
  bool escape_whitespaces = true;
};

using NormalizerStep =
    std::variant<NormalizeForm, Lowercase, StripSpace, StripAccents, BertNormalize, ReplaceText, ReplaceRegex,
                 PrependText, SpellBytes, CleanControls, PrecompiledMap, SentencePieceNormalize>;

class Normalizer {
 public:
  void add(NormalizerStep step) { steps_.push_back(std::move(step)); }
  bool empty() const { return steps_.empty(); }
  /// Normalizes a text. `at_start`: the text is at the start of the input. Ill-formed bytes are kept. `work` counts
  /// every pass over the text; if it is stopped, the result is a part of the normalized text.
  std::string apply(std::string_view text, bool at_start, EncodeWork& work) const;
  std::string apply(std::string_view text, bool at_start) const {
    EncodeWork work;
    return apply(text, at_start, work);
  }
  /// Returns an upper bound of the bytes of text that become one byte of the result; 0: there is none.
  int64_t max_shrink() const;

 private:
  std::vector<NormalizerStep> steps_;
};

/// Returns the text with every match of `from` replaced by `to`.
std::string replace_regex(std::string_view text, const Regex& from, std::string_view to);
std::string replace_regex(std::string_view text, const Regex& from, std::string_view to, EncodeWork& work);

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  ///< U+2581, SentencePiece's visible space

}  // namespace redline
