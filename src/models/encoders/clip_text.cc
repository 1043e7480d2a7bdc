// The text half of CLIP (Radford et al. 2021, arXiv:2103.00020): a causal transformer over at most 77 tokens, pooled at
// the end-of-text token. CLIP-L of Stable Diffusion and FLUX, CLIP-G and OpenCLIP-H converted to transformers' names.
#include <algorithm>
#include <cmath>

#include "graph/ops/activation.h"
#include "graph/ops/add.h"
#include "graph/ops/embedding.h"
#include "graph/ops/gather_rows.h"
#include "graph/ops/joint_attention.h"
#include "graph/ops/layer_norm.h"
#include "graph/ops/linear.h"
#include "models/checkpoint/config_reader.h"
#include "models/checkpoint/weight_reader.h"
#include "models/image/image_registry.h"

namespace redline {
namespace {

struct ClipConfig {
  int64_t num_layers = 0, hidden_size = 0, num_heads = 0, intermediate_size = 0, projection_dim = 0;
  int64_t max_tokens = 0, vocab_size = 0, eos_token = 0;
  float layer_norm_eps = 0;
  Activation activation = Activation::kQuickGelu;
  bool projects = false;

  int64_t head_dim() const { return hidden_size / num_heads; }
};

/// Defaults are those of transformers' CLIPTextConfig.
Result<ClipConfig> read_clip_text_config(const nlohmann::json& json) {
  constexpr int64_t kMaxLayers = 1000, kMaxWidth = int64_t{1} << 20;
  ConfigReader r(json);
  ClipConfig c;
  c.num_layers = r.integer("num_hidden_layers", 1, kMaxLayers, 12);
  c.hidden_size = r.integer("hidden_size", 1, kMaxWidth, 512);
  c.num_heads = r.integer("num_attention_heads", 1, 1024, 8);
  c.intermediate_size = r.integer("intermediate_size", 1, kMaxWidth, 2048);
  c.projection_dim = r.integer("projection_dim", 1, kMaxWidth, 512);
  c.max_tokens = r.integer("max_position_embeddings", 1, kMaxWidth, 77);
  c.vocab_size = r.integer("vocab_size", 1, INT32_MAX, 49408);
  c.eos_token = r.integer("eos_token_id", 0, INT32_MAX, 49407);
  c.layer_norm_eps = static_cast<float>(r.number("layer_norm_eps", 0, 1, 1e-5));
  const std::string act = r.text("hidden_act", "quick_gelu");
  REDLINE_TRY(r.status());
  REDLINE_ASSIGN(c.activation, activation_from_name(act));
  if (c.hidden_size % c.num_heads != 0)
    return invalid_argument("config: hidden_size {} does not divide among {} attention heads", c.hidden_size,
                            c.num_heads);
  if (const auto named = json.find("architectures"); named != json.end() && named->is_array() && !named->empty())
    c.projects = named->front() == "CLIPTextModelWithProjection";
  return c;
}

class ClipBuilder {
 public:
  ClipBuilder(GraphBuilder& g, WeightReader& w, const ClipConfig& c) : g_(g), w_(w), c_(c) {
    // Prefixes that transformers used before version 5.
    for (const char* scope : {"text_model.", "model.text_model."})
      if (w.has(scope + std::string("embeddings.token_embedding.weight"))) scope_ = scope;
  }

  void build() {
    const int64_t D = c_.hidden_size;
    const Value tokens = g_.input("tokens", DType::kI32, {kRows});
    const Value positions = g_.input("positions", DType::kI32, {kRows});
    const Value pooled_rows = g_.input("pooled_rows", DType::kI32, {kBatch});
    g_.set_scope("embeddings");
    const std::string table = scope_ + "embeddings.";
    Value x = add(g_, embedding(g_, w_.take(table + "token_embedding.weight", {c_.vocab_size, D}), tokens),
                  embedding(g_, w_.take(table + "position_embedding.weight", {c_.max_tokens, D}), positions));
    w_.ignore(table + "position_ids");
    for (int64_t i = 0; i < c_.num_layers; ++i) {
      if (i + 1 == c_.num_layers) g_.output("penultimate", x);
      x = layer(x, fmt::format("{}encoder.layers.{}.", scope_, i));
    }
    x = norm(x, scope_ + "final_layer_norm");
    g_.output("hidden", x);
    Value pooled = gather_rows(g_, x, pooled_rows);
    if (c_.projects) {
      g_.set_scope("text_projection");
      pooled = linear(g_, pooled, w_.take("text_projection.weight", {c_.projection_dim, D}));
    }
    w_.ignore("text_projection.weight");  // present if a CLIPTextModel was stored with its projection
    w_.ignore("logit_scale");
    g_.output("pooled", pooled);
  }

