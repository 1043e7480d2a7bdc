#include "llm/text_sequence.h"

#include <algorithm>
#include <exception>

namespace redline {

Result<std::vector<float>> Sequence::forward(std::span<const int32_t> tokens, bool all) {
  const auto rows = all ? static_cast<int64_t>(tokens.size()) : 1;
  std::vector<float> logits;
  try {
    logits.resize(static_cast<size_t>(rows * vocab_size()));
  } catch (const std::exception&) {  // bad_alloc, length_error
    return out_of_memory("no room for the logits of {} tokens over {} words", rows, vocab_size());
  }
  REDLINE_TRY(append(tokens, logits));
  return logits;
}

TextSequence::TextSequence(Stepper& stepper, int64_t vocab_size) : stepper_(stepper), vocab_size_(vocab_size) {
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
  return StepEntry{state_.get(), tokens, size / vocab_size_, expected_length_};
}

// In steps of at most max_batch_tokens; rows of logits are at the end.
Status TextSequence::append(std::span<const int32_t> tokens, std::span<float> logits) {
  std::lock_guard lock(stepper_.mutex());
  REDLINE_ASSIGN(StepEntry entry, this->entry(tokens, logits));
  if (tokens.empty() && !logits.empty()) entry.logit_rows = 0;
  REDLINE_TRY(stepper_.check(entry));
  REDLINE_TRY(state_->expect_room(std::ssize(tokens)));
  const BatchLimits limits = stepper_.limits();
  const int64_t before = state_->length(), count = std::ssize(tokens), rows_begin = count - entry.logit_rows;
  entry.expected_length = std::max(entry.expected_length, before + count);
  float* out = logits.data();
  for (int64_t begin = 0; begin < count;) {
    int64_t end = std::min(begin + limits.tokens, count);
    if (end > rows_begin) end = std::min(end, std::max(begin, rows_begin) + limits.logit_rows);
    entry.tokens = tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    entry.logit_rows = std::max<int64_t>(0, end - std::max(begin, rows_begin));
    if (Status status = stepper_.step({&entry, 1}); !status.ok()) {
      state_->truncate(before);
      return status;
    }
    out = std::copy_n(stepper_.logits(), entry.logit_rows * vocab_size_, out);
    begin = end;
  }
  return {};
}

int64_t TextSequence::truncate(int64_t length) {
  std::lock_guard lock(stepper_.mutex());
  return state_->truncate(length);
}

Result<std::unique_ptr<Sequence>> TextSequence::fork() const {
  auto copy = std::make_unique<TextSequence>(stepper_, vocab_size_);
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
  int64_t tokens = 0, rows = 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    const auto add = [&]() -> Status {
      const auto* sequence = dynamic_cast<const TextSequence*>(batch[i].sequence);
      if (!batch[i].sequence) return invalid_argument("there is no sequence");
      if (!sequence || sequence->stepper() != &stepper)
        return invalid_argument("the sequence belongs to another engine");
      for (size_t j = 0; j < i; ++j)
        if (batch[j].sequence == batch[i].sequence)
          return invalid_argument("the sequence is that of entry {}; give its tokens as one entry", j);
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
    return invalid_argument("logits of {} rows are more than the {} of one step; ask for fewer or send fewer sequences",
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
