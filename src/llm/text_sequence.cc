#include "llm/text_sequence.h"

#include <algorithm>
#include <exception>
#include <map>

namespace redline {

Result<std::vector<float>> Sequence::forward(std::span<const int32_t> tokens, bool all) {
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

TextSequence::TextSequence(Stepper& stepper, int64_t vocab_size, std::vector<WeightedAdapter> adapters)
    : stepper_(stepper), vocab_size_(vocab_size), adapters_(std::move(adapters)) {
  std::lock_guard lock(stepper_.mutex());
  state_ = std::make_unique<SequenceState>(stepper_.pool());
}

TextSequence::~TextSequence() {
  std::lock_guard lock(stepper_.mutex());
  state_.reset();
}

Result<StepEntry> TextSequence::entry(std::span<const int32_t> tokens, std::span<const float> logits) const {
  const auto size = static_cast<int64_t>(logits.size());
  if (size % vocab_size_ != 0) return invalid_argument("room for {} logits is not whole rows of {}", size, vocab_size_);
  // Rope that depends on the length takes that after these tokens, for all of them.
  return StepEntry{state_.get(), tokens, size / vocab_size_,
                   std::max(expected_length_, state_->length() + std::ssize(tokens)), adapters_};
}

Status TextSequence::check(std::span<const int32_t> tokens, int64_t rows) const {
  std::lock_guard lock(stepper_.mutex());
  return stepper_.check({state_.get(), tokens, rows});
}

Status TextSequence::append(std::span<const int32_t> tokens, std::span<float> logits) {
  std::lock_guard lock(stepper_.mutex());
  REDLINE_ASSIGN(const StepEntry entry, this->entry(tokens, logits));
  REDLINE_TRY(stepper_.check(entry));
  REDLINE_TRY(state_->check_room(std::ssize(tokens)));
  const BatchLimits limits = stepper_.limits();
  const bool is_one_step = std::ssize(tokens) <= limits.tokens && entry.logit_rows <= limits.logit_rows;
  std::unique_ptr<SequenceState> before;
  if (!is_one_step && stepper_.pool().steps_drop_state()) {
    before = std::make_unique<SequenceState>(stepper_.pool());
    state_->fork_into(*before);
  }
  const int64_t length = state_->length();
  Status status = append_steps(entry, logits);
  if (status.ok()) return status;
  if (before) state_ = std::move(before);
  else state_->truncate(length);
  return status;
}

Status TextSequence::append_steps(StepEntry entry, std::span<float> logits) {
  const BatchLimits limits = stepper_.limits();
  const std::span<const int32_t> tokens = entry.tokens;
  const int64_t count = std::ssize(tokens), rows_begin = count - entry.logit_rows;
  float* out = logits.data();
  for (int64_t begin = 0; begin < count;) {
    int64_t end = std::min(begin + limits.tokens, count);
    if (end > rows_begin) end = std::min(end, std::max(begin, rows_begin) + limits.logit_rows);
    entry.tokens = tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    entry.logit_rows = std::max<int64_t>(0, end - std::max(begin, rows_begin));
    REDLINE_TRY(stepper_.step({&entry, 1}));
    out = std::copy_n(stepper_.logits(), entry.logit_rows * vocab_size_, out);
    begin = end;
  }
  return {};
}

int64_t TextSequence::truncate(int64_t length) {
  std::lock_guard lock(stepper_.mutex());
  const int64_t kept = state_->truncate(length);
  if (kept == 0) expected_length_ = 0;
  return kept;
}

Result<std::unique_ptr<Sequence>> TextSequence::fork() const {
  auto copy = std::make_unique<TextSequence>(stepper_, vocab_size_, adapters_);
  copy->expected_length_ = expected_length_;
  std::lock_guard lock(stepper_.mutex());
  state_->fork_into(*copy->state_);
  return std::unique_ptr<Sequence>(std::move(copy));
}

Status run_batch(Stepper& stepper, int64_t vocab_size, std::span<BatchEntry> batch) {
  std::lock_guard lock(stepper.mutex());
  const BatchLimits limits = stepper.limits();
  if (batch.empty()) return invalid_argument("the batch is empty");
  if (std::ssize(batch) > limits.sequences)
    return invalid_argument("{} sequences are more than the {} of one step; raise max_sequences{}", batch.size(),
                            limits.sequences, limits.sequences == limits.tokens ? " and max_batch_tokens" : "");
  std::vector<StepEntry> entries;
  std::map<const Sequence*, size_t> first_of;
  int64_t tokens = 0, rows = 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    const auto add = [&]() -> Status {
      const auto* sequence = dynamic_cast<const TextSequence*>(batch[i].sequence);
      if (!batch[i].sequence) return invalid_argument("there is no sequence");
      if (!sequence || sequence->stepper() != &stepper)
        return invalid_argument("the sequence belongs to another engine");
      if (const auto [at, is_new] = first_of.emplace(batch[i].sequence, i); !is_new)
        return invalid_argument("the sequence is that of entry {}; give its tokens as one entry", at->second);
      REDLINE_ASSIGN(const StepEntry entry, sequence->entry(batch[i].tokens, batch[i].logits));
      entries.push_back(entry);
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
  REDLINE_TRY(stepper.step(entries));
  const float* logits = stepper.logits();
  for (const BatchEntry& entry : batch) {
    std::copy_n(logits, entry.logits.size(), entry.logits.data());
    logits += entry.logits.size();
  }
  return {};
}

}  // namespace redline
