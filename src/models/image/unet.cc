// UNet2DConditionModel: the denoisers of Stable Diffusion 1.x, 2.x and XL. Residual blocks and transformers with cross
// attention to the text, downsampled to a quarter or an eighth and back up, with skip connections.
// Rombach et al. 2022 (arXiv:2112.10752), Podell et al. 2023 (arXiv:2307.01952); diffusers names the tensors.
#include <cmath>

#include "graph/ops/activation.h"
#include "graph/ops/add.h"
#include "graph/ops/concat.h"
#include "graph/ops/joint_attention.h"
#include "graph/ops/layer_norm.h"
#include "graph/ops/timestep_embedding.h"
#include "models/blocks/conv_blocks.h"
#include "models/checkpoint/config_reader.h"
#include "models/image/image_registry.h"
#include "models/image/unet_names.h"

namespace redline {
namespace {

constexpr int64_t kUnetMaxWidth = 1 << 16, kUnetMaxLayers = 100;
constexpr size_t kMaxLevels = 4;
constexpr float kTransformerNormEps = 1e-6f, kLayerNormEps = 1e-5f;

struct Level {
  int64_t channels = 0, num_heads = 0, layers = 0, transformer_layers = 0;
  bool attends_down = false, attends_up = false;
};

struct UnetConfig {
  std::vector<Level> levels;  ///< ordered from the resolution of the latents down
  int64_t in_channels = 0, out_channels = 0, text_width = 0, cross_width = 0, groups = 0;
  float eps = 0, frequency_shift = 0;
  bool cosine_first = true, attends_mid = true;
  int64_t projected_text = 0;  ///< width of the text before a projection; 0: there is none
  // SDXL's second embedding, of pooled text and sizes.
  int64_t added_width = 0, pooled_width = 0, num_time_ids = 0, time_id_width = 0;