 private:
  Value norm(Value x, const std::string& name) {
    g_.set_scope(name);
    const Value weight = w_.take(name + ".weight", {c_.hidden_size}), bias = w_.take(name + ".bias", {c_.hidden_size});
    return layer_norm(g_, x, weight, bias, {c_.layer_norm_eps, true});
  }
  Value project(Value x, const std::string& name, int64_t out, int64_t in) {
    g_.set_scope(name);
    const Value weight = w_.take(name + ".weight", {out, in}), bias = w_.take(name + ".bias", {out});
    return linear(g_, x, weight, bias);
  }

  Value layer(Value x, const std::string& scope) {
    const int64_t D = c_.hidden_size;
    const Value in = norm(x, scope + "layer_norm1");
    const Value q = project(in, scope + "self_attn.q_proj", D, D), k = project(in, scope + "self_attn.k_proj", D, D),
                v = project(in, scope + "self_attn.v_proj", D, D);
    g_.set_scope(scope + "self_attn");
    const Value keys = pack_kv(g_, {{k, v, kText}}, kBatch, c_.num_heads, c_.head_dim());
    const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(c_.head_dim())));
    const Value seen =
        joint_attention(g_, q, kBatch, kText, keys, {c_.num_heads, c_.head_dim(), scale, /*causal=*/true});
    x = add(g_, x, project(seen, scope + "self_attn.out_proj", D, D));
    const Value hidden = activation(
        g_, project(norm(x, scope + "layer_norm2"), scope + "mlp.fc1", c_.intermediate_size, D), c_.activation);
    return add(g_, x, project(hidden, scope + "mlp.fc2", D, c_.intermediate_size));
  }

  GraphBuilder& g_;
  WeightReader& w_;
  const ClipConfig& c_;
  std::string scope_;
  const Dim kBatch = Symbol::kBatch, kText = Symbol::kTextTokens, kRows = kBatch * kText;
};

Result<TextEncoderModel> build_clip_text(const Checkpoint& checkpoint) {
  REDLINE_ASSIGN(const ClipConfig c, read_clip_text_config(checkpoint.config));
  GraphBuilder g("clip text");
  WeightReader w(g, checkpoint);
  ClipBuilder(g, w, c).build();
  TextEncoderModel model;
  model.width = c.hidden_size;
  model.pooled_width = c.projects ? c.projection_dim : c.hidden_size;
  model.max_tokens = c.max_tokens;
  model.vocab_size = c.vocab_size;
  // Old configs have the wrong id 2 and mean the vocabulary's last token, which is the largest id of a prompt;
  // transformers treats this number specially too.
  constexpr int64_t kWrongEos = 2;
  model.pooled_token = c.eos_token == kWrongEos ? -1 : static_cast<int32_t>(c.eos_token);
  REDLINE_ASSIGN(model.graph, g.finish());
  REDLINE_TRY(w.expect_all_taken());
  return model;
}

constexpr std::string_view kClipTextClassNames[] = {"CLIPTextModel", "CLIPTextModelWithProjection"};

}  // namespace

extern const TextEncoderRow kClipTextEncoder = {
    .class_names = kClipTextClassNames,
    .build = build_clip_text,
};

int64_t pooled_place(int32_t pooled_token, std::span<const int32_t> ids) {
  const auto at =
      pooled_token < 0 ? std::max_element(ids.begin(), ids.end()) : std::find(ids.begin(), ids.end(), pooled_token);
  return at == ids.end() ? 0 : at - ids.begin();
}

}  // namespace redline
