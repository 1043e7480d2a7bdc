// One network of an image pipeline, built from tensors in the caller's memory: for programs that keep their own
// denoising loop, scheduler and tokenizers, such as diffusers.
//
//   std::vector<redline::NamedTensor> weights = ...;  // as in the network's safetensors file
//   auto unet = redline::ImageNetwork::open("UNet2DConditionModel", config_json, weights);
//   (*unet)->run({{latents, timestep, text}}, {{{"model_output", out}}});
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "redline/image.h"
#include "redline/option_types.h"

namespace redline {

enum class TensorType : uint8_t { kF32, kF16, kBF16, kI32 };

/// A dense tensor in the caller's memory, C order.
struct NamedTensor {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<int64_t> shape;
  const void* data = nullptr;
};
/// A buffer that receives an output of a network.
struct NamedOutput {
  std::string name;
  std::span<float> data;
};

/// Options of ImageNetwork::open(). The members that C has too are the rows of redline/network_options.inc, one by one
/// with type, default and meaning.
struct NetworkOptions {
#define REDLINE_OPTION(type, name, value, ...) REDLINE_CPP_##type name = value;
#include "redline/network_options.inc"
  std::shared_ptr<Runtime> runtime;  ///< shared with other engines; null: one with `threads`
};

/// Position of a denoiser's run in the caller's loop. All members are optional, but a step cache needs `step` and
/// `steps`.
struct NetworkStep {
  /// Name of the guidance branch, if each branch is a separate call. The conditional branch is called first.
  std::string context;
  int64_t step = 0, steps = 0;       ///< step in [0, steps); steps 0: unknown
  double sigma = 0, next_sigma = 0;  ///< share of noise in [0, 1] before and after: flow time, or sigma / (1 + sigma)
  double step_size = 0;              ///< Euler: the solver adds step_size * model_output; 0: another solver
  /// All timesteps of the loop, exactly as they are passed. Values that depend only on the timestep are precomputed.
  std::vector<double> timesteps;
};

/// Low-rank factors of one linear layer or convolution.
struct AdapterFactorPair {
  std::string adapter;   ///< name of the adapter; the products of several adapters for one module are summed
  std::string module;    ///< "down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q"
  NamedTensor down, up;  ///< [rank, in] and [out, rank]; for a convolution [rank, in, k, k] and [out, rank, 1, 1]
  double scale = 1;      ///< weight * alpha / rank
};

/// A denoiser, text encoder or autoencoder. Thread-safe: calls take turns.
class ImageNetwork {
 public:
  /// Opens a network. `class_name`: a class of diffusers or transformers; `config`: the JSON text of its config.
  /// Weights are packed into the engine's memory: the caller's tensors are not read after the call.
  /// unsupported: an unknown class (the message lists the known ones), or an unsupported setting in the config.
  /// invalid_argument: tensors that are missing, have another shape, or are not part of the network; the message names
  /// one.
  static Result<std::unique_ptr<ImageNetwork>> open(const std::string& class_name, const std::string& config,
                                                    std::span<const NamedTensor> tensors,
                                                    const NetworkOptions& options = {});
  virtual ~ImageNetwork() = default;

  /// Runs the network. Float inputs are kF32; list only the outputs that are needed. Inputs and outputs by kind of
  /// network:
  ///   denoiser      "latents" [batch, channels, height, width] as the scheduler has them, "timestep" [1] in the
  ///                 scheduler's units (0 .. 1000), "text" [batch, tokens, width], and what the family has of "pooled"
  ///                 [batch, width], "guidance" [batch], "time_ids" [batch, n], "key_lengths" [batch] kI32
  ///                 -> "model_output" [batch, latent_channels, height, width]
  ///   text_encoder  "tokens" [batch, tokens] kI32, "key_lengths" [batch] kI32 (T5; left out: all tokens)
  ///                 -> "hidden" [batch, tokens, width]; of CLIP "penultimate", the same shape, and "pooled"
  ///                 [batch, width]
  ///   autoencoder   "latents" [batch, latent_channels, height, width], its own: not scaled
  ///                 -> "image" [batch, 3, scale * height, scale * width] in [-1, 1]; or "image" -> "moments"
  ///                 [batch, 2 * latent_channels, height, width], means then log variances (tiny ones: means alone)
  /// A denoiser keeps values that depend only on the text as long as the text inputs do not change.
  /// invalid_argument: an input is missing, unknown or has another shape; a size is above its bound in the options.
  virtual Status run(std::span<const NamedTensor> inputs, std::span<const NamedOutput> outputs,
                     const NetworkStep& step) = 0;
  Status run(std::span<const NamedTensor> inputs, std::span<const NamedOutput> outputs) {
    return run(inputs, outputs, {});
  }

  /// Replaces the active LoRA adapters. Factors are copied.
  /// invalid_argument: a module that the network does not have, shapes that differ, ranks above max_adapter_rank.
  virtual Status set_adapters(std::span<const AdapterFactorPair> pairs) = 0;

  /// Sets the rule of a denoiser's step cache (ImageRequest::cache, quality, steps_budget); "none": every step is
  /// computed. unsupported: the network is not a denoiser, or is not divided into the parts that the rule skips.
  /// invalid_argument: an invalid rule, or one with other numbers of front or tail blocks than the network was opened
  /// with.
  virtual Status set_cache(const std::string& rule, double quality, int64_t steps_budget) = 0;

  /// Description of the network and of its last runs.
  struct Report {
    std::string kind;    ///< "denoiser", "text_encoder", "autoencoder"
    std::string family;  ///< family of a denoiser: "flux"
    std::vector<std::string> inputs, outputs;
    int64_t latent_channels = 0;          ///< channels of the latents of a denoiser or an autoencoder
    int64_t scale = 0;                    ///< image pixels per latent pixel of an autoencoder, in each direction
    int64_t width = 0, pooled_width = 0;  ///< widths of a text encoder's "hidden" and "pooled" outputs
    ImageEngine::MemoryReport memory;
    std::string cache;              ///< the rule with its parameters; "": none
    std::vector<int64_t> computed;  ///< for each step of the last loop: images whose step was computed, not forecast
    double executed_share = 1;      ///< computed share of the operations since the cache was set
    std::vector<std::string> warnings;  ///< settings of the rule that do not suit this network
  };
  virtual Report report() const = 0;
};

}  // namespace redline
