// Once per step, on the host: which slot computes which part of attention. All layers reuse it.
#pragma once

#include <span>
#include <vector>

#include "graph/attention_step.h"

namespace redline {

/// The rows of one sequence in a step: rows [row_begin, row_begin + rows), the first at `first_position`.
struct SequenceRows {
  int32_t row_begin, rows;
  int64_t first_position;
};

/// Cuts the step into (sequence, KV head, query rows) items, and deals them to `slots` longest first, each to the slot
/// with the least work so far (FlashInfer's plan, arXiv:2501.01005 section 3.3; cost = query rows x positions seen). What
/// an item computes does not depend on the other items or on the number of slots.
class AttentionPlan {
 public:
  /// Room is taken here: make() allocates nothing up to these bounds.
  AttentionPlan(int slots, int64_t num_kv_heads, int64_t max_tokens, int64_t max_sequences);

  void make(std::span<const SequenceRows> sequences, int64_t window);
  std::span<const AttentionItem> items() const { return items_; }
  std::span<const int32_t> slot_begin() const { return slot_begin_; }

  /// Query rows of one item: enough to reuse each key, few enough that a prompt of one page already spreads.
  static constexpr int32_t kRowsPerItem = 16;

 private:
  int64_t num_kv_heads_;
  std::vector<AttentionItem> unsorted_, items_;
  std::vector<int64_t> cost_, load_;
  std::vector<int32_t> order_, slot_of_, slot_begin_;
};

}  // namespace redline