  int64_t time_width() const { return 4 * levels[0].channels; }
};

/// Reads one number for all levels, or a list with one for each.
Result<std::vector<int64_t>> read_per_level(const nlohmann::json& json, const char* key, size_t levels,
                                            int64_t fallback, int64_t most) {
  const auto at = json.find(key);
  if (at == json.end() || at->is_null()) return std::vector<int64_t>(levels, fallback);
  std::vector<int64_t> list;
  const auto take = [&](const nlohmann::json& item) {
    if (item.is_number_integer() && item.get<int64_t>() >= 1 && item.get<int64_t>() <= most)
      list.push_back(item.get<int64_t>());
  };
  if (at->is_array()) {
    for (const auto& item : *at) take(item);
  } else {
    take(*at);
    if (!list.empty()) list.resize(levels, list[0]);
  }
  if (list.size() != levels)
    return invalid_argument("config: {} is {}, expected a whole number from 1 to {}, or {} of them", key, at->dump(),
                            most, levels);
  return list;
}

/// Returns, for each of `count` block types, whether it has attention.
Result<std::vector<bool>> read_blocks(const nlohmann::json& json, const char* key, std::string_view plain,
                                      std::string_view cross) {
  const auto at = json.find(key);
  if (at == json.end() || !at->is_array() || at->empty() || at->size() > kMaxLevels)
    return invalid_argument("config: {} must list the blocks of one to {} levels", key, kMaxLevels);
  std::vector<bool> attends;
  for (const auto& item : *at) {
    if (item != plain && item != cross)
      return unsupported("config: {} has {}; only {} and {} are supported", key, item.dump(), plain, cross);
    attends.push_back(item == cross);
  }
  return attends;
}

/// Rejects settings that change the network and are not supported.
Status check_unused(const nlohmann::json& json) {
  const std::pair<const char*, nlohmann::json> kPlain[] = {{"center_input_sample", false},
                                                           {"dual_cross_attention", false},
                                                           {"class_embed_type", nullptr},
                                                           {"num_class_embeds", nullptr},
                                                           {"resnet_time_scale_shift", "default"},
                                                           {"resnet_skip_time_act", false},
                                                           {"resnet_out_scale_factor", 1.0},
                                                           {"time_embedding_type", "positional"},
                                                           {"time_embedding_dim", nullptr},
                                                           {"time_embedding_act_fn", nullptr},
                                                           {"timestep_post_act", nullptr},
                                                           {"time_cond_proj_dim", nullptr},
                                                           {"conv_in_kernel", 3},
                                                           {"conv_out_kernel", 3},
                                                           {"attention_type", "default"},
                                                           {"mid_block_scale_factor", 1},
                                                           {"downsample_padding", 1},
                                                           {"only_cross_attention", false},
                                                           {"cross_attention_norm", nullptr},
                                                           {"num_attention_heads", nullptr},
                                                           {"reverse_transformer_layers_per_block", nullptr},
                                                           {"mid_block_only_cross_attention", nullptr},
                                                           {"class_embeddings_concat", false}};
  for (const auto& [key, value] : kPlain)
    if (const auto at = json.find(key); at != json.end() && !at->is_null() && *at != value)
      return unsupported("config: {} is {}; the UNets of Stable Diffusion have {}", key, at->dump(), value.dump());
  return {};
}

Status read_added_embedding(ConfigReader& r, UnetConfig& c) {
  const std::string type = r.text("addition_embed_type", "");
  if (type.empty()) return {};
  if (type != "text_time")
    return unsupported("config: addition_embed_type is \"{}\"; only text_time is supported", type);
  c.added_width = r.integer("projection_class_embeddings_input_dim", 1, kUnetMaxWidth);
  c.time_id_width = r.integer("addition_time_embed_dim", 2, kUnetMaxWidth, 256);
  REDLINE_TRY(r.status());
  // Original size, crop offset and target size: six numbers. The refiner has a score instead of the target size, and
  // its pooled text has the width of OpenCLIP-G.
  constexpr int64_t kSizes = 6, kRefinerSizes = 5, kOpenClipG = 1280;
  c.num_time_ids = c.added_width - kRefinerSizes * c.time_id_width == kOpenClipG ? kRefinerSizes : kSizes;
  c.pooled_width = c.added_width - c.num_time_ids * c.time_id_width;
  if (c.pooled_width < 1 || c.time_id_width % 2 != 0)
    return invalid_argument("config: projection_class_embeddings_input_dim {} has no room for {} embeddings of {}",
                            c.added_width, c.num_time_ids, c.time_id_width);
  return {};
}

Result<UnetConfig> read_unet_config(const nlohmann::json& json) {
  REDLINE_TRY(check_unused(json));
  ConfigReader r(json);
  UnetConfig c;
  REDLINE_ASSIGN(const auto down, read_blocks(json, "down_block_types", "DownBlock2D", "CrossAttnDownBlock2D"));
  REDLINE_ASSIGN(const auto up, read_blocks(json, "up_block_types", "UpBlock2D", "CrossAttnUpBlock2D"));
  const size_t n = down.size();
  if (up.size() != n) return invalid_argument("config: {} blocks down and {} up", n, up.size());
  REDLINE_ASSIGN(const auto channels, read_per_level(json, "block_out_channels", n, 320, kUnetMaxWidth));
  REDLINE_ASSIGN(const auto layers, read_per_level(json, "layers_per_block", n, 2, kUnetMaxLayers));
  // Despite its name this is the number of heads.
  REDLINE_ASSIGN(const auto heads, read_per_level(json, "attention_head_dim", n, 8, 1024));
  REDLINE_ASSIGN(const auto transformers, read_per_level(json, "transformer_layers_per_block", n, 1, kUnetMaxLayers));
  REDLINE_ASSIGN(const auto cross, read_per_level(json, "cross_attention_dim", n, 1280, kUnetMaxWidth));
  for (size_t i = 0; i < n; ++i) {
    if (cross[i] != cross[0]) return unsupported("config: cross_attention_dim differs between levels");
    c.levels.push_back({channels[i], heads[i], layers[i], transformers[i], down[i], up[n - 1 - i]});
  }
  c.text_width = c.cross_width = cross[0];
  c.in_channels = r.integer("in_channels", 1, kUnetMaxWidth, 4);
  c.out_channels = r.integer("out_channels", 1, kUnetMaxWidth, 4);
  c.groups = r.integer("norm_num_groups", 1, kUnetMaxWidth, 32);
  c.eps = static_cast<float>(r.number("norm_eps", 0, 1, 1e-5));
  c.cosine_first = r.boolean("flip_sin_to_cos", true);
  c.frequency_shift = static_cast<float>(r.number("freq_shift", -1000, 1000, 0));
  if (const std::string act = r.text("act_fn", "silu"); act != "silu" && act != "swish")
    r.fail(unsupported("config: act_fn is \"{}\"; only silu is supported", act));
  if (const std::string mid = r.text("mid_block_type", "UNetMidBlock2DCrossAttn"); mid != "UNetMidBlock2DCrossAttn")
    r.fail(unsupported("config: mid_block_type is \"{}\"; only UNetMidBlock2DCrossAttn is supported", mid));
  if (const std::string type = r.text("encoder_hid_dim_type", ""); type == "text_proj")
    c.projected_text = r.integer("encoder_hid_dim", 1, kUnetMaxWidth);
  else if (!type.empty())
    r.fail(unsupported("config: encoder_hid_dim_type is \"{}\"; only text_proj is supported", type));
  if (c.projected_text > 0) c.text_width = c.projected_text;
  REDLINE_TRY(r.status());
  REDLINE_TRY(read_added_embedding(r, c));
  for (const Level& level : c.levels) {
    if (level.channels % c.groups != 0)
      return invalid_argument("config: norm_num_groups {} does not divide {} channels", c.groups, level.channels);
    if (level.channels % level.num_heads != 0)
      return invalid_argument("config: attention_head_dim {} (the number of heads) does not divide {} channels",
                              level.num_heads, level.channels);
  }
  if (c.levels[0].channels % 2 != 0) return invalid_argument("config: {} channels are not even", c.levels[0].channels);
  return c;
}

class UnetBuilder {
 public:
  UnetBuilder(const Checkpoint& checkpoint, const UnetConfig& c)
      : c_(c), g_("unet"), w_(g_, checkpoint), b_(g_, w_, c.groups, c.eps),
        transformer_norms_(g_, w_, c.groups, kTransformerNormEps) {}

