// Divides the attention of a step among work partitions. The plan is made once per step, on the host, and used by all
// layers.
#pragma once

#include <span>
#include <vector>

#include "graph/step.h"

namespace redline {

struct AttentionPlanShape {
  AttentionLimits limits;
  int64_t num_heads, num_kv_heads, head_dim;
  int64_t max_tokens, max_sequences;
  int64_t element_bytes = 2;  ///< bytes of one element of cached keys and values
  /// Size of one core's L2 cache. If the shared pages of a KV head fit in it, reading them again is free, so their
  /// sequences do not form a group.
  int64_t cached_bytes = 0;
};

/// The positions of a state group that the rows of a step may read. A plan may cover more than attention reads.
struct AttentionReach {
  int64_t window = 0;                     ///< window of the group; 0: all earlier positions
  bool is_causal = true;                  ///< false: rows read all positions of their sequence
  bool rows_can_share = true;             ///< groups may be made (AttentionShape)
  std::span<const int64_t> lengths = {};  ///< StateStep::lengths; empty: nullptr

  /// Returns the number of positions that rows [0, rows_end) of sequence `s` read.
  int64_t end(size_t s, const SequenceRows& rows, int64_t rows_end) const {
    if (is_causal) return rows.first_position + rows_end;
    return lengths.empty() ? rows.first_position + rows.rows : lengths[s];
  }
};

/// Splits the step into (sequence, KV head, query rows) items and assigns them to `partitions` work partitions, longest
/// first, each to the partition with the least work so far (FlashInfer's plan, arXiv:2501.01005 section 3.3; cost =
/// query rows x visible positions). If some partitions would stay idle, long items are also split at chunks of
/// positions.
///
/// Sequences whose page tables begin with the same pages form a group (FlashInfer's cascade, arXiv:2501.01005 section
/// 3.1.2): one item reads these pages for the rows of all of them, further items the rest of each. Partial results are
/// written and read again, so a group is made where that takes less than reading the pages once per sequence.
///
/// Results are bit-identical for every split and every group: kernels compute rows and chunks independently of the
/// others, chunks are reduced in order, and the rows of a group are computed by the kernel that they would have alone
/// (a group does not mix sequences on both sides of AttentionLimits::row_threshold).
class AttentionPlan {
 public:
  /// Reserves memory, so that make() does not allocate within the bounds of `shape`.
  explicit AttentionPlan(const AttentionPlanShape& shape);

  /// Makes the plan of a step. `pages`: StateStep::pages of all sequences; empty: no pages are shared.
  void make(std::span<const SequenceRows> sequences, const AttentionReach& reach,
            std::span<const int32_t* const> pages = {});
  /// make() for causal attention.
  void make(std::span<const SequenceRows> sequences, int64_t window, std::span<const int32_t* const> pages = {}) {
    make(sequences, AttentionReach{window}, pages);
  }
  std::span<const AttentionItem> items() const { return items_; }
  std::span<const int32_t> group_rows() const { return group_rows_; }
  /// Returns the number of positions that a group reads once instead of once per sequence, counting each saved read.
  int64_t shared_positions() const { return shared_positions_; }
  std::span<const int32_t> partition_begin() const { return partition_begin_; }
  std::span<const AttentionSplit> splits() const { return splits_; }
  AttentionWork work() const;
  /// Returns the number of tokens of one sequence up to which a step has the kernel that it has for one token.
  int64_t max_tokens_of_one_kernel() const {
    const int64_t other = (shape_.limits.row_threshold + group_heads() - 1) / group_heads();
    return other <= 1 ? INT64_MAX : other - 1;
  }
  void set_cached_bytes(int64_t bytes) { shape_.cached_bytes = bytes; }

  /// Rows of an item are a multiple of this, except for the last item, which also takes the remainder. The choice
  /// between a kernel for few rows and one for many then depends only on the step.
  static constexpr int32_t kRowGrain = 16;
  /// Maximum query rows (rows x query heads per KV head) of an item: a chunk of keys is prepared once for all of them.
  static constexpr int64_t kMaxQueryRows = 256;

 private:
  /// Sequences by_pages_[begin, end), whose first `chunks` chunks are read once for all of them.
  struct Group {
    size_t begin, end;
    int64_t chunks;
  };
  int64_t group_heads() const { return shape_.num_heads / shape_.num_kv_heads; }
  int64_t query_rows(const SequenceRows& rows) const { return rows.rows * group_heads(); }
  void find_groups(std::span<const SequenceRows> sequences, std::span<const int32_t* const> pages);
  int64_t choose_groups(std::span<const SequenceRows> sequences, size_t begin, size_t end);
  int64_t saved_bytes(std::span<const SequenceRows> sequences, const Group& group) const;
  /// Makes the items of a group, unless there is no room for their partial results.
  void cut_group(std::span<const SequenceRows> sequences, const Group& group);
  void cut(std::span<const SequenceRows> sequences, const AttentionReach& reach);
  void split(std::span<const SequenceRows> sequences, const AttentionReach& reach);
  void split_item(size_t index, int64_t first_chunk, int64_t chunks, int64_t wanted);
  void deal();

  AttentionPlanShape shape_;
  std::vector<int32_t> by_pages_;  ///< sequences in the order of their page tables
  /// number of chunks that each sequence in by_pages_ shares with the one before it
  std::vector<int64_t> shared_chunks_;
  std::vector<Group> groups_;
  int64_t max_query_rows_ = 0;  ///< maximum query rows of a group
  int64_t shared_positions_ = 0;
  std::vector<uint8_t> is_grouped_;
  std::vector<int32_t> group_rows_;
  size_t max_splits_;
  int64_t partial_floats_ = 0;
  std::vector<AttentionItem> unsorted_, items_;
  std::vector<int64_t> cost_, load_;
  std::vector<int32_t> order_, partition_of_, partition_begin_;
  std::vector<AttentionSplit> splits_;
};

}  // namespace redline
