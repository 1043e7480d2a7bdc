// AutoencoderKL: the variational autoencoders of FLUX and SD3 (16 channels, latents shifted, no quant convolutions),
// SDXL and SD1.5 (4 channels). Rombach et al. 2022, arXiv:2112.10752; diffusers' AutoencoderKL names the tensors.
#include <cmath>

#include "graph/ops/add.h"
#include "graph/ops/joint_attention.h"
#include "models/blocks/conv_blocks.h"
#include "models/checkpoint/config_reader.h"
#include "models/image/image_registry.h"

namespace redline {
namespace {

constexpr float kEps = 1e-6f;
constexpr int64_t kAutoencoderKlMaxChannels = 1 << 14;

struct KlConfig {
  std::vector<int64_t> channels;  ///< per level, from pixels to latents
  int64_t layers_per_block = 0, latent_channels = 0, image_channels = 3, groups = 0;
  bool mid_attention = true, quant_conv = true, post_quant_conv = true;
  double scaling = 0, shift = 0;
  /// Mean and standard deviation of each channel of the latents; empty: `shift` and `scaling` apply to all channels.
  std::vector<double> means, deviations;

  int64_t levels() const { return static_cast<int64_t>(channels.size()); }
};

/// Reads the channels of each level, a list of one to eight numbers.
Result<std::vector<int64_t>> read_channels(const nlohmann::json& json, const char* key) {
  std::vector<int64_t> list;
  const auto at = json.find(key);
  if (at == json.end() || !at->is_array() || at->empty() || at->size() > 8)
    return invalid_argument("config: {} must list the channels of one to eight levels", key);
  for (const auto& item : *at) {
    if (!item.is_number_integer() || item.get<int64_t>() < 1 || item.get<int64_t>() > kAutoencoderKlMaxChannels)
      return invalid_argument("config: {} has {}, channels are whole numbers from 1 to {}", key, item.dump(),
                              kAutoencoderKlMaxChannels);
    list.push_back(item.get<int64_t>());
  }
  return list;
}

/// Returns the finite numbers of an array with one entry for each channel of the latents. Empty: it is absent or null.
Result<std::vector<double>> read_channel_values(const nlohmann::json& json, const char* key, int64_t channels) {
  const auto at = json.find(key);
  if (at == json.end() || at->is_null()) return std::vector<double>();
  const bool is_list = at->is_array() && std::ssize(*at) == channels;
  std::vector<double> values;
  for (const auto& item : is_list ? *at : nlohmann::json::array())
    if (item.is_number() && std::isfinite(item.get<double>())) values.push_back(item.get<double>());
  if (!is_list || std::ssize(values) != channels)
    return invalid_argument("config: {} must be an array with a finite number for each of the {} channels", key,
                            channels);
  return values;
}

Result<KlConfig> read_autoencoder_kl_config(const nlohmann::json& json) {
  ConfigReader r(json);
  KlConfig c;
  REDLINE_ASSIGN(c.channels, read_channels(json, "block_out_channels"));
  c.layers_per_block = r.integer("layers_per_block", 1, 64, 1);
  c.latent_channels = r.integer("latent_channels", 1, 1024, 4);
  c.groups = r.integer("norm_num_groups", 1, kAutoencoderKlMaxChannels, 32);
  c.scaling = r.number("scaling_factor", 1e-6, 1e6, 0.18215);
  c.shift = r.number("shift_factor", -1e6, 1e6, 0.0);
  c.mid_attention = r.boolean("mid_block_add_attention", true);
  c.quant_conv = r.boolean("use_quant_conv", true);
  c.post_quant_conv = r.boolean("use_post_quant_conv", true);
  c.image_channels = r.integer("in_channels", 1, 64, 3);
  if (r.integer("out_channels", 1, 64, 3) != c.image_channels)
    r.fail(unsupported("config: out_channels differs from in_channels"));
  if (const std::string act = r.text("act_fn", "silu"); act != "silu" && act != "swish")
    r.fail(unsupported("config: act_fn is \"{}\"; AutoencoderKL has silu", act));
  for (const auto& [key, want] :
       {std::pair{"down_block_types", "DownEncoderBlock2D"}, {"up_block_types", "UpDecoderBlock2D"}}) {
    const auto list = json.find(key);
    if (list == json.end()) continue;
    if (!list->is_array() || list->size() != c.channels.size())
      r.fail(invalid_argument("config: {} and block_out_channels must have as many entries", key));
    else
      for (const auto& item : *list)
        if (item != want) r.fail(unsupported("config: {} has {}; only {} is supported", key, item.dump(), want));
  }
  REDLINE_TRY(r.status());
  REDLINE_ASSIGN(c.means, read_channel_values(json, "latents_mean", c.latent_channels));
  REDLINE_ASSIGN(c.deviations, read_channel_values(json, "latents_std", c.latent_channels));
  if (c.means.size() != c.deviations.size())
    return invalid_argument("config: latents_mean and latents_std belong together; one of them is missing");
  for (const double deviation : c.deviations)
    if (deviation <= 0) return invalid_argument("config: latents_std has {}; it must be above 0", deviation);
  if (!c.means.empty() && c.shift != 0)
    return invalid_argument("config: latents_mean and shift_factor {} are two shifts of the same latents", c.shift);
  for (const int64_t n : c.channels)
    if (n % c.groups != 0)
      return invalid_argument("config: norm_num_groups {} does not divide {} channels", c.groups, n);
  return c;
}

class KlBuilder {
 public:
  KlBuilder(const Checkpoint& checkpoint, const KlConfig& c, std::string name)
      : checkpoint_(checkpoint), c_(c), g_(std::move(name)), w_(g_, checkpoint), b_(g_, w_, c.groups, kEps) {}

