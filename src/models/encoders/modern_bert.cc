// ModernBERT (Warner et al. 2024, arXiv:2412.13663): pre-norm encoder with rope and gated GELU; most layers attend
// within a window around each token, every third to all.
#include <cmath>

#include "graph/ops/activation.h"
#include "graph/ops/add.h"
#include "graph/ops/embedding.h"
#include "graph/ops/layer_norm.h"
#include "graph/ops/linear.h"
#include "graph/ops/rope.h"
#include "models/blocks/encoder.h"
#include "models/blocks/rope_config.h"

namespace redline {
namespace {

struct ModernBertConfig {
  int64_t num_layers = 0, hidden_size = 0, num_heads = 0, intermediate_size = 0, vocab_size = 0, max_positions = 0;
  int64_t window = 0;  ///< positions that a local layer attends to on each side
  std::vector<bool> is_local;
  RopeTableAttrs global_rope, local_rope;
  float eps = 0;
  Activation activation = Activation::kGelu, classifier_activation = Activation::kGelu;
  bool classifier_means = false;

  int64_t head_dim() const { return hidden_size / num_heads; }
};

/// Reads the rope of a kind of layer. `keys`: the key of transformers 4 and the key of GGUF files.
Result<RopeTableAttrs> read_rope(const nlohmann::json& config, const char* kind,
                                 std::initializer_list<const char*> keys, double base, int64_t head_dim,
                                 int64_t positions) {
  nlohmann::json settings = {{"rope_theta", base}};
  const auto all = config.find("rope_parameters");
  if (all != config.end() && all->is_object() && all->contains(kind)) {
    settings["rope_parameters"] = (*all)[kind];
    if (settings["rope_parameters"].is_object() && !settings["rope_parameters"].contains("rope_theta"))
      settings["rope_parameters"]["rope_theta"] = base;
  } else {
    for (const char* key : keys)
      if (config.contains(key)) {
        settings["rope_theta"] = config[key];
        break;
      }
  }
  return read_rope_config(settings, head_dim, positions).within(kind);
}

/// Defaults are those of transformers' ModernBertConfig.
Result<ModernBertConfig> read_modern_bert_config(const Checkpoint& checkpoint) {
  const nlohmann::json& json = checkpoint.config;
  constexpr int64_t kMaxLayers = 1000, kMaxWidth = int64_t{1} << 20;
  ConfigReader r(json);
  ModernBertConfig c;
  c.num_layers = r.integer("num_hidden_layers", 1, kMaxLayers, 22);
  c.hidden_size = r.integer("hidden_size", 1, kMaxWidth, 768);
  c.num_heads = r.integer("num_attention_heads", 1, 1024, 12);
  c.intermediate_size = r.integer("intermediate_size", 1, kMaxWidth, 1152);
  c.vocab_size = r.integer("vocab_size", 1, INT32_MAX, 50368);
  c.max_positions = r.integer("max_position_embeddings", 1, INT32_MAX, 8192);
  // GGUF's keys are those that other families share.
  c.window = r.integer("local_attention", 2, INT32_MAX, checkpoint.sliding_window.value_or(128)) / 2;
  const int64_t every =
      r.integer("global_attn_every_n_layers", 1, INT32_MAX, r.integer("sliding_window_pattern", 1, INT32_MAX, 3));
  c.eps = static_cast<float>(r.number("norm_eps", 0, 1, r.number("layer_norm_eps", 0, 1, 1e-5)));
  const std::string act = r.text("hidden_activation", "gelu"), head_act = r.text("classifier_activation", "gelu");
  const std::string pooling = r.text("classifier_pooling", "cls");
  REDLINE_TRY(r.status());
  REDLINE_ASSIGN(c.activation, activation_from_name(act));
  REDLINE_ASSIGN(c.classifier_activation, activation_from_name(head_act));
  if (pooling != "cls" && pooling != "mean")
    return unsupported("config: classifier_pooling \"{}\"; Redline runs cls and mean", pooling);
  c.classifier_means = pooling == "mean";
  if (c.hidden_size % c.num_heads != 0)
    return invalid_argument("config: hidden_size {} does not divide among {} attention heads", c.hidden_size,
                            c.num_heads);
  for (int64_t i = 0; i < c.num_layers; ++i) c.is_local.push_back(i % every != 0);
  if (const auto types = json.find("layer_types"); types != json.end() && !types->is_null()) {
    if (!types->is_array() || static_cast<int64_t>(types->size()) != c.num_layers)
      return invalid_argument("config: layer_types must list {} layers", c.num_layers);
    for (size_t i = 0; i < types->size(); ++i) {
      const auto& type = (*types)[i];
      if (type != "sliding_attention" && type != "full_attention")
        return unsupported("config: layer_types[{}] is {}; Redline runs full_attention and sliding_attention", i,
                           type.is_string() ? type.get<std::string>() : type.type_name());
      c.is_local[i] = type == "sliding_attention";
    }
  }
  constexpr double kGlobalBase = 160000, kLocalBase = 10000;
  REDLINE_ASSIGN(c.global_rope, read_rope(json, "full_attention", {"global_rope_theta", "rope_theta"}, kGlobalBase,
                                          c.head_dim(), c.max_positions));
  REDLINE_ASSIGN(c.local_rope, read_rope(json, "sliding_attention", {"local_rope_theta", "rope_local_base_freq"},
                                         kLocalBase, c.head_dim(), c.max_positions));
  for (const RopeTableAttrs* rope : {&c.global_rope, &c.local_rope})
    if (rope->depends_on_length()) return unsupported("config: dynamic rope scaling in an encoder");
  return c;
}

class ModernBertBuilder {
 public:
  ModernBertBuilder(GraphBuilder& g, WeightReader& w, const ModernBertConfig& c, std::string scope)
      : g_(g), w_(w), c_(c), build_(g, w, c.eps), scope_(std::move(scope)) {}

