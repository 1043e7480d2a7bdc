#include "llm/session.h"

#include <algorithm>
#include <cstring>

namespace redline {

Result<std::span<const float>> SequenceSession::forward(std::span<const int32_t> tokens, bool all,
                                                        int64_t total_length) {
  std::lock_guard lock(engine_.mutex_);
  const int64_t vocab = engine_.info_.vocab_size, context = engine_.info_.context;
  const auto count = static_cast<int64_t>(tokens.size());
  if (count == 0) return invalid_argument("no tokens to run");
  for (int32_t id : tokens)
    if (id < 0 || id >= vocab) return invalid_argument("token {} is outside the vocabulary of {}", id, vocab);
  if (length_ + count > context)
    return invalid_argument("{} tokens do not fit: the context holds {}, {} are taken", count, context, length_);
  try {
    logits_.resize(static_cast<size_t>((all ? count : 1) * vocab));
  } catch (const std::exception&) {  // bad_alloc, length_error
    return out_of_memory("no room for the logits of {} tokens over {} words", count, vocab);
  }
  REDLINE_TRY(append(tokens, all, std::max(total_length, length_ + count)));
  return std::span<const float>(logits_);
}

void SequenceSession::truncate(int64_t length) {
  std::lock_guard lock(engine_.mutex_);  // the pool of pages belongs to all sessions
  length_ = std::clamp<int64_t>(length, 0, length_);
  forget();
}

Status CompiledSession::append(std::span<const int32_t> tokens, bool all, int64_t total_length) {
  const auto count = static_cast<int64_t>(tokens.size());
  REDLINE_TRY(pages_.grow(length_ + count));
  const int64_t vocab = engine_.info_.vocab_size;
  const int64_t chunk = all ? engine_.max_logit_rows_ : engine_.max_chunk_;
  const auto* out = static_cast<const float*>(engine_.program_->find_output("logits")->data);
  for (int64_t begin = 0; begin < count; begin += chunk) {
    const int64_t n = std::min(chunk, count - begin);
    REDLINE_TRY(engine_.run_step(tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(n)), length_,
                                 total_length, all, pages_));
    length_ += n;
    if (all) std::memcpy(logits_.data() + begin * vocab, out, static_cast<size_t>(n * vocab) * sizeof(float));
  }
  if (!all) std::copy_n(out, vocab, logits_.begin());
  return {};
}

Status InterpretedSession::append(std::span<const int32_t> tokens, bool all, int64_t total_length) {
  const auto count = static_cast<int64_t>(tokens.size());
  auto vector = [&](int64_t n, auto&& at) {
    HostTensor t;
    t.shape = {n};
    for (int64_t i = 0; i < n; ++i) t.data.push_back(static_cast<double>(at(i)));
    return t;
  };
  const int64_t rows = all ? count : 1;
  std::map<std::string, HostTensor> inputs;
  inputs["tokens"] = vector(count, [&](int64_t i) { return tokens[static_cast<size_t>(i)]; });
  inputs["positions"] = vector(count, [&](int64_t i) { return length_ + i; });
  inputs["lengths"] = vector(count, [&](int64_t) { return total_length; });
  inputs["slots"] = vector(count, [](int64_t) { return 0; });
  inputs["logit_rows"] = vector(rows, [&](int64_t i) { return count - rows + i; });
  SymbolValues sizes;
  sizes[Symbol::kTokens] = count;
  sizes[Symbol::kSequences] = 1;
  sizes[Symbol::kLogitRows] = rows;
  auto outputs = engine_.interpreter_->run(inputs, sizes, cache_);
  REDLINE_TRY(outputs);
  const HostTensor& logits = (*outputs)["logits"];
  std::copy(logits.data.begin(), logits.data.end(), logits_.begin());
  length_ += count;
  return {};
}

}  // namespace redline
