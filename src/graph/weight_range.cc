#include "graph/weight_range.h"

#include <algorithm>
#include <cstring>

#include "base/hash.h"

namespace redline {
namespace {

/// Returns the part [first, first + second) of an axis of `size` elements that a rank holds.
Result<std::pair<int64_t, int64_t>> part_of_axis(const std::vector<Iter>& digits, int64_t size, int64_t rank) {
  std::pair<int64_t, int64_t> part = {0, size};
  for (size_t i = 0; i < digits.size(); ++i) {
    if (digits[i].axis != Axis::kRank || digits[i].extent == 1) continue;
    if (i != 0 || digits[i].stride != 1)
      return invalid_argument("ranks do not hold contiguous parts of an axis of {}", size);
    if (rank < 0 || rank >= digits[i].extent) return invalid_argument("rank {} of {}", rank, digits[i].extent);
    part = {rank * (size / digits[i].extent), size / digits[i].extent};
  }
  return part;
}

/// Copies the columns of a range from the rows of a stored matrix.
struct ColumnCut {
  WeightSource source;
  WeightRange range;
  /// Bytes of a stored row: all of them, those before the range, those of the range's columns, those of the row's
  /// scale.
  int64_t stored_bytes, first_byte, code_bytes, scale_bytes;

  int64_t row_bytes() const { return code_bytes + scale_bytes; }
  void fill(int64_t begin, int64_t end, uint8_t* out) const {
    for (int64_t n = begin / row_bytes(); n < end / row_bytes(); ++n, out += row_bytes()) {
      const int64_t row = range.row_begin + n;
      source.need_rows(row, 1);
      const auto* stored = static_cast<const uint8_t*>(source.view.data) +
                           (source.source_row ? source.source_row(row) : row) * stored_bytes;
      std::memcpy(out, stored + first_byte, static_cast<size_t>(code_bytes));
      std::memcpy(out + code_bytes, stored + stored_bytes - scale_bytes, static_cast<size_t>(scale_bytes));
    }
  }
  /// Drops the stored rows of a part that has been packed, unless other weights read them.
  void release(int64_t begin, int64_t end) const {
    if (source.is_shared || source.source_row || !source.file) return;
    const int64_t first = range.row_begin + (begin + row_bytes() - 1) / row_bytes();
    const int64_t last = range.row_begin + end / row_bytes();
    if (first >= last) return;
    const auto* data = static_cast<const uint8_t*>(source.view.data) + first * stored_bytes;
    source.file->release(data - source.file->data(), (last - first) * stored_bytes);
  }
};

/// Returns true if the bytes can be read again after they have been released.
bool is_renewable(const MappedFile& file) { return file.identity() != 0 || file.is_made_lazily(); }

Result<WeightSource> take_columns(const std::string& name, const WeightSource& source, const WeightRange& range) {
  const DTypeInfo& type = dtype_info(source.view.dtype);
  if (source.columns)
    return unsupported("tensor {}: its columns are in another order (act-order), so they cannot be divided", name);
  const int64_t block = type.block_elements;
  if (range.col_begin % block != 0 || range.cols % block != 0)
    return unsupported("tensor {}: columns [{}, {}) cut through blocks of {}, which hold {} elements", name,
                       range.col_begin, range.col_begin + range.cols, type.name, block);
  ColumnCut cut{source, range, row_bytes(type.dtype, source.view.shape[1]), 0, 0, type.row_bytes};
  cut.first_byte = range.col_begin / block * type.block_bytes;
  cut.code_bytes = range.cols / block * type.block_bytes;
  if (source.file && !is_renewable(*source.file)) cut.source.is_shared = true;
  constexpr int64_t kPieceBytes = 64 << 10;
  MappedFile::Maker maker;
  maker.piece = std::max<int64_t>(1, kPieceBytes / cut.row_bytes()) * cut.row_bytes();
  if (source.file && source.file->identity() != 0) {
    maker.identity = source.file->identity();
    for (const int64_t number : {range.row_begin, range.rows, range.col_begin, range.cols})
      maker.identity = hash_word(maker.identity, static_cast<uint64_t>(number));
  }
  const int64_t bytes = range.rows * cut.row_bytes();
  maker.fill = [cut](int64_t begin, int64_t end, uint8_t* out) { cut.fill(begin, end, out); };
  maker.release = [cut](int64_t begin, int64_t end) { cut.release(begin, end); };
  WeightSource part;
  REDLINE_ASSIGN(part.file, MappedFile::make_lazily(source.file ? source.file->path() : name, bytes, std::move(maker)));
  part.view = {type.dtype, {range.rows, range.cols}, part.file->data()};
  return part;
}

}  // namespace

std::string WeightRange::to_string() const {
  return fmt::format("[{}:{}, {}:{}]", row_begin, row_begin + rows, col_begin, col_begin + cols);
}

Layout sharded_layout(int64_t rows, int64_t cols, ShardedAxis axis, int64_t ranks) {
  const Iter rank = {ranks, 1, Axis::kRank};
  if (axis == ShardedAxis::kRows) {
    REDLINE_CHECK(rows % ranks == 0);
    return Layout({rank, {rows / ranks, cols}, {cols, 1}});
  }
  REDLINE_CHECK(cols % ranks == 0);
  return Layout({{rows, cols / ranks}, rank, {cols / ranks, 1}});
}

Result<WeightRange> range_of_rank(const Layout& layout, int64_t rows, int64_t cols, int64_t rank) {
  REDLINE_ASSIGN(const auto axes, layout.group({rows, cols}));
  REDLINE_ASSIGN(const auto row, part_of_axis(axes[0], rows, rank));
  REDLINE_ASSIGN(const auto col, part_of_axis(axes[1], cols, rank));
  return WeightRange{row.first, row.second, col.first, col.second};
}

Result<bool> gives_partial_sums(const Layout& layout, int64_t rows, int64_t cols) {
  REDLINE_ASSIGN(const auto axes, layout.group({rows, cols}));
  return std::any_of(axes[1].begin(), axes[1].end(),
                     [](const Iter& digit) { return digit.axis == Axis::kRank && digit.extent > 1; });
}

Result<WeightSource> take_range(const std::string& name, const WeightSource& source, const WeightRange& range) {
  const TensorView& view = source.view;
  if (view.shape.empty() || view.shape.size() > 2)
    return unsupported("tensor {} has {} axes; only matrices and vectors are divided", name, view.shape.size());
  const bool is_vector = view.shape.size() == 1;
  const int64_t stored_rows = view.shape[0], stored_cols = is_vector ? 1 : view.shape[1];
  if (range.row_begin < 0 || range.rows < 1 || range.rows > stored_rows - range.row_begin || range.col_begin < 0 ||
      range.cols < 1 || range.cols > stored_cols - range.col_begin)
    return invalid_argument("tensor {}: the range {} is not within [{}, {}]", name, range.to_string(), stored_rows,
                            stored_cols);
  if (range.cols < stored_cols) return take_columns(name, source, range);
  WeightSource part = source;
  if (range.rows == stored_rows) return part;
  if (is_vector && dtype_info(view.dtype).is_block)
    return unsupported("tensor {} is a vector of type {}, which is not divided", name, dtype_info(view.dtype).name);
  // Private memory is lost when it is released, and the pages at the ends belong to other parts too.
  if (source.file && !is_renewable(*source.file)) part.is_shared = true;
  part.view.shape[0] = range.rows;
  const int64_t first = range.row_begin, end = first + range.rows;
  bool stays_within = true;  // the order of rows maps the range to itself
  for (int64_t n = first; n < end && source.source_row; ++n) {
    const int64_t from = source.source_row(n);
    stays_within = stays_within && from >= first && from < end;
  }
  if (stays_within) {
    part.view.data = static_cast<const uint8_t*>(view.data) + first * row_bytes(view.dtype, stored_cols);
    if (source.source_row)
      part.source_row = [first, row = source.source_row](int64_t n) { return row(first + n) - first; };
    return part;
  }
  part.source_row = [first, row = source.source_row](int64_t n) { return row(first + n); };
  part.is_shared = true;  // the rows lie anywhere in the tensor, among those of other parts
  return part;
}

}  // namespace redline
