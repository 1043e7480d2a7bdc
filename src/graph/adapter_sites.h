// Marks the ops of a graph to which adapters may add products. The caller runs it before the other passes.
#pragma once

#include <functional>
#include <string>

#include "graph/adapters.h"

namespace redline {

/// Gives every linear and SquareConv2d (graph/ops/convolution.h) whose weight `wanted` accepts a site. Sites are in
/// graph order, numbered from `first_index`.
AdapterSites add_adapter_sites(Graph& graph, int64_t max_rank, const std::function<bool(const std::string&)>& wanted,
                               size_t first_index = 0);

/// Gives every embedding a site, like add_adapter_sites().
AdapterSites add_lookup_sites(Graph& graph, int64_t max_rank, size_t first_index);

}  // namespace redline
