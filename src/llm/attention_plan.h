// Once per step, on the host: which slot computes which part of attention. All layers reuse it.
#pragma once

#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "graph/program.h"

namespace redline {

/// The rows of one sequence in a step: rows [row_begin, row_begin + rows), the first at `first_position`.
struct SequenceRows {
  int32_t row_begin, rows;
  int64_t first_position;
};

struct AttentionPlanShape {
  int slots;
  int64_t num_heads, num_kv_heads, head_dim;
  int64_t max_tokens, max_sequences;
};

/// Cuts the step into (sequence, KV head, query rows) items, and deals them to `slots` longest first, each to the slot
/// with the least work so far (FlashInfer's plan, arXiv:2501.01005 section 3.3; cost = query rows x positions seen).
/// Where that leaves slots idle, long items are split at chunks of positions too. What comes out has the same bits
/// however items are cut and split: kernels give rows and chunks the same bits in any company, and chunks are added in
/// order.
class AttentionPlan {
 public:
  /// Room is taken here: make() allocates nothing up to these bounds.
  explicit AttentionPlan(const AttentionPlanShape& shape);

  void make(std::span<const SequenceRows> sequences, int64_t window);
  std::span<const AttentionItem> items() const { return items_; }
  std::span<const int32_t> slot_begin() const { return slot_begin_; }
  std::span<const AttentionSplit> splits() const { return splits_; }
  /// Writes the plan into a step: all but cache and pages.
  void fill(AttentionStep& step);

  /// Rows of an item are a multiple of this, but for the last: it takes the remainder as well, so that whether a kernel
  /// meets few rows or many depends on the step alone.
  static constexpr int32_t kRowGrain = 16;
  /// Most lines (rows x query heads of a KV head) of an item: a chunk of keys is prepared once for all of them.
  static constexpr int64_t kMostLines = 256;

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
