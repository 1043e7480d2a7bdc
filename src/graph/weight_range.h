// Parts of weights: the rows and columns of a stored tensor that one rank reads.
#pragma once

#include <string>

#include "graph/graph.h"
#include "tensor/layout.h"

namespace redline {

/// Rows [row_begin, row_begin + rows) and columns [col_begin, col_begin + cols) of a matrix. For a vector the rows are
/// its elements, and cols is 1.
struct WeightRange {
  int64_t row_begin = 0, rows = 0;
  int64_t col_begin = 0, cols = 1;
  friend bool operator==(const WeightRange&, const WeightRange&) = default;
  std::string to_string() const;  ///< "[0:24, 16:32]"
};

/// The axis of a matrix that ranks divide.
enum class ShardedAxis : uint8_t {
  kRows,     ///< the products of the ranks are different columns of the result
  kColumns,  ///< the products of the ranks are partial sums of the result
};
/// Returns the layout of a matrix, or with cols = 1 of a vector, of which each of `ranks` ranks holds an equal part.
/// The size of the axis must be a multiple of `ranks`.
Layout sharded_layout(int64_t rows, int64_t cols, ShardedAxis axis, int64_t ranks);
/// Returns the part of a matrix that a rank holds. invalid_argument: the layout is not that of such a matrix, or ranks
/// do not hold contiguous parts of an axis.
Result<WeightRange> range_of_rank(const Layout& layout, int64_t rows, int64_t cols, int64_t rank);
/// Returns true if products with the parts of this matrix must be summed over the ranks: they divide its columns.
Result<bool> gives_partial_sums(const Layout& layout, int64_t rows, int64_t cols);

/// Returns a part of a weight, of which only the bytes of the range are read. Rows alone are a view of the stored
/// tensor; columns are copied when they are needed, and again after they have been released. The part is packed and
/// unpacked as any weight. Columns of a block format are whole blocks; a row of a format with a scale per row keeps its
/// scale.
/// `name`: name of the weight, for errors.
/// invalid_argument: the range is not within the weight. unsupported: the range cuts through blocks, or selects columns
/// of a weight whose columns are in another order than x (act-order), or the weight has more than two axes.
Result<WeightSource> take_range(const std::string& name, const WeightSource& source, const WeightRange& range);

}  // namespace redline
