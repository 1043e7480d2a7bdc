// Shared parts of decoder-only language models: common settings, and the blocks that model files compose.
#pragma once

#include <functional>

#include "graph/ops/attention.h"
#include "graph/ops/rope.h"
#include "models/checkpoint/config_reader.h"
#include "models/checkpoint/weight_reader.h"
#include "tensor/activation.h"

namespace redline {

/// Properties of the norms of a family.
struct NormKind {
  bool layer = false;     ///< the norms are layer norms, not RMS norms
  bool bias = false;      ///< layer norms have a bias
  bool plus_one = false;  ///< the factor is the stored weight plus 1
  bool weight = true;     ///< false: the norms are layer norms without factor and bias
};

/// Names of a checkpoint's tensors.
struct DecoderNames {
  std::string layers = "model.layers.";  ///< prefix before a layer's number
  std::string embedding = "model.embed_tokens", norm = "model.norm", head = "lm_head";
  std::string positions;       ///< learned position embeddings, added to the token embeddings; "": none
  std::string embedding_norm;  ///< norm of the embeddings; "": none
  int64_t first_position = 0;  ///< row of the first position in the learned embeddings
};

/// Settings of a decoder-only model. Names follow config.json.
struct DecoderConfig {
  int64_t num_layers = 0, hidden_size = 0, intermediate_size = 0, vocab_size = 0;
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  int64_t max_positions = 0;
  float rms_norm_eps = 1e-5f;  ///< epsilon of all norms, of either kind
  bool tie_word_embeddings = false;
  RopeTableAttrs rope;
  std::optional<RopeTableAttrs> window_rope;  ///< rope of layers with a window, if it differs
  std::optional<RopeTableAttrs> query_rope;   ///< rope of queries, if it differs; models with it have no window_rope
  std::vector<int64_t> window;                ///< per layer; 0: no window
  std::vector<bool> unrotated;                ///< per layer: has no rope; empty: all layers have rope
  DecoderNames names;
  NormKind norm;
  Activation activation = Activation::kSilu;
  bool is_usual_activation = true;                   ///< `activation` is the family's default, which GGUF files imply
  bool has_head_bias = false;                        ///< the output matrix has a bias
  float embedding_scale = 1, residual_scale = 1;     ///< factors of the embeddings and of each residual branch
  float attention_scale = 0;                         ///< factor of q . k; 0 stands for 1 / sqrt(head_dim)
  float logit_scale = 1;                             ///< factor of the logits
  float attention_soft_cap = 0, logit_soft_cap = 0;  ///< soft caps of scores and of logits (ops/soft_cap.h); 0: none
  std::vector<int64_t> layers_with_rows;  ///< layers after which rows are added to the hidden states, ascending
  bool interleaved_rope = false;          ///< adjacent rows of q and k projections rotate together, as in GGUF's llama
};

/// Defaults of config.json keys that differ between families.
struct DecoderDefaults {
  int64_t head_dim = 0;      ///< 0: hidden_size / num_attention_heads
  int64_t num_kv_heads = 0;  ///< 0: num_attention_heads, which null means in every family
  int64_t max_positions = 2048;
  bool tied = false;  ///< default of tie_word_embeddings
  Activation activation = Activation::kSilu;
  bool any_activation = false;            ///< the family's graph uses DecoderConfig::activation, whatever it is
  const char* norm_eps = "rms_norm_eps";  ///< key of the epsilon
  double norm_eps_value = 1e-6;
};

/// Reads and checks the common settings. Implausible or contradictory sizes are errors that name the key.
Result<DecoderConfig> read_decoder_config(const nlohmann::json& config, const DecoderDefaults& defaults = {});

/// Returns the windows of all layers: `window` in the layers that "layer_types" names, or, without it, that `slides`
/// selects; else 0.
Result<std::vector<int64_t>> windows_of_layers(const nlohmann::json& config, int64_t num_layers, int64_t window,
                                               const std::function<bool(int64_t)>& slides);

/// Reads the sliding windows of models that select layers by "layer_types" or by "max_window_layers" (Qwen2, Qwen3; the
/// default is a window of 4096 from layer 28 on). All are zero unless use_sliding_window.
Result<std::vector<int64_t>> read_layer_windows(const nlohmann::json& config, int64_t num_layers);

/// Reads the windows of models whose layers alternate. A layer has the window "sliding_window" if "layer_types" says
/// so; without "layer_types", all layers but every `full_every`-th have it. All are zero if sliding_window is null or
/// absent.
Result<std::vector<int64_t>> read_alternating_windows(const nlohmann::json& config, int64_t num_layers,
                                                      int64_t full_every);

/// The hidden state of a token after the first `layers` layers; 0: the embedding.
struct HiddenState {
  static constexpr int64_t kAllLayers = -1;
  int64_t layers = kAllLayers;
  bool is_normed = false;  ///< the final norm is applied to it
};

/// The outputs that a decoder's graph declares, and its input of embeddings. Values that no output needs are not
/// computed, and without logits the weights of the output matrix are not read.
struct DecoderOutputs {
  bool logits = true;  ///< "logits" [logit_rows, vocab_size], of the tokens that the input "logit_rows" selects
  /// "hidden.N" [hidden_rows, hidden_size] for each entry N, of the tokens that the input "hidden_rows" selects. Several
  /// are what drafting heads (EAGLE-3, arXiv:2503.01840) and networks that are conditioned on text read.
  std::vector<HiddenState> hidden = {};
  /// "embeddings" [embedding_rows, hidden_size] replace the token embeddings of the tokens that "embedding_rows"
  /// selects; "layer_rows.N" are added to their hidden states after the layers DecoderConfig::layers_with_rows.
  /// Positions then have the axes of DecoderConfig::rope.
  bool takes_embeddings = false;
};
/// Returns the name of the output for DecoderOutputs::hidden[index].
std::string hidden_output(size_t index);

/// The inputs of a step and values shared by all layers. The inputs are named tokens, positions, logit_rows and
/// hidden_rows if there are such outputs, and "lengths" if rope depends on the length of the sequence.
struct DecoderStep {
  Value tokens, positions, logit_rows, hidden_rows;
  Value embedding_rows;                 ///< valid if the graph takes embeddings
  Value rope, window_rope, query_rope;  ///< rope tables of this step
};

/// Adds the building blocks of one layer. Names of tensors begin with scope(): "model.layers.N.", or another prefix
/// from DecoderConfig::names.
class LayerBuilder {
 public:
  LayerBuilder(GraphBuilder& g, WeightReader& w, const DecoderConfig& c, const DecoderStep& step, int64_t layer)
      : g_(g), w_(w), c_(c), step_(step), layer_(layer), scope_(fmt::format("{}{}.", c.names.layers, layer)) {}

