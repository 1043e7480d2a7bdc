#include "diffusion/image_network.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/text_distance.h"
#include "diffusion/image_weights.h"
#include "diffusion/network_io.h"
#include "models/image/image_registry.h"
#include "text/json_reader.h"

namespace redline {
namespace {

Status check_network_options(const NetworkOptions& o) {
  const std::tuple<const char*, int64_t, int64_t, int64_t> bounds[] = {
      {"max_batch", o.max_batch, 1, 64},
      {"max_latent_side", o.max_latent_side, 8, 2048},
      {"max_text_tokens", o.max_text_tokens, 1, 1 << 16},
      {"front_blocks", o.front_blocks, 0, 1000},
      {"tail_blocks", o.tail_blocks, 0, 1000},
      {"max_adapter_rank", o.max_adapter_rank, 0, 4096},
  };
  for (const auto& [name, value, least, most] : bounds)
    if (value < least || value > most) return invalid_argument("{} {} is outside [{}, {}]", name, value, least, most);
  if (o.vae_tile < -1 || (o.vae_tile > 0 && o.vae_tile < 64))
    return invalid_argument("vae_tile {}: tiles have at least 64 pixels", o.vae_tile);
  return {};
}

/// Returns the caller's weights as a checkpoint that does not own its tensors, which are packed or copied before open()
/// returns.
Result<Checkpoint> checkpoint_of(const std::string& class_name, const std::string& config,
                                 std::span<const NamedTensor> tensors) {
  Checkpoint checkpoint;
  checkpoint.path = class_name;
  checkpoint.format = "safetensors";
  REDLINE_ASSIGN(checkpoint.config, parse_json_object(config, class_name + ": config"));
  checkpoint.config["architectures"] = {class_name};  // distinguishes a text encoder with a projection from one without
  for (const NamedTensor& tensor : tensors) {
    if (tensor.type == TensorType::kI32)
      return invalid_argument("{}: tensor {} has type I32; weights are F32, F16 or BF16", class_name, tensor.name);
    WeightSource source;
    source.view = {dtype_of(tensor.type), tensor.shape, tensor.data};
    if (!checkpoint.tensors.emplace(tensor.name, std::move(source)).second)
      return invalid_argument("{}: there are two tensors {}", class_name, tensor.name);
  }
  return checkpoint;
}

}  // namespace

Result<std::unique_ptr<ImageNetwork>> ImageNetwork::open(const std::string& class_name, const std::string& config,
                                                         std::span<const NamedTensor> tensors,
                                                         const NetworkOptions& options) {
  try {
    const std::vector<std::string_view> classes = image_component_classes();
    if (std::find(classes.begin(), classes.end(), class_name) == classes.end())
      return unsupported("network class \"{}\"{}; Redline has {}", class_name, the_nearest(class_name, classes),
                         fmt::join(classes, ", "));
    REDLINE_TRY(check_network_options(options));
    REDLINE_ASSIGN(Checkpoint checkpoint, checkpoint_of(class_name, config, tensors));
    REDLINE_ASSIGN(std::shared_ptr<Runtime> runtime, choose_runtime(options.runtime, {options.threads, ""}));
    REDLINE_ASSIGN(const DeviceChoice device, choose_device(options.device));
    const Precision type = resolve_precision(options.dtype, resources_of(*runtime).kernels(), device);
    ExecutableOptions network = image_network_options(type, device);
    SymbolValues& bounds = network.bounds;
    bounds[Symbol::kBatch] = 1;
    bounds[Symbol::kTextTokens] = options.max_text_tokens;
    const LatentShape largest = {.height = options.max_latent_side, .width = options.max_latent_side};
    if (const auto row = find_text_encoder(class_name); row.ok()) {
      REDLINE_TRY(convert_image_weights(checkpoint, text_encoder_precision(type)));
      REDLINE_ASSIGN(TextEncoderModel model, (*row)->build(checkpoint).within(class_name));
      return TextEncoderNetwork::make(std::move(model), std::move(runtime), network, options);
    }
    if (const auto row = find_autoencoder(class_name); row.ok()) {
      REDLINE_TRY(convert_image_weights(checkpoint, autoencoder_precision(type)));
      REDLINE_ASSIGN(AutoencoderModel model, (*row)->build(checkpoint).within(class_name));
      set_extents(model.grid, largest, bounds);
      return AutoencoderNetwork::make(std::move(model), std::move(runtime), network, options);
    }
    REDLINE_ASSIGN(const DenoiserRow* row, find_denoiser(class_name));
    REDLINE_TRY(convert_image_weights(checkpoint, type));
    BlockSplit blocks(options.front_blocks, options.tail_blocks);
    blocks.modulated = true;  // the step cache is set later
    REDLINE_ASSIGN(DenoiserModel model, row->build(checkpoint, blocks).within(class_name));
    set_extents(model.grid, largest, bounds);
    bounds[Symbol::kBatch] = options.max_batch;
    const int64_t tokens = options.max_latent_side / model.patch;
    bounds[Symbol::kImageTokens] = tokens * tokens;
    return DenoiserNetwork::make(std::move(model), std::move(runtime), network, options);
  } catch (const std::bad_alloc&) {
    return out_of_memory("{}: out of memory while opening the network", class_name);
  }
}

}  // namespace redline
