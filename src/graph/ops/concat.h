// Concatenation of rows or columns, and slices of rows.
#pragma once

#include "graph/graph.h"
#include "graph/items.h"

namespace redline {

/// Concatenates the rows of a and b within each batch item: item i of y is [a_i; b_i].
///
/// a  [batch * a_rows, cols], b  [batch * b_rows, cols]  f32
/// returns  [batch * (a_rows + b_rows), cols]
Value concat_rows(GraphBuilder& g, Value a, Value b, const Dim& batch, const Dim& a_rows, const Dim& b_rows);

/// The inverse of concat_rows: returns rows [skip, skip + rows) of every item of x.
///
/// x  [batch * item_rows, cols]  f32
/// returns  [batch * rows, cols]
Value slice_rows(GraphBuilder& g, Value x, const Dim& batch, const Dim& item_rows, const Dim& skip, const Dim& rows);

/// y[r] = [a[r], b[r]]; can be stored in the layouts that linear ops read.
Value concat_cols(GraphBuilder& g, Value a, Value b);
/// Attributes of concat_rows and slice_rows. Item i of y is the concatenation, in input order, of rows [skip[k],
/// skip[k] + rows[k]) of item i of each input k.
struct RowsOpAttrs {
  std::vector<Dim> rows, item_rows, skip;  ///< [inputs]
};

/// Calls copy(k, from, to, rows) for each run of rows that y takes from one input: rows [from, from + rows) of input k
/// become rows [to, to + rows) of y. Together the runs cover rows [begin, end) of y.
template <class Copy>
void for_row_runs(const RowsOpAttrs& op, const SymbolValues& sizes, int64_t begin, int64_t end, const Copy& copy) {
  int64_t y_item_rows = 0;
  for (const Dim& rows : op.rows) y_item_rows += rows.eval(sizes);
  for_items(begin, end, y_item_rows, [&](int64_t item, int64_t from, int64_t to) {
    int64_t first = item * y_item_rows;
    for (size_t k = 0; k < op.rows.size(); ++k) {
      const int64_t last = first + op.rows[k].eval(sizes);
      const int64_t run_begin = std::max(first, from), run_end = std::min(last, to);
      if (run_begin < run_end)
        copy(k, item * op.item_rows[k].eval(sizes) + op.skip[k].eval(sizes) + run_begin - first, run_begin,
             run_end - run_begin);
      first = last;
    }
  });
}

extern const OpDef kConcatRows;
extern const OpDef kSliceRows;
extern const OpDef kConcatCols;

}  // namespace redline
