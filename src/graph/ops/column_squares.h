#pragma once

#include "graph/ops/moe_router.h"

namespace redline {

/// y[0, k] = sum_m x[m, k]^2: the sums of importance matrices.
///
/// x        [rows, cols]  f32
/// returns  [1, cols]     f32; summed in the order of rows
Value column_squares(GraphBuilder& g, Value x);

/// The same of the rows of each expert e, the pairs [offsets[e], offsets[e + 1]): y[e, k], and their number y[e, cols].
///
/// x        [tokens, cols], or [tokens * experts_per_token, cols] by expert (`by_expert`)  f32
/// returns  [num_experts, cols + 1]                                                        f32
struct ExpertSquaresAttrs {
  int64_t num_experts = 0, experts_per_token = 0;
  bool by_expert = false;
};
Value expert_squares(GraphBuilder& g, Value x, const Routing& routing, bool by_expert);

extern const OpDef kColumnSquares, kExpertSquares;

/// The matrices that are multiplied with an activation.
struct CollectedSquares {
  std::vector<ValueId> matrices;  ///< of experts: those of expert 0, expert 1, ... of one kind, then of the next kind
  int64_t num_experts = 0;        ///< 0: they are not of experts
};
/// Adds a column_squares, or expert_squares, for every activation that products read; its result becomes the output
/// "squares.N". The product that makes output 0 is left out. Returns what belongs to each N.
std::vector<CollectedSquares> collect_column_squares(Graph& graph);

}  // namespace redline