  Result<Graph> decode() {
    const int64_t last = c_.levels() - 1;
    FeatureMap x = {g_.input("latents", DType::kF32, {b_.batch * height_ * width_, c_.latent_channels}), height_,
                    width_};
    if (c_.post_quant_conv) x = b_.conv(x, "post_quant_conv", c_.latent_channels, 1);
    x = b_.conv(x, "decoder.conv_in", c_.channels.back());
    x = mid_block(x, "decoder.mid_block");
    for (int64_t i = 0; i <= last; ++i) {
      const std::string block = fmt::format("decoder.up_blocks.{}", i);
      for (int64_t layer = 0; layer <= c_.layers_per_block; ++layer)
        x = b_.resnet(x, fmt::format("{}.resnets.{}", block, layer), c_.channels[static_cast<size_t>(last - i)]);
      if (i < last) x = b_.upsample(x, block + ".upsamplers.0.conv", x.height * Dim(2), x.width * Dim(2));
    }
    x = b_.conv(b_.norm(x, "decoder.conv_norm_out", true), "decoder.conv_out", c_.image_channels);
    g_.output("image", x.value);
    return finish({"encoder.", "quant_conv."});
  }

  Result<Graph> encode() {
    const int64_t last = c_.levels() - 1;
    const Dim scale = int64_t{1} << last;
    FeatureMap x = {{}, height_ * scale, width_ * scale};
    x.value = g_.input("image", DType::kF32, {b_.batch * x.height * x.width, c_.image_channels});
    x = b_.conv(x, "encoder.conv_in", c_.channels[0]);
    for (int64_t i = 0; i <= last; ++i) {
      const std::string block = fmt::format("encoder.down_blocks.{}", i);
      for (int64_t layer = 0; layer < c_.layers_per_block; ++layer)
        x = b_.resnet(x, fmt::format("{}.resnets.{}", block, layer), c_.channels[static_cast<size_t>(i)]);
      const Dim left = int64_t{1} << (last - i - 1 >= 0 ? last - i - 1 : 0);
      if (i < last) x = b_.downsample(x, block + ".downsamplers.0.conv", 0, height_ * left, width_ * left);
    }
    x = mid_block(x, "encoder.mid_block");
    x = b_.conv(b_.norm(x, "encoder.conv_norm_out", true), "encoder.conv_out", 2 * c_.latent_channels);
    if (c_.quant_conv) x = b_.conv(x, "quant_conv", 2 * c_.latent_channels, 1);
    g_.output("moments", x.value);
    return finish({"decoder.", "post_quant_conv."});
  }

