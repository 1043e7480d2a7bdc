#include "llm/attention_plan.h"

#include <algorithm>

namespace redline {

AttentionPlan::AttentionPlan(int slots, int64_t num_kv_heads, int64_t max_tokens, int64_t max_sequences)
    : num_kv_heads_(num_kv_heads), load_(static_cast<size_t>(slots)), slot_begin_(static_cast<size_t>(slots) + 1) {
  const auto most = static_cast<size_t>((max_tokens / kRowsPerItem + max_sequences + 1) * num_kv_heads);
  unsorted_.reserve(most);
  items_.reserve(most);
  cost_.reserve(most);
  order_.reserve(most);
  slot_of_.reserve(most);
}

void AttentionPlan::make(std::span<const SequenceRows> sequences, int64_t window) {
  unsorted_.clear();
  cost_.clear();
  for (size_t s = 0; s < sequences.size(); ++s) {
    const SequenceRows& rows = sequences[s];
    for (int32_t begin = 0; begin < rows.rows; begin += kRowsPerItem) {
      const int32_t end = std::min(begin + kRowsPerItem, rows.rows);
      int64_t seen = rows.first_position + end;
      if (window > 0) seen = std::min(seen, window + end - begin);
      for (int64_t head = 0; head < num_kv_heads_; ++head) {
        unsorted_.push_back({static_cast<int32_t>(s), static_cast<int32_t>(head), rows.row_begin + begin,
                             rows.row_begin + end, rows.first_position + begin});
        cost_.push_back((end - begin) * seen);
      }
    }
  }
  const size_t n = unsorted_.size();
  order_.resize(n);
  slot_of_.resize(n);
  for (size_t i = 0; i < n; ++i) order_[i] = static_cast<int32_t>(i);
  // The place breaks ties, so the plan is the same on every machine.
  std::sort(order_.begin(), order_.end(), [&](int32_t a, int32_t b) {
    const int64_t ca = cost_[static_cast<size_t>(a)], cb = cost_[static_cast<size_t>(b)];
    return ca != cb ? ca > cb : a < b;
  });
  std::fill(load_.begin(), load_.end(), 0);
  std::fill(slot_begin_.begin(), slot_begin_.end(), 0);
  for (int32_t i : order_) {
    const auto slot = static_cast<size_t>(std::min_element(load_.begin(), load_.end()) - load_.begin());
    load_[slot] += cost_[static_cast<size_t>(i)];
    slot_of_[static_cast<size_t>(i)] = static_cast<int32_t>(slot);
    ++slot_begin_[slot + 1];
  }
  for (size_t s = 1; s < slot_begin_.size(); ++s) slot_begin_[s] += slot_begin_[s - 1];
  items_.resize(n);
  // Within a slot, longest first as dealt; `load_` now counts what each slot has received.
  std::fill(load_.begin(), load_.end(), 0);
  for (int32_t i : order_) {
    const auto slot = static_cast<size_t>(slot_of_[static_cast<size_t>(i)]);
    items_[static_cast<size_t>(slot_begin_[slot] + load_[slot]++)] = unsorted_[static_cast<size_t>(i)];
  }
}

}  // namespace redline
