// Shared parts of decoder-only language models: common settings, and the blocks that model files compose.
#pragma once

#include <functional>

#include "graph/ops/attention.h"
#include "graph/ops/rope.h"
#include "models/config_reader.h"
#include "models/weight_reader.h"

namespace redline {

/// Names follow config.json.
struct DecoderConfig {
  int64_t num_layers = 0, hidden_size = 0, intermediate_size = 0, vocab_size = 0;
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  int64_t max_positions = 0;
  float rms_norm_eps = 1e-5f;
  bool tie_word_embeddings = false;
  RopeTableAttrs rope;
  std::vector<int64_t> window;  ///< per layer; 0: no window
};

/// Defaults of config.json keys that differ between families.
struct DecoderDefaults {
  int64_t head_dim = 0;      ///< 0: hidden_size / num_attention_heads
  int64_t num_kv_heads = 0;  ///< 0: num_attention_heads; null means that in every family
  int64_t max_positions = 2048;
};

/// Reads and checks the common settings. Implausible or contradictory sizes are errors that name the key.
Result<DecoderConfig> read_decoder_config(const nlohmann::json& config, const DecoderDefaults& defaults = {});

/// Sliding windows of models that select layers by "layer_types" or by "max_window_layers" (Qwen2, Qwen3; by default a
/// window of 4096 from layer 28 on); all zero unless use_sliding_window.
Result<std::vector<int64_t>> read_layer_windows(const nlohmann::json& config, int64_t num_layers);

/// The inputs of a step and values shared by all layers. Input names: tokens, positions, logit_rows; "lengths" where
/// rope depends on the length of the sequence.
struct DecoderStep {
  Value tokens, positions, logit_rows;
  Value rope;  ///< table of this step
};

/// Building blocks of one layer. Scope: "model.layers.N.".
class LayerBuilder {
 public:
  LayerBuilder(GraphBuilder& g, WeightReader& w, const DecoderConfig& c, const DecoderStep& step, int64_t layer)
      : g_(g), w_(w), c_(c), step_(step), layer_(layer), scope_(fmt::format("model.layers.{}.", layer)) {}

  /// RMS norm with `name`.weight over groups of `size`.
  Value norm(Value x, const char* name, int64_t size);
  /// x times `name`.weight (and `name`.bias) to `out` features.
  Value project(Value x, const char* name, int64_t out, int64_t in, bool has_bias);
  /// Rotary embedding of all heads.
  Value rotate(Value x);
  /// Attention of this layer, window and scale from the config.
  Value attend(Value q, Value k, Value v);
  /// gate, up, silu_mul, down.
  Value gated_mlp(Value x, bool has_bias);
  const DecoderConfig& config() const { return c_; }
  GraphBuilder& graph() { return g_; }

 private:
  GraphBuilder& g_;
  WeightReader& w_;
  const DecoderConfig& c_;
  const DecoderStep& step_;
  int64_t layer_;
  std::string scope_;
};

/// Embedding, `layer` for each layer, final norm, the wanted rows, lm_head. Ends with a check that every tensor was
/// used.
Result<Graph> build_decoder(std::string name, const DecoderConfig& c, const Checkpoint& checkpoint,
                            const std::function<Value(LayerBuilder&, Value)>& layer);

}  // namespace redline
