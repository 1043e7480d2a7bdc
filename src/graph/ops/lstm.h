// Stacked LSTM layers whose h and c are a recurrent state.
#pragma once

#include <span>

#include "graph/graph.h"

namespace redline {

struct LstmAttrs {
  int64_t hidden_size = 0;
  /// [layers]: how many tokens before it a token reads h and c. 1: torch.nn.LSTM; more: the dilated recurrent networks
  /// of Chang et al. 2017, arXiv:1710.02224.
  std::vector<int64_t> dilation;
  bool has_bias = true;

  int64_t num_layers() const { return std::ssize(dilation); }
  /// Returns the number of elements of the state. By layer: h of the last `dilation` tokens, where position p is stored
  /// at index p % dilation, then c in the same way.
  int64_t state_elements() const { return state_offset(num_layers()); }
  int64_t state_offset(int64_t layer) const;
};

/// The weights of a layer, in PyTorch's order of gates: input, forget, cell, output.
struct LstmLayer {
  Value weight_ih;         ///< [4 * hidden_size, columns of x, or hidden_size after the first layer]
  Value weight_hh;         ///< [4 * hidden_size, hidden_size]
  Value bias_ih, bias_hh;  ///< [4 * hidden_size]; invalid without has_bias
};

/// Stacked layers of long short-term memory (Hochreiter and Schmidhuber 1997); each layer reads the h of the layer
/// below. With d the dilation of a layer, and h and c zero before the first token,
///   i, f, g, o = split(weight_ih x[t] + bias_ih + weight_hh h[t-d] + bias_hh)
///   c[t] = sigmoid(f) c[t-d] + sigmoid(i) tanh(g),  h[t] = sigmoid(o) tanh(c[t])
///
/// x        [tokens, columns]  f32
/// layers   [layers]
/// state    a kRecurrent state of state_elements()
/// returns  [tokens, hidden_size]  f32: h of the last layer
///
/// Computed as a wavefront: the tokens of a step are cut into chunks, and a layer works on a chunk while the one above
/// works on the chunk before (as FractalTensor schedules stacked recurrences, Liu et al. 2024).
Value lstm(GraphBuilder& g, Value x, std::span<const LstmLayer> layers, Value state, LstmAttrs attrs);

/// Inputs: x, state, then the weights and biases of each layer.
extern const OpDef kLstm;

}  // namespace redline
