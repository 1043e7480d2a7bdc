// Tensor parallelism: the part of a language model that one of several ranks computes.
#pragma once

#include <memory>

#include "graph/graph.h"
#include "ranks/rank_group.h"

namespace redline {

/// How a graph is divided.
struct Shard {
  static constexpr int64_t kAllRanks = -1;
  int64_t ranks = 1;
  /// The rank whose part the graph becomes. kAllRanks: the graph computes the parts of all ranks, one after the other,
  /// with the same cuts and the same order of sums.
  int64_t rank = kAllRanks;
  std::shared_ptr<RankGroup> group = nullptr;  ///< of `ranks` ranks, as `rank` sees it; nullptr with kAllRanks
  /// Other ranks of this process read the same weights, so bytes that only this process has are not released.
  bool shares_weights = false;
};

/// Divides attention heads and the columns of MLPs and experts among ranks (Shoeybi et al. 2019, arXiv:1909.08053):
/// 1. Products that make queries, keys, values, gates and inner columns keep the rows of their matrix that this rank
///    computes. So do biases and norms of heads; a key-value state has the rank's heads only.
/// 2. Products that read them keep the columns of their matrix for the rank's part of x. Their results are partial
///    sums, and an all_reduce adds them in the order of ranks. A bias, and a shared expert that is not divided, is
///    added by rank 0.
/// 3. Everything else is computed by every rank: embeddings, norms, routers, the output matrix, recurrent layers.
///
/// The matrices are parts of the stored tensors (graph/weight_range.h), so a rank reads and keeps only its own. One
/// rank changes nothing. Runs before the passes, once: fused ops are not divided.
/// invalid_argument: a number of heads or columns that the ranks do not divide, or a rank that does not exist; the
/// message names the op and the number. unsupported: an op between these products that computes across heads or
/// columns, or a product with an adapter site. Errors of take_range(). An error leaves the graph as it is.
Status shard(Graph& graph, const Shard& shard);

}  // namespace redline
