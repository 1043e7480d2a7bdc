#include "llm/attention_plan.h"

#include <algorithm>
#include <bit>

namespace redline {
namespace {

/// Address space for partial results before they are reduced; memory is used only where a split writes.
constexpr int64_t kPartialBytes = 8 << 20;
/// If a work partition has more than this factor of its share, the plan splits items into pieces of a share over
/// kPiecesPerSlot.
constexpr double kTolerated = 1.1;
constexpr int64_t kPiecesPerSlot = 4;

}  // namespace

AttentionPlan::AttentionPlan(const AttentionPlanShape& shape)
    : shape_(shape), load_(static_cast<size_t>(shape.slots)), slot_begin_(static_cast<size_t>(shape.slots) + 1),
      finished_(static_cast<size_t>(2 * kPiecesPerSlot * shape.slots)) {
  const auto most = static_cast<size_t>((shape.max_tokens / kRowGrain + shape.max_sequences + 1) * shape.num_kv_heads) +
                    finished_.size();
  unsorted_.reserve(most);
  items_.reserve(most);
  cost_.reserve(most);
  order_.reserve(most);
  slot_of_.reserve(most);
  splits_.reserve(finished_.size());
  auto partials = AlignedBuffer::make(kPartialBytes);
  if (partials.ok()) partials_ = std::move(partials).value();  // otherwise nothing is split
}

void AttentionPlan::make(std::span<const SequenceRows> sequences, int64_t window) {
  cut(sequences, window);
  deal();
  int64_t total = 0;
  for (const int64_t load : load_) total += load;
  const double share = static_cast<double>(total) / shape_.slots;
  if (static_cast<double>(*std::max_element(load_.begin(), load_.end())) > kTolerated * share) {
    split(window);
    if (!splits_.empty()) deal();
  }
  // Within a partition, longest first as assigned; `load_` now counts the items written per partition.
  items_.resize(unsorted_.size());
  std::fill(load_.begin(), load_.end(), 0);
  for (int32_t i : order_) {
    const auto slot = static_cast<size_t>(slot_of_[static_cast<size_t>(i)]);
    items_[static_cast<size_t>(slot_begin_[slot] + load_[slot]++)] = unsorted_[static_cast<size_t>(i)];
  }
}

AttentionWork AttentionPlan::work() {
  return {items_.data(), slot_begin_.data(), splits_.data(), finished_.data(), static_cast<float*>(partials_.data())};
}

void AttentionPlan::cut(std::span<const SequenceRows> sequences, int64_t window) {
  unsorted_.clear();
  cost_.clear();
  splits_.clear();
  int64_t all_rows = 0;
  for (const SequenceRows& rows : sequences) all_rows += rows.rows;
  const int64_t group = shape_.num_heads / shape_.num_kv_heads;
  // Large items reuse the prepared keys for more query rows; they are smaller if there would be too few items to
  // balance.
  auto grain = static_cast<int32_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(1, kMaxLines / group))));
  grain = std::max(grain, kRowGrain);
  while (grain > kRowGrain && all_rows * shape_.num_kv_heads / grain < kPiecesPerSlot * shape_.slots) grain /= 2;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const SequenceRows& rows = sequences[s];
    for (int32_t begin = 0, end = 0; begin < rows.rows; begin = end) {
      end = rows.rows - begin < grain + kRowGrain ? rows.rows : begin + grain;
      int64_t seen = rows.first_position + end;
      if (window > 0) seen = std::min(seen, window + end - begin);
      for (int64_t head = 0; head < shape_.num_kv_heads; ++head) {
        unsorted_.push_back({static_cast<int32_t>(s), static_cast<int32_t>(head), rows.row_begin + begin,
                             rows.row_begin + end, rows.first_position + begin});
        cost_.push_back((end - begin) * seen);
      }
    }
  }
}

void AttentionPlan::split(int64_t window) {
  int64_t total = 0;
  for (const int64_t cost : cost_) total += cost;
  const int64_t piece_cost = std::max<int64_t>(1, total / (kPiecesPerSlot * shape_.slots));
  const int64_t group = shape_.num_heads / shape_.num_kv_heads, line_floats = attention_partial_floats(shape_.head_dim);
  const int64_t capacity = partials_.size() / static_cast<int64_t>(sizeof(float));
  int64_t used = 0;
  const size_t whole = unsorted_.size();
  for (size_t i = 0; i < whole; ++i) {
    const AttentionItem item = unsorted_[i];
    const int64_t rows = item.row_end - item.row_begin, end = item.first_position + rows;
    const int64_t begin = window > 0 ? std::max<int64_t>(0, item.first_position + 1 - window) : 0;
    const int64_t first_chunk = begin / kKvChunk, chunks = (end + kKvChunk - 1) / kKvChunk - first_chunk;
    const int64_t wanted = std::min(chunks, (cost_[i] + piece_cost - 1) / piece_cost);
    if (wanted < 2) continue;
    const int64_t in_piece = (chunks + wanted - 1) / wanted, pieces = (chunks + in_piece - 1) / in_piece;
    const int64_t chunk_floats = rows * group * line_floats;
    // The first piece takes the place of the item itself.
    if (used + chunks * chunk_floats > capacity || splits_.size() == finished_.size() ||
        unsorted_.size() + static_cast<size_t>(pieces) - 1 > unsorted_.capacity())
      break;
    const auto index = static_cast<int32_t>(splits_.size());
    splits_.push_back({static_cast<int32_t>(pieces), chunks, used});
    const int64_t cost = cost_[i];
    for (int64_t p = 0; p < pieces; ++p) {
      const int64_t from = p * in_piece, to = std::min(chunks, from + in_piece);
      AttentionItem piece = item;
      piece.kv_begin = (first_chunk + from) * kKvChunk;
      piece.kv_end = (first_chunk + to) * kKvChunk;
      piece.split = index;
      piece.partials = used + from * chunk_floats;
      const int64_t piece_share = cost * (to - from) / chunks;
      if (p == 0) {
        unsorted_[i] = piece;
        cost_[i] = piece_share;
      } else {
        unsorted_.push_back(piece);
        cost_.push_back(piece_share);
      }
    }
    used += chunks * chunk_floats;
  }
}

void AttentionPlan::deal() {
  const size_t n = unsorted_.size();
  order_.resize(n);
  slot_of_.resize(n);
  for (size_t i = 0; i < n; ++i) order_[i] = static_cast<int32_t>(i);
  // Ties are broken by position, so the plan is the same on every machine.
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
}

}  // namespace redline