  void build() {
    const EncoderInputs in(g_);
    g_.set_scope("embeddings");
    const Value global = rope_table(g_, in.positions, {}, c_.global_rope),
                local = rope_table(g_, in.positions, {}, c_.local_rope);
    Value x =
        embedding(g_, w_.take(scope_ + "embeddings.tok_embeddings.weight", {c_.vocab_size, c_.hidden_size}), in.tokens);
    x = build_.norm(x, scope_ + "embeddings.norm", c_.hidden_size);
    for (int64_t i = 0; i < c_.num_layers; ++i) {
      const bool is_local = c_.is_local[static_cast<size_t>(i)];
      const std::string name = fmt::format("{}layers.{}.", scope_, i);
      x = add(g_, x,
              attend(i == 0 ? x : build_.norm(x, name + "attn_norm", c_.hidden_size), in.sequences,
                     is_local ? local : global, is_local ? c_.window : 0, name + "attn."));
      x = add(g_, x, feed_forward(build_.norm(x, name + "mlp_norm", c_.hidden_size), name + "mlp."));
    }
    g_.output("hidden", build_.norm(x, scope_ + "final_norm", c_.hidden_size));
  }

 private:
  /// Returns one of the equal parts of a tensor that holds several projections.
  Value part_of(Value x, const std::string& name, int64_t part, int64_t parts, int64_t out) {
    g_.set_scope(fmt::format("{}.{}", name, part));
    const Value weight = w_.take_part(name + ".weight", {out, c_.hidden_size}, part, parts);
    const std::string bias = name + ".bias";
    return linear(g_, x, weight, w_.has(bias) ? w_.take_part(bias, {out}, part, parts) : Value{});
  }

