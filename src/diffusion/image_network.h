// Implements the networks of include/redline/network.h.
#pragma once

#include <mutex>
#include <optional>

#include "diffusion/cached_denoiser.h"
#include "diffusion/text_encoders.h"
#include "diffusion/vae_codec.h"
#include "redline/network.h"

namespace redline {

/// A denoiser that is called step by step. The rows of a call are images. If both halves of the latents are equal, they
/// are the two guidance branches of half as many images: diffusers puts the unconditional half first.
class DenoiserNetwork final : public ImageNetwork {
 public:
  static Result<std::unique_ptr<ImageNetwork>> make(DenoiserModel model, std::shared_ptr<Runtime> runtime,
                                                    const ExecutableOptions& network, const NetworkOptions& options);
  Status run(std::span<const NamedTensor> inputs, std::span<const NamedOutput> outputs,
             const NetworkStep& step) override;
  Status set_adapters(std::span<const AdapterFactorPair> pairs) override;
  Status set_cache(const std::string& rule, double quality, int64_t steps_budget) override;
  Report report() const override;

 private:
  /// The guidance branches of one call.
  struct Context {
    std::string name;
    int64_t branches = 0;
  };
  /// One call, its rows in the order of the denoiser's batch: the conditional branch first.
  struct Call {
    int64_t branches = 1;
    DenoiserBatch batch;
    std::vector<float> x;  ///< [images, tokens, columns], the rows of LatentShape
    /// Returns the row of the call that becomes row r of `batch`.
    int64_t given_row(int64_t r) const { return branches == 2 ? (r + batch.images) % batch.rows : r; }
  };

  DenoiserNetwork() = default;
  Result<Call> read_call(std::span<const NamedTensor> inputs, const NetworkStep& step) const;
  Status read_latents(const NamedTensor& latents, Call& call) const;
  Status read_conditions(std::span<const NamedTensor> inputs, Call& call) const;
  Result<int64_t> join(const Call& call, const std::string& context);
  Status evaluate(const Call& call, std::span<const int64_t> rows, double timestep, const NetworkStep& step);
  Status make_cache();

  mutable std::mutex mutex_;
  std::shared_ptr<Runtime> runtime_;
  NetworkOptions options_;
  std::unique_ptr<Denoiser> denoiser_;
  std::vector<Context> contexts_;  ///< calls whose branches are in the denoiser's batch
  std::vector<float> outputs_;
  RuleRequest rule_;
  std::optional<CachedDenoiser> cached_;
  std::vector<int64_t> computed_;
  int64_t last_step_ = -1;
  std::vector<std::string> active_adapters_;
};

class TextEncoderNetwork final : public ImageNetwork {
 public:
  static Result<std::unique_ptr<ImageNetwork>> make(TextEncoderModel model, std::shared_ptr<Runtime> runtime,
                                                    const ExecutableOptions& network, const NetworkOptions& options);
  Status run(std::span<const NamedTensor> inputs, std::span<const NamedOutput> outputs,
             const NetworkStep& step) override;
  Status set_adapters(std::span<const AdapterFactorPair> pairs) override;
  Status set_cache(const std::string& rule, double quality, int64_t steps_budget) override;
  Report report() const override;

 private:
  TextEncoderNetwork() = default;

  mutable std::mutex mutex_;
  std::shared_ptr<Runtime> runtime_;
  int64_t max_tokens_ = 0, max_adapter_rank_ = 0;
  TextEncoderModel model_;  ///< description of the model, whose graph has been moved to network_
  Executable network_;
  NetworkAdapters adapters_;
  std::vector<std::string> active_adapters_;
};

class AutoencoderNetwork final : public ImageNetwork {
 public:
  static Result<std::unique_ptr<ImageNetwork>> make(AutoencoderModel model, std::shared_ptr<Runtime> runtime,
                                                    const ExecutableOptions& network, const NetworkOptions& options);
  Status run(std::span<const NamedTensor> inputs, std::span<const NamedOutput> outputs,
             const NetworkStep& step) override;
  Status set_adapters(std::span<const AdapterFactorPair> pairs) override;
  Status set_cache(const std::string& rule, double quality, int64_t steps_budget) override;
  Report report() const override;

 private:
  AutoencoderNetwork() = default;
  Status expect_side(const char* name, int64_t side) const;
  Status decode(const NamedTensor& latents, std::span<float> out);
  Status encode(const NamedTensor& image, std::span<float> out);

  mutable std::mutex mutex_;
  std::shared_ptr<Runtime> runtime_;
  VaeCodec codec_;
  int64_t max_latent_side_ = 0;
};

}  // namespace redline
