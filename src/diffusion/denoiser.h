// A compiled denoiser: its three programs run for any subset of the rows of a batch, so that a step cache can leave
// rows out.
#pragma once

#include <map>

#include "diffusion/adapters.h"
#include "diffusion/latents.h"
#include "diffusion/row_buffers.h"
#include "diffusion/step_invariants.h"
#include "models/image_models.h"
#include "runtime/executable.h"

namespace redline {

/// Inputs that stay constant over the steps of a run. A row is one guidance branch of one image: row r belongs to image
/// r % images.
struct DenoiserBatch {
  int64_t images = 0, rows = 0;
  LatentLayout layout;
  int64_t text_tokens = 0;
  /// Inputs other than latents and timestep, by name: "text" [rows, text_tokens, text_width], "pooled" [rows,
  /// pooled_width], "guidance" [rows], ...
  std::map<std::string, std::vector<float>> conditions;
  std::map<std::string, std::vector<int32_t>> integer_conditions;  ///< "key_lengths" [rows]
  /// The timesteps of the run in order. What depends on the timestep only is computed for many of them at once; others
  /// may follow.
  std::vector<double> timesteps;
  /// Of an inpainting network, the same for every image: mask and latents of the masked image, [1 + channels, height,
  /// width].
  std::vector<float> mask_latents;
};

class Denoiser {
 public:
  /// `options.bounds` bounds every batch. `max_adapter_rank`: gives every linear layer and convolution an
  /// adapter site of this rank; 0: none. `runtime` outlives the denoiser.
  static Result<std::unique_ptr<Denoiser>> make(DenoiserModel model, const ExecutableOptions& options,
                                                int64_t max_adapter_rank, RuntimeResources& runtime);
  NetworkAdapters& adapters() { return adapters_; }
  const DenoiserModel& model() const { return model_; }
  bool has_parts() const { return !middle_.empty(); }
  bool is_inpainting() const { return model_.is_inpainting(); }

  /// Begins a run: computes the step invariants.
  /// invalid_argument: an input is missing or has another size.
  Status begin(DenoiserBatch batch);

  /// The model output for `rows`. x: [images, channels, height, width]; out: [rows, channels, height, width].
  Status evaluate(std::span<const int64_t> rows, std::span<const float> x, double timestep, std::span<float> out);

  // The parts, for `rows` (increasing indices into the batch). The outputs of a part for a row stay until it runs again
  // for that row.
  Status run_front(std::span<const int64_t> rows, std::span<const float> x, double timestep);
  Status run_middle(std::span<const int64_t> rows);
  Status run_tail(std::span<const int64_t> rows, std::span<float> out);
  /// The output of a part for one row: "embedded", "image", "text" of the front; "middle.image", "middle.text" of the
  /// middle, which a cache may write instead. Empty when the network has no such output.
  std::span<float> state(const std::string& name, int64_t row);

  /// The parts, then the step invariants: of the text, of the timesteps.
  std::vector<const Executable*> networks() const {
    return {&front_, &middle_, &tail_, &invariants_.text(), &invariants_.time()};
  }
  const DenoiserBatch& batch() const { return batch_; }
  /// Operations of the matrix products of one step of a part (an index into networks()) for `rows` rows.
  double flops(size_t part, int64_t rows) const { return static_cast<double>(networks()[part]->flops(sizes(rows))); }

 private:
  SymbolValues sizes(int64_t rows) const;
  /// `earlier`: prefix of the outputs of the part before.
  Status run(Executable& network, std::span<const int64_t> rows, const std::string& earlier);
  /// The same for a part whose outputs later parts read, which are kept as `prefix` + name.
  Status run_and_keep(Executable& network, std::span<const int64_t> rows, const std::string& earlier,
                      const std::string& prefix);
  void unpack(const float* network_rows, std::span<const int64_t> rows, std::span<float> out) const;

  Denoiser() = default;
  DenoiserModel model_;
  NetworkAdapters adapters_;
  std::vector<Executable::Port> conditions_;  ///< inputs that the batch provides
  StepInvariants invariants_;
  Executable front_, middle_, tail_;
  DenoiserBatch batch_;
  std::vector<float> rope_, positions_;  ///< of one row
  std::vector<float> planes_;            ///< of one image, with the mask channels of an inpainting network
  double timestep_ = 0;
  RowBuffers states_;  ///< what parts leave for later ones and for a step cache
};

}  // namespace redline
