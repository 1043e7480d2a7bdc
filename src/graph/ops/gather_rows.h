// Selection of rows, such as those whose logits are computed.
#pragma once

#include "graph/graph.h"

namespace redline {

/// y[i] = x[rows[i]]. Selects the rows whose logits are computed.
///
/// x     [n, cols]     f32
/// rows  [logit_rows]  i32, in [0, n)
/// returns [logit_rows, cols]
Value gather_rows(GraphBuilder& g, Value x, Value rows);

extern const OpDef kGatherRows;

}  // namespace redline
