// The tokenizer used for all file formats: added tokens, normalizer, pre-tokenizer, model, template. Loaders fill in
// the parts.
#pragma once

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer.h"

namespace redline {

/// Removes `content`, one character, up to `start` times from the beginning of a piece and up to `stop` times from its
/// end.
struct StripContent {
  std::string content;
  int64_t start = 0, stop = 0;
};
using DecodeStep = std::variant<ReplaceText, ReplaceRegex, StripContent>;

/// Rules for decoding a token's piece to bytes. Control and unknown tokens are emitted as spelled.
struct DecodeRules {
  bool byte_level = false;        ///< pieces use the byte alphabet; other characters are kept
  bool byte_tokens = false;       ///< "<0x0A>" is one byte
  bool keep_user_defined = true;  ///< user-defined tokens are also emitted as spelled
  bool drop_prefix_space = false;
  bool word_pieces = false;             ///< a space is put before each piece, unless it begins with `continuing`
  bool cleans_spaces = false;           ///< no space before punctuation and in contractions, as tokenizers' cleanup
  std::string continuing, word_prefix;  ///< for word_pieces: "##" and "", or "" and GGUF's "▁"
  bool separated = false;               ///< a space is put between all pieces
  std::string end_of_word;              ///< decoded as a space at the end of a piece, except at the end of the text
  bool drop_suffix_space = false;       ///< removes one space at the end of the text
  std::vector<DecodeStep> steps;        ///< applied in order, within one piece
};

struct TokenizerParts {
  std::string kind;
  std::string pre_tokenizer_name;
  std::unique_ptr<Vocabulary> vocabulary = std::make_unique<Vocabulary>();  ///< the model points into it
  AddedTokenFinder added_before, added_after;  ///< tokens searched for before and after normalization
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<TokenModel> model;
  std::vector<TokenId> prefix, suffix;  ///< tokens around the text with EncodeOptions::add_special
  PairTemplate pair;
  DecodeRules decode;
  TokenId bos = -1, pad = -1;
  int64_t max_tokens = 0;
  std::vector<TokenId> stop_tokens;

  /// Adds `id` unless it is not a token or already listed.
  void add_stop(TokenId id);
  /// Adds the control tokens whose names are known to end a generation ("<|eot_id|>", "<|im_end|>", ...).
  void add_known_stops();
};

/// Returns true if a token of this name ends a generation in the model families that use it.
bool is_known_stop(std::string_view piece);

/// Sorts the stop tokens and builds the tokenizer.
std::unique_ptr<Tokenizer> make_tokenizer(TokenizerParts parts);

}  // namespace redline