  /// Adds the family's norm with `name`.weight over groups of `size`.
  Value norm(Value x, const char* name, int64_t size) { return norm(x, name, size, c_.rms_norm_eps); }
  /// norm() with another epsilon.
  Value norm(Value x, const char* name, int64_t size, float eps);
  /// Adds a linear op with `name`.weight, and `name`.bias if `has_bias`, from `in` to `out` features.
  Value project(Value x, const char* name, int64_t out, int64_t in, bool has_bias);
  /// project() with rows [begin, begin + out) of a weight with `stored` rows. `part` names this part of the weight.
  Value project_part(Value x, const char* name, const char* part, int64_t stored, int64_t begin, int64_t out,
                     int64_t in, bool has_bias);
  /// Adds the projection to queries (which = 0), keys (1) or values (2) by a part of a joint weight whose rows are
  /// stored by head: query, key and value of the first head, then of the second. `part` names this part.
  Value project_by_head(Value x, const char* name, const char* part, int64_t which, bool has_bias);
  /// Adds the projection to the queries or keys of `heads` heads, in the order that rotate() expects.
  Value project_heads(Value x, const char* name, int64_t heads, bool has_bias);
  /// Adds the rotary embedding of all heads; returns x itself in a layer without rope.
  Value rotate(Value x) { return rotate(x, c_.head_dim); }
  /// rotate() for heads of another size.
  Value rotate(Value x, int64_t head_dim);
  /// rotate() for queries, which may have a table of their own.
  Value rotate_queries(Value x);
  /// Appends keys and values to the cache of this layer and adds its attention, with window, scale and soft cap from
  /// the config.
  Value attend(Value q, Value k, Value v, const AttentionInputs& inputs = {});
  /// Adds the ALiBi slopes of all heads for attend().
  Value alibi(const std::vector<float>& slopes) { return w_.add(scope_ + "self_attn.alibi_slopes", slopes); }
  /// Adds x + residual_scale * y.
  Value residual(Value x, Value y);
  /// Adds a gated MLP: the activation of the gate projection times the up projection, then the down projection.
  Value gated_mlp(Value x, bool has_bias);
  /// gated_mlp() with the tensors `name`.gate_proj, `name`.up_proj and `name`.down_proj and `inner` features.
  Value gated_mlp(Value x, const std::string& name, int64_t inner, bool has_bias);
  /// gated_mlp() without biases, with other names of its matrices.
  struct MlpNames {
    const char *gate, *up, *down;
  };
  Value gated_mlp(Value x, const MlpNames& names);
  /// gated_mlp() with gate and up, in this order, in one weight.
  Value joint_gated_mlp(Value x, const char* joint = "mlp.gate_up_proj", const char* down = "mlp.down_proj") {
    return joint_gated_mlp(x, c_.intermediate_size, joint, down);
  }
  /// joint_gated_mlp() with `inner` features.
  Value joint_gated_mlp(Value x, int64_t inner, const char* joint, const char* down);
  /// Adds an MLP without a gate: up projection, activation, down projection.
  Value plain_mlp(Value x, const char* up, const char* down, bool has_bias);
  /// Adds an MLP without a gate whose activation is relu(x)^2 (So et al. 2021, arXiv:2109.08668).
  Value squared_relu_mlp(Value x, const char* up, const char* down, bool has_bias);
  const DecoderConfig& config() const { return c_; }
  int64_t layer() const { return layer_; }
  GraphBuilder& graph() { return g_; }
  /// Returns the reader of weights, for tensors with a layout that only this family has; names are given after scope().
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

/// Returns the row of a weight as in LayerBuilder::project_by_head that becomes row n if all queries come first, then
/// all keys, then all values.
int64_t row_by_head(const DecoderConfig& c, int64_t n);

/// The parts of a pre-norm layer that differ from Llama's: the layer computes x + mixer(norm(x)), then x +
/// mlp(norm(x)). An empty function stands for Llama's part. `layer` is the layer's number.
struct LayerParts {
  std::function<Value(LayerBuilder&b, int64_t layer, Value x)> mixer, mlp;
};

/// Builds a decoder: embedding, `layer` for each layer, and for the rows that an output needs final norm and lm_head.
/// Fails if a tensor of the checkpoint was not used. invalid_argument: `outputs` names a layer that does not exist, or
/// nothing.
Result<Graph> build_decoder(std::string name, const DecoderConfig& c, const Checkpoint& checkpoint,
                            const DecoderOutputs& outputs, const std::function<Value(LayerBuilder&, Value)>& layer);

}  // namespace redline
