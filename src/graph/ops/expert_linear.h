// Linear ops of a mixture of experts, and the weighted sum of their results.
#pragma once

#include <span>

#include "graph/ops/moe_router.h"
#include "tensor/activation.h"

namespace redline {

/// The matrices of all experts, each of one shape and type, with an optional bias [num_experts, features].
struct ExpertMatrices {
  std::span<const Value> weights;
  Value bias;
};

struct ExpertLinearAttrs {
  int64_t num_experts = 0;
  int64_t experts_per_token = 0;
  bool has_bias = false;
  Activation activation = Activation::kSilu;  ///< read by expert_gated_linear only
  /// Limit of gpt-oss's clamped SwiGLU (arXiv:2508.10925): gate = min(gate, limit), up = clamp(up, -limit, limit) + 1.
  /// 0: values are not clamped.
  float limit = 0;
};

// The products of a mixture of experts. The rows of an expert are multiplied together; an expert without rows is
// neither computed nor is its weight read.

/// y[i] = f(gate_e x[t]) * (up_e x[t]) for each i in [offsets[e], offsets[e + 1]), where t is the token of pair
/// order[i].
///
/// x        [tokens, in_features]                              f32
/// returns  [tokens * experts_per_token, features], by expert  f32
/// `attrs` must set activation and limit; this function sets the other members.
Value expert_gated_linear(GraphBuilder& g, Value x, const Routing& routing, const ExpertMatrices& gate,
                          const ExpertMatrices& up, ExpertLinearAttrs attrs);

/// y[order[i]] = weight_e x[i] for each i in [offsets[e], offsets[e + 1]).
///
/// x        [tokens * experts_per_token, in_features], by expert  f32
/// returns  [tokens * experts_per_token, features], by pair       f32
Value expert_linear(GraphBuilder& g, Value x, const Routing& routing, const ExpertMatrices& matrices);

/// y[t] = sum_i weights[t, i] x[t * experts_per_token + i] + sigmoid(gate[t]) shared[t], in this order.
///
/// x        [tokens * experts_per_token, features]  f32
/// weights  [tokens, experts_per_token]             f32
/// shared   [tokens, features]                      f32, optional: an expert of all tokens
/// gate     [tokens, 1]                             f32, optional: a factor of `shared`
/// returns  [tokens, features]                      f32
Value expert_sum(GraphBuilder& g, Value x, Value weights, Value shared = {}, Value gate = {});

/// Inputs: x, offsets, order, the matrices by expert (gates, then ups), biases.
extern const OpDef kExpertGatedLinear, kExpertLinear;
extern const OpDef kExpertSum;
/// Returns true if an op multiplies by the matrices of experts.
inline bool is_expert_product(const Op& op) { return op.def == &kExpertGatedLinear || op.def == &kExpertLinear; }

}  // namespace redline
