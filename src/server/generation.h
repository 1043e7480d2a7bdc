// What the APIs have in common: the fields of sampling, and answers that come from generations.
#pragma once

#include "server/choices.h"
#include "server/endpoint.h"

namespace redline::server {

/// Fields of every request that generates, under OpenAI's and vLLM's names.
const std::vector<Field>& generation_fields();
/// Sampling, stop strings, adapters, constraint, client, priority and time limit of a checked body. The seed of choice
/// i is seed + i. The endpoint may have set call.constraint.
Outcome<GenerateRequest> generation_request(Call& call, const ModelChoice& choice);
/// Choices::start, whose errors name the field of the constraint if that is at fault.
Outcome<std::unique_ptr<Choices>> start_choices(Call& call, const std::shared_ptr<ServedModel>& model,
                                                std::vector<GenerateRequest> requests);
/// use_beam_search and length_penalty, of chats and completions; a length_penalty other than 1 needs the first.
const std::vector<Field>& beam_fields();
/// Whether a request asks for a beam search. 400: with something that a search cannot do. Fields of sampling have no
/// effect then; the answer reports that.
Outcome<bool> asks_for_beams(Call& call, const GenerateRequest& request);
/// Searches with n beams for each prompt.
Outcome<std::unique_ptr<Choices>> start_search(const Call& call, const std::shared_ptr<ServedModel>& model,
                                               const GenerateRequest& request,
                                               const std::vector<std::vector<int32_t>>& prompts);

/// `logprobs` and `top_logprobs` of a chat. 400: the second without the first.
std::optional<ApiError> take_logprobs(const Json& body, GenerateRequest& request);

/// The first of these fields that a checked body has; a negative number is the context, and so is one beyond it.
int64_t max_tokens_of(const Json& body, std::initializer_list<const char*> names, int64_t otherwise, int64_t context);
/// The smallest value of such a field: -1 is the context in llama.cpp's and LM Studio's API, -2 in Ollama's.
inline constexpr double kMinMaxTokens = -2;

/// The strings of `stop`, which is one or a list, without empty ones.
std::vector<std::string> strings_of(const Json& body, const char* name);

/// What a text of a client may take: as many tokens as the context holds, and time while the client waits.
EncodeLimits encode_limits(const ModelInfo& info);
/// The context's error for a text that has more tokens than the context in any case, before it is encoded: one of more
/// than max_token_bytes for each token.
std::optional<ApiError> check_text_size(const ModelInfo& info, size_t bytes, const char* param);
/// TextEngine::encode of a text of a client, within check_text_size() and encode_limits().
Outcome<std::vector<int32_t>> encode_text(const TextEngine& engine, std::string_view text, bool special, bool add_bos,
                                          const char* param);
/// The API error of TextEngine::encode within encode_limits(), of a text of so many bytes.
ApiError encode_error(const Status& status, const ModelInfo& info, size_t bytes, const char* param);

/// invalid_request_error context_length_exceeded with both numbers, if the prompt leaves no room.
std::optional<ApiError> check_context(const ModelInfo& info, int64_t prompt_tokens, const char* param);

/// The stop string that ended a text, or "".
std::string matched_stop(const TextEngine& engine, const GenerateResult& result, const std::vector<std::string>& stop);

/// "stop" or "length".
const char* openai_finish_reason(FinishReason reason);
/// prompt_tokens, completion_tokens, ... of generations that share `prompts` prompts in turn.
Json usage_json(int64_t prompt_tokens, int64_t completion_tokens, int64_t cached_tokens, CacheMiss miss);
extern const Schema usage_schema;
/// {"cached_tokens", "cache_miss"}: how much of a prompt was reused, and why no more.
Json reuse_json(int64_t cached_tokens, CacheMiss miss);
extern const Schema reuse_schema;

/// "cmpl-" and 24 digits.
std::string new_id(const char* prefix);

/// Makes an answer a stream of server-sent events, which no proxy holds back.
void become_event_stream(Answer& answer);
inline constexpr std::string_view kEventStreamPing = ": ping\n\n";

/// An answer that comes piece by piece from the engine.
class GenerationAnswer : public Answer {
 public:
  GenerationAnswer(Call& call, const ModelChoice& choice, std::unique_ptr<Choices> choices, bool streams);
  void on_ready(std::function<void()> wake) final { choices_->on_ready(std::move(wake)); }
  Progress poll(std::string& body) final;
  std::string_view ping() const override { return kEventStreamPing; }

 protected:
  using Event = Choices::Event;
  /// Before the first event; of a stream at once.
  virtual void begin(std::string& out) {}
  virtual void take(const Event& event, std::string& out) = 0;
  /// A choice has ended.
  virtual void end_choice(size_t choice, const GenerateResult& result, std::string& out) = 0;
  /// All have.
  virtual void end(std::string& out) = 0;
  /// The stream ends with an error.
  virtual std::string error_event(const ApiError& error) const { return "data: " + error_body(error, shape_) + "\n\n"; }

  Choices& choices() { return *choices_; }
  const ModelChoice& model() const { return model_; }
  TextEngine& engine() const { return model_.model->engine(); }
  bool streams() const { return is_stream; }
  int64_t prompt_tokens() const { return facts.prompt_tokens; }
  int64_t generated_tokens() const { return facts.generated_tokens; }
  CacheMiss cache_miss() const { return cache_miss_; }
  /// Prompts are counted once for this many choices.
  void set_choices_per_prompt(size_t n) { choices_per_prompt_ = n; }

 private:
  App& app_;
  const ModelChoice model_;
  const ErrorShape shape_;
  std::unique_ptr<Choices> choices_;
  size_t choices_per_prompt_ = 1;
  std::vector<double> gaps_s_;  ///< between tokens, not counted yet
  CacheMiss cache_miss_ = CacheMiss::kNone;
  bool has_begun_ = false;
};

/// "data: {...}\n\n".
inline std::string sse(const Json& json) { return "data: " + to_text(json) + "\n\n"; }
/// "event: NAME\ndata: {...}\n\n".
inline std::string sse(std::string_view event, const Json& json) {
  return fmt::format("event: {}\ndata: {}\n\n", event, to_text(json));
}

}  // namespace redline::server
