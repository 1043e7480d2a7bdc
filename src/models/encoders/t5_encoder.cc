// The encoder of T5 (Raffel et al. 2019, arXiv:1910.10683): pre-norm with RMS norm, a relative position bias shared by
// all layers, unscaled attention scores. 1.0 has a ReLU feed-forward, 1.1 and its variants a gated GELU (Shazeer 2020,
// arXiv:2002.05202). Full T5 checkpoints work too; the decoder's tensors are ignored.
#include "graph/ops/activation.h"
#include "graph/ops/add.h"
#include "graph/ops/embedding.h"
#include "graph/ops/linear.h"
#include "graph/ops/relative_bias_attention.h"
#include "graph/ops/rms_norm.h"
#include "models/checkpoint/config_reader.h"
#include "models/checkpoint/weight_reader.h"
#include "models/image/image_registry.h"

namespace redline {
namespace {

struct T5Config {
  int64_t num_layers = 0, d_model = 0, d_ff = 0, num_heads = 0, d_kv = 0;
  int64_t num_buckets = 0, max_distance = 0, vocab_size = 0, max_tokens = 0;
  float eps = 0;
  Activation activation = Activation::kRelu;
  bool gated = false;

  int64_t inner() const { return num_heads * d_kv; }
};

/// Defaults are those of transformers' T5Config.
Result<T5Config> read_t5_encoder_config(const nlohmann::json& json) {
  constexpr int64_t kMaxLayers = 1000, kMaxWidth = int64_t{1} << 20;
  ConfigReader r(json);
  T5Config c;
  c.num_layers = r.integer("num_layers", 1, kMaxLayers, 6);
  c.d_model = r.integer("d_model", 1, kMaxWidth, 512);
  c.d_ff = r.integer("d_ff", 1, kMaxWidth, 2048);
  c.num_heads = r.integer("num_heads", 1, 1024, 8);
  c.d_kv = r.integer("d_kv", 1, 512, 64);
  c.num_buckets = r.integer("relative_attention_num_buckets", 4, kMaxWidth, 32);
  c.max_distance = r.integer("relative_attention_max_distance", 1, INT32_MAX, 128);
  c.vocab_size = r.integer("vocab_size", 1, INT32_MAX, 32128);
  c.max_tokens = r.integer("n_positions", 1, INT32_MAX, 512);  // training length; the bias has no limit
  c.eps = static_cast<float>(r.number("layer_norm_epsilon", 0, 1, 1e-6));
  const std::string projection = r.text("feed_forward_proj", "relu");
  c.gated = projection.starts_with("gated-");
  std::string act = c.gated ? projection.substr(6) : projection;
  if (projection == "gated-gelu") act = "gelu_new";
  // Saved configs repeat what the name implies; some only have these keys.
  act = r.text("dense_act_fn", act);
  c.gated = r.boolean("is_gated_act", c.gated);
  REDLINE_TRY(r.status());
  REDLINE_ASSIGN(c.activation, activation_from_name(act));
  return c;
}

class T5Builder {
 public:
  T5Builder(GraphBuilder& g, WeightReader& w, const T5Config& c) : g_(g), w_(w), c_(c) {}

  void build() {
    const Value tokens = g_.input("tokens", DType::kI32, {kRows});
    lengths_ = g_.input("key_lengths", DType::kI32, {kBatch});
    // The embeddings are tied; files store one or both.
    const bool shared = w_.has("shared.weight") || !w_.has("encoder.embed_tokens.weight");
    g_.set_scope("shared");
    Value x = embedding(
        g_, w_.take(shared ? "shared.weight" : "encoder.embed_tokens.weight", {c_.vocab_size, c_.d_model}), tokens);
    w_.ignore("encoder.embed_tokens.weight");
    const std::string first = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight";
    bias_ = w_.take(first, {c_.num_buckets, c_.num_heads});
    for (int64_t i = 0; i < c_.num_layers; ++i) x = block(x, fmt::format("encoder.block.{}.layer.", i));
    g_.output("hidden", norm(x, "encoder.final_layer_norm"));
  }

 private:
  Value norm(Value x, const std::string& name) {
    g_.set_scope(name);
    return rms_norm(g_, x, w_.take(name + ".weight", {c_.d_model}), {c_.eps});
  }
  Value project(Value x, const std::string& name, int64_t out, int64_t in) {
    g_.set_scope(name);
    return linear(g_, x, w_.take(name + ".weight", {out, in}));
  }

  Value block(Value x, const std::string& scope) {
    const std::string attention = scope + "0.SelfAttention", dense = scope + "1.DenseReluDense";
    Value in = norm(x, scope + "0.layer_norm");
    const Value q = project(in, attention + ".q", c_.inner(), c_.d_model),
                k = project(in, attention + ".k", c_.inner(), c_.d_model),
                v = project(in, attention + ".v", c_.inner(), c_.d_model);
    g_.set_scope(attention);
    const Value seen = relative_bias_attention(
        g_, q, k, v, bias_, kBatch, kText, {c_.num_heads, c_.d_kv, c_.num_buckets, c_.max_distance, 1.0f}, lengths_);
    x = add(g_, x, project(seen, attention + ".o", c_.d_model, c_.inner()));
    in = norm(x, scope + "1.layer_norm");
    Value hidden;
    if (c_.gated) {
      const Value gate = project(in, dense + ".wi_0", c_.d_ff, c_.d_model),
                  up = project(in, dense + ".wi_1", c_.d_ff, c_.d_model);
      g_.set_scope(dense);
      hidden = gated_activation(g_, gate, up, c_.activation);
    } else {
      hidden = activation(g_, project(in, dense + ".wi", c_.d_ff, c_.d_model), c_.activation);
    }
    return add(g_, x, project(hidden, dense + ".wo", c_.d_model, c_.d_ff));
  }

  GraphBuilder& g_;
  WeightReader& w_;
  const T5Config& c_;
  Value lengths_, bias_;
  const Dim kBatch = Symbol::kBatch, kText = Symbol::kTextTokens, kRows = kBatch * kText;
};

Result<TextEncoderModel> build_t5_encoder(const Checkpoint& checkpoint) {
  REDLINE_ASSIGN(const T5Config c, read_t5_encoder_config(checkpoint.config));
  GraphBuilder g("t5 encoder");
  WeightReader w(g, checkpoint);
  T5Builder(g, w, c).build();
  for (const auto& [name, source] : checkpoint.tensors)
    if (name.starts_with("decoder.") || name == "lm_head.weight") w.ignore(name);
  TextEncoderModel model;
  model.width = c.d_model;
  model.max_tokens = c.max_tokens;
  model.vocab_size = c.vocab_size;
  model.has_position_limit = false;
  REDLINE_ASSIGN(model.graph, g.finish());
  REDLINE_TRY(w.expect_all_taken());
  return model;
}

constexpr std::string_view kT5EncoderClassNames[] = {"T5EncoderModel"};

}  // namespace

extern const TextEncoderRow kT5TextEncoder = {
    .class_names = kT5EncoderClassNames,
    .build = build_t5_encoder,
    .adapter_alias = "text_encoder_3",
};

}  // namespace redline
