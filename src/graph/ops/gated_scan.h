// Recurrent scan with a matrix state per head: Mamba-2 and gated delta networks.
#pragma once

#include <limits>

#include "graph/graph.h"

namespace redline {

/// Number of tokens after which the state of a scan is updated. Until then their keys and values are stored with the
/// state.
inline constexpr int64_t kScanChunkTokens = 32;

struct GatedScanAttrs {
  bool is_delta = false;                  ///< false: Mamba-2's state-space dual; true: the gated delta rule
  int64_t num_heads = 0, num_groups = 0;  ///< value heads; the heads of a group share keys and queries
  int64_t key_dim = 0, value_dim = 0;     ///< sizes of one head
  float step_min = 0, step_max = std::numeric_limits<float>::infinity();
  bool groups_alternate = false;  ///< head h belongs to group h % num_groups; false: the heads of a group are adjacent

  int64_t group_of(int64_t head) const {
    return groups_alternate ? head % num_groups : head / (num_heads / num_groups);
  }
  int64_t columns() const { return num_heads * value_dim + 2 * num_groups * key_dim; }
  /// Elements of the state: S of each head, then keys by group, u and log decay by head of kScanChunkTokens.
  int64_t state_elements() const {
    return num_heads * key_dim * value_dim +
           kScanChunkTokens * (num_groups * key_dim + num_heads * value_dim + num_heads);
  }
};

/// A recurrence whose state is a matrix S of each head, [key_dim, value_dim], zero before the first token:
///   step = clamp(softplus(step[t] + bias)),  a = e^(decay step)
///   S[t] = a S[t-1] + k[t] u[t]^T,  y[t] = S[t]^T q[t] (+ skip v[t])
///   u = step v[t]                                          Mamba-2 (Dao and Gu 2024, arXiv:2405.21060)
///   u = sigmoid(beta[t]) (v[t] - a S[t-1]^T k[t])          is_delta (Yang et al. 2024, arXiv:2412.06464)
/// With is_delta q and k are divided by sqrt(|x|^2 + 1e-6) first, q also by sqrt(key_dim).
///
/// Computed in chunks of kScanChunkTokens at fixed places of the sequence (kernels/cpu/recurrence.h), so that the bits
/// of a row do not depend on how a prompt is cut into steps.
struct GatedScanInputs {
  Value x;      ///< [tokens, columns]  f32: values, keys, queries; with is_delta queries, keys, values
  Value step;   ///< [tokens, num_heads]  f32
  Value decay;  ///< [num_heads]: negative
  Value bias;   ///< [num_heads]: added to `step`
  Value skip;   ///< [num_heads]: only without is_delta
  Value beta;   ///< [tokens, num_heads]  f32: only with is_delta
  Value state;  ///< a kRecurrent state of state_elements()
};
/// returns  [tokens, num_heads * value_dim]  f32
Value gated_scan(GraphBuilder& g, const GatedScanInputs& inputs, GatedScanAttrs attrs);

/// Inputs: x, step, decay, bias, skip or beta, state.
extern const OpDef kGatedScan;

}  // namespace redline
