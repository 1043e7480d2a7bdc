#include "llm/attention_plan.h"

#include <algorithm>
#include <bit>

namespace redline {
namespace {

/// Bound on partial results before they are reduced, 32 MB: without room for them nothing is split or grouped.
constexpr int64_t kMaxPartialFloats = (32 << 20) / static_cast<int64_t>(sizeof(float));
/// If a work partition has more than this factor of its share, the plan splits items into pieces of a share over
/// kPiecesPerPartition.
constexpr double kTolerated = 1.1;
constexpr int64_t kPiecesPerPartition = 4;
constexpr int64_t kChunkPages = kKvChunk / kKvPageTokens;

int64_t chunks_for(int64_t positions) { return (positions + kKvChunk - 1) / kKvChunk; }

}  // namespace

AttentionPlan::AttentionPlan(const AttentionPlanShape& shape)
    : shape_(shape), max_splits_(static_cast<size_t>(2 * kPiecesPerPartition * shape.limits.partitions +
                                                     shape.max_sequences * shape.num_kv_heads)),
      load_(static_cast<size_t>(shape.limits.partitions)),
      partition_begin_(static_cast<size_t>(shape.limits.partitions) + 1) {
  const auto most =
      static_cast<size_t>((shape.max_tokens / kRowGrain + shape.max_sequences + 1) * shape.num_kv_heads) + max_splits_;
  unsorted_.reserve(most);
  items_.reserve(most);
  cost_.reserve(most);
  order_.reserve(most);
  partition_of_.reserve(most);
  splits_.reserve(max_splits_);
  const auto sequences = static_cast<size_t>(shape.max_sequences);
  by_pages_.reserve(sequences);
  shared_chunks_.reserve(sequences);
  groups_.reserve(sequences);
  is_grouped_.reserve(sequences);
  group_rows_.reserve(static_cast<size_t>(shape.max_tokens));
}

void AttentionPlan::make(std::span<const SequenceRows> sequences, const AttentionReach& reach,
                         std::span<const int32_t* const> pages) {
  groups_.clear();
  // With a window no groups are made: pages that have left the window are not in the page table.
  if (reach.window == 0 && reach.is_causal && reach.rows_can_share && pages.size() > 1) find_groups(sequences, pages);
  cut(sequences, reach);
  deal();
  int64_t total = 0;
  for (const int64_t load : load_) total += load;
  const double share = static_cast<double>(total) / shape_.limits.partitions;
  if (static_cast<double>(*std::max_element(load_.begin(), load_.end())) > kTolerated * share) {
    split(sequences, reach);
    if (!splits_.empty()) deal();
  }
  // Items of a partition keep the order of assignment, longest first. `load_` now counts the items written per
  // partition.
  items_.resize(unsorted_.size());
  std::fill(load_.begin(), load_.end(), 0);
  for (int32_t i : order_) {
    const auto partition = static_cast<size_t>(partition_of_[static_cast<size_t>(i)]);
    items_[static_cast<size_t>(partition_begin_[partition] + load_[partition]++)] = unsorted_[static_cast<size_t>(i)];
  }
}

AttentionWork AttentionPlan::work() const {
  return {
      items_.data(),  partition_begin_.data(), splits_.data(), group_rows_.data(), static_cast<int64_t>(splits_.size()),
      partial_floats_};
}

void AttentionPlan::find_groups(std::span<const SequenceRows> sequences, std::span<const int32_t* const> pages) {
  // A piece of one chunk should not be more than the share of a work partition.
  int64_t cost = 0;
  for (const SequenceRows& s : sequences) cost += s.rows * (s.first_position + s.rows) * shape_.num_kv_heads;
  max_query_rows_ = std::min(kMaxQueryRows, cost / (shape_.limits.partitions * kKvChunk) * group_heads());
  by_pages_.clear();
  for (size_t s = 0; s < sequences.size(); ++s)
    if (sequences[s].first_position >= kKvChunk && 2 * query_rows(sequences[s]) <= max_query_rows_)
      by_pages_.push_back(static_cast<int32_t>(s));
  if (by_pages_.size() < 2) return;
  // Only whole chunks before this step are shared, because every row attends to them.
  const auto table = [&](int32_t s) {
    const int64_t chunks = sequences[static_cast<size_t>(s)].first_position / kKvChunk;
    return std::span(pages[static_cast<size_t>(s)], static_cast<size_t>(chunks * kChunkPages));
  };
  const auto has_many_rows = [&](int32_t s) {
    return query_rows(sequences[static_cast<size_t>(s)]) >= shape_.limits.row_threshold;
  };
  std::sort(by_pages_.begin(), by_pages_.end(), [&](int32_t a, int32_t b) {
    if (has_many_rows(a) != has_many_rows(b)) return has_many_rows(b);
    const auto x = table(a), y = table(b);
    const auto [at, other] = std::mismatch(x.begin(), x.end(), y.begin(), y.end());
    if (at != x.end() && other != y.end()) return *at < *other;
    return x.size() != y.size() ? x.size() < y.size() : a < b;
  });
  shared_chunks_.assign(by_pages_.size(), 0);
  for (size_t i = 1; i < by_pages_.size(); ++i) {
    const auto x = table(by_pages_[i - 1]), y = table(by_pages_[i]);
    if (has_many_rows(by_pages_[i - 1]) == has_many_rows(by_pages_[i]))
      shared_chunks_[i] = (std::mismatch(x.begin(), x.end(), y.begin(), y.end()).first - x.begin()) / kChunkPages;
  }
  choose_groups(sequences, 0, by_pages_.size());
}

// Chooses between one group of by_pages_[begin, end) and several groups that share more each, by the bytes that they
// save.
int64_t AttentionPlan::choose_groups(std::span<const SequenceRows> sequences, size_t begin, size_t end) {
  if (end - begin < 2) return 0;
  const auto at = [&](size_t i) { return shared_chunks_.begin() + static_cast<int64_t>(i); };
  const int64_t common = *std::min_element(at(begin + 1), at(end));
  const size_t before = groups_.size();
  int64_t saved_by_parts = 0;
  for (size_t first = begin, i = begin + 1; i <= end; ++i) {
    if (i<end&& * at(i)> common) continue;
    saved_by_parts += choose_groups(sequences, first, i);
    first = i;
  }
  const Group whole{begin, end, common};
  const int64_t saved = common > 0 ? saved_bytes(sequences, whole) : 0;
  if (saved <= saved_by_parts) return saved_by_parts;
  groups_.resize(before);
  groups_.push_back(whole);
  return saved;
}

// Returns the bytes that a group saves per KV head: pages that are not read again, minus partial results that are
// written and read.
int64_t AttentionPlan::saved_bytes(std::span<const SequenceRows> sequences, const Group& group) const {
  const int64_t shared_bytes = group.chunks * kKvChunk * 2 * shape_.head_dim * shape_.element_bytes;
  if (shared_bytes <= shape_.cached_bytes) return 0;
  const int64_t partial_bytes = attention_partial_floats(shape_.head_dim) * static_cast<int64_t>(sizeof(float));
  int64_t all_lines = 0, partials = 0;
  for (size_t i = group.begin; i < group.end; ++i) {
    const SequenceRows& s = sequences[static_cast<size_t>(by_pages_[i])];
    all_lines += query_rows(s);
    partials += query_rows(s) * (1 + chunks_for(s.first_position + s.rows) - group.chunks);
  }
  const int64_t reads = (all_lines + max_query_rows_ - 1) / max_query_rows_;
  const int64_t saved_reads = static_cast<int64_t>(group.end - group.begin) - reads;
  return saved_reads * shared_bytes - partials * 2 * partial_bytes;
}

void AttentionPlan::cut_group(std::span<const SequenceRows> sequences, const Group& group) {
  const int64_t line_floats = attention_partial_floats(shape_.head_dim), heads = shape_.num_kv_heads;
  const auto rows_of = [&](size_t i) -> const SequenceRows& { return sequences[static_cast<size_t>(by_pages_[i])]; };
  const auto own_chunks = [&](const SequenceRows& s) { return chunks_for(s.first_position + s.rows) - group.chunks; };
  int64_t all_lines = 0, floats = 0;
  for (size_t i = group.begin; i < group.end; ++i) {
    all_lines += query_rows(rows_of(i));
    floats += query_rows(rows_of(i)) * (1 + own_chunks(rows_of(i))) * line_floats * heads;
  }
  const auto members = static_cast<int32_t>(group.end - group.begin);
  if (partial_floats_ + floats > kMaxPartialFloats ||
      splits_.size() + static_cast<size_t>(members * heads) > max_splits_)
    return;
  shared_positions_ += (members - 1) * group.chunks * kKvChunk;
  const auto rows_begin = static_cast<int32_t>(group_rows_.size());
  for (size_t i = group.begin; i < group.end; ++i) {
    is_grouped_[static_cast<size_t>(by_pages_[i])] = 1;
    for (int32_t r = 0; r < rows_of(i).rows; ++r) group_rows_.push_back(rows_of(i).row_begin + r);
  }
  const auto rows_end = static_cast<int32_t>(group_rows_.size());
  const int64_t border = group.chunks * kKvChunk;
  for (int64_t head = 0; head < heads; ++head) {
    AttentionItem shared{by_pages_[group.begin], static_cast<int32_t>(head), rows_begin, rows_end, border, 0, border};
    shared.split = static_cast<int32_t>(splits_.size());
    shared.num_splits = members;
    shared.partials = partial_floats_;
    shared.is_group = shared.merges_chunks = true;
    shared.has_few_rows = query_rows(rows_of(group.begin)) < shape_.limits.row_threshold;
    unsorted_.push_back(shared);
    cost_.push_back((rows_end - rows_begin) * border);
    int64_t query_row = partial_floats_;
    partial_floats_ += all_lines * line_floats;
    for (size_t i = group.begin; i < group.end; ++i) {
      const SequenceRows& s = rows_of(i);
      const int64_t chunks = own_chunks(s);
      AttentionItem own{by_pages_[i], static_cast<int32_t>(head), s.row_begin, s.row_begin + s.rows, s.first_position,
                        border,       border + chunks * kKvChunk};
      own.split = static_cast<int32_t>(splits_.size());
      own.partials = partial_floats_;
      unsorted_.push_back(own);
      cost_.push_back(s.rows * (s.first_position + s.rows - border));
      splits_.push_back(
          {2, s.row_begin, s.row_begin + s.rows, chunks, partial_floats_, 1, query_row, all_lines * line_floats});
      query_row += query_rows(s) * line_floats;
      partial_floats_ += query_rows(s) * chunks * line_floats;
    }
  }
}

void AttentionPlan::cut(std::span<const SequenceRows> sequences, const AttentionReach& reach) {
  unsorted_.clear();
  cost_.clear();
  splits_.clear();
  group_rows_.clear();
  partial_floats_ = shared_positions_ = 0;
  is_grouped_.assign(sequences.size(), 0);
  for (const Group& group : groups_) {
    // A group is divided into parts of at most max_query_rows_. A part of one sequence is not a group.
    for (Group part{group.begin, group.begin, group.chunks}; part.begin < group.end; part.begin = part.end) {
      for (int64_t all = 0; part.end < group.end; ++part.end) {
        all += query_rows(sequences[static_cast<size_t>(by_pages_[part.end])]);
        if (all > max_query_rows_) break;
      }
      if (part.end - part.begin > 1) cut_group(sequences, part);
    }
  }
  int64_t all_rows = 0;
  for (const SequenceRows& rows : sequences) all_rows += rows.rows;
  // Large items reuse the prepared keys for more query rows; they are smaller if there would be too few items to
  // balance.
  auto grain =
      static_cast<int32_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(1, kMaxQueryRows / group_heads()))));
  grain = std::max(grain, kRowGrain);
  while (grain > kRowGrain && all_rows * shape_.num_kv_heads / grain < kPiecesPerPartition * shape_.limits.partitions)
    grain /= 2;
  for (size_t s = 0; s < sequences.size(); ++s) {
    if (is_grouped_[s]) continue;
    const SequenceRows& rows = sequences[s];
    for (int32_t begin = 0, end = 0; begin < rows.rows; begin = end) {
      end = rows.rows - begin < grain + kRowGrain ? rows.rows : begin + grain;
      int64_t seen = reach.end(s, rows, end);
      if (reach.window > 0) seen = std::min(seen, reach.window + end - begin);
      for (int64_t head = 0; head < shape_.num_kv_heads; ++head) {
        unsorted_.push_back({static_cast<int32_t>(s), static_cast<int32_t>(head), rows.row_begin + begin,
                             rows.row_begin + end, rows.first_position + begin});
        cost_.push_back((end - begin) * seen);
      }
    }
  }
}

