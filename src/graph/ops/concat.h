#pragma once

#include "graph/graph.h"

namespace redline {

/// Items of a batch made of the rows of a, then those of b: item i of y is [a_i; b_i].
///
/// a  [batch * a_rows, cols], b  [batch * b_rows, cols]  f32
/// returns  [batch * (a_rows + b_rows), cols]
Value concat_rows(GraphBuilder& g, Value a, Value b, Dim batch, Dim a_rows, Dim b_rows);

/// The inverse: rows [skip, skip + rows) of every item of x.
///
/// x  [batch * item_rows, cols]  f32
/// returns  [batch * rows, cols]
Value slice_rows(GraphBuilder& g, Value x, Dim batch, Dim item_rows, Dim skip, Dim rows);

/// y[r] = [a[r], b[r]]; can be stored in the forms that products read.
Value concat_cols(GraphBuilder& g, Value a, Value b);

extern const OpDef kConcatRows;
extern const OpDef kSliceRows;
extern const OpDef kConcatCols;

}  // namespace redline
