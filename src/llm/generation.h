// One text request: its tokens, its state, and the processing of each sampled token.
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
#include "llm/drafters/drafter.h"
#include "llm/prefix_cache.h"
#include "llm/sampler.h"
#include "llm/state_pool.h"
#include "llm/stop_strings.h"
#include "llm/text_model.h"

namespace redline {

/// A request in progress. The thread that runs the steps calls its functions, except cancel(), is_done() and wait(),
/// which are thread-safe.
///
/// sample() decides from the token alone whether the request continues. Delivery (constraint, text, stop strings,
/// callback) may run on another thread during the next step: begin_delivery() starts it, prepare() and deliver() do it,
/// settle() applies its results. A slow constraint is prepared on a third thread. The request is then late: its next
/// logits are held back, and it takes part in no step until they have been sampled.
///
/// With a drafter a step may compute the logits after several drafted tokens. sample_rows() samples row after row, and
/// stops where the sampled token is not the drafted one. Nothing that remembers tokens sees a drafted token before it
/// has been sampled, so that every option has the same effect with and without drafts. The caller then shortens the
/// state to the rows that were used.
class TextGeneration {
 public:
  using Callback = std::function<bool(const TextPiece&)>;
  /// `model` must outlive the steps of the request. invalid_argument: as TextEngine::generate.
  static Result<std::shared_ptr<TextGeneration>> make(const TextModel& model, const GenerateRequest& request,
                                                      Callback on_piece);

  /// Returns the tokens that are not in the state yet: the rest of the prompt, or the last sampled token.
  PromptView pending() const;
  /// Returns the content keys of prompt and output.
  std::span<const ContentKey> keys() const { return text_.keys(); }
  int64_t prompt_tokens() const { return result_.prompt_tokens; }
  int64_t cached_tokens() const { return result_.cached_tokens; }
  bool has_prefilled() const { return has_prefilled_; }
  std::unique_ptr<SequenceState>& state() { return state_; }
  const std::unique_ptr<SequenceState>& state() const { return state_; }
  std::span<const WeightedAdapter> adapters() const { return adapters_; }
  const PrefixKey& prefix_key() const { return prefix_key_; }
  /// client() is GenerateRequest::client up to its first line break; user() is the rest, which names a user of this
  /// client.
  std::string_view client() const { return std::string_view(request_.client).substr(0, request_.client.find('\n')); }
  std::string_view user() const {
    const size_t end = request_.client.find('\n');
    return end == std::string::npos ? std::string_view() : std::string_view(request_.client).substr(end + 1);
  }
  int priority() const { return request_.priority; }
  /// Time of now_ms() at which the request times out.
  double deadline_ms() const { return deadline_ms_; }
  static double now_ms();
  /// Sets the result of the prefix cache's lookup, made when the request is admitted for the first time.
  void set_cached(int64_t tokens, CacheMiss miss);

  // The caller of these functions holds the stepper's mutex; they make no callbacks.
  /// Samples the next token from the logits after the last token, and ends the request if it is the last one. prepare()
  /// must have run for the previous token. Different requests may sample at the same time. `sampled`: the token that
  /// the device has sampled according to device_samples(); -1: none.
  void sample(std::span<const float> logits, int32_t sampled = -1);
  /// Calls sample() for the rows of logits after the last token and after each token of draft(), as long as the
  /// sampled token is the drafted one. `sampled`: the argument of sample() for each row; empty: none. Returns the
  /// number of rows used, at least 1.
  int64_t sample_rows(std::span<const float> logits, std::span<const int32_t> sampled);
  /// Returns how the device may sample the next token, and the tokens after each of draft(). Empty: the host samples
  /// all. Called before the step that computes the logits.
  std::vector<SampleRow> device_samples();

  /// Sets the drafter of the request, and the maximum number of tokens that it drafts in one step.
  void set_drafter(std::unique_ptr<Drafter> drafter, int64_t max_tokens);
  /// Returns the maximum number of tokens that the next step may draft for this request.
  int64_t max_draft() const;
  /// Drafts at most `max_tokens` tokens, up to max_draft(). Returns the pending token and the drafted ones, valid until
  /// the next call.
  std::span<const int32_t> draft(int64_t max_tokens);
  /// Returns how many tokens of the last draft were sampled.
  int64_t accepted_of_last_draft() const { return num_accepted_; }
  /// Ends the request, unless it has ended. Text that was held back is passed on by deliver().
  void end(FinishReason reason);
  void fail(Status status);
  bool has_ended() const { return reason_.has_value() || !status_.ok(); }
  bool has_output() const { return num_sampled_ > 0; }

