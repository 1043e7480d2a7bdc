#include "models/blocks/decoder.h"

#include <algorithm>
#include <cmath>

#include "graph/ops/activation.h"
#include "graph/ops/add.h"
#include "graph/ops/embedding.h"
#include "graph/ops/gather_rows.h"
#include "graph/ops/kv_append.h"
#include "graph/ops/layer_norm.h"
#include "graph/ops/linear.h"
#include "graph/ops/place_rows.h"
#include "graph/ops/rms_norm.h"
#include "graph/ops/scale.h"
#include "graph/ops/silu_mul.h"
#include "graph/ops/soft_cap.h"
#include "models/blocks/rope_config.h"
#include "models/checkpoint/gguf_names.h"
#include "tensor/kv_limits.h"

namespace redline {

Result<DecoderConfig> read_decoder_config(const nlohmann::json& config, const DecoderDefaults& defaults) {
  // Limits far above the sizes of real models. They keep products of sizes from overflowing.
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
  if (!r.has("head_dim") && defaults.head_dim == 0 && c.hidden_size % c.num_heads != 0)
    return invalid_argument("config: hidden_size {} does not divide among {} heads, and there is no head_dim",
                            c.hidden_size, c.num_heads);
  c.head_dim =
      r.integer("head_dim", 2, kMaxKvHeadDim, defaults.head_dim > 0 ? defaults.head_dim : c.hidden_size / c.num_heads);
  if (c.head_dim < 2 || c.head_dim > kMaxKvHeadDim)
    return unsupported("config: heads of {} elements; Redline runs 2 to {}", c.head_dim, kMaxKvHeadDim);
  if (c.num_heads % c.num_kv_heads != 0)
    return invalid_argument("config: num_attention_heads {} is not a multiple of num_key_value_heads {}", c.num_heads,
                            c.num_kv_heads);
  const int64_t positions = r.integer("max_position_embeddings", 1, int64_t{1} << 40, defaults.max_positions);
  c.rms_norm_eps = static_cast<float>(r.number(defaults.norm_eps, 0, 1, defaults.norm_eps_value));
  c.tie_word_embeddings = r.boolean("tie_word_embeddings", defaults.tied);
  c.activation = defaults.activation;
  const char* const act_key = r.has("hidden_activation") ? "hidden_activation" : "hidden_act";
  const std::string act = r.text(act_key, std::string(activation_name(c.activation)));
  if (act != activation_name(c.activation)) {
    const auto kind = activation_from_name(act);
    if (kind.ok() && defaults.any_activation) c.activation = *kind;
    else if (!kind.ok() || *kind != c.activation)
      r.fail(unsupported("config: {} \"{}\"; this family uses {}", act_key, act, activation_name(c.activation)));
  }
  c.is_usual_activation = c.activation == defaults.activation;
  REDLINE_TRY(r.status());
  REDLINE_ASSIGN(c.rope, read_rope_config(config, c.head_dim, positions));
  c.max_positions = rope_context(config, positions);
  c.window.assign(static_cast<size_t>(c.num_layers), 0);
  return c;
}

namespace {

constexpr int64_t kMaxWindow = int64_t{1} << 40;

}  // namespace

Result<std::vector<int64_t>> windows_of_layers(const nlohmann::json& config, int64_t num_layers, int64_t window,
                                               const std::function<bool(int64_t)>& slides) {
  std::vector<int64_t> windows(static_cast<size_t>(num_layers), 0);
  const auto types = config.find("layer_types");
  const bool listed = types != config.end() && !types->is_null();
  if (listed && (!types->is_array() || types->size() != windows.size()))
    return invalid_argument("config: layer_types must list {} layers", num_layers);
  for (size_t i = 0; i < windows.size(); ++i) {
    if (!listed) {
      if (slides(static_cast<int64_t>(i))) windows[i] = window;
      continue;
    }
    const auto& type = (*types)[i];
    if (type == "sliding_attention") windows[i] = window;
    else if (type != "full_attention")
      return unsupported("config: layer_types[{}] is {}; Redline runs full_attention and sliding_attention", i,
                         type.is_string() ? type.get<std::string>() : type.type_name());
  }
  return windows;
}

Result<std::vector<int64_t>> read_layer_windows(const nlohmann::json& config, int64_t num_layers) {
  ConfigReader r(config);
  const bool is_null =
      config.contains("sliding_window") && !r.has("sliding_window");  // null means no window; a missing key does not
  if (!r.boolean("use_sliding_window", false) || is_null) {
    REDLINE_TRY(r.status());
    return std::vector<int64_t>(static_cast<size_t>(num_layers), 0);
  }
  const int64_t window = r.integer("sliding_window", 1, kMaxWindow, 4096);
  const int64_t first = r.integer("max_window_layers", 0, kMaxWindow, 28);
  REDLINE_TRY(r.status());
  return windows_of_layers(config, num_layers, window, [&](int64_t layer) { return layer >= first; });
}

Result<std::vector<int64_t>> read_alternating_windows(const nlohmann::json& config, int64_t num_layers,
                                                      int64_t full_every) {
  ConfigReader r(config);
  const int64_t window = r.has("sliding_window") ? r.integer("sliding_window", 1, kMaxWindow) : 0;
  REDLINE_TRY(r.status());
  return windows_of_layers(config, num_layers, window, [&](int64_t layer) { return (layer + 1) % full_every != 0; });
}

namespace {

struct NormWeights {
  Value factor, bias;
};
NormWeights take_norm(WeightReader& w, const DecoderConfig& c, const std::string& name, int64_t size) {
  if (!c.norm.weight) return {};
  return {c.norm.plus_one ? w.take_plus_one(name + ".weight", {size}) : w.take(name + ".weight", {size}),
          c.norm.layer && c.norm.bias ? w.take(name + ".bias", {size}) : Value{}};
}
/// Adds the family's norm, under the current scope.
Value norm_by(GraphBuilder& g, const DecoderConfig& c, Value x, const NormWeights& weights, float eps) {
  if (!c.norm.layer) return rms_norm(g, x, weights.factor, {eps});
  return layer_norm(g, x, weights.factor, weights.bias, {eps});
}

}  // namespace

Value LayerBuilder::norm(Value x, const char* name, int64_t size, float eps) {
  g_.set_scope(scope_ + name);
  return norm_by(g_, c_, x, take_norm(w_, c_, scope_ + name, size), eps);
}

Value LayerBuilder::project(Value x, const char* name, int64_t out, int64_t in, bool has_bias) {
  g_.set_scope(scope_ + name);
  const Value weight = w_.take(scope_ + name + ".weight", {out, in});
  const std::string bias = scope_ + name + ".bias";
  return linear(g_, x, weight, w_.has_bias(bias, has_bias) ? w_.take(bias, {out}) : Value{});
}

Value LayerBuilder::project_part(Value x, const char* name, const char* part, int64_t stored, int64_t begin,
                                 int64_t out, int64_t in, bool has_bias) {
  g_.set_scope(scope_ + part);
  const Value weight = w_.take_rows(scope_ + name + ".weight", {stored, in}, begin, out, scope_ + part + ".weight");
  const std::string bias = scope_ + name + ".bias";
  if (!w_.has_bias(bias, has_bias)) return linear(g_, x, weight);
  return linear(g_, x, weight, w_.take_rows(bias, {stored}, begin, out, scope_ + part + ".bias"));
}

int64_t row_by_head(const DecoderConfig& c, int64_t n) {
  const int64_t d = c.head_dim, size = c.num_heads * d, which = n / size, row = n % size;
  return row / d * 3 * d + which * d + row % d;
}

Value LayerBuilder::project_by_head(Value x, const char* name, const char* part, int64_t which, bool has_bias) {
  g_.set_scope(scope_ + part);
  const int64_t size = c_.num_heads * c_.head_dim;
  const auto row_of = [&](int64_t row) { return row_by_head(c_, which * size + row); };
  const auto take = [&](const std::string& kind, const std::vector<int64_t>& stored) {
    return w_.take_gathered(scope_ + name + kind, stored, size, row_of, scope_ + part + kind);
  };
  const Value weight = take(".weight", {3 * size, c_.hidden_size});
  return linear(g_, x, weight, has_bias ? take(".bias", {3 * size}) : Value{});
}

Value LayerBuilder::project_heads(Value x, const char* name, int64_t heads, bool has_bias) {
  const int64_t out = heads * c_.head_dim;
  if (!c_.interleaved_rope) return project(x, name, out, c_.hidden_size, has_bias);
  g_.set_scope(scope_ + name);
  const auto order = undo_interleave(c_.head_dim, 2 * static_cast<int64_t>(c_.rope.inverse_frequencies.size()));
  const Value weight = w_.take(scope_ + name + ".weight", {out, c_.hidden_size}, order);
  const std::string bias = scope_ + name + ".bias";
  return linear(g_, x, weight, w_.has_bias(bias, has_bias) ? w_.take(bias, {out}, order) : Value{});
}

Value LayerBuilder::rotate(Value x, int64_t head_dim) {
  if (!c_.unrotated.empty() && c_.unrotated[static_cast<size_t>(layer_)]) return x;
  const bool local = step_.window_rope.valid() && c_.window[static_cast<size_t>(layer_)] > 0;
  return rope(g_, x, local ? step_.window_rope : step_.rope, {head_dim});
}

Value LayerBuilder::rotate_queries(Value x) {
  return step_.query_rope.valid() ? rope(g_, x, step_.query_rope, {c_.head_dim}) : rotate(x);
}

Value LayerBuilder::attend(Value q, Value k, Value v, const AttentionInputs& inputs) {
  g_.set_scope(scope_ + "self_attn");
  AttentionAttrs attrs;
  attrs.num_heads = c_.num_heads;
  attrs.window = c_.window[static_cast<size_t>(layer_)];
  attrs.scale = c_.attention_scale > 0 ? c_.attention_scale
                                       : static_cast<float>(1.0 / std::sqrt(static_cast<double>(c_.head_dim)));
  attrs.soft_cap = c_.attention_soft_cap;
  StateAttrs cache;
  cache.num_heads = c_.num_kv_heads;
  cache.head_dim = c_.head_dim;
  cache.window = attrs.window;
  return attention(g_, q, kv_append(g_, k, v, g_.state(scope_ + "kv_cache", cache)), attrs, inputs);
}

Value LayerBuilder::residual(Value x, Value y) {
  if (c_.residual_scale != 1) y = scale(g_, y, {c_.residual_scale});
  return add(g_, x, y);
}

Value LayerBuilder::gate(Value gate, Value up) {
  g_.set_scope(scope_ + "mlp");
  return c_.activation == Activation::kSilu ? silu_mul(g_, gate, up) : gated_activation(g_, gate, up, c_.activation);
}

Value LayerBuilder::gated_mlp(Value x, bool has_bias) { return gated_mlp(x, "mlp", c_.intermediate_size, has_bias); }

Value LayerBuilder::gated_mlp(Value x, const std::string& name, int64_t inner, bool has_bias) {
  const Value g = project(x, (name + ".gate_proj").c_str(), inner, c_.hidden_size, has_bias);
  const Value up = project(x, (name + ".up_proj").c_str(), inner, c_.hidden_size, has_bias);
  return project(gate(g, up), (name + ".down_proj").c_str(), c_.hidden_size, inner, has_bias);
}

Value LayerBuilder::gated_mlp(Value x, const MlpNames& names) {
  const int64_t inner = c_.intermediate_size, size = c_.hidden_size;
  const Value g = project(x, names.gate, inner, size, false), up = project(x, names.up, inner, size, false);
  return project(gate(g, up), names.down, size, inner, false);
}

Value LayerBuilder::joint_gated_mlp(Value x, int64_t inner, const char* joint, const char* down) {
  const auto half = [&](const char* part, int64_t begin) {
    return project_part(x, joint, part, 2 * inner, begin, inner, c_.hidden_size, false);
  };
  const Value g = half("mlp.gate_proj", 0), up = half("mlp.up_proj", inner);
  return project(gate(g, up), down, c_.hidden_size, inner, false);
}

Value LayerBuilder::plain_mlp(Value x, const char* up, const char* down, bool has_bias) {
  const Value h = activation(g_, project(x, up, c_.intermediate_size, c_.hidden_size, has_bias), c_.activation);
  return project(h, down, c_.hidden_size, c_.intermediate_size, has_bias);
}

Value LayerBuilder::squared_relu_mlp(Value x, const char* up, const char* down, bool has_bias) {
  const Value h = project(x, up, c_.intermediate_size, c_.hidden_size, has_bias);
  // relu(h) h = relu(h)^2
  return project(gated_activation(g_, h, h, Activation::kRelu), down, c_.hidden_size, c_.intermediate_size, has_bias);
}

std::string hidden_output(size_t index) { return fmt::format("hidden.{}", index); }

namespace {

/// Adds the outputs that the caller reads, for the rows that it selects.
class OutputBuilder {
 public:
  OutputBuilder(GraphBuilder& g, WeightReader& w, const DecoderConfig& c, const DecoderStep& step)
      : g_(g), w_(w), c_(c), step_(step) {}

