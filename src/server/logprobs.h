// Tokens in answers: their ids, names, bytes and log probabilities, and their positions in the text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "redline/text.h"
#include "server/json.h"
#include "server/prompt_scores.h"
#include "server/schema.h"

namespace redline::server {

/// Returns the fields return_token_ids, return_tokens_as_token_ids and prompt_logprobs, vLLM's in chats and
/// completions.
const std::vector<Field>& token_fields();

/// The values of token_fields() in a checked body.
struct TokenFields {
  explicit TokenFields(const Json& body);
  bool returns_ids = false;  ///< the answer includes the ids of the prompt and of the text
  bool names_ids = false;    ///< tokens are named "token_id:N"
  int prompt_logprobs =
      -1;  ///< log probabilities of this many most likely tokens at each place of the prompt; -1: none
};

/// Returns the text of a token, or the name of a control token. Bytes that are not whole characters are written as
/// "bytes:
/// xc3", as OpenAI does, so that different tokens have different names. `as_id`: returns "token_id:N".
std::string token_name(const TextEngine& engine, int32_t token, bool as_id);
/// Returns {"token", "logprob", "bytes"}, with the token's own bytes.
Json token_json(const TextEngine& engine, int32_t token, float logprob, bool as_id);
/// Returns this object for a chosen token, with the most likely tokens as "top_logprobs".
Json token_json(const TextEngine& engine, int32_t token, float logprob, const std::vector<TokenLogprob>& top,
                bool as_id);

/// Counts the characters of a text that arrives in tokens.
class CharCounter {
 public:
  /// Returns the number of whole characters so far. An ill-formed sequence counts as the U+FFFD that replaces it.
  size_t count() const { return count_; }
  void add(std::string_view bytes);
  /// Counts the rest of an incomplete character.
  void finish();

 private:
  size_t count_ = 0;
  std::string held_;  ///< bytes of an incomplete character
};

/// Returns for each token of a prompt the number of characters of `text` before it. `count` then has the characters of
/// the text. Tokens that are not part of the text, such as the one that begins it, have the position of the next token.
std::vector<size_t> token_places(const TextEngine& engine, const std::vector<int32_t>& tokens, std::string_view text,
                                 CharCounter& count);

/// The `logprobs` arrays of a completion. The chosen token is always among top_logprobs, as with OpenAI.
class CompletionLogprobs {
 public:
  /// Adds a token. `place`: characters of the text before it. `is_first`: nothing predicts the token, so its log
  /// probability is null.
  void add(const TextEngine& engine, int32_t token, float logprob, const std::vector<TokenLogprob>& top, size_t place,
           bool names_ids, bool is_first = false);
  Json take();

 private:
  Json tokens_ = Json::array(), logprobs_ = Json::array(), top_ = Json::array(), places_ = Json::array();
};

/// Returns vLLM's prompt_logprobs: null for the first token of the prompt, and for each other an object by token id
/// with "logprob", "rank" and "decoded_token", of the `num_top` most likely tokens and the token itself. Null for rows
/// of embeddings.
Json prompt_logprobs_json(const TextEngine& engine, const Prompt& prompt, const std::vector<TokenScore>& scores,
                          size_t num_top);

}  // namespace redline::server