 private:
  FeatureMap mid_block(FeatureMap x, const std::string& name) {
    const int64_t n = c_.channels.back();
    x = b_.resnet(x, name + ".resnets.0", n);
    if (c_.mid_attention) x = attention(x, name + ".attentions.0");
    return b_.resnet(x, name + ".resnets.1", n);
  }

  /// Adds attention with one head over all pixels.
  FeatureMap attention(const FeatureMap& x, const std::string& name) {
    const int64_t n = c_.channels.back();
    // Names of the four projections in files from before 2023.
    const bool old = w_.has(name + ".query.weight");
    const Value in = b_.norm(x, name + ".group_norm", false).value;
    const Value q = b_.project(in, name + (old ? ".query" : ".to_q"), n);
    const Value k = b_.project(in, name + (old ? ".key" : ".to_k"), n);
    const Value v = b_.project(in, name + (old ? ".value" : ".to_v"), n);
    g_.set_scope(name);
    const Dim pixels = x.height * x.width;
    const Value keys = pack_kv(g_, {{k, v, pixels}}, b_.batch, 1, n);
    const Value y = joint_attention(g_, q, b_.batch, pixels, keys,
                                    {1, n, static_cast<float>(1 / std::sqrt(static_cast<double>(n)))});
    const Value out = b_.project(y, name + (old ? ".proj_attn" : ".to_out.0"), n);
    g_.set_scope(name);
    if (!x.value.valid() || !out.valid()) return {};
    return {add(g_, x.value, out), x.height, x.width};
  }

  /// Returns the graph. `others`: prefixes of the tensors of the other half.
  Result<Graph> finish(const std::vector<std::string>& others) {
    REDLINE_ASSIGN(Graph graph, g_.finish());
    for (const auto& [tensor, source] : checkpoint_.tensors)
      for (const std::string& prefix : others)
        if (tensor.starts_with(prefix)) w_.ignore(tensor);
    REDLINE_TRY(w_.expect_all_taken());
    return graph;
  }

  const Checkpoint& checkpoint_;
  const KlConfig& c_;
  GraphBuilder g_;
  WeightReader w_;
  ConvBlocks b_;
  const Grid grid_ = image_grid();
  const Dim height_ = grid_.extent(0), width_ = grid_.extent(1);
};

Result<AutoencoderModel> build_autoencoder_kl(const Checkpoint& checkpoint) {
  REDLINE_ASSIGN(const KlConfig c, read_autoencoder_kl_config(checkpoint.config));
  AutoencoderModel model;
  model.latent_channels = c.latent_channels;
  model.scale = int64_t{1} << (c.levels() - 1);
  model.scale_all(c.scaling, c.shift);
  for (size_t i = 0; i < c.means.size(); ++i) {
    model.shift[i] = c.means[i];
    model.scaling[i] = c.scaling / c.deviations[i];
  }
  model.grid = image_grid();
  REDLINE_ASSIGN(model.decode, KlBuilder(checkpoint, c, "autoencoder_kl.decode").decode());
  REDLINE_ASSIGN(model.encode, KlBuilder(checkpoint, c, "autoencoder_kl.encode").encode());
  return model;
}

}  // namespace

extern const AutoencoderRow kAutoencoderKl = {
    .class_name = "AutoencoderKL",
    .build = build_autoencoder_kl,
};

}  // namespace redline
