// Choice of experts for each token in a mixture of experts.
#pragma once

#include "graph/graph.h"

namespace redline {

/// Function from the router's logits to the scores of experts.
enum class RouterScore : uint8_t {
  kSoftmax,  ///< over all experts
  kSigmoid,  ///< over each expert separately
};

struct RouterAttrs {
  int64_t num_experts = 0;
  int64_t experts_per_token = 0;
  RouterScore score = RouterScore::kSoftmax;
  bool normalizes = false;  ///< the weights of a token are divided by their sum
  float scale = 1;          ///< multiplies the weights after the normalization
  /// Group-limited routing (DeepSeek-V2, arXiv:2405.04434): neighbouring experts form `num_groups` equal groups, and a
  /// token chooses among those of its `groups_per_token` best ones. 1: no groups.
  int64_t num_groups = 1, groups_per_token = 1;
  bool groups_by_two_best = false;  ///< a group's score is the sum of its two best (V3), not the best one (V2)
};

/// The experts of each token, and the (token, expert) pairs of the step grouped by expert. Pair `token *
/// experts_per_token + i` is the token's i-th choice.
struct Routing {
  Value weights;  ///< [tokens, experts_per_token] f32: weight of each pair
  Value offsets;  ///< [num_experts + 1] i32: the pairs of expert e are order[offsets[e]] to order[offsets[e + 1] - 1]
  Value order;    ///< [tokens * experts_per_token] i32: pairs by expert, then by token
};

/// Chooses the `experts_per_token` experts with the largest score + bias, the smaller number first where they are
/// equal. Weights are computed from scores without bias.
///
/// logits  [tokens, num_experts]  f32
/// bias    [num_experts]          f32, f16 or bf16; optional (DeepSeek-V3's load balancing, arXiv:2412.19437)
Routing moe_router(GraphBuilder& g, Value logits, Value bias, const RouterAttrs& attrs);

extern const OpDef kMoeRouter;

/// Chooses the experts of one token, for references and back ends: sets chosen[i] and weights[i] for each i <
/// experts_per_token. `scores` and `bias` (or nullptr) have one element per expert. `keys` is scratch for num_experts +
/// num_groups numbers. Instantiated for float and double.
template <class T>
void choose_experts(const RouterAttrs& attrs, const T* scores, const T* bias, T* keys, int32_t* chosen, T* weights);

}  // namespace redline
