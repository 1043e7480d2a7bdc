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
#include <string_view>
#include <utility>
#include <vector>

#include "chat/reasoning_tracker.h"
#include "llm/prefix_cache.h"
#include "llm/sampler.h"
#include "llm/state_pool.h"
#include "llm/stop_strings.h"
#include "llm/text_model.h"

namespace redline {

/// Called by the thread that runs the steps, except for cancel(), is_done() and wait(), which are thread-safe.
///
/// sample() decides from the token alone whether the request continues. Delivery (constraint, text, stop strings,
/// callback) may run on another thread during the next step: begin_delivery() starts it, prepare() and deliver() do it,
/// settle() applies its results. A constraint that takes long is prepared on yet another thread: the request is late
/// then, its next logits are held, and it takes part in no step until they have been sampled.
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
  bool has_prefilled() const { return has_prefilled_; }
  std::unique_ptr<SequenceState>& state() { return state_; }
  const std::unique_ptr<SequenceState>& state() const { return state_; }
  std::span<const WeightedAdapter> adapters() const { return adapters_; }
  const PrefixKey& prefix_key() const { return prefix_key_; }
  /// GenerateRequest::client up to its first line break, and what follows that: a user of this client.
  std::string_view client() const { return std::string_view(request_.client).substr(0, request_.client.find('\n')); }
  std::string_view user() const {
    const size_t end = request_.client.find('\n');
    return end == std::string::npos ? std::string_view() : std::string_view(request_.client).substr(end + 1);
  }
  int priority() const { return request_.priority; }
  /// In time of now_ms().
  double deadline_ms() const { return deadline_ms_; }
  static double now_ms();
  /// What the prefix cache gave when the request was admitted for the first time.
  void set_cached(int64_t tokens, CacheMiss miss);

  // Under the stepper's mutex, without callbacks.
  /// Samples the next token from the logits after the last token, and ends the request if that is its last one. After
  /// prepare() of the token before. Different requests may sample at the same time. `sampled`: the token, if the device
  /// has sampled it as device_sample() said.
  void sample(std::span<const float> logits, int32_t sampled = -1);
  /// Before the step that computes these logits.
  SampleRow device_sample();
  /// Ends the request, unless it has ended. Text that was held back is passed on by deliver().
  void end(FinishReason reason);
  void fail(Status status);
  bool has_ended() const { return reason_.has_value() || !status_.ok(); }
  bool has_output() const { return num_sampled_ > 0; }

  /// Takes what the last step gave for delivery: a token, the end, or, if the request `ran`, the progress of its
  /// prompt. False: there is nothing.
  bool begin_delivery(bool ran);
  /// There is a token to move the constraint on by, and prepare() has not begun.
  bool needs_preparation() const;
  /// Moves the constraint on by the token and computes what may follow.
  void prepare();
  // prepare() on another thread than the others: begin_, then end_preparation() on that thread.
  void begin_preparation() { is_prepared_.store(false, std::memory_order_relaxed); }
  void end_preparation() { is_prepared_.store(true, std::memory_order_release); }
  bool is_prepared() const { return is_prepared_.load(std::memory_order_acquire); }
  /// The step after does not wait for the preparation, and the delivery is put off.
  void set_late(bool is_late) { is_late_ = is_late; }
  bool is_late() const { return is_late_; }
  /// Keeps the logits of a late request for sample_held().
  void hold(std::span<const float> logits) { held_.assign(logits.begin(), logits.end()); }
  bool has_held() const { return !held_.empty(); }
  /// Before the state that gave them is released: they are computed again.
  void drop_held() { held_ = {}; }
  void sample_held() { sample(std::exchange(held_, {})); }
  /// Without the stepper's mutex, after prepare(): passes on the token or the end and calls the callback.
  void deliver();
  /// After deliver(): an end that it found counts from now on, also against a later one. Returns the number of tokens
  /// that were delivered.
  int64_t settle();
  /// The end has been delivered.
  bool is_settled() const { return is_settled_; }
  /// After settle(), when the state has been released: wakes wait(). No callback follows.
  void publish();