  Value attend(Value x, const PackedSequences& sequences, Value rope_table, int64_t window, const std::string& scope) {
    const int64_t D = c_.hidden_size, head_dim = c_.head_dim();
    const Value q = rope(g_, part_of(x, scope + "Wqkv", 0, 3, D), rope_table, {head_dim}),
                k = rope(g_, part_of(x, scope + "Wqkv", 1, 3, D), rope_table, {head_dim}),
                v = part_of(x, scope + "Wqkv", 2, 3, D);
    g_.set_scope(scope);
    const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)));
    const Value seen = joint_attention(g_, q, sequences, pack_kv(g_, k, v, sequences, c_.num_heads, head_dim),
                                       {c_.num_heads, head_dim, scale, false, window});
    return build_.project(seen, scope + "Wo", D, D);
  }

  Value feed_forward(Value x, const std::string& scope) {
    const Value gate = part_of(x, scope + "Wi", 0, 2, c_.intermediate_size),
                up = part_of(x, scope + "Wi", 1, 2, c_.intermediate_size);
    g_.set_scope(scope);
    return build_.project(gated_activation(g_, gate, up, c_.activation), scope + "Wo", c_.hidden_size,
                          c_.intermediate_size);
  }

  GraphBuilder& g_;
  WeightReader& w_;
  const ModernBertConfig& c_;
  EncoderBuilder build_;
  std::string scope_;
};

Result<Graph> build_modern_bert_head(const Checkpoint& checkpoint, const ModernBertConfig& c, int64_t num_labels,
                                     WeightReader& used) {
  GraphBuilder g("modernbert classifier");
  WeightReader w(g, checkpoint);
  EncoderBuilder build(g, w, c.eps);
  const Value pooled = g.input("pooled", DType::kF32, {Dim(Symbol::kSequences), c.hidden_size});
  const Value dense = build.project(pooled, "head.dense", c.hidden_size, c.hidden_size);
  const Value x = build.norm(activation(g, dense, c.classifier_activation), "head.norm", c.hidden_size);
  g.output("scores", build.project(x, "classifier", num_labels, c.hidden_size));
  REDLINE_ASSIGN(Graph graph, g.finish());
  used.add_taken(w);
  return graph;
}

Result<EncoderModel> build_modern_bert(const Checkpoint& checkpoint) {
  REDLINE_ASSIGN(const ModernBertConfig c, read_modern_bert_config(checkpoint));
  GraphBuilder g("modernbert");
  WeightReader w(g, checkpoint);
  ModernBertBuilder(g, w, c, scope_of(checkpoint, "embeddings.tok_embeddings.weight")).build();
  EncoderModel model;
  model.num_layers = c.num_layers;
  model.width = c.hidden_size;
  model.num_heads = c.num_heads;
  model.vocab_size = c.vocab_size;
  model.max_tokens = c.max_positions;
  model.head_means = c.classifier_means;
  Result<Graph> body = g.finish();
  if (!body.ok()) return w.with_missing(std::move(body).status());
  model.graph = std::move(body).value();
  if (const auto last = checkpoint.tensors.find("classifier.weight"); last != checkpoint.tensors.end()) {
    model.num_labels = last->second.view.shape.empty() ? 1 : last->second.view.shape[0];
    REDLINE_ASSIGN(model.head, build_modern_bert_head(checkpoint, c, model.num_labels, w));
  }
  // These heads predict masked words.
  for (const char* head : {"head.", "decoder."}) ignore_tensors(checkpoint, w, head);
  REDLINE_TRY(w.expect_all_taken());
  return model;
}

constexpr std::string_view kModernBertModelTypes[] = {"modernbert"};

constexpr GgufName kModernBertGgufTop[] = {{"token_embd", "embeddings.tok_embeddings"},
                                           {"token_embd_norm", "embeddings.norm"},
                                           {"output_norm", "final_norm"},
                                           {"cls", "head.dense"},
                                           {"cls.norm", "head.norm"},
                                           {"cls.output", "classifier"}};
constexpr GgufName kModernBertGgufLayer[] = {{"attn_norm", "attn_norm"}, {"attn_qkv", "attn.Wqkv"},
                                             {"attn_output", "attn.Wo"}, {"ffn_norm", "mlp_norm"},
                                             {"ffn_up", "mlp.Wi"},       {"ffn_down", "mlp.Wo"}};

}  // namespace

extern const EncoderFamily kModernBertFamily = {
    .model_types = kModernBertModelTypes,
    .gguf = {.architecture = "modern-bert",
             .top = kModernBertGgufTop,
             .layer = kModernBertGgufLayer,
             .hf_layers = "layers."},
    .build = build_modern_bert,
};

}  // namespace redline
