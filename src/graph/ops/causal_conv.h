// Short causal convolution over the tokens of a sequence, whose last inputs are a recurrent state.
#pragma once

#include "graph/graph.h"

namespace redline {

struct CausalConvAttrs {
  int64_t taps = 4;  ///< 2 to 4
  bool has_silu = true;
};

/// A convolution of each channel over the tokens of its sequence (the short convolution of Mamba, arXiv:2312.00752):
///   y[t, c] = silu(bias[c] + sum_i weight[i, c] x[t - taps + 1 + i, c])
/// Inputs before the first token are zero.
///
/// x        [tokens, channels]  f32
/// weight   [taps, channels]    f32, f16 or bf16
/// bias     [channels]          f32, f16 or bf16; optional
/// state    a kRecurrent state of (taps - 1) * channels elements: the last inputs
/// returns  [tokens, channels]  f32
Value causal_conv(GraphBuilder& g, Value x, Value weight, Value bias, Value state, CausalConvAttrs attrs);

/// The op behind causal_conv(). Inputs: x, weight, state, bias.
extern const OpDef kCausalConv;

}  // namespace redline
