// Addition of a value that is multiplied by a column range of a modulation table.
#pragma once

#include "graph/graph.h"

namespace redline {

/// y[r, c] = a[r, c] + table[i, column + c] * b[r, c], where i is the item of row r: the gated residual of adaLN-Zero
/// (Peebles and Xie 2022, arXiv:2212.09748).
///
/// a, b     [rows, cols]      f32
/// table    [batch, columns]  f32; rows [i * rows_per_item, (i + 1) * rows_per_item) of a belong to item i
/// returns like a
/// passes/fuse_gate folds it into the linear that computes b.
Value gated_add(GraphBuilder& g, Value a, Value b, Value table, int64_t column, const Dim& rows_per_item);

struct GatedAddAttrs {
  int64_t column = 0;  ///< first column of the table that applies to a
  Dim rows_per_item = 1;
};

extern const OpDef kGatedAdd;

}  // namespace redline
