// Helpers of the lowerings of pack_kv and joint_attention.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "backends/cpu/lowering.h"
#include "graph/ops/joint_attention.h"

namespace redline {

/// Layout of packed keys and values. The pages of one (item, head) are consecutive; each holds its keys, then its
/// values.
struct PackedKv {
  int64_t element_bytes, num_heads, page_elements;

  PackedKv(KvFormat format, int64_t heads, int64_t head_dim)
      : element_bytes(kv_element_bytes(format)), num_heads(heads),
        page_elements(kKvPageTokens * kv_head_width(head_dim)) {}
  static KvFormat format_of(const LowerContext& c) {
    return c.options().exact_f32 ? KvFormat::kF32 : c.options().pack_kv_format;
  }
  /// Returns the view of a head of an item with `keys` keys. `pages_before`: pages of one head in all earlier items.
  /// Kernels use the view for writing and for reading.
  KvHeadView head(const uint8_t* packed, int64_t pages_before, int64_t keys, int64_t head) const {
    const int64_t page = pages_before * num_heads + head * kv_pages_for(keys);
    auto* k = const_cast<uint8_t*>(packed) + page * 2 * page_elements * element_bytes;
    return {k, k + page_elements * element_bytes, 2 * page_elements};
  }
};

/// Returns 0, 1, 2, .., count - 1: page numbers and slots of packed keys and values.
inline std::vector<int32_t> consecutive(int64_t count) {
  std::vector<int32_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

/// Returns a grid of at most `tasks` tasks. It is split by columns at multiples of `col_group` first, because different
/// heads share no keys. Rows are work partitions: row_range divides the rows of a step.
inline TaskGrid head_grid(int64_t cols, int64_t col_group, int tasks) {
  const int64_t groups = (cols + col_group - 1) / col_group;
  const int col_tiles = static_cast<int>(std::gcd(groups, static_cast<int64_t>(tasks)));
  TaskGrid grid = TaskGrid::work_partitions(tasks / col_tiles, cols);
  grid.col_begin = LowerContext::cut_columns(cols, col_group, col_tiles);
  return grid;
}

struct RowRange {
  int64_t begin, end;
};

/// Returns the share of `rows` rows that belongs to the tile's work partition, one of `parts`.
inline RowRange row_range(const Tile& tile, int parts, int64_t rows) {
  return {rows * tile.row_begin / parts, rows * tile.row_end / parts};
}

/// Rounds `wanted` to multiples of `grain` from the begin of `span`; the last part is never shorter than a grain unless
/// the span is. Kernel choice must not depend on the number of workers.
inline RowRange round_range(RowRange span, RowRange wanted, int64_t grain) {
  const int64_t last = std::max<int64_t>(0, (span.end - span.begin) / grain - 1) * grain;
  const auto cut = [&](int64_t at) {
    if (at >= span.end) return span.end;
    return span.begin + std::min(last, std::max<int64_t>(0, at - span.begin) / grain * grain);
  };
  return {cut(wanted.begin), cut(wanted.end)};
}

/// An item of a batch. pages_before is the number of pages of one head in all earlier items.
struct BatchItem {
  int64_t index, first_row, rows, pages_before;
};

/// Calls body(item, wanted) for each item of `item_rows` rows and `item_keys` keys that overlaps `rows`. `wanted`
/// counts from the item's first row and may lie partly outside the item.
template <class Body>
void for_item_ranges(RowRange rows, int64_t item_rows, int64_t item_keys, const Body& body) {
  for (int64_t item = item_rows > 0 ? rows.begin / item_rows : 0; item * item_rows < rows.end; ++item)
    body(BatchItem{item, item * item_rows, item_rows, item * kv_pages_for(item_keys)},
         RowRange{rows.begin - item * item_rows, rows.end - item * item_rows});
}
/// Calls body(item, wanted) for each sequence that overlaps `rows`; a sequence has as many keys as rows.
template <class Body>
void for_sequence_ranges(RowRange rows, const int32_t* offsets, int64_t count, const Body& body) {
  for (int64_t s = 0, pages = 0; s < count && offsets[s] < rows.end; ++s) {
    const int64_t first = offsets[s], length = offsets[s + 1] - first;
    if (first + length > rows.begin)
      body(BatchItem{s, first, length, pages}, RowRange{rows.begin - first, rows.end - first});
    pages += kv_pages_for(length);
  }
}

/// The kernels of HeadSteps.
struct HeadStepKernels {
  void (*rms_norm)(const RmsNormArgs&) = nullptr;  ///< nullptr: no norm
  void (*rope)(const RopeArgs&) = nullptr;         ///< nullptr: no rope
  float eps = 0;
  int64_t rotary_dim = 0;
  const float* weight = nullptr;  ///< weight of the norm
  Operand<const float> table;     ///< table of the rope

  /// Reads the inputs of the steps, which start at `input`; returns the index of the input after them.
  Result<size_t> lower(LowerContext& c, const HeadSteps& steps, size_t input, LoweredStage& stage);
  bool any() const { return rms_norm != nullptr || rope != nullptr; }
  /// Applies the steps to `heads` heads of row `row` of the value, from x to y.
  void apply(const float* x, int64_t heads, int64_t head_dim, int64_t row, float* y) const {
    if (rms_norm) {
      rms_norm({.x = x, .weight = weight, .y = y, .rows = heads, .cols = head_dim, .eps = eps});
      x = y;
    }
    if (!rope) return;
    const float* of_row = table + row * rotary_dim;
    rope({.x = x,
          .y = y,
          .cosine = of_row,
          .sine = of_row + rotary_dim / 2,
          .rows = 1,
          .heads = heads,
          .head_dim = head_dim,
          .rotary_dim = rotary_dim});
  }
};

}  // namespace redline