  bool is_cancelled() const { return cancelled_.load(std::memory_order_relaxed); }
  /// Of an ended request; nullopt: it has failed.
  std::optional<FinishReason> reason() const { return status_.ok() ? reason_ : std::nullopt; }
  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool is_done() const { return done_.load(std::memory_order_acquire); }
  /// Waits for publish(). invalid_argument: the result has been taken.
  Result<GenerateResult> wait();

 private:
  struct Sampled {
    int32_t token = -1;
    bool ends_text = false;  ///< a stop token, which is not shown
    float logprob = 0;
    std::vector<TokenLogprob> top;
  };
  struct Delivery {
    bool is_pending = false;
    bool is_prepared = false;  ///< by prepare()
    std::optional<Sampled> sampled;
    std::optional<FinishReason> reason;  ///< as the step left it; then what the delivery found
    Status status;
    bool completes_constraint = false;
    int64_t tokens = 0;
  };
  explicit TextGeneration(const TextModel& model, Sampler sampler) : model_(model), sampler_(std::move(sampler)) {}
  Result<Sampled> take(std::span<const float> logits);
  void accept_prompt();
  bool is_stop_token(int32_t token) const;
  bool show(std::string_view text, int32_t token, float logprob, std::span<const TokenLogprob> top);
  std::string shown_of(std::string_view text);
  bool may_close_reasoning() const;
  void deliver_token(const Sampled& sampled);
  void deliver_end();
  double ms_since_start() const;
  /// The logits with tokens that the constraint does not allow at -inf.
  Result<std::span<const float>> constrained(std::span<const float> logits);
  /// The same with those of tokens that end the text, before there are min_tokens.
  std::span<const float> without_stops(std::span<const float> logits);

  using Clock = std::chrono::steady_clock;
  const TextModel& model_;
  GenerateRequest request_;
  Callback on_piece_;
  Sampler sampler_;
  StopStrings stops_;
  std::unique_ptr<ChatOutputParser> answer_;  ///< where stop strings act on a part of the text; null: on all of it
  std::string undecided_;                     ///< text that may become a marker
  /// Tracks the reasoning before a constrained answer. If the model ends its text there, the end marker of the
  /// reasoning is written instead, and then the answer.
  std::optional<ReasoningTracker> reasoning_;
  std::vector<int32_t> closing_;  ///< the tokens of the end marker
  size_t num_closed_ = 0;         ///< those of them that are taken
  std::unique_ptr<StreamDecoder> decoder_;
  std::optional<ConstraintState> constraint_;
  TokenBits allowed_;  ///< by the constraint; empty without one
  bool has_mask_ = false, is_late_ = false;
  std::atomic<bool> is_prepared_{true};
  std::vector<float> held_;  ///< logits that wait for the constraint
  Status mask_status_;
  std::vector<float> masked_;    ///< logits of the allowed tokens; empty where all are
  std::vector<int32_t> tokens_;  ///< prompt and output
  std::vector<WeightedAdapter> adapters_;
  std::unique_ptr<SequenceState> state_;
  PrefixKey prefix_key_;
  bool was_admitted_ = false;

  Clock::time_point start_ = Clock::now(), decode_start_;
  double deadline_ms_ = std::numeric_limits<double>::infinity();
  bool has_prefilled_ = false, has_accepted_prompt_ = false, is_settled_ = false;
  int64_t num_sampled_ = 0;
  std::optional<Sampled> sampled_;
  Delivery delivery_;

  GenerateResult result_;
  std::optional<FinishReason> reason_;
  Status status_;
  std::atomic<bool> cancelled_{false}, done_{false};
  std::mutex mutex_;
  std::condition_variable published_;
  bool is_taken_ = false;
};

}  // namespace redline
