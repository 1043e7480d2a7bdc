#include "llm/session.h"

#include <algorithm>

namespace redline {

Result<std::span<const float>> SequenceSession::forward(std::span<const int32_t> tokens, bool all,
                                                        int64_t total_length) {
  std::lock_guard lock(engine_.mutex_);
  BatchEntry entry{this, tokens, 0, total_length, {}};
  REDLINE_TRY(engine_.check(entry));
  const int64_t vocab = engine_.info_.vocab_size, before = length_;
  const auto count = static_cast<int64_t>(tokens.size());
  try {
    logits_.resize(static_cast<size_t>((all ? count : 1) * vocab));
  } catch (const std::exception&) {  // bad_alloc, length_error
    return out_of_memory("no room for the logits of {} tokens over {} words", count, vocab);
  }
  entry.total_length = std::max(total_length, length_ + count);
  const int64_t chunk = all ? engine_.max_logit_rows_ : engine_.max_batch_tokens_;
  auto out = logits_.begin();
  for (int64_t begin = 0; begin < count; begin += chunk) {
    const int64_t n = std::min(chunk, count - begin);
    entry.tokens = tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(n));
    entry.logit_rows = all ? n : begin + n == count ? 1 : 0;
    if (Status status = engine_.step({&entry, 1}); !status.ok()) {
      length_ = before;
      forget();
      return status;
    }
    out = std::copy(entry.logits.begin(), entry.logits.end(), out);
  }
  return std::span<const float>(logits_);
}

void SequenceSession::truncate(int64_t length) {
  std::lock_guard lock(engine_.mutex_);  // all sessions share the page pool
  length_ = std::clamp<int64_t>(length, 0, length_);
  forget();
}

}  // namespace redline
