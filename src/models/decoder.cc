#include "models/decoder.h"

#include <cmath>

#include "graph/ops/add.h"
#include "graph/ops/embedding.h"
#include "graph/ops/gather_rows.h"
#include "graph/ops/linear.h"
#include "graph/ops/rms_norm.h"
#include "graph/ops/silu_mul.h"
#include "models/rope_config.h"

namespace redline {

Result<DecoderConfig> read_decoder_config(const nlohmann::json& config, const DecoderDefaults& defaults) {
  // Bounds far above real models, which keep products of sizes from overflowing.
  constexpr int64_t kMaxLayers = 1000, kMaxWidth = int64_t{1} << 24, kMaxVocab = int64_t{1} << 28;
  ConfigReader r(config);
  DecoderConfig c;
  c.num_layers = r.integer("num_hidden_layers", 1, kMaxLayers);
  c.hidden_size = r.integer("hidden_size", 1, kMaxWidth);
  c.intermediate_size = r.integer("intermediate_size", 1, kMaxWidth);
  c.vocab_size = r.integer("vocab_size", 1, kMaxVocab);
  c.num_heads = r.integer("num_attention_heads", 1, kMaxWidth);
  const bool kv_left_out = defaults.num_kv_heads > 0 && !config.contains("num_key_value_heads");
  c.num_kv_heads = kv_left_out ? defaults.num_kv_heads : r.integer("num_key_value_heads", 1, kMaxWidth, c.num_heads);
  REDLINE_TRY(r.status());
  constexpr int64_t kMaxHeadDim = 512;
  if (!r.has("head_dim") && defaults.head_dim == 0 && c.hidden_size % c.num_heads != 0)
    return invalid_argument("config: hidden_size {} does not divide among {} heads, and there is no head_dim",
                            c.hidden_size, c.num_heads);
  c.head_dim =
      r.integer("head_dim", 2, kMaxHeadDim, defaults.head_dim > 0 ? defaults.head_dim : c.hidden_size / c.num_heads);
  if (c.head_dim < 2 || c.head_dim > kMaxHeadDim)
    return unsupported("config: heads of {} elements; Redline runs 2 to {}", c.head_dim, kMaxHeadDim);
  if (c.num_heads % c.num_kv_heads != 0)
    return invalid_argument("config: num_attention_heads {} is not a multiple of num_key_value_heads {}", c.num_heads,
                            c.num_kv_heads);
  const int64_t positions = r.integer("max_position_embeddings", 1, int64_t{1} << 40, defaults.max_positions);
  c.rms_norm_eps = static_cast<float>(r.number("rms_norm_eps", 0, 1, 1e-6));
  c.tie_word_embeddings = r.boolean("tie_word_embeddings", false);
  const std::string act = r.text("hidden_act", "silu");
  if (act != "silu" && act != "swish") r.fail(unsupported("config: hidden_act \"{}\"; this family uses silu", act));
  REDLINE_TRY(r.status());
  REDLINE_ASSIGN(c.rope, read_rope_config(config, c.head_dim, positions));
  c.max_positions = rope_context(config, positions);
  c.window.assign(static_cast<size_t>(c.num_layers), 0);
  return c;
}

Result<std::vector<int64_t>> read_layer_windows(const nlohmann::json& config, int64_t num_layers) {
  std::vector<int64_t> windows(static_cast<size_t>(num_layers), 0);
  ConfigReader r(config);
  const bool is_null =
      config.contains("sliding_window") && !r.has("sliding_window");  // null means no window; a missing key does not
  if (!r.boolean("use_sliding_window", false) || is_null) {
    REDLINE_TRY(r.status());
    return windows;
  }
  const int64_t window = r.integer("sliding_window", 1, int64_t{1} << 40, 4096);
  const int64_t first = r.integer("max_window_layers", 0, int64_t{1} << 40, 28);
  REDLINE_TRY(r.status());
  const auto types = config.find("layer_types");
  const bool listed = types != config.end() && !types->is_null();
  if (listed && (!types->is_array() || types->size() != windows.size()))
    return invalid_argument("config: layer_types must list {} layers", num_layers);
  for (size_t i = 0; i < windows.size(); ++i) {
    bool slides = static_cast<int64_t>(i) >= first;
    if (listed) {
      const auto& type = (*types)[i];
      slides = type == "sliding_attention";
      if (!slides && type != "full_attention")
        return unsupported("config: layer_types[{}] is {}; Redline runs full_attention and sliding_attention", i,
                           type.is_string() ? type.get<std::string>() : type.type_name());
    }
    if (slides) windows[i] = window;
  }
  return windows;
}

Value LayerBuilder::norm(Value x, const char* name, int64_t size) {
  g_.set_scope(scope_ + name);
  return rms_norm(g_, x, w_.take(scope_ + name + ".weight", {size}), {c_.rms_norm_eps});
}

Value LayerBuilder::project(Value x, const char* name, int64_t out, int64_t in, bool has_bias) {
  g_.set_scope(scope_ + name);
  const Value weight = w_.take(scope_ + name + ".weight", {out, in});
  const std::string bias = scope_ + name + ".bias";
  return linear(g_, x, weight, w_.has_bias(bias, has_bias) ? w_.take(bias, {out}) : Value{});
}

Value LayerBuilder::rotate(Value x) { return rope(g_, x, step_.rope, {c_.head_dim}); }

Value LayerBuilder::attend(Value q, Value k, Value v) {
  g_.set_scope(scope_ + "self_attn");
  AttentionAttrs attrs;
  attrs.num_heads = c_.num_heads;
  attrs.window = c_.window[static_cast<size_t>(layer_)];
  attrs.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c_.head_dim)));
  StateAttrs cache;
  cache.num_heads = c_.num_kv_heads;
  cache.head_dim = c_.head_dim;
  cache.window = attrs.window;
  return attention(g_, q, k, v, g_.state(scope_ + "kv_cache", cache), attrs);
}