void AttentionPlan::split(std::span<const SequenceRows> sequences, const AttentionReach& reach) {
  int64_t total = 0;
  for (const int64_t cost : cost_) total += cost;
  const int64_t piece_cost = std::max<int64_t>(1, total / (kPiecesPerPartition * shape_.limits.partitions));
  const size_t whole = unsorted_.size();
  for (size_t i = 0; i < whole; ++i) {
    const AttentionItem& item = unsorted_[i];
    int64_t first_chunk = item.kv_begin / kKvChunk, end_chunk = item.kv_end / kKvChunk;
    if (item.split < 0) {
      const auto sequence = static_cast<size_t>(item.sequence);
      const SequenceRows& rows = sequences[sequence];
      const int64_t begin = reach.window > 0 ? std::max<int64_t>(0, item.first_position + 1 - reach.window) : 0;
      first_chunk = begin / kKvChunk;
      end_chunk = chunks_for(reach.end(sequence, rows, item.row_end - rows.row_begin));
    }
    const int64_t chunks = end_chunk - first_chunk;
    const int64_t wanted = std::min(chunks, (cost_[i] + piece_cost - 1) / piece_cost);
    if (wanted > 1) split_item(i, first_chunk, chunks, wanted);
  }
}

// Splits an item into pieces, the first of which replaces the item. The item is not split if the remaining memory is
// too small for its partial results.
void AttentionPlan::split_item(size_t index, int64_t first_chunk, int64_t chunks, int64_t wanted) {
  const AttentionItem item = unsorted_[index];
  const int64_t in_piece = (chunks + wanted - 1) / wanted, pieces = (chunks + in_piece - 1) / in_piece;
  const int64_t floats = (item.row_end - item.row_begin) * group_heads() * attention_partial_floats(shape_.head_dim);
  // The first piece of a group has one partial result. Items that a sequence of a group reads alone already have room
  // for all of theirs.
  const int64_t in_first = item.is_group ? 1 : in_piece;
  const bool has_room = item.split >= 0 && !item.is_group;
  const int64_t needed = has_room ? 0 : (in_first + chunks - in_piece) * floats;
  if (partial_floats_ + needed > kMaxPartialFloats ||
      unsorted_.size() + static_cast<size_t>(pieces) - 1 > unsorted_.capacity() ||
      (item.split < 0 && splits_.size() == max_splits_))
    return;
  const int64_t partials = has_room ? item.partials : partial_floats_;
  partial_floats_ += needed;
  int32_t first_split = item.split;
  if (first_split < 0) {
    first_split = static_cast<int32_t>(splits_.size());
    splits_.push_back({1, item.row_begin, item.row_end, chunks, partials});
  }
  for (int32_t k = 0; k < item.num_splits; ++k) {
    AttentionSplit& split = splits_[static_cast<size_t>(first_split) + static_cast<size_t>(k)];
    split.pieces += static_cast<int32_t>(pieces) - 1;
    if (!item.is_group) continue;
    split.num_shared = 1 + chunks - in_piece;
    split.shared += partials - item.partials;
  }
  const int64_t cost = cost_[index];
  for (int64_t p = 0; p < pieces; ++p) {
    const int64_t from = p * in_piece, to = std::min(chunks, from + in_piece);
    AttentionItem piece = item;
    piece.kv_begin = (first_chunk + from) * kKvChunk;
    piece.kv_end = (first_chunk + to) * kKvChunk;
    piece.split = first_split;
    piece.partials = partials + (p == 0 ? 0 : in_first + from - in_piece) * floats;
    piece.merges_chunks = item.merges_chunks && p == 0;
    const int64_t piece_share = cost * (to - from) / chunks;
    if (p == 0) {
      unsorted_[index] = piece;
      cost_[index] = piece_share;
    } else {
      unsorted_.push_back(piece);
      cost_.push_back(piece_share);
    }
  }
}

void AttentionPlan::deal() {
  const size_t n = unsorted_.size();
  order_.resize(n);
  partition_of_.resize(n);
  for (size_t i = 0; i < n; ++i) order_[i] = static_cast<int32_t>(i);
  // Ties are broken by position, so the plan is the same on every machine.
  std::sort(order_.begin(), order_.end(), [&](int32_t a, int32_t b) {
    const int64_t ca = cost_[static_cast<size_t>(a)], cb = cost_[static_cast<size_t>(b)];
    return ca != cb ? ca > cb : a < b;
  });
  std::fill(load_.begin(), load_.end(), 0);
  std::fill(partition_begin_.begin(), partition_begin_.end(), 0);
  for (int32_t i : order_) {
    const auto partition = static_cast<size_t>(std::min_element(load_.begin(), load_.end()) - load_.begin());
    load_[partition] += cost_[static_cast<size_t>(i)];
    partition_of_[static_cast<size_t>(i)] = static_cast<int32_t>(partition);
    ++partition_begin_[partition + 1];
  }
  for (size_t s = 1; s < partition_begin_.size(); ++s) partition_begin_[s] += partition_begin_[s - 1];
}

}  // namespace redline
