// Working memory of the attention stages of one state group.
#pragma once

#include <atomic>
#include <memory>

#include "base/aligned_buffer.h"
#include "graph/step.h"

namespace redline {

/// Memory for partial results. The layers use it one after the other: a layer reduces its partial results before the
/// next one begins.
class AttentionScratch {
 public:
  /// Prepares for a step with this plan. Allocates only if it needs more than all plans before. out_of_memory: states
  /// the bytes.
  Status reserve(const AttentionWork& work);

  /// Returns [splits]: the number of finished pieces, which is zero between layers.
  std::atomic<int32_t>* finished() const { return finished_.get(); }
  float* partials() const { return static_cast<float*>(partials_.data()); }

 private:
  std::unique_ptr<std::atomic<int32_t>[]> finished_;
  int64_t num_finished_ = 0;
  AlignedBuffer partials_;
};

}  // namespace redline
