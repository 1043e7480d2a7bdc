#include "diffusion/prompt.h"

#include <algorithm>

#include "text/gguf_vocab.h"

namespace redline {

Result<PromptTokenizer> PromptTokenizer::open(const std::string& folder, const TextEncoderModel& model) {
  REDLINE_ASSIGN(std::unique_ptr<Tokenizer> tokenizer, tokenizer_from_folder(folder));
  if (tokenizer->vocab_size() > model.vocab_size)
    return invalid_argument("{}: the tokenizer has {} tokens, its text encoder {}; one of the two is another model's",
                            folder, tokenizer->vocab_size(), model.vocab_size);
  if (tokenizer->pad() < 0)
    return invalid_argument("{}: there is no padding token; set pad_token in tokenizer_config.json", folder);
  const std::vector<TokenId>& end = tokenizer->suffix();
  if (model.pooled_token >= 0 && std::find(end.begin(), end.end(), model.pooled_token) == end.end())
    return invalid_argument(
        "{}: the tokenizer does not end texts with token {}, at which the text encoder pools; check eos_token_id in "
        "its "
        "config.json",
        folder, model.pooled_token);
  PromptTokenizer prompt;
  prompt.max_tokens_ =
      tokenizer->max_tokens() > 0 ? std::min(tokenizer->max_tokens(), model.max_tokens) : model.max_tokens;
  prompt.max_positions_ = model.has_position_limit ? model.max_tokens : INT32_MAX;
  prompt.pooled_token_ = model.pooled_token;
  prompt.tokenizer_ = std::move(tokenizer);
  return prompt;
}

Result<PromptIds> PromptTokenizer::encode(std::string_view prompt, int64_t tokens) const {
  if (tokens == 0) tokens = max_tokens_;
  const std::vector<TokenId>&begin = tokenizer_->prefix(), &end = tokenizer_->suffix();
  const auto around = static_cast<int64_t>(begin.size() + end.size());
  if (tokens < around || tokens < 1)
    return invalid_argument("a text length of {} tokens is too small for the {} begin and end tokens", tokens, around);
  if (tokens > max_positions_)
    return invalid_argument("a text length of {} tokens; the text encoder has positions for {}", tokens,
                            max_positions_);
  std::vector<TokenId> text = tokenizer_->encode(prompt, {.add_special = false, .parse_special = true});
  PromptIds result;
  if (const int64_t room = tokens - around; static_cast<int64_t>(text.size()) > room) {
    const auto kept = text.begin() + room;
    result.cut = text.end() - kept;
    result.cut_text = tokenizer_->decode({kept, text.end()});
    text.erase(kept, text.end());
  }
  result.ids = begin;
  result.ids.insert(result.ids.end(), text.begin(), text.end());
  result.ids.insert(result.ids.end(), end.begin(), end.end());
  result.length = static_cast<int64_t>(result.ids.size());
  result.ids.resize(static_cast<size_t>(tokens), tokenizer_->pad());
  result.pooled_row = pooled_place(pooled_token_, result.ids);
  return result;
}

}  // namespace redline
