// One request: its tokens and state, and what happens with each sampled token.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "llm/prefix_cache.h"
#include "llm/sampler.h"
#include "llm/state_pool.h"
#include "llm/stop_strings.h"
#include "llm/text_model.h"

namespace redline {

/// Called by the thread that runs the steps, except for cancel(), is_done() and wait(), which are thread-safe.
class TextGeneration {
 public:
  using Callback = std::function<bool(const TextPiece&)>;
  /// `model` must outlive the steps of the request. invalid_argument: as TextEngine::generate.
  static Result<std::shared_ptr<TextGeneration>> make(const TextModel& model, const GenerateRequest& request,
                                                      Callback on_piece);

  /// Tokens that the state lacks.
  std::span<const int32_t> pending() const;
  std::span<const int32_t> tokens() const { return tokens_; }
  int64_t prompt_tokens() const { return result_.prompt_tokens; }
  int64_t cached_tokens() const { return result_.cached_tokens; }
  int64_t generated_tokens() const { return std::ssize(result_.tokens); }
  bool has_prefilled() const { return has_prefilled_; }
  std::unique_ptr<SequenceState>& state() { return state_; }
  std::span<const WeightedAdapter> adapters() const { return adapters_; }
  const PrefixKey& prefix_key() const { return prefix_key_; }
  const std::string& client() const { return request_.client; }
  int priority() const { return request_.priority; }
  /// In time of now_ms().
  double deadline_ms() const { return deadline_ms_; }
  static double now_ms();
  /// What the prefix cache gave when the request was admitted for the first time.
  void set_cached(int64_t tokens, CacheMiss miss);

  // Under the stepper's mutex, without callbacks.
  /// Samples the next token from the logits after the last token.
  void sample(std::span<const float> logits);
  /// Ends the request, unless it has ended. Text that was held back is passed on by deliver().
  void end(FinishReason reason);
  void fail(Status status);
  bool has_ended() const { return reason_.has_value() || !status_.ok(); }
  bool has_output() const { return !result_.tokens.empty(); }

  /// Without the mutex: passes on what the last step gave, a token or the end, and calls the callback.
  void deliver();
  /// After deliver(), when the state has been released: wakes wait(). No callback follows.
  void publish();

  bool is_cancelled() const { return cancelled_.load(std::memory_order_relaxed); }
  /// Of an ended request; nullopt: it has failed.
  std::optional<FinishReason> reason() const { return status_.ok() ? reason_ : std::nullopt; }
  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool is_done() const { return done_.load(std::memory_order_acquire); }
  /// Waits for publish(). invalid_argument: the result has been taken.
  Result<GenerateResult> wait();

 private:
  explicit TextGeneration(const TextModel& model, Sampler sampler) : model_(model), sampler_(std::move(sampler)) {}
  bool show(std::string_view text, int32_t token, float logprob, std::span<const TokenLogprob> top);
  void deliver_token();
  void deliver_end();
  double ms_since_start() const;
  /// The logits with tokens that the constraint does not allow at -inf.
  Result<std::span<const float>> constrained(std::span<const float> logits);

  using Clock = std::chrono::steady_clock;
  const TextModel& model_;
  GenerateRequest request_;
  Callback on_piece_;
  Sampler sampler_;
  StopStrings stops_;
  std::unique_ptr<StreamDecoder> decoder_;
  std::optional<ConstraintState> constraint_;
  TokenBits allowed_;            ///< by the constraint; empty without one
  std::vector<float> masked_;    ///< logits of the allowed tokens
  std::vector<int32_t> tokens_;  ///< prompt and output
  std::vector<WeightedAdapter> adapters_;
  std::unique_ptr<SequenceState> state_;
  PrefixKey prefix_key_;
  bool was_admitted_ = false;

  Clock::time_point start_ = Clock::now(), decode_start_;
  double deadline_ms_ = std::numeric_limits<double>::infinity();
  bool has_prefilled_ = false;
  std::optional<int32_t> sampled_;
  float logprob_ = 0;
  std::vector<TokenLogprob> top_;

  GenerateResult result_;
  std::optional<FinishReason> reason_;
  Status status_;
  std::atomic<bool> cancelled_{false}, done_{false};
  std::mutex mutex_;
  std::condition_variable published_;
  bool is_taken_ = false;
};

}  // namespace redline
