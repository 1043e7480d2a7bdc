#include "diffusion/single_file_names.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "formats/byte_reader.h"

namespace redline {
namespace {

struct NamePair {
  std::string_view original, own;
};
constexpr NamePair kUnetResnet[] = {{"in_layers.0", "norm1"},          {"in_layers.2", "conv1"},
                                    {"emb_layers.1", "time_emb_proj"}, {"out_layers.0", "norm2"},
                                    {"out_layers.3", "conv2"},         {"skip_connection", "conv_shortcut"}};
constexpr NamePair kUnetTop[] = {{"input_blocks.0.0", "conv_in"},
                                 {"out.0", "conv_norm_out"},
                                 {"out.2", "conv_out"},
                                 {"time_embed.0", "time_embedding.linear_1"},
                                 {"time_embed.2", "time_embedding.linear_2"},
                                 {"label_emb.0.0", "add_embedding.linear_1"},
                                 {"label_emb.0.2", "add_embedding.linear_2"}};
constexpr NamePair kVaeAttention[] = {
    {"norm", "group_norm"}, {"q", "to_q"}, {"k", "to_k"}, {"v", "to_v"}, {"proj_out", "to_out.0"}};
constexpr NamePair kOpenClipLayer[] = {{"ln_1", "layer_norm1"},
                                       {"ln_2", "layer_norm2"},
                                       {"mlp.c_fc", "mlp.fc1"},
                                       {"mlp.c_proj", "mlp.fc2"},
                                       {"attn.out_proj", "self_attn.out_proj"}};

/// Returns the name of diffusers for an original name; "" if no row has it.
std::string own_name(std::span<const NamePair> names, std::string_view original) {
  for (const NamePair& pair : names)
    if (pair.original == original) return std::string(pair.own);
  return "";
}

/// Reads the parts of a name between dots, from left to right.
class NameReader {
 public:
  explicit NameReader(std::string_view name) : rest_(name) {}

