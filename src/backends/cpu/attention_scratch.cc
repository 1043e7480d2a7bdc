#include "backends/cpu/attention_scratch.h"

#include <algorithm>

namespace redline {

Status AttentionScratch::reserve(const AttentionWork& work) {
  if (work.num_splits > num_finished_) {
    num_finished_ = std::max(work.num_splits, 2 * num_finished_);
    finished_ = std::make_unique<std::atomic<int32_t>[]>(static_cast<size_t>(num_finished_));
  }
  const int64_t bytes = work.partial_floats * static_cast<int64_t>(sizeof(float));
  if (bytes > partials_.size()) {
    REDLINE_ASSIGN(partials_, AlignedBuffer::make(std::max(bytes, 2 * partials_.size())));
  }
  return {};
}

}  // namespace redline
