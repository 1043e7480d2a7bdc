#pragma once

#include "graph/graph.h"

namespace redline {

/// y[0, k] = sum_m x[m, k]^2: what importance matrices are made of.
///
/// x        [rows, cols]  f32
/// returns  [1, cols]     f32; summed in the order of rows
Value column_squares(GraphBuilder& g, Value x);

extern const OpDef kColumnSquares;

/// Adds a column_squares for every activation that products read; its result becomes the output "squares.N". The product
/// that makes output 0 is left out. Returns for each N the matrices that are multiplied with it.
std::vector<std::vector<ValueId>> collect_column_squares(Graph& graph);

}  // namespace redline
