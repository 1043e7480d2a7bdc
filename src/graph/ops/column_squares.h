// Sums of squares of activation columns, which importance matrices are made of.
#pragma once

#include "graph/ops/moe_router.h"

namespace redline {

/// y[0, k] = sum_m x[m, k]^2, the sums of an importance matrix.
///
/// x        [rows, cols]  f32
/// returns  [1, cols]     f32; summed in the order of rows
Value column_squares(GraphBuilder& g, Value x);

/// y[e, k] = the sum of x[m, k]^2 over the rows m of expert e, which are the pairs [offsets[e], offsets[e + 1]). y[e,
/// cols] is the number of these rows.
///
/// x        [tokens, cols], or [tokens * experts_per_token, cols] by expert (`by_expert`)  f32
/// returns  [num_experts, cols + 1]                                                        f32
struct ExpertSquaresAttrs {
  int64_t num_experts = 0, experts_per_token = 0;
  bool by_expert = false;
};
Value expert_squares(GraphBuilder& g, Value x, const Routing& routing, bool by_expert);

extern const OpDef kColumnSquares, kExpertSquares;

/// The matrices that are multiplied with one activation.
struct CollectedSquares {
  std::vector<ValueId> matrices;  ///< matrices of experts are ordered by kind (gate, up), then by expert
  int64_t num_experts = 0;        ///< 0: the matrices do not belong to experts
};
/// Adds a column_squares, or expert_squares, for every activation that a linear op reads; its result becomes the output
/// "squares.N". The linear op that computes output 0 of the graph is left out. Element N of the result describes
/// "squares.N".
std::vector<CollectedSquares> collect_column_squares(Graph& graph);

}  // namespace redline
