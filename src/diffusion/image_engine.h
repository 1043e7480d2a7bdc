// The engine behind include/redline/image.h: resolves a request, encodes its prompts and images, runs the denoising
// loop and decodes the latents.
#pragma once

#include <mutex>

#include "diffusion/pipeline_loader.h"
#include "models/checkpoint/weight_examiner.h"
#include "redline/image.h"

namespace redline {

class DiffusionEngine final : public ImageEngine {
 public:
  DiffusionEngine(std::unique_ptr<Pipeline> pipeline, const std::string& path);

  const std::string& family() const override { return pipeline_->family_name; }
  bool is_guidance_distilled() const override { return pipeline_->row->is_distilled; }
  bool takes_guidance_scale() const override {
    return !is_guidance_distilled() || pipeline_->denoiser->model().takes_guidance;
  }
  int64_t size_multiple() const override;
  std::pair<int64_t, int64_t> size_of(const ImageRequest& request) const override;
  ImageRequest defaults() const override { return pipeline_->defaults; }
  Result<ImageResult> generate(const ImageRequest& request,
                               const std::function<bool(const ImageProgress&)>& on_step) override;
  Result<PromptEmbeds> encode_prompts(const std::vector<std::string>& prompts, int64_t max_sequence_length) override;
  Result<MediaResult> decode(const FloatArray& latents) override;
  Status load_adapter(const std::string& name, const std::string& path) override;
  Status set_adapters(const std::vector<std::pair<std::string, double>>& adapters) override;
  MemoryReport memory() const override;
  /// Returns a listing of the compiled programs of the denoiser and of the VAE decoder.
  std::string describe_program() const;

 private:
  /// Adds the weight that is the reason, if `failure` is about values that are not finite.
  Status explained(Status failure);

  std::unique_ptr<Pipeline> pipeline_;
  WeightExaminer examiner_;
  std::mutex mutex_;  // one request at a time
};

/// Returns the text of an engine's compiled programs. `engine` was returned by ImageEngine::open. Not part of the
/// public API.
std::string describe_program(const ImageEngine& engine);

}  // namespace redline
