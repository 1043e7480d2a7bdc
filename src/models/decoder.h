// Shared parts of decoder-only language models: common settings, and the blocks that model files compose.
#pragma once

#include <functional>

#include "graph/ops/attention.h"
#include "graph/ops/rope.h"
#include "models/config_reader.h"
#include "models/weight_reader.h"
#include "tensor/activation.h"

namespace redline {

/// How the norms of a family compute.
struct NormKind {
  bool layer = false;     ///< layer norm, not RMS norm
  bool bias = false;      ///< of a layer norm
  bool plus_one = false;  ///< stored weights are factors minus 1
};

/// Names of a checkpoint's tensors.
struct DecoderNames {
  std::string layers = "model.layers.";  ///< before a layer's number
  std::string embedding = "model.embed_tokens", norm = "model.norm", head = "lm_head";
  std::string positions;  ///< learned embeddings of positions, added to those of tokens; "": none
};

/// Names follow config.json.
struct DecoderConfig {
  int64_t num_layers = 0, hidden_size = 0, intermediate_size = 0, vocab_size = 0;
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  int64_t max_positions = 0;
  float rms_norm_eps = 1e-5f;  ///< of all norms, whatever their kind
  bool tie_word_embeddings = false;
  RopeTableAttrs rope;
  std::optional<RopeTableAttrs> window_rope;  ///< of layers with a window, if theirs differs
  std::vector<int64_t> window;                ///< per layer; 0: no window
  std::vector<bool> unrotated;                ///< per layer: without rope; empty: none
  DecoderNames names;
  NormKind norm;
  Activation activation = Activation::kSilu;
  float embedding_scale = 1, residual_scale = 1;     ///< factors of embeddings, and of each residual branch
  float attention_scale = 0;                         ///< factor of q . k; 0: 1 / sqrt(head_dim)
  float logit_scale = 1;                             ///< factor of logits
  float attention_soft_cap = 0, logit_soft_cap = 0;  ///< of scores and of logits (ops/soft_cap.h); 0: none
  bool interleaved_rope = false;  ///< neighbouring rows of q and k projections rotate together, as in GGUF's llama
};

/// Defaults of config.json keys that differ between families.
struct DecoderDefaults {
  int64_t head_dim = 0;      ///< 0: hidden_size / num_attention_heads
  int64_t num_kv_heads = 0;  ///< 0: num_attention_heads; null means that in every family
  int64_t max_positions = 2048;
  bool tied = false;  ///< tie_word_embeddings
  Activation activation = Activation::kSilu;
  const char* norm_eps = "rms_norm_eps";  ///< its key
  double norm_eps_value = 1e-6;
};

/// Reads and checks the common settings. Implausible or contradictory sizes are errors that name the key.
Result<DecoderConfig> read_decoder_config(const nlohmann::json& config, const DecoderDefaults& defaults = {});

/// Sliding windows of models that select layers by "layer_types" or by "max_window_layers" (Qwen2, Qwen3; by default a
/// window of 4096 from layer 28 on); all zero unless use_sliding_window.
Result<std::vector<int64_t>> read_layer_windows(const nlohmann::json& config, int64_t num_layers);

/// Windows of models whose layers alternate: a layer has the window "sliding_window" where "layer_types" says so; where
/// that is absent, all have it but every `full_every`-th. All zero where sliding_window is null or absent.
Result<std::vector<int64_t>> read_alternating_windows(const nlohmann::json& config, int64_t num_layers,
                                                      int64_t full_every);

/// The inputs of a step and values shared by all layers. Input names: tokens, positions, logit_rows; "lengths" where
/// rope depends on the length of the sequence.
struct DecoderStep {
  Value tokens, positions, logit_rows;
  Value rope, window_rope;  ///< tables of this step
};

/// Building blocks of one layer. Scope: "model.layers.N.", or as the config's names say.
class LayerBuilder {
 public:
  LayerBuilder(GraphBuilder& g, WeightReader& w, const DecoderConfig& c, const DecoderStep& step, int64_t layer)
      : g_(g), w_(w), c_(c), step_(step), layer_(layer), scope_(fmt::format("{}{}.", c.names.layers, layer)) {}

  /// The family's norm with `name`.weight over groups of `size`.
  Value norm(Value x, const char* name, int64_t size);
  /// x times `name`.weight (and `name`.bias) to `out` features.
  Value project(Value x, const char* name, int64_t out, int64_t in, bool has_bias);
  /// The same of rows [begin, begin + out) of a weight with `stored` rows. `part` distinguishes it from its siblings.
  Value project_part(Value x, const char* name, const char* part, int64_t stored, int64_t begin, int64_t out,
                     int64_t in, bool has_bias);
  /// Queries or keys of `heads` heads, in the order that rotate() expects.
  Value project_heads(Value x, const char* name, int64_t heads, bool has_bias);
  /// Rotary embedding of all heads; x itself in a layer without.
  Value rotate(Value x) { return rotate(x, c_.head_dim); }
  /// The same of heads of another size.
  Value rotate(Value x, int64_t head_dim);
  /// Attention of this layer; window, scale and soft cap from the config. `sinks`: as attention() takes them.
  Value attend(Value q, Value k, Value v, Value sinks = {});
  /// x + y, y times the config's residual scale.
  Value residual(Value x, Value y);
  /// gate, up, the activation of gate times up, down.
  Value gated_mlp(Value x, bool has_bias);
  /// The same of `name`.gate_proj and so on, with `inner` features.
  Value gated_mlp(Value x, const std::string& name, int64_t inner, bool has_bias);
  /// The same with gate and up, in this order, in one weight.
  Value joint_gated_mlp(Value x, const char* joint = "mlp.gate_up_proj", const char* down = "mlp.down_proj") {
    return joint_gated_mlp(x, c_.intermediate_size, joint, down);
  }
  /// The same with `inner` features.
  Value joint_gated_mlp(Value x, int64_t inner, const char* joint, const char* down);
  /// up, activation, down.
  Value plain_mlp(Value x, const char* up, const char* down, bool has_bias);
  const DecoderConfig& config() const { return c_; }
  int64_t layer() const { return layer_; }
  GraphBuilder& graph() { return g_; }
  /// For tensors that a family stores in a way of its own, by their names after scope().
  WeightReader& weights() { return w_; }
  const std::string& scope() const { return scope_; }

 private:
  Value gate(Value gate, Value up);

  GraphBuilder& g_;
  WeightReader& w_;
  const DecoderConfig& c_;
  const DecoderStep& step_;
  int64_t layer_;
  std::string scope_;
};

/// What a family computes in its own way in a pre-norm layer, x + mixer(norm(x)), then x + mlp(norm(x)). An empty
/// function: as Llama does. `layer` is the layer's number.
struct LayerParts {
  std::function<Value(LayerBuilder&b, int64_t layer, Value x)> mixer, mlp;
};

/// Embedding, `layer` for each layer, final norm, the wanted rows, lm_head. Ends with a check that every tensor was
/// used.
Result<Graph> build_decoder(std::string name, const DecoderConfig& c, const Checkpoint& checkpoint,
                            const std::function<Value(LayerBuilder&, Value)>& layer);

}  // namespace redline