  bool take(std::string_view part) {
    if (!rest_.starts_with(part)) return false;
    rest_.remove_prefix(part.size());
    return true;
  }
  /// A number below kMaxNumber and the dot after it.
  bool take(int64_t& number) {
    constexpr int64_t kMaxNumber = 10'000;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), number);
    if (error != std::errc() || end == rest_.data() + rest_.size() || *end != '.' || number < 0 || number >= kMaxNumber)
      return false;
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()) + 1);
    return true;
  }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

/// Removes the last part of a name and returns it: "weight" of "out.2.weight", of which "out.2" remains.
std::string_view take_parameter(std::string_view& name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {};
  const std::string_view parameter = name.substr(dot + 1);
  name = name.substr(0, dot);
  return parameter;
}

/// Returns the diffusers name of a module of the UNet; "" if the UNet has no module of this name. A level has `layers`
/// layers and the downsampler to the next level on the way down, and one more layer on the way up.
std::string unet_module(std::string_view original, int64_t layers) {
  if (std::string top = own_name(kUnetTop, original); !top.empty()) return top;
  NameReader r(original);
  int64_t block = 0, part = 0;
  const int64_t per_level = layers + 1;
  if (r.take("middle_block.") && r.take(part)) {
    if (part == 1) return fmt::format("mid_block.attentions.0.{}", r.rest());
    const std::string module = own_name(kUnetResnet, r.rest());
    return module.empty() || part > 2 ? "" : fmt::format("mid_block.resnets.{}.{}", part / 2, module);
  }
  const bool is_down = r.take("input_blocks.");
  if ((!is_down && !r.take("output_blocks.")) || !r.take(block) || !r.take(part)) return "";
  if (is_down && block == 0) return "";
  const int64_t place = is_down ? block - 1 : block, level = place / per_level, layer = place % per_level;
  const std::string scope = fmt::format("{}_blocks.{}.", is_down ? "down" : "up", level);
  if (is_down && r.rest() == "op") return scope + "downsamplers.0.conv";
  if (!is_down && r.rest() == "conv") return scope + "upsamplers.0.conv";
  if (part == 1) return fmt::format("{}attentions.{}.{}", scope, layer, r.rest());
  const std::string module = own_name(kUnetResnet, r.rest());
  return module.empty() || part != 0 ? "" : fmt::format("{}resnets.{}.{}", scope, layer, module);
}

/// Returns the diffusers name of a module of the autoencoder, whose decoder has `levels`.
std::string autoencoder_module(std::string_view original, int64_t levels) {
  if (original == "quant_conv" || original == "post_quant_conv") return std::string(original);
  NameReader r(original);
  const bool is_encoder = r.take("encoder.");
  if (!is_encoder && !r.take("decoder.")) return "";
  const std::string half = is_encoder ? "encoder." : "decoder.";
  const auto resnet_name = [](std::string_view name) {
    return name == "nin_shortcut" ? std::string("conv_shortcut") : std::string(name);
  };
  if (r.rest() == "conv_in" || r.rest() == "conv_out") return half + std::string(r.rest());
  if (r.rest() == "norm_out") return half + "conv_norm_out";
  if (r.take("mid.attn_1.")) {
    const std::string module = own_name(kVaeAttention, r.rest());
    return module.empty() ? "" : half + "mid_block.attentions.0." + module;
  }
  if (r.take("mid.block_1.")) return half + "mid_block.resnets.0." + resnet_name(r.rest());
  if (r.take("mid.block_2.")) return half + "mid_block.resnets.1." + resnet_name(r.rest());
  const bool is_down = r.take("down.");
  int64_t level = 0, layer = 0;
  if ((!is_down && !r.take("up.")) || !r.take(level)) return "";
  // The original counts the levels of the decoder from the largest image.
  const std::string scope =
      fmt::format("{}{}_blocks.{}.", half, is_down ? "down" : "up", is_down ? level : levels - 1 - level);
  if (r.rest() == "downsample.conv") return scope + "downsamplers.0.conv";
  if (r.rest() == "upsample.conv") return scope + "upsamplers.0.conv";
  if (r.take("block.") && r.take(layer)) return fmt::format("{}resnets.{}.{}", scope, layer, resnet_name(r.rest()));
  return "";
}

Status no_tensor_of(const std::string& name, const char* network) {
  return unsupported("tensor {} is not part of {}", in_quotes(name), network);
}

/// Returns rows [begin, begin + rows) of a matrix, or these elements of a vector.
WeightSource rows_of(const WeightSource& source, int64_t begin, int64_t rows) {
  WeightSource part = source;
  const int64_t columns = source.view.shape.size() > 1 ? source.view.shape[1] : 1;
  part.view.shape[0] = rows;
  part.view.data = static_cast<const uint8_t*>(source.view.data) + begin * row_bytes(source.view.dtype, columns);
  return part;
}

Result<WeightSource> transposed(const std::string& name, const WeightSource& source) {
  const int64_t rows = source.view.shape[0], cols = source.view.shape[1];
  const auto size = static_cast<size_t>(row_bytes(source.view.dtype, 1));
  const auto* from = static_cast<const uint8_t*>(source.view.data);
  REDLINE_ASSIGN(auto file, MappedFile::make(name, source.view.bytes(), [&](uint8_t* to) {
                   for (int64_t row = 0; row < rows; ++row)
                     for (int64_t col = 0; col < cols; ++col)
                       std::memcpy(to + static_cast<size_t>(col * rows + row) * size,
                                   from + static_cast<size_t>(row * cols + col) * size, size);
                 }));
  WeightSource result;
  result.view = {source.view.dtype, {cols, rows}, file->data()};
  result.file = std::move(file);
  return result;
}

}  // namespace

Result<WeightSources> rename_unet(const WeightSources& tensors, const nlohmann::json& config) {
  const auto given = config.find("layers_per_block");
  const int64_t layers = given != config.end() && given->is_number_integer() ? given->get<int64_t>() : 2;
  if (layers < 1 || layers > 100) return invalid_argument("config: layers_per_block is {}", layers);
  WeightSources renamed;
  for (const auto& [name, source] : tensors) {
    std::string_view module = name;
    const std::string_view parameter = take_parameter(module);
    const std::string own = unet_module(module, layers);
    if (own.empty()) return no_tensor_of(name, "a UNet of Stable Diffusion");
    renamed[fmt::format("{}.{}", own, parameter)] = source;
  }
  return renamed;
}

