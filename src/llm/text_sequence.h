// Implements Sequence of include/redline/text.h.
#pragma once

#include "llm/next_position.h"
#include "llm/stepper.h"

namespace redline {

class TextSequence final : public Sequence {
 public:
  /// `stepper` and `model` must outlive the sequence.
  TextSequence(Stepper& stepper, const ModelInfo& model, std::vector<WeightedAdapter> adapters);
  ~TextSequence() override;

  Status append(const PromptView& tokens, std::span<float> logits) override;
  int64_t length() const override { return state_->length(); }
  int64_t truncate(int64_t length) override;
  Result<std::unique_ptr<Sequence>> fork() const override;
  Status append_in_steps(const PromptView& tokens, int64_t rows, const OnStep& on_step) override;

  const Stepper* stepper() const { return &stepper_; }
  /// Makes the step entry that appends `tokens`. invalid_argument: `logits` are not whole rows.
  Result<StepEntry> entry(const PromptView& tokens, std::span<const float> logits) const;
  StepEntry entry(const PromptView& tokens, int64_t logit_rows) const;
  /// Notes that a step has appended `tokens` to the state.
  void note_appended(const PromptView& tokens) { next_position_.append(state_->length() - std::ssize(tokens), tokens); }

 private:
  int64_t vocab_size() const override { return model_.vocab_size; }
  Status check(const PromptView& tokens, int64_t rows) const override;
  /// Called after each step of an append. `done`: tokens appended so far; the logits of the step's rows are valid
  /// during the call.
  using AfterStep = std::function<Status(int64_t done, std::span<const float> logits)>;
  /// Runs the steps of an append. If one of them or `after_step` fails, or logits are not finite, the sequence does not
  /// change. `may_stop`: `after_step` can fail. `is_broken`: set to whether logits are not finite; `after_step` is not
  /// called with them. The caller holds the stepper's mutex.
  Status run_steps(const StepEntry& entry, bool may_stop, bool& is_broken, const AfterStep& after_step);
  /// Returns the part of `entry` from token `begin` on that fits in one step.
  StepEntry step_of(const StepEntry& entry, int64_t begin) const;
  Stepper& stepper_;
  const ModelInfo& model_;
  std::vector<WeightedAdapter> adapters_;
  std::unique_ptr<SequenceState> state_;  // changed only while the stepper's mutex is held
  NextPosition next_position_;            // as state_
};

/// Implements TextEngine::run_batch(): runs one step for several sequences.
Status run_batch(Stepper& stepper, const ModelInfo& model, std::span<BatchEntry> batch);

}  // namespace redline
