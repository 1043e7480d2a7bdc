// Tensors that a run has stored at its computed steps, newest first.
#pragma once

#include <deque>
#include <utility>
#include <vector>

#include "diffusion/step_cache/cache_row.h"

namespace redline {

/// Tensors of one computed step: the values that the skipped span of the network added (image, text), and the values
/// that the front added to its input (probe).
struct Snapshot {
  int64_t step = 0;
  double sigma = 0;
  StateTensor image, text, probe;
};

class History {
 public:
  explicit History(int64_t depth) : depth_(depth) {}

  int64_t size() const { return std::ssize(snapshots_); }
  const Snapshot& operator[](int64_t i) const { return snapshots_[static_cast<size_t>(i)]; }
  /// Adds a snapshot for the caller to fill in. Reuses the memory of the oldest one if that is dropped.
  Snapshot& push() {
    Snapshot next;
    if (size() == depth_) {
      next = std::move(snapshots_.back());
      snapshots_.pop_back();
    }
    snapshots_.push_front(std::move(next));
    return snapshots_.front();
  }
  int64_t bytes() const {
    int64_t sum = 0;
    for (const Snapshot& s : snapshots_)
      sum += static_cast<int64_t>(sizeof(float)) * (s.image.size() + s.text.size() + s.probe.size());
    return sum;
  }

 private:
  int64_t depth_;
  std::deque<Snapshot> snapshots_;
};

}  // namespace redline
