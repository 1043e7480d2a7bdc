// AutoencoderTiny: TAESD and its kin (Bohan 2023, github.com/madebyollin/taesd), small convolutional networks that
// replace a family's autoencoder. Tensors have the names of diffusers' AutoencoderTiny; tensors of original files
// (torch_file.h) are renamed when opened. Those for FLUX.2 have a branch with a norm in some blocks.
#include <algorithm>
#include <filesystem>

#include "formats/torch_file.h"
#include "graph/ops/activation.h"
#include "graph/ops/add.h"
#include "graph/ops/group_norm.h"
#include "graph/ops/linear.h"
#include "models/blocks/conv_blocks.h"
#include "models/checkpoint/config_reader.h"
#include "models/image/image_registry.h"

namespace redline {
namespace {

constexpr int64_t kAutoencoderTinyMaxChannels = 1 << 14, kMaxBlocks = 64, kMaxStages = 8;
constexpr int64_t kPoolGroups = 4;
constexpr float kPoolEps = 1e-5f;

struct TinyConfig {
  int64_t width = 0, latent_channels = 0, image_channels = 3;
  std::vector<int64_t> encoder_blocks, decoder_blocks;  ///< number of blocks of each stage
  Activation activation = Activation::kRelu;
  double scaling = 1, shift = 0;
};

Result<std::vector<int64_t>> read_sizes(const nlohmann::json& json, const char* key, std::vector<int64_t> fallback,
                                        int64_t most) {
  const auto at = json.find(key);
  if (at == json.end() || at->is_null()) return fallback;
  std::vector<int64_t> sizes;
  const bool is_list = at->is_array() && !at->empty() && static_cast<int64_t>(at->size()) <= kMaxStages;
  for (const auto& item : is_list ? *at : nlohmann::json::array()) {
    if (!item.is_number_integer() || item.get<int64_t>() < 1 || item.get<int64_t>() > most) break;
    sizes.push_back(item.get<int64_t>());
  }
  if (!is_list || sizes.size() != at->size())
    return invalid_argument("config: {} is {}, expected one to {} whole numbers from 1 to {}", key, at->dump(),
                            kMaxStages, most);
  return sizes;
}

Result<TinyConfig> read_autoencoder_tiny_config(const nlohmann::json& json) {
  ConfigReader r(json);
  TinyConfig c;
  c.latent_channels = r.integer("latent_channels", 1, kAutoencoderTinyMaxChannels, 4);
  c.image_channels = r.integer("in_channels", 1, 64, 3);
  if (r.integer("out_channels", 1, 64, 3) != c.image_channels)
    r.fail(unsupported("config: out_channels differs from in_channels"));
  c.scaling = r.number("scaling_factor", 1e-6, 1e6, 1.0);
  c.shift = r.number("shift_factor", -1e6, 1e6, 0.0);
  if (r.integer("upsampling_scaling_factor", 1, 16, 2) != 2 || r.text("upsample_fn", "nearest") != "nearest")
    r.fail(unsupported("config: images are enlarged twice by nearest neighbours, not otherwise"));
  REDLINE_TRY(r.status());
  REDLINE_ASSIGN(c.activation, activation_from_name(r.text("act_fn", "relu")));
  REDLINE_TRY(r.status());
  REDLINE_ASSIGN(c.encoder_blocks, read_sizes(json, "num_encoder_blocks", {1, 3, 3, 3}, kMaxBlocks));
  REDLINE_ASSIGN(c.decoder_blocks, read_sizes(json, "num_decoder_blocks", {3, 3, 3, 1}, kMaxBlocks));
  if (c.encoder_blocks.size() != c.decoder_blocks.size())
    return unsupported("config: num_encoder_blocks and num_decoder_blocks differ in length");
  for (const char* key : {"encoder_block_out_channels", "decoder_block_out_channels"}) {
    REDLINE_ASSIGN(const auto widths, read_sizes(json, key, {64}, kAutoencoderTinyMaxChannels));
    if (c.width == 0) c.width = widths[0];
    for (const int64_t width : widths)
      if (width != c.width) return unsupported("config: {} has {} and {}; all are one number", key, width, c.width);
  }
  return c;
}

class TinyBuilder {
 public:
  TinyBuilder(const Checkpoint& checkpoint, const TinyConfig& c, std::string half)
      : checkpoint_(checkpoint), c_(c), half_(std::move(half)), g_("autoencoder_tiny." + half_), w_(g_, checkpoint),
        b_(g_, w_, 1, kPoolEps) {}

