// Checks the properties that models rely on in settings that were read without an error.
#pragma once

#include <cmath>

#include "fuzz_input.h"
#include "models/blocks/decoder.h"
#include "models/blocks/rope_config.h"

namespace redline {

/// Reads `config` with two sets of a family's defaults, and checks the result.
inline void try_config(const nlohmann::json& config) {
  for (const DecoderDefaults& defaults : {DecoderDefaults{}, DecoderDefaults{128, 8, 32768}}) {
    const auto c = read_decoder_config(config, defaults);
    if (!c.ok()) {
      require(!c.status().message().empty());
      continue;
    }
    require(c->num_layers > 0 && c->hidden_size > 0 && c->intermediate_size > 0 && c->vocab_size > 0);
    require(c->num_kv_heads > 0 && c->num_heads % c->num_kv_heads == 0 && c->head_dim >= 2 && c->max_positions > 0);
    require(std::isfinite(c->rms_norm_eps) && std::isfinite(c->rope.attention_factor));
    const auto pairs = static_cast<int64_t>(c->rope.inverse_frequencies.size());
    require(pairs > 0 && 2 * pairs <= c->head_dim);
    for (const float f : c->rope.inverse_frequencies) require(std::isfinite(f));
    require(std::isfinite(c->rope.dynamic.base) && std::isfinite(c->rope.dynamic.factor));

    const auto windows = read_layer_windows(config, c->num_layers);
    if (!windows.ok()) {
      require(!windows.status().message().empty());
      continue;
    }
    require(static_cast<int64_t>(windows->size()) == c->num_layers);
    for (const int64_t window : *windows) require(window >= 0);
  }
}

}  // namespace redline
