// Tokens in answers: their ids, names, bytes and log probabilities, and their places in the text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "redline/text.h"
#include "server/json.h"
#include "server/prompt_scores.h"
#include "server/schema.h"

namespace redline::server {

/// return_token_ids, return_tokens_as_token_ids and prompt_logprobs, vLLM's fields of chats and completions.
const std::vector<Field>& token_fields();

/// The values of token_fields() in a checked body.
struct TokenFields {
  explicit TokenFields(const Json& body);
  bool returns_ids = false;  ///< the ids of the prompt and of the text are part of the answer
  bool names_ids = false;    ///< tokens are named "token_id:N"
  int prompt_logprobs =
      -1;  ///< log probabilities of this many most likely tokens at each place of the prompt; -1: none
};

/// The text of a token, which may be the name of a control token. Bytes that are not whole characters are written as
/// "bytes:\xc3", as OpenAI does, so that different tokens have different names. `as_id`: "token_id:N".
std::string token_name(const TextEngine& engine, int32_t token, bool as_id);
/// {"token", "logprob", "bytes"}, with the token's own bytes.
Json token_json(const TextEngine& engine, int32_t token, float logprob, bool as_id);
/// The same of a chosen token, with the most likely ones as "top_logprobs".
Json token_json(const TextEngine& engine, int32_t token, float logprob, const std::vector<TokenLogprob>& top,
                bool as_id);

/// Counts the characters of a text that comes in tokens.
class CharCounter {
 public:
  /// The number of whole characters so far. An ill-formed sequence counts as the one U+FFFD that stands for it.
  size_t count() const { return count_; }
  void add(std::string_view bytes);
  /// Counts what is left of an incomplete character.
  void finish();

 private:
  size_t count_ = 0;
  std::string held_;  ///< bytes of an incomplete character
};

/// The places of the tokens of a prompt in `text`, as the number of characters before each. `count` then has the
/// characters of the text. Tokens that are not part of the text, such as the one that begins it, have the place of the
/// next one.
std::vector<size_t> token_places(const TextEngine& engine, const std::vector<int32_t>& tokens, std::string_view text,
                                 CharCounter& count);

/// The arrays of `logprobs` of a completion. The chosen token is always among top_logprobs, as with OpenAI.
class CompletionLogprobs {
 public:
  /// `place`: characters of the text before the token. `is_first`: nothing predicts the token, its log probability is
  /// null.
  void add(const TextEngine& engine, int32_t token, float logprob, const std::vector<TokenLogprob>& top, size_t place,
           bool names_ids, bool is_first = false);
  Json take();

 private:
  Json tokens_ = Json::array(), logprobs_ = Json::array(), top_ = Json::array(), places_ = Json::array();
};

/// vLLM's prompt_logprobs: for each token of the prompt but the first (null) an object by token id with "logprob",
/// "rank" and "decoded_token", of the `num_top` most likely tokens and the token itself.
Json prompt_logprobs_json(const TextEngine& engine, const std::vector<int32_t>& prompt,
                          const std::vector<TokenScore>& scores, size_t num_top);

}  // namespace redline::server