Result<WeightSources> rename_autoencoder(const WeightSources& tensors, const nlohmann::json&) {
  int64_t levels = 0;
  for (const auto& [name, source] : tensors) {
    NameReader r(name);
    if (int64_t level = 0; r.take("decoder.up.") && r.take(level)) levels = std::max(levels, level + 1);
  }
  WeightSources renamed;
  for (const auto& [name, source] : tensors) {
    if (name.starts_with("loss.") || name.starts_with("model_ema.")) continue;  // tensors of the training only
    std::string_view module = name;
    const std::string_view parameter = take_parameter(module);
    const std::string own = autoencoder_module(module, levels);
    if (own.empty()) return no_tensor_of(name, "the autoencoder of Stable Diffusion");
    // The original file stores the projections of attention as 1x1 convolutions.
    WeightSource& target = renamed[fmt::format("{}.{}", own, parameter)];
    target = source;
    std::vector<int64_t>& shape = target.view.shape;
    if (own.find(".attentions.") != std::string::npos && shape.size() == 4 && shape[2] == 1 && shape[3] == 1)
      shape.resize(2);
  }
  return renamed;
}

Result<WeightSources> rename_clip(const WeightSources& tensors, const nlohmann::json&) {
  WeightSources renamed = tensors;
  std::erase_if(renamed, [](const auto& entry) { return entry.first.ends_with("position_ids"); });
  return renamed;
}

Result<WeightSources> rename_open_clip(const WeightSources& tensors, const nlohmann::json& config) {
  const auto given = config.find("num_hidden_layers");
  const int64_t layers = given != config.end() && given->is_number_integer() ? given->get<int64_t>() : 0;
  WeightSources renamed;
  for (const auto& [name, source] : tensors) {
    const std::vector<int64_t>& shape = source.view.shape;
    NameReader r(name);
    int64_t layer = 0;
    if (r.take("transformer.resblocks.") && r.take(layer)) {
      if (layer >= layers) continue;
      const std::string scope = fmt::format("text_model.encoder.layers.{}.", layer);
      if (r.rest() == "attn.in_proj_weight" || r.rest() == "attn.in_proj_bias") {
        if (shape.empty() || shape[0] % 3 != 0)
          return invalid_argument("tensor {} is not made of three parts", in_quotes(name));
        const int64_t rows = shape[0] / 3;
        for (int64_t i = 0; i < 3; ++i)
          renamed[fmt::format("{}self_attn.{}_proj.{}", scope, "qkv"[i], r.rest().substr(r.rest().rfind('_') + 1))] =
              rows_of(source, i * rows, rows);
        continue;
      }
      std::string_view module = r.rest();
      const std::string_view parameter = take_parameter(module);
      const std::string own = own_name(kOpenClipLayer, module);
      if (own.empty()) return no_tensor_of(name, "an OpenCLIP text encoder");
      renamed[fmt::format("{}{}.{}", scope, own, parameter)] = source;
    } else if (name == "token_embedding.weight") {
      renamed["text_model.embeddings.token_embedding.weight"] = source;
    } else if (name == "positional_embedding") {
      renamed["text_model.embeddings.position_embedding.weight"] = source;
    } else if (name == "ln_final.weight" || name == "ln_final.bias") {
      renamed["text_model.final_layer_norm." + name.substr(name.rfind('.') + 1)] = source;
    } else if (name == "text_projection") {
      // The original multiplies by the matrix from the left, so it is transposed.
      if (shape.size() != 2) return invalid_argument("tensor {} is not a matrix", in_quotes(name));
      REDLINE_ASSIGN(renamed["text_projection.weight"], transposed(name, source));
    } else if (name != "logit_scale" && name != "attn_mask") {
      return no_tensor_of(name, "an OpenCLIP text encoder");
    }
  }
  return renamed;
}

}  // namespace redline