  /// Takes the result of the last step for delivery: a token, the end, or, if the request `ran`, the progress of its
  /// prompt. Returns false if there is nothing to deliver.
  bool begin_delivery(bool ran);
  /// Returns true if the constraint must advance by a token and prepare() has not begun.
  bool needs_preparation() const;
  /// Advances the constraint by the token and computes the tokens that may follow.
  void prepare();
  // For prepare() on another thread: begin_preparation() before it, end_preparation() on that thread after it.
  void begin_preparation() { is_prepared_.store(false, std::memory_order_relaxed); }
  void end_preparation() { is_prepared_.store(true, std::memory_order_release); }
  bool is_prepared() const { return is_prepared_.load(std::memory_order_acquire); }
  /// Sets whether the request is late: steps do not wait for its preparation, and its delivery is postponed.
  void set_late(bool is_late) { is_late_ = is_late; }
  bool is_late() const { return is_late_; }
  /// Keeps the logits of a late request for sample_held().
  void hold(std::span<const float> logits) { held_.assign(logits.begin(), logits.end()); }
  bool has_held() const { return !held_.empty(); }
  /// Drops the held logits, before the state that gave them is released; they are computed again later.
  void drop_held() { held_ = {}; }
  void sample_held() { sample(std::exchange(held_, {})); }
  /// Adds the token or the end to the text and calls the callback. Called after prepare(), without the stepper's mutex.
  void deliver();
  /// Applies the result of deliver(): if the delivery has ended the text, the request ends, even if the step gave a
  /// later end. Returns the number of delivered tokens.
  int64_t settle();
  /// Returns true if the end has been delivered.
  bool is_settled() const { return is_settled_; }
  /// Wakes wait(). Called after settle(), when the state has been released; no callback follows.
  void publish();

  bool is_cancelled() const { return cancelled_.load(std::memory_order_relaxed); }
  /// Returns the reason of an ended request; nullopt if it has failed.
  std::optional<FinishReason> reason() const { return status_.ok() ? reason_ : std::nullopt; }
  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool is_done() const { return done_.load(std::memory_order_acquire); }
  /// Waits for publish() and takes the result. invalid_argument: the result has been taken.
  Result<GenerateResult> wait();

 private:
  struct Sampled {
    int32_t token = -1;
    bool ends_text = false;  ///< a stop token, which is not shown
    /// The constraint has advanced by the token, which has completed it or is an error with this status.
    bool is_advanced = false, completes_constraint = false;
    Status status;
    float logprob = 0;
    std::vector<TokenLogprob> top;
  };
  struct Delivery {
    bool is_pending = false;
    bool is_prepared = false;  ///< prepare() has begun
    std::vector<Sampled> sampled;
    // The end given by the step, which follows its tokens; replaced by the one that the delivery finds.
    std::optional<FinishReason> reason;
    Status status;
    int64_t tokens = 0;
  };
  explicit TextGeneration(const TextModel& model, Sampler sampler) : model_(model), sampler_(std::move(sampler)) {}
  Result<Sampled> take(std::span<const float> logits);
  void accept_prompt();
  /// Advances the constraint by a token and, if `goes_on`, computes the tokens that may follow.
  void advance_constraint(Sampled& sampled, bool goes_on);
  bool is_stop_token(int32_t token) const;
  bool is_context_full() const;
  bool show(std::string_view text, int32_t token, float logprob, std::span<const TokenLogprob> top);
  std::string shown_of(std::string_view text);
  bool may_close_reasoning() const;
  void deliver_token(const Sampled& sampled);
  void deliver_end();
  double ms_since_start() const;
  /// Returns the logits, with those of tokens that the constraint forbids set to -inf.
  Result<std::span<const float>> constrained(std::span<const float> logits);
  /// Returns the logits, with those of tokens that end the text set to -inf while there are fewer than min_tokens.
  std::span<const float> without_stops(std::span<const float> logits);

  using Clock = std::chrono::steady_clock;
  const TextModel& model_;
  GenerateRequest request_;  ///< without its prompt
  Callback on_piece_;
  Sampler sampler_;
  StopStrings stops_;
  /// parses the answer if stop strings apply to a part of it; null: to all of it
  std::unique_ptr<ChatOutputParser> answer_;
  std::string undecided_;  ///< text that may become a marker
  /// Tracks the reasoning before a constrained answer. If the model ends its text there, the end marker of the
  /// reasoning is written instead, and then the answer.
  std::optional<ReasoningTracker> reasoning_;
  std::vector<int32_t> closing_;  ///< the tokens of the end marker
  size_t num_closed_ = 0;         ///< number of tokens of closing_ that have been sampled
  std::unique_ptr<StreamDecoder> decoder_;
  std::optional<ConstraintState> constraint_;
  TokenBits allowed_;  ///< tokens that the constraint allows; empty without a constraint
  bool has_mask_ = false, is_late_ = false;
  std::atomic<bool> is_prepared_{true};
  std::vector<float> held_;  ///< logits that wait for the constraint
  Status mask_status_;
  std::vector<float> masked_;  ///< logits of the allowed tokens; empty if all are allowed
  Prompt text_;                ///< prompt and output
  std::vector<WeightedAdapter> adapters_;
  std::unique_ptr<SequenceState> state_;
  PrefixKey prefix_key_;
  bool was_admitted_ = false;

  Clock::time_point start_ = Clock::now(), decode_start_;
  double deadline_ms_ = std::numeric_limits<double>::infinity();
  bool has_prefilled_ = false, has_accepted_prompt_ = false, is_settled_ = false;
  int64_t num_sampled_ = 0;
  std::vector<Sampled> sampled_;  ///< tokens of the last step
  std::unique_ptr<Drafter> drafter_;
  int64_t max_draft_ = 0;       ///< maximum number of drafted tokens of one step
  std::vector<int32_t> draft_;  ///< the pending token and the drafted ones; empty: nothing is drafted
  size_t num_observed_ = 0;     ///< number of tokens that the drafter knows
  int64_t num_accepted_ = 0;    ///< accepted tokens of the last draft
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