  Result<Graph> decode() {
    FeatureMap x = {g_.input("latents", DType::kF32, {b_.batch * height_ * width_, c_.latent_channels}), height_,
                    width_};
    g_.set_scope("clamp");
    x.value = activation(g_, x.value, Activation::kTanh3);
    x = activate(b_.conv(x, layer(), c_.width));
    ++index_;
    for (size_t stage = 0; stage < c_.decoder_blocks.size(); ++stage) {
      for (int64_t i = 0; i < c_.decoder_blocks[stage]; ++i) x = block(x);
      const bool last = stage + 1 == c_.decoder_blocks.size();
      if (last) {
        x = b_.conv(x, layer(), c_.image_channels);
        continue;
      }
      ++index_;  // the upsampling layer, which has no weights
      x = conv_without_bias(x, x.height * Dim(2), x.width * Dim(2), {.upsample = true});
    }
    g_.output("image", scaled(x.value, 2, -1));  // from [0, 1]
    return finish("encoder.");
  }

  Result<Graph> encode() {
    const auto stages = static_cast<int64_t>(c_.encoder_blocks.size());
    FeatureMap x = {{}, height_ * (int64_t{1} << (stages - 1)), width_ * (int64_t{1} << (stages - 1))};
    x.value = g_.input("image", DType::kF32, {b_.batch * x.height * x.width, c_.image_channels});
    x.value = scaled(x.value, 0.5f, 0.5f);
    for (int64_t stage = 0; stage < stages; ++stage) {
      const Dim left = int64_t{1} << (stages - 1 - stage);
      if (stage == 0) x = b_.conv(x, layer(), c_.width);
      else x = conv_without_bias(x, height_ * left, width_ * left, {.stride = 2});
      for (int64_t i = 0; i < c_.encoder_blocks[static_cast<size_t>(stage)]; ++i) x = block(x);
    }
    x = b_.conv(x, layer(), c_.latent_channels);
    g_.output("moments", x.value);
    return finish("decoder.");
  }

 private:
  std::string layer() { return fmt::format("{}.layers.{}", half_, index_++); }
  FeatureMap activate(const FeatureMap& x) { return {activation(g_, x.value, c_.activation), x.height, x.width}; }
  FeatureMap conv_without_bias(const FeatureMap& x, const Dim& height, const Dim& width, Conv2dAttrs attrs) {
    const std::string name = layer();
    g_.set_scope(name);
    const Value weight = w_.take(name + ".weight", {c_.width, c_.width, 3, 3});
    return conv2d(g_, x, b_.batch, weight, {}, height, width, attrs);
  }

  /// Adds relu(conv(relu(conv(relu(conv(x))))) + x).
  FeatureMap block(FeatureMap x) {
    const std::string name = layer();
    if (w_.has(name + ".pool.0.weight")) x = pool(x, name);
    FeatureMap h = activate(b_.conv(x, name + ".conv.0", c_.width));
    h = b_.conv(activate(b_.conv(h, name + ".conv.2", c_.width)), name + ".conv.4", c_.width);
    g_.set_scope(name);
    return activate({add(g_, x.value, h.value), x.height, x.width});
  }

  FeatureMap pool(const FeatureMap& x, const std::string& name) {
    const int64_t wide = 4 * c_.width;
    FeatureMap h = x;
    h.value = b_.project(x.value, name + ".pool.0", wide, false);
    g_.set_scope(name + ".pool");
    const Value weight = w_.take(name + ".pool.1.weight", {wide}), bias = w_.take(name + ".pool.1.bias", {wide});
    h.value = group_norm(g_, h, b_.batch, weight, bias, {kPoolGroups, kPoolEps});
    h.value = b_.project(activate(h).value, name + ".pool.3", c_.width, false);
    g_.set_scope(name + ".pool");
    return {add(g_, x.value, h.value), x.height, x.width};
  }

  /// Adds x * factor + offset as a linear layer with a diagonal float32 matrix, which rounds like float32.
  Value scaled(Value x, float factor, float offset) {
    if (!x.valid()) return x;
    const int64_t n = c_.image_channels;
    auto numbers = std::make_shared<std::vector<float>>(static_cast<size_t>(n * n + n), 0.0f);
    for (int64_t i = 0; i < n; ++i) {
      (*numbers)[static_cast<size_t>(i * n + i)] = factor;
      (*numbers)[static_cast<size_t>(n * n + i)] = offset;
    }
    const auto file = MappedFile::from_bytes(
        "range of an image", {reinterpret_cast<const char*>(numbers->data()), numbers->size() * sizeof(float)});
    g_.set_scope("range");
    const Value weight = g_.weight("range.weight", {{DType::kF32, {n, n}, file->data()}, {}, file});
    const Value bias = g_.weight("range.bias", {{DType::kF32, {n}, file->data() + n * n * 4}, {}, file});
    return linear(g_, x, weight, bias);
  }

  /// Returns the graph. `other`: prefix of the tensors of the other half.
  Result<Graph> finish(std::string_view other) {
    REDLINE_ASSIGN(Graph graph, g_.finish());
    for (const auto& [tensor, source] : checkpoint_.tensors)
      if (tensor.starts_with(other)) w_.ignore(tensor);
    REDLINE_TRY(w_.expect_all_taken());
    return graph;
  }

