// The one tokenizer behind all file formats: added tokens, normaliser, pre-tokenizer, model, template. Loaders fill in
// the parts.
#pragma once

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer.h"

namespace redline {

/// How a token's piece becomes bytes of text. Control and unknown tokens stand for themselves.
struct DecodeRules {
  bool byte_level = false;        ///< pieces are spelled in the byte alphabet; others stand for themselves
  bool byte_tokens = false;       ///< "<0x0A>" is one byte
  bool keep_user_defined = true;  ///< user-defined tokens stand for themselves too
  bool drop_prefix_space = false;
  std::string end_of_word;  ///< at the end of a piece it means a space, but for that at the end of a text
  std::vector<std::pair<std::string, std::string>> replacements;  ///< in order, inside one piece
};

struct TokenizerParts {
  std::string kind;
  std::string pre_tokenizer_name;
  std::unique_ptr<Vocabulary> vocabulary = std::make_unique<Vocabulary>();  ///< the model points into it
  AddedTokenFinder added_before, added_after;                               ///< before and after normalisation
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<TokenModel> model;
  std::vector<TokenId> prefix, suffix;  ///< around the text with EncodeOptions.add_special
  DecodeRules decode;
  TokenId bos = -1, pad = -1;
  int64_t max_tokens = 0;
  std::vector<TokenId> stop_tokens;

  /// Adds `id` where it is a token and not there yet.
  void add_stop(TokenId id);
  /// Adds the control tokens that are known to end a generation by their names ("<|eot_id|>", "<|im_end|>", ...).
  void add_known_stops();
};

/// Whether tokens spelled so end a generation in the model families that have them.
bool is_known_stop(std::string_view piece);

/// Sorts the stop tokens, and that is the tokenizer.
std::unique_ptr<Tokenizer> make_tokenizer(TokenizerParts parts);

}  // namespace redline