  Result<Graph> build() {
    const Value latents = g_.input("latents", DType::kF32, {b_.batch * height(0) * width(0), c_.in_channels});
    time_ = time_embedding();
    text_ = g_.input("text", DType::kF32, {b_.batch * kText, c_.text_width});
    if (c_.projected_text > 0) text_ = b_.project(text_, "encoder_hid_proj", c_.cross_width);

    FeatureMap x = b_.conv({latents, height(0), width(0)}, "conv_in", c_.levels[0].channels);
    skips_ = {x};
    for (size_t i = 0; i < c_.levels.size(); ++i) x = down_block(x, i);
    const Level& last = c_.levels.back();
    x = resnet(x, "mid_block.resnets.0", last.channels);
    x = resnet(transformer(x, "mid_block.attentions.0", last), "mid_block.resnets.1", last.channels);
    for (size_t i = c_.levels.size(); i-- > 0;) x = up_block(x, i);
    x = b_.conv(b_.norm(x, "conv_norm_out", true), "conv_out", c_.out_channels);
    g_.output("model_output", x.value);
    REDLINE_ASSIGN(Graph graph, g_.finish());
    REDLINE_TRY(w_.expect_all_taken());
    return graph;
  }

 private:
  Dim height(size_t level) const { return grid_.extent(0, static_cast<int>(level)); }
  Dim width(size_t level) const { return grid_.extent(1, static_cast<int>(level)); }

  Value embed(Value x, const std::string& name) {
    x = b_.project(x, name + ".linear_1", c_.time_width());
    if (!x.valid()) return x;
    return b_.project(activation(g_, x, Activation::kSilu), name + ".linear_2", c_.time_width());
  }
  /// Adds silu of the sum of the embeddings of timestep, pooled text and sizes: [batch, time_width].
  Value time_embedding() {
    const TimestepEmbeddingAttrs attrs = {
        .cols = c_.levels[0].channels, .cosine_first = c_.cosine_first, .frequency_shift = c_.frequency_shift};
    Value sum = embed(timestep_embedding(g_, g_.input("timestep", DType::kF32, {b_.batch}), attrs), "time_embedding");
    if (c_.added_width > 0) {
      Value added = g_.input("pooled", DType::kF32, {b_.batch, c_.pooled_width});
      TimestepEmbeddingAttrs of_id = attrs;
      of_id.cols = c_.time_id_width;
      const Value ids = g_.input("time_ids", DType::kF32, {b_.batch * Dim(c_.num_time_ids)});
      const Value embedded = timestep_embedding(g_, ids, of_id);
      for (int64_t i = 0; i < c_.num_time_ids; ++i)
        added = concat_cols(g_, added, slice_rows(g_, embedded, b_.batch, c_.num_time_ids, i, 1));
      g_.set_scope("add_embedding");
      sum = add(g_, sum, embed(added, "add_embedding"));
    }
    g_.set_scope("time_embedding");
    return activation(g_, sum, Activation::kSilu);
  }

  FeatureMap resnet(const FeatureMap& x, const std::string& name, int64_t out) {
    return b_.resnet(x, name, out, time_, c_.time_width());
  }

  FeatureMap down_block(FeatureMap x, size_t i) {
    const Level& level = c_.levels[i];
    const std::string block = fmt::format("down_blocks.{}", i);
    for (int64_t layer = 0; layer < level.layers; ++layer) {
      x = resnet(x, fmt::format("{}.resnets.{}", block, layer), level.channels);
      if (level.attends_down) x = transformer(x, fmt::format("{}.attentions.{}", block, layer), level);
      skips_.push_back(x);
    }
    if (i + 1 < c_.levels.size()) {
      x = b_.downsample(x, block + ".downsamplers.0.conv", 1, height(i + 1), width(i + 1));
      skips_.push_back(x);
    }
    return x;
  }

