// Elementwise addition of two values, and of a row to every row.
#pragma once

#include "graph/graph.h"

namespace redline {

/// y = a + b, elementwise; both f32 [rows, cols].
Value add(GraphBuilder& g, Value a, Value b);

/// y[r, c] = x[r, c] + row[c].
///
/// x    [rows, cols]  f32
/// row  [cols]        f32, f16 or bf16, a weight
/// returns like x
Value add_row(GraphBuilder& g, Value x, Value row);

extern const OpDef kAdd;
extern const OpDef kAddRow;

}  // namespace redline