  /// Marks the weights that only other outputs need as known.
  void ignore_unused(bool has_logits) {
    if (c_.tie_word_embeddings || !has_logits) w_.ignore(c_.names.head + ".weight");
    if (!has_logits) w_.ignore(c_.names.head + ".bias");
    if (norm_) return;
    w_.ignore(c_.names.norm + ".weight");
    w_.ignore(c_.names.norm + ".bias");
  }
  Value hidden(const HiddenState& state, Value x) {
    const Value rows = select(x, step_.hidden_rows);
    return state.is_normed ? norm(rows) : rows;
  }
  /// `table`: the embeddings, which may serve as output matrix.
  void add_logits(Value x, Value table) {
    x = norm(select(x, step_.logit_rows));
    if (c_.logit_scale != 1) x = scale(g_, x, {c_.logit_scale});
    g_.set_scope(c_.names.head);
    const Value head =
        c_.tie_word_embeddings ? table : w_.take(c_.names.head + ".weight", {c_.vocab_size, c_.hidden_size});
    const std::string bias = c_.names.head + ".bias";
    const Value logits =
        linear(g_, x, head, w_.has_bias(bias, c_.has_head_bias) ? w_.take(bias, {c_.vocab_size}) : Value{});
    g_.output("logits", c_.logit_soft_cap > 0 ? soft_cap(g_, logits, {c_.logit_soft_cap}) : logits, PortRole::kLogits);
  }

