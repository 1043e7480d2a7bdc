// Planned once per step, on the host: the part of attention that each work partition computes. All layers reuse the
// plan.
#pragma once

#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "graph/step.h"

namespace redline {

struct AttentionPlanShape {
  int slots;
  int64_t num_heads, num_kv_heads, head_dim;
  int64_t max_tokens, max_sequences;
};

/// Splits the step into (sequence, KV head, query rows) items and assigns them to `slots` work partitions, longest
/// first, each to the partition with the least work so far (FlashInfer's plan, arXiv:2501.01005 section 3.3; cost =
/// query rows x visible positions). If some partitions would stay idle, long items are also split at chunks of
/// positions. Results are bit-identical for every split: kernels compute rows and chunks independently of the others,
/// and chunks are reduced in order.
class AttentionPlan {
 public:
  /// Memory is reserved here: make() does not allocate within these bounds.
  explicit AttentionPlan(const AttentionPlanShape& shape);

  void make(std::span<const SequenceRows> sequences, int64_t window);
  std::span<const AttentionItem> items() const { return items_; }
  std::span<const int32_t> slot_begin() const { return slot_begin_; }
  std::span<const AttentionSplit> splits() const { return splits_; }
  AttentionWork work();

  /// Rows of an item are a multiple of this, except for the last item, which also takes the remainder. So whether a
  /// kernel gets few rows or many depends only on the step.
  static constexpr int32_t kRowGrain = 16;
  /// Maximum query rows (rows x query heads per KV head) of an item: a chunk of keys is prepared once for all of them.
  static constexpr int64_t kMaxLines = 256;

 private:
  void cut(std::span<const SequenceRows> sequences, int64_t window);
  void split(int64_t window);
  void deal();

  AttentionPlanShape shape_;
  std::vector<AttentionItem> unsorted_, items_;
  std::vector<int64_t> cost_, load_;
  std::vector<int32_t> order_, slot_of_, slot_begin_;
  std::vector<AttentionSplit> splits_;
  std::vector<std::atomic<int32_t>> finished_;
  AlignedBuffer partials_;
};

}  // namespace redline
