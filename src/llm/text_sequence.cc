#include "llm/text_sequence.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <map>
#include <typeinfo>

#include "models/checkpoint/weight_examiner.h"

namespace redline {
namespace {

bool are_numbers(std::span<const float> logits) {
  size_t broken = 0;  // a sum and no early exit: the loop is vectorized
  for (const float logit : logits) broken += logit < std::numeric_limits<float>::infinity() ? 0 : 1;
  return broken == 0;
}

/// Returns a check for Stepper::step(), which writes to `is_broken` whether some of the `count` logits is not finite.
std::function<Status()> finite_logits(const Stepper& stepper, int64_t count, bool& is_broken) {
  return [&stepper, count, &is_broken]() -> Status {
    is_broken = !are_numbers({stepper.logits(), static_cast<size_t>(count)});
    if (is_broken) return internal("a logit is not finite");
    return {};
  };
}

/// Reads the files of the model, which takes time: the caller holds no mutex.
Status explain_logits(const ModelInfo& model) {
  return explain_not_finite(internal("a logit is NaN or +inf; the weights, the adapters or the computation are broken"),
                            model.path);
}

}  // namespace

Result<std::vector<float>> Sequence::forward(const PromptView& tokens, bool all) {
  const int64_t rows = all ? std::ssize(tokens) : 1;
  REDLINE_TRY(check(tokens, tokens.empty() ? 0 : rows));
  std::vector<float> logits;
  try {
    logits.resize(static_cast<size_t>(rows * vocab_size()));
  } catch (const std::exception&) {  // bad_alloc, length_error
    return out_of_memory("no room for the logits of {} tokens over {} words", rows, vocab_size());
  }
  REDLINE_TRY(append(tokens, logits));
  return logits;
}

TextSequence::TextSequence(Stepper& stepper, const ModelInfo& model, std::vector<WeightedAdapter> adapters)
    : stepper_(stepper), model_(model), adapters_(std::move(adapters)) {
  std::lock_guard lock(stepper_.mutex());
  state_ = std::make_unique<SequenceState>(stepper_.pool());
}

TextSequence::~TextSequence() {
  std::lock_guard lock(stepper_.mutex());
  state_.reset();
}

Result<StepEntry> TextSequence::entry(const PromptView& tokens, std::span<const float> logits) const {
  const auto size = static_cast<int64_t>(logits.size());
  if (size % vocab_size() != 0)
    return invalid_argument("room for {} logits is not whole rows of {}", size, vocab_size());
  return entry(tokens, size / vocab_size());
}

StepEntry TextSequence::entry(const PromptView& tokens, int64_t logit_rows) const {
  // If rope depends on the length, all tokens use the length after these tokens.
  return {.state = state_.get(),
          .tokens = tokens,
          .logit_rows = logit_rows,
          .expected_length = state_->length() + std::ssize(tokens),
          .next_position = next_position_.at(state_->length()),
          .adapters = adapters_};
}

Status TextSequence::check(const PromptView& tokens, int64_t rows) const {
  std::lock_guard lock(stepper_.mutex());
  return stepper_.check({.state = state_.get(),
                         .tokens = tokens,
                         .logit_rows = rows,
                         .next_position = next_position_.at(state_->length())});
}

StepEntry TextSequence::step_of(const StepEntry& entry, int64_t begin) const {
  const BatchLimits limits = stepper_.limits();
  const int64_t count = std::ssize(entry.tokens), rows_begin = count - entry.logit_rows;
  int64_t end = std::min(begin + limits.tokens, count);
  if (end > rows_begin) end = std::min(end, std::max(begin, rows_begin) + limits.logit_rows);
  StepEntry step = entry;
  step.tokens = entry.tokens.subview(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  step.next_position += step.tokens.position_after(0) - entry.tokens.position_after(0);
  step.logit_rows = std::max<int64_t>(0, end - std::max(begin, rows_begin));
  return step;
}

Status TextSequence::run_steps(const StepEntry& entry, bool may_stop, bool& is_broken, const AfterStep& after_step) {
  const int64_t count = std::ssize(entry.tokens), length = state_->length();
  REDLINE_TRY(stepper_.check(entry));
  REDLINE_TRY(state_->check_room(count));
  const BatchLimits limits = stepper_.limits();
  // A failed step leaves the state as it was, but a step that has succeeded may have dropped state.
  std::unique_ptr<SequenceState> before;  // null: the length suffices for a rollback
  const bool is_one_step = count <= limits.tokens && entry.logit_rows <= limits.logit_rows;
  if (stepper_.pool().steps_drop_state() && (may_stop || !is_one_step)) {
    before = std::make_unique<SequenceState>(stepper_.pool());
    state_->fork_into(*before);
  }
  Status status;
  for (int64_t done = 0; status.ok() && done < count;) {
    const StepEntry step = step_of(entry, done);
    const int64_t num_logits = step.logit_rows * vocab_size();
    status = stepper_.step({&step, 1}, finite_logits(stepper_, num_logits, is_broken));
    done += std::ssize(step.tokens);
    if (status.ok()) status = after_step(done, {stepper_.logits(), static_cast<size_t>(num_logits)});
  }
  if (status.ok()) {
    note_appended(entry.tokens);
    return status;
  }
  if (before) state_ = std::move(before);
  else state_->truncate(length);
  return status;
}

Status TextSequence::append(const PromptView& tokens, std::span<float> logits) {
  bool is_broken = false;
  const auto run = [&]() -> Status {
    std::lock_guard lock(stepper_.mutex());
    REDLINE_ASSIGN(const StepEntry entry, this->entry(tokens, logits));
    auto out = logits.begin();
    return run_steps(entry, false, is_broken, [&](int64_t, std::span<const float> rows) -> Status {
      out = std::copy(rows.begin(), rows.end(), out);
      return {};
    });
  };
  Status status = run();
  return is_broken ? explain_logits(model_) : status;
}

Status TextSequence::append_in_steps(const PromptView& tokens, int64_t rows, const OnStep& on_step) {
  if (rows < 0) return invalid_argument("logits of {} rows are asked for", rows);
  std::unique_lock lock(stepper_.mutex());
  std::vector<float> logits;
  bool is_broken = false;
  Status status =
      run_steps(entry(tokens, rows), true, is_broken, [&](int64_t done, std::span<const float> step_logits) -> Status {
        logits.assign(step_logits.begin(), step_logits.end());
        lock.unlock();
        const bool goes_on = on_step(done, logits);
        lock.lock();
        return goes_on ? Status() : cancelled("cancelled after {} of {} tokens", done, tokens.size());
      });
  lock.unlock();
  return is_broken ? explain_logits(model_) : status;
}

int64_t TextSequence::truncate(int64_t length) {
  std::lock_guard lock(stepper_.mutex());
  const int64_t left = state_->truncate(length);
  next_position_.truncate(left);
  return left;
}

Result<std::unique_ptr<Sequence>> TextSequence::fork() const {
  auto copy = std::make_unique<TextSequence>(stepper_, model_, adapters_);
  std::lock_guard lock(stepper_.mutex());
  state_->fork_into(*copy->state_);
  copy->next_position_ = next_position_;
  return std::unique_ptr<Sequence>(std::move(copy));
}

Status run_batch(Stepper& stepper, const ModelInfo& model, std::span<BatchEntry> batch) {
  std::unique_lock lock(stepper.mutex());
  const BatchLimits limits = stepper.limits();
  if (batch.empty()) return invalid_argument("the batch is empty");
  if (std::ssize(batch) > limits.sequences)
    return invalid_argument("{} sequences are more than the {} of one step; raise max_sequences{}", batch.size(),
                            limits.sequences, limits.sequences == limits.tokens ? " and max_batch_tokens" : "");
  std::vector<StepEntry> entries;
  std::vector<TextSequence*> sequences;
  std::map<const Sequence*, size_t> first_of;
  int64_t tokens = 0, rows = 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    const auto add = [&]() -> Status {
      if (!batch[i].sequence) return invalid_argument("there is no sequence");
      // The class is final, so a comparison of types says what a dynamic_cast would search for.
      Sequence& given = *batch[i].sequence;
      auto* const sequence = typeid(given) == typeid(TextSequence) ? static_cast<TextSequence*>(&given) : nullptr;
      if (!sequence || sequence->stepper() != &stepper)
        return invalid_argument("the sequence belongs to another engine");
      if (const auto [at, is_new] = first_of.emplace(batch[i].sequence, i); !is_new)
        return invalid_argument("the sequence is that of entry {}; give its tokens as one entry", at->second);
      REDLINE_ASSIGN(const StepEntry entry, sequence->entry(batch[i].tokens, batch[i].logits));
      entries.push_back(entry);
      sequences.push_back(sequence);
      return stepper.check(entry);
    };
    REDLINE_TRY(add().within(fmt::format("batch entry {}", i)));
    tokens += std::ssize(batch[i].tokens);
    rows += entries.back().logit_rows;
  }
  if (tokens > limits.tokens)
    return invalid_argument("{} tokens are more than the {} of one step; send fewer or raise max_batch_tokens", tokens,
                            limits.tokens);
  if (rows > limits.logit_rows)
    return invalid_argument("logits of {} rows are more than the {} of one step; request fewer or pass fewer sequences",
                            rows, limits.logit_rows);
  bool is_broken = false;
  Status status = stepper.step(entries, finite_logits(stepper, rows * model.vocab_size, is_broken));
  if (is_broken) {
    lock.unlock();
    return explain_logits(model);
  }
  REDLINE_TRY(status);
  for (size_t i = 0; i < batch.size(); ++i) sequences[i]->note_appended(batch[i].tokens);
  std::vector<const float*> logits;
  logits.reserve(batch.size());
  int64_t largest = 0;
  const float* row = stepper.logits();
  for (const BatchEntry& entry : batch) {
    logits.push_back(row);
    row += entry.logits.size();
    largest = std::max(largest, std::ssize(entry.logits));
  }
  stepper.for_each(std::ssize(batch), largest, [&](int64_t i) {
    const std::span<float> to = batch[static_cast<size_t>(i)].logits;
    std::copy_n(logits[static_cast<size_t>(i)], to.size(), to.data());
  });
  return {};
}

}  // namespace redline
