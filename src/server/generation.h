// Parts shared by the APIs for text: the fields of sampling, and answers that come from generations.
#pragma once

#include "server/choices.h"
#include "server/endpoint.h"
#include "server/event_stream.h"
#include "server/generation_counter.h"

namespace redline::server {

/// Returns the fields of every request that generates, under OpenAI's and vLLM's names.
const std::vector<Field>& generation_fields();
/// Builds a request from a checked body: sampling, stop strings, adapters, constraint, client, priority and time limit.
/// The seed of choice i is seed + i. The endpoint may have set call.constraint.
Outcome<GenerateRequest> generation_request(Call& call, const ModelChoice& choice);
/// Calls Choices::start. Errors name the field of the constraint if that is invalid.
Outcome<std::unique_ptr<Choices>> start_choices(Call& call, const std::shared_ptr<ServedModel>& model,
                                                std::vector<GenerateRequest> requests);
/// Returns the fields use_beam_search and length_penalty of chats and completions; a length_penalty other than 1 needs
/// the first.
const std::vector<Field>& beam_fields();
/// Returns true if a request selects beam search. Sampling fields then have no effect, which the answer reports. 400:
/// the request also has something that beam search does not support.
Outcome<bool> asks_for_beams(Call& call, const GenerateRequest& request);
/// Starts searches with n beams for each prompt.
Outcome<std::unique_ptr<Choices>> start_search(const Call& call, const std::shared_ptr<ServedModel>& model,
                                               const GenerateRequest& request, const std::vector<Prompt>& prompts);

/// Reads `logprobs` and `top_logprobs` of a chat. 400: the second without the first.
std::optional<ApiError> take_logprobs(const Json& body, GenerateRequest& request);

/// Returns the value of the first of these fields that a checked body has. A negative number, and one beyond the
/// context, becomes the context.
int64_t max_tokens_of(const Json& body, std::initializer_list<const char*> names, int64_t otherwise, int64_t context);
/// Minimum value of such a field: -1 is the context in llama.cpp's and LM Studio's API, -2 in Ollama's.
inline constexpr double kMinMaxTokens = -2;

/// Returns the non-empty strings of field `name`, which is a string or a list.
std::vector<std::string> strings_of(const Json& body, const char* name);

/// Returns the limits for encoding a client's text: as many tokens as the context holds, and time while the client
/// waits.
EncodeLimits encode_limits(const ModelInfo& info);
/// Checks the size of a text before it is encoded. A text longer than max_token_bytes per token of the context cannot
/// fit, and gets the context's error.
std::optional<ApiError> check_text_size(const ModelInfo& info, size_t bytes, const char* param);
/// Calls TextEngine::encode for a client's text, with check_text_size() and encode_limits().
Outcome<std::vector<int32_t>> encode_text(const TextEngine& engine, std::string_view text, bool special, bool add_bos,
                                          const char* param);
/// Converts an error of TextEngine::encode within encode_limits() to the API error; `bytes` is the size of the text.
ApiError encode_error(const Status& status, const ModelInfo& info, size_t bytes, const char* param);

/// Returns invalid_request_error context_length_exceeded with both numbers if the prompt leaves no room.
std::optional<ApiError> check_context(const ModelInfo& info, int64_t prompt_tokens, const char* param);

/// Returns the stop string that ended a text, or "".
std::string matched_stop(const TextEngine& engine, const GenerateResult& result, const std::vector<std::string>& stop);

/// Returns "stop" or "length".
const char* openai_finish_reason(FinishReason reason);
/// Returns the usage object: prompt_tokens, completion_tokens, and how much of the prompt was reused.
Json usage_json(int64_t prompt_tokens, int64_t completion_tokens, int64_t cached_tokens, CacheMiss miss);
extern const Schema usage_schema;
/// Returns {"cached_tokens", "cache_miss"}: how much of a prompt was reused, and why no more.
Json reuse_json(int64_t cached_tokens, CacheMiss miss);
extern const Schema reuse_schema;

/// An answer made of the engine's output, piece by piece.
class GenerationAnswer : public Answer {
 public:
  GenerationAnswer(Call& call, const ModelChoice& choice, std::unique_ptr<Choices> choices, bool streams);
  void on_ready(std::function<void()> wake) final { choices_->on_ready(std::move(wake)); }
  Progress poll(std::string& body) final;
  std::string_view ping() const override { return kEventStreamPing; }

 protected:
  using Event = Choices::Event;
  /// Called before the first event; for a stream at once.
  virtual void begin(std::string& out) {}
  virtual void take(const Event& event, std::string& out) = 0;
  /// Called when a choice has ended.
  virtual void end_choice(size_t choice, const GenerateResult& result, std::string& out) = 0;
  /// Called when all choices have ended.
  virtual void end(std::string& out) = 0;
  /// Returns the event that ends a stream with an error.
  virtual std::string error_event(const ApiError& error) const { return "data: " + error_body(error, shape_) + "\n\n"; }

  Choices& choices() { return *choices_; }
  const ModelChoice& model() const { return model_; }
  TextEngine& engine() const { return model_.model->engine(); }
  bool streams() const { return is_stream; }
  int64_t prompt_tokens() const { return facts.prompt_tokens; }
  int64_t generated_tokens() const { return facts.generated_tokens; }
  CacheMiss cache_miss() const { return cache_miss_; }
  /// Sets the number of choices that share a prompt, so that its tokens are counted once.
  void set_choices_per_prompt(size_t n) { choices_per_prompt_ = n; }

 private:
  GenerationCounter& counter_;
  const ModelChoice model_;
  const ErrorShape shape_;
  std::unique_ptr<Choices> choices_;
  size_t choices_per_prompt_ = 1;
  std::vector<double> gaps_s_;  ///< times between tokens that are not yet in the metrics
  CacheMiss cache_miss_ = CacheMiss::kNone;
  bool has_begun_ = false;
};

}  // namespace redline::server