Value LayerBuilder::gated_mlp(Value x, bool has_bias) {
  const Value gate = project(x, "mlp.gate_proj", c_.intermediate_size, c_.hidden_size, has_bias);
  const Value up = project(x, "mlp.up_proj", c_.intermediate_size, c_.hidden_size, has_bias);
  g_.set_scope(scope_ + "mlp");
  return project(silu_mul(g_, gate, up), "mlp.down_proj", c_.hidden_size, c_.intermediate_size, has_bias);
}

Result<Graph> build_decoder(std::string name, const DecoderConfig& c, const Checkpoint& checkpoint,
                            const std::function<Value(LayerBuilder&, Value)>& layer) {
  GraphBuilder g(std::move(name));
  WeightReader w(g, checkpoint);
  const Dim T = Symbol::kTokens;
  DecoderStep step;
  step.tokens = g.input("tokens", DType::kI32, {T});
  step.positions = g.input("positions", DType::kI32, {T});
  step.logit_rows = g.input("logit_rows", DType::kI32, {Dim(Symbol::kLogitRows)});

  const Value table = w.take("model.embed_tokens.weight", {c.vocab_size, c.hidden_size});
  Value x = embedding(g, table, step.tokens);
  const Value lengths = c.rope.depends_on_length() ? g.input("lengths", DType::kI32, {T}) : Value{};
  step.rope = rope_table(g, step.positions, lengths, c.rope);
  for (int64_t i = 0; i < c.num_layers; ++i) {
    LayerBuilder builder(g, w, c, step, i);
    x = layer(builder, x);
  }
  g.set_scope("model");
  x = gather_rows(g, x, step.logit_rows);
  g.set_scope("model.norm");
  x = rms_norm(g, x, w.take("model.norm.weight", {c.hidden_size}), {c.rms_norm_eps});
  g.set_scope("lm_head");
  if (c.tie_word_embeddings) w.ignore("lm_head.weight");
  g.output("logits",
           linear(g, x, c.tie_word_embeddings ? table : w.take("lm_head.weight", {c.vocab_size, c.hidden_size})));
  REDLINE_ASSIGN(Graph graph, g.finish());
  REDLINE_TRY(w.expect_all_taken());
  return graph;
}

}  // namespace redline
