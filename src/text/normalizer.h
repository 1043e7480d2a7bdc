// What is done to a text before it is cut into pieces.
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
/// from character sequences to their replacements. Bytes of untrusted files: every step is checked against the array.
class CharsMap {
 public:
  /// ModelProto.NormalizerSpec.precompiled_charsmap: u32 size of the trie, trie, NUL-terminated replacements.
  static Result<CharsMap> parse(std::string_view blob);
  struct Match {
    size_t bytes = 0;  ///< 0: nothing of the map begins here
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
struct ReplaceText {
  std::string from, to;
};
struct ReplaceRegex {
  Regex from;
  std::string to;
};
/// Put in front of a text that is not empty.
struct PrependText {
  std::string prefix;
};
struct SpellBytes {};
/// The map as the tokenizers package applies it: a grapheme cluster of less than six bytes that begins with something
/// of the map becomes the replacement of its shortest such beginning, whatever follows in it; others go character by
/// character. SentencePiece itself takes the longest match at each place.
struct PrecompiledMap {
  std::shared_ptr<const CharsMap> map;
};
/// All of SentencePiece's own normaliser: map, spaces, dummy prefix, escape.
struct SentencePieceNormalize {
  std::shared_ptr<const CharsMap> map;             ///< may be null
  std::shared_ptr<const PrefixMatcher> untouched;  ///< user-defined pieces; may be null
  bool remove_extra_whitespaces = false;
  bool add_dummy_prefix = true;
  bool dummy_prefix_at_start_only = false;  ///< transformers' legacy=false: not after each added token
  bool escape_whitespaces = true;
};

using NormalizerStep = std::variant<NormalizeForm, Lowercase, StripSpace, StripAccents, ReplaceText, ReplaceRegex,
                                    PrependText, SpellBytes, PrecompiledMap, SentencePieceNormalize>;

class Normalizer {
 public:
  void add(NormalizerStep step) { steps_.push_back(std::move(step)); }
  bool empty() const { return steps_.empty(); }
  /// `at_start`: the text begins where the whole input begins. Ill-formed bytes stay as they are.
  std::string apply(std::string_view text, bool at_start) const;

 private:
  std::vector<NormalizerStep> steps_;
};

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  ///< U+2581, SentencePiece's visible space

}  // namespace redline
