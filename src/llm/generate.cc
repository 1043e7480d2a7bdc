// The generation loop: prompt in, one token after another out, until a stop condition.
#include <algorithm>
#include <chrono>

#include "llm/llm_engine.h"
#include "llm/sampler.h"
#include "llm/stop_strings.h"

namespace redline {
namespace {

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

}  // namespace

Result<GenerateResult> LlmEngine::generate(const GenerateRequest& request,
                                           const std::function<bool(const TextPiece&)>& on_piece) {
  const Clock::time_point start = Clock::now();
  std::vector<int32_t> prompt = request.prompt;
  if (prompt.empty()) {
    if (bos_ < 0) return invalid_argument("the prompt is empty and {} names no token to begin a text with", info_.path);
    prompt.push_back(bos_);
  }
  if (request.max_tokens < 0) return invalid_argument("max_tokens {} must not be negative", request.max_tokens);
  const auto prompt_tokens = static_cast<int64_t>(prompt.size());
  if (prompt_tokens > info_.context)
    return invalid_argument("the prompt has {} tokens, the context holds {}; raise --context or shorten the prompt",
                            prompt_tokens, info_.context);
  REDLINE_ASSIGN(Sampler sampler, Sampler::create(request.sampling, info_.vocab_size));
  REDLINE_ASSIGN(StopStrings stops, StopStrings::create(request.stop));
  if (!request.stop.empty() && !tokenizer_)
    return invalid_argument("stop strings need a tokenizer, and {} has none", info_.path);
  std::unique_ptr<StreamDecoder> decoder;
  if (tokenizer_) decoder = std::make_unique<StreamDecoder>(*tokenizer_, prompt.size() == 1 && prompt[0] == bos_);

  GenerateResult result;
  result.prompt_tokens = prompt_tokens;
  auto show = [&](std::string_view text, int32_t token, float logprob, std::span<const TokenLogprob> top) {
    result.text += text;
    return !on_piece || on_piece(TextPiece{text, token, logprob, top});
  };
  auto finish = [&](FinishReason reason) -> Result<GenerateResult> {
    result.reason = reason;
    // Text held back as part of a character or of a stop string is emitted after all.
    std::string rest = decoder && !stops.found() ? stops.push(decoder->finish()) : "";
    if (!stops.found()) rest += stops.finish();
    result.text += rest;
    if (!rest.empty() && on_piece && reason != FinishReason::kCancelled) on_piece(TextPiece{rest, -1, 0, {}});
    return std::move(result);
  };

  REDLINE_ASSIGN(std::unique_ptr<Session> session, new_session());
  std::span<const float> logits;
  for (int64_t begin = 0; begin < prompt_tokens; begin += max_batch_tokens_) {
    const auto n = static_cast<size_t>(std::min(max_batch_tokens_, prompt_tokens - begin));
    REDLINE_ASSIGN(logits,
                   session->forward(std::span(prompt).subspan(static_cast<size_t>(begin), n), false, prompt_tokens));
    if (begin + max_batch_tokens_ < prompt_tokens && !show("", -1, 0, {})) return finish(FinishReason::kCancelled);
  }
  result.prefill_ms = ms_since(start);
  sampler.accept(prompt);

  Clock::time_point decode_start = start;
  std::vector<TokenLogprob> top;
  for (int64_t made = 0; made < request.max_tokens; ++made) {
    REDLINE_ASSIGN(const int32_t token, sampler.sample(logits, prompt_tokens + made));
    if (made == 0) {
      result.first_token_ms = ms_since(start);
      decode_start = Clock::now();
    } else {
      result.decode_tokens = made;
      result.decode_ms = ms_since(decode_start);
    }
    if (!request.ignore_stop_tokens && std::binary_search(stop_tokens_.begin(), stop_tokens_.end(), token))
      return finish(FinishReason::kStop);
    sampler.accept(token);
    result.tokens.push_back(token);
    float logprob = 0;
    if (request.num_logprobs >= 0) {
      REDLINE_ASSIGN(logprob, sampler.logprobs(logits, token, request.num_logprobs, top));
    }
    const std::string text = decoder ? stops.push(decoder->push(token)) : "";
    const bool go_on = show(text, token, logprob, top);
    if (stops.found()) return finish(FinishReason::kStop);
    if (!go_on) return finish(FinishReason::kCancelled);
    if (made + 1 == request.max_tokens) break;
    if (session->length() == info_.context) return finish(FinishReason::kContext);
    REDLINE_ASSIGN(logits, session->forward({&token, 1}, false, 0));
  }
  return finish(FinishReason::kLength);
}

}  // namespace redline
