// The denoising loop, which turns noise into latents: model output, guidance and solver step for each noise level.
#pragma once

#include <functional>

#include "diffusion/cached_denoiser.h"
#include "diffusion/pipeline_loader.h"
#include "diffusion/torch_generator.h"

namespace redline {

/// Inputs of the denoising loop.
struct DenoiseInputs {
  const ImageRequest* request = nullptr;  ///< the request, with defaults filled in
  int64_t images = 0;
  LatentShape latents;
  double guidance_scale = 1;            ///< scale of classifier-free guidance; 1: one branch
  PromptConditions positive, negative;  ///< negative: only used with guidance
  // These are in the rows of LatentShape, [images, tokens, columns].
  std::vector<float> noise;
  std::vector<float> init_latents;   ///< image to image; else empty
  std::vector<float> mask;           ///< inpainting by blending: 1 is regenerated; else empty
  std::vector<float> mask_latents;   ///< as DenoiserBatch::mask_latents
  NoiseSource* generator = nullptr;  ///< draws in the order of planes

  bool guided() const { return guidance_scale != 1; }
};

/// One run of the denoising loop.
class DenoiseLoop {
 public:
  /// `pipeline` and `inputs` must outlive the loop, which may move tensors out of `inputs`.
  DenoiseLoop(Pipeline& pipeline, DenoiseInputs& inputs) : p_(pipeline), in_(inputs) {}
  /// Runs all steps and fills in the latents, step times, operations and warnings of `result`.
  /// cancelled: `on_step` returned false. internal: the model's output is not finite.
  Status run(const std::function<bool(const ImageProgress&)>& on_step, ImageResult& result);

 private:
  Status make_solver();
  void init_latents();
  FloatArray planes() const;
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
  std::vector<float> latents_;  ///< [images, tokens, columns], the order in which the network reads them
  std::vector<int64_t> rows_;   ///< rows of the denoiser's batch: all positive ones, then all negative ones
  std::vector<float> scaled_, outputs_, renoised_;
  std::vector<float> before_;  ///< latents before the step, for previews
};

}  // namespace redline