  const Checkpoint& checkpoint_;
  const TinyConfig& c_;
  std::string half_;  ///< "encoder", "decoder"
  GraphBuilder g_;
  WeightReader w_;
  ConvBlocks b_;
  int64_t index_ = 0;  ///< number of the next layer
  const Grid grid_ = image_grid();
  const Dim height_ = grid_.extent(0), width_ = grid_.extent(1);
};

/// Adds the tensors of one original file under diffusers' names. In the original the decoder's layer 0 is the clamp,
/// which diffusers does not count; in both, its blocks follow the activation after the first convolution.
Status add_original(const TorchFile& file, bool is_decoder, Checkpoint& checkpoint, std::vector<int64_t>& blocks) {
  std::vector<bool> is_block;
  for (const TorchTensor& tensor : file.tensors()) {
    const size_t dot = tensor.name.find('.');
    int64_t index = 0;
    for (const char digit : tensor.name.substr(0, dot)) {
      if (digit < '0' || digit > '9' || index > kMaxBlocks * kMaxStages)
        return unsupported("{}: tensor {} is not of a tiny autoencoder, whose names begin with the number of a layer",
                           file.path(), tensor.name);
      index = 10 * index + (digit - '0');
    }
    if (dot == std::string::npos || (is_decoder && index == 0))
      return unsupported("{}: tensor {} has no place in a tiny autoencoder", file.path(), tensor.name);
    if (!tensor.view.data)
      return unsupported("{}: tensor {} has type {}; Redline reads float32, float16 and bfloat16", file.path(),
                         tensor.name, tensor.type_name);
    const auto at = static_cast<size_t>(index);
    if (is_block.size() <= at) is_block.resize(at + 1, false);
    if (tensor.name.compare(dot, 6, ".conv.") == 0) is_block[at] = true;
    WeightSource source;
    source.view = tensor.view;
    source.file = file.file();
    checkpoint.tensors.emplace(fmt::format("{}.layers.{}{}", is_decoder ? "decoder" : "encoder",
                                           index - (is_decoder ? 1 : 0), tensor.name.substr(dot)),
                               std::move(source));
  }
  // A layer between two runs of blocks begins a new stage.
  blocks.clear();
  for (size_t i = 0; i < is_block.size(); ++i) {
    if (!is_block[i]) continue;
    if (i == 0 || !is_block[i - 1]) blocks.push_back(0);
    ++blocks.back();
  }
  return {};
}

Result<AutoencoderModel> build_autoencoder_tiny(const Checkpoint& checkpoint) {
  REDLINE_ASSIGN(const TinyConfig c, read_autoencoder_tiny_config(checkpoint.config));
  AutoencoderModel model;
  model.latent_channels = c.latent_channels;
  model.scale = int64_t{1} << (c.decoder_blocks.size() - 1);
  model.scale_all(c.scaling, c.shift);
  model.grid = image_grid();
  model.has_variance = false;
  REDLINE_ASSIGN(model.decode, TinyBuilder(checkpoint, c, "decoder").decode());
  REDLINE_ASSIGN(model.encode, TinyBuilder(checkpoint, c, "encoder").encode());
  return model;
}

}  // namespace

extern const AutoencoderRow kAutoencoderTiny = {
    .class_name = "AutoencoderTiny",
    .build = build_autoencoder_tiny,
};

Result<Checkpoint> open_original_autoencoder_tiny(const std::string& encoder_path, const std::string& decoder_path) {
  Checkpoint checkpoint;
  checkpoint.path = decoder_path;
  checkpoint.format = "torch";
  checkpoint.config = {{"_class_name", "AutoencoderTiny"}};
  std::vector<int64_t> blocks;
  for (const bool is_decoder : {false, true}) {
    REDLINE_ASSIGN(const TorchFile file, TorchFile::open(is_decoder ? decoder_path : encoder_path));
    REDLINE_TRY(add_original(file, is_decoder, checkpoint, blocks));
    checkpoint.config[is_decoder ? "num_decoder_blocks" : "num_encoder_blocks"] = blocks;
  }
  // The first convolution of the decoder: [width, latent channels, 3, 3].
  const auto first = checkpoint.tensors.find("decoder.layers.0.weight");
  if (first == checkpoint.tensors.end() || first->second.view.shape.size() != 4)
    return unsupported("{}: there is no tensor 1.weight, the first convolution of a tiny autoencoder's decoder",
                       decoder_path);
  const std::vector<int64_t>& shape = first->second.view.shape;
  checkpoint.config["latent_channels"] = shape[1];
  for (const char* key : {"encoder_block_out_channels", "decoder_block_out_channels"})
    checkpoint.config[key] = std::vector<int64_t>{shape[0]};
  return checkpoint;
}

}  // namespace redline