 private:
  Value select(Value x, Value rows) {
    g_.set_scope("model");
    return gather_rows(g_, x, rows);
  }
  Value norm(Value x) {
    g_.set_scope(c_.names.norm);
    if (!norm_) norm_ = take_norm(w_, c_, c_.names.norm, c_.hidden_size);
    return norm_by(g_, c_, x, *norm_, c_.rms_norm_eps);
  }

  GraphBuilder& g_;
  WeightReader& w_;
  const DecoderConfig& c_;
  const DecoderStep& step_;
  std::optional<NormWeights> norm_;  // taken by the first output that is normed
};

Status check_outputs(const DecoderOutputs& outputs, const DecoderConfig& c) {
  if (!outputs.logits && outputs.hidden.empty()) return invalid_argument("no output of the model is asked for");
  for (const HiddenState& hidden : outputs.hidden)
    if (hidden.layers < HiddenState::kAllLayers || hidden.layers > c.num_layers)
      return invalid_argument("the hidden state after {} layers is asked for; the model has {}", hidden.layers,
                              c.num_layers);
  return {};
}

}  // namespace

Result<Graph> build_decoder(std::string name, const DecoderConfig& c, const Checkpoint& checkpoint,
                            const DecoderOutputs& outputs, const std::function<Value(LayerBuilder&, Value)>& layer) {
  REDLINE_TRY(check_outputs(outputs, c));
  GraphBuilder g(std::move(name));
  WeightReader w(g, checkpoint);
  const Dim T = Symbol::kTokens;
  DecoderStep step;
  step.tokens = g.input("tokens", DType::kI32, {T}, PortRole::kTokens);
  // Without embeddings the positions on all axes are equal, so one axis gives the same rope table.
  RopeTableAttrs rope = c.rope;
  if (!outputs.takes_embeddings) rope.axes.clear();
  Shape positions = {T};
  if (!rope.axes.empty()) positions.push_back(Dim(kRopeAxes));
  step.positions = g.input("positions", DType::kI32, positions, PortRole::kPositions);
  if (outputs.logits)
    step.logit_rows = g.input("logit_rows", DType::kI32, {Dim(Symbol::kLogitRows)}, PortRole::kLogitRows);
  if (!outputs.hidden.empty())
    step.hidden_rows = g.input("hidden_rows", DType::kI32, {Dim(Symbol::kHiddenRows)}, PortRole::kHiddenRows);

  const Value table = w.take(c.names.embedding + ".weight", {c.vocab_size, c.hidden_size});
  Value x = embedding(g, table, step.tokens);
  if (c.embedding_scale != 1) x = scale(g, x, {c.embedding_scale});
  const Shape rows = {Dim(Symbol::kEmbeddingRows), Dim(c.hidden_size)};
  if (outputs.takes_embeddings) {
    step.embedding_rows = g.input("embedding_rows", DType::kI32, {rows[0]}, PortRole::kEmbeddingRows);
    x = place_rows(g, x, g.input("embeddings", DType::kF32, rows, PortRole::kEmbeddings), step.embedding_rows);
  }
  if (!c.names.positions.empty()) {
    const std::string name = c.names.positions + ".weight";
    const int64_t first = c.names.first_position;
    const Value table_of_positions =
        first == 0 ? w.take(name, {c.max_positions, c.hidden_size})
                   : w.take_rows(name, {first + c.max_positions, c.hidden_size}, first, c.max_positions, name);
    x = add(g, x, embedding(g, table_of_positions, step.positions));
  }
  if (!c.names.embedding_norm.empty()) {
    g.set_scope(c.names.embedding_norm);
    x = norm_by(g, c, x, take_norm(w, c, c.names.embedding_norm, c.hidden_size), c.rms_norm_eps);
  }
  const Value lengths = c.rope.depends_on_length() ? g.input("lengths", DType::kI32, {T}, PortRole::kLengths) : Value{};
  step.rope = rope_table(g, step.positions, lengths, rope);
  if (c.window_rope) {
    RopeTableAttrs window_rope = *c.window_rope;
    window_rope.axes.assign(rope.axes.empty() ? 0 : window_rope.inverse_frequencies.size(), 0);
    step.window_rope = rope_table(g, step.positions, {}, std::move(window_rope));
  }
  if (c.query_rope) {
    RopeTableAttrs query_rope = *c.query_rope;
    query_rope.axes = rope.axes;
    step.query_rope = rope_table(g, step.positions, lengths, std::move(query_rope));
  }
  OutputBuilder out(g, w, c, step);
  std::vector<Value> hidden(outputs.hidden.size());
  const auto take_hidden = [&](int64_t layers) {
    for (size_t i = 0; i < hidden.size(); ++i)
      if (outputs.hidden[i].layers == layers ||
          (outputs.hidden[i].layers == HiddenState::kAllLayers && layers == c.num_layers))
        hidden[i] = out.hidden(outputs.hidden[i], x);
  };
  take_hidden(0);
  for (int64_t i = 0; i < c.num_layers; ++i) {
    LayerBuilder builder(g, w, c, step, i);
    x = layer(builder, x);
    if (outputs.takes_embeddings &&
        std::find(c.layers_with_rows.begin(), c.layers_with_rows.end(), i) != c.layers_with_rows.end())
      x = add_rows(g, x, g.input(fmt::format("layer_rows.{}", i), DType::kF32, rows, PortRole::kLayerRows),
                   step.embedding_rows);
    take_hidden(i + 1);
  }
  for (size_t i = 0; i < hidden.size(); ++i) g.output(hidden_output(i), hidden[i], PortRole::kHidden);
  if (outputs.logits) out.add_logits(x, table);
  out.ignore_unused(outputs.logits);
  Result<Graph> finished = g.finish();
  if (!finished.ok()) return w.with_missing(std::move(finished).status());
  Graph graph = std::move(finished).value();
  REDLINE_TRY(w.expect_all_taken());
  return graph;
}

}  // namespace redline
