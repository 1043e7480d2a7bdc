// Selection of columns in a given order.
#pragma once

#include "graph/graph.h"

namespace redline {

struct GatherColumnsAttrs {
  std::shared_ptr<const std::vector<int32_t>> columns;  ///< each in [0, cols of x)
};

/// y[i][k] = x[i][columns[k]]. A second call with the same x and columns returns the first op's value.
///
/// x        [rows, cols]            f32
/// returns  [rows, columns.size()]
Value gather_columns(GraphBuilder& g, Value x, std::shared_ptr<const std::vector<int32_t>> columns);

extern const OpDef kGatherColumns;

}  // namespace redline
