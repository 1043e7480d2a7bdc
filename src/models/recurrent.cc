#include "models/recurrent.h"

#include <cmath>
#include <cstring>

#include "graph/ops/causal_conv.h"

namespace redline {

Value recurrent_state(LayerBuilder& b, const std::string& name, int64_t elements) {
  StateAttrs attrs;
  attrs.kind = StateKind::kRecurrent;
  attrs.elements = elements;
  return b.graph().state(b.scope() + name, attrs);
}

Value short_convolution(LayerBuilder& b, Value x, const std::string& name, int64_t channels, int64_t taps,
                        bool has_bias) {
  const std::string module = fmt::format("{}{}.conv1d", b.scope(), name);
  WeightReader& w = b.weights();
  b.graph().set_scope(module);
  // Files have [channels, taps], from Hugging Face with an axis of 1 between them.
  const std::string weight = module + ".weight";
  const std::vector<int64_t> stored =
      w.rank(weight) == 2 ? std::vector{channels, taps} : std::vector<int64_t>{channels, 1, taps};
  const Value taken =
      w.take_made(weight, module + ".taps", stored, {taps, channels}, [&](const TensorView& from, uint8_t* to) {
        const auto size = static_cast<size_t>(row_bytes(from.dtype, 1));
        const auto* data = static_cast<const uint8_t*>(from.data);
        for (int64_t c = 0; c < channels; ++c)
          for (int64_t i = 0; i < taps; ++i)
            std::memcpy(to + static_cast<size_t>(i * channels + c) * size,
                        data + static_cast<size_t>(c * taps + i) * size, size);
      });
  const std::string bias = module + ".bias";
  return causal_conv(b.graph(), x, taken, w.has_bias(bias, has_bias) ? w.take(bias, {channels}) : Value{},
                     recurrent_state(b, name + ".conv_state", (taps - 1) * channels), {taps});
}

Value take_decay(LayerBuilder& b, const std::string& name, int64_t heads) {
  const std::string module = b.scope() + name;
  if (b.weights().has(module + ".A")) return b.weights().take(module + ".A", {heads});
  return b.weights().take_changed(module + ".A_log", {heads}, [](float value) { return -std::exp(value); });
}

Value take_step_bias(LayerBuilder& b, const std::string& name, int64_t heads) {
  const std::string of_file = b.scope() + name + ".dt.bias";
  return b.weights().take(b.weights().has(of_file) ? of_file : b.scope() + name + ".dt_bias", {heads});
}

}  // namespace redline
