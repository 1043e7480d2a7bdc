// The engine behind include/redline/image.h: a pipeline's networks, compiled once, and the loop that feeds latents
// back.
#pragma once

#include <mutex>

#include "diffusion/denoiser.h"
#include "diffusion/pipeline_adapters.h"
#include "diffusion/pipeline_files.h"
#include "diffusion/pipelines.h"
#include "diffusion/solver.h"
#include "diffusion/step_cache/rule.h"
#include "diffusion/torch_generator.h"
#include "redline/image.h"

namespace redline {

class DiffusionEngine final : public ImageEngine {
 public:
  static Result<std::unique_ptr<DiffusionEngine>> make(const std::string& path, const ImageOptions& options);
  ~DiffusionEngine() override;

  const std::string& family() const override { return family_name_; }
  ImageRequest defaults() const override { return defaults_; }
  Result<ImageResult> generate(const ImageRequest& request,
                               const std::function<bool(const ImageProgress&)>& on_step) override;
  Status load_adapter(const std::string& name, const std::string& path) override;
  Status set_adapters(const std::vector<std::pair<std::string, double>>& adapters) override;
  MemoryReport memory() const override;
  std::string describe_program() const override;

 private:
  DiffusionEngine() = default;
  struct Run;  ///< one request on its way
  Status open_encoders(const PipelineFiles& files, const NetworkOptions& options);
  Status resolve(const ImageRequest& request, Run& run) const;
  Status encode_prompts(Run& run);
  Status take_embeds(Run& run) const;
  void add_sizes(Run& run) const;
  Status draw_noise(Run& run);
  Status denoise(Run& run, const std::function<bool(const ImageProgress&)>& on_step);
  Status decode(Run& run);
  int64_t vae_tile(const LatentLayout& layout) const;
  Status read_init_picture(Run& run);
  Status read_told_mask(Run& run);

  std::string family_name_;
  ImageOptions options_;
  const PipelineFamily* family_ = nullptr;
  ImageRequest defaults_;
  nlohmann::json scheduler_config_;
  std::vector<CalibratedMask> masks_;
  bool zeros_for_empty_prompt_ = false;
  std::mutex mutex_;  // requests take turns
  std::unique_ptr<WorkerTeam> team_;
  TimelineFile timeline_;
  TextEncoders encoders_;
  std::unique_ptr<Denoiser> denoiser_;
  PipelineAdapters adapters_;
  AutoencoderModel autoencoder_;  ///< its graphs are gone into the networks
  Network decode_, encode_;
};

}  // namespace redline
