// One step of the engine: validates the rows of one or several sequences, runs them, and rolls back on failure.
#include <algorithm>
#include <cstring>

#include "llm/session.h"

namespace redline {
namespace {

SequenceSession* session_of(const BatchEntry& entry) { return static_cast<SequenceSession*>(entry.session); }

int64_t num_tokens(const BatchEntry& entry) { return static_cast<int64_t>(entry.tokens.size()); }

/// The sequence length for dynamic rope scaling.
int64_t total_length(const BatchEntry& entry, int64_t context) {
  return std::clamp(entry.total_length, entry.session->length() + num_tokens(entry), context);
}

}  // namespace

Status LlmEngine::check(const BatchEntry& entry) const {
  const auto* session = dynamic_cast<const SequenceSession*>(entry.session);
  if (!entry.session) return invalid_argument("there is no session");
  if (!session || &session->engine_ != this) return invalid_argument("the session belongs to another engine");
  const int64_t count = num_tokens(entry), vocab = info_.vocab_size, context = info_.context;
  if (count == 0) return invalid_argument("no tokens to run");
  for (const int32_t id : entry.tokens)
    if (id < 0 || id >= vocab) return invalid_argument("token {} is outside the vocabulary of {}", id, vocab);
  if (session->length_ + count > context)
    return invalid_argument("{} tokens do not fit: the context holds {}, {} are taken", count, context,
                            session->length_);
  if (entry.logit_rows < 0 || entry.logit_rows > count)
    return invalid_argument("logits of {} rows are asked for, there are {} tokens", entry.logit_rows, count);
  return {};
}

Status LlmEngine::run_batch(std::span<BatchEntry> batch) {
  std::lock_guard lock(mutex_);
  if (batch.empty()) return invalid_argument("the batch is empty");
  if (static_cast<int64_t>(batch.size()) > max_sequences_)
    return invalid_argument("{} sequences are more than the {} of one step; raise max_sequences{}", batch.size(),
                            max_sequences_, max_sequences_ == max_batch_tokens_ ? " and max_batch_tokens" : "");
  int64_t tokens = 0, rows = 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    REDLINE_TRY(check(batch[i]).within(fmt::format("batch entry {}", i)));
    for (size_t j = 0; j < i; ++j)
      if (batch[j].session == batch[i].session)
        return invalid_argument("batch entry {}: the session is that of entry {}; give its tokens as one entry", i, j);
    tokens += num_tokens(batch[i]);
    rows += batch[i].logit_rows;
  }
  if (tokens > max_batch_tokens_)
    return invalid_argument("{} tokens are more than the {} of one step; send fewer or raise max_batch_tokens", tokens,
                            max_batch_tokens_);
  if (rows > max_logit_rows_)
    return invalid_argument("logits of {} rows are more than the {} of one step; ask for fewer or send fewer sequences",
                            rows, max_logit_rows_);
  return step(batch);
}

Status LlmEngine::step(std::span<BatchEntry> batch) {
  auto run = [&]() -> Status {
    for (const BatchEntry& entry : batch)
      REDLINE_TRY(session_of(entry)->grow(entry.session->length() + num_tokens(entry)));
    return interpreter_ ? run_interpreter(batch) : run_program(batch);
  };
  if (Status status = run(); !status.ok()) {
    for (const BatchEntry& entry : batch) session_of(entry)->forget();
    return status;
  }
  const float* logits =
      interpreter_ ? interpreted_logits_.data() : static_cast<const float*>(runner_->host_output("logits"));
  for (BatchEntry& entry : batch) {
    session_of(entry)->length_ += num_tokens(entry);
    entry.logits = {logits, static_cast<size_t>(entry.logit_rows * info_.vocab_size)};
    logits += entry.logits.size();
  }
  return {};
}

Status LlmEngine::run_program(std::span<const BatchEntry> batch) {
  auto port = [&](const char* name) { return static_cast<int32_t*>(runner_->host_input(name)); };
  int32_t *tokens = port("tokens"), *positions = port("positions"), *lengths = port("lengths"), *slots = port("slots"),
          *logit_rows = port("logit_rows");
  step_rows_.clear();
  step_pages_.clear();
  int32_t row = 0;
  int64_t num_logit_rows = 0;
  for (const BatchEntry& entry : batch) {
    const PageTable& pages = static_cast<const CompiledSession*>(session_of(entry))->pages();
    const int64_t first = entry.session->length(), n = num_tokens(entry);
    const auto total = static_cast<int32_t>(total_length(entry, info_.context));
    std::memcpy(tokens + row, entry.tokens.data(), entry.tokens.size_bytes());
    for (int64_t i = 0; i < n; ++i) {
      positions[row + i] = static_cast<int32_t>(first + i);
      lengths[row + i] = total;
      slots[row + i] = pages.slot(first + i);
    }
    step_rows_.push_back({row, static_cast<int32_t>(n), first});
    step_pages_.push_back(pages.pages());
    row += static_cast<int32_t>(n);
    for (int64_t i = entry.logit_rows; i > 0; --i) logit_rows[num_logit_rows++] = row - static_cast<int32_t>(i);
  }
  plan_->make(step_rows_, plan_window_);
  AttentionStep attention;
  attention.cache = cache_->view();
  plan_->fill(attention);
  attention.pages = step_pages_.data();
  StepContext context;
  context.sizes[Symbol::kTokens] = row;
  context.sizes[Symbol::kSequences] = static_cast<int64_t>(batch.size());
  context.sizes[Symbol::kLogitRows] = num_logit_rows;
  context.attention = &attention;
  return runner_->step(context);
}

// The reference handles one sequence at a time.
Status LlmEngine::run_interpreter(std::span<const BatchEntry> batch) {
  auto vector = [&](int64_t n, auto&& at) {
    HostTensor t;
    t.shape = {n};
    for (int64_t i = 0; i < n; ++i) t.data.push_back(static_cast<double>(at(i)));
    return t;
  };
  interpreted_logits_.clear();
  for (const BatchEntry& entry : batch) {
    const int64_t first = entry.session->length(), n = num_tokens(entry), rows = entry.logit_rows;
    std::map<std::string, HostTensor> inputs;
    inputs["tokens"] = vector(n, [&](int64_t i) { return entry.tokens[static_cast<size_t>(i)]; });
    inputs["positions"] = vector(n, [&](int64_t i) { return first + i; });
    inputs["lengths"] = vector(n, [&](int64_t) { return total_length(entry, info_.context); });
    inputs["slots"] = vector(n, [](int64_t) { return 0; });
    inputs["logit_rows"] = vector(rows, [&](int64_t i) { return n - rows + i; });
    SymbolValues sizes;
    sizes[Symbol::kTokens] = n;
    sizes[Symbol::kSequences] = 1;
    sizes[Symbol::kLogitRows] = rows;
    auto outputs = interpreter_->run(inputs, sizes, static_cast<InterpretedSession*>(session_of(entry))->cache());
    REDLINE_TRY(outputs);
    for (const double logit : (*outputs)["logits"].data) interpreted_logits_.push_back(static_cast<float>(logit));
  }
  return {};
}

BatchLimits LlmEngine::batch_limits() const {
  return {max_batch_tokens_, max_sequences_, max_logit_rows_, cache_pages_ * kPageTokens, kPageTokens};
}

int64_t LlmEngine::free_cache_tokens() const {
  if (!cache_) return batch_limits().cache_tokens;  // the interpreter's caches grow with their sequences
  std::lock_guard lock(mutex_);
  return cache_->pages().num_free() * kPageTokens;
}

}  // namespace redline
