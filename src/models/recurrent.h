// What layers with a recurrent state share: the short convolution, and the weights of a scan.
#pragma once

#include "graph/ops/gated_scan.h"
#include "models/decoder.h"

namespace redline {

/// A recurrent state of the layer.
Value recurrent_state(LayerBuilder& b, const std::string& name, int64_t elements);

/// The convolution `name`.conv1d over `taps` tokens of each channel of x, and silu.
Value short_convolution(LayerBuilder& b, Value x, const std::string& name, int64_t channels, int64_t taps,
                        bool has_bias);

/// `name`.A_log, of which the decay is -exp(A_log); GGUF files have the decay itself, `name`.A.
Value take_decay(LayerBuilder& b, const std::string& name, int64_t heads);
/// `name`.dt_bias, in GGUF files `name`.dt.bias.
Value take_step_bias(LayerBuilder& b, const std::string& name, int64_t heads);

}  // namespace redline