  FeatureMap up_block(FeatureMap x, size_t i) {
    const Level& level = c_.levels[i];
    const std::string block = fmt::format("up_blocks.{}", c_.levels.size() - 1 - i);
    for (int64_t layer = 0; layer <= level.layers; ++layer) {
      const std::string name = fmt::format("{}.resnets.{}", block, layer);
      g_.set_scope(name);
      if (!x.value.valid() || !skips_.back().value.valid()) return {};
      x.value = concat_cols(g_, x.value, skips_.back().value);
      skips_.pop_back();
      x = resnet(x, name, level.channels);
      if (level.attends_up) x = transformer(x, fmt::format("{}.attentions.{}", block, layer), level);
    }
    if (i > 0) x = b_.upsample(x, block + ".upsamplers.0.conv", height(i - 1), width(i - 1));
    return x;
  }

  /// Adds attention of queries from x over the rows of `from`, `tokens` per item.
  Value attention(Value x, Value from, const Dim& pixels, Dim tokens, const std::string& name, const Level& level) {
    const int64_t C = level.channels, head_dim = C / level.num_heads;
    const Value q = b_.project(x, name + ".to_q", C, false);
    const Value k = b_.project(from, name + ".to_k", C, false), v = b_.project(from, name + ".to_v", C, false);
    g_.set_scope(name);
    const Value keys = pack_kv(g_, {{k, v, std::move(tokens)}}, b_.batch, level.num_heads, head_dim);
    const Value y =
        joint_attention(g_, q, b_.batch, pixels, keys,
                        {level.num_heads, head_dim, static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)))});
    return b_.project(y, name + ".to_out.0", C);
  }
  Value norm(Value x, const std::string& name, int64_t channels) {
    g_.set_scope(name);
    return layer_norm(g_, x, w_.take(name + ".weight", {channels}), w_.take(name + ".bias", {channels}),
                      {kLayerNormEps, true});
  }
  Value sum(Value a, Value b, const std::string& name) {
    g_.set_scope(name);
    return a.valid() && b.valid() ? add(g_, a, b) : Value{};
  }

  FeatureMap transformer(const FeatureMap& x, const std::string& name, const Level& level) {
    const int64_t C = level.channels;
    const Dim pixels = x.height * x.width;
    Value h = b_.project(transformer_norms_.norm(x, name + ".norm", false).value, name + ".proj_in", C);
    for (int64_t i = 0; i < level.transformer_layers; ++i) {
      const std::string block = fmt::format("{}.transformer_blocks.{}", name, i);
      const Value own = norm(h, block + ".norm1", C);
      h = sum(h, attention(own, own, pixels, pixels, block + ".attn1", level), block);
      h = sum(h, attention(norm(h, block + ".norm2", C), text_, pixels, kText, block + ".attn2", level), block);
      const Value wide = b_.project(norm(h, block + ".norm3", C), block + ".ff.net.0.proj", 8 * C);
      g_.set_scope(block + ".ff");
      h = sum(h, b_.project(gated_activation(g_, wide, {}, Activation::kGelu), block + ".ff.net.2", C), block);
    }
    return {sum(x.value, b_.project(h, name + ".proj_out", C), name), x.height, x.width};
  }

  const UnetConfig& c_;
  GraphBuilder g_;
  WeightReader w_;
  ConvBlocks b_, transformer_norms_;
  const Dim kText = Symbol::kTextTokens;
  const Grid grid_ = image_grid(kMaxLevels - 1);
  Value time_, text_;
  std::vector<FeatureMap> skips_;
};

Result<DenoiserModel> build_unet(const Checkpoint& checkpoint, BlockSplit /*blocks*/) {
  REDLINE_ASSIGN(const UnetConfig c, read_unet_config(checkpoint.config));
  DenoiserModel model;
  model.family = "unet";
  model.in_channels = c.in_channels;
  model.out_channels = model.latent_channels = c.out_channels;
  model.text_width = c.text_width;
  model.pooled_width = c.pooled_width;
  model.num_time_ids = c.num_time_ids;
  model.grid = image_grid(kMaxLevels - 1);
  REDLINE_ASSIGN(model.front, UnetBuilder(checkpoint, c).build());
  return model;
}

constexpr std::string_view kUnetDenoiserClasses[] = {"UNet2DConditionModel"};

}  // namespace

extern const DenoiserRow kUnetDenoiser = {
    .class_names = kUnetDenoiserClasses,
    .build = build_unet,
    .adapter_names = unet_stored_modules,
};

}  // namespace redline
