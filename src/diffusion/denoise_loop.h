// The loop that turns noise into latents: model output, guidance, solver step, once for each noise level.
#pragma once

#include <functional>

#include "diffusion/cached_denoiser.h"
#include "diffusion/pipeline_loader.h"
#include "diffusion/torch_generator.h"

namespace redline {

/// What the loop starts from.
struct DenoiseInputs {
  const ImageRequest* request = nullptr;  ///< with its open fields filled in
  int64_t images = 0;
  LatentLayout layout;
  double guidance_scale = 1;            ///< of classifier-free guidance; 1: one branch
  PromptConditions positive, negative;  ///< negative: with guidance
  std::vector<float> noise;             ///< [images, channels, height, width]
  std::vector<float> init_latents;      ///< image to image: the same shape; else empty
  std::vector<float> mask;              ///< inpainting by blending: 1 is regenerated, the same shape; else empty
  std::vector<float> mask_latents;      ///< of an inpainting network: [1 or images, 1 + channels, height, width]
  NoiseSource* generator = nullptr;

  bool guided() const { return guidance_scale != 1; }
};

class DenoiseLoop {
 public:
  /// Both outlive the loop. It may move tensors out of `inputs`.
  DenoiseLoop(Pipeline& pipeline, DenoiseInputs& inputs) : p_(pipeline), in_(inputs) {}
  /// Fills the latents, step times, operations and warnings of `result`.
  /// cancelled: `on_step` returned false. internal: the model's output is not finite.
  Status run(const std::function<bool(const ImageProgress&)>& on_step, ImageResult& result);

 private:
  Status make_solver();
  void init_latents();
  Status begin_denoiser();
  Result<CachedDenoiser> make_cached_denoiser() const;
  Status evaluate(CachedDenoiser& denoiser, int index, const StepPoint& at);
  void guide(std::span<float> output) const;
  void keep_unmasked(int next);
  bool is_guided(int index) const;
  Result<RgbImage> preview(int index, int64_t image, int64_t max_side) const;

  Pipeline& p_;
  DenoiseInputs& in_;
  std::unique_ptr<Solver> solver_;
  std::string solver_name_;
  FloatArray latents_;
  std::vector<int64_t> rows_;  ///< of the denoiser's batch: all positive ones, then all negative ones
  std::vector<float> scaled_, outputs_, renoised_;
  std::vector<float> before_;  ///< latents before the step, for previews
};

}  // namespace redline
